/**
 * What a coordinator does with errors. If a row of a scope is damaged, it grants nothing of the scope,
 * replies that what remains is not known, and logs the damage once. Any other error becomes a
 * CoordinatorLost (coordinator.ts), so that the process goes on. If it is a bug it is logged too, because a
 * bug must not look like a lost connection. lmdb-coordinator.ts, valkey-coordinator.ts and
 * valkey-partition.ts use this file. Main thread of a gateway process.
 *
 * Must hold: a coordinator does not replace a damaged row of leases, because it is not known who holds what;
 * and other scopes go on (test/unit/sharing/lmdb-coordinator.test.ts,
 * test/unit/sharing/valkey-damage.test.ts). (The flush does replace a damaged row of use in the store:
 * store/quota-uses.ts, store/key-uses.ts.) A bug ends no process, and its stack is in the log (the same
 * tests). Up to KINDS_MAX kinds of bugs that alternate neither fill the log nor hide each other
 * (test/unit/sharing/coordinator-errors.test.ts).
 */
import { errorText } from '../core/errors.js';
import { StoreError } from '../store/store-file.js';
import type { Log, LogFields } from '../telemetry/log.js';
import { CoordinatorLost, type LeaseAsk, type LeaseReply, mapStocks } from './coordinator.js';
import { GRANT_TICK_MS } from './grant-policy.js';

/** The scopes of which a row is damaged, so that the log tells of each once. */
export class DamagedScopes {
  readonly #log: Pick<Log, 'error'>;
  readonly #message: string;
  /** Those that were logged, at most all of the ledger: a damaged row is met again at each exchange. */
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

  /**
   * Returns what `read` returns, which is not undefined, so that undefined means damage: `read` threw a
   * StoreError, and the scope was logged. Throws any other error, which concerns more than this scope. `read`
   * must read rows of this scope alone, from a store that is open: then a StoreError tells of such a row.
   */
  read<Result extends object | string | boolean>(scope: string, read: () => Result): Result | undefined {
    try {
      return read();
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      this.logOnce(scope, { error: error.message });
      return undefined;
    }
  }
}

/**
 * The reply if it is not known what remains: it grants nothing. `heldByOthers` is true, because that may be
 * so. `nowMs`: the time by which the coordinator counts ticks. Of a grant of nothing, the other fields say
 * nothing: 0 ms of validity, and `freeInMs` 0 as of what is not known.
 */
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
   * A StoreError is none: its message names the file and says what to do, and the status shows it.
   */
  asLost(error: unknown): CoordinatorLost {
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
    if (this.#loggedKinds.size > KINDS_MAX)
      this.#loggedKinds.delete(this.#loggedKinds.values().next().value!);
    const stack = error instanceof Error ? error.stack : undefined;
    this.#log.error('leases cannot be had: a bug of the gateway', { error: reason, stack });
  }
}
