/**
 * Where a listener or worker leaves its spans: they go to the exporting thread some hundred at a time, off the path of the calls.
 * Listener or upstream worker.
 */
import type { MessagePort } from 'node:worker_threads';
import type { packSpans } from './span-packing.js';
import type { SpanRecord } from './span-record.js';
import { SpanRoom } from './span-room.js';

/** What a thread gets to leave its spans. */
export interface SpanOutlet {
  readonly port: MessagePort;
  readonly room: SharedArrayBuffer;
}

/** A message costs 3 µs whatever it carries: at so many spans that is nothing, and packing them stalls no call, at 0.2 ms. */
const BATCH_SPANS = 128;
/** Nobody looks at a trace sooner. */
const BATCH_WAIT_MS = 200;

/** Loads what packs spans, which a thread that exports none does without. While a thread starts: then no call waits for it. */
export async function openSpanOutbox(outlet: SpanOutlet): Promise<SpanOutbox> {
  const { packSpans } = await import('./span-packing.js');
  return new SpanOutbox(outlet, packSpans);
}

export class SpanOutbox {
  readonly #pack: typeof packSpans;
  readonly #port: MessagePort;
  readonly #room: SpanRoom;
  #spans: SpanRecord[] = [];
  #timer: NodeJS.Timeout | undefined;

  constructor({ port, room }: SpanOutlet, pack: typeof packSpans) {
    this.#pack = pack;
    this.#port = port;
    this.#room = new SpanRoom(room);
    port.unref();
  }

  /** Takes the span, or drops and counts it where too many are on their way. */
  push(span: SpanRecord): void {
    if (!this.#room.take()) return;
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
