/**
 * Reads a stream that an upstream sends in the protocol of the call's door, and relays its events as they
 * are. The door's EventJudge recognises the usage, the end, and events that break the protocol. door-call.ts
 * makes a reader for each such stream. Upstream worker.
 *
 * Must hold: only events in UTF-8 whose data is a JSON object are relayed, and events without data (comments)
 * are dropped. A bad event before the first relayed byte rejects the response, so that another upstream may
 * still be tried (test/e2e/doors-streams.test.ts, test/e2e/doors-faults.test.ts).
 */
import { isUtf8 } from 'node:buffer';
import { isRecord, parsedJson } from '../core/json.js';
import type { EventJudge } from '../doors/door.js';
import { latin1EventFrom, SseSplitter } from '../protocol/sse.js';
import { SSE_EVENT_BYTES_MAX, UPSTREAM_RESPONSE_BYTES_MAX } from '../core/limits.js';
import {
  type AttemptFailure,
  budgetFailure,
  invalidResponseFailure,
  tooLongFailure,
} from './error-mapping.js';
import { EventForms } from './event-form.js';
import type {
  ReaderOwner,
  ResponseBodyReader,
  ResponseBudget,
  ResponseOutcome,
  ResponseSink,
} from './response-reader.js';
import type { UsageMeter } from './usage-meter.js';

const NO_BYTES = new Uint8Array(0);
/**
 * A longer event is parsed: the judge's regular expressions need memory for each character that they match.
 */
const KNOWN_EVENT_CHARS_MAX = 4_096;

export class PassedStreamReader implements ResponseBodyReader {
  readonly #sink: ResponseSink;
  readonly #outcome: ResponseOutcome;
  readonly #meter: UsageMeter;
  readonly #judge: EventJudge;
  readonly #budget: ResponseBudget;
  /** The bound is high: the last event of the Responses door repeats the others and much of the request. */
  readonly #splitter = new SseSplitter(UPSTREAM_RESPONSE_BYTES_MAX);
  /**
   * Bytes of the longest event. These bytes count until the call's end, because a slow client may keep the
   * event waiting.
   */
  #eventBytes = 0;
  /** Forms of events that bring text and nothing else. */
  readonly #forms = new EventForms();
  #hasRelayed = false;
  /** The event that ends the stream has come. */
  #hasEndCome = false;
  /** All of the text has come, as the judge says, but not the end. */
  #isTextOver = false;
  /** `complete` or `reject` was called: what still comes is ignored. */
  #hasOutcome = false;

  constructor({ sink, outcome, meter, budget }: ReaderOwner, judge: EventJudge) {
    this.#sink = sink;
    this.#outcome = outcome;
    this.#meter = meter;
    this.#judge = judge;
    this.#budget = budget;
  }

  get isWhole(): boolean {
    return this.#hasRelayed && (this.#hasEndCome || this.#isTextOver);
  }

  get usageSoFar(): unknown {
    return this.#judge.usageSoFar;
  }

  onData(chunk: Uint8Array): void {
    if (this.#hasOutcome) return;
    const events = this.#splitter.push(chunk);
    if (events === undefined) this.#reject(tooLongFailure('an event is too long'));
    else if (!this.#hasRoom()) this.#reject(budgetFailure());
    else if (events.length > 0) this.#onEvents(events);
  }

  onEnd(): void {
    if (this.#hasOutcome) return;
    const lastEvents = this.#splitter.end();
    if (lastEvents.length > 0) this.#onEvents(lastEvents);
    if (this.#hasOutcomeNow()) return;
    if (this.#hasEndCome) this.#complete();
    else this.#reject(invalidResponseFailure('the stream ended before its end'));
  }

  /**
   * Counts the event of which only a part has come; false if the budget is used up. Short events are not
   * counted, because the bound of calls in flight bounds them too.
   */
  #hasRoom(): boolean {
    const { heldBytes } = this.#splitter;
    const growthBytes = heldBytes > SSE_EVENT_BYTES_MAX ? heldBytes - this.#eventBytes : 0;
    if (growthBytes <= 0) return true;
    this.#eventBytes = heldBytes;
    return this.#budget.grow(growthBytes);
  }

  #onEvents(events: Buffer): void {
    const latin1 = isUtf8(events) ? events.toString('latin1') : undefined;
    /** Where the events begin that will be relayed together. */
    let runStart = 0;
    let start = this.#keptFormsEnd(latin1, 0);
    let event = latin1EventFrom(events, latin1, start);
    while (event !== undefined && !this.#hasEndCome) {
      const { end, data } = event;
      const isValid = latin1 !== undefined || isUtf8(events.subarray(start, end));
      const verdict = isValid ? this.#verdictOn(data) : { invalid: 'an event is no UTF-8' };
      if (typeof verdict === 'object') {
        if (this.#hasRelayed || this.#isTextOver) this.#relay(events.subarray(runStart, start));
        this.#reject(invalidResponseFailure(verdict.invalid));
        return;
      }
      if (verdict === 'drop' || verdict === 'uncounted') {
        this.#relay(events.subarray(runStart, start));
        if (verdict === 'uncounted') this.#relay(events.subarray(start, end), false);
        runStart = end;
      } else if (verdict === 'text') this.#forms.learn(events.toString('latin1', start, end));
      start = this.#hasEndComeNow() ? end : this.#keptFormsEnd(latin1, end);
      event = latin1EventFrom(events, latin1, start);
    }
    this.#relay(events.subarray(runStart, start));
    if (this.#hasEndCome && !this.#hasOutcomeNow()) this.#complete();
  }

  /** Skips events that have a kept form, which bring text alone. Returns where the next event begins. */
  #keptFormsEnd(latin1: string | undefined, from: number): number {
    const end = latin1 === undefined ? from : this.#forms.skipFrom(latin1, from);
    if (end > from) this.#textCame();
    return end;
  }

  /**
   * `data` is Latin-1. `text`: relay the event, which brings text and nothing else. `uncounted`: relay it,
   * although it brings no text that is to be counted.
   */
  #verdictOn(
    data: string | undefined,
  ): 'relay' | 'text' | 'uncounted' | 'drop' | { readonly invalid: string } {
    if (data === undefined || data === '') return 'drop';
    const known = data.length <= KNOWN_EVENT_CHARS_MAX ? this.#judge.known?.(data) : undefined;
    const event = known ?? parsedJson(data);
    if (!isRecord(event)) return { invalid: 'an event is no JSON object' };
    const { fault, usage, model, isText, isUncounted, isEnd, isTextOver } = known ?? this.#judge.judge(event);
    if (fault !== undefined) return { invalid: fault };
    const isReport = usage !== undefined && this.#meter.report(usage, model);
    if (isText && !isReport) this.#textCame();
    this.#hasEndCome = isEnd;
    this.#isTextOver ||= isTextOver;
    if (isUncounted) return 'uncounted';
    return isText && usage === undefined && model === undefined && !isEnd ? 'text' : 'relay';
  }

  #relay(events: Buffer, isCounted = true): void {
    if (events.length === 0) return;
    if (!this.#hasRelayed) this.#outcome.onBegin();
    this.#hasRelayed = true;
    if (isCounted) this.#meter.addRelayed(events);
    this.#sink.relay(events);
  }

  #textCame(): void {
    this.#isTextOver = false;
    this.#meter.recordText();
  }

  #complete(): void {
    this.#hasOutcome = true;
    const { lastEvent } = this.#judge;
    this.#outcome.complete(this.#hasEndCome || lastEvent === undefined ? NO_BYTES : Buffer.from(lastEvent));
  }

  /** Gives the response up. If the client has all of the text, the response ends well all the same. */
  #reject(failure: AttemptFailure): void {
    if (this.isWhole) {
      this.#complete();
      return;
    }
    this.#hasOutcome = true;
    this.#outcome.reject(failure);
  }

  // Methods, because TypeScript does not see that the method called just before may have set the field.
  #hasEndComeNow(): boolean {
    return this.#hasEndCome;
  }

  #hasOutcomeNow(): boolean {
    return this.#hasOutcome;
  }
}
