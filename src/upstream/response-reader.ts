/**
 * Reads a non-streamed response: buffers it, validates it, and passes it on unchanged. attempt.ts and
 * door-call.ts make a reader for each response. The interfaces of all readers are here too. Upstream worker.
 *
 * Must hold: nothing is sent before the response is whole and valid, so that another upstream may still be
 * tried. The bytes of a response are counted before they are kept
 * (test/unit/upstream/response-reader.test.ts).
 */
import { isUtf8 } from 'node:buffer';
import { invariant } from '../core/errors.js';
import { isRecord, type Members, parsedJson } from '../core/json.js';
import { UPSTREAM_RESPONSE_BYTES_MAX } from '../core/limits.js';
import type { Usage } from '../core/token-counts.js';
import type { Dialect } from '../doors/door.js';
import { asBuffer } from '../protocol/sse.js';
import {
  type AttemptFailure,
  invalidResponseFailure,
  budgetFailure,
  textlessTooLongFailure,
  tooLongFailure,
} from './error-mapping.js';
import { isError, isFailedChoice } from './error-body.js';
import type { UsageMeter } from './usage-meter.js';
import { reportIn } from './usage-shapes.js';

/** The session, as readers see it. */
export interface ResponseSink {
  /** Sends bytes to the client. Calls `pause` of the attempt if the client does not keep up. */
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

/** What a reader works with: the session is `sink`, the attempt `outcome`. */
export interface ReaderOwner {
  readonly sink: ResponseSink;
  readonly outcome: ResponseOutcome;
  readonly meter: UsageMeter;
  readonly budget: ResponseBudget;
}

/** Reads the body of one response. After complete() or reject() the reader ignores what still comes. */
export interface ResponseBodyReader {
  /** The client has all of the response but its end: a failure of the upstream no longer matters. */
  readonly isWhole: boolean;
  /**
   * What a stream has reported of its prompt, or of a part of its choices. Read if the stream is left or
   * breaks off before it has reported all (UsageMeter.reportSoFar).
   */
  readonly usageSoFar?: unknown;
  onData(chunk: Uint8Array): void;
  /** The body ended as HTTP requires. */
  onEnd(): void;
}

/**
 * How a response is checked to be JSON. Truncated responses, two objects, invalid UTF-8, a byte-order mark,
 * and anything after the object are rejected.
 *
 * A response of at most PARSED_BYTES_MAX, as most are, is parsed. Parsing a longer response would cost a
 * fifth (8 KB) to two thirds (128 KB) of the call, nearly all of it for one long text. A look at each byte,
 * or a regular expression, costs half of that or more. So a longer response is checked in part:
 *
 *     ┌─ head ─┐                                                                     ┌───── tail ─────┐
 *     {"id":…,"choices":[{"message":{"content":"a long text, sampled in four places"}}],"usage":{…}}
 *
 * - exactly: all of it is UTF-8; head and tail joined are JSON, so the text between them is inside one
 *   string, and braces and brackets match; the text has no line break, and no end of an object followed by
 *   the start of the next;
 * - by samples, in four places of the text: 16 quotes have their backslash, 64 bytes are not control
 *   characters.
 *
 * A response that fails this check is parsed as a whole, so good responses are never rejected. Some bad ones
 * pass: a longer response that is whole at both ends and has, deep in its text, a stray quote, a control
 * character other than a line break, or an unknown escape. If a member comes twice, the last value is read.
 */

/** About 700 tokens. Parsing takes 2 to 5 µs, the partial check 3. */
const PARSED_BYTES_MAX = 4 * 1024;
/** Reaches past id, model and role into the text. */
const HEAD_BYTES = 384;
/** Reaches before usage with its details into the text. */
const TAIL_BYTES = 896;

const SAMPLES = 4;
/** How many quotes and how many bytes are checked from the start of each sample. */
const SAMPLE_QUOTES = 16;
const SAMPLE_BYTES = 64;

/** The length of `\u0000`: a cut with no backslash in so many bytes before it is not inside an escape. */
const ESCAPE_BYTES_MAX = 6;
const CUT_TRIES = 16;

const LF = 0x0a;
const SPACE = 0x20;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
/** The end of an object and the start of the next: in a string the quote would have a backslash. */
const NEXT_OBJECT = Buffer.from('}{"');

/**
 * The members of the response; texts are Latin-1, and cut if the response is long. Undefined if the response
 * is not a JSON object. Takes 1.3 µs for 550 bytes.
 */
export function membersOfResponse(response: Buffer): Record<string, unknown> | undefined {
  if (!isUtf8(response)) return undefined;
  const members = response.length > PARSED_BYTES_MAX ? membersAround(response) : undefined;
  if (members !== undefined) return members;
  // The text is JSON as Latin-1 exactly if it is JSON as UTF-8, because only strings have other characters
  // than ASCII. Latin-1 takes half the time.
  const value = parsedJson(response.toString('latin1'));
  return isRecord(value) ? value : undefined;
}

/** Reads head and tail alone; undefined if the whole must be parsed. */
function membersAround(response: Buffer): Record<string, unknown> | undefined {
  const textStart = cutFrom(response, HEAD_BYTES, -1);
  const textEnd = cutFrom(response, response.length - TAIL_BYTES, 1);
  if (textStart < 0 || textEnd < 0) return undefined;
  // The letter between head and tail is JSON only in a string, so both cuts must be in one string.
  const ends = `${response.toString('latin1', 0, textStart)}x${response.toString('latin1', textEnd)}`;
  const members = parsedJson(ends);
  return isRecord(members) && isLikelyText(response.subarray(textStart, textEnd)) ? members : undefined;
}

/**
 * The first position from `position` on, in that direction, that is not inside an escape, should it be inside
 * a string; -1 if there is none within CUT_TRIES steps.
 */
function cutFrom(response: Buffer, position: number, direction: 1 | -1): number {
  for (let cut = position, tries = 0; tries < CUT_TRIES; tries++, cut += direction * ESCAPE_BYTES_MAX) {
    let distance = 1;
    while (distance <= ESCAPE_BYTES_MAX && response[cut - distance] !== BACKSLASH) distance++;
    if (distance > ESCAPE_BYTES_MAX) return cut;
  }
  return -1;
}

/** Whether the samples hold nothing that a JSON string cannot contain. */
function isLikelyText(text: Buffer): boolean {
  if (text.includes(LF) || text.includes(NEXT_OBJECT)) return false;
  const step = Math.ceil(text.length / SAMPLES);
  let quote = -1;
  for (let start = 0; start < text.length; start += step) {
    const controlEnd = Math.min(text.length, start + SAMPLE_BYTES);
    for (let position = start; position < controlEnd; position++) if (text[position]! < SPACE) return false;
    for (let count = 0; count < SAMPLE_QUOTES; count++) {
      quote = text.indexOf(QUOTE, Math.max(start, quote + 1));
      // No quote is left, neither for this sample nor for later ones.
      if (quote < 0) quote = text.length;
      if (quote === text.length) break;
      if (!isEscaped(text, quote)) return false;
    }
  }
  return true;
}

/** Whether an odd number of backslashes is before `position`. The text does not start inside an escape. */
function isEscaped(text: Buffer, position: number): boolean {
  let backslashStart = position;
  while (text[backslashStart - 1] === BACKSLASH) backslashStart--;
  return (position - backslashStart) % 2 === 1;
}

const ASCII = /^[\0-\x7f]*$/;

function tooLong({ isTextless }: DoorRules): AttemptFailure {
  const fault = `above ${UPSTREAM_RESPONSE_BYTES_MAX} bytes`;
  return isTextless === true ? textlessTooLongFailure(fault) : tooLongFailure(fault);
}

type DoorRules = Pick<Dialect, 'marker' | 'isCount' | 'isTextless' | 'faultIn'>;

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
    doorRules: DoorRules = { marker: 'choices' },
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

  /** As HttpHandler.onWhole: the body is not parsed again. */
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
    const response = joinedChunks(this.#chunks, this.#bytes);
    this.#chunks = [];
    const members = this.#members ?? membersOfResponse(response);
    const fault = members === undefined ? 'no JSON object' : this.#faultIn(members);
    if (fault === undefined) this.#complete(response, members!);
    else this.#reject(invalidResponseFailure(fault));
  }

  /**
   * What is wrong with the response: it lacks the door's marker, has an error beside it, or the door finds a
   * fault.
   */
  #faultIn(members: Members): string | undefined {
    const { marker, isCount, faultIn } = this.#doorRules;
    const marked = members[marker];
    const isMarked = isCount === true ? Number.isSafeInteger(marked) : Array.isArray(marked);
    if (!isMarked) return `no ${marker}`;
    const hasFailed =
      isError(members.error) || (marker === 'choices' && (marked as unknown[]).some(isFailedChoice));
    return hasFailed ? 'an error' : faultIn?.(members);
  }

  #complete(response: Buffer, members: Members): void {
    this.#hasOutcome = true;
    this.#meter.report(reportIn(members), members.model);
    // A response without text is not kept: to look for text would parse megabytes of embeddings once more.
    if (this.#doorRules.isTextless !== true) this.#meter.setWholeResponse(response);
    this.#outcome.complete(response);
  }

  #reject(failure: AttemptFailure): void {
    this.#hasOutcome = true;
    this.#chunks = [];
    this.#outcome.reject(failure);
  }
}

/** Most responses come in one chunk, which is not copied. */
function joinedChunks(chunks: readonly Uint8Array[], bytes: number): Buffer {
  return chunks.length === 1 ? asBuffer(chunks[0]!) : Buffer.concat(chunks, bytes);
}

/**
 * Bounds the memory of all non-streamed responses of a worker. Such a response is buffered in full: nothing
 * is sent until the response is validated, and it stays buffered until the client has read it, which may take
 * hours. Beyond the bound a response is given up, and its call gets a 503 and is not billed. If the response
 * waited instead, all responses would queue behind the slowest reader.
 */
export class WorkerResponseBudget {
  readonly #bytesMax: number;
  readonly #uncountedBytesMax: number;
  #heldBytes = 0;

  /** A response up to `uncountedBytesMax` is not counted: the bound on calls in flight bounds these. */
  constructor(bytesMax: number, uncountedBytesMax: number) {
    this.#bytesMax = bytesMax;
    this.#uncountedBytesMax = uncountedBytesMax;
  }

  get heldBytes(): number {
    return this.#heldBytes;
  }

  /**
   * Changes what a response holds from `fromBytes` to `toBytes`. False, without a change, beyond the bound.
   */
  change(fromBytes: number, toBytes: number): boolean {
    const newHeldBytes = this.#heldBytes - this.#counted(fromBytes) + this.#counted(toBytes);
    if (toBytes > fromBytes && this.#counted(toBytes) > 0 && newHeldBytes > this.#bytesMax) return false;
    invariant(newHeldBytes >= 0, 'what is given back was held');
    this.#heldBytes = newHeldBytes;
    return true;
  }

  #counted(bytes: number): number {
    return bytes > this.#uncountedBytesMax ? bytes : 0;
  }
}

/** The buffered bytes of one call's response. */
export class ResponseBudget {
  readonly #allResponses: WorkerResponseBudget;
  #bytes = 0;

  constructor(allResponses: WorkerResponseBudget) {
    this.#allResponses = allResponses;
  }

  /** Counts `bytes` more, or fewer if negative. Returns false, and counts nothing, beyond the bound. */
  grow(bytes: number): boolean {
    if (!this.#allResponses.change(this.#bytes, this.#bytes + bytes)) return false;
    this.#bytes += bytes;
    return true;
  }

  /** Gives all bytes back. Idempotent. */
  clear(): void {
    this.#allResponses.change(this.#bytes, 0);
    this.#bytes = 0;
  }
}
