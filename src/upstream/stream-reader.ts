/**
 * Reads a stream of chat completions and relays its events as they come. Comments are dropped, and so is the
 * usage event if the client did not ask for it. `[DONE]` is dropped too: the session sends it last, when the
 * usage is known. attempt.ts and door-call.ts make a reader for each stream. Upstream worker.
 *
 * Must hold: the data of an event that is relayed is a JSON object, which was parsed, or proved by
 * EventTemplates. The members of the object are checked only as far as needed to recognise a chat-completion
 * stream, its usage, its error and its end. Whether an event is relayed depends on the event and on those
 * before it, however the bytes were cut, except for the events right before a bad one (event-reader.ts;
 * test/unit/upstream/hostile-answers.test.ts, test/unit/upstream/stream-ends.test.ts).
 */
import { isRecord, parsedJson } from '../core/json.js';
import { CHOICES_MAX } from '../protocol/request-rules.js';
import { SSE_DONE, SSE_DONE_DATA } from '../protocol/sse.js';
import type { StreamOwner } from './response-reader.js';
import { isError, isFailedChoice } from './error-body.js';
import { EventReader, type Verdict } from './event-reader.js';
import { reportIn } from './usage-shapes.js';

/** Some upstreams report usage after `[DONE]`. The client waits at most so long for the end of its stream. */
const LATE_USAGE_MS_MAX = 100;

const DONE_BYTES = Buffer.from(SSE_DONE);

/** Whether a choice ends here. While it goes on, some upstreams send an empty reason instead of null. */
function hasFinishReason(choice: unknown): boolean {
  return isRecord(choice) && typeof choice.finish_reason === 'string' && choice.finish_reason !== '';
}

/** Whether a choice brings text or calls of tools: any member of its delta but the role, unless empty. */
function hasText(choice: unknown): boolean {
  if (!isRecord(choice)) return false;
  if (!isEmpty(choice.text)) return true;
  const delta = choice.delta ?? choice.message;
  if (!isRecord(delta)) return false;
  for (const name in delta) if (name !== 'role' && !isEmpty(delta[name])) return true;
  return false;
}

/** Some servers write `"tool_calls":[]` and the like in each delta. */
function isEmpty(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return !value;
  return (Array.isArray(value) ? value : Object.keys(value)).length === 0;
}

export class StreamReader extends EventReader {
  readonly #includeUsage: boolean;
  readonly #choices: number;
  /** An event with the member `choices` has come, even an empty list: this is a chat-completion stream. */
  #hasChoices = false;
  /** For each choice that has come, by its index: whether its last event said why the generation ended. */
  readonly #choiceEnds = new Map<unknown, boolean>();
  /** How many choices have not ended. */
  #openChoices = 0;
  /**
   * The last report, and the model, of an event with choices, if the call asked for several choices. vLLM and
   * SGLang report in such an event the tokens of its choice alone (`continuous_usage_stats`). The last event
   * of other upstreams reports the whole call there. So the meter gets this once the stream has ended, unless
   * an event without choices has reported after it.
   */
  #choiceReport: { readonly usage: unknown; readonly model: unknown } | undefined;
  /** Set once `[DONE]` has come without a report of usage. Not cleared: a second `complete` does nothing. */
  #lateTimer: NodeJS.Timeout | undefined;

  /** `includeUsage`: the client asked for the usage event. `choices`: how many the request asked for. */
  constructor(owner: StreamOwner, includeUsage: boolean, choices: number) {
    super(owner);
    this.#includeUsage = includeUsage;
    this.#choices = choices;
  }

  get usageSoFar(): unknown {
    return this.#choiceReport?.usage;
  }

  protected get lastBytes(): Uint8Array {
    return DONE_BYTES;
  }

  /** `[DONE]` has come, or as many choices as requested have ended. */
  protected get hasWholeText(): boolean {
    return this.hasEndEvent || (this.#haveChoicesEnded && this.#choiceEnds.size >= this.#choices);
  }

  /** All that have come have ended. At the end this is enough: some send one, whatever was requested. */
  get #haveChoicesEnded(): boolean {
    return this.#openChoices === 0 && this.#choiceEnds.size > 0;
  }

  /** Once a choice has ended, an event with only text might reopen the choice, so then events are parsed. */
  protected get mayMatchTemplates(): boolean {
    return this.#hasChoices && this.#openChoices === this.#choiceEnds.size && !this.hasEndEvent;
  }

  protected onJudged(): void {
    if (!this.hasEndEvent) return;
    if (this.meter.reported !== undefined) this.complete();
    else this.#lateTimer ??= setTimeout(() => this.#completeLate(), LATE_USAGE_MS_MAX).unref();
  }

  protected onBodyEnd(): boolean {
    this.#keepChoiceReport();
    return this.hasEndEvent || this.#haveChoicesEnded;
  }

  protected judge(data: string): Verdict {
    if (data === SSE_DONE_DATA) {
      if (!this.#hasChoices) return { invalid: '[DONE] before any choice' };
      this.hasEndEvent = true;
      this.#keepChoiceReport();
      return 'drop';
    }
    const event = parsedJson(data);
    if (this.hasEndEvent) {
      // The client has its text. Only a report is read, if none has come.
      if (isRecord(event) && this.meter.reported === undefined) {
        const lateUsage = reportIn(event);
        if (lateUsage !== undefined) this.meter.report(lateUsage, event.model);
      }
      return 'drop';
    }
    if (!isRecord(event)) return { invalid: 'an event is no JSON object' };
    // vLLM writes its errors without the member `error`, and `[DONE]` after them.
    if (isError(event.error) || event.object === 'error') return { invalid: 'an error event' };
    // The report of a failed generation counts too: the text before it may be charged.
    const usage = reportIn(event);
    const choices = Array.isArray(event.choices) ? (event.choices as unknown[]) : undefined;
    const isReport = usage !== undefined && this.#report(usage, event.model, choices);
    if (choices?.some(isFailedChoice)) return { invalid: 'an error in a choice' };
    const isText = choices?.some(hasText) === true;
    // A report that is kept has the text of its own event in it.
    if (isText && !isReport) this.meter.recordText();
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
    return !isOfChoice && this.meter.report(usage, model);
  }

  /** Call when the stream has ended: its last report, wherever it stood, is that of the whole call. */
  #keepChoiceReport(): void {
    if (this.#choiceReport !== undefined)
      this.meter.report(this.#choiceReport.usage, this.#choiceReport.model);
    this.#choiceReport = undefined;
  }

  /** Records which choices go on; returns whether one ends. Beyond CHOICES_MAX none is kept in memory. */
  #recordEnds(choices: readonly unknown[]): boolean {
    let hasEnded = false;
    for (const [position, choice] of choices.entries()) {
      const index = (isRecord(choice) ? choice.index : undefined) ?? position;
      const isEnd = hasFinishReason(choice);
      const wasEnd = this.#choiceEnds.get(index);
      hasEnded ||= isEnd;
      if (wasEnd === isEnd || (wasEnd === undefined && this.#choiceEnds.size === CHOICES_MAX)) continue;
      // A choice that goes on after its end is open again. An event without text does not go on.
      if (wasEnd === true && !hasText(choice)) continue;
      if (wasEnd === false) this.#openChoices--;
      if (!isEnd) this.#openChoices++;
      this.#choiceEnds.set(index, isEnd);
    }
    return hasEnded;
  }

  /** A timer calls it, so the attempt does not catch what it throws. */
  #completeLate(): void {
    try {
      this.complete();
    } catch (error) {
      this.sink.crash(error);
    }
  }
}
