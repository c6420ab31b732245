/**
 * Appends blocks to segment files of the call log. call-writer.ts and contents-writer.ts own one each, on the
 * main thread of a gateway process, and no other process writes to their segments. Nothing is synced
 * (fsync), so a power cut loses some seconds.
 *
 * Must hold: a disk that fails never makes a call fail. Blocks then wait up to WAITING_BYTES_MAX, beyond
 * which the oldest are dropped and counted (test/unit/call-log/call-log.test.ts). A clock that is ahead for
 * some minutes removes nothing.
 */
import { closeSync, fstatSync, rmSync } from 'node:fs';
import { type Clock, RetentionCalendar } from '../core/clock.js';
import { writeWhole } from '../telemetry/line-file.js';
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
/** How many bytes may wait if writes fail: some 60,000 records, or by default the 30 longest contents. */
const WAITING_BYTES_MAX = 4 * 1024 * 1024;
const LOG_PERIOD_MS = 10_000;

export interface WrittenBlock {
  readonly data: Buffer;
  /** How many calls it has. */
  readonly count: number;
}

/** The index of one segment, which is written behind its blocks when the segment ends. */
export interface WrittenIndex<B extends WrittenBlock> {
  /** Adds the block that begins at `at` in the file. Called after the block was written, in order. */
  add(at: number, block: B): void;
  /** Returns the index's bytes. `at` is the end of the segment's blocks. */
  toBytes(at: number): Buffer;
}

interface SegmentWriterOptions<B extends WrittenBlock> {
  /** Is created at the first write. */
  readonly folder: string;
  readonly kind: SegmentKind;
  /** The first bytes of each segment. */
  readonly start: Buffer;
  readonly newIndex: () => WrittenIndex<B>;
  readonly retention: CallRetention;
  readonly clock: Clock;
  readonly log: Log;
  /** Returns one block of all that was appended since the last call; undefined for nothing. */
  readonly take: () => B | undefined;
}

interface OpenSegment<B extends WrittenBlock> {
  readonly file: number;
  readonly number: number;
  readonly index: WrittenIndex<B>;
  /** By the monotonic clock. */
  readonly begunMs: number;
  bytes: number;
}

export class SegmentWriter<B extends WrittenBlock> {
  readonly #options: SegmentWriterOptions<B>;
  /** Blocks that are not written yet, oldest first. */
  readonly #waiting: B[] = [];
  readonly #removeTimer: NodeJS.Timeout;
  readonly #calendar: RetentionCalendar;
  #retention: CallRetention;
  #waitingBytes = 0;
  #segment: OpenSegment<B> | undefined;
  /** The greatest segment number seen. No number up to it is begun again, because readers know them. */
  #lastNumber = 0;
  #flushTimer: NodeJS.Timeout | undefined;
  #dropped = 0;
  #loggedDropped = 0;
  #loggedAtMs = -Infinity;

  /** Removes old segments at once, and then every REMOVE_PERIOD_MS until `close`. */
  constructor(options: SegmentWriterOptions<B>) {
    this.#options = options;
    this.#retention = options.retention;
    this.#calendar = new RetentionCalendar(options.clock);
    this.#remove();
    this.#removeTimer = setInterval(() => this.#remove(), REMOVE_PERIOD_MS).unref();
  }

  /** How many calls were dropped since the start. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Number and written bytes of the segment that is being written; undefined if there is none. */
  get open(): { readonly number: number; readonly bytes: number } | undefined {
    return this.#segment;
  }

  /** Takes over the bounds of a reload, and removes what exceeds them. */
  apply(retention: CallRetention): void {
    this.#retention = retention;
    this.#remove();
  }

  /** To be called after each append: `flush` then follows within WRITE_PERIOD_MS. */
  flushLater(): void {
    this.#flushTimer ??= setTimeout(() => this.flush(), WRITE_PERIOD_MS).unref();
  }

  /**
   * Writes what was appended, in 0.1 ms for 64 KiB. Never throws: what cannot be written waits for the next
   * try, a second later. A block is written whole or not at all (`writeWhole`).
   */
  flush(): void {
    clearTimeout(this.#flushTimer);
    this.#flushTimer = undefined;
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

  /** Writes what was appended, and the segment's index. What the disk does not take is lost. Called last. */
  close(): void {
    this.flush();
    clearTimeout(this.#flushTimer);
    clearInterval(this.#removeTimer);
    this.#end();
  }

  #shift(): B {
    const block = this.#waiting.shift()!;
    this.#waitingBytes -= block.data.length;
    return block;
  }

  #write(block: B): void {
    // No links: the file was removed, by an operator or by another process that needed room.
    if (this.#segment !== undefined && fstatSync(this.#segment.file).nlink === 0) this.#close();
    const segment = (this.#segment ??= this.#begin());
    writeWhole(segment.file, block.data, segment.bytes);
    segment.index.add(segment.bytes, block);
    segment.bytes += block.data.length;
    if (segment.bytes >= segmentBytesOf(this.#retention) || this.#isOld(segment)) this.#end();
  }

  #begin(): OpenSegment<B> {
    const { folder, kind, start, newIndex, clock } = this.#options;
    this.#removeOld();
    const { file, number, path } = createSegment(folder, kind, this.#lastNumber, clock.wallMs());
    try {
      writeWhole(file, start, 0);
    } catch (error) {
      closeSync(file);
      // A full disk still takes empty files, so each try would leave one.
      rmSync(path, { force: true });
      throw error;
    }
    this.#lastNumber = number;
    return { file, number, index: newIndex(), begunMs: clock.monotonicMs(), bytes: start.length };
  }

  /** Ends the segment, if any. If the disk is full, the file gets no index, and readers do without. */
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
    try {
      this.#removeOld();
    } catch (error) {
      this.#report(error);
    }
  }

  #removeOld(): void {
    const { folder, kind } = this.#options;
    const last = removeOldSegments(folder, kind, this.#retention, this.#calendar.nowMs());
    this.#lastNumber = Math.max(this.#lastNumber, last);
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
