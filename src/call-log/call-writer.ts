/**
 * Appends calls to a segment of its own: one a gateway process, on its main thread. A call is on disk a
 * second after its end, written to the page cache without fsync: a killed process loses that second, a power
 * cut some more. A disk that takes nothing stops records, not calls: blocks wait up to a bound, and are then
 * dropped and counted, oldest first.
 */
import { closeSync, fstatSync, ftruncateSync, writeSync } from 'node:fs';
import type { Clock } from '../core/clock.js';
import type { CallRecord, CallSink } from '../telemetry/call-record.js';
import type { Log } from '../telemetry/log.js';
import type { PlainCall } from '../telemetry/call-ring.js';
import { BlockBuilder, type SlotNames } from './block-builder.js';
import { type Block, SEGMENT_START } from './call-block.js';
import { SegmentIndex } from './segment-index.js';
import {
  type CallRetention,
  createSegment,
  removeOldSegments,
  segmentAgeMsOf,
  segmentBytesOf,
} from './segment-files.js';

const WRITE_PERIOD_MS = 1_000;
/** How often what is too old is removed, if nothing is written. */
const REMOVE_PERIOD_MS = 300_000;
/** Some 60,000 calls. */
const WAITING_BYTES_MAX = 4 * 1024 * 1024;
const LOG_PERIOD_MS = 10_000;

export interface CallWriterOptions {
  /** Made when there is something to write. */
  readonly folder: string;
  readonly retention: CallRetention;
  /** Needed for `appendPlain`. */
  readonly names?: SlotNames;
  readonly clock: Clock;
  readonly log: Log;
}

interface WaitingBlock {
  readonly block: Block;
  readonly names: readonly string[];
}

interface OpenSegment {
  readonly file: number;
  readonly index: SegmentIndex;
  readonly begunMs: number;
  bytes: number;
}

export class CallWriter implements CallSink {
  readonly #folder: string;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #builder: BlockBuilder;
  readonly #waiting: WaitingBlock[] = [];
  readonly #removing: NodeJS.Timeout;
  #retention: CallRetention;
  #waitingBytes = 0;
  #segment: OpenSegment | undefined;
  #timer: NodeJS.Timeout | undefined;
  #dropped = 0;
  #loggedDropped = 0;
  #loggedAtMs = -Infinity;

  constructor({ folder, retention, names, clock, log }: CallWriterOptions) {
    this.#builder = new BlockBuilder(names);
    this.#folder = folder;
    this.#retention = retention;
    this.#clock = clock;
    this.#log = log;
    this.#remove();
    this.#removing = setInterval(() => this.#remove(), REMOVE_PERIOD_MS).unref();
  }

  /** Calls that could not be kept, since the start. */
  get dropped(): number {
    return this.#dropped;
  }

  apply(retention: CallRetention): void {
    this.#retention = retention;
    this.#remove();
  }

  append(call: CallRecord): void {
    if (this.#builder.isFull) this.flush();
    this.#builder.add(call);
    this.#timer ??= setTimeout(() => this.flush(), WRITE_PERIOD_MS).unref();
  }

  /** To be called before plain calls are taken out of their rings: slots may have new names since. */
  forgetSlots(): void {
    this.#builder.forgetSlots();
  }

  /** As `append`, of a call of the listener of that index. */
  appendPlain(call: PlainCall, listener: number): void {
    if (this.#builder.isFull) this.flush();
    this.#builder.addPlain(call, listener);
    this.#timer ??= setTimeout(() => this.flush(), WRITE_PERIOD_MS).unref();
  }

  /** Writes what was appended. Takes 0.1 ms for 64 KiB. Never throws. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const { count } = this.#builder;
    if (count > 0) {
      const block = this.#builder.take();
      this.#waiting.push(block);
      this.#waitingBytes += block.block.bytes;
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

  #shift(): WaitingBlock {
    const block = this.#waiting.shift()!;
    this.#waitingBytes -= block.block.bytes;
    return block;
  }

  #write({ block, names }: WaitingBlock): void {
    // Whoever needed the disk may have removed it.
    if (this.#segment !== undefined && fstatSync(this.#segment.file).nlink === 0) this.#close();
    const segment = (this.#segment ??= this.#begin());
    writeWhole(segment.file, block.data, segment.bytes);
    segment.index.add(segment.bytes, block, names);
    segment.bytes += block.bytes;
    if (segment.bytes >= segmentBytesOf(this.#retention) || this.#isOld(segment)) this.#end();
  }

  #begin(): OpenSegment {
    removeOldSegments(this.#folder, this.#retention, this.#clock.wallMs());
    const file = createSegment(this.#folder);
    try {
      writeWhole(file, SEGMENT_START, 0);
    } catch (error) {
      closeSync(file);
      throw error;
    }
    const begunMs = this.#clock.monotonicMs();
    return { file, index: new SegmentIndex(), begunMs, bytes: SEGMENT_START.length };
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

  #isOld({ begunMs }: OpenSegment): boolean {
    return this.#clock.monotonicMs() - begunMs >= segmentAgeMsOf(this.#retention);
  }

  #remove(): void {
    if (this.#segment !== undefined && this.#isOld(this.#segment)) this.#end();
    try {
      removeOldSegments(this.#folder, this.#retention, this.#clock.wallMs());
    } catch (error) {
      this.#report(error);
    }
  }

  #fail(error: unknown): void {
    while (this.#waitingBytes > WAITING_BYTES_MAX) this.#dropped += this.#shift().block.count;
    this.#timer ??= setTimeout(() => this.flush(), WRITE_PERIOD_MS).unref();
    this.#report(error);
  }

  #report(error: unknown): void {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#loggedAtMs < LOG_PERIOD_MS) return;
    this.#loggedAtMs = nowMs;
    this.#log.warn('the call log cannot be written; calls are not affected', {
      folder: this.#folder,
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
