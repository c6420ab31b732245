/**
 * The most that a node can have used and hold of stocks. `ValkeyCoordinator` records each ask and reply here,
 * and `ValkeyPartition` reports it to a server that has lost its data. Between two asks the node can only
 * hold less. Main thread.
 *
 * An entry takes some 200 bytes and lasts while something is held, or was used in a period that goes on. So
 * accounts, keys and groups bound the entries.
 *
 * Must hold: it is never less than the node can have used and hold. Test: unit/sharing/held-leases (grants
 * are added to what was said, and lost ones are not).
 */
import {
  entriesOf,
  type LeaseAsk,
  type LeaseReply,
  type StockAsk,
  type StockGrant,
  type StockName,
  type Stocks,
} from './coordinator.js';

export interface HeldStock {
  readonly period: number;
  readonly used: bigint;
  readonly unused: bigint;
  /** What all nodes together had used and held in the period when the coordinator last said so. */
  readonly seen: bigint;
}

export type HeldScope = Stocks<HeldStock>;

export class HeldLeases {
  readonly #held = new Map<string, HeldScope>();
  /** The newest period of each stock; what was held of older periods is dropped. */
  readonly #periods = new Map<StockName, number>();

  /** Number of scopes of which something is held. */
  get size(): number {
    return this.#held.size;
  }

  of(scope: string): HeldScope {
    return this.#held.get(scope) ?? {};
  }

  /** Takes in an ask and its reply. `reply` is undefined if none came: then the node can use no grant. */
  record({ scope, stocks = {} }: LeaseAsk, reply: LeaseReply | undefined): void {
    const before = this.of(scope);
    const held: Stocks<HeldStock> = Object.fromEntries(
      entriesOf(stocks).map(([name, ask]) => [name, heldOf(ask, reply?.stocks?.[name], before[name])]),
    );
    // What an ask says of the period may be a mistake of the host's clock.
    for (const [name, { period }] of entriesOf(reply?.stocks ?? {}))
      this.#turnTo(name, period, period < (stocks[name]?.period ?? 0));
    this.#keep(scope, { ...before, ...held });
  }

  entries(): IterableIterator<[string, HeldScope]> {
    return this.#held.entries();
  }

  /** `isBack`: what was held of later periods is still held, until its own asks are replied to. */
  #turnTo(name: StockName, period: number, isBack: boolean): void {
    const known = this.#periods.get(name) ?? 0;
    if (isBack && period < known) this.#periods.set(name, period);
    if (period <= known) return;
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

function heldOf(ask: StockAsk, grant: StockGrant | undefined, before: HeldStock | undefined): HeldStock {
  const { limit, period, used, unused } = ask;
  if (grant === undefined) {
    if (before !== undefined && before.period < period) return before;
    const seen = before?.period === period ? before.seen : 0n;
    return { period, used, unused, seen };
  }
  const none = { used: 0n, unused: 0n };
  if (grant.period < period) {
    const isHeld = before !== undefined && before.period >= grant.period;
    return { ...(isHeld ? before : { ...none, seen: 0n }), period: grant.period };
  }
  const said = grant.period === period ? ask : none;
  const seen = limit > grant.remaining && grant.period > 0 ? limit - grant.remaining : 0n;
  return { period: grant.period, used: said.used, unused: said.unused + grant.granted, seen };
}
