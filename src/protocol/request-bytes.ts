/**
 * From a body's bytes to what the gateway has to know of it, or to the 400 that its sender gets. Pure; listener thread, and the
 * counter pool for large bodies. Small or large, in one piece or in many, a body is judged by the same pass.
 *
 * A body of some KB goes on as bytes, which threads hand to each other without a copy: a string of 4 MB costs each of them
 * milliseconds.
 */
import { isAscii, isUtf8, transcode } from 'node:buffer';
import { splicedBytes, splicedText, type Splice } from './chat-body.js';
import { callOf, usageSplice, type BodyForm, type ChatRequestResult } from './chat-request.js';
import { ChatScan, NOWHERE, type Span } from './chat-scan.js';
import { BodyError } from './json-reader.js';

/**
 * Below it a string costs less than memory outside of the heap; such a one is a record of a ring (frame-codec.ts). With 24 KB a call with
 * a body of 16 KB took 1.09 times the CPU: the string is copied four times on its way, the memory is handed over.
 */
const BODY_AS_BYTES_MIN = 4 * 1024;

/** Room behind a large body for what is put into it. */
const SPLICE_BYTES_MAX = 64;

const INVALID_UTF8: ChatRequestResult = {
  ok: false,
  error: {
    code: 'invalid_parameters',
    message: 'the request body must be UTF-8 text, and some of its bytes are not. Send JSON in UTF-8.',
  },
};

/** Keeps nothing of `bytes`. Costs some µs for a small body, some ms a megabyte at most. */
export function readChatBytes(bytes: Uint8Array): ChatRequestResult {
  const bodyIsAscii = isAscii(bytes);
  const scan = scanOf(bytes, bodyIsAscii);
  if (!(scan instanceof ChatScan)) return scan;
  const splice = usageSplice(scan);
  if (bytes.length >= BODY_AS_BYTES_MIN) {
    const largeBody = splicedBytes(bytes, splice === undefined ? [] : [splice], growthOf(splice));
    return {
      ok: true,
      call: callOf(scan, bytes.length, formOf(scan, splice, bodyIsAscii, largeBody)),
    };
  }
  const text = textOf(scan.bytes, bodyIsAscii);
  const inUnits = bodyIsAscii ? splice : splice && spliceInUnits(scan.bytes, text, splice);
  const body = inUnits === undefined ? text : splicedText(text, [inUnits]);
  const places = bodyIsAscii ? scan : placesInUnits(scan, text);
  const form = formOf(places, inUnits, bodyIsAscii, undefined, body);
  return { ok: true, call: callOf(scan, bytes.length, form) };
}

/**
 * The same for a body in pieces; a call has `largeBody`. Counter thread. Beside the pieces it holds one copy of the body, which the
 * call then has, and at most some MB of another kind (chat-scan.ts), whatever stands in the body.
 */
export function readLargeChatBytes(pieces: readonly Uint8Array[]): ChatRequestResult {
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  // A buffer of its own: it may be transferred.
  const memory = Buffer.allocUnsafeSlow(length + SPLICE_BYTES_MAX);
  let filled = 0;
  for (const piece of pieces) {
    memory.set(piece, filled);
    filled += piece.length;
  }
  const bytes = memory.subarray(0, length);
  const bodyIsAscii = isAscii(bytes);
  const scan = scanOf(bytes, bodyIsAscii);
  if (!(scan instanceof ChatScan)) return scan;
  const splice = usageSplice(scan);
  const largeBody = memory.subarray(0, length + growthOf(splice));
  if (splice !== undefined) {
    memory.copyWithin(splice.start + splice.text.length, splice.end, length);
    memory.write(splice.text, splice.start, 'latin1');
  }
  return { ok: true, call: callOf(scan, length, formOf(scan, splice, bodyIsAscii, largeBody)) };
}

function scanOf(bytes: Uint8Array, bodyIsAscii: boolean): ChatScan | ChatRequestResult {
  if (!bodyIsAscii && !isUtf8(bytes)) return INVALID_UTF8;
  try {
    return new ChatScan(bytes, bodyIsAscii);
  } catch (fault) {
    if (!(fault instanceof BodyError)) throw fault;
    return { ok: false, error: { code: 'invalid_parameters', message: fault.message } };
  }
}

function growthOf(splice: Splice | undefined): number {
  return splice === undefined ? 0 : splice.text.length - (splice.end - splice.start);
}

/** Where a body has what may be changed in it. */
type Places = Pick<ChatScan, 'model' | 'maxTokens' | 'maxCompletionTokens' | 'end'>;

/** What goes on, with its places once `splice` is made, which touches none of them. */
function formOf(
  places: Places,
  splice: Splice | undefined,
  bodyIsAscii: boolean,
  largeBody: Uint8Array | undefined,
  body = '',
): BodyForm {
  const model = moved(places.model, splice);
  return {
    body,
    bodyIsAscii,
    largeBody,
    modelStart: model.start,
    modelEnd: model.end,
    maxTokens: moved(places.maxTokens, splice),
    maxCompletionTokens: moved(places.maxCompletionTokens, splice),
    bodyEnd: places.end + growthOf(splice),
  };
}

function moved(span: Span, splice: Splice | undefined): Span {
  if (splice === undefined || splice.start >= span.start) return span;
  const growth = growthOf(splice);
  return { start: span.start + growth, end: span.end + growth };
}

function placesInUnits(
  { bytes, model, maxTokens, maxCompletionTokens, end }: ChatScan,
  text: string,
): Places {
  return {
    model: { start: unitAt(bytes, text, model.start), end: unitAt(bytes, text, model.end) },
    maxTokens: asciiInUnits(bytes, text, maxTokens),
    maxCompletionTokens: asciiInUnits(bytes, text, maxCompletionTokens),
    end: unitAt(bytes, text, end),
  };
}

/** What stands there is ASCII. */
function asciiInUnits(bytes: Buffer, text: string, span: Span): Span {
  if (span.end === 0) return NOWHERE;
  const start = unitAt(bytes, text, span.start);
  return { start, end: start + span.end - span.start };
}

/** What is taken out is `null` or `false` at most. */
function spliceInUnits(bytes: Buffer, text: string, { start, end, text: added }: Splice): Splice {
  const unit = unitAt(bytes, text, start);
  return { start: unit, end: unit + end - start, text: added };
}

/**
 * Text that is not ASCII takes the way over UTF-16, which `transcode` makes with vector instructions: 64 KB of Chinese in 33 µs,
 * against 380 µs by V8's own decoder (of which a TextDecoder makes use too).
 */
function textOf(bytes: Buffer, isAscii: boolean): string {
  return isAscii ? bytes.toString('latin1') : transcode(bytes, 'utf8', 'utf16le').toString('utf16le');
}

/** Where in `text` the character begins that begins at the byte `at`. What is looked for stands near the start or the end, as a rule. */
function unitAt(bytes: Buffer, text: string, at: number): number {
  if (text.length === bytes.length) return at;
  if (at <= bytes.length >> 1) return unitsBetween(bytes, 0, at);
  return text.length - unitsBetween(bytes, at, bytes.length);
}

/** UTF-16 units of a part of valid UTF-8. */
function unitsBetween(bytes: Buffer, start: number, end: number): number {
  let units = 0;
  for (let at = start; at < end; at++) {
    const byte = bytes[at]!;
    // One for each character's first byte, one more for those beyond the basic plane.
    if (byte < 0x80 || byte >= 0xc0) units += byte < 0xf0 ? 1 : 2;
  }
  return units;
}
