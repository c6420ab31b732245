/**
 * Reads a stream that an upstream sends in the protocol of the call's door, and relays its events as they
 * are. The door's EventJudge recognises the usage, the end, and events that break the protocol. door-call.ts
 * makes a reader for each such stream. Upstream worker.
 *
 * Must hold:
 * - Only events whose data is a JSON object are relayed, and events without data (comments) are dropped
 *   (test/e2e/doors-streams.test.ts, test/e2e/doors-faults.test.ts). Data that EventJudge.known recognises is
 *   not parsed here, so its patterns match JSON objects alone (its contract in doors/door.ts).
 * - An event with text takes back the `isTextOver` of the events before it, and not its own
 *   (test/unit/upstream/passed-stream-reader.test.ts).
 */
import { isRecord, parsedJson } from '../core/json.js';
import type { EventJudge } from '../doors/door.js';
import { SSE_EVENT_BYTES_MAX, UPSTREAM_RESPONSE_BYTES_MAX } from '../core/limits.js';
import { type AttemptFailure, budgetFailure } from './error-mapping.js';
import { EventReader, type Verdict } from './event-reader.js';
import type { ResponseBudget } from './worker-budget.js';
import type { ReaderOwner } from './response-reader.js';

const NO_BYTES = new Uint8Array(0);
/** A longer event is parsed: the judge's regular expressions need memory for each matched character. */
const KNOWN_EVENT_CHARS_MAX = 4_096;

export class PassedStreamReader extends EventReader {
  readonly #judge: EventJudge;
  readonly #budget: ResponseBudget;
  /** Bytes of the longest event. They count until the call's end, because it may wait for a slow client. */
  #eventBytes = 0;
  /** All of the text has come, as the judge says, but not the end. */
  #isTextOver = false;

  constructor(owner: ReaderOwner, judge: EventJudge) {
    // The bound is high: the last event of the Responses door repeats the others and much of the request.
    super(owner, UPSTREAM_RESPONSE_BYTES_MAX);
    this.#judge = judge;
    this.#budget = owner.budget;
  }

  get usageSoFar(): unknown {
    return this.#judge.usageSoFar;
  }

  protected get hasWholeText(): boolean {
    return this.hasEndEvent || this.#isTextOver;
  }

  protected get mayMatchTemplates(): boolean {
    return !this.hasEndEvent;
  }

  protected get lastBytes(): Uint8Array {
    const { lastEvent } = this.#judge;
    return this.hasEndEvent || lastEvent === undefined ? NO_BYTES : Buffer.from(lastEvent);
  }

  /** Counts a long unfinished event against the budget. The bound of calls in flight bounds short ones. */
  protected override partialEventFailure(): AttemptFailure | undefined {
    const { bufferBytes } = this.splitter;
    const growthBytes = bufferBytes > SSE_EVENT_BYTES_MAX ? bufferBytes - this.#eventBytes : 0;
    if (growthBytes <= 0) return undefined;
    this.#eventBytes = bufferBytes;
    return this.#budget.grow(growthBytes) ? undefined : budgetFailure();
  }

  protected judge(data: string): Verdict {
    if (this.hasEndEvent) return 'drop';
    const known = data.length <= KNOWN_EVENT_CHARS_MAX ? this.#judge.known?.(data) : undefined;
    const event = known ?? parsedJson(data);
    if (!isRecord(event)) return { invalid: 'an event is no JSON object' };
    const { fault, usage, model, isText, isUncounted, isEnd, isTextOver } = known ?? this.#judge.judge(event);
    if (fault !== undefined) return { invalid: fault };
    // A report that the meter keeps covers the text of its own event, so that text does not make it old.
    const isReport = usage !== undefined && this.meter.report(usage, model);
    if (isText && !isReport) this.onText();
    this.hasEndEvent = isEnd;
    // After `onText`, which clears it.
    this.#isTextOver ||= isTextOver;
    if (isUncounted) return 'uncounted';
    // Later events like a `text` are not judged, so it must bring nothing that the reader acts on but text.
    return isText && usage === undefined && model === undefined && !isEnd ? 'text' : 'relay';
  }

  /** EventReader calls it too, for events that match a template: text that no report covers. */
  protected override onText(): void {
    this.#isTextOver = false;
    super.onText();
  }

  protected onJudged(): void {
    if (this.hasEndEvent) this.complete();
  }

  protected onBodyEnd(): boolean {
    return this.hasEndEvent;
  }
}
