/**
 * The base class of the readers of streams: it cuts a stream into events, and relays runs of events as they
 * are. The subclass judges each event: stream-reader.ts those of chat completions, passed-stream-reader.ts
 * those of another door's protocol. Upstream worker.
 *
 * Must hold: an event is relayed only if it is UTF-8, and the subclass has judged it or EventTemplates has
 * proved that it is like a judged one. While the client has no byte, the good events right before a bad one
 * in the same chunk are not relayed, unless the text is whole, so that another upstream may still respond
 * (test/unit/upstream/hostile-answers.test.ts, test/unit/upstream/stream-reader.test.ts). Good events right
 * before an event that is too long are lost: SseSplitter gives none of that chunk out.
 */
import { isUtf8 } from 'node:buffer';
import { invariant } from '../core/errors.js';
import { latin1EventFrom, SseSplitter } from '../protocol/sse.js';
import { type AttemptFailure, invalidResponseFailure, tooLongFailure } from './error-mapping.js';
import { EventTemplates } from './event-template.js';
import type { ResponseBodyReader, ResponseOutcome, ResponseSink, StreamOwner } from './response-reader.js';
import type { UsageMeter } from './usage-meter.js';

/**
 * What happens to an event. `relay`: it is relayed. `text`: likewise, and it brings nothing but text that the
 * reader looks at, so EventTemplates (event-template.ts) learns it: later events of its form are relayed
 * without `judge`. `uncounted`: likewise, but the meter does not get it, because its text came before or is
 * none. `drop`: it is not relayed. `invalid`: why the response is rejected because of the event.
 */
export type Verdict = 'relay' | 'text' | 'uncounted' | 'drop' | { readonly invalid: string };

/** Adjacent events that are relayed as they are. `isCounted`: the meter gets them too. */
interface Run {
  readonly events: Buffer;
  readonly isCounted: boolean;
}

export abstract class EventReader implements ResponseBodyReader {
  protected readonly meter: UsageMeter;
  protected readonly splitter: SseSplitter;
  protected readonly sink: ResponseSink;
  /** Set by the subclass: the event that ends the stream has come. Later events need not be UTF-8. */
  protected hasEndEvent = false;
  readonly #outcome: ResponseOutcome;
  /** Of events that bring text and nothing else. */
  readonly #templates = new EventTemplates();
  #hasRelayed = false;
  /** Runs of events of this chunk that go down once all of it is judged; empty after the first byte. */
  #waitingRuns: Run[] = [];
  /** `complete` or `reject` was called: what still comes is ignored. */
  #hasOutcome = false;

  /** `eventBytesMax`: of the longest event; undefined for that of SseSplitter. */
  constructor({ sink, outcome, meter }: StreamOwner, eventBytesMax?: number) {
    this.sink = sink;
    this.#outcome = outcome;
    this.meter = meter;
    this.splitter = new SseSplitter(eventBytesMax);
  }

  /** The report of usage that the stream has brought, but that was not given to the meter. */
  abstract get usageSoFar(): unknown;

  /** The client has all of the text with the events that were judged so far. */
  protected abstract get hasWholeText(): boolean;

  /** Whether an event with only text leaves the state of the stream as it is. */
  protected abstract get mayMatchTemplates(): boolean;

  /** The last bytes of a stream that ends well. */
  protected abstract get lastBytes(): Uint8Array;

  /**
   * Judges an event with data, which is Latin-1: a position in it is one in the bytes. Gives the meter the
   * report of the event, or calls `onText` or `recordText` if it brings text without one; must not call
   * `complete`, which is `onJudged`'s, once the events are relayed.
   */
  protected abstract judge(data: string): Verdict;

  /** All events of a chunk were judged, and the stream is not given up. */
  protected abstract onJudged(): void;

  /**
   * The body has ended as HTTP requires: no report comes any more. Returns whether the stream has ended well.
   */
  protected abstract onBodyEnd(): boolean;

  /** The failure if the part of an unfinished event that has come is too large to be kept. */
  protected partialEventFailure(): AttemptFailure | undefined {
    return undefined;
  }

  /** Events came that bring text and no report. */
  protected onText(): void {
    this.meter.recordText();
  }

  get isWhole(): boolean {
    return this.#hasRelayed && this.hasWholeText;
  }

  onData(chunk: Uint8Array): void {
    if (this.#hasOutcome) return;
    const events = this.splitter.push(chunk);
    const failure =
      events === undefined ? tooLongFailure('an event is too long') : this.partialEventFailure();
    if (failure !== undefined) this.#reject(failure);
    else if (events!.length > 0) this.#onEvents(events!);
  }

  onEnd(): void {
    if (this.#hasOutcome) return;
    const lastEvents = this.splitter.end();
    if (lastEvents.length > 0) this.#onEvents(lastEvents);
    if (this.#hasOutcomeNow()) return;
    if (this.onBodyEnd()) this.complete();
    else this.#reject(invalidResponseFailure('the stream ended before its end'));
  }

  /** Ends the response well. Later calls do nothing. */
  protected complete(): void {
    if (this.#hasOutcome) return;
    this.#hasOutcome = true;
    this.#outcome.complete(this.lastBytes);
  }

  /** Judges each event that matches no template. Adjacent events are relayed together. */
  #onEvents(events: Buffer): void {
    const latin1 = isUtf8(events) ? events.toString('latin1') : undefined;
    /** Where the events begin that will be relayed together. */
    let runStart = 0;
    for (let start = this.#matchedEnd(latin1, 0); start < events.length;) {
      const event = latin1EventFrom(events, latin1, start);
      invariant(event !== undefined, 'SseSplitter gives out whole events');
      const { end, data } = event;
      const verdict = this.#verdictOn(data, latin1 !== undefined || isUtf8(events.subarray(start, end)));
      if (typeof verdict === 'object') {
        if (this.#isPastFailover) this.#pass(events.subarray(runStart, start), true);
        this.#waitingRuns = [];
        this.#reject(invalidResponseFailure(verdict.invalid));
        return;
      }
      if (verdict === 'drop' || verdict === 'uncounted') {
        this.#pass(events.subarray(runStart, start), true);
        if (verdict === 'uncounted') this.#pass(events.subarray(start, end), false);
        runStart = end;
      } else if (verdict === 'text') this.#templates.learn(events.toString('latin1', start, end));
      start = this.#matchedEnd(latin1, end);
    }
    this.#relayWaiting();
    this.#relay(events.subarray(runStart), true);
    this.onJudged();
  }

  /** Comments keep a connection alive; the listener sends its own. */
  #verdictOn(data: string | undefined, isValid: boolean): Verdict {
    if (!isValid) return this.hasEndEvent ? 'drop' : { invalid: 'an event is no UTF-8' };
    return data === undefined || data === '' ? 'drop' : this.judge(data);
  }

  /** Skips events that match a template, which bring text alone. Returns where the next event begins. */
  #matchedEnd(latin1: string | undefined, from: number): number {
    if (latin1 === undefined || !this.mayMatchTemplates) return from;
    const end = this.#templates.skipFrom(latin1, from);
    if (end > from) this.onText();
    return end;
  }

  /** No other upstream can respond in place of this one, or none has to. */
  get #isPastFailover(): boolean {
    return this.#hasRelayed || this.hasWholeText;
  }

  /** Relays a run before the end of its chunk; while another upstream may respond, the run waits for that. */
  #pass(events: Buffer, isCounted: boolean): void {
    if (!this.#isPastFailover) {
      if (events.length > 0) this.#waitingRuns.push({ events, isCounted });
      return;
    }
    this.#relayWaiting();
    this.#relay(events, isCounted);
  }

  #relayWaiting(): void {
    if (this.#waitingRuns.length === 0) return;
    for (const { events, isCounted } of this.#waitingRuns) this.#relay(events, isCounted);
    this.#waitingRuns = [];
  }

  #relay(events: Buffer, isCounted: boolean): void {
    if (events.length === 0) return;
    if (!this.#hasRelayed) this.#outcome.onBegin();
    this.#hasRelayed = true;
    if (isCounted) this.meter.addRelayed(events);
    this.sink.relay(events);
  }

  /** Gives the response up; it ends well all the same if the client has all of the text. */
  #reject(failure: AttemptFailure): void {
    if (this.#hasOutcome) return;
    if (this.isWhole) {
      this.complete();
      return;
    }
    this.#hasOutcome = true;
    this.#outcome.reject(failure);
  }

  /** A method, because TypeScript does not see that a call just before may have set `#hasOutcome`. */
  #hasOutcomeNow(): boolean {
    return this.#hasOutcome;
  }
}
