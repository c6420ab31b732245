/**
 * The layout of a call's contents, the same in messages between threads and in files. A listener packs
 * contents (request/call-contents.ts) if `call_log.contents` keeps any; the main thread writes them to files,
 * and reads them there (call-log/contents-writer.ts). Any thread.
 *
 * Must hold:
 * - The positions below stay, because files of earlier versions are read.
 * - The first field is 32 plus the bytes of the three texts. A reader rejects other contents as cut off
 *   (test/unit/call-log/contents-writer.test.ts).
 */
import { asWallMs, type WallMs } from '../core/units.js';

// Where the fields begin, in bytes. All have 32 bits but ENDED_MS_AT, and all are little-endian.
const ALL_BYTES_AT = 0; // with this head
const ID_BYTES_AT = 4; // of the request id
const ENDED_MS_AT = 8; // wall clock (64-bit float)
const REQUEST_BYTES_AT = 16; // of the request, as far as it is kept
const REQUEST_FULL_BYTES_AT = 20; // that the request had before it was cut
const RESPONSE_BYTES_AT = 24;
const RESPONSE_FULL_BYTES_AT = 28;
export const CONTENTS_HEAD_BYTES = 32; // here begin the request id, the request and the response
/** The greatest number of a 32-bit field. */
const WORD_MAX = 2 ** 32 - 1;

/** Which calls have their contents kept: none, those that failed, or all. */
export type ContentsMode = 'none' | 'errors' | 'all';

/** A text that may be cut at the bound of `call_log.contents_body_bytes`. */
export interface ClippedText {
  readonly bytes: Uint8Array;
  /** How long the whole text was. */
  readonly bytesInAll: number;
}

/** The contents of one call. `request` and `response` may be empty, but not absent. */
export interface CallContents {
  readonly requestId: string;
  readonly endedMs: WallMs;
  readonly request: ClippedText;
  readonly response: ClippedText;
}

/** Returns these bytes, in memory of their own, so that they may be transferred. */
export function packContents({ requestId, endedMs, request, response }: CallContents): Buffer {
  const id = Buffer.from(requestId);
  const bytes = CONTENTS_HEAD_BYTES + id.length + request.bytes.length + response.bytes.length;
  const packed = Buffer.allocUnsafeSlow(bytes);
  packed.writeUInt32LE(bytes, ALL_BYTES_AT);
  packed.writeUInt32LE(id.length, ID_BYTES_AT);
  packed.writeDoubleLE(endedMs, ENDED_MS_AT);
  packed.writeUInt32LE(request.bytes.length, REQUEST_BYTES_AT);
  packed.writeUInt32LE(Math.min(request.bytesInAll, WORD_MAX), REQUEST_FULL_BYTES_AT);
  packed.writeUInt32LE(response.bytes.length, RESPONSE_BYTES_AT);
  packed.writeUInt32LE(Math.min(response.bytesInAll, WORD_MAX), RESPONSE_FULL_BYTES_AT);
  packed.set(id, CONTENTS_HEAD_BYTES);
  packed.set(request.bytes, CONTENTS_HEAD_BYTES + id.length);
  packed.set(response.bytes, bytes - response.bytes.length);
  return packed;
}

/** Returns how many bytes the contents at `at` have; undefined if they are not whole. */
export function contentsBytesAt(data: Buffer, at: number): number | undefined {
  if (at + CONTENTS_HEAD_BYTES > data.length) return undefined;
  const bytes = data.readUInt32LE(at + ALL_BYTES_AT);
  const [, , end] = textBoundsAt(data, at);
  return at + bytes === end && end <= data.length ? bytes : undefined;
}

/** Returns the request id. Call it and the next two functions only for whole contents (`contentsBytesAt`). */
export function requestIdAt(data: Buffer, at: number): string {
  const start = at + CONTENTS_HEAD_BYTES;
  return data.toString('utf8', start, start + data.readUInt32LE(at + ID_BYTES_AT));
}

/** Returns the positions at which the request begins, the response begins, and the response ends. */
export function textBoundsAt(data: Buffer, at: number): [requestAt: number, responseAt: number, end: number] {
  const requestAt = at + CONTENTS_HEAD_BYTES + data.readUInt32LE(at + ID_BYTES_AT);
  const responseAt = requestAt + data.readUInt32LE(at + REQUEST_BYTES_AT);
  return [requestAt, responseAt, responseAt + data.readUInt32LE(at + RESPONSE_BYTES_AT)];
}

/** Returns the contents at `at`. The texts are views of `data`, not copies. */
export function contentsAt(data: Buffer, at: number): CallContents {
  const [requestAt, responseAt, end] = textBoundsAt(data, at);
  return {
    requestId: requestIdAt(data, at),
    endedMs: asWallMs(data.readDoubleLE(at + ENDED_MS_AT)),
    request: {
      bytes: data.subarray(requestAt, responseAt),
      bytesInAll: data.readUInt32LE(at + REQUEST_FULL_BYTES_AT),
    },
    response: {
      bytes: data.subarray(responseAt, end),
      bytesInAll: data.readUInt32LE(at + RESPONSE_FULL_BYTES_AT),
    },
  };
}
