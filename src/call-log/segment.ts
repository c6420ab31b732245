/**
 * A segment as readers see it, also while its writer appends: its index, and the blocks of an extent.
 * call-reader.ts opens one for each file. Reads are asynchronous and of at most 4 MiB.
 *
 * Must hold: what a crash cut or a fault damaged is left out, and nothing else
 * (test/unit/call-log/call-log.test.ts).
 */
import { open, type FileHandle } from 'node:fs/promises';
import { Block, SEGMENT_START } from './call-block.js';
import { type Extent, extentsOf, indexStart, SegmentIndex, TAIL_BYTES } from './segment-index.js';

const CHUNK_BYTES = 4 * 1024 * 1024;

export interface BlockAt {
  /** In the file. */
  readonly at: number;
  readonly block: Block;
}

export class Segment {
  readonly number: number;
  readonly path: string;
  /** Undefined before `refresh`, and after `forget`. */
  #extents: Extent[] | undefined;
  /** While it grows, or if its index is damaged. */
  #growing: SegmentIndex | undefined;
  #reading: Promise<void> | undefined;
  #size = 0;
  #end = SEGMENT_START.length;
  #indexBytes = 0;
  firstMs = Infinity;
  lastMs = -Infinity;

  constructor(number: number, path: string) {
    this.number = number;
    this.path = path;
  }

  /** Whether its writer may append more. */
  get isGrowing(): boolean {
    return this.#growing !== undefined;
  }

  /** Where the last whole block ends. */
  get end(): number {
    return this.#end;
  }

  /** What it keeps in memory. */
  get indexBytes(): number {
    return this.#extents === undefined ? 0 : this.#indexBytes;
  }

  /** Forgets what can be read again. */
  forget(): void {
    if (!this.isGrowing) this.#extents = undefined;
  }

  /**
   * Returns the extents, oldest first. They do not change while the caller has them. None if the file is
   * gone.
   */
  async extents(): Promise<readonly Extent[]> {
    // One read at a time, whoever searches.
    if (this.#extents === undefined || this.isGrowing) {
      await (this.#reading ??= this.#read().finally(() => (this.#reading = undefined)));
    }
    return this.isGrowing ? this.#extents!.map((extent) => ({ ...extent })) : this.#extents!;
  }

  /** Returns the blocks of extents that follow each other in the file. */
  async blocks(extents: readonly Extent[]): Promise<BlockAt[]> {
    const from = extents[0]!.at;
    const last = extents.at(-1)!;
    return this.#withFile([], async (file) => [
      ...blocksIn(await bytesOf(file, from, last.at + last.bytes - from), from),
    ]);
  }

  async #read(): Promise<void> {
    this.#extents = await this.#withFile([], async (file) => {
      const { size } = await file.stat();
      if (this.isGrowing && size === this.#size) return this.#extents!;
      this.#size = size;
      const indexed = await this.#readIndex(file, size);
      if (indexed !== undefined) return indexed;
      const index = (this.#growing ??= new SegmentIndex());
      while (await this.#readBlocks(file, index));
      return index.extents;
    });
    this.#indexBytes = SegmentIndex.bytesOf(this.#extents);
    this.firstMs = this.#extents.reduce((first, extent) => Math.min(first, extent.firstMs), Infinity);
    this.lastMs = this.#extents.reduce((last, extent) => Math.max(last, extent.lastMs), -Infinity);
  }

  async #readIndex(file: FileHandle, size: number): Promise<Extent[] | undefined> {
    const at = indexStart(await bytesOf(file, Math.max(size - TAIL_BYTES, 0), TAIL_BYTES));
    if (at === undefined || at >= size) return undefined;
    const extents = extentsOf(await bytesOf(file, at, size - at));
    if (extents === undefined) return undefined;
    this.#growing = undefined;
    this.#end = at;
    return extents;
  }

  /** Adds the whole blocks of the next bytes to the index. Returns whether there are more bytes. */
  async #readBlocks(file: FileHandle, index: SegmentIndex): Promise<boolean> {
    const bytes = await bytesOf(file, this.#end, Math.min(CHUNK_BYTES, Math.max(this.#size - this.#end, 0)));
    const from = this.#end;
    for (const { at, block } of blocksIn(bytes, from)) {
      index.add(at, block, block.names);
      this.#end = at + block.bytes;
    }
    if (bytes.length < CHUNK_BYTES) return false;
    // Nothing in 4 MiB: all of it is damaged, but for a block that may begin at its end.
    if (this.#end === from) this.#end += CHUNK_BYTES / 2;
    return true;
  }

  /** Returns `none` if the file is gone: the oldest are removed at any time. */
  async #withFile<T>(none: T, use: (file: FileHandle) => Promise<T>): Promise<T> {
    let file: FileHandle;
    try {
      file = await open(this.path, 'r');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return none;
      throw error;
    }
    try {
      return await use(file);
    } finally {
      await file.close();
    }
  }
}

/**
 * The whole blocks among bytes that begin at `from` in a file, and there with a block or what is left of one.
 */
export function* blocksIn(bytes: Buffer, from: number): Generator<BlockAt> {
  for (let at = 0; at < bytes.length;) {
    const block = Block.at(bytes, at);
    if (block !== undefined) yield { at: from + at, block };
    at += block?.bytes ?? 8;
  }
}

/** Memory that begins and ends at a multiple of 8, as Block wants it: fewer bytes if the file ends before. */
async function bytesOf(file: FileHandle, at: number, length: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafeSlow(length);
  let read = 0;
  while (read < length) {
    const { bytesRead } = await file.read(buffer, read, length - read, at + read);
    if (bytesRead === 0) break;
    read += bytesRead;
  }
  return buffer.subarray(0, read);
}
