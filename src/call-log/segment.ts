/**
 * Reads a segment, also while its writer appends: its summary, its index, and the blocks of an extent.
 * call-reader.ts has a Segment for each file, and awaits `refreshTimes` before each search. Main threads;
 * commands.
 *
 * All reads are asynchronous, except those of `blocksAt`. Files are opened synchronously, which takes some
 * 5 µs, because the thread pool would take 50.
 *
 * A segment is in one of three states, which `#builtIndex` tells:
 *
 *     complete                 undefined: the index is on disk, as the writer ended the segment
 *     written in this thread   the index of the writer, which is taken over before each use
 *     without a sound index    an index that this object makes of the blocks, and continues at each read:
 *                              another process still appends, or was killed, or the index is damaged
 *
 * Must hold (test/unit/call-log/call-log.test.ts):
 * - Every whole block is found. Only blocks that a crash has cut or that are damaged are left out.
 * - `#read` sets all that it has found at once, without an `await` in between. Other searches ask for
 *   `isGrowing`, `end`, the times and the extents at any moment, and would lose calls if these were of two
 *   moments (test/unit/call-log/segment.extents.test.ts).
 * - A file may have any length and any bytes. A summary, index or block that is cut or damaged is not used.
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
 * Twice the longest block, so that a block that begins in the first half is whole. BLOCK_BYTES_MAX is a
 * multiple of 8, so `#readBlocks` may step over one half and is still at a position where a block may begin.
 */
const CHUNK_BYTES = 2 * BLOCK_BYTES_MAX;
const readAsync = promisify(read);
/** An index up to this size is read into memory that is kept for the next read: new memory takes longer. */
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

/** `at`: where the index begins, and the blocks end. */
interface IndexOnDisk {
  readonly at: number;
  readonly extents: Extent[];
  readonly summary: SegmentSummary | undefined;
}

export class Segment {
  readonly number: number;
  readonly path: string;
  /** Undefined at first, after `freeExtents`, and after a writer in this thread has ended the segment. */
  #extents: Extent[] | undefined;
  /** Undefined if the segment is complete, and until the first read. The header says whose index it is. */
  #builtIndex: SegmentIndex | undefined;
  /** The read of the extents that runs, and resolves with them; undefined if none does. */
  #runningRead: Promise<Extent[]> | undefined;
  /** Undefined until a summary was read. A segment that grows, or of an earlier version, has no summary. */
  #summary: SegmentSummary | undefined;
  /** The length of the file when its extents were read last. */
  #size = 0;
  /** Where the index begins, for `extentsWith`; 0 unless `refreshTimes` has read a summary. */
  #indexAt = 0;
  #end = SEGMENT_START.length;
  /**
   * How far `#read` has added blocks to `#builtIndex`: to `#end`, or further while it reads. Always a
   * multiple of 8, at which the next block begins: SEGMENT_START has 8 bytes.
   */
  #builtTo = SEGMENT_START.length;
  #extentsBytes = 0;
  /** Returns the state of a writer in this thread that appends to this segment; undefined without one. */
  readonly #writerState: () => GrowingSegment | undefined;
  /** Whether `#writerState` last returned a state: then `#builtIndex` is the writer's. */
  #hadWriter = false;
  /**
   * When the first and the last call ended, by the wall clock; `refreshTimes` and `extents` set both. While
   * `lastMs` is -Infinity, neither has read a call, and `refreshTimes` reads.
   */
  firstMs = Infinity;
  lastMs = -Infinity;

  constructor(number: number, path: string, writerState: () => GrowingSegment | undefined) {
    this.number = number;
    this.path = path;
    this.#writerState = writerState;
  }

  /**
   * Whether callers must expect more blocks, once `refreshTimes` has resolved: true unless the segment is
   * complete. True also if its writer was killed, which looks as if the writer still appended.
   */
  get isGrowing(): boolean {
    return this.#builtIndex !== undefined;
  }

  /** The end of the last whole block, once the extents were read. Until then the start of the first block. */
  get end(): number {
    return this.#end;
  }

  /** How many bytes the extents take in memory. */
  get indexBytes(): number {
    return this.#extents === undefined ? 0 : this.#extentsBytes;
  }

  /** Frees the extents, unless they were built here from the blocks. */
  freeExtents(): void {
    if (!this.isGrowing) this.#extents = undefined;
  }

  /** Updates `firstMs` and `lastMs`, from the summary if the segment is complete and has one. */
  async refreshTimes(): Promise<void> {
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

  /** Returns the extents, oldest first; none if the file was removed. They do not change afterwards. */
  async extents(): Promise<readonly Extent[]> {
    // Searches at the same time share one read.
    let extents = this.#takeFromWriter() || !this.isGrowing ? this.#extents : undefined;
    // Not `#extents` after the read: another search may have freed them by then.
    extents ??= await (this.#runningRead ??= this.#read().finally(() => (this.#runningRead = undefined)));
    // The last extent of a growing segment changes, so callers get copies.
    return this.isGrowing ? extents.map((extent) => ({ ...extent })) : extents;
  }

  /**
   * Returns the extents, oldest first, that may have the call: by the summary if it leaves few extents, else
   * by the index, which is read and then dropped, in a third of the time of `extents`. Undefined if only
   * `extents` can tell, as in a segment that grows. A request id is `prefix`, which names a listener's run,
   * and `request`, the number of the request in that run.
   *
   * The caller may read only `at` and `bytes` of an extent, as ExtentAt has them. The filter is a view of
   * memory that the next call of this method writes to.
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

  /** Takes over the state of a writer in this thread (GrowingSegment). Returns false if there is none. */
  #takeFromWriter(): boolean {
    const state = this.#writerState();
    if (state === undefined && !this.#hadWriter) return false;
    this.#hadWriter = state !== undefined;
    this.#builtIndex = state?.index;
    this.#end = state?.bytes ?? SEGMENT_START.length;
    if (state === undefined) {
      // The writer has ended the segment, so its index is on disk now, and `refreshTimes` reads its summary.
      this.#extents = undefined;
      this.lastMs = -Infinity;
      return false;
    }
    this.#setExtents(state.index.extents);
    return true;
  }

  /**
   * Returns the blocks of one extent; none if the file was removed. Reads synchronously, which takes 0.03 ms,
   * or 1 ms if the disk must be read. The thread pool would take 0.06 ms, and sometimes 1 to 4 ms.
   */
  blocksAt({ at, bytes }: ExtentAt): BlockAt[] {
    const file = this.#openFile();
    if (file === undefined) return [];
    try {
      const buffer = Buffer.allocUnsafeSlow(bytes);
      return [...blocksIn(buffer.subarray(0, readSync(file, buffer, 0, bytes, at)), at)];
    } finally {
      closeSync(file);
    }
  }

  /**
   * Reads the blocks of one or more extents at once. The extents must follow each other in the file, as in a
   * Range of page-search.ts.
   */
  async blocks(extents: readonly Extent[]): Promise<BlockAt[]> {
    const start = extents[0]!.at;
    const last = extents.at(-1)!;
    return this.#withFile([], async (file) => [
      ...blocksIn(await bytesOf(file, start, last.at + last.bytes - start), start),
    ]);
  }

  /** Returns undefined if the segment has no index, or none with a whole summary. */
  async #readSummary(file: number, size: number): Promise<SegmentSummary | undefined> {
    // A shorter file is read as a whole. If there are fewer bytes than a tail has, there is no index.
    const from = Math.max(size - SUMMARY_BYTES_MAX, 0);
    const bytes = await bytesOf(file, from, size - from);
    const end = bytes.length - TAIL_BYTES;
    const indexAt = end > 0 ? indexStart(bytes.subarray(end)) : undefined;
    if (indexAt === undefined) return undefined;
    const summary = SegmentSummary.parse(bytes.subarray(0, end));
    if (summary !== undefined) this.#indexAt = indexAt;
    return summary;
  }

  /** Reads the extents of the index. Without an index, makes them of the blocks since the last read. */
  async #read(): Promise<Extent[]> {
    const extents = await this.#withFile(undefined, async (file, size) => {
      if (this.isGrowing && size === this.#size) return this.#extents!;
      const index = await this.#readIndex(file, size);
      if (index !== undefined) {
        this.#summary ??= index.summary;
        this.#builtIndex = undefined;
        this.#end = index.at;
        this.#size = size;
        return this.#setExtents(index.extents);
      }
      const builtIndex = (this.#builtIndex ??= new SegmentIndex());
      while (await this.#readBlocks(file, size, builtIndex));
      // Set after the reads: if one of them fails, the next `#read` continues at `#builtTo`.
      this.#size = size;
      this.#end = this.#builtTo;
      return this.#setExtents(builtIndex.extents);
    });
    return extents ?? this.#setExtents([]);
  }

  #setExtents(extents: Extent[]): Extent[] {
    this.#extents = extents;
    this.#extentsBytes = SegmentIndex.bytesOf(extents);
    this.firstMs = extents.reduce((first, extent) => Math.min(first, extent.firstMs), Infinity);
    this.lastMs = extents.reduce((last, extent) => Math.max(last, extent.lastMs), -Infinity);
    return extents;
  }

  /** Returns undefined if the file has no index, or a damaged one. */
  async #readIndex(file: number, size: number): Promise<IndexOnDisk | undefined> {
    // `indexStart` rejects the fewer bytes of a file that is shorter than TAIL_BYTES.
    const at = indexStart(await bytesOf(file, Math.max(size - TAIL_BYTES, 0), TAIL_BYTES));
    if (at === undefined || at >= size) return undefined;
    const bytes = await bytesOf(file, at, size - at);
    const extents = extentsOf(bytes);
    return extents && { at, extents, summary: SegmentSummary.parse(bytes.subarray(0, -TAIL_BYTES)) };
  }

  /** Adds the whole blocks of the next bytes to the index. Returns whether there may be more. */
  async #readBlocks(file: number, size: number, index: SegmentIndex): Promise<boolean> {
    const bytes = await bytesOf(
      file,
      this.#builtTo,
      Math.min(CHUNK_BYTES, Math.max(size - this.#builtTo, 0)),
    );
    const from = this.#builtTo;
    for (const { at, block } of blocksIn(bytes, from)) {
      index.add(at, block);
      this.#builtTo = at + block.bytes;
    }
    if (bytes.length < CHUNK_BYTES) return false;
    // Without a whole block the first half is damaged, but a block may begin in the second half.
    if (this.#builtTo === from) this.#builtTo += CHUNK_BYTES / 2;
    return true;
  }

  /** Returns `resultIfGone` if the file was removed: writers may remove the oldest files at any time. */
  async #withFile<T>(resultIfGone: T, use: (file: number, size: number) => Promise<T>): Promise<T> {
    const file = this.#openFile();
    if (file === undefined) return resultIfGone;
    try {
      return await use(file, fstatSync(file).size);
    } finally {
      closeSync(file);
    }
  }

  /** Returns undefined if the file was removed. Throws other errors. */
  #openFile(): number | undefined {
    try {
      return openSync(this.path, 'r');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw error;
    }
  }
}

/** One buffer of SCRATCH_BYTES for all segments. None at first, and while `extentsWith` uses it. */
const scratch: Buffer[] = [];

/**
 * Returns the whole blocks in `bytes`, which were read from offset `from` of a segment: a multiple of 8, at
 * which a block begins or goes on.
 */
export function* blocksIn(bytes: Buffer, from: number): Generator<BlockAt> {
  for (let at = 0; at < bytes.length;) {
    const block = Block.read(bytes, at);
    if (block !== undefined) yield { at: from + at, block };
    // After damaged bytes a block may begin at any multiple of 8.
    at += block?.bytes ?? 8;
  }
}

/** Returns bytes aligned to 8 in memory, as Block needs; fewer than `length` if the file ends earlier. */
async function bytesOf(file: number, at: number, length: number): Promise<Buffer> {
  return readInto(Buffer.allocUnsafeSlow(length), file, at);
}

/** Fills the buffer from offset `at` of the file on. Returns the part that the file had bytes for. */
async function readInto(buffer: Buffer, file: number, at: number): Promise<Buffer> {
  let filled = 0;
  while (filled < buffer.length) {
    const { bytesRead } = await readAsync(file, buffer, filled, buffer.length - filled, at + filled);
    if (bytesRead === 0) break;
    filled += bytesRead;
  }
  return buffer.subarray(0, filled);
}
