/**
 * Reads the bytes of a body into a ChatCall, or into the 400 that its sender gets. Each door calls this, in
 * the listener for small bodies and in a counter thread for large ones. request/intake.ts calls
 * `modelInFirstPiece`. Pure.
 *
 * A body above some KB stays bytes, which threads transfer to each other without a copy: a string of 4 MB
 * costs each thread milliseconds.
 *
 * Must hold:
 * - A body is read alike whether it is small or large, in one piece or in many. So one scanner of a door
 *   checks all its bodies (test/unit/protocol/request-bytes.doors.test.ts, as the next two).
 * - A ChatCall refers to no byte of the memory that it was read from: µWS uses that memory again. Strings and
 *   `splicedBytes` are copies, the latter without a splice too.
 * - The scanner of each door rejects a second `model`, in whatever case (member-reader.ts), or
 *   `modelInFirstPiece` would check another model than the one that is called.
 */
import { isAscii, isUtf8, transcode } from 'node:buffer';
import { withoutSpare } from '../core/bytes.js';
import { invariant } from '../core/errors.js';
import { BODY_MODEL_BYTES_MAX } from '../core/limits.js';
import {
  BODY_AS_BYTES_MIN,
  isNowhere,
  splicedBytes,
  splicedText,
  type ChatCall,
  type ChatRequestResult,
  type OutputTokensField,
  type Splice,
  NOWHERE,
  type BodyScan,
  type Span,
} from './chat-call.js';
import { ChatScan } from './chat-scan.js';
import { BodyError, BRACE, JsonReader, QUOTE } from './json-reader.js';

/** What `usageSplice` adds to a body without `stream_options`. It is the longest splice. */
const STREAM_OPTIONS_MEMBER = ',"stream_options":{"include_usage":true}';

const MODEL_NAME = '"model"';

const INVALID_UTF8: ChatRequestResult = {
  ok: false,
  error: {
    code: 'invalid_parameters',
    message: 'the request body must be UTF-8 text, and some of its bytes are not. Send JSON in UTF-8.',
  },
};

/** One door's scanner. `bytes` are valid UTF-8, and ASCII if `bodyIsAscii`. Throws a BodyError. */
type Scanner = (bytes: Uint8Array, bodyIsAscii: boolean) => BodyScan;

const scanChat: Scanner = (bytes, bodyIsAscii) => new ChatScan(bytes, bodyIsAscii);

export const readChatBytes = (bytes: Uint8Array): ChatRequestResult => readBodyBytes(bytes, scanChat);

export const readLargeChatBytes = (pieces: readonly Uint8Array[]): ChatRequestResult =>
  readLargeBodyBytes(pieces, scanChat);

/** Reads a body in one piece. Keeps none of its memory, which may be µWS's. At most some ms a megabyte. */
export function readBodyBytes(bytes: Uint8Array, scanner: Scanner): ChatRequestResult {
  const bodyIsAscii = isAscii(bytes);
  const scan = scanOf(bytes, bodyIsAscii, scanner);
  if ('ok' in scan) return scan;
  const splice = usageSplice(scan);
  if (bytes.length >= BODY_AS_BYTES_MIN) {
    const largeBody = splicedBytes(bytes, splice === undefined ? [] : [splice]);
    return { ok: true, call: callOf(scan, bytes.length, scan, splice, bodyIsAscii, largeBody) };
  }
  const text = textOf(scan.bytes, bodyIsAscii);
  const textSplice = bodyIsAscii ? splice : splice && spliceInUnits(scan.bytes, text, splice);
  const body = textSplice === undefined ? text : splicedText(text, [textSplice]);
  const positions = bodyIsAscii ? scan : positionsInUnits(scan, text);
  return { ok: true, call: callOf(scan, bytes.length, positions, textSplice, bodyIsAscii, body) };
}

/**
 * As `readBodyBytes`, for a large body in pieces, in a counter thread. Besides the pieces, memory holds one
 * copy of the body, which becomes `largeBody` of the call, and at most some MB of the scan (chat-scan.ts).
 */
export function readLargeBodyBytes(pieces: readonly Uint8Array[], scanner: Scanner): ChatRequestResult {
  const length = pieces.reduce((total, piece) => total + piece.length, 0);
  // Not of Node's buffer pool: the counter thread transfers this memory to the listener.
  const memory = Buffer.allocUnsafeSlow(length + STREAM_OPTIONS_MEMBER.length);
  let filledBytes = 0;
  for (const piece of pieces) {
    memory.set(piece, filledBytes);
    filledBytes += piece.length;
  }
  const bytes = memory.subarray(0, length);
  const bodyIsAscii = isAscii(bytes);
  const scan = scanOf(bytes, bodyIsAscii, scanner);
  if ('ok' in scan) return scan;
  const splice = usageSplice(scan);
  const splicedLength = length + growthOf(splice);
  invariant(splicedLength <= memory.length, 'the splice fits behind the body');
  if (splice !== undefined) {
    memory.copyWithin(splice.start + splice.text.length, splice.end, length);
    memory.write(splice.text, splice.start, 'latin1');
  }
  // Without the spare bytes, because the worker frees only memory that holds nothing but the body.
  const largeBody = withoutSpare(memory, splicedLength);
  return { ok: true, call: callOf(scan, length, scan, splice, bodyIsAscii, largeBody) };
}

/**
 * The value of the top-level member `model` in `piece`, the first bytes of a large JSON body, which may be
 * cut anywhere. So a body whose model the caller may not use is rejected before all of the body has come.
 * Undefined if the value has not come in full, or is not certain: the piece is no object or no JSON so far,
 * the value is no string or empty, a name has an escape.
 *
 * A returned value is certain, because a body with a second `model` is rejected. Never throws. Costs at most
 * some 6 µs a KB.
 */
export function modelInFirstPiece(piece: Uint8Array): string | undefined {
  const reader = new JsonReader(piece);
  try {
    if (reader.skipSpace() !== BRACE || !reader.openObject()) return undefined;
    do {
      const nameStart = reader.position;
      if (reader.skipString()) return undefined;
      const isModel =
        reader.position - nameStart === MODEL_NAME.length &&
        reader.bytes.toString('latin1', nameStart, reader.position) === MODEL_NAME;
      const firstByte = reader.skipColon();
      const start = reader.position;
      reader.skipValue();
      if (!isModel) continue;
      const end = reader.position;
      // An empty name (two quotes) breaks a rule: the caller gets that error when the whole body is read.
      if (firstByte !== QUOTE || end - start === 2 || end - start > BODY_MODEL_BYTES_MAX) return undefined;
      return isUtf8(reader.bytes.subarray(start, end)) ? reader.decoded(start, end) : undefined;
    } while (reader.moreMembers());
  } catch (error) {
    // The piece ends within a value, or is not JSON.
    if (!(error instanceof BodyError)) throw error;
  }
  return undefined;
}

/**
 * What the scanner finds; or a ChatRequestResult, which is never `ok`, if the body is rejected. Callers tell
 * the two apart by the field `ok`, which a BodyScan lacks.
 */
function scanOf(bytes: Uint8Array, bodyIsAscii: boolean, scanner: Scanner): BodyScan | ChatRequestResult {
  if (!bodyIsAscii && !isUtf8(bytes)) return INVALID_UTF8;
  try {
    return scanner(bytes, bodyIsAscii);
  } catch (error) {
    if (!(error instanceof BodyError)) throw error;
    return { ok: false, error: { code: 'invalid_parameters', message: error.message } };
  }
}

/** The splice, in bytes, that makes a stream report its usage; undefined if none is needed. */
function usageSplice(scan: BodyScan): Splice | undefined {
  const { request, streamOptions, includeUsage: includeUsageSpan, end, asksForUsage } = scan;
  if (!asksForUsage || request.stream !== true || request.stream_options?.include_usage === true)
    return undefined;
  // The comma is right: the body has `stream`.
  if (isNowhere(streamOptions)) return { start: end, end, text: STREAM_OPTIONS_MEMBER };
  if (!request.stream_options) return { ...streamOptions, text: '{"include_usage":true}' };
  if (!isNowhere(includeUsageSpan)) return { ...includeUsageSpan, text: 'true' };
  // Before the brace that closes `stream_options`.
  const start = streamOptions.end - 1;
  const text = scan.streamOptionsHasMembers ? ',"include_usage":true' : '"include_usage":true';
  return { start, end: start, text };
}

/** Spans of the members that may be changed, and the position of the brace that closes the body. */
type Positions = Pick<BodyScan, 'model' | 'maxTokens' | 'maxCompletionTokens' | 'end'>;

/**
 * The call of a valid request. `bodyBytes`: the length of what the client sent. `positions` are from before
 * `splice`, which is outside of their spans. `body` has the splice: a text, or the bytes of `largeBody`.
 * `positions` and `splice` are in UTF-16 units of the text, or in those bytes.
 */
function callOf(
  { request, routingMembers, mediaParts, repeatedTokens, outputTokensName, outputTokensMin }: BodyScan,
  bodyBytes: number,
  positions: Positions,
  splice: Splice | undefined,
  bodyIsAscii: boolean,
  body: string | Uint8Array,
): ChatCall {
  const outputTokensMax = outputTokensMaxOf(request);
  const model = movedSpan(positions.model, splice);
  return {
    model: request.model,
    stream: request.stream === true,
    includeUsage: request.stream_options?.include_usage === true,
    outputTokensMax,
    outputTokensField: outputTokensFieldOf(request, outputTokensMax, outputTokensName),
    outputTokensName,
    outputTokensMin,
    choices: request.n ?? 1,
    routingMembers,
    body: typeof body === 'string' ? body : '',
    bodyIsAscii,
    largeBody: typeof body === 'string' ? undefined : body,
    bodyBytes,
    mediaParts,
    repeatedTokens,
    modelStart: model.start,
    modelEnd: model.end,
    maxTokens: movedSpan(positions.maxTokens, splice),
    maxCompletionTokens: movedSpan(positions.maxCompletionTokens, splice),
    bodyEnd: positions.end + growthOf(splice),
  };
}

/** The larger bound if both members are given: an upstream may obey either, and the hold must cover it. */
function outputTokensMaxOf(request: BodyScan['request']): number | undefined {
  const maxCompletionTokens = request.max_completion_tokens ?? undefined;
  const maxTokens = request.max_tokens ?? undefined;
  if (maxCompletionTokens === undefined || maxTokens === undefined) return maxCompletionTokens ?? maxTokens;
  return Math.max(maxCompletionTokens, maxTokens);
}

/**
 * The member that gave `outputTokensMax`; undefined if none did. Of two equal ones it is
 * `max_completion_tokens`, the newer. `outputTokensName`: the door's own member.
 */
function outputTokensFieldOf(
  request: BodyScan['request'],
  outputTokensMax: number | undefined,
  outputTokensName: OutputTokensField,
): OutputTokensField | undefined {
  if (outputTokensMax === undefined) return undefined;
  return request.max_completion_tokens === outputTokensMax ? 'max_completion_tokens' : outputTokensName;
}

/** How many bytes, and so UTF-16 units, the splice adds to the body, because all is ASCII; 0 without one. */
function growthOf(splice: Splice | undefined): number {
  return splice === undefined ? 0 : splice.text.length - (splice.end - splice.start);
}

/** The span after the splice was made. */
function movedSpan(span: Span, splice: Splice | undefined): Span {
  if (splice === undefined || splice.start >= span.start) return span;
  const growth = growthOf(splice);
  return { start: span.start + growth, end: span.end + growth };
}

function positionsInUnits(
  { bytes, model, maxTokens, maxCompletionTokens, end }: BodyScan,
  text: string,
): Positions {
  return {
    model: { start: unitAt(bytes, text, model.start), end: unitAt(bytes, text, model.end) },
    maxTokens: asciiSpanInUnits(bytes, text, maxTokens),
    maxCompletionTokens: asciiSpanInUnits(bytes, text, maxCompletionTokens),
    end: unitAt(bytes, text, end),
  };
}

/** The span in UTF-16 units. The text of the span is ASCII, so both ends move by the same number. */
function asciiSpanInUnits(bytes: Buffer, text: string, span: Span): Span {
  if (isNowhere(span)) return NOWHERE;
  const start = unitAt(bytes, text, span.start);
  return { start, end: start + span.end - span.start };
}

/** The splice in UTF-16 units. The splice replaces `null` or `false` or nothing, so its span is ASCII. */
function spliceInUnits(bytes: Buffer, text: string, { start, end, text: added }: Splice): Splice {
  const startUnit = unitAt(bytes, text, start);
  return { start: startUnit, end: startUnit + end - start, text: added };
}

/**
 * The text of valid UTF-8. Text that is not ASCII is converted by way of UTF-16, because `transcode` uses
 * vector instructions: 64 KB of Chinese take 33 µs, and 380 µs by V8's decoder (TextDecoder).
 */
function textOf(bytes: Buffer, bodyIsAscii: boolean): string {
  return bodyIsAscii ? bytes.toString('latin1') : transcode(bytes, 'utf8', 'utf16le').toString('utf16le');
}

/** The position in `text` of byte `position`. Counts from the nearer end: most changes are near one. */
function unitAt(bytes: Buffer, text: string, position: number): number {
  if (text.length === bytes.length) return position;
  if (position <= bytes.length >> 1) return unitsBetween(bytes, 0, position);
  return text.length - unitsBetween(bytes, position, bytes.length);
}

/** Number of UTF-16 units in a part of valid UTF-8. */
function unitsBetween(bytes: Buffer, start: number, end: number): number {
  let units = 0;
  for (let position = start; position < end; position++) {
    const byte = bytes[position]!;
    // One unit for each character's first byte, and one more for characters beyond the basic plane.
    if (byte < 0x80 || byte >= 0xc0) units += byte < 0xf0 ? 1 : 2;
  }
  return units;
}
