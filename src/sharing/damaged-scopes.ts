/**
 * What a coordinator does with a scope if a row of it is damaged: it grants nothing, replies that it does not
 * know what is left, and says so once. `LmdbCoordinator`, `ValkeyCoordinator` and `ValkeyPartition` use it on
 * the main thread of a gateway process.
 *
 * Must hold: a coordinator does not write a damaged row of leases anew, because nobody knows who holds what;
 * and other scopes go on (test/unit/sharing/lmdb-coordinator.test.ts,
 * test/unit/sharing/valkey-damage.test.ts). A damaged row of use in the store is the flush's to replace
 * (store/quota-uses.ts, store/key-uses.ts).
 */
import { StoreError } from '../store/store-file.js';
import type { Log, LogFields } from '../telemetry/log.js';
import { type LeaseAsk, type LeaseReply, mapStocks } from './coordinator.js';
import { TICK_MS } from './grant-policy.js';

export class DamagedScopes {
  readonly #log: Pick<Log, 'error'>;
  readonly #message: string;
  /** Scopes that were logged. */
  readonly #known = new Set<string>();

  /** `message` says what is damaged, and what to do unless the fields of `record` say it. */
  constructor(log: Pick<Log, 'error'>, message: string) {
    this.#log = log;
    this.#message = message;
  }

  /** Logs the scope with `fields`, unless it was logged before. */
  record(scope: string, fields: LogFields): void {
    if (this.#known.has(scope)) return;
    this.#known.add(scope);
    this.#log.error(this.#message, { scope, ...fields });
  }

  /** What `read` returns; undefined, and recorded, if it throws that a record of the scope is damaged. */
  read<Result>(scope: string, read: () => Result): Result | undefined {
    try {
      return read();
    } catch (error) {
      // Any other error concerns more than this scope.
      if (!(error instanceof StoreError)) throw error;
      this.record(scope, { error: error.message });
      return undefined;
    }
  }
}

/** The reply if it is not known what is left. `nowMs` is the time by which the coordinator counts ticks. */
export function unknownReply({ minute, stocks = {} }: LeaseAsk, nowMs: number): LeaseReply {
  const unknown = { heldByOthers: true, freeInMs: 0 };
  const tick = Math.floor(nowMs / TICK_MS);
  return {
    ...(minute && { minute: { ...unknown, granted: 0, remaining: 0, tick, validMs: 0 } }),
    stocks: mapStocks(stocks, ({ period }) => ({ ...unknown, granted: 0n, remaining: 0n, period })),
    isUnknown: true,
  };
}
