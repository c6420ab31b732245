/**
 * Reads a streamed answer and relays its events as they come, but for the usage event that nobody asked for and `[DONE]`, which
 * goes last, after the bill is known. Upstream worker; one reader for a stream.
 *
 * What becomes of an event depends on the events before it alone, never on how the bytes were cut, but for one thing: while the
 * client has nothing yet, good events that come together with a bad one are held back with it.
 */
import { mayHoldSignal, forEachEvent, SSE_DONE, SSE_DONE_DATA, SseSplitter } from '../protocol/sse.js';
import type { AnswerBodyReader, AnswerSink } from './answer-sink.js';
import { garbageFailure } from './error-mapping.js';
import { isRecord, parsedJson } from './json-value.js';
import type { UsageMeter } from './usage-meter.js';

/** Events in the plainest form, each one line that looks like a JSON object; what is not of this form is looked at event by event. */
const PLAIN_EVENTS = /^(?:data: ?\{[^\r\n]*\}\n\n)+$/;

/** Some upstreams report usage after `[DONE]`. The client has all of its content by then and waits for the end alone. */
const LATE_USAGE_MS_MAX = 100;

const DONE_BYTES = Buffer.from(SSE_DONE);

/** Some upstreams send an empty text where others send null. */
function isFinished(choice: unknown): boolean {
  return isRecord(choice) && typeof choice.finish_reason === 'string' && choice.finish_reason !== '';
}

export class StreamReader implements AnswerBodyReader {
  readonly #sink: AnswerSink;
  readonly #meter: UsageMeter;
  readonly #includeUsage: boolean;
  readonly #splitter = new SseSplitter();
  /** An event with choices has been seen, so this is a chat-completion stream. */
  #accepted = false;
  /** The last event with choices told why the generation ended. */
  #finished = false;
  #done = false;
  #over = false;
  #relayed = false;

  constructor(sink: AnswerSink, meter: UsageMeter, includeUsage: boolean) {
    this.#sink = sink;
    this.#meter = meter;
    this.#includeUsage = includeUsage;
  }

  onData(chunk: Uint8Array): void {
    if (this.#over) return;
    const events = this.#splitter.push(chunk);
    if (events === undefined) this.#reject('an event is too long');
    else if (events.length > 0) this.#take(events);
  }

  onEnd(): void {
    if (this.#over) return;
    const rest = this.#splitter.end();
    if (rest.length > 0) this.#take(rest);
    if (this.#isOver()) return;
    if (this.#done || this.#finished) this.#complete();
    else this.#reject('the stream ended before its end');
  }

  #take(events: Buffer): void {
    if (this.#isPlain(events)) {
      this.#relay(events);
      return;
    }
    const wasDone = this.#done;
    this.#look(events);
    if (!this.#done || this.#over) return;
    if (this.#meter.reported !== undefined) this.#complete();
    else if (!wasDone) setTimeout(() => this.#complete(), LATE_USAGE_MS_MAX).unref();
  }

  /** Whether none of the events tells anything, so that they are relayed unparsed; holds of all exactly where it holds of each. */
  #isPlain(events: Buffer): boolean {
    return (
      this.#accepted &&
      !this.#finished &&
      !this.#done &&
      PLAIN_EVENTS.test(events.toString('latin1')) &&
      !mayHoldSignal(events)
    );
  }

  /** Judges each event; those that stand next to each other are relayed together. */
  #look(events: Buffer): void {
    let runStart = 0;
    const relayRun = (end: number, next: number): void => {
      if (end > runStart) this.#relay(events.subarray(runStart, end));
      runStart = next;
    };
    forEachEvent(events, (start, end, data) => {
      if (this.#over) return;
      const verdict = this.#isPlain(events.subarray(start, end)) ? 'relay' : this.#judge(data);
      if (verdict === 'drop') relayRun(start, end);
      else if (verdict !== 'relay') {
        // While the client has nothing, what came with the bad event is held back: another upstream may still answer.
        if (this.#relayed) relayRun(start, end);
        this.#reject(verdict.garbage);
      }
    });
    if (!this.#over) relayRun(events.length, events.length);
  }

  #judge(data: string | undefined): 'relay' | 'drop' | { readonly garbage: string } {
    // Comments keep a connection alive; the listener has its own for the client's.
    if (data === undefined || data === '') return 'drop';
    if (data === SSE_DONE_DATA) {
      if (!this.#accepted) return { garbage: '[DONE] before any choice' };
      this.#done = true;
      return 'drop';
    }
    const event = parsedJson(data);
    if (this.#done) {
      // The client has its answer. A usage that was missing may still follow, and nothing else counts any more.
      if (isRecord(event) && this.#meter.reported === undefined) this.#meter.report(event.usage, event.model);
      return 'drop';
    }
    if (!isRecord(event)) return { garbage: 'an event is no JSON object' };
    if (event.error !== undefined && event.error !== null) return { garbage: 'an error event' };
    if (event.usage !== undefined) this.#meter.report(event.usage, event.model);
    const choices = Array.isArray(event.choices) ? (event.choices as unknown[]) : undefined;
    if (isRecord(event.usage) && !choices?.length && !this.#includeUsage) return 'drop';
    if (!this.#accepted && choices === undefined) return { garbage: 'an event has no choices' };
    this.#accepted = true;
    if (choices?.length) this.#finished = choices.some(isFinished);
    return 'relay';
  }

  #relay(events: Buffer): void {
    this.#relayed = true;
    this.#meter.relayed(events);
    this.#sink.relay(events);
  }

  #complete(): void {
    if (this.#over) return;
    this.#over = true;
    this.#sink.complete(DONE_BYTES);
  }

  #reject(what: string): void {
    this.#over = true;
    this.#sink.reject(garbageFailure(what));
  }

  #isOver(): boolean {
    return this.#over;
  }
}
