/**
 * A decoder of Amazon's event streams, whose frames are called messages. A FrameReader cuts the bytes into
 * messages and checks their CRCs; `eventOf` reads the payload of one. bedrock.ts (InvokeModel) and stream.ts
 * (ConverseStream) have a FrameReader for each stream; at its end they check `isBetweenMessages`. Upstream
 * worker.
 *
 *     | length of all, 4 bytes | length of headers, 4 | CRC of both, 4 | headers | payload | CRC of all, 4 |
 *
 * The first 12 bytes are the _prelude_. A header is the length of its name in 1 byte, its name, a type in 1
 * byte, and a value. Numbers are big-endian, checksums CRC-32 of the bytes before. Follows "Event stream
 * encoding" of Amazon Transcribe's guide and smithy.io, "Amazon Event Stream Specification", 2026-11.
 *
 * A message that is whole in a chunk is read in place; one that is cut over chunks is copied together. A
 * message has at most SSE_EVENT_BYTES_MAX bytes.
 *
 * Must hold: the result does not depend on how the bytes are cut into chunks, and a wrong CRC or length
 * throws (test/unit/providers/bedrock/frames.test.ts).
 */
import { crc32 } from 'node:zlib';
import { asBuffer } from '../../core/bytes.js';
import { isRecord, membersOf, parsedJson } from '../../core/json.js';
import { SSE_EVENT_BYTES_MAX } from '../../core/limits.js';
import { ProviderError } from '../provider.js';
import { failureOf } from './errors.js';

/** The two lengths and their CRC; the length of all is at 0. */
const PRELUDE_BYTES = 12;
const HEADERS_LENGTH_AT = 4;
const PRELUDE_CRC_AT = 8;
const CRC_BYTES = 4;
const NO_BYTES = Buffer.alloc(0);

/**
 * Bytes of a header's value, by type from 0 to 9: true, false, byte, short, integer, long, BYTES, STRING,
 * timestamp, UUID. Values of BYTES and STRING have their length before them, in 2 bytes.
 */
const VALUE_BYTES = [0, 0, 1, 2, 4, 8, 0, 0, 8, 16];
const BYTES = 6;
const STRING = 7;
/** More bytes go to zlib's crc32. For fewer a call of native code costs more than `crcOf`'s loop. */
const NATIVE_BYTES_MIN = 512;
/**
 * Eight tables of CRC-32 (reflected polynomial 0xedb88320), one after another: table n has, by byte, the
 * checksum of that byte with n zeros after it. So eight bytes take one step. A usual message of 170 bytes
 * takes 0.17 µs, and would take 0.43 µs byte by byte.
 */
const CRC_TABLES = new Int32Array(8 * 256);
for (let byte = 0; byte < 256; byte++) {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  CRC_TABLES[byte] = crc;
}
for (let position = 256; position < CRC_TABLES.length; position++) {
  const crcBefore = CRC_TABLES[position - 256]!;
  CRC_TABLES[position] = (crcBefore >>> 8) ^ CRC_TABLES[crcBefore & 0xff]!;
}

/** The headers of a message whose values are strings, by name. */
export type Headers = ReadonlyMap<string, string>;
/** The payload is `bytes[start..end)`. It is valid only during the visit: `bytes` may be the chunk. */
type VisitMessage = (headers: Headers, bytes: Buffer, start: number, end: number) => void;

export class FrameReader {
  readonly #visit: VisitMessage;
  /** The start of a message whose end has not come: `#pending[0..#pendingBytes)`. */
  #pending = NO_BYTES;
  #pendingBytes = 0;
  /** Headers of the last message, and their strings: nearly all messages of a stream have the same. */
  #lastHeaders = NO_BYTES;
  #lastValues: Headers = new Map();

  constructor(visit: VisitMessage) {
    this.#visit = visit;
  }

  /** False while the start of a message waits for its end. */
  get isBetweenMessages(): boolean {
    return this.#pendingBytes === 0;
  }

  /**
   * Calls `visit` for each message that `chunk` completes, in order. Throws a ProviderError, or what `visit`
   * throws; afterwards the reader must not be used. The reader keeps no reference to `chunk`.
   */
  push(chunk: Uint8Array): void {
    const bytes = asBuffer(chunk);
    let position = this.#pendingBytes === 0 ? 0 : this.#finishPending(bytes);
    // If the message is still pending, it has taken all bytes.
    while (bytes.length - position >= PRELUDE_BYTES) {
      const end = position + checkedLengthAt(bytes, position);
      if (end > bytes.length) break;
      this.#readMessage(bytes, position, end);
      position = end;
    }
    if (position < bytes.length) this.#append(bytes, position, bytes.length);
  }

  /** Completes the pending message from `bytes`, as far as they go. Returns how many bytes it took. */
  #finishPending(bytes: Buffer): number {
    let position = 0;
    for (;;) {
      const hasPrelude = this.#pendingBytes >= PRELUDE_BYTES;
      const neededBytes = hasPrelude ? checkedLengthAt(this.#pending, 0) : PRELUDE_BYTES;
      const end = Math.min(bytes.length, position + neededBytes - this.#pendingBytes);
      this.#append(bytes, position, end, neededBytes);
      position = end;
      if (this.#pendingBytes < neededBytes) return position;
      if (!hasPrelude) continue;
      const message = this.#pending;
      this.#pending = NO_BYTES;
      this.#pendingBytes = 0;
      this.#readMessage(message, 0, neededBytes);
      return position;
    }
  }

  /** Appends `bytes[start..end)` to the pending message, which will have `neededBytes`, as far as known. */
  #append(bytes: Buffer, start: number, end: number, neededBytes = end - start): void {
    if (this.#pending.length < neededBytes) {
      const grown = Buffer.allocUnsafe(Math.max(neededBytes, PRELUDE_BYTES));
      this.#pending.copy(grown, 0, 0, this.#pendingBytes);
      this.#pending = grown;
    }
    this.#pendingBytes += bytes.copy(this.#pending, this.#pendingBytes, start, end);
  }

  /** Reads the message `bytes[start..end)`, whose prelude `checkedLengthAt` has checked. */
  #readMessage(bytes: Buffer, start: number, end: number): void {
    const crcStart = end - CRC_BYTES;
    if (crcOf(bytes, start, crcStart) !== bytes.readUInt32BE(crcStart)) {
      throw ProviderError.invalid('the checksum of a message is wrong');
    }
    const headersStart = start + PRELUDE_BYTES;
    const headersEnd = headersStart + bytes.readUInt32BE(start + HEADERS_LENGTH_AT);
    if (!isEqualRange(this.#lastHeaders, bytes, headersStart, headersEnd)) {
      const headers = Buffer.from(bytes.subarray(headersStart, headersEnd));
      // `stringsOf` may throw. Set in this order, the two fields always belong together.
      this.#lastValues = stringsOf(headers);
      this.#lastHeaders = headers;
    }
    this.#visit(this.#lastValues, bytes, headersEnd, crcStart);
  }
}

/** The parsed payload of an event. Throws a ProviderError for a message that is an error, or no event. */
export function eventOf(headers: Headers, payload: string): Record<string, unknown> {
  const type = headers.get(':message-type');
  if (type === 'error')
    throw new ProviderError(failureOf(headers.get(':error-code') ?? '', headers.get(':error-message') ?? ''));
  // Undefined if the payload is no JSON: an exception then has no text, and an event is rejected below.
  const body = parsedJson(payload);
  if (type === 'exception') {
    const { message } = membersOf(body);
    const text = typeof message === 'string' ? message : '';
    throw new ProviderError(failureOf(headers.get(':exception-type') ?? '', text));
  }
  if (type !== 'event' || !isRecord(body)) throw ProviderError.invalid('a message is no event');
  return body;
}

/** Length of the message at `position` in bytes; its prelude must be in `bytes`. Checks the prelude's CRC. */
function checkedLengthAt(bytes: Buffer, position: number): number {
  const length = bytes.readUInt32BE(position);
  const crcStart = position + PRELUDE_CRC_AT;
  if (crcOf(bytes, position, crcStart) !== bytes.readUInt32BE(crcStart)) {
    throw ProviderError.invalid('the checksum of a prelude is wrong, or it is no event stream');
  }
  if (length > SSE_EVENT_BYTES_MAX) throw ProviderError.invalid('a message is too long');
  if (length < PRELUDE_BYTES + bytes.readUInt32BE(position + HEADERS_LENGTH_AT) + CRC_BYTES) {
    throw ProviderError.invalid('a message is shorter than its headers');
  }
  return length;
}

/** Eight bytes a step, then the last ones byte by byte. */
function crcOf(bytes: Buffer, start: number, end: number): number {
  if (end - start > NATIVE_BYTES_MIN) return crc32(bytes.subarray(start, end));
  const tables = CRC_TABLES;
  let crc = -1;
  let position = start;
  for (; position + 8 <= end; position += 8) {
    crc ^=
      bytes[position]! |
      (bytes[position + 1]! << 8) |
      (bytes[position + 2]! << 16) |
      (bytes[position + 3]! << 24);
    crc =
      tables[0x700 | (crc & 0xff)]! ^
      tables[0x600 | ((crc >>> 8) & 0xff)]! ^
      tables[0x500 | ((crc >>> 16) & 0xff)]! ^
      tables[0x400 | (crc >>> 24)]! ^
      tables[0x300 | bytes[position + 4]!]! ^
      tables[0x200 | bytes[position + 5]!]! ^
      tables[0x100 | bytes[position + 6]!]! ^
      tables[bytes[position + 7]!]!;
  }
  for (; position < end; position++) crc = (crc >>> 8) ^ tables[(crc ^ bytes[position]!) & 0xff]!;
  return ~crc >>> 0;
}

function isEqualRange(expected: Buffer, bytes: Buffer, start: number, end: number): boolean {
  if (expected.length !== end - start) return false;
  for (let index = 0; index < expected.length; index++) {
    if (expected[index] !== bytes[start + index]) return false;
  }
  return true;
}

/** The headers whose values are strings, by name. Headers of other types are checked and skipped. */
function stringsOf(headers: Buffer): Headers {
  const values = new Map<string, string>();
  let position = 0;
  while (position < headers.length) {
    const typePosition = position + 1 + headers[position]!;
    // Beyond the end a type that does not exist, which is rejected below.
    const type = headers[typePosition] ?? VALUE_BYTES.length;
    let valueStart = typePosition + 1;
    let valueBytes = VALUE_BYTES[type];
    if (type === STRING || type === BYTES) {
      if (valueStart + 2 > headers.length) throw ProviderError.invalid('a header is cut');
      valueBytes = headers.readUInt16BE(valueStart);
      valueStart += 2;
    }
    if (valueBytes === undefined || valueStart + valueBytes > headers.length) {
      throw ProviderError.invalid('a header is cut or of an unknown type');
    }
    if (type === STRING) {
      values.set(
        headers.toString('latin1', position + 1, typePosition),
        headers.toString('utf8', valueStart, valueStart + valueBytes),
      );
    }
    position = valueStart + valueBytes;
  }
  return values;
}
