/**
 * Appends blocks to a segment of its own: one a gateway process, on its main thread. CallWriter owns one.
 * Written to the page cache without fsync: a power cut loses some seconds.
 *
 * Must hold: a disk that takes nothing stops records, not calls: blocks wait up to a bound, and are then
 * dropped and counted, oldest first (test/unit/call-log/call-log.test.ts).
 */
import { closeSync, fstatSync, ftruncateSync, writeSync } from 'node:fs';
import type { Clock } from '../core/clock.js';
import type { Log } from '../telemetry/log.js';
import {
  type CallRetention,
  createSegment,
  REMOVE_PERIOD_MS,
  removeOldSegments,
  segmentAgeMsOf,
  segmentBytesOf,
  type SegmentKind,
} from './segment-files.js';

const WRITE_PERIOD_MS = 1_000;
/** Some 60,000 records, or the contents of 30 of the longest calls by default. */
const WAITING_BYTES_MAX = 4 * 1024 * 1024;
const LOG_PERIOD_MS = 10_000;

export interface WrittenBlock {
  readonly data: Buffer;
  /** Of calls. */
  readonly count: number;
}

/** What is written at a segment's end, so that it can be searched. */
export interface WrittenIndex<B extends WrittenBlock> {
  /** The block that begins at `at` in the file. */
  add(at: number, block: B): void;
  /** `at` is the end of the segment. */
  toBytes(at: number): Buffer;
}

export interface SegmentWriterOptions<B extends WrittenBlock> {
  /** Made when there is something to write. */
  readonly folder: string;
  readonly kind: SegmentKind;
  /** How each segment begins. */
  readonly start: Buffer;
  readonly newIndex: () => WrittenIndex<B>;
  readonly retention: CallRetention;
  readonly clock: Clock;
  readonly log: Log;
  /** Gives the block of what was appended since, if there is any. */
  readonly take: () => B | undefined;
}

interface OpenSegment<B extends WrittenBlock> {
  readonly file: number;
  readonly number: number;
  readonly index: WrittenIndex<B>;
  readonly begunMs: number;
  bytes: number;
}

export class SegmentWriter<B extends WrittenBlock> {
  readonly #options: SegmentWriterOptions<B>;
  readonly #waiting: B[] = [];
  readonly #removing: NodeJS.Timeout;
  #retention: CallRetention;
  #waitingBytes = 0;
  #segment: OpenSegment<B> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #dropped = 0;
  #loggedDropped = 0;
  #loggedAtMs = -Infinity;

  constructor(options: SegmentWriterOptions<B>) {
    this.#options = options;
    this.#retention = options.retention;
    this.#remove();
    this.#removing = setInterval(() => this.#remove(), REMOVE_PERIOD_MS).unref();
  }

  /** Calls that could not be kept, since the start. */
  get dropped(): number {
    return this.#dropped;
  }

  /** The number of the segment that is being written, and how many bytes of it are; undefined if none is. */
  get open(): { readonly number: number; readonly bytes: number } | undefined {
    return this.#segment;
  }

  apply(retention: CallRetention): void {
    this.#retention = retention;
    this.#remove();
  }

  /** Something was appended. */
  flushLater(): void {
    this.#timer ??= setTimeout(() => this.flush(), WRITE_PERIOD_MS).unref();
  }

  /** Writes what was appended. Takes 0.1 ms for 64 KiB. Never throws. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const block = this.#options.take();
    if (block !== undefined) {
      this.#waiting.push(block);
      this.#waitingBytes += block.data.length;
    }
    try {
      while (this.#waiting.length > 0) {
        this.#write(this.#waiting[0]!);
        this.#shift();
      }
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Writes what was appended, and the segment's index. */
  close(): void {
    this.flush();
    clearTimeout(this.#timer);
    clearInterval(this.#removing);
    this.#end();
  }

  #shift(): B {
    const block = this.#waiting.shift()!;
    this.#waitingBytes -= block.data.length;
    return block;
  }

  #write(block: B): void {
    // Whoever needed the disk may have removed it.
    if (this.#segment !== undefined && fstatSync(this.#segment.file).nlink === 0) this.#close();
    const segment = (this.#segment ??= this.#begin());
    writeWhole(segment.file, block.data, segment.bytes);
    segment.index.add(segment.bytes, block);
    segment.bytes += block.data.length;
    if (segment.bytes >= segmentBytesOf(this.#retention) || this.#isOld(segment)) this.#end();
  }

  #begin(): OpenSegment<B> {
    const { folder, kind, start, newIndex, clock } = this.#options;
    removeOldSegments(folder, kind, this.#retention, clock.wallMs());
    const { file, number } = createSegment(folder, kind);
    try {
      writeWhole(file, start, 0);
    } catch (error) {
      closeSync(file);
      throw error;
    }
    return { file, number, index: newIndex(), begunMs: clock.monotonicMs(), bytes: start.length };
  }

  /** Readers make the index again if the disk has no room for it. */
  #end(): void {
    const segment = this.#segment;
    if (segment === undefined) return;
    try {
      writeWhole(segment.file, segment.index.toBytes(segment.bytes), segment.bytes);
    } catch (error) {
      this.#report(error);
    }
    this.#close();
  }

  #close(): void {
    closeSync(this.#segment!.file);
    this.#segment = undefined;
  }

  #isOld({ begunMs }: OpenSegment<B>): boolean {
    return this.#options.clock.monotonicMs() - begunMs >= segmentAgeMsOf(this.#retention);
  }

  #remove(): void {
    if (this.#segment !== undefined && this.#isOld(this.#segment)) this.#end();
    const { folder, kind, clock } = this.#options;
    try {
      removeOldSegments(folder, kind, this.#retention, clock.wallMs());
    } catch (error) {
      this.#report(error);
    }
  }

  #fail(error: unknown): void {
    while (this.#waitingBytes > WAITING_BYTES_MAX) this.#dropped += this.#shift().count;
    this.flushLater();
    this.#report(error);
  }

  #report(error: unknown): void {
    const { folder, clock, log } = this.#options;
    const nowMs = clock.monotonicMs();
    if (nowMs - this.#loggedAtMs < LOG_PERIOD_MS) return;
    this.#loggedAtMs = nowMs;
    log.warn('the call log cannot be written; calls are not affected', {
      folder,
      error: error instanceof Error ? error.message : String(error),
      dropped: this.#dropped - this.#loggedDropped,
      droppedSinceStart: this.#dropped,
    });
    this.#loggedDropped = this.#dropped;
  }
}

/** Writes all of it or nothing. */
function writeWhole(file: number, bytes: Buffer, at: number): void {
  let written = 0;
  try {
    while (written < bytes.length) {
      written += writeSync(file, bytes, written, bytes.length - written, at + written);
    }
  } catch (error) {
    if (written > 0) ftruncateSync(file, at);
    throw error;
  }
}
