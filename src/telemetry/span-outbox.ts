/**
 * Where a listener or worker leaves its spans: they go to the exporting thread some hundred at a time, off the path of the calls.
 * Listener or upstream worker.
 */
import type { MessagePort } from 'node:worker_threads';
import type { packSpans, SpanRecord } from './span-record.js';

/*
 * The words about spans that all threads share: how many are on their way to the exporting thread, and what became of the others.
 *
 *     32-bit word 0   on their way   packed by a listener or worker and not yet read; who sends adds, who reads subtracts
 *     64-bit word 1   exported       the collector has taken them; the exporting thread adds
 *     64-bit word 2   failed         the collector has not; the exporting thread adds
 *     64-bit word 3   dropped        there was no room, here or in the exporting thread's queue; any thread adds
 *
 * Ports have no back-pressure: this is what bounds the spans between threads, whatever the exporting thread does.
 */

const ON_THEIR_WAY = 0;
const EXPORTED = 1;
const FAILED = 2;
const DROPPED = 3;
const WORDS = 4;

/** Half a second of 16,000 calls a second and their attempts; some 5 MB. */
export const SPANS_ON_THEIR_WAY_MAX = 16_384;

export interface SpanCounts {
  readonly exported: number;
  readonly failed: number;
  readonly dropped: number;
}

export function createSpanBudget(): SharedArrayBuffer {
  return new SharedArrayBuffer(WORDS * BigInt64Array.BYTES_PER_ELEMENT);
}

export class SpanBudget {
  readonly #way: Int32Array;
  readonly #counts: BigInt64Array;

  constructor(shared: SharedArrayBuffer) {
    this.#way = new Int32Array(shared);
    this.#counts = new BigInt64Array(shared);
  }

  /** Takes room for a span; false, and the span counts as dropped, where there is none. 20 ns. */
  take(): boolean {
    if (Atomics.add(this.#way, ON_THEIR_WAY, 1) < SPANS_ON_THEIR_WAY_MAX) return true;
    this.giveBack(1);
    this.countDropped(1);
    return false;
  }

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

  counts(): SpanCounts {
    const count = (word: number): number => Number(Atomics.load(this.#counts, word));
    return { exported: count(EXPORTED), failed: count(FAILED), dropped: count(DROPPED) };
  }
}

/** What a thread gets to leave its spans. */
export interface SpanOutlet {
  readonly port: MessagePort;
  readonly budget: SharedArrayBuffer;
}

/** A message costs 3 µs whatever it carries: at so many spans that is nothing, and packing them stalls no call, at 0.2 ms. */
const BATCH_SPANS = 128;
/** Nobody looks at a trace sooner. */
const BATCH_WAIT_MS = 200;

/** Loads what packs spans, which a thread that exports none does without. While a thread starts: then no call waits for it. */
export async function openSpanOutbox(outlet: SpanOutlet): Promise<SpanOutbox> {
  const { packSpans } = await import('./span-record.js');
  return new SpanOutbox(outlet, packSpans);
}

export class SpanOutbox {
  readonly #pack: typeof packSpans;
  readonly #port: MessagePort;
  readonly #budget: SpanBudget;
  #spans: SpanRecord[] = [];
  #timer: NodeJS.Timeout | undefined;

  constructor({ port, budget: room }: SpanOutlet, pack: typeof packSpans) {
    this.#pack = pack;
    this.#port = port;
    this.#budget = new SpanBudget(room);
    port.unref();
  }

  /** Takes the span, or drops and counts it where too many are on their way. */
  push(span: SpanRecord): void {
    if (!this.#budget.take()) return;
    this.#spans.push(span);
    if (this.#spans.length >= BATCH_SPANS) this.flush();
    else this.#timer ??= setTimeout(() => this.flush(), BATCH_WAIT_MS).unref();
  }

  /** Sends what is here; also before the thread ends. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#spans.length === 0) return;
    const bytes = this.#pack(this.#spans);
    this.#spans = [];
    this.#port.postMessage(bytes, [bytes.buffer]);
  }
}
