/**
 * Where a listener or upstream worker leaves its spans. They go to the exporting thread some hundred at a
 * time, and what bounds them is shared by all threads: ports have no back-pressure.
 *
 * Must hold: each span that `take` counted is given back once; else the threads stop sending, or send without
 * bound. Test: unit/telemetry/spans (20,000 spans that nobody reads).
 */
import type { MessagePort } from 'node:worker_threads';
import type { packSpans } from './span-codec.js';
import type { SpanRecord } from './span-record.js';

/** Words: see ExportBudget. */
const ON_THEIR_WAY = 0;
const EXPORTED = 1;
const FAILED = 2;
const DROPPED = 3;
const WORDS = 4;

/** Half a second of 16,000 calls a second and their attempts; some 5 MB. */
export const SPANS_ON_THEIR_WAY_MAX = 16_384;

/** What became of spans, or of log records, since the gateway started. Dropped: a bound was reached. */
export interface ExportCounts {
  readonly exported: number;
  readonly failed: number;
  readonly dropped: number;
}

export function createExportBudget(): SharedArrayBuffer {
  return new SharedArrayBuffer(WORDS * BigInt64Array.BYTES_PER_ELEMENT);
}

/**
 * The words about spans, or about log records, that all threads share.
 *
 *     32-bit word 0   on their way   not yet read; the sender adds, the exporting thread subtracts
 *     64-bit word 1   exported       the collector has taken them; the exporting thread adds
 *     64-bit word 2   failed         the collector has not; the exporting thread adds
 *     64-bit word 3   dropped        a bound was reached, here or in the exporting thread; any thread adds
 */
export class ExportBudget {
  readonly #way: Int32Array;
  readonly #counts: BigInt64Array;

  constructor(shared: SharedArrayBuffer) {
    this.#way = new Int32Array(shared);
    this.#counts = new BigInt64Array(shared);
  }

  /** Returns false and counts a dropped span if too many are on their way. Takes 20 ns. */
  take(): boolean {
    if (Atomics.add(this.#way, ON_THEIR_WAY, 1) < SPANS_ON_THEIR_WAY_MAX) return true;
    this.giveBack(1);
    this.countDropped(1);
    return false;
  }

  /** So many spans that `take` counted are no longer on their way: the exporting thread has read them. */
  giveBack(spans: number): void {
    Atomics.sub(this.#way, ON_THEIR_WAY, spans);
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

/** What a thread gets in its `workerData` to leave its spans. */
export interface SpanOutlet {
  readonly port: MessagePort;
  readonly budget: SharedArrayBuffer;
}

/**
 * A message costs 3 µs whatever it carries; to pack so many spans takes 0.2 ms, which delays no call much.
 */
const BATCH_SPANS = 128;
/** A span that is not followed by others waits so long; nobody looks at a trace sooner. */
const BATCH_WAIT_MS = 200;

/** Loads the packing of spans (25 ms) while a thread starts; threads that leave no spans never load it. */
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

  constructor({ port, budget: room }: SpanOutlet, pack: typeof packSpans) {
    this.#pack = pack;
    this.#port = port;
    this.#budget = new ExportBudget(room);
    port.unref();
  }

  /** Takes the span, or drops and counts it if too many are on their way. */
  push(span: SpanRecord): void {
    if (!this.#budget.take()) return;
    this.#spans.push(span);
    if (this.#spans.length >= BATCH_SPANS) this.flush();
    else this.#timer ??= setTimeout(() => this.flush(), BATCH_WAIT_MS).unref();
  }

  /** Sends what is here to the exporting thread. Call it also before the thread ends: the rest is lost. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#spans.length === 0) return;
    const bytes = this.#pack(this.#spans);
    this.#spans = [];
    this.#port.postMessage(bytes, [bytes.buffer]);
  }
}
