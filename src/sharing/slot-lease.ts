/**
 * The lease of call slots: what calls take comes back when they end. leased-scope.ts makes it, and tells it
 * of each limit; lease-manager.ts withholds its slots while others may be granted them. stock-leases.ts has
 * the rest. Main thread.
 *
 * Must hold: all leases together are at most the limit in force, also if it is lowered while calls hold all
 * slots or while slots are withheld. While slots are withheld no call takes one, and asks report those that
 * calls hold. Also test/unit/sharing/lease-quotas.test.ts and lease-stock.test.ts.
 */
import { minOf } from '../core/units.js';
import type { StockHeld, StockWords } from '../ledger/leased-stocks.js';
import type { StockAsk } from './coordinator.js';
import { StockLease, type StockNeed } from './stock-leases.js';

const TERMS = {
  firstNeed: 1n,
  /** How many slots a first ask wants: a client's usual concurrency. */
  batch: 8,
  /** A slot comes back when its call ends: one that was free for the length of some calls is not needed. */
  idleMsPlentiful: 8_000,
};

export class SlotLease extends StockLease<StockWords> {
  /** The limit under which the slots were granted, or to which they were cut; 0 before the first one. */
  #limit = 0n;
  /** While slots are withheld: how many the lease has apart from that; else undefined. */
  #withheld: bigint | undefined;

  constructor(words: StockWords, nowMs: number) {
    const { period } = words.read();
    // LeaseManager forgets only a lease of which nothing is outstanding: the coordinator has 0 on record.
    super('calls_in_flight', words, TERMS, { period, taken: 0n, used: 0n }, nowMs);
  }

  /** Whether calls take nothing of this lease: see `setWithheld`. */
  get isWithheld(): boolean {
    return this.#withheld !== undefined;
  }

  /** As `StockLease.ask`. `limit` 0: there is none any more, and what no call holds is given back. */
  override ask(need: StockNeed, limit: bigint, currentPeriod: number, nowMs: number): StockAsk | undefined {
    if (limit > 0n) this.followLimit(limit);
    return super.ask(need, limit, currentPeriod, nowMs);
  }

  /**
   * Shrinks the lease in proportion if the limit was lowered, so that all leases together are at most the new
   * limit. Otherwise a lease in steady use would never shrink, because its slots come back when calls end.
   * Calls in flight go on beyond the limit, but no new call takes the slot of one that ends. LeasedScope
   * calls it at each sweep. `limit` is above 0.
   */
  followLimit(limit: bigint): void {
    const limitBefore = this.#limit;
    this.#limit = limit;
    if (limit >= limitBefore) return;
    if (this.#withheld !== undefined) {
      this.#withheld = (this.#withheld * limit) / limitBefore;
      return;
    }
    const { granted } = this.words.read();
    this.#add((granted * limit) / limitBefore - granted);
  }

  /**
   * Withholds call slots from new calls, because the coordinator may grant a slot to others before the call
   * ends, or ends that. Calls that hold slots go on, and asks report these slots. In the end the lease has
   * the slots that calls hold, but no more than before. End it only after a reply of the coordinator, which
   * then has an ask with these slots on record.
   */
  setWithheld(isWithheld: boolean): void {
    const withheld = this.#withheld;
    if (isWithheld === (withheld !== undefined)) return;
    if (withheld === undefined) {
      this.#withheld = this.words.read().granted;
      this.#add(-this.#withheld);
    } else {
      this.#withheld = undefined;
      this.#add(minOf(this.words.held(), withheld));
    }
    this.reportSoon();
  }

  #add(slots: bigint): void {
    if (slots === 0n) return;
    this.words.add(this.words.read().period, slots, 0n);
    this.reportSoon();
  }

  /** While slots are withheld, the words have none. Then those count as granted that calls hold. */
  protected override read(): StockHeld {
    const held = this.words.read();
    return this.#withheld === undefined ? held : { ...held, granted: this.words.held() };
  }

  /** Only a reply ends the withholding, so each exchange needs an ask until then. */
  protected override alwaysAsks(): boolean {
    return this.isWithheld;
  }

  /** The fallback quota may grant slots while slots are withheld: calls do not get them. */
  protected override usableOf(granted: bigint): bigint {
    return this.isWithheld ? 0n : granted;
  }
}
