/**
 * Turns each error of a coordinator into a CoordinatorLost, so that the process goes on. Logs the error first
 * if it is a bug, which must not look like a lost connection. valkey-coordinator.ts and lmdb-coordinator.ts
 * use it. Main thread of a gateway process.
 *
 * Must hold: a bug ends no process, and its stack is in the log (test/unit/sharing/valkey-damage.test.ts and
 * lmdb-coordinator.test.ts there). Kinds of bugs that alternate neither fill the log nor hide each other
 * (test/unit/sharing/unexpected-errors.test.ts).
 */
import { errorText } from '../core/errors.js';
import { StoreError } from '../store/store-file.js';
import type { Log } from '../telemetry/log.js';
import { CoordinatorLost } from './coordinator.js';

/** How many kinds are remembered; a forgotten one is logged again. A program has few bugs at a time. */
const KINDS_MAX = 50;
/** Messages that differ only in numbers are of one kind. Messages with other names are of other kinds. */
const NUMBERS = /\d+/g;

export class UnexpectedErrors {
  readonly #log: Pick<Log, 'error'>;
  /** The kinds that were met last, the latest at the end. They are not logged again: exchanges repeat. */
  readonly #loggedKinds = new Set<string>();

  constructor(log: Pick<Log, 'error'>) {
    this.#log = log;
  }

  /**
   * Returns `error` as a CoordinatorLost. Logs it if it is a bug: no CoordinatorLost and no StoreError, which
   * is a damaged record or the disk: the message of the loss, which the status shows, says what to do.
   */
  asLoss(error: unknown): CoordinatorLost {
    if (error instanceof CoordinatorLost) return error;
    const reason = errorText(error);
    if (!(error instanceof StoreError)) this.#logOnce(reason, error);
    return new CoordinatorLost('failing', `leases cannot be had: ${reason}`, { cause: error });
  }

  #logOnce(reason: string, error: unknown): void {
    const kind = reason.replace(NUMBERS, '0');
    // Moves the kind to the end of the Set, which keeps the order of additions.
    const wasLogged = this.#loggedKinds.delete(kind);
    this.#loggedKinds.add(kind);
    if (wasLogged) return;
    for (const oldest of this.#loggedKinds) {
      if (this.#loggedKinds.size <= KINDS_MAX) break;
      this.#loggedKinds.delete(oldest);
    }
    const stack = error instanceof Error ? error.stack : undefined;
    this.#log.error('leases cannot be had: an error that nobody expects', { error: reason, stack });
  }
}
