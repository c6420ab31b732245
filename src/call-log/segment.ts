/**
 * A segment for readers, also while its writer appends: its summary, its index, and the blocks of an extent.
 * call-reader.ts creates one for each file, on a main thread or in a command, and awaits `begin` before each
 * search.
 *
 * All reads are asynchronous, except those of `blocksAt`. One read brings at most one of these: the summary,
 * the whole index, the extents that the caller asks for, or CHUNK_BYTES of a segment that has no index. Files
 * are opened synchronously, which takes some 5 µs, where the thread pool takes 50.
 *
 * Must hold: every whole block is found. Only blocks that a crash has cut or that are damaged are left out
 * (test/unit/call-log/call-log.test.ts). A file may have any length and any bytes: what is too short or
 * damaged counts as if it were not there.
 */
import { closeSync, fstatSync, openSync, read, readSync } from 'node:fs';
import { promisify } from 'node:util';
import { Block, BLOCK_BYTES_MAX, SEGMENT_START } from './call-block.js';
import type { GrowingSegment } from './call-writer.js';
import {
  type Extent,
  extentsOf,
  indexStart,
  mayHaveCall,
  SegmentIndex,
  TAIL_BYTES,
} from './segment-index.js';
import { type ExtentAt, SegmentSummary, SUMMARY_BYTES_MAX } from './segment-summary.js';

/**
 * Twice the longest block, so that a block that begins in the first half is whole. Half of it is a multiple
 * of 8, as BLOCK_BYTES_MAX is: `#readBlocks` may step over one half and is still where a block may begin.
 */
const CHUNK_BYTES = 2 * BLOCK_BYTES_MAX;
const readPiece = promisify(read);
/** An index of this size and less is read into memory that is used again: new memory takes longer to get. */
const SCRATCH_BYTES = 1024 * 1024;
/**
 * If the summary leaves at most this many extents, they are read at once. The index would rule out more, but
 * is as long as ten extents.
 */
const UNINDEXED_MAX = 4;

export interface BlockAt {
  /** The block's offset in the file. */
  readonly at: number;
  readonly block: Block;
}

export class Segment {
  readonly number: number;
  readonly path: string;
  /**
   * Undefined until `extents` has read them: at first, after `forget`, and after a writer in this thread has
   * ended the segment.
   */
  #extents: Extent[] | undefined;
  /** Built here while the segment grows, or if its index is damaged. */
  #growing: SegmentIndex | undefined;
  #reading: Promise<void> | undefined;
  #summary: SegmentSummary | undefined;
  /** The length of the file when its extents were read last. */
  #size = 0;
  /**
   * Where the index begins, for `extentsWith`. 0 unless `begin` has found a summary behind the index:
   * `#readIndex` leaves it 0 for a segment that ended while it was read here. Then `extentsWith` returns
   * undefined more often, which costs its caller time and no call.
   */
  #indexAt = 0;
  /** Always a multiple of 8, at which the next block begins: SEGMENT_START has 8 bytes. */
  #end = SEGMENT_START.length;
  #indexBytes = 0;
  /** Returns the state of the writer, if that is in this thread and still appends to this segment. */
  readonly #written: () => GrowingSegment | undefined;
  /** Whether there was such a writer at the last look. */
  #wasWritten = false;
  /**
   * Between these its calls ended, by the wall clock; `begin` and `extents` set both. While `lastMs` is
   * -Infinity, neither has read a call, and `begin` reads.
   */
  firstMs = Infinity;
  lastMs = -Infinity;

  constructor(number: number, path: string, written: () => GrowingSegment | undefined) {
    this.number = number;
    this.path = path;
    this.#written = written;
  }

  /**
   * Whether its index was built from its blocks, by this object or by the writer in this thread. That is also
   * so if the segment has ended without an index or with a damaged one, which looks as if its writer still
   * appended. While it is true, callers must expect more blocks.
   */
  get isGrowing(): boolean {
    return this.#growing !== undefined;
  }

  /**
   * The end of the last whole block, once the extents were read. Until then it is the start of the first
   * block, also if `begin` has read the summary.
   */
  get end(): number {
    return this.#end;
  }

  /** How many bytes the extents take in memory. */
  get indexBytes(): number {
    return this.#extents === undefined ? 0 : this.#indexBytes;
  }

  /** Frees the extents, unless they were built here from the blocks. */
  forget(): void {
    if (!this.isGrowing) this.#extents = undefined;
  }

  /** Updates `firstMs` and `lastMs`, from the summary if the segment is complete and has one. */
  async begin(): Promise<void> {
    if (this.#takeFromWriter()) return;
    if (!this.isGrowing) {
      if (this.lastMs !== -Infinity) return;
      this.#summary = await this.#withFile(undefined, (file, size) => this.#readSummary(file, size));
      if (this.#summary !== undefined) {
        ({ firstMs: this.firstMs, lastMs: this.lastMs } = this.#summary);
        return;
      }
    }
    await this.extents();
  }

  /**
   * Returns the extents, oldest first; none if the file was removed. They do not change while the caller has
   * them.
   */
  async extents(): Promise<readonly Extent[]> {
    // Concurrent searches share one read.
    if (!this.#takeFromWriter() && (this.#extents === undefined || this.isGrowing)) {
      await (this.#reading ??= this.#read().finally(() => (this.#reading = undefined)));
    }
    return this.isGrowing ? this.#extents!.map((extent) => ({ ...extent })) : this.#extents!;
  }

  /**
   * Returns the extents, oldest first, that may have the call: by the summary if that leaves few extents,
   * else by an index that is not kept, in a third of the time of `extents`. Undefined if only `extents` can
   * tell. `prefix` and `request` are the parts of its request id: the prefix of a listener's run, and the
   * request's number in it.
   *
   * The caller may read only `at` and `bytes` of an extent. Its filter, which ExtentAt does not have, is a
   * view of memory that the next call of this method writes to.
   */
  async extentsWith(prefix: string, request: number): Promise<readonly ExtentAt[] | undefined> {
    const extents = this.#summary?.extentsWith(prefix, request);
    if (extents !== undefined && extents.length <= UNINDEXED_MAX) return extents;
    if (this.#extents !== undefined || this.#indexAt === 0 || this.#takeFromWriter()) return undefined;
    return this.#withFile(undefined, async (file, size) => {
      const length = size - this.#indexAt;
      if (length <= 0 || length > SCRATCH_BYTES) return undefined;
      const memory = scratch.pop() ?? Buffer.allocUnsafeSlow(SCRATCH_BYTES);
      try {
        const bytes = await readInto(memory.subarray(0, length), file, this.#indexAt);
        return extentsOf(bytes)?.filter((extent) => mayHaveCall(extent, prefix, request));
      } finally {
        if (scratch.length === 0) scratch.push(memory);
      }
    });
  }

  /** Takes over the state of the writer, if `#written` returns one. Returns whether it does. */
  #takeFromWriter(): boolean {
    const written = this.#written();
    if (written === undefined && !this.#wasWritten) return false;
    this.#wasWritten = written !== undefined;
    this.#growing = written?.index;
    this.#end = written?.bytes ?? SEGMENT_START.length;
    if (written === undefined) {
      // The writer has ended the segment, so its index is on disk now, and `begin` reads its summary.
      this.#extents = undefined;
      this.lastMs = -Infinity;
      return false;
    }
    this.#keep(written.index.extents);
    return true;
  }

  /**
   * Returns the blocks of one extent; none if the file was removed. Reads synchronously, which takes 0.03 ms,
   * or 1 ms if the disk must be read. By the thread pool it takes 0.06 ms, and sometimes 1 to 4.
   */
  blocksAt({ at, bytes }: ExtentAt): BlockAt[] {
    const file = this.#open();
    if (file === undefined) return [];
    try {
      const buffer = Buffer.allocUnsafeSlow(bytes);
      return [...blocksIn(buffer.subarray(0, readSync(file, buffer, 0, bytes, at)), at)];
    } finally {
      closeSync(file);
    }
  }

  /** Returns the blocks of one or more extents that follow each other in the file, by one read. */
  async blocks(extents: readonly Extent[]): Promise<BlockAt[]> {
    const from = extents[0]!.at;
    const last = extents.at(-1)!;
    return this.#withFile([], async (file) => [
      ...blocksIn(await bytesOf(file, from, last.at + last.bytes - from), from),
    ]);
  }

  async #readSummary(file: number, size: number): Promise<SegmentSummary | undefined> {
    // Of a shorter file all is read. If there are fewer bytes than a tail has, there is no index.
    const from = Math.max(size - SUMMARY_BYTES_MAX, 0);
    const bytes = await bytesOf(file, from, size - from);
    const end = bytes.length - TAIL_BYTES;
    const indexAt = end > 0 ? indexStart(bytes.subarray(end)) : undefined;
    if (indexAt === undefined) return undefined;
    const summary = SegmentSummary.of(bytes.subarray(0, end));
    if (summary !== undefined) this.#indexAt = indexAt;
    return summary;
  }

  async #read(): Promise<void> {
    const extents = await this.#withFile([], async (file, size) => {
      if (this.isGrowing && size === this.#size) return this.#extents!;
      const indexed = await this.#readIndex(file, size);
      if (indexed === undefined) {
        const index = (this.#growing ??= new SegmentIndex());
        while (await this.#readBlocks(file, size, index));
      }
      // After the reads: if one fails, the next call reads on from `#end`.
      this.#size = size;
      return indexed ?? this.#growing!.extents;
    });
    this.#keep(extents);
  }

  #keep(extents: Extent[]): void {
    this.#extents = extents;
    this.#indexBytes = SegmentIndex.bytesOf(extents);
    this.firstMs = extents.reduce((first, extent) => Math.min(first, extent.firstMs), Infinity);
    this.lastMs = extents.reduce((last, extent) => Math.max(last, extent.lastMs), -Infinity);
  }

  /** Returns undefined if the file has no index, or a damaged one. */
  async #readIndex(file: number, size: number): Promise<Extent[] | undefined> {
    // `indexStart` rejects the fewer bytes of a file that is shorter than TAIL_BYTES.
    const at = indexStart(await bytesOf(file, Math.max(size - TAIL_BYTES, 0), TAIL_BYTES));
    if (at === undefined || at >= size) return undefined;
    const bytes = await bytesOf(file, at, size - at);
    const extents = extentsOf(bytes);
    if (extents === undefined) return undefined;
    this.#summary ??= SegmentSummary.of(bytes.subarray(0, -TAIL_BYTES));
    this.#growing = undefined;
    this.#end = at;
    return extents;
  }

  /** Adds the whole blocks of the next bytes to the index. Returns whether there are more bytes. */
  async #readBlocks(file: number, size: number, index: SegmentIndex): Promise<boolean> {
    const bytes = await bytesOf(file, this.#end, Math.min(CHUNK_BYTES, Math.max(size - this.#end, 0)));
    const from = this.#end;
    for (const { at, block } of blocksIn(bytes, from)) {
      index.add(at, block);
      this.#end = at + block.bytes;
    }
    if (bytes.length < CHUNK_BYTES) return false;
    // No whole block: the first half is damaged, but a block may begin in the second half.
    if (this.#end === from) this.#end += CHUNK_BYTES / 2;
    return true;
  }

  /** Returns `none` if the file was removed, as the oldest are at any time. */
  async #withFile<T>(none: T, use: (file: number, size: number) => Promise<T>): Promise<T> {
    const file = this.#open();
    if (file === undefined) return none;
    try {
      return await use(file, fstatSync(file).size);
    } finally {
      closeSync(file);
    }
  }

  #open(): number | undefined {
    try {
      return openSync(this.path, 'r');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw error;
    }
  }
}

/** At most one buffer of SCRATCH_BYTES, for all segments: here while no `extentsWith` uses it. */
const scratch: Buffer[] = [];

/**
 * Returns the whole blocks in `bytes`, which were read from offset `from` of a segment: a multiple of 8, at
 * which a block begins or goes on.
 */
export function* blocksIn(bytes: Buffer, from: number): Generator<BlockAt> {
  for (let at = 0; at < bytes.length;) {
    const block = Block.at(bytes, at);
    if (block !== undefined) yield { at: from + at, block };
    // Blocks begin at multiples of 8.
    at += block?.bytes ?? 8;
  }
}

/** Returns bytes aligned to 8 in memory, as Block needs; fewer than `length` if the file ends before. */
async function bytesOf(file: number, at: number, length: number): Promise<Buffer> {
  return readInto(Buffer.allocUnsafeSlow(length), file, at);
}

async function readInto(buffer: Buffer, file: number, at: number): Promise<Buffer> {
  let got = 0;
  while (got < buffer.length) {
    const { bytesRead } = await readPiece(file, buffer, got, buffer.length - got, at + got);
    if (bytesRead === 0) break;
    got += bytesRead;
  }
  return buffer.subarray(0, got);
}
