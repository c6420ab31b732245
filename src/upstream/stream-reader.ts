/**
 * Reads a streamed answer and relays its events as they come, but for the usage event that nobody asked for and `[DONE]`, which
 * goes last, after the bill is known. Upstream worker; one reader for a stream.
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

export class StreamReader implements AnswerBodyReader {
  readonly #sink: AnswerSink;
  readonly #meter: UsageMeter;
  readonly #includeUsage: boolean;
  readonly #splitter = new SseSplitter();
  /** An event with choices has been seen, so this is a chat-completion stream. */
  #accepted = false;
  #done = false;
  #over = false;
  #lastRelayed: Buffer | undefined;

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
    if (this.#done || this.#hasFinishReason()) this.#complete();
    else this.#reject('the stream ended before its end');
  }

  #take(events: Buffer): void {
    if (
      this.#accepted &&
      !this.#done &&
      PLAIN_EVENTS.test(events.toString('latin1')) &&
      !mayHoldSignal(events)
    ) {
      this.#relay(events);
      return;
    }
    this.#look(events);
    if (!this.#done || this.#over) return;
    if (this.#meter.reported !== undefined) this.#complete();
    else setTimeout(() => this.#complete(), LATE_USAGE_MS_MAX).unref();
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
      const verdict = this.#judge(data);
      if (verdict === 'drop') relayRun(start, end);
      else if (verdict !== 'relay') {
        // While the client has nothing, what came with the bad event is held back: another upstream may still answer.
        if (this.#lastRelayed !== undefined) relayRun(start, end);
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
    if (!isRecord(event)) return { garbage: 'an event is no JSON object' };
    if (event.error !== undefined && event.error !== null) return { garbage: 'an error event' };
    if (event.usage !== undefined) this.#meter.report(event.usage);
    if (this.#done) return 'drop';
    const hasChoices = Array.isArray(event.choices) && event.choices.length > 0;
    if (isRecord(event.usage) && !hasChoices && !this.#includeUsage) return 'drop';
    if (!this.#accepted && !Array.isArray(event.choices)) return { garbage: 'an event has no choices' };
    this.#accepted = true;
    return 'relay';
  }

  #relay(events: Buffer): void {
    this.#lastRelayed = events;
    this.#meter.relayed(events);
    this.#sink.relay(events);
  }

  /** Whether the last relayed events told why the generation ended. */
  #hasFinishReason(): boolean {
    let seen = false;
    forEachEvent(this.#lastRelayed ?? Buffer.alloc(0), (_start, _end, data) => {
      const event = data === undefined ? undefined : parsedJson(data);
      if (!isRecord(event) || !Array.isArray(event.choices)) return;
      seen ||= (event.choices as unknown[]).some(
        (choice) => isRecord(choice) && typeof choice.finish_reason === 'string',
      );
    });
    return seen;
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
