/**
 * Sends the spans of a listener or upstream worker to the exporting thread, some hundred in a message.
 * request/listener.thread.ts and upstream/upstream-task.ts open a SpanOutbox on each of their threads. Ports
 * have no back-pressure, so all threads share one budget (ExportBudget), which bounds the spans in flight:
 * sent, and not yet given back by the exporting thread. gateway/traces.ts creates this budget, and a second
 * one for log records, which the main thread sends. An _item_ of a budget is a span or a log record.
 *
 * Must hold: what a sender takes of a budget, the exporting thread gives back once (span-export.thread.ts).
 * If less is given back, senders stop for good; if more, they send without bound. So a SpanOutbox takes for a
 * batch only when the batch is packed and sent next: a thread that dies before, or cannot pack the batch, has
 * taken nothing. Its spans are then lost, and in no count.
 */
import type { MessagePort } from 'node:worker_threads';
import type { packSpans } from './span-codec.js';
import type { SpanBatch, SpanRecord } from './span-record.js';

/** Position of the 32-bit word of ExportBudget. 32 bits are enough, because items in flight are bounded. */
const IN_FLIGHT = 0;
/** Positions of its 64-bit words, which only grow. The 64-bit word 0 contains IN_FLIGHT. */
const EXPORTED = 1;
const FAILED = 2;
const DROPPED = 3;
const WORDS = 4;

/** Half a second of 16,000 calls a second with two spans each, of the call and its attempt; some 5 MB. */
export const SPANS_IN_FLIGHT_MAX = 16_384;

/** Counts of items since the start, as in ExportBudget. The names are labels of metrics. */
export interface ExportCounts {
  readonly exported: number;
  readonly failed: number;
  readonly dropped: number;
}

export function createExportBudget(): SharedArrayBuffer {
  return new SharedArrayBuffer(WORDS * BigInt64Array.BYTES_PER_ELEMENT);
}

/**
 * The budget and counts of items, in words that all threads share.
 *
 *     32-bit word 0   in flight      the sender takes, the exporting thread gives back
 *     64-bit word 1   exported       accepted by the collector; the exporting thread adds
 *     64-bit word 2   failed         not accepted by the collector, or not readable in the exporting thread,
 *                                    which adds
 *     64-bit word 3   dropped        a bound was reached, here or in the exporting thread; any thread adds
 */
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

/** What a thread needs to send spans to the exporting thread. It gets the outlet in its `workerData`. */
export interface SpanOutlet {
  readonly port: MessagePort;
  readonly budget: SharedArrayBuffer;
}

/**
 * How many spans are sent in one message. A message costs 3 µs however many it carries, so small batches
 * would waste time. Packing a full batch takes 0.2 ms, for which the thread's calls wait.
 */
const BATCH_SPANS = 128;
/** An incomplete batch is sent after this time. Nobody reads a trace sooner. */
const BATCH_WAIT_MS = 200;

/** Loads span-codec.ts (25 ms) while a thread starts; a thread that exports no spans never loads it. */
export async function openSpanOutbox(outlet: SpanOutlet): Promise<SpanOutbox> {
  const { packSpans } = await import('./span-codec.js');
  return new SpanOutbox(outlet, packSpans);
}

/** Collects the spans of one thread and sends them in batches. BATCH_SPANS bounds what it holds. */
export class SpanOutbox {
  readonly #pack: typeof packSpans;
  readonly #port: MessagePort;
  readonly #budget: ExportBudget;
  #spans: SpanRecord[] = [];
  #timer: NodeJS.Timeout | undefined;

  constructor({ port, budget }: SpanOutlet, pack: typeof packSpans) {
    this.#pack = pack;
    this.#port = port;
    this.#budget = new ExportBudget(budget);
    // The port must not keep a thread alive that has nothing else to do.
    port.unref();
  }

  push(span: SpanRecord): void {
    this.#spans.push(span);
    if (this.#spans.length >= BATCH_SPANS) this.flush();
    else this.#timer ??= setTimeout(() => this.flush(), BATCH_WAIT_MS).unref();
  }

  /**
   * Sends the batch to the exporting thread, or drops and counts it if too many spans are in flight. The
   * owner must call it before its thread ends, or the last batch is lost.
   */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const spans = this.#spans;
    if (spans.length === 0) return;
    this.#spans = [];
    // Checked first, to save the time of packing. `take` decides, because other threads send too.
    if (this.#budget.isUsedUp) {
      this.#budget.countDropped(spans.length);
      return;
    }
    const bytes = this.#pack(spans);
    if (!this.#budget.take(spans.length)) return;
    this.#port.postMessage({ count: spans.length, bytes } satisfies SpanBatch, [bytes.buffer]);
  }
}
