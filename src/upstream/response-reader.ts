/**
 * Reads a non-streamed response: buffers it, validates it, and passes it on unchanged. attempt.ts and
 * door-call.ts make a reader for each response. The interfaces of all readers are here too. Upstream worker.
 *
 * Must hold: nothing is sent before the response is whole and valid, so that another upstream may still be
 * tried. The bytes of a response are counted before they are kept
 * (test/unit/upstream/response-reader.test.ts).
 */
import { disposable, joinedChunks } from '../core/bytes.js';
import type { Members } from '../core/json.js';
import { UPSTREAM_RESPONSE_BYTES_MAX } from '../core/limits.js';
import type { Usage } from '../core/token-counts.js';
import type { Dialect } from '../doors/door.js';
import {
  type AttemptFailure,
  invalidResponseFailure,
  budgetFailure,
  textlessTooLongFailure,
  tooLongFailure,
} from './error-mapping.js';
import { isError, isFailedChoice } from './error-body.js';
import type { ResponseBudget } from './worker-budget.js';
import { membersOfResponse } from './response-json.js';
import type { UsageMeter } from './usage-meter.js';
import { reportIn } from './usage-shapes.js';

/** The session, as readers see it. */
export interface ResponseSink {
  /**
   * Sends bytes to the client. Calls `pause` of the attempt if the client does not keep up, but no method of
   * the reader. If it rejects the attempt (door-call.ts), what the reader still does has no effect.
   */
  relay(bytes: Uint8Array): void;
  /** An exception, which is a bug of the gateway, at any point: the session aborts the attempt. */
  crash(error: unknown): void;
}

/**
 * The last bytes of a response. A function if the caller gets the usage with them, which may have to be
 * counted first. The function returns a failure if the bytes cannot be written after all: then what was
 * relayed is charged, though the attempt's span has ended well.
 */
export type LastBytes = Uint8Array | ((usage: Usage) => Uint8Array | AttemptFailure);

/** The attempt, as readers see it. Exactly one of complete and reject is called, last. */
export interface ResponseOutcome {
  /** Called once, before the first `relay` to the sink. */
  onBegin(): void;
  /** The response is whole and valid; `lastBytes` are its last bytes. */
  complete(lastBytes: LastBytes): void;
  /** The response, or what still comes of it, cannot be used. */
  reject(failure: AttemptFailure): void;
}

/** What a reader of a stream works with: the session is `sink`, the attempt `outcome`. */
export interface StreamOwner {
  readonly sink: ResponseSink;
  readonly outcome: ResponseOutcome;
  readonly meter: UsageMeter;
}

/** What any reader works with. */
export interface ReaderOwner extends StreamOwner {
  readonly budget: ResponseBudget;
}

/** Reads the body of one response. After complete() or reject() the reader ignores what still comes. */
export interface ResponseBodyReader {
  /** The client has all of the response but its end: a failure of the upstream no longer matters. */
  readonly isWhole: boolean;
  /** What a stream has reported of its prompt, or of a part of its choices: see UsageMeter.reportSoFar. */
  readonly usageSoFar?: unknown;
  onData(chunk: Uint8Array): void;
  /** The body ended as HTTP requires. */
  onEnd(): void;
}

const ASCII = /^[\0-\x7f]*$/;

function tooLong({ isTextless }: DoorRules): AttemptFailure {
  const fault = `above ${UPSTREAM_RESPONSE_BYTES_MAX} bytes`;
  return isTextless === true ? textlessTooLongFailure(fault) : tooLongFailure(fault);
}

/** What a dialect says of its whole responses. */
type DoorRules = Pick<Dialect, 'marker' | 'isCount' | 'isTextless' | 'faultIn'>;
/** The marker of chat completions, and of legacy completions: what they have in common is checked here. */
const CHOICES = 'choices';

export class ResponseReader implements ResponseBodyReader {
  /** False: the client gets nothing before `onEnd`. */
  readonly isWhole = false;
  readonly #outcome: ResponseOutcome;
  readonly #meter: UsageMeter;
  readonly #budget: ResponseBudget;
  readonly #doorRules: DoorRules;
  #chunks: Uint8Array[] = [];
  #bytes = 0;
  #members: Members | undefined;
  #hasOutcome = false;

  /** `doorRules`: of the dialect; those of a chat completion if left out. */
  constructor(
    outcome: ResponseOutcome,
    meter: UsageMeter,
    budget: ResponseBudget,
    doorRules: DoorRules = { marker: CHOICES },
  ) {
    this.#outcome = outcome;
    this.#meter = meter;
    this.#budget = budget;
    this.#doorRules = doorRules;
  }

  onData(chunk: Uint8Array): void {
    if (this.#hasOutcome) return;
    this.#bytes += chunk.length;
    if (this.#bytes > UPSTREAM_RESPONSE_BYTES_MAX) this.#reject(tooLong(this.#doorRules));
    else if (!this.#budget.grow(chunk.length)) this.#reject(budgetFailure());
    else this.#chunks.push(chunk);
  }

  /** In place of `onData`, as HttpHandler.onWhole: the whole body, which is not parsed again at `onEnd`. */
  onWhole(body: Buffer, members: Members): void {
    this.onData(body);
    const { model } = members;
    // `model` becomes Latin-1, as the meter expects and `membersOfResponse` would return it.
    this.#members =
      typeof model === 'string' && !ASCII.test(model)
        ? { ...members, model: Buffer.from(model).toString('latin1') }
        : members;
  }

  onEnd(): void {
    if (this.#hasOutcome) return;
    const response = joinedChunks(this.#chunks);
    this.#chunks = [];
    const members = this.#members ?? membersOfResponse(response);
    const fault = members === undefined ? 'no JSON object' : this.#faultIn(members);
    if (fault === undefined) this.#complete(response, members!);
    else this.#reject(invalidResponseFailure(fault));
  }

  /** What is wrong with the response: no marker of the door, an error beside it, or a fault for the door. */
  #faultIn(members: Members): string | undefined {
    const { marker, isCount, faultIn } = this.#doorRules;
    const marked = members[marker];
    const isMarked = isCount === true ? Number.isSafeInteger(marked) : Array.isArray(marked);
    if (!isMarked) return `no ${marker}`;
    const hasFailed =
      isError(members.error) || (marker === CHOICES && (marked as unknown[]).some(isFailedChoice));
    return hasFailed ? 'an error' : faultIn?.(members);
  }

  #complete(response: Buffer, members: Members): void {
    this.#hasOutcome = true;
    this.#meter.report(reportIn(members), members.model);
    // A response without text is not kept: to look for text would parse megabytes of embeddings once more.
    if (this.#doorRules.isTextless !== true) this.#meter.setWholeResponse(response);
    this.#outcome.complete(disposable(response));
  }

  #reject(failure: AttemptFailure): void {
    this.#hasOutcome = true;
    this.#chunks = [];
    this.#outcome.reject(failure);
  }
}
