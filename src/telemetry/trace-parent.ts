/**
 * The headers `traceparent` and `tracestate` of W3C Trace Context, read strictly: what is not valid is as if it had not been sent.
 * https://www.w3.org/TR/trace-context/. Any thread.
 */
import { newSpanId, newTraceId } from './span-ids.js';

/** What a `traceparent` says: the span that the work belongs under. */
export interface TraceParent {
  /** 32 digits, lower-case hexadecimal, not all zero. */
  readonly traceId: string;
  /** 16 digits, likewise. */
  readonly spanId: string;
  readonly flags: number;
}

/**
 * A trace that began here and is not recorded. That it is not is all there is to say behind this gateway, and the worker says it with
 * identifiers of its own: texts for it would cost the way there more than all else.
 */
export const UNRECORDED = 0;

/** What goes from a listener to a worker: a `traceparent`, and a `tracestate` or an empty string. */
export type CarriedTrace = readonly [traceParent: string, traceState: string] | typeof UNRECORDED;

export const FLAG_SAMPLED = 1;
/** Level 2: the trace's identifier is random. What else may be set is not ours to hand on. */
const FLAG_RANDOM = 2;
export const FLAGS_OF_NEW = FLAG_RANDOM;

const TRACE_PARENT_CHARS = 55;
/** Later versions may add fields; a caller has no reason to send much of them. */
const TRACE_PARENT_CHARS_MAX = 256;
const TRACE_PARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?$/;
const NO_TRACE_ID = '0'.repeat(32);
const NO_SPAN_ID = '0'.repeat(16);

/** The text says to carry at least so much; a longer state is dropped whole. */
const TRACE_STATE_CHARS_MAX = 512;
const TRACE_STATE_MEMBERS_MAX = 32;
const TRACE_STATE_MEMBER =
  /^((?:[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})|[a-z][a-z0-9_\-*/]{0,255})=[ -+\--<>-~]{0,255}[!-+\--<>-~]$/;

/** Undefined where the text is no valid `traceparent`. About 0.3 µs. */
export function parseTraceParent(text: string): TraceParent | undefined {
  if (text.length < TRACE_PARENT_CHARS || text.length > TRACE_PARENT_CHARS_MAX) return undefined;
  const match = TRACE_PARENT.exec(text);
  if (match === null) return undefined;
  const version = match[1]!;
  const traceId = match[2]!;
  const spanId = match[3]!;
  if (version === 'ff' || traceId === NO_TRACE_ID || spanId === NO_SPAN_ID) return undefined;
  if (version === '00' && text.length !== TRACE_PARENT_CHARS) return undefined;
  return { traceId, spanId, flags: parseInt(match[4]!, 16) & (FLAG_SAMPLED | FLAG_RANDOM) };
}

export function traceParentText({ traceId, spanId, flags }: TraceParent): string {
  return `00-${traceId}-${spanId}-0${flags}`;
}

/** Of a text that `traceParentText` has made; reads one character of it. */
export function isSampledText(text: string): boolean {
  return (text.charCodeAt(text.length - 1) & FLAG_SAMPLED) !== 0;
}

/** The headers that carry it: name, value, name, value. */
export function traceHeadersOf(carried: CarriedTrace): readonly string[] {
  if (carried === UNRECORDED) {
    const unrecorded = { traceId: newTraceId(), spanId: newSpanId(), flags: FLAGS_OF_NEW };
    return ['traceparent', traceParentText(unrecorded)];
  }
  const [traceParent, traceState] = carried;
  return traceState === ''
    ? ['traceparent', traceParent]
    : ['traceparent', traceParent, 'tracestate', traceState];
}

/** The state with spaces around its members and empty members taken out; empty where it is not valid or too long. */
export function checkedTraceState(text: string): string {
  if (text.length === 0 || text.length > TRACE_STATE_CHARS_MAX) return '';
  const keys = new Set<string>();
  const members: string[] = [];
  for (const part of text.split(',')) {
    const member = part.replace(/^[ \t]+|[ \t]+$/g, '');
    if (member === '') continue;
    const key = TRACE_STATE_MEMBER.exec(member)?.[1];
    if (key === undefined || keys.has(key) || members.length === TRACE_STATE_MEMBERS_MAX) return '';
    keys.add(key);
    members.push(member);
  }
  return members.join(',');
}
