/**
 * What a coordinator does with an error that is neither the server's nor a damaged record: an exchange that
 * met a bug must not look like one whose connection was lost. valkey-coordinator.ts and lmdb-coordinator.ts
 * use it. Main thread of a gateway process.
 *
 * Must hold: such an error ends no process, and its stack is in the log (test/unit/sharing/
 * valkey-damage.test.ts, lmdb-coordinator.test.ts). Kinds of errors that alternate neither fill the log nor
 * hide each other.
 */
import { errorText } from '../core/errors.js';
import { StoreError } from '../store/store-file.js';
import type { Log } from '../telemetry/log.js';
import { CoordinatorLost } from './coordinator.js';

/** How many kinds are remembered. A program has few bugs at a time. */
const KINDS_MAX = 50;
/** Messages that differ only in numbers, such as a position, are of one kind. */
const NUMBERS = /\d+/g;

export class UnexpectedErrors {
  readonly #log: Pick<Log, 'error'>;
  /** The kinds that were logged, the latest at the end. An error of every exchange is so logged once. */
  readonly #logged = new Set<string>();

  constructor(log: Pick<Log, 'error'>) {
    this.#log = log;
  }

  /** Returns `error` as a loss. Logs it first if it is a bug: neither a loss nor a StoreError. */
  asLoss(error: unknown): CoordinatorLost {
    if (error instanceof CoordinatorLost) return error;
    const reason = errorText(error);
    if (!(error instanceof StoreError)) this.#record(reason, error);
    return new CoordinatorLost('failing', `leases cannot be had: ${reason}`, { cause: error });
  }

  #record(reason: string, error: unknown): void {
    const kind = reason.replace(NUMBERS, '0');
    // To the end of the Set, which keeps the order of additions.
    const wasLogged = this.#logged.delete(kind);
    this.#logged.add(kind);
    if (wasLogged) return;
    for (const oldest of this.#logged) {
      if (this.#logged.size <= KINDS_MAX) break;
      this.#logged.delete(oldest);
    }
    const stack = error instanceof Error ? error.stack : undefined;
    this.#log.error('leases cannot be had: an error that nobody expects', { error: reason, stack });
  }
}
