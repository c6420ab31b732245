/**
 * Appends blocks to segments that only this process writes. call-writer.ts and contents-writer.ts use it, on
 * the main thread of a gateway process. It writes without fsync: a power cut loses some seconds.
 *
 * Must hold: a full disk stops records, not calls: blocks wait up to a bound, and are then dropped and
 * counted, oldest first (test/unit/call-log/call-log.test.ts); a clock that is ahead for some minutes removes
 * nothing (test/unit/call-log/segment-writer.test.ts).
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
/** How many bytes may wait: some 60,000 records, or the contents of 30 of the longest calls by default. */
const WAITING_BYTES_MAX = 4 * 1024 * 1024;
const LOG_PERIOD_MS = 10_000;

export interface WrittenBlock {
  readonly data: Buffer;
  /** How many calls it has. */
  readonly count: number;
}

/** The index that is written at a segment's end. */
export interface WrittenIndex<B extends WrittenBlock> {
  /** Adds the block that begins at `at` in the file. */
  add(at: number, block: B): void;
  /** Returns the index's bytes. `at` is the end of the segment's blocks. */
  toBytes(at: number): Buffer;
}

interface SegmentWriterOptions<B extends WrittenBlock> {
  /** Created at the first write. */
  readonly folder: string;
  readonly kind: SegmentKind;
  /** The first bytes of each segment. */
  readonly start: Buffer;
  readonly newIndex: () => WrittenIndex<B>;
  readonly retention: CallRetention;
  readonly clock: Clock;
  readonly log: Log;
  /** Returns the block of all that was appended since the last call, if anything was. `flush` calls it. */
  readonly take: () => B | undefined;
}

interface OpenSegment<B extends WrittenBlock> {
  readonly file: number;
  readonly number: number;
  readonly index: WrittenIndex<B>;
  /** Monotonic. */
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
  /** The greatest number seen. It is not given again, also if its file is gone, because readers know it. */
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

  /** How many calls could not be written since the start. */
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

  /** To be called when something was appended: writes it within a second. */
  flushLater(): void {
    this.#flushTimer ??= setTimeout(() => this.flush(), WRITE_PERIOD_MS).unref();
  }

  /**
   * Writes what was appended. Takes 0.1 ms for 64 KiB. Never throws: what cannot be written waits for the
   * next try, a second later.
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

  /** Writes what was appended, and the segment's index. Called once, last. */
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
    // An operator who needed the disk may have removed the file.
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
      // A full disk still takes empty files, and each try would leave another one.
      rmSync(path, { force: true });
      throw error;
    }
    this.#lastNumber = number;
    return { file, number, index: newIndex(), begunMs: clock.monotonicMs(), bytes: start.length };
  }

  /** Ends the segment. If the disk is full, it has no index, and readers build one themselves. */
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
