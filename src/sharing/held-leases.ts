/**
 * The most that this node can have used and hold of each stock, by scope. valkey-partition.ts records each
 * ask and reply in a HeldLeases, and reports its entries to a server of sharing that has lost its data.
 * Between two asks the node can only come to hold less, because only a reply grants. Main thread.
 *
 * An entry takes some 200 bytes and lasts while something is held, or was used in a period that is not over.
 * There is at most one entry for each scope, so the numbers of accounts, keys and groups bound the entries.
 *
 * Must hold: an entry is never less than what the node can have used and hold; otherwise the server grants
 * the difference again after a loss of data, and a limit is exceeded (test/unit/sharing/held-leases.test.ts).
 */
import { maxOf } from '../core/units.js';
import {
  entriesOf,
  type LeaseAsk,
  type LeaseReply,
  mapStocks,
  type StockAsk,
  type StockGrant,
  type StockName,
  type Stocks,
} from './coordinator.js';

/** What the node can have used and hold of one stock. Amounts are in the unit of StockAsk. */
export interface HeldStock {
  readonly period: number;
  readonly used: bigint;
  readonly unused: bigint;
  /**
   * What all nodes together had used and held in the period, as the coordinator's last reply showed this
   * node; 0 if the stock has no period. Why it is reported: _Seen_ in valkey-stocks.ts.
   */
  readonly seen: bigint;
}

export type HeldScope = Stocks<HeldStock>;

export class HeldLeases {
  readonly #held = new Map<string, HeldScope>();
  /** The newest period of each stock. Of older periods nothing is kept. */
  readonly #periods = new Map<StockName, number>();

  /** What is held of the scope; {} if nothing is. */
  of(scope: string): HeldScope {
    return this.#held.get(scope) ?? {};
  }

  /**
   * Updates the scope by an ask and its reply. `reply` is undefined while none has come, and after one that
   * does not tell what was recorded: then the node can use no grant of the ask.
   */
  record({ scope, stocks = {} }: LeaseAsk, reply: LeaseReply | undefined): void {
    const formerHeld = this.of(scope);
    const held = mapStocks(stocks, (ask, name) => heldAfter(ask, reply?.stocks?.[name], formerHeld[name]));
    // Only a reply moves the period on: the period of an ask may be a mistake of the host's clock.
    for (const [name, { period }] of entriesOf(reply?.stocks ?? {}))
      this.#movePeriod(name, period, period < (stocks[name]?.period ?? 0));
    this.#keep(scope, { ...formerHeld, ...held });
  }

  keys(): IterableIterator<string> {
    return this.#held.keys();
  }

  /**
   * Moves the newest period of a stock to the period of a reply, and drops what is of earlier periods. It
   * moves back only if `wasMistake`: by the reply the ask's period was a mistake of the host's clock. Other
   * scopes then keep what they hold of the later period until the replies to their own asks come.
   */
  #movePeriod(name: StockName, period: number, wasMistake: boolean): void {
    const newest = this.#periods.get(name) ?? 0;
    if (wasMistake && period < newest) this.#periods.set(name, period);
    if (period <= newest) return;
    this.#periods.set(name, period);
    for (const [scope, held] of this.#held) if (held[name] !== undefined) this.#keep(scope, held);
  }

  /** Stores `held` without stocks of an earlier period and without empty ones. */
  #keep(scope: string, held: HeldScope): void {
    const kept = entriesOf(held).filter(
      ([name, { period, used, unused }]) =>
        period >= (this.#periods.get(name) ?? 0) && (unused > 0n || used > 0n),
    );
    if (kept.length === 0) this.#held.delete(scope);
    else this.#held.set(scope, Object.fromEntries(kept));
  }
}

/**
 * The new entry of a stock after `ask` was sent. `grant`: the coordinator's reply, undefined while there is
 * none. `before`: the entry until then, undefined if there was none.
 */
function heldAfter(ask: StockAsk, grant: StockGrant | undefined, before: HeldStock | undefined): HeldStock {
  const { limit, period, used, unused } = ask;
  if (grant === undefined) {
    // Nothing was granted yet of the later period, which may be a mistake of the host's clock. So what is
    // held of the earlier period still counts.
    if (before !== undefined && before.period < period) return before;
    // The ask reports all that the node has used and holds.
    const seen = before?.period === period ? before.seen : 0n;
    return { period, used, unused, seen };
  }
  const none = { used: 0n, unused: 0n };
  if (grant.period < period) {
    // The ask's period was a mistake, and nothing was granted of it. What was held before counts in the right
    // period, unless the right period has begun since: then nothing of that was granted yet.
    const isHeld = before !== undefined && before.period >= grant.period;
    return { ...(isHeld ? before : { ...none, seen: 0n }), period: grant.period };
  }
  // In the ask's period the grant adds to what the ask reports. If another node has named a later period,
  // what the ask reports belongs to a period that has ended, and only the grant counts.
  const reported = grant.period === period ? ask : none;
  const seen = grant.period > 0 ? maxOf(limit - grant.remaining, 0n) : 0n;
  return { period: grant.period, used: reported.used, unused: reported.unused + grant.granted, seen };
}
