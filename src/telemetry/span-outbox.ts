/**
 * Sends the spans of a listener or upstream worker to the exporting thread, some hundred in a message.
 * request/listener.thread.ts and upstream/upstream-task.ts open a SpanOutbox on each of their threads. All
 * share one budget (export-budget.ts), because ports have no back-pressure.
 *
 * Must hold: a SpanOutbox takes of the budget for a batch only when the batch is packed and sent next. A
 * thread that dies before, or cannot pack the batch, has taken nothing. Its spans are then lost, and in no
 * count.
 */
import type { MessagePort } from 'node:worker_threads';
import { ExportBudget } from './export-budget.js';
import type { packSpans } from './span-codec.js';
import type { SpanBatch, SpanRecord } from './span-record.js';

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
