/**
 * What a coordinator does with errors. If a row of a scope is damaged, it grants nothing of the scope,
 * replies that what remains is not known, and logs the damage once. Any other error becomes a
 * CoordinatorLost, so that the process goes on. If it is a bug it is logged too, because a bug must not look
 * like a lost connection. lmdb-coordinator.ts, valkey-coordinator.ts and valkey-partition.ts use this file.
 * Main thread of a gateway process.
 *
 * Must hold: a coordinator does not replace a damaged row of leases, because it is not known who holds what;
 * and other scopes go on (test/unit/sharing/lmdb-coordinator.test.ts,
 * test/unit/sharing/valkey-damage.test.ts). (The flush does replace a damaged row of use in the store:
 * store/quota-uses.ts, store/key-uses.ts.) A bug ends no process, and its stack is in the log (the same
 * tests). Kinds of bugs that alternate neither fill the log nor hide each other.
 */
import { errorText } from '../core/errors.js';
import { StoreError } from '../store/store-file.js';
import type { Log, LogFields } from '../telemetry/log.js';
import { CoordinatorLost, type LeaseAsk, type LeaseReply, mapStocks } from './coordinator.js';
import { GRANT_TICK_MS } from './grant-policy.js';

export class DamagedScopes {
  readonly #log: Pick<Log, 'error'>;
  readonly #message: string;
  /** Scopes that were logged. Never more than the ledger has. */
  readonly #loggedScopes = new Set<string>();

  /** `message` says what is damaged. It also says what to do, unless the fields of `logOnce` do. */
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

/** The reply if it is not known what remains: it grants nothing. `nowMs`: the time by which ticks count. */
export function unknownReply({ minute, stocks = {} }: LeaseAsk, nowMs: number): LeaseReply {
  const unknown = { heldByOthers: true, freeInMs: 0 };
  const tick = Math.floor(nowMs / GRANT_TICK_MS);
  return {
    ...(minute && { minute: { ...unknown, granted: 0, remaining: 0, tick, validMs: 0 } }),
    stocks: mapStocks(stocks, ({ period }) => ({ ...unknown, granted: 0n, remaining: 0n, period })),
    isUnknown: true,
  };
}

/** How many kinds are remembered; a forgotten one is logged again. A program has few bugs at a time. */
const KINDS_MAX = 50;
/** Messages that differ only in numbers are of one kind. Messages with other names are of other kinds. */
const NUMBERS = /\d+/g;

/** Turns each error of a coordinator into a CoordinatorLost. Logs it first if it is a bug. */
export class UnexpectedErrors {
  readonly #log: Pick<Log, 'error'>;
  /** The kinds that were met last, the latest at the end. They are not logged again: exchanges repeat. */
  readonly #loggedKinds = new Set<string>();

  constructor(log: Pick<Log, 'error'>) {
    this.#log = log;
  }

  /**
   * Returns `error` as a CoordinatorLost. Logs it if it is a bug: neither a CoordinatorLost nor a StoreError.
   * A StoreError tells of a damaged record or of the disk; the status shows its message, with what to do.
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
