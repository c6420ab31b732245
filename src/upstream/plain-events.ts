/**
 * Finds among events of a stream those that tell nothing but text, so that they are relayed unparsed. Pure; upstream worker, one for each
 * piece of a stream. Linear in the piece, however often it is asked.
 */
import { signalFrom } from '../protocol/sse.js';

/** In the plainest form, each one line that looks like a JSON object. */
const PLAIN_EVENTS = /(?:data: ?\{[^\r\n]*\}\n\n)*/y;
const EVENT_END = '\n\n';

export class PlainEvents {
  readonly #text: string;
  /** The first signal from where was asked last; the length where there is none. */
  #signalAt = -1;

  /** Whole events. Costs a copy. */
  constructor(events: Buffer) {
    this.#text = events.toString('latin1');
  }

  /** Where the run of plain events that begins at `from`, which is the start of an event, ends; `from` where the first is none. */
  endFrom(from: number): number {
    const text = this.#text;
    if (this.#signalAt < from) {
      const signalAt = signalFrom(text, from);
      this.#signalAt = signalAt < 0 ? text.length : signalAt;
    }
    // The event that the signal stands in is left out, and what comes after it is not looked at.
    const isClear = this.#signalAt === text.length;
    const end = isClear ? text.length : text.lastIndexOf(EVENT_END, this.#signalAt) + EVENT_END.length;
    if (end <= from) return from;
    PLAIN_EVENTS.lastIndex = from;
    PLAIN_EVENTS.test(isClear ? text : text.slice(0, end));
    return PLAIN_EVENTS.lastIndex;
  }
}
