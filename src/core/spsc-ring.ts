/**
 * A ring of bytes in shared memory with one writing and one reading thread: records go from one to the other
 * without being serialised. The owner of a ring says what its records hold, and how the reader learns of
 * them. Any thread.
 *
 *     byte 0    int32: how many bytes the reader has given back, modulo 2^32
 *     byte 32   int32: how many bytes the writer has published, modulo 2^32
 *     byte 64   the ring. Records begin at multiples of 8 and are never cut; the end may be a gap
 *
 *     record    int32 kind, above 0; int32 its bytes, a multiple of 8; then what the kind says
 *
 * The writer's stores are plain. What makes them visible comes after them: a message that names the bytes
 * (`takeUnreported`, `read`), or the atomic store of `publish`, which the reader loads (`published`). The
 * reader gives back by an atomic store, and the writer loads it only when it needs room.
 */
import { invariant } from './errors.js';

const GIVEN_BACK = 0;
const PUBLISHED = 8;
const HEAD_BYTES = 64;
const ALIGNMENT_BYTES = 8;
const GAP = 0;

/** Of a record, in bytes. */
const KIND_AT = 0;
const LENGTH_AT = 4;
/** Where the fields of a record begin, behind its kind and length. */
export const FIELDS_AT = 8;

/** Memory of a ring; pages that were never used cost none. `bytes` is a power of two. */
export function createSpscRing(bytes: number): SharedArrayBuffer {
  invariant(
    bytes <= 2 ** 30 && Number.isInteger(Math.log2(bytes)),
    'a ring is a power of two, which divides 2^32',
  );
  return new SharedArrayBuffer(HEAD_BYTES + bytes);
}

/** What both ends see. Offsets count from the start of the memory. */
class SpscRing {
  readonly bytes: Buffer;
  readonly ints: Int32Array;
  readonly floats: Float64Array;
  protected readonly ringBytes: number;

  constructor(shared: SharedArrayBuffer) {
    this.bytes = Buffer.from(shared);
    this.ints = new Int32Array(shared);
    this.floats = new Float64Array(shared);
    this.ringBytes = shared.byteLength - HEAD_BYTES;
  }

  kindAt(at: number): number {
    return this.ints[(at + KIND_AT) >> 2]!;
  }

  protected offsetOf(position: number): number {
    return HEAD_BYTES + (position & (this.ringBytes - 1));
  }
}

export class SpscWriter extends SpscRing {
  #position: number;
  /** As last read. */
  #givenBack: number;
  #unreportedBytes = 0;

  /** Goes on where an earlier writer of the ring last published. */
  constructor(shared: SharedArrayBuffer) {
    super(shared);
    this.#position = Atomics.load(this.ints, PUBLISHED);
    this.#givenBack = Atomics.load(this.ints, GIVEN_BACK);
  }

  /** Where to write a record of `bytes`, counted from its kind; -1 if there is no room. */
  reserve(kind: number, bytes: number): number {
    const length = (bytes + ALIGNMENT_BYTES - 1) & -ALIGNMENT_BYTES;
    const restBytes = this.ringBytes - (this.#position & (this.ringBytes - 1));
    const gapBytes = length > restBytes ? restBytes : 0;
    if (!this.#hasRoom(gapBytes + length)) return -1;
    if (gapBytes > 0) this.#begin(GAP, gapBytes);
    return this.#begin(kind, length);
  }

  /** Bytes that were written since the last call; the reader must be told of them. */
  takeUnreported(): number {
    const bytes = this.#unreportedBytes;
    this.#unreportedBytes = 0;
    return bytes;
  }

  /** Lets a reader that polls see what was written. */
  publish(): void {
    Atomics.store(this.ints, PUBLISHED, this.#position);
  }

  #hasRoom(bytes: number): boolean {
    const usedMax = this.ringBytes - bytes;
    if ((this.#position - this.#givenBack) >>> 0 <= usedMax) return true;
    this.#givenBack = Atomics.load(this.ints, GIVEN_BACK);
    return (this.#position - this.#givenBack) >>> 0 <= usedMax;
  }

  #begin(kind: number, length: number): number {
    const at = this.offsetOf(this.#position);
    this.ints[(at + KIND_AT) >> 2] = kind;
    this.ints[(at + LENGTH_AT) >> 2] = length;
    this.#position = (this.#position + length) | 0;
    this.#unreportedBytes += length;
    return at;
  }
}

export class SpscReader extends SpscRing {
  #position: number;

  /** Goes on where an earlier reader of the ring last gave back. */
  constructor(shared: SharedArrayBuffer) {
    super(shared);
    this.#position = Atomics.load(this.ints, GIVEN_BACK);
  }

  /** Bytes that were published and not read. */
  published(): number {
    return (Atomics.load(this.ints, PUBLISHED) - this.#position) >>> 0;
  }

  /**
   * Calls back with the offset of each record in the next `bytes` of the ring. The writer leaves them alone
   * until `giveBack`.
   */
  read(bytes: number, onRecord: (at: number) => void): void {
    const end = (this.#position + bytes) | 0;
    while (this.#position !== end) {
      const at = this.offsetOf(this.#position);
      const length = this.ints[(at + LENGTH_AT) >> 2]!;
      invariant(
        length > 0 && (end - this.#position) >>> 0 >= length,
        'records fill the bytes that were reported',
      );
      this.#position = (this.#position + length) | 0;
      if (this.kindAt(at) !== GAP) onRecord(at);
    }
  }

  /** The writer may overwrite what has been read. */
  giveBack(): void {
    Atomics.store(this.ints, GIVEN_BACK, this.#position);
  }
}
