/**
 * Sends the spans of a listener or upstream worker to the exporting thread, some hundred in a message.
 * request/listener.thread.ts and upstream/upstream-task.ts open one on each of their threads. Ports have no
 * back-pressure, so all threads share one budget (ExportBudget), which bounds the spans in flight: sent, and
 * not yet read by the exporting thread. gateway/traces.ts creates it, and a second one for the records of
 * calls, which the main thread sends.
 *
 * Must hold: what a sender takes of a budget, the exporting thread gives back once (span-export.thread.ts).
 * If less is given back, senders stop for ever; if more, they send without bound. So a SpanOutbox takes for a
 * batch only when it has packed it and is about to send it: a thread that dies before, or cannot pack the
 * batch, has taken nothing (test/unit/telemetry/spans.test.ts).
 */
import type { MessagePort } from 'node:worker_threads';
import type { packSpans } from './span-codec.js';
import type { SpanRecord } from './span-record.js';

/** A 32-bit word of ExportBudget. */
const IN_FLIGHT = 0;
/** Its 64-bit words. The one before them, 0, contains IN_FLIGHT. */
const EXPORTED = 1;
const FAILED = 2;
const DROPPED = 3;
const WORDS = 4;

/** Half a second of 16,000 calls a second with two spans each, of the call and its attempt; some 5 MB. */
export const SPANS_IN_FLIGHT_MAX = 16_384;

/** Counts of spans, or of log records, since the gateway started. Dropped: a bound was reached. */
export interface ExportCounts {
  readonly exported: number;
  readonly failed: number;
  readonly dropped: number;
}

export function createExportBudget(): SharedArrayBuffer {
  return new SharedArrayBuffer(WORDS * BigInt64Array.BYTES_PER_ELEMENT);
}

/**
 * The budget and counts of spans, or of log records, in words that all threads share.
 *
 *     32-bit word 0   in flight      sent and not yet read; the sender adds, the exporting thread subtracts
 *     64-bit word 1   exported       the collector accepted them; the exporting thread adds
 *     64-bit word 2   failed         the collector did not; the exporting thread adds
 *     64-bit word 3   dropped        a bound was reached, here or in the exporting thread; any thread adds
 */
export class ExportBudget {
  readonly #inFlight: Int32Array;
  readonly #counts: BigInt64Array;

  constructor(shared: SharedArrayBuffer) {
    this.#inFlight = new Int32Array(shared);
    this.#counts = new BigInt64Array(shared);
  }

  /** Counts the spans as in flight. If there were too many then, counts them as dropped and returns false. */
  take(spans: number): boolean {
    if (Atomics.add(this.#inFlight, IN_FLIGHT, spans) + spans <= SPANS_IN_FLIGHT_MAX) return true;
    this.giveBack(spans);
    this.countDropped(spans);
    return false;
  }

  /** Whether nothing can be taken, because the exporting thread does not read. */
  get isUsedUp(): boolean {
    return Atomics.load(this.#inFlight, IN_FLIGHT) >= SPANS_IN_FLIGHT_MAX;
  }

  /** To be called when the exporting thread has read the spans. */
  giveBack(spans: number): void {
    Atomics.sub(this.#inFlight, IN_FLIGHT, spans);
  }

  countExported(spans: number): void {
    Atomics.add(this.#counts, EXPORTED, BigInt(spans));
  }

  countFailed(spans: number): void {
    Atomics.add(this.#counts, FAILED, BigInt(spans));
  }

  countDropped(spans: number): void {
    Atomics.add(this.#counts, DROPPED, BigInt(spans));
  }

  counts(): ExportCounts {
    const count = (word: number): number => Number(Atomics.load(this.#counts, word));
    return { exported: count(EXPORTED), failed: count(FAILED), dropped: count(DROPPED) };
  }
}

/** A thread that records spans gets it in its `workerData`. */
export interface SpanOutlet {
  readonly port: MessagePort;
  readonly budget: SharedArrayBuffer;
}

/**
 * A message costs 3 µs whatever it carries. Packing this many spans takes 0.2 ms, a short delay for calls.
 */
const BATCH_SPANS = 128;
/** An incomplete batch is sent after this time. Nobody reads a trace sooner. */
const BATCH_WAIT_MS = 200;

/** Loads span-codec.ts (25 ms) while a thread starts; a thread that exports no spans never loads it. */
export async function openSpanOutbox(outlet: SpanOutlet): Promise<SpanOutbox> {
  const { packSpans } = await import('./span-codec.js');
  return new SpanOutbox(outlet, packSpans);
}

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
    port.unref();
  }

  /** Adds the span to the batch. */
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
    // Checked before `take`, because packing would cost most of the time.
    if (this.#budget.isUsedUp) {
      this.#budget.countDropped(spans.length);
      return;
    }
    const bytes = this.#pack(spans);
    if (this.#budget.take(spans.length)) this.#port.postMessage(bytes, [bytes.buffer]);
  }
}
