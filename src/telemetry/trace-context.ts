/**
 * W3C Trace Context (https://www.w3.org/TR/trace-context/): reads the headers `traceparent` and `tracestate`,
 * writes them, and makes ids of traces and spans. request/call-trace.ts (listener) and
 * upstream/attempt-span.ts (upstream worker) call it. trace-sampling.ts decides which traces are recorded.
 *
 * Must hold: an invalid header counts as not sent.
 */
import { randomFillSync } from 'node:crypto';

/** Random bytes are made in blocks, each for some hundred ids: to make them for each id would cost more. */
const BLOCK_BYTES = 4_096;
const TRACE_ID_BYTES = 16;
const SPAN_ID_BYTES = 8;

/** Each thread has its own block, whose first `usedBytes` are used up: all of them before the first fill. */
const randomBlock = Buffer.allocUnsafeSlow(BLOCK_BYTES);
let usedBytes = BLOCK_BYTES;

/** Returns 32 hexadecimal digits. Takes 0.2 µs. All digits are zero, which is invalid, once in 2^128 ids. */
export function newTraceId(): string {
  return randomHex(TRACE_ID_BYTES);
}

/** Returns 16 hexadecimal digits. All digits are zero, which is invalid, once in 2^64 ids. */
export function newSpanId(): string {
  return randomHex(SPAN_ID_BYTES);
}

function randomHex(bytes: number): string {
  if (usedBytes + bytes > BLOCK_BYTES) {
    randomFillSync(randomBlock);
    usedBytes = 0;
  }
  usedBytes += bytes;
  return randomBlock.toString('hex', usedBytes - bytes, usedBytes);
}

/** The values of a `traceparent`: the span that is the call's parent. */
export interface TraceParent {
  /** 32 digits, lower-case hexadecimal, not all zero. */
  readonly traceId: string;
  /** 16 digits, lower-case hexadecimal, not all zero. */
  readonly spanId: string;
  /** FLAG_SAMPLED and FLAG_RANDOM, or 0. */
  readonly flags: number;
}

/**
 * A trace that begins here and is not recorded. The worker makes the ids for the upstream's headers, so that
 * no text goes from listener to worker.
 */
export const UNRECORDED = 0;

/** What a listener sends a worker: a valid `traceparent`, and a checked `tracestate` or an empty string. */
export type CarriedTrace = readonly [traceParent: string, traceState: string] | typeof UNRECORDED;

export const FLAG_SAMPLED = 1;
/** A flag of level 2 of the standard: the trace's id is random. Flags but these two are not passed on. */
const FLAG_RANDOM = 2;
/** The flags of a trace that begins here, before it is sampled. */
export const FLAGS_OF_NEW_TRACE = FLAG_RANDOM;

const TRACE_PARENT_CHARS = 55;
/** Later versions of the standard may add fields; a text that is longer than this is invalid here. */
const TRACE_PARENT_CHARS_MAX = 256;
/** Version, trace id, span id, flags, and the fields of a later version. */
const TRACE_PARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?$/;
const NO_TRACE_ID = '0'.repeat(32);
const NO_SPAN_ID = '0'.repeat(16);

/** The standard asks to carry at least this many characters. A longer state is dropped whole. */
const TRACE_STATE_CHARS_MAX = 512;
const TRACE_STATE_MEMBERS_MAX = 32;
/** By the standard's grammar: `key` or `tenant@system`, `=`, and a value that ends in no space. */
const TRACE_STATE_MEMBER =
  /^((?:[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})|[a-z][a-z0-9_\-*/]{0,255})=[ -+\--<>-~]{0,255}[!-+\--<>-~]$/;

/** Returns undefined if the text is not a valid `traceparent`. Takes 0.3 µs. */
export function parseTraceParent(text: string): TraceParent | undefined {
  if (text.length < TRACE_PARENT_CHARS || text.length > TRACE_PARENT_CHARS_MAX) return undefined;
  const match = TRACE_PARENT.exec(text);
  if (match === null) return undefined;
  // `!`: a match has these groups.
  const version = match[1]!;
  const traceId = match[2]!;
  const spanId = match[3]!;
  if (version === 'ff' || traceId === NO_TRACE_ID || spanId === NO_SPAN_ID) return undefined;
  if (version === '00' && text.length !== TRACE_PARENT_CHARS) return undefined;
  return { traceId, spanId, flags: parseInt(match[4]!, 16) & (FLAG_SAMPLED | FLAG_RANDOM) };
}

/** Returns a `traceparent` of version 00. `0${flags}`: the flags are less than 4, so they are one digit. */
export function traceParentText({ traceId, spanId, flags }: TraceParent): string {
  return `00-${traceId}-${spanId}-0${flags}`;
}

/** Returns whether a text of `traceParentText` has the sampled flag: the lowest bit of its last digit. */
export function isSampledText(text: string): boolean {
  return (text.charCodeAt(text.length - 1) & FLAG_SAMPLED) !== 0;
}

/** Returns the headers that carry the trace: name, value, name, value. */
export function traceHeadersOf(carried: CarriedTrace): readonly string[] {
  if (carried === UNRECORDED) {
    const unrecorded = { traceId: newTraceId(), spanId: newSpanId(), flags: FLAGS_OF_NEW_TRACE };
    return ['traceparent', traceParentText(unrecorded)];
  }
  const [traceParent, traceState] = carried;
  return traceState === ''
    ? ['traceparent', traceParent]
    : ['traceparent', traceParent, 'tracestate', traceState];
}

/** Returns the state without empty members and spaces around members; '' if invalid or too long. */
export function checkedTraceState(text: string): string {
  if (text.length === 0 || text.length > TRACE_STATE_CHARS_MAX) return '';
  const keys = new Set<string>();
  const members: string[] = [];
  for (const untrimmed of text.split(',')) {
    // The lookbehind keeps the second pattern from trying each space of a long run again.
    const member = untrimmed.replace(/^[ \t]+|(?<![ \t])[ \t]+$/g, '');
    if (member === '') continue;
    const key = TRACE_STATE_MEMBER.exec(member)?.[1];
    if (key === undefined || keys.has(key) || members.length === TRACE_STATE_MEMBERS_MAX) return '';
    keys.add(key);
    members.push(member);
  }
  return members.join(',');
}
