/**
 * The layout of a call's contents, the same in messages between threads and in files, and the memory budget
 * for contents that are not written yet. A listener packs contents (request/call-contents.ts) if
 * `call_log.contents` keeps any; the main thread writes them to files, and reads them there
 * (call-log/contents-writer.ts). Any thread.
 *
 * Must hold:
 * - The table stays, because files of earlier versions are read.
 * - `bytes in all` is 32 plus the bytes of the three texts. A reader rejects other contents as cut off
 *   (test/unit/call-log/contents-writer.test.ts).
 * - What is taken of a budget is given back once, else a listener keeps no contents any more, or without
 *   bound (test/unit/telemetry/contents-layout.test.ts; of calls: test/unit/request/call-contents.test.ts).
 *
 *     byte  bits  field
 *        0    32  bytes in all
 *        4    32  bytes of the request id
 *        8    64  endedMs, wall clock (float)
 *       16    32  bytes of the request that are kept
 *       20    32  bytes that the request had before it was cut
 *       24    32  bytes of the response that are kept
 *       28    32  bytes that the response had before it was cut
 *       32        the request id, the request, the response
 *
 * Numbers are little-endian.
 */
import { asWallMs, type WallMs } from '../core/units.js';

const ID_BYTES_AT = 4;
const ENDED_MS_AT = 8;
const REQUEST_BYTES_AT = 16;
const REQUEST_FULL_BYTES_AT = 20;
const RESPONSE_BYTES_AT = 24;
const RESPONSE_FULL_BYTES_AT = 28;
export const CONTENTS_HEAD_BYTES = 32;
/** The greatest number of a 32-bit field. */
const WORD_MAX = 2 ** 32 - 1;
/** Words of ContentsBudget. */
const TAKEN = 0;
const DROPPED = 1;
const WORDS = 2;
/** The budget of one listener: 250 calls of the longest texts by default, or 16,000 of 2 KB. */
const BUDGET_BYTES = 32 * 1024 * 1024;

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

/** Returns the bytes of the table above, in memory of their own, so that they may be transferred. */
export function packContents({ requestId, endedMs, request, response }: CallContents): Buffer {
  const id = Buffer.from(requestId);
  const bytes = CONTENTS_HEAD_BYTES + id.length + request.bytes.length + response.bytes.length;
  const packed = Buffer.allocUnsafeSlow(bytes);
  packed.writeUInt32LE(bytes, 0);
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
  const bytes = data.readUInt32LE(at);
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

/** gateway/gateway-start.ts creates a budget for each listener, which gets it in its `workerData`. */
export type ContentsBudgetBuffer = SharedArrayBuffer;

export function createContentsBudget(): ContentsBudgetBuffer {
  return new SharedArrayBuffer(WORDS * Int32Array.BYTES_PER_ELEMENT);
}

/**
 * The memory budget for contents of one listener's calls.
 *
 *     word 0  taken    bytes in memory; the listener adds, and gives back what it drops; the main thread
 *                      gives back what it has appended (gateway/gateway-logs.ts)
 *     word 1  dropped  calls whose contents were not kept because the budget was used up, modulo 2^32
 */
export class ContentsBudget {
  readonly #words: Int32Array;

  constructor(buffer: ContentsBudgetBuffer) {
    this.#words = new Int32Array(buffer);
  }

  /**
   * Takes `bytes` and returns true, or returns false if the budget has fewer left. Then nothing is taken, and
   * the listener counts the call by `countDropped`.
   */
  take(bytes: number): boolean {
    if (Atomics.add(this.#words, TAKEN, bytes) + bytes <= BUDGET_BYTES) return true;
    this.giveBack(bytes);
    return false;
  }

  /** To be called once for the bytes of each `take` that returned true. */
  giveBack(bytes: number): void {
    Atomics.sub(this.#words, TAKEN, bytes);
  }

  /**
   * gateway-logs.ts calls it when the listener has ended and its messages were read, before its successor
   * takes of the budget.
   */
  giveBackAll(): void {
    Atomics.store(this.#words, TAKEN, 0);
  }

  countDropped(): void {
    Atomics.add(this.#words, DROPPED, 1);
  }

  get dropped(): number {
    return Atomics.load(this.#words, DROPPED) >>> 0;
  }
}
