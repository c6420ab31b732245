/**
 * What a coordinator does with a scope if a row of the scope is damaged: it grants nothing, replies that what
 * remains is not known, and logs the damage once. lmdb-coordinator.ts, valkey-coordinator.ts and
 * valkey-partition.ts use it. Main thread of a gateway process.
 *
 * Must hold: a coordinator does not replace a damaged row of leases, because it is not known who holds
 * what; and other scopes go on (test/unit/sharing/lmdb-coordinator.test.ts,
 * test/unit/sharing/valkey-damage.test.ts). A damaged row of use in the store is another matter: the flush
 * replaces it (store/quota-uses.ts, store/key-uses.ts).
 */
import { StoreError } from '../store/store-file.js';
import type { Log, LogFields } from '../telemetry/log.js';
import { type LeaseAsk, type LeaseReply, mapStocks } from './coordinator.js';
import { TICK_MS } from './grant-policy.js';

export class DamagedScopes {
  readonly #log: Pick<Log, 'error'>;
  readonly #message: string;
  /** Scopes that were logged. Never more than the ledger has. */
  readonly #loggedScopes = new Set<string>();

  /** `message` says what is damaged, and what to do unless the fields of `logOnce` say so. */
  constructor(log: Pick<Log, 'error'>, message: string) {
    this.#log = log;
    this.#message = message;
  }

  /** Logs the scope with `fields`, unless it was logged before. */
  logOnce(scope: string, fields: LogFields): void {
    if (this.#loggedScopes.has(scope)) return;
    this.#loggedScopes.add(scope);
    this.#log.error(this.#message, { scope, ...fields });
  }

  /** Returns what `read` returns. If `read` throws a StoreError, logs the scope and returns undefined. */
  read<Result>(scope: string, read: () => Result): Result | undefined {
    try {
      return read();
    } catch (error) {
      // Any other error concerns more than this scope.
      if (!(error instanceof StoreError)) throw error;
      this.logOnce(scope, { error: error.message });
      return undefined;
    }
  }
}

/** The reply if it is not known what remains: nothing is granted. `nowMs`: by which ticks are counted. */
export function unknownReply({ minute, stocks = {} }: LeaseAsk, nowMs: number): LeaseReply {
  const unknown = { heldByOthers: true, freeInMs: 0 };
  const tick = Math.floor(nowMs / TICK_MS);
  return {
    ...(minute && { minute: { ...unknown, granted: 0, remaining: 0, tick, validMs: 0 } }),
    stocks: mapStocks(stocks, ({ period }) => ({ ...unknown, granted: 0n, remaining: 0n, period })),
    isUnknown: true,
  };
}
