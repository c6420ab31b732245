/**
 * What the client got of a stream, kept in case the upstream reports no usage. usage-meter.ts has a
 * Transcript for each attempt. Upstream worker.
 *
 * The latest events are kept as they came, which costs no time. When they reach TRANSCRIPT_EVENTS_BYTES_MAX,
 * only their texts are kept, because an event is about 280 bytes around a word of 5. So a shorter stream
 * that ends with a report is never parsed for its transcript; a longer stream costs about 2 µs an event.
 * Beyond TRANSCRIPT_CHARS_MAX nothing more is kept, and token-count.ts scales its count up.
 *
 * Must hold: `texts` and `events()` together are what `keptBytes` of the stream had, each event in one of
 * them. What is kept is bounded, whatever the upstream sends: by the two bounds above, which the events of
 * one `add` may exceed by what they bring themselves.
 */
import { TRANSCRIPT_CHARS_MAX, TRANSCRIPT_EVENTS_BYTES_MAX } from '../core/limits.js';
import { addStreamTexts, type StreamTexts } from './chat-text.js';

export class Transcript {
  /** Texts of the events before `events()`. */
  readonly texts: StreamTexts = new Map();
  /** Characters of `texts`, and of their keys. */
  #keptChars = 0;
  /** UTF-8 length of the events whose text is in `texts`. */
  #textEventBytes = 0;
  #events: Uint8Array[] = [];
  #eventBytes = 0;
  #isFull = false;

  /** The latest events, joined, which copies them; empty once the transcript is full. */
  events(): Buffer {
    return Buffer.concat(this.#events, this.#eventBytes);
  }

  /** UTF-8 length of all events that `texts` and `events()` stand for. */
  get keptBytes(): number {
    return this.#textEventBytes + this.#eventBytes;
  }

  /** Adds whole events. The transcript keeps `events`, so the caller must not change the bytes. */
  add(events: Uint8Array): void {
    if (this.#isFull) return;
    this.#events.push(events);
    this.#eventBytes += events.length;
    if (this.#eventBytes >= TRANSCRIPT_EVENTS_BYTES_MAX) this.#keepTexts();
  }

  /** Keeps the texts of the events in place of the events. */
  #keepTexts(): void {
    const { chars, keyChars, bytes } = addStreamTexts(
      this.texts,
      this.events(),
      TRANSCRIPT_CHARS_MAX - this.#keptChars,
    );
    this.#keptChars += chars + keyChars;
    this.#textEventBytes += bytes;
    this.#isFull = this.#keptChars >= TRANSCRIPT_CHARS_MAX;
    this.#events = [];
    this.#eventBytes = 0;
  }
}
