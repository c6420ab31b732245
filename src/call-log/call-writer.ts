/**
 * Appends the records of calls to segments. gateway/gateway-logs.ts owns a CallWriter, on the main thread of
 * a gateway process.
 *
 * Must hold: a second after its end a call is in the file, though without fsync, so a killed process loses
 * only that second. SegmentWriter sees to it, and says what a disk that fails costs
 * (test/unit/call-log/call-log.test.ts, test/durability/call-log.test.ts).
 */
import type { Clock } from '../core/clock.js';
import type { CallRecord, CallSink } from '../telemetry/call-record.js';
import type { Log } from '../telemetry/log.js';
import type { PlainCall } from '../telemetry/call-ring-reader.js';
import { BlockBuilder } from './block-builder.js';
import type { SlotNames } from './block-names.js';
import { type Block, SEGMENT_START } from './call-block.js';
import type { CallRetention } from './segment-files.js';
import { SegmentIndex } from './segment-index.js';
import { SegmentWriter } from './segment-writer.js';

interface CallWriterOptions {
  readonly folder: string;
  readonly retention: CallRetention;
  /** Without it `appendPlain` throws. */
  readonly names?: SlotNames;
  readonly clock: Clock;
  readonly log: Log;
}

/** The segment that a writer appends to. */
export interface GrowingSegment {
  readonly number: number;
  /** How many bytes are written. All their calls are in the index. */
  readonly bytes: number;
  readonly index: SegmentIndex;
}

export class CallWriter implements CallSink {
  readonly #builder: BlockBuilder;
  /** The index of the segment that was begun last: SegmentWriter asks for one as it begins each segment. */
  #index = new SegmentIndex();
  readonly #segments: SegmentWriter<Block>;

  constructor({ folder, retention, names, clock, log }: CallWriterOptions) {
    const builder = (this.#builder = new BlockBuilder(names));
    this.#segments = new SegmentWriter<Block>({
      folder,
      kind: 'calls',
      start: SEGMENT_START,
      newIndex: () => (this.#index = new SegmentIndex()),
      retention,
      clock,
      log,
      take: () => (builder.count === 0 ? undefined : builder.take()),
    });
  }

  /** How many calls could not be written since the start. */
  get dropped(): number {
    return this.#segments.dropped;
  }

  /** The segment that is being written, if any. A reader in this thread uses its index. */
  get growing(): GrowingSegment | undefined {
    const { open } = this.#segments;
    return open && { ...open, index: this.#index };
  }

  /** Takes over the bounds of a reload, and removes what exceeds them. */
  apply(retention: CallRetention): void {
    this.#segments.apply(retention);
  }

  append(call: CallRecord): void {
    if (this.#builder.isFull) this.flush();
    this.#builder.add(call);
    this.#segments.flushLater();
  }

  /**
   * To be called before plain calls are taken out of their rings, because the slots of accounts, keys, groups
   * and upstreams may have new names.
   */
  forgetSlots(): void {
    this.#builder.forgetSlots();
  }

  /** As `append`, for a plain call of the listener of that index. */
  appendPlain(call: PlainCall, listener: number): void {
    if (this.#builder.isFull) this.flush();
    this.#builder.addPlain(call, listener);
    this.#segments.flushLater();
  }

  /** Writes what was appended, unless the disk fails. Never throws. */
  flush(): void {
    this.#segments.flush();
  }

  /** Flushes, and ends the segment. Called once, last. */
  close(): void {
    this.#segments.close();
  }
}
