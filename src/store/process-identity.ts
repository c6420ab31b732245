/**
 * The identity of a process: its pid, its start time and the boot it runs in, as Linux's `/proc` shows them,
 * because a pid alone is reused. store-hold.ts, sharing/lmdb-coordinator.ts (nodes) and
 * sharing/shared-locks.ts (idempotency locks) write it into rows that are void once the process has ended.
 * flush.ts and host-clocks.ts need the boot alone. Main thread, or a command.
 *
 * A process counts as ended if `/proc` lacks it, hides it (NO_PROCESS_ERRORS) or shows it as a zombie; so
 * does one of another container (PID namespace). Only store-hold.ts meets those, and asks the kernel's locks
 * too: under the store hold rows name processes of this supervisor, or processes that have ended.
 *
 * Must hold: a process counts as running if `/proc` cannot be read for any other reason, such as EMFILE
 * (test/unit/store/process-identity.test.ts). An identity begins with the pid and a space, because
 * `isRunning` and store-hold.ts read the pid from it (test/unit/store/store-hold.test.ts).
 */
import { readFileSync } from 'node:fs';

/**
 * EPERM and EACCES: the process is hidden (hidepid), so it is another user's. It counts as ended, because
 * commands run as the gateway's user (docs/operations.md) or as root, which sees all processes. A hidden
 * gateway that reads the store is found by store-hold.ts all the same, by the kernel's locks.
 */
const NO_PROCESS_ERRORS: ReadonlySet<string | undefined> = new Set(['ENOENT', 'ESRCH', 'EPERM', 'EACCES']);

/** The start in ticks is field 22 of proc_pid_stat(5); counted here from the state, which is field 3. */
const START_FIELD = 19;

/**
 * A text that no other process of this PID namespace ever has. Undefined if no process with this pid runs, or
 * it is a zombie. Throws if `/proc` cannot be read, for example with EMFILE.
 */
export function identityOf(pid: number): string | undefined {
  const startTicks = startTicksOf(pid);
  // `readBootId` may throw, and its error is not caught: undefined would say that the process has ended.
  return startTicks === undefined ? undefined : `${pid} ${startTicks} ${readBootId()}`;
}

/** Undefined and throws as `identityOf`. */
function startTicksOf(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // `42 (name) S 1 …`: the last bracket ends the name, which may contain brackets and blanks. After it come
    // the state and, START_FIELD fields on, the start in ticks.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const [state] = fields;
    // Z, X: a zombie, a dead process.
    return state === 'Z' || state === 'X' ? undefined : fields[START_FIELD];
  } catch (error) {
    // Other errors, such as EMFILE, do not say whether the process runs.
    if (NO_PROCESS_ERRORS.has((error as NodeJS.ErrnoException).code)) return undefined;
    throw error;
  }
}

/**
 * A text that no other boot of any machine has. Undefined if it cannot be read, for whatever reason: the
 * callers only compare clocks by it, and do without. `identityOf` reads it by `readBootId`, which throws.
 */
export function bootId(): string | undefined {
  try {
    return readBootId();
  } catch {
    return undefined;
  }
}

function readBootId(): string {
  return readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
}

/**
 * Whether the process that had this identity still runs in this PID namespace. True if `/proc` cannot be read
 * now: the locks of a running process must not be given away because this process is short of descriptors.
 */
export function isRunning(identity: string): boolean {
  const pid = Number(identity.split(' ', 1)[0]);
  try {
    return Number.isSafeInteger(pid) && identityOf(pid) === identity;
  } catch {
    return true;
  }
}
