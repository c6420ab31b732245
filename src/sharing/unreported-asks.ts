/**
 * Keeps what a node that is cut off has granted to its own calls, until the node has reported it to the
 * server. equal-share.ts makes one for each node. Main thread.
 *
 * Must hold: what was granted stays here until the server has replied to an ask with it; otherwise the server
 * grants it to others. Permits are not kept: those of the share the server holds back, and those of the
 * fallback quota it has on record at another node.
 */
import {
  EXCHANGE_ASKS_MAX,
  type LeaseAsk,
  type LeaseReply,
  mapStocks,
  type StockAsk,
} from './coordinator.js';

/**
 * What a node that is cut off holds of stocks, to be reported before anything else: the newest ask of each
 * scope, with what was granted to it. Bounded by the scopes of the ledger.
 */
export class UnreportedAsks {
  readonly #asks = new Map<string, LeaseAsk>();

  get size(): number {
    return this.#asks.size;
  }

  record({ scope, stocks = {} }: LeaseAsk, reply: LeaseReply): void {
    const earlierAsks = this.#asks.get(scope)?.stocks;
    const held = mapStocks(stocks, (ask, name): StockAsk => {
      const granted = reply.stocks?.[name]?.granted ?? 0n;
      const earlier = earlierAsks?.[name];
      // The ask's later period may be a mistake of this host's clock, and nothing is held of that period.
      if (earlier !== undefined && earlier.period < ask.period && granted === 0n) return earlier;
      return { ...ask, unused: ask.unused + granted, least: 0n, most: 0n };
    });
    this.#asks.set(scope, { scope, stocks: { ...earlierAsks, ...held } });
  }

  /** The next asks to report, as many as one exchange carries. */
  page(): LeaseAsk[] {
    return [...this.#asks.values()].slice(0, EXCHANGE_ASKS_MAX);
  }

  /** Removes asks that the server has replied to. A newer ask that was recorded meanwhile stays. */
  reported(page: readonly LeaseAsk[]): void {
    for (const ask of page) if (this.#asks.get(ask.scope) === ask) this.#asks.delete(ask.scope);
  }
}
