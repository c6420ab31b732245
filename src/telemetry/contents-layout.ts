/**
 * Contents of calls on their way to the disk, if `call_log.contents` keeps any: a listener gathers the body
 * of a request and the text of its response (request/call-contents.ts), the main thread writes them
 * (call-log/contents-writer.ts). Here are the bytes of one call, the same in messages and in files, and the
 * words that bound their memory. Any thread.
 *
 * Must hold: the table stays, since files of former versions are read. Test: unit/call-log/contents-writer.
 *
 *     byte  bits  field
 *        0    32  bytes of all of it
 *        4    32  bytes of the request id
 *        8    64  endedMs, wall clock (float)
 *       16    32  bytes of the request that are here; of all that there were
 *       24    32  the same of the response
 *       32        the request id, the request, the response
 */
import { asWallMs, type WallMs } from '../core/units.js';

export const CONTENTS_HEAD_BYTES = 32;
const COUNT_MAX = 2 ** 32 - 1;
/** Words: see ContentsBudget. */
const HELD = 0;
const DROPPED = 1;
const WORDS = 2;
/** Of one listener: 250 calls of the longest texts by default, or 16,000 of 2 KB. */
const CONTENTS_HELD_BYTES_MAX = 32 * 1024 * 1024;

/** Which calls leave their contents: none, those that did not go well, or all. */
export type ContentsMode = 'none' | 'errors' | 'all';

/** A text that may be cut at the bound of `call_log.contents_body_bytes`. */
export interface ClippedText {
  readonly bytes: Uint8Array;
  /** Of the whole text. */
  readonly bytesInAll: number;
}

export interface CallContents {
  readonly requestId: string;
  readonly endedMs: WallMs;
  readonly request: ClippedText;
  readonly response: ClippedText;
}

export function packContents({ requestId, endedMs, request, response }: CallContents): Buffer {
  const id = Buffer.from(requestId);
  const bytes = CONTENTS_HEAD_BYTES + id.length + request.bytes.length + response.bytes.length;
  const packed = Buffer.allocUnsafeSlow(bytes);
  packed.writeUInt32LE(bytes, 0);
  packed.writeUInt32LE(id.length, 4);
  packed.writeDoubleLE(endedMs, 8);
  packed.writeUInt32LE(request.bytes.length, 16);
  packed.writeUInt32LE(Math.min(request.bytesInAll, COUNT_MAX), 20);
  packed.writeUInt32LE(response.bytes.length, 24);
  packed.writeUInt32LE(Math.min(response.bytesInAll, COUNT_MAX), 28);
  packed.set(id, CONTENTS_HEAD_BYTES);
  packed.set(request.bytes, CONTENTS_HEAD_BYTES + id.length);
  packed.set(response.bytes, bytes - response.bytes.length);
  return packed;
}

/** Returns how many bytes the contents at `at` have, or undefined if they are not whole. */
export function contentsBytesAt(data: Buffer, at: number): number | undefined {
  if (at + CONTENTS_HEAD_BYTES > data.length) return undefined;
  const bytes = data.readUInt32LE(at);
  const parts = data.readUInt32LE(at + 4) + data.readUInt32LE(at + 16) + data.readUInt32LE(at + 24);
  return bytes === CONTENTS_HEAD_BYTES + parts && at + bytes <= data.length ? bytes : undefined;
}

/** Of contents that are whole. */
export function requestIdAt(data: Buffer, at: number): string {
  const from = at + CONTENTS_HEAD_BYTES;
  return data.toString('utf8', from, from + data.readUInt32LE(at + 4));
}

/** Where the request begins, where the response does, and where that ends. Of contents that are whole. */
export function textBoundsAt(data: Buffer, at: number): [requestAt: number, responseAt: number, end: number] {
  const requestAt = at + CONTENTS_HEAD_BYTES + data.readUInt32LE(at + 4);
  const responseAt = requestAt + data.readUInt32LE(at + 16);
  return [requestAt, responseAt, responseAt + data.readUInt32LE(at + 24)];
}

/** Of contents that are whole. */
export function contentsAt(data: Buffer, at: number): CallContents {
  const [requestAt, responseAt, end] = textBoundsAt(data, at);
  return {
    requestId: requestIdAt(data, at),
    endedMs: asWallMs(data.readDoubleLE(at + 8)),
    request: { bytes: data.subarray(requestAt, responseAt), bytesInAll: data.readUInt32LE(at + 20) },
    response: {
      bytes: data.subarray(responseAt, end),
      bytesInAll: data.readUInt32LE(at + 28),
    },
  };
}

/** Hand it to the listener in its `workerData`. */
export type ContentsBudgetBuffer = SharedArrayBuffer;

export function createContentsBudget(): ContentsBudgetBuffer {
  return new SharedArrayBuffer(WORDS * Int32Array.BYTES_PER_ELEMENT);
}

/**
 * The words about the contents of one listener's calls.
 *
 *     word 0  held     bytes in memory; the listener adds, the main thread subtracts what it has taken
 *     word 1  dropped  calls whose contents were not kept because too much was held, modulo 2^32
 */
export class ContentsBudget {
  readonly #words: Int32Array;

  constructor(buffer: ContentsBudgetBuffer) {
    this.#words = new Int32Array(buffer);
  }

  take(bytes: number): boolean {
    if (Atomics.add(this.#words, HELD, bytes) + bytes <= CONTENTS_HELD_BYTES_MAX) return true;
    this.giveBack(bytes);
    return false;
  }

  giveBack(bytes: number): void {
    Atomics.sub(this.#words, HELD, bytes);
  }

  /** The listener has died, and all that it sent was taken. */
  giveBackAll(): void {
    Atomics.store(this.#words, HELD, 0);
  }

  countDropped(): void {
    Atomics.add(this.#words, DROPPED, 1);
  }

  get dropped(): number {
    return Atomics.load(this.#words, DROPPED) >>> 0;
  }
}
