/**
 * What a coordinator does with an error that is neither the server's nor a damaged record: an exchange that
 * met a bug must not look like one whose connection was lost. `ValkeyPartition` and `LmdbCoordinator` use it
 * on the main thread of a gateway process.
 *
 * Must hold: it ends no process, and its stack is in the log (test/unit/sharing/valkey-damage.test.ts,
 * test/unit/sharing/lmdb-coordinator.test.ts). Kinds that alternate neither fill the log nor hide each other
 * (test/unit/sharing/unexpected-errors.test.ts).
 */
import { errorText } from '../core/errors.js';
import { StoreError } from '../store/store-file.js';
import type { Log } from '../telemetry/log.js';
import { CoordinatorLost } from './coordinator.js';

/** Kinds that are remembered. A program has few bugs at a time. */
const KINDS_MAX = 50;
/** Numbers in a message, such as those of a position, make no kind of their own. */
const NUMBERS = /\d+/g;

export class UnexpectedErrors {
  readonly #log: Pick<Log, 'error'>;
  /** The kinds that were logged, the latest at the end. So an error of every exchange is logged once. */
  readonly #known = new Set<string>();

  constructor(log: Pick<Log, 'error'>) {
    this.#log = log;
  }

  /** Returns `error` as a loss; logs it before if nobody expects it. */
  asLoss(error: unknown): CoordinatorLost {
    if (error instanceof CoordinatorLost) return error;
    const reason = errorText(error);
    if (!(error instanceof StoreError)) this.#record(reason, error);
    return new CoordinatorLost('failing', `leases cannot be had: ${reason}`, { cause: error });
  }

  #record(reason: string, error: unknown): void {
    const kind = reason.replace(NUMBERS, '0');
    const isKnown = this.#known.delete(kind);
    this.#known.add(kind);
    if (isKnown) return;
    for (const oldest of this.#known) {
      if (this.#known.size <= KINDS_MAX) break;
      this.#known.delete(oldest);
    }
    const stack = error instanceof Error ? error.stack : undefined;
    this.#log.error('leases cannot be had: an error that nobody expects', { error: reason, stack });
  }
}
