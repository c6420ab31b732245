/**
 * Reads a stream of chat completions and relays its events as they come. Comments are dropped, and so is the
 * usage event if the client did not ask for it. `[DONE]` is dropped too: the session sends it last, when the
 * usage is known. attempt.ts and door-call.ts make a reader for each stream. Upstream worker.
 *
 * Must hold: only valid events are relayed: all bytes are UTF-8, and the data is a JSON object, which was
 * parsed, or proved by EventForms. The members of the object are checked only as far as needed to recognise
 * a chat-completion stream, its usage, its error and its end.
 *
 * Must hold: whether an event is relayed depends on the event and on those before it, however the bytes were
 * cut. There is one exception: while the client has no byte, good events that come together with a bad event
 * are held back, unless the text is whole (test/unit/upstream/hostile-answers.test.ts,
 * test/unit/upstream/stream-ends.test.ts).
 */
import { isUtf8 } from 'node:buffer';
import { CHOICES_MAX } from '../protocol/request-rules.js';
import { latin1EventFrom, SSE_DONE, SSE_DONE_DATA, SseSplitter } from '../protocol/sse.js';
import type { ResponseBodyReader, ResponseOutcome, ResponseSink } from './response-reader.js';
import { type AttemptFailure, invalidResponseFailure, tooLongFailure } from './error-mapping.js';
import { isFailedChoice } from './error-body.js';
import { EventForms } from './event-form.js';
import { isRecord, parsedJson } from '../core/json.js';
import { reportIn } from './usage-shapes.js';
import type { UsageMeter } from './usage-meter.js';

/**
 * Some upstreams report usage after `[DONE]`. The client, which has all of the text by then, waits at most
 * so long for the end of its stream.
 */
const LATE_USAGE_MS_MAX = 100;

const DONE_BYTES = Buffer.from(SSE_DONE);

/** Whether a choice ends here. While it goes on, some upstreams send an empty reason instead of null. */
function hasFinishReason(choice: unknown): boolean {
  return isRecord(choice) && typeof choice.finish_reason === 'string' && choice.finish_reason !== '';
}

/** Whether an event brings text or calls of tools: any member of a delta but the role that is not empty. */
function hasText(choices: readonly unknown[]): boolean {
  for (const choice of choices) {
    if (!isRecord(choice)) continue;
    if (choice.text) return true;
    const delta = choice.delta ?? choice.message;
    if (!isRecord(delta)) continue;
    for (const name in delta) if (name !== 'role' && Boolean(delta[name])) return true;
  }
  return false;
}

/**
 * What happens to an event. `text`: it is relayed, and brings text and nothing else of interest. `invalid`:
 * why the response is rejected because of the event.
 */
type Verdict = 'relay' | 'text' | 'drop' | { readonly invalid: string };

export class StreamReader implements ResponseBodyReader {
  readonly #sink: ResponseSink;
  readonly #outcome: ResponseOutcome;
  readonly #meter: UsageMeter;
  readonly #includeUsage: boolean;
  readonly #choices: number;
  readonly #splitter = new SseSplitter();
  readonly #forms = new EventForms();
  /** An event with choices has come, so this is a chat-completion stream. */
  #hasChoices = false;
  /** For each choice that has come, by its index: whether its last event said why the generation ended. */
  readonly #choiceEnds = new Map<unknown, boolean>();
  /** How many choices have not ended. */
  #openChoices = 0;
  /**
   * The last report, and the model, of an event with choices, if the call asked for several choices. vLLM and
   * SGLang report in such an event the tokens of its choice alone (`continuous_usage_stats`). So this counts
   * as a report of the whole call only once the stream has ended without a later report.
   */
  #choiceReport: { readonly usage: unknown; readonly model: unknown } | undefined;
  /** `[DONE]` has come. */
  #hasDone = false;
  /** `complete` or `reject` was called: what still comes is ignored. */
  #hasOutcome = false;
  #hasRelayed = false;

  /** `includeUsage`: the client asked for the usage event. `choices`: how many the request asked for. */
  constructor(
    sink: ResponseSink,
    outcome: ResponseOutcome,
    meter: UsageMeter,
    includeUsage: boolean,
    choices: number,
  ) {
    this.#sink = sink;
    this.#outcome = outcome;
    this.#meter = meter;
    this.#includeUsage = includeUsage;
    this.#choices = choices;
  }

  get isWhole(): boolean {
    return this.#hasRelayed && this.#hasWholeText;
  }

  get usageSoFar(): unknown {
    return this.#choiceReport?.usage;
  }

  /** `[DONE]` has come, or as many choices as requested have ended. */
  get #hasWholeText(): boolean {
    return this.#hasDone || (this.#haveChoicesEnded && this.#choiceEnds.size >= this.#choices);
  }

  /**
   * All choices that have come have ended. Other choices may still come. But some upstreams send one choice
   * however many were requested, so at the end of the response this is enough.
   */
  get #haveChoicesEnded(): boolean {
    return this.#openChoices === 0 && this.#choiceEnds.size > 0;
  }

  onData(chunk: Uint8Array): void {
    if (this.#hasOutcome) return;
    const events = this.#splitter.push(chunk);
    if (events === undefined) this.#reject(tooLongFailure('an event is too long'));
    else if (events.length > 0) this.#onEvents(events);
  }

  onEnd(): void {
    if (this.#hasOutcome) return;
    const lastEvents = this.#splitter.end();
    if (lastEvents.length > 0) this.#onEvents(lastEvents);
    if (this.#hasOutcomeNow()) return;
    this.#keepChoiceReport();
    if (this.#hasDone || this.#haveChoicesEnded) this.#complete();
    else this.#reject(invalidResponseFailure('the stream ended before its end'));
  }

  #onEvents(events: Buffer): void {
    const latin1 = isUtf8(events) ? events.toString('latin1') : undefined;
    const formsEnd = latin1 !== undefined && this.#mayCompareForms ? this.#forms.skipFrom(latin1, 0) : 0;
    if (formsEnd > 0) this.#meter.recordText();
    if (formsEnd === events.length) {
      this.#relay(events);
      return;
    }
    const hadDone = this.#hasDone;
    this.#judgeEach(events, latin1, formsEnd);
    if (!this.#hasDone || this.#hasOutcome) return;
    if (this.#meter.reported !== undefined) this.#complete();
    else if (!hadDone) setTimeout(() => this.#completeLate(), LATE_USAGE_MS_MAX).unref();
  }

  /**
   * Whether an event with only text leaves the state of the stream as it is. Once a choice has ended, such an
   * event might reopen the choice, so then events are parsed.
   */
  get #mayCompareForms(): boolean {
    return this.#hasChoices && this.#openChoices === this.#choiceEnds.size && !this.#hasDone;
  }

  /**
   * Judges each event from `from` on that has none of `#forms`. Adjacent events are relayed together, with
   * the events before `from`. `latin1`: the events as text; undefined if not all of them are UTF-8.
   */
  #judgeEach(events: Buffer, latin1: string | undefined, from: number): void {
    let runStart = 0;
    // Relays the events from `runStart` to `end` together. The next run begins at `nextStart`.
    const relayRun = (end: number, nextStart: number): void => {
      if (end > runStart) this.#relay(events.subarray(runStart, end));
      runStart = nextStart;
    };
    let start = from;
    let event = latin1EventFrom(events, latin1, start);
    while (event !== undefined) {
      const { end, data } = event;
      const isValid = latin1 !== undefined || isUtf8(events.subarray(start, end));
      const verdict = isValid ? this.#judge(data) : this.#judgeInvalidUtf8();
      if (verdict === 'drop') relayRun(start, end);
      else if (verdict === 'text') this.#forms.learn(events.toString('latin1', start, end));
      else if (verdict !== 'relay') {
        // While the client has no byte, good events before the bad event are held back, because another
        // upstream may still respond.
        if (this.#hasRelayed || this.#hasWholeText) relayRun(start, end);
        this.#reject(invalidResponseFailure(verdict.invalid));
        return;
      }
      // `relayRun` may have ended the attempt.
      if (this.#hasOutcomeNow()) return;
      start = end;
      if (latin1 !== undefined && this.#mayCompareForms) start = this.#forms.skipFrom(latin1, start);
      if (start > end) this.#meter.recordText();
      event = latin1EventFrom(events, latin1, start);
    }
    relayRun(events.length, events.length);
  }

  /** `data` is Latin-1; undefined for a comment. */
  #judge(data: string | undefined): Verdict {
    // Comments keep a connection alive; the listener sends its own.
    if (data === undefined || data === '') return 'drop';
    if (data === SSE_DONE_DATA) {
      if (!this.#hasChoices) return { invalid: '[DONE] before any choice' };
      this.#hasDone = true;
      this.#keepChoiceReport();
      return 'drop';
    }
    const event = parsedJson(data);
    if (this.#hasDone) {
      // The client has its text. Only a report is read, if none has come.
      if (isRecord(event) && this.#meter.reported === undefined)
        this.#meter.report(reportIn(event), event.model);
      return 'drop';
    }
    if (!isRecord(event)) return { invalid: 'an event is no JSON object' };
    // vLLM writes its errors without the member `error`, and `[DONE]` after them.
    const isError = (event.error !== undefined && event.error !== null) || event.object === 'error';
    if (isError) return { invalid: 'an error event' };
    const usage = reportIn(event);
    const choices = Array.isArray(event.choices) ? (event.choices as unknown[]) : undefined;
    const isReport = usage !== undefined && this.#report(usage, event.model, choices);
    if (choices?.some(isFailedChoice)) return { invalid: 'an error in a choice' };
    const isText = choices !== undefined && hasText(choices);
    if (isText && !isReport) this.#meter.recordText();
    if (isRecord(event.usage) && !choices?.length && !this.#includeUsage) return 'drop';
    if (!this.#hasChoices && choices === undefined) return { invalid: 'an event has no choices' };
    this.#hasChoices = true;
    const hasEnded = choices !== undefined && this.#recordEnds(choices);
    return isText && usage === undefined && !hasEnded ? 'text' : 'relay';
  }

  /** Returns whether the report is kept as one of the whole call. */
  #report(usage: unknown, model: unknown, choices: readonly unknown[] | undefined): boolean {
    const isOfChoice = this.#choices > 1 && choices !== undefined && choices.length > 0;
    this.#choiceReport = isOfChoice ? { usage, model } : undefined;
    return !isOfChoice && this.#meter.report(usage, model);
  }

  /** Call when the stream has ended: its last report, wherever it stood, is that of the whole call. */
  #keepChoiceReport(): void {
    if (this.#choiceReport !== undefined)
      this.#meter.report(this.#choiceReport.usage, this.#choiceReport.model);
    this.#choiceReport = undefined;
  }

  /**
   * Records which choices go on and which end; returns whether any choice ends. Choices beyond CHOICES_MAX
   * are not recorded, so that an upstream cannot fill the memory.
   */
  #recordEnds(choices: readonly unknown[]): boolean {
    let hasEnded = false;
    for (const [position, choice] of choices.entries()) {
      const index = (isRecord(choice) ? choice.index : undefined) ?? position;
      const isEnd = hasFinishReason(choice);
      const wasEnd = this.#choiceEnds.get(index);
      hasEnded ||= isEnd;
      if (wasEnd === isEnd || (wasEnd === undefined && this.#choiceEnds.size === CHOICES_MAX)) continue;
      // A choice that goes on after its end is open again.
      if (wasEnd === false) this.#openChoices--;
      if (!isEnd) this.#openChoices++;
      this.#choiceEnds.set(index, isEnd);
    }
    return hasEnded;
  }

  #judgeInvalidUtf8(): Verdict {
    return this.#hasDone ? 'drop' : { invalid: 'an event is no UTF-8' };
  }

  #relay(events: Buffer): void {
    if (!this.#hasRelayed) this.#outcome.onBegin();
    this.#hasRelayed = true;
    this.#meter.addRelayed(events);
    this.#sink.relay(events);
  }

  #complete(): void {
    if (this.#hasOutcome) return;
    this.#hasOutcome = true;
    this.#outcome.complete(DONE_BYTES);
  }

  /** A timer calls it, so the attempt does not catch what it throws. */
  #completeLate(): void {
    try {
      this.#complete();
    } catch (error) {
      this.#sink.crash(error);
    }
  }

  /** If the client has the whole text, its response ends well, whatever error follows. */
  #reject(failure: AttemptFailure): void {
    if (this.isWhole) {
      this.#complete();
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
