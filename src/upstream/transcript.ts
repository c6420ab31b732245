/**
 * What of a stream went to the client, kept for a count, should the upstream report no usage. Upstream worker; one for a stream.
 *
 * An event is some 280 bytes around a word of 5, so the latest events are kept as they were, which costs nothing, and only the
 * text of those before. A stream that ends with a report within TRANSCRIPT_EVENTS_BYTES_MAX is never looked at; longer ones
 * cost some 2 µs an event. Beyond TRANSCRIPT_CHARS_MAX nothing is kept and a count is scaled up.
 */
import { TRANSCRIPT_CHARS_MAX, TRANSCRIPT_EVENTS_BYTES_MAX } from '../core/limits.js';
import { addStreamTexts, type StreamTexts } from './chat-text.js';

export class Transcript {
  readonly #texts: StreamTexts = new Map();
  #textChars = 0;
  /** UTF-8 length of the events whose text is in `#texts`. */
  #textEventBytes = 0;
  #events: Uint8Array[] = [];
  #eventBytes = 0;
  #isFull = false;

  /** Texts of the events before `events()`, by their place in the answer. */
  get texts(): StreamTexts {
    return this.#texts;
  }

  /** The latest events, joined; empty once the transcript is full. Costs a copy. */
  events(): Buffer {
    return Buffer.concat(this.#events, this.#eventBytes);
  }

  /** UTF-8 length of all events that `texts` and `events()` stand for. */
  get keptBytes(): number {
    return this.#textEventBytes + this.#eventBytes;
  }

  /** Whole events. Holds on to them for a while; they must not change any more. */
  add(events: Uint8Array): void {
    if (this.#isFull) return;
    this.#events.push(events);
    this.#eventBytes += events.length;
    if (this.#eventBytes >= TRANSCRIPT_EVENTS_BYTES_MAX) this.#keepTexts();
  }

  #keepTexts(): void {
    const { chars, bytes } = addStreamTexts(
      this.#texts,
      this.events(),
      TRANSCRIPT_CHARS_MAX - this.#textChars,
    );
    this.#textChars += chars;
    this.#textEventBytes += bytes;
    this.#isFull = this.#textChars >= TRANSCRIPT_CHARS_MAX;
    this.#events = [];
    this.#eventBytes = 0;
  }
}
