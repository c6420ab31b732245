/**
 * Frames as records of a ring, and back: those of each call. Others, and what is too long or finds no room, are posted.
 *
 *     Call   float64 callId; int32 model, flags, modelStart, modelEnd, characters of requestId, of traceparent, of tracestate, of body,
 *            account, outputTokensMax, choices; these texts
 *     Data   float64 callId; int32 bytes, 0; the bytes
 *     End    float64 callId; int32 bytes, usage source; float64 prompt, cached, completion tokens, waitMs; the bytes
 */
import { invariant } from '../core/errors.js';
import { asAccountIndex } from '../core/units.js';
import { UNRECORDED, type CarriedTrace } from '../telemetry/trace-context.js';
import type { FrameRingReader, FrameRingWriter } from './frame-ring.js';
import {
  FRAME_CALL,
  FRAME_DATA,
  FRAME_END,
  type CallFrame,
  type DataFrame,
  type EndFrame,
  type Frame,
} from './messages.js';

const ID_AT = 8;
const CALL_INTS_AT = 16;
const CALL_TEXT_AT = 60;
const BYTES_LENGTH_AT = 16;
const DATA_BYTES_AT = 24;
const END_SOURCE_AT = 20;
const END_FLOATS_AT = 24;
const END_BYTES_AT = 56;

const STREAM = 1;
const INCLUDE_USAGE = 2;
/** The body is as many bytes as characters; else it stands as UTF-16, which is what a string of other characters is in memory. */
const ASCII = 4;
/** Without texts of it: the trace is unrecorded. */
const TRACED = 8;

/** False where nothing was written: the frame is to be posted. */
export function writeFrame(ring: FrameRingWriter, frame: Frame): boolean {
  switch (frame[0]) {
    case FRAME_CALL:
      return writeCall(ring, frame as CallFrame);
    case FRAME_DATA:
      return writeData(ring, frame as DataFrame);
    case FRAME_END:
      return writeEnd(ring, frame as EndFrame);
    default:
      return false;
  }
}

/** Bytes of a response are a view of the ring. */
export function readFrame(ring: FrameRingReader, at: number): Frame {
  const kind = ring.ints[at >> 2];
  switch (kind) {
    case FRAME_CALL:
      return readCall(ring, at);
    case FRAME_DATA:
      return [FRAME_DATA, ring.floats[(at + ID_AT) >> 3], bytesAt(ring, at, DATA_BYTES_AT)];
    case FRAME_END:
      return readEnd(ring, at);
    default:
      invariant(false, `a ring holds calls, data and ends, not kind ${kind}`);
  }
}

function writeCall(ring: FrameRingWriter, frame: CallFrame): boolean {
  // It is handed over, not copied.
  if (frame[10] !== undefined) return false;
  const requestId = frame[2];
  const body = frame[8];
  const isAscii = frame[9];
  const trace = frame[11];
  const hasText = trace !== undefined && trace !== UNRECORDED;
  const traceParent = hasText ? trace[0] : '';
  const traceState = hasText ? trace[1] : '';
  const head = hasText ? requestId + traceParent + traceState : requestId;
  const bodyBytes = isAscii ? body.length : 2 * body.length;
  const at = ring.reserve(FRAME_CALL, CALL_TEXT_AT + head.length + bodyBytes);
  if (at === -1) return false;
  const { ints, floats, bytes } = ring;
  floats[(at + ID_AT) >> 3] = frame[1];
  let int = (at + CALL_INTS_AT) >> 2;
  ints[int++] = frame[3];
  ints[int++] =
    (frame[4] ? STREAM : 0) |
    (frame[5] ? INCLUDE_USAGE : 0) |
    (isAscii ? ASCII : 0) |
    (trace === undefined ? 0 : TRACED);
  ints[int++] = frame[6];
  ints[int++] = frame[7];
  ints[int++] = requestId.length;
  ints[int++] = traceParent.length;
  ints[int++] = traceState.length;
  ints[int++] = body.length;
  ints[int++] = frame[12];
  ints[int++] = frame[13];
  ints[int] = frame[14];
  const textAt = at + CALL_TEXT_AT;
  bytes.write(head, textAt, head.length, 'latin1');
  bytes.write(body, textAt + head.length, bodyBytes, isAscii ? 'latin1' : 'utf16le');
  return true;
}

function readCall({ ints, floats, bytes }: FrameRingReader, at: number): CallFrame {
  let int = (at + CALL_INTS_AT) >> 2;
  const modelIndex = ints[int++]!;
  const flags = ints[int++]!;
  const modelStart = ints[int++]!;
  const modelEnd = ints[int++]!;
  const requestIdAt = at + CALL_TEXT_AT;
  const traceParentAt = requestIdAt + ints[int++]!;
  const traceStateAt = traceParentAt + ints[int++]!;
  const bodyAt = traceStateAt + ints[int++]!;
  const bodyChars = ints[int++]!;
  const account = asAccountIndex(ints[int++]!);
  const outputTokensMax = ints[int++]!;
  const choices = ints[int]!;
  const isAscii = (flags & ASCII) !== 0;
  const body = isAscii
    ? bytes.toString('latin1', bodyAt, bodyAt + bodyChars)
    : bytes.toString('utf16le', bodyAt, bodyAt + 2 * bodyChars);
  return [
    FRAME_CALL,
    floats[(at + ID_AT) >> 3]!,
    bytes.toString('latin1', requestIdAt, traceParentAt),
    modelIndex,
    (flags & STREAM) !== 0,
    (flags & INCLUDE_USAGE) !== 0,
    modelStart,
    modelEnd,
    body,
    isAscii,
    undefined,
    (flags & TRACED) === 0 ? undefined : traceOf(bytes, traceParentAt, traceStateAt, bodyAt),
    account,
    outputTokensMax,
    choices,
  ];
}

function traceOf(bytes: Buffer, traceParentAt: number, traceStateAt: number, end: number): CarriedTrace {
  if (traceParentAt === traceStateAt) return UNRECORDED;
  return [bytes.toString('latin1', traceParentAt, traceStateAt), bytes.toString('latin1', traceStateAt, end)];
}

function writeData(ring: FrameRingWriter, frame: DataFrame): boolean {
  const payload = frame[2];
  const at = ring.reserve(FRAME_DATA, DATA_BYTES_AT + payload.length);
  if (at === -1) return false;
  ring.floats[(at + ID_AT) >> 3] = frame[1];
  ring.ints[(at + BYTES_LENGTH_AT) >> 2] = payload.length;
  ring.bytes.set(payload, at + DATA_BYTES_AT);
  return true;
}

function writeEnd(ring: FrameRingWriter, frame: EndFrame): boolean {
  const payload = frame[2];
  const usage = frame[3];
  const at = ring.reserve(FRAME_END, END_BYTES_AT + payload.length);
  if (at === -1) return false;
  const { ints, floats, bytes } = ring;
  floats[(at + ID_AT) >> 3] = frame[1];
  ints[(at + BYTES_LENGTH_AT) >> 2] = payload.length;
  ints[(at + END_SOURCE_AT) >> 2] = usage[3];
  let float = (at + END_FLOATS_AT) >> 3;
  floats[float++] = usage[0];
  floats[float++] = usage[1];
  floats[float++] = usage[2];
  floats[float] = frame[4];
  bytes.set(payload, at + END_BYTES_AT);
  return true;
}

function readEnd(ring: FrameRingReader, at: number): EndFrame {
  const { ints, floats } = ring;
  const float = (at + END_FLOATS_AT) >> 3;
  return [
    FRAME_END,
    floats[(at + ID_AT) >> 3]!,
    bytesAt(ring, at, END_BYTES_AT),
    [floats[float]!, floats[float + 1]!, floats[float + 2]!, ints[(at + END_SOURCE_AT) >> 2]!],
    floats[float + 3]!,
  ];
}

/** No Buffer, whose `slice` does not copy. */
function bytesAt({ shared, ints }: FrameRingReader, at: number, bytesAt: number): Uint8Array {
  return new Uint8Array(shared, at + bytesAt, ints[(at + BYTES_LENGTH_AT) >> 2]);
}
