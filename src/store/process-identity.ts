/**
 * Which process a number means: numbers are used again, so a process is known by its number, when it started, and the boot
 * that it runs in. Linux's `/proc`. Main thread, or a command.
 */
import { readFileSync } from 'node:fs';

/** Text that no other process of this host has, ever; undefined where no such process runs (or it has ended and waits for its parent). */
export function identityOf(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // `42 (name) S 1 …`: the name may hold brackets and blanks. After it come the state and, 19 fields on, the start in ticks.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const [state] = fields;
    const startTicks = fields[START_FIELD];
    if (startTicks === undefined || state === 'Z' || state === 'X') return undefined;
    const boot = bootId();
    return boot === undefined ? undefined : `${pid} ${startTicks} ${boot}`;
  } catch {
    return undefined;
  }
}

/** Text that no other boot of any machine has; undefined where the system does not tell. */
export function bootId(): string | undefined {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
  } catch {
    return undefined;
  }
}

/** Of proc_pid_stat(5): field 22, where the state, at 0, is field 3. */
const START_FIELD = 19;

/** Whether the process that had this identity still runs. */
export function isRunning(identity: string): boolean {
  const pid = Number(identity.split(' ', 1)[0]);
  return Number.isSafeInteger(pid) && identityOf(pid) === identity;
}
