/**
 * The identity of a process: its pid, its start time and the boot it runs in, as Linux's `/proc` shows them,
 * because a pid alone is reused. The store hold, leases and idempotency locks are rows that name the
 * identity of their process, and are void once that has ended. Main thread, or a command.
 *
 * `/proc` shows the processes of its own PID namespace alone, so a process of another container counts as
 * ended. Only store-hold.ts meets such processes, and asks the kernel's locks too. Under the store hold, each
 * row is of a process of this supervisor, or of one that has ended.
 *
 * Must hold: an identity begins with the pid and a space, because `isRunning` and store-hold.ts read the pid
 * from it (test/unit/store/store-hold.test.ts).
 */
import { readFileSync } from 'node:fs';

/** EPERM and EACCES: the process is hidden (hidepid), so it is another user's. */
const NO_SUCH_PROCESS: ReadonlySet<string | undefined> = new Set(['ENOENT', 'ESRCH', 'EPERM', 'EACCES']);

/**
 * A text that no other process of this PID namespace ever has. Undefined if no such process runs, or it is a
 * zombie. Throws what reading `/proc` throws otherwise, such as EMFILE.
 */
export function identityOf(pid: number): string | undefined {
  const startTicks = startTicksOf(pid);
  // Not in the `try` of `startTicksOf`: without the boot's id nobody knows that the process has ended.
  return startTicks === undefined ? undefined : `${pid} ${startTicks} ${readBootId()}`;
}

/** Undefined if no such process runs, or it is a zombie. */
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
    // Any other error, such as EMFILE, does not say whether the process runs.
    if (NO_SUCH_PROCESS.has((error as NodeJS.ErrnoException).code)) return undefined;
    throw error;
  }
}

/** A text that no other boot of any machine has. Undefined if `/proc` does not have it. */
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

/** proc_pid_stat(5): field 22, counted from the state, which is field 3. */
const START_FIELD = 19;

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
