/**
 * A single-producer, single-consumer (SPSC) ring of bytes in shared memory: one thread writes records that
 * another reads, without serialising them. The channels between listeners and workers are made of rings
 * (channel/frame-port.ts, frame-codec.ts), and so is the call ring (telemetry/call-ring-layout.ts). These
 * files define what the records hold, and how the reader learns of them.
 *
 *     byte 0    int32: how many bytes the reader has given back, modulo 2^32
 *     byte 32   int32: how many bytes the writer has published, modulo 2^32
 *     byte 64   the ring. Records begin at multiples of 8 and are never cut: if one does not fit before the
 *               end of the memory, a record of kind GAP fills the rest
 *
 *     record    int32 kind, above 0; int32 length in bytes, a multiple of 8; then the fields of the kind
 *
 * The writer's stores are plain. What follows them makes them visible to the reader: a message with the
 * number of bytes (`takeUnannounced`, `read`), or the atomic store of `publish`, which the reader loads
 * (`published`). The reader gives bytes back by an atomic store, which the writer loads when it needs space.
 *
 * Must hold: one thread writes and one reads; the length of the ring is a power of two, so that counts may
 * wrap at 2^32; and a record is whole before `publish` or the message announces it. Only a ring whose writers
 * use `publish` has a second writer or reader: in another, nothing says where they would continue. Users
 * bound their records to half of the ring: a longer one, with the gap before it, may not fit an empty ring
 * either, and `reserve` then returns -1 until other records have moved the position.
 */
import { invariant } from './errors.js';

/** Indices of the two counts as int32. They are 32 bytes apart. */
const GIVEN_BACK = 0;
const PUBLISHED = 8;
/** Where the ring begins. */
const HEAD_BYTES = 64;
/** Of records, so that they may have float64 fields. */
const ALIGNMENT_BYTES = 8;
/** The kind of a record that only fills the end of the memory. The kinds of users are above it. */
const GAP = 0;

/** Offsets in a record, in bytes. */
const KIND_AT = 0;
const LENGTH_AT = 4;
/** Offset of the first field of a record, after its kind and length. */
export const FIELDS_AT = 8;

/** Returns the memory of a ring of `bytes`, a power of two from 8 on. Pages not written to take no memory. */
export function createSpscRing(bytes: number): SharedArrayBuffer {
  invariant(
    bytes >= ALIGNMENT_BYTES && bytes <= 2 ** 30 && Number.isInteger(Math.log2(bytes)),
    'a ring is a power of two from 8 on, which divides 2^32',
  );
  return new SharedArrayBuffer(HEAD_BYTES + bytes);
}

/** Views of the memory, for both ends. Offsets count in bytes from the start of the memory. */
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

  /** The kind of the record at the offset `recordAt`. */
  kindAt(recordAt: number): number {
    return this.ints[(recordAt + KIND_AT) >> 2]!;
  }

  /** `position`: a count of bytes since the ring was made, modulo 2^32. */
  protected offsetOf(position: number): number {
    return HEAD_BYTES + (position & (this.ringBytes - 1));
  }
}

export class SpscWriter extends SpscRing {
  /** Position of the next record. */
  #position: number;
  /** GIVEN_BACK as it was last loaded, without what the reader has given back since. */
  #givenBack: number;
  #unannouncedBytes = 0;

  /** Continues where an earlier writer of the ring last published. Throws if that writer did not publish. */
  constructor(shared: SharedArrayBuffer) {
    super(shared);
    this.#position = Atomics.load(this.ints, PUBLISHED);
    this.#givenBack = Atomics.load(this.ints, GIVEN_BACK);
    // More was given back than published: the earlier writer used `takeUnannounced`.
    invariant(
      (this.#position - this.#givenBack) >>> 0 <= this.ringBytes,
      'only a ring that is announced by `publish` gets a second writer',
    );
  }

  /**
   * Begins a record of `bytes`, its kind and length included. Returns its offset, or -1 if the ring has no
   * space: then nothing is written. The caller writes all fields of the record, and then announces it by
   * `takeUnannounced` or `publish`: a ring uses one of the two.
   */
  reserve(kind: number, bytes: number): number {
    const length = (bytes + ALIGNMENT_BYTES - 1) & -ALIGNMENT_BYTES;
    const bytesToEnd = this.ringBytes - (this.#position & (this.ringBytes - 1));
    const gapBytes = length > bytesToEnd ? bytesToEnd : 0;
    if (!this.#hasSpace(gapBytes + length)) return -1;
    if (gapBytes > 0) this.#begin(GAP, gapBytes);
    return this.#begin(kind, length);
  }

  /** How many bytes were written since the last call. The reader must be sent the number, for `read`. */
  takeUnannounced(): number {
    const bytes = this.#unannouncedBytes;
    this.#unannouncedBytes = 0;
    return bytes;
  }

  /** Announces all records so far to a reader that polls `published`. */
  publish(): void {
    Atomics.store(this.ints, PUBLISHED, this.#position);
  }

  #hasSpace(bytes: number): boolean {
    // The shared word is loaded only if the last load left too little space.
    const usedMax = this.ringBytes - bytes;
    if ((this.#position - this.#givenBack) >>> 0 <= usedMax) return true;
    this.#givenBack = Atomics.load(this.ints, GIVEN_BACK);
    return (this.#position - this.#givenBack) >>> 0 <= usedMax;
  }

  #begin(kind: number, length: number): number {
    const recordAt = this.offsetOf(this.#position);
    this.ints[(recordAt + KIND_AT) >> 2] = kind;
    this.ints[(recordAt + LENGTH_AT) >> 2] = length;
    this.#position = (this.#position + length) | 0;
    this.#unannouncedBytes += length;
    return recordAt;
  }
}

export class SpscReader extends SpscRing {
  /** Position up to which records were read. */
  #position: number;

  /** Continues where an earlier reader of the ring last gave back. */
  constructor(shared: SharedArrayBuffer) {
    super(shared);
    this.#position = Atomics.load(this.ints, GIVEN_BACK);
  }

  /** Bytes that `publish` has announced and that were not yet read. */
  published(): number {
    return (Atomics.load(this.ints, PUBLISHED) - this.#position) >>> 0;
  }

  /**
   * Calls `onRecord` with the offset of each record in the next `bytes` of the ring, which the writer must
   * have announced. The writer does not overwrite these records until `giveBack`. If `onRecord` throws, its
   * record counts as read: `published` then counts the records after it, but of bytes that a message has
   * announced they are lost, and the ring must not be read again.
   */
  read(bytes: number, onRecord: (recordAt: number) => void): void {
    const endPosition = (this.#position + bytes) | 0;
    while (this.#position !== endPosition) {
      const recordAt = this.offsetOf(this.#position);
      const length = this.ints[(recordAt + LENGTH_AT) >> 2]!;
      invariant(
        length > 0 && (endPosition - this.#position) >>> 0 >= length,
        'records fill the bytes that were announced',
      );
      this.#position = (this.#position + length) | 0;
      if (this.kindAt(recordAt) !== GAP) onRecord(recordAt);
    }
  }

  /** Lets the writer overwrite all records that were read. Do not use views of their bytes afterwards. */
  giveBack(): void {
    Atomics.store(this.ints, GIVEN_BACK, this.#position);
  }
}
