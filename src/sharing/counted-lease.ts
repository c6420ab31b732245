/**
 * The lease of calls, tokens or spending of a day or month, and of tokens of the minute: stocks of which used
 * amounts do not come back to this process. leased-scope.ts makes it; stock-leases.ts has the rest. Main
 * thread.
 *
 * Must hold: what was used of a day or month is reported within the time that an amount may lie idle, also if
 * all of it was used; otherwise other nodes take it for an amount that may be given back. What is left of a
 * former day or month covers no need of the present one.
 */
import { QUOTA_KINDS } from '../core/quotas.js';
import type { StockHeld, StockWords } from '../ledger/leased-stocks.js';
import { type CountedName, STOCK_KINDS } from './coordinator.js';
import { FIRST_BATCH, IDLE_MS_PLENTIFUL } from './lease-terms.js';
import { type ReportedStock, StockLease } from './stock-leases.js';

/**
 * Tokens of the minute count against the limit for a minute from when the coordinator hears that they were
 * used. So a lease of such tokens reports its use after this time at the latest.
 */
const IDLE_MS_WINDOW = 4_000;

export class CountedLease extends StockLease<StockWords> {
  /** Whether the stock is of a day or month: then what was used counts as taken until the period is over. */
  readonly #hasPeriod: boolean;

  constructor(name: Exclude<CountedName, 'calls_in_flight'>, words: StockWords, nowMs: number) {
    const { period, granted, used } = words.read();
    const hasPeriod = STOCK_KINDS[name] === 'period';
    const terms = {
      firstNeed: QUOTA_KINDS[name].unit === 'calls' ? 1n : 0n,
      batch: FIRST_BATCH,
      idleMsPlentiful: hasPeriod ? IDLE_MS_PLENTIFUL : IDLE_MS_WINDOW,
    };
    // LeaseManager forgets a scope with nothing outstanding. If it is needed again, its new lease finds in
    // shared memory what the earlier lease left. Of a day or month the coordinator then has on record what
    // was granted, and all of that was used. Of the minute it has on record what is outstanding: 0.
    super(name, words, terms, { period, taken: hasPeriod ? granted : 0n, used }, nowMs);
    this.#hasPeriod = hasPeriod;
  }

  protected override takenOf(used: bigint, unused: bigint): bigint {
    return this.#hasPeriod ? used + unused : unused;
  }

  protected override isUnderreported({ used }: StockHeld, reported: ReportedStock): boolean {
    return this.#hasPeriod && used > reported.used;
  }

  protected override moveBackTo(period: number): void {
    this.words.moveBack(period);
  }
}
