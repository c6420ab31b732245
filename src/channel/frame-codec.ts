/**
 * Encodes the frames between listener and worker as binary records of a ring, and decodes them. frame-port.ts
 * calls it, on both threads. All threads run one build, so the layout may change with the build.
 *
 *     Call            float64 callId; CALL_INTS int32: model, flags, modelStart, modelEnd, the characters of
 *                     requestId, of traceparent, of tracestate and of body, account, outputTokensMax,
 *                     choices, mediaParts, repeatedTokens, the characters of betas, the number of fallbacks;
 *                     if that is not 0, where maxTokens and maxCompletionTokens start and end in the body,
 *                     and the models of the fallbacks; then the texts: requestId, traceparent, tracestate,
 *                     betas (header anthropic-beta), body
 *     Cancel, Stop,   float64 callId
 *     Credit
 *     Data            float64 callId; int32 length of the bytes; 4 bytes that are not written; the bytes
 *     End, Cut        float64 callId; int32 length of the bytes, usage source; float64 tokens: prompt,
 *                     cached, cache-write, the part of the cache-write that is kept for an hour, completion,
 *                     reasoning; float64 wait in ms; the bytes
 *
 * messages.ts says what each is for. A Credit has no number of bytes, because both threads count credits in
 * shared memory (call-table.ts). Fail and Tried are rare, so frame-port.ts posts them as messages, as it does
 * with a frame that is too long for a record or finds no space in the ring.
 *
 * A call with a large body has an empty `body`. Its record has everything but the large body, which
 * frame-port.ts posts after the record, because its memory can be transferred. On the other thread
 * frame-port.ts puts the large body back into the frame.
 *
 * Must hold (test/unit/channel/frame-port.test.ts):
 * - `readFrame` returns what `writeFrame` was given, field by field and for any body, except `largeBody`. A
 *   field that is read at a wrong offset may charge wrong tokens.
 * - requestId, trace and betas are ASCII: the gateway makes the requestId, telemetry/trace-context.ts and
 *   request/request-head.ts check the others. A body with `bodyIsAscii` is ASCII too, or its wider characters
 *   would change: protocol/request-bytes.ts sets the flag.
 * - Each int32 is a whole number below 2^31: an index, a count that a body or a limit bounds, a position in a
 *   body, or tokens up to OUTPUT_TOKENS_UNLIMITED.
 */
import { invariant } from '../core/errors.js';
import { FIELDS_AT, type SpscReader, type SpscWriter } from '../core/spsc-ring.js';
import { asAccountIndex } from '../core/units.js';
import { USAGE_SOURCES } from '../core/token-counts.js';
import { UNRECORDED, type CarriedTrace } from '../telemetry/trace-context.js';
import {
  FRAME_CALL,
  FRAME_CANCEL,
  FRAME_CREDIT,
  FRAME_CUT,
  FRAME_DATA,
  FRAME_END,
  FRAME_FAIL,
  FRAME_STOP,
  FRAME_TRIED,
  type CallFrame,
  type EndFrame,
  type FallbackModels,
  type Frame,
  type UpstreamRequest,
} from './messages.js';
import { asCallId, type CallId } from './open-calls.js';

/** A longer frame is posted as a message: to transfer its bytes costs no more than to copy them. */
export const RECORD_BYTES_MAX = 32 * 1024;

// Offsets in bytes from the start of a record, which is a multiple of 8. Offsets of a float64 must be
// multiples of 8 too (FIELDS_AT is), those of an int32 multiples of 4. The int32 of a Call follow its id; in
// a Data, End or Cut the length of the bytes follows.
const ID_AT = FIELDS_AT;
/** Bytes of a Cancel, Stop or Credit. */
const SIGNAL_BYTES = ID_AT + 8;
const CALL_INTS_AT = ID_AT + 8;
/** How many int32 each call has, in the order in which `writeCall` writes them. */
const CALL_INTS = 15;
/** Where the int32 of the fallbacks begin; without fallbacks, the texts. */
const CALL_TEXT_AT = CALL_INTS_AT + CALL_INTS * 4;
/** How many int32 precede the models of the fallbacks: where two members of the body start and end. */
const FALLBACK_INTS = 4;
const LENGTH_AT = ID_AT + 8;
const DATA_BYTES_AT = LENGTH_AT + 8;
const END_SOURCE_AT = LENGTH_AT + 4;
const END_FLOATS_AT = LENGTH_AT + 8;
/** After the seven float64 that `writeEnd` writes. */
const END_BYTES_AT = END_FLOATS_AT + 7 * 8;

/** Bits of a call's `flags`. */
const STREAM = 1;
const INCLUDE_USAGE = 2;
/**
 * All characters of the body are ASCII (U+0000 to U+007F), so it has one byte a character. Otherwise it is
 * UTF-16, as V8 keeps a string with wider characters in memory.
 */
const ASCII = 4;
/** The call belongs to a trace. Without a traceparent in the record the trace is UNRECORDED. */
const TRACED = 8;
/** The bits of `flags` from here on are the door's position in DOOR_NAMES. */
const DOOR_SHIFT = 8;

/**
 * Returns false if nothing was written: FramePort then posts the frame. A call is written without its large
 * body, which FramePort posts.
 */
export function writeFrame(ring: SpscWriter, frame: Frame): boolean {
  switch (frame.kind) {
    case FRAME_CALL:
      return writeCall(ring, frame);
    case FRAME_CANCEL:
    case FRAME_STOP:
    case FRAME_CREDIT:
      return begin(ring, frame.kind, frame.id, SIGNAL_BYTES) !== -1;
    case FRAME_DATA: {
      const { id, bytes } = frame;
      const recordAt = begin(ring, FRAME_DATA, id, DATA_BYTES_AT + bytes.length);
      if (recordAt === -1) return false;
      ring.ints[(recordAt + LENGTH_AT) >> 2] = bytes.length;
      ring.bytes.set(bytes, recordAt + DATA_BYTES_AT);
      return true;
    }
    case FRAME_END:
    case FRAME_CUT:
      return writeEnd(ring, frame);
    case FRAME_FAIL:
    case FRAME_TRIED:
      return false;
  }
}

/**
 * The frame whose record begins at the offset `recordAt`, as SpscReader.read gives it. Bytes of a response
 * are a view of the ring, valid until FramePort gives the record back.
 */
export function readFrame(ring: SpscReader, recordAt: number): Frame {
  const id = asCallId(ring.floats[(recordAt + ID_AT) >> 3]!);
  const kind = ring.kindAt(recordAt);
  switch (kind) {
    case FRAME_CALL:
      return { kind, id, request: readRequest(ring, recordAt) };
    case FRAME_CANCEL:
    case FRAME_STOP:
    case FRAME_CREDIT:
      return { kind, id };
    case FRAME_DATA:
      return { kind, id, bytes: bytesOf(ring, recordAt, DATA_BYTES_AT) };
    case FRAME_END:
    case FRAME_CUT:
      return readEnd(ring, recordAt, kind, id);
    default:
      invariant(false, `a ring holds no frame of kind ${kind}`);
  }
}

/**
 * Reserves a record of `bytes`, its kind and length included, and writes the call's id. Returns its offset;
 * -1 if the record is too long or the ring is full. The reader sees the record when FramePort announces it.
 */
function begin(ring: SpscWriter, kind: number, id: CallId, bytes: number): number {
  if (bytes > RECORD_BYTES_MAX) return -1;
  const recordAt = ring.reserve(kind, bytes);
  if (recordAt !== -1) ring.floats[(recordAt + ID_AT) >> 3] = id;
  return recordAt;
}

function writeCall(ring: SpscWriter, { id, request }: CallFrame): boolean {
  const { requestId, body, bodyIsAscii, trace, fallbacks, betas } = request;
  const hasTraceText = trace !== undefined && trace !== UNRECORDED;
  const traceParent = hasTraceText ? trace[0] : '';
  const traceState = hasTraceText ? trace[1] : '';
  const shortTexts = hasTraceText ? requestId + traceParent + traceState + betas : requestId + betas;
  const bodyBytes = bodyIsAscii ? body.length : 2 * body.length;
  const fallbackCount = fallbacks === undefined ? 0 : fallbacks.models.length;
  const fallbackBytes = fallbackBytesOf(fallbackCount);
  const recordAt = begin(ring, FRAME_CALL, id, CALL_TEXT_AT + fallbackBytes + shortTexts.length + bodyBytes);
  if (recordAt === -1) return false;
  const { ints, bytes } = ring;
  // `readRequest` reads in this order: change both together, and the header.
  const firstInt = (recordAt + CALL_INTS_AT) >> 2;
  let nextInt = firstInt;
  ints[nextInt++] = request.modelIndex;
  ints[nextInt++] =
    (request.stream ? STREAM : 0) |
    (request.includeUsage ? INCLUDE_USAGE : 0) |
    (bodyIsAscii ? ASCII : 0) |
    (trace === undefined ? 0 : TRACED) |
    (request.door << DOOR_SHIFT);
  ints[nextInt++] = request.modelStart;
  ints[nextInt++] = request.modelEnd;
  ints[nextInt++] = requestId.length;
  ints[nextInt++] = traceParent.length;
  ints[nextInt++] = traceState.length;
  ints[nextInt++] = body.length;
  ints[nextInt++] = request.account;
  ints[nextInt++] = request.outputTokensMax;
  ints[nextInt++] = request.choices;
  ints[nextInt++] = request.mediaParts;
  ints[nextInt++] = request.repeatedTokens;
  ints[nextInt++] = betas.length;
  ints[nextInt++] = fallbackCount;
  invariant(nextInt - firstInt === CALL_INTS, 'the texts begin behind the int32 of a call');
  if (fallbacks !== undefined) writeFallbacks(ints, nextInt, fallbacks);
  const textAt = recordAt + CALL_TEXT_AT + fallbackBytes;
  bytes.write(shortTexts, textAt, shortTexts.length, 'latin1');
  bytes.write(body, textAt + shortTexts.length, bodyBytes, bodyIsAscii ? 'latin1' : 'utf16le');
  return true;
}

function fallbackBytesOf(count: number): number {
  return count === 0 ? 0 : 4 * (FALLBACK_INTS + count);
}

/** `firstInt`: the index in `ints` at which the int32 of the fallbacks begin. */
function writeFallbacks(
  ints: Int32Array,
  firstInt: number,
  { models, maxTokens, maxCompletionTokens }: FallbackModels,
): void {
  ints[firstInt] = maxTokens.start;
  ints[firstInt + 1] = maxTokens.end;
  ints[firstInt + 2] = maxCompletionTokens.start;
  ints[firstInt + 3] = maxCompletionTokens.end;
  ints.set(models, firstInt + FALLBACK_INTS);
}

/** `firstInt` as in `writeFallbacks`. `count`: how many fallbacks there are. */
function readFallbacks(ints: Int32Array, firstInt: number, count: number): FallbackModels {
  const firstModel = firstInt + FALLBACK_INTS;
  return {
    models: Array.from(ints.subarray(firstModel, firstModel + count)),
    maxTokens: { start: ints[firstInt]!, end: ints[firstInt + 1]! },
    maxCompletionTokens: { start: ints[firstInt + 2]!, end: ints[firstInt + 3]! },
  };
}

/** Reads the int32 in the order in which `writeCall` writes them. */
function readRequest({ ints, bytes }: SpscReader, recordAt: number): UpstreamRequest {
  let nextInt = (recordAt + CALL_INTS_AT) >> 2;
  const modelIndex = ints[nextInt++]!;
  const flags = ints[nextInt++]!;
  const modelStart = ints[nextInt++]!;
  const modelEnd = ints[nextInt++]!;
  const requestIdChars = ints[nextInt++]!;
  const traceParentChars = ints[nextInt++]!;
  const traceStateChars = ints[nextInt++]!;
  const bodyChars = ints[nextInt++]!;
  const account = asAccountIndex(ints[nextInt++]!);
  const outputTokensMax = ints[nextInt++]!;
  const choices = ints[nextInt++]!;
  const mediaParts = ints[nextInt++]!;
  const repeatedTokens = ints[nextInt++]!;
  const betasChars = ints[nextInt++]!;
  const fallbackCount = ints[nextInt++]!;
  const requestIdAt = recordAt + CALL_TEXT_AT + fallbackBytesOf(fallbackCount);
  const traceParentAt = requestIdAt + requestIdChars;
  const traceStateAt = traceParentAt + traceParentChars;
  const betasAt = traceStateAt + traceStateChars;
  const bodyAt = betasAt + betasChars;
  const bodyIsAscii = (flags & ASCII) !== 0;
  return {
    requestId: bytes.toString('latin1', requestIdAt, traceParentAt),
    door: flags >> DOOR_SHIFT,
    betas: betasChars === 0 ? '' : bytes.toString('latin1', betasAt, bodyAt),
    modelIndex,
    stream: (flags & STREAM) !== 0,
    includeUsage: (flags & INCLUDE_USAGE) !== 0,
    modelStart,
    modelEnd,
    body: bodyIsAscii
      ? bytes.toString('latin1', bodyAt, bodyAt + bodyChars)
      : bytes.toString('utf16le', bodyAt, bodyAt + 2 * bodyChars),
    bodyIsAscii,
    largeBody: undefined,
    trace: (flags & TRACED) === 0 ? undefined : traceOf(bytes, traceParentAt, traceStateAt, betasAt),
    account,
    outputTokensMax,
    choices,
    mediaParts,
    repeatedTokens,
    fallbacks: fallbackCount === 0 ? undefined : readFallbacks(ints, nextInt, fallbackCount),
  };
}

/** The trace of a TRACED call: UNRECORDED if the record has no text of a trace. */
function traceOf(bytes: Buffer, traceParentAt: number, traceStateAt: number, end: number): CarriedTrace {
  if (traceParentAt === traceStateAt) return UNRECORDED;
  return [bytes.toString('latin1', traceParentAt, traceStateAt), bytes.toString('latin1', traceStateAt, end)];
}

function writeEnd(ring: SpscWriter, { kind, id, bytes, usage, upstreamWaitMs }: EndFrame): boolean {
  const recordAt = begin(ring, kind, id, END_BYTES_AT + bytes.length);
  if (recordAt === -1) return false;
  const { ints, floats } = ring;
  ints[(recordAt + LENGTH_AT) >> 2] = bytes.length;
  // Never -1: the type UsageSource has no other sources.
  ints[(recordAt + END_SOURCE_AT) >> 2] = USAGE_SOURCES.indexOf(usage.source);
  let floatIndex = (recordAt + END_FLOATS_AT) >> 3;
  floats[floatIndex++] = usage.promptTokens;
  floats[floatIndex++] = usage.cachedTokens;
  floats[floatIndex++] = usage.cacheWriteTokens;
  floats[floatIndex++] = usage.cacheWrite1hTokens;
  floats[floatIndex++] = usage.completionTokens;
  floats[floatIndex++] = usage.reasoningTokens;
  floats[floatIndex] = upstreamWaitMs;
  ring.bytes.set(bytes, recordAt + END_BYTES_AT);
  return true;
}

function readEnd(ring: SpscReader, recordAt: number, kind: EndFrame['kind'], id: CallId): EndFrame {
  const { ints, floats } = ring;
  const floatIndex = (recordAt + END_FLOATS_AT) >> 3;
  return {
    kind,
    id,
    bytes: bytesOf(ring, recordAt, END_BYTES_AT),
    usage: {
      promptTokens: floats[floatIndex]!,
      cachedTokens: floats[floatIndex + 1]!,
      cacheWriteTokens: floats[floatIndex + 2]!,
      cacheWrite1hTokens: floats[floatIndex + 3]!,
      completionTokens: floats[floatIndex + 4]!,
      reasoningTokens: floats[floatIndex + 5]!,
      source: USAGE_SOURCES[ints[(recordAt + END_SOURCE_AT) >> 2]!]!,
    },
    upstreamWaitMs: floats[floatIndex + 6]!,
  };
}

/**
 * A view of the ring's memory, from the offset `recordAt + bytesAt` on. It is no Buffer, because receivers
 * copy by `slice`, which in a Buffer does not copy. `bytes` covers the ring's memory from byte 0, so offsets
 * in both are the same.
 */
function bytesOf({ bytes, ints }: SpscReader, recordAt: number, bytesAt: number): Uint8Array {
  return new Uint8Array(bytes.buffer, recordAt + bytesAt, ints[(recordAt + LENGTH_AT) >> 2]);
}
