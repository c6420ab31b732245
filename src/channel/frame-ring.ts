/**
 * Memory that one thread writes and another reads, in turn: what frames carry goes through it without being serialised. A record is
 * read when a message on the port says that it is there, so the port keeps the order and wakes the reader.
 *
 *     byte 0    int32: how many bytes the reader has given back, modulo 2^32
 *     byte 64   the ring. Records begin at multiples of 8 and are never cut; behind the last that fits there is a gap
 *
 *     record    int32 kind, of FRAME_ or GAP; int32 its bytes, a multiple of 8; then what the kind says
 *
 * The writer's stores are plain: `postMessage` comes after them, and the reader's loads after the message. The reader gives back by an
 * atomic store, which the writer reads when it needs room. Either end dies with its thread, and a new thread gets a new ring.
 */
import { invariant } from '../core/errors.js';

const HEAD_BYTES = 64;
/** What one direction of a link touches in the end. Twenty bodies of 12 KB; who finds it full posts its frames. */
const RING_BYTES = 256 * 1024;
/** A longer record is not worth the room: bytes of that length are handed over as cheaply. */
export const RECORD_BYTES_MAX = 32 * 1024;
const ALIGNMENT_BYTES = 8;
const GAP = 0;

/** Of a record, in bytes. */
export const KIND_AT = 0;
const LENGTH_AT = 4;

/** One ring; memory that was never used costs none. */
export function createFrameRing(): SharedArrayBuffer {
  return new SharedArrayBuffer(HEAD_BYTES + RING_BYTES);
}

/** What both ends see. Offsets count from the start of the memory. */
class RingMemory {
  readonly shared: SharedArrayBuffer;
  readonly bytes: Buffer;
  readonly ints: Int32Array;
  readonly floats: Float64Array;

  constructor(shared: SharedArrayBuffer) {
    this.shared = shared;
    this.bytes = Buffer.from(shared);
    this.ints = new Int32Array(shared);
    this.floats = new Float64Array(shared);
  }
}

/** Modulo 2^32, of which the ring is a part. */
function offsetOf(position: number): number {
  return HEAD_BYTES + (position & (RING_BYTES - 1));
}

export class FrameRingWriter extends RingMemory {
  #position = 0;
  /** As last read. */
  #givenBack = 0;
  #unreportedBytes = 0;

  /** Where a record of that kind with so many bytes, its first 8 among them, is to be written; -1 where there is no room. */
  reserve(kind: number, bytes: number): number {
    if (bytes > RECORD_BYTES_MAX) return -1;
    const length = (bytes + ALIGNMENT_BYTES - 1) & -ALIGNMENT_BYTES;
    const restBytes = RING_BYTES - (this.#position & (RING_BYTES - 1));
    const gapBytes = length > restBytes ? restBytes : 0;
    if (!this.#hasRoom(gapBytes + length)) return -1;
    if (gapBytes > 0) this.#begin(GAP, gapBytes);
    return this.#begin(kind, length);
  }

  /** How many bytes of records have been written since this was last asked: the reader is to be told. */
  takeUnreported(): number {
    const bytes = this.#unreportedBytes;
    this.#unreportedBytes = 0;
    return bytes;
  }

  #hasRoom(bytes: number): boolean {
    const usedMax = RING_BYTES - bytes;
    if ((this.#position - this.#givenBack) >>> 0 <= usedMax) return true;
    this.#givenBack = Atomics.load(this.ints, 0);
    return (this.#position - this.#givenBack) >>> 0 <= usedMax;
  }

  #begin(kind: number, length: number): number {
    const at = offsetOf(this.#position);
    this.ints[(at + KIND_AT) >> 2] = kind;
    this.ints[(at + LENGTH_AT) >> 2] = length;
    this.#position = (this.#position + length) | 0;
    this.#unreportedBytes += length;
    return at;
  }
}

export class FrameRingReader extends RingMemory {
  #position = 0;

  /** Calls back with the place of each record among the next `bytes` of the ring. They stay as they are until `giveBack`. */
  read(bytes: number, onRecord: (at: number) => void): void {
    const end = (this.#position + bytes) | 0;
    while (this.#position !== end) {
      const at = offsetOf(this.#position);
      const length = this.ints[(at + LENGTH_AT) >> 2]!;
      invariant(length > 0 && (end - this.#position) >>> 0 >= length, 'the records fill what was told of');
      this.#position = (this.#position + length) | 0;
      if (this.ints[(at + KIND_AT) >> 2] !== GAP) onRecord(at);
    }
  }

  /** What has been read may be written over. */
  giveBack(): void {
    Atomics.store(this.ints, 0, this.#position);
  }
}
