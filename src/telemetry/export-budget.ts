/**
 * The budget of spans in flight to the exporting thread, and the counts of what became of them: in words that
 * all threads share, because ports have no back-pressure. In flight is what was sent, and was not yet given
 * back by the exporting thread (span-export.thread.ts). gateway/traces.ts creates this budget, and a second
 * one for log records, which the main thread sends. An _item_ of a budget is a span or a log record.
 *
 * Must hold: what a sender takes, the exporting thread gives back once. If less is given back, senders stop
 * for good; if more, they send without bound (test/unit/telemetry/span-outbox.test.ts,
 * test/unit/telemetry/span-export.test.ts). If that thread has failed, the budget is closed, or senders would
 * fill it with what nobody counts (test/unit/gateway/traces.test.ts).
 */

// The 32-bit word of ExportBudget, which is enough because items in flight are bounded.
const IN_FLIGHT = 0; // the sender takes, the exporting thread gives back; CLOSED after `close`
// Its 64-bit words, which only grow. The 64-bit word 0 contains IN_FLIGHT.
const EXPORTED = 1; // accepted by the collector; the exporting thread adds
const FAILED = 2; // not accepted by the collector, or not readable in the exporting thread, which adds
const DROPPED = 3; // a bound was reached, here or in the exporting thread; any thread adds
const WORDS = 4;

/** Half a second of 16,000 calls a second with two spans each, of the call and its attempt; some 5 MB. */
export const SPANS_IN_FLIGHT_MAX = 16_384;

/** Stands in IN_FLIGHT for a closed budget: so far above the bound that no `giveBack` makes room again. */
const CLOSED = 2 ** 30;

/** Counts of items since the start, as in ExportBudget. The names are labels of metrics. */
export interface ExportCounts {
  readonly exported: number;
  readonly failed: number;
  readonly dropped: number;
}

export function createExportBudget(): SharedArrayBuffer {
  return new SharedArrayBuffer(WORDS * BigInt64Array.BYTES_PER_ELEMENT);
}

export class ExportBudget {
  readonly #inFlight: Int32Array;
  readonly #counts: BigInt64Array;

  constructor(shared: SharedArrayBuffer) {
    this.#inFlight = new Int32Array(shared);
    this.#counts = new BigInt64Array(shared);
  }

  /** Counts the items as in flight and returns true, or counts them as dropped if that would be too many. */
  take(items: number): boolean {
    if (Atomics.add(this.#inFlight, IN_FLIGHT, items) + items <= SPANS_IN_FLIGHT_MAX) return true;
    this.giveBack(items);
    this.countDropped(items);
    return false;
  }

  /** Whether nothing can be taken now, because the exporting thread has not read what was sent. */
  get isUsedUp(): boolean {
    return Atomics.load(this.#inFlight, IN_FLIGHT) >= SPANS_IN_FLIGHT_MAX;
  }

  /** Call it once for the items of each `take` that returned true. */
  giveBack(items: number): void {
    Atomics.sub(this.#inFlight, IN_FLIGHT, items);
  }

  /**
   * Call it once, if the exporting thread has failed: what is in flight counts as failed, and all further
   * items are dropped.
   */
  close(): void {
    this.countFailed(Atomics.exchange(this.#inFlight, IN_FLIGHT, CLOSED));
  }

  countExported(items: number): void {
    Atomics.add(this.#counts, EXPORTED, BigInt(items));
  }

  countFailed(items: number): void {
    Atomics.add(this.#counts, FAILED, BigInt(items));
  }

  countDropped(items: number): void {
    Atomics.add(this.#counts, DROPPED, BigInt(items));
  }

  counts(): ExportCounts {
    const countAt = (word: number): number => Number(Atomics.load(this.#counts, word));
    return { exported: countAt(EXPORTED), failed: countAt(FAILED), dropped: countAt(DROPPED) };
  }
}
