/**
 * What a coordinator does with an error that is neither the server's nor a damaged record: an exchange that
 * met a bug must not look like one whose connection was lost. `ValkeyPartition` and `LmdbCoordinator` use it
 * on the main thread of a gateway process.
 *
 * Must hold: it ends no process, and its stack is in the log (test/unit/sharing/valkey-damage.test.ts,
 * test/unit/sharing/lmdb-coordinator.test.ts).
 */
import { StoreError } from '../store/store-file.js';
import type { Log } from '../telemetry/log.js';
import { CoordinatorLost } from './coordinator.js';

export class UnexpectedErrors {
  readonly #log: Pick<Log, 'error'>;
  /** The last that was logged: one that comes with every exchange is logged once. */
  #known = '';

  constructor(log: Pick<Log, 'error'>) {
    this.#log = log;
  }

  /** Returns `error` as a loss; logs it before if nobody expects it. */
  asLoss(error: unknown): CoordinatorLost {
    if (error instanceof CoordinatorLost) return error;
    const reason = error instanceof Error ? error.message : String(error);
    if (!(error instanceof StoreError)) this.#record(reason, error);
    return new CoordinatorLost('failing', `leases cannot be had: ${reason}`, { cause: error });
  }

  #record(reason: string, error: unknown): void {
    if (reason === this.#known) return;
    this.#known = reason;
    const stack = error instanceof Error ? error.stack : undefined;
    this.#log.error('leases cannot be had: an error that nobody expects', { error: reason, stack });
  }
}
