/**
 * Appends blocks to segment files of the call log. CallWriter (call-writer.ts) and ContentsWriter
 * (contents-writer.ts) are SegmentWriters, which gateway/gateway-logs.ts owns on the main thread of a gateway
 * process. No other process writes to their segments. A power cut loses some seconds: nothing is synced.
 *
 * Must hold:
 * - A disk that fails never makes a call fail. Blocks wait while the disk fails. Beyond WAITING_BYTES_MAX
 *   the oldest are dropped (test/unit/call-log/call-log.test.ts), and at the end all that wait. What is
 *   dropped is counted and logged, at the latest when the disk takes blocks again.
 * - A block is added to the index only after it was written, because readers in this thread take the index
 *   and `openSegment` for what is on disk.
 * - A block is written once, also if the end of its segment fails; and no segment has a file that was closed
 *   (test/unit/call-log/segment-writer.test.ts).
 * - A clock that is ahead for some minutes removes nothing: RetentionCalendar (core/retention.ts) sees to it.
 */
import { closeSync, fstatSync, rmSync } from 'node:fs';
import { RetentionCalendar } from '../core/retention.js';
import type { Clock } from '../core/clock.js';
import { errorText } from '../core/errors.js';
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

/** How long an appended call waits at most for a block with others. */
const WRITE_PERIOD_MS = 1_000;
/** How many bytes may wait if writes fail: some 60,000 records, or by default 30 of the longest contents. */
const WAITING_BYTES_MAX = 4 * 1024 * 1024;
/** While writes fail, a failure is logged this often. */
const LOG_PERIOD_MS = 10_000;

export interface WrittenBlock {
  readonly data: Buffer;
  /** How many calls the block has. */
  readonly count: number;
}

/** The index of one segment, which is written after its blocks when the segment ends. */
export interface WrittenIndex<B extends WrittenBlock> {
  /** Adds the block that begins at `at` in the file. Called after the block was written, in order. */
  add(at: number, block: B): void;
  /** Returns the index's bytes. `at` is the end of the segment's blocks. */
  toBytes(at: number): Buffer;
}

export interface SegmentWriterOptions {
  /** The folder of the segments, which is created at the first write. */
  readonly folder: string;
  readonly kind: SegmentKind;
  /** The first bytes of each segment. */
  readonly start: Buffer;
  readonly retention: CallRetention;
  readonly clock: Clock;
  readonly log: Log;
}

interface OpenSegment<B extends WrittenBlock> {
  readonly file: number;
  readonly number: number;
  readonly index: WrittenIndex<B>;
  /** When the segment was begun, by the monotonic clock. */
  readonly begunMs: number;
  /** How many bytes are written. */
  bytes: number;
}

export abstract class SegmentWriter<B extends WrittenBlock> {
  readonly #options: SegmentWriterOptions;
  /** Blocks that are not written yet, oldest first. */
  readonly #waitingBlocks: B[] = [];
  readonly #removeTimer: NodeJS.Timeout;
  readonly #calendar: RetentionCalendar;
  #retention: CallRetention;
  #waitingBytes = 0;
  #waitingBytesMax = WAITING_BYTES_MAX;
  /** The segment that is being written; undefined before the first block and after a segment's end. */
  #segment: OpenSegment<B> | undefined;
  /** The greatest segment number of any process so far: the next one is greater (segment-files.ts). */
  #lastNumber = 0;
  #flushTimer: NodeJS.Timeout | undefined;
  /** Calls of blocks that were dropped since the start. */
  #dropped = 0;
  /** What `#dropped` was when a failure was last logged, and the monotonic time of that. */
  #loggedDropped = 0;
  #loggedAtMs = -Infinity;

  /** Removes old segments at once, and then every REMOVE_PERIOD_MS until `close`. */
  constructor(options: SegmentWriterOptions) {
    this.#options = options;
    this.#retention = options.retention;
    this.#calendar = new RetentionCalendar(options.clock);
    this.#enforceRetention();
    this.#removeTimer = setInterval(() => this.#enforceRetention(), REMOVE_PERIOD_MS).unref();
  }

  /**
   * Returns one block of all that was appended since the last call of `take`; undefined if nothing was. Must
   * not throw.
   */
  protected abstract take(): B | undefined;

  /** Called once for each segment, as it begins. */
  protected abstract newIndex(): WrittenIndex<B>;

  /** How many calls could not be written, and were dropped, since the start. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Number and written bytes of the segment that is being written; undefined if there is none. */
  protected get openSegment(): { readonly number: number; readonly bytes: number } | undefined {
    return this.#segment;
  }

  /** Takes over the bounds of a reload, and removes segments that exceed them. */
  applyRetention(retention: CallRetention): void {
    this.#retention = retention;
    this.#enforceRetention();
  }

  /** Call it after each append: `flush` then follows within WRITE_PERIOD_MS. */
  protected flushLater(): void {
    this.#flushTimer ??= setTimeout(() => this.flush(), WRITE_PERIOD_MS).unref();
  }

  /**
   * Writes what was appended, in 0.1 ms for 64 KiB. Never throws: blocks that cannot be written wait for the
   * next try, a second later. A block is written whole or not at all (`writeWhole`).
   */
  flush(): void {
    clearTimeout(this.#flushTimer);
    this.#flushTimer = undefined;
    const block = this.take();
    if (block !== undefined) {
      this.#waitingBlocks.push(block);
      this.#waitingBytes += block.data.length;
    }
    try {
      while (this.#waitingBlocks.length > 0) {
        // Taken out only after the write, so that a block whose write throws is tried again.
        const segment = this.#write(this.#waitingBlocks[0]!);
        this.#takeOldestBlock();
        if (segment.bytes >= segmentBytesOf(this.#retention) || this.#isOld(segment)) this.#endSegment();
      }
      if (this.#dropped > this.#loggedDropped)
        this.#logDrops('the call log is written again, without some calls');
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Flushes, and ends the segment. Drops blocks that cannot be written. Call it once, last. */
  close(): void {
    // So that `#fail` logs now how many calls are lost, however soon after the last such line.
    this.#loggedAtMs = -Infinity;
    this.#waitingBytesMax = 0;
    this.flush();
    // If writes fail, `flush` has set the timer again.
    clearTimeout(this.#flushTimer);
    clearInterval(this.#removeTimer);
    this.#endSegment();
  }

  /** Takes out the oldest waiting block. There must be one. */
  #takeOldestBlock(): B {
    const block = this.#waitingBlocks.shift()!;
    this.#waitingBytes -= block.data.length;
    return block;
  }

  /**
   * Writes the block to the open segment, or to a new one, and returns the segment. Throws if the block
   * cannot be written, and not after it was: `flush` would write it again.
   */
  #write(block: B): OpenSegment<B> {
    // A file without a link was removed, by an operator or by another process for the bound of bytes.
    if (this.#segment !== undefined && fstatSync(this.#segment.file).nlink === 0) this.#closeFile();
    const segment = (this.#segment ??= this.#beginSegment());
    writeWhole(segment.file, block.data, segment.bytes);
    segment.index.add(segment.bytes, block);
    segment.bytes += block.data.length;
    return segment;
  }

  /** Removes old segments first, so that the new one fits within the bound of bytes. */
  #beginSegment(): OpenSegment<B> {
    const { folder, kind, start, clock } = this.#options;
    this.#removeOldSegments();
    const { file, number, path } = createSegment(folder, kind, this.#lastNumber, clock.wallMs());
    try {
      writeWhole(file, start, 0);
    } catch (error) {
      closeSync(file);
      // A full disk still takes empty files, so each try would leave one more.
      rmSync(path, { force: true });
      throw error;
    }
    this.#lastNumber = number;
    return { file, number, index: this.newIndex(), begunMs: clock.monotonicMs(), bytes: start.length };
  }

  /**
   * Ends the segment if one is open. If the index cannot be written, readers make one of the blocks. Logs
   * errors instead of throwing them.
   */
  #endSegment(): void {
    const segment = this.#segment;
    if (segment === undefined) return;
    try {
      try {
        writeWhole(segment.file, segment.index.toBytes(segment.bytes), segment.bytes);
      } finally {
        this.#closeFile();
      }
    } catch (error) {
      this.#logFailure(error);
    }
  }

  /** There must be a segment. After an error of `close` its file is closed too: Linux frees the number. */
  #closeFile(): void {
    const { file } = this.#segment!;
    this.#segment = undefined;
    closeSync(file);
  }

  #isOld({ begunMs }: OpenSegment<B>): boolean {
    return this.#options.clock.monotonicMs() - begunMs >= segmentAgeMsOf(this.#retention);
  }

  /** Ends the open segment if it is old, and removes old segments. Logs errors instead of throwing them. */
  #enforceRetention(): void {
    if (this.#segment !== undefined && this.#isOld(this.#segment)) this.#endSegment();
    try {
      this.#removeOldSegments();
    } catch (error) {
      this.#logFailure(error);
    }
  }

  #removeOldSegments(): void {
    const { folder, kind } = this.#options;
    const last = removeOldSegments(folder, kind, this.#retention, this.#calendar.nowMs());
    this.#lastNumber = Math.max(this.#lastNumber, last);
  }

  /** Drops the oldest blocks beyond the bound, starts the timer of the next try, and logs the failure. */
  #fail(error: unknown): void {
    while (this.#waitingBytes > this.#waitingBytesMax) this.#dropped += this.#takeOldestBlock().count;
    this.flushLater();
    this.#logFailure(error);
  }

  #logFailure(error: unknown): void {
    const nowMs = this.#options.clock.monotonicMs();
    if (nowMs - this.#loggedAtMs < LOG_PERIOD_MS) return;
    this.#loggedAtMs = nowMs;
    this.#logDrops('the call log cannot be written; calls are not affected', errorText(error));
  }

  #logDrops(message: string, error?: string): void {
    const { folder, log } = this.#options;
    log.warn(message, {
      folder,
      ...(error !== undefined && { error }),
      dropped: this.#dropped - this.#loggedDropped,
      droppedSinceStart: this.#dropped,
    });
    this.#loggedDropped = this.#dropped;
  }
}
