/**
 * Appends the records of calls to segments. gateway/gateway-logs.ts owns a CallWriter, on the main thread of
 * a gateway process.
 *
 * Must hold: a call is in the file a second after it was appended, so that a killed process loses only that
 * second (test/unit/call-log/call-log.test.ts, test/durability/call-log.test.ts). segment-writer.ts flushes
 * in time, and says what a power cut or a failing disk costs.
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
  /** Looks up the names of plain calls. Without `names`, `appendPlain` throws. */
  readonly names?: SlotNames;
  readonly clock: Clock;
  readonly log: Log;
}

/** The segment that a writer appends to. */
export interface GrowingSegment {
  readonly number: number;
  /** How many bytes of the segment are written. The index has all calls in these bytes. */
  readonly bytes: number;
  readonly index: SegmentIndex;
}

export class CallWriter implements CallSink {
  readonly #builder: BlockBuilder;
  /** The index of the newest segment. SegmentWriter asks for a new index (`newIndex`) at each new segment. */
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

  /** The segment that is being written; undefined without one. A reader in this thread uses its index. */
  get growing(): GrowingSegment | undefined {
    const { openSegment } = this.#segments;
    return openSegment && { ...openSegment, index: this.#index };
  }

  /** Takes over the bounds of a reload, and removes segments that exceed them. */
  apply(retention: CallRetention): void {
    this.#segments.applyRetention(retention);
  }

  append(call: CallRecord): void {
    // Full blocks are written at once, because BlockBuilder has no space for one more call.
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

  /** Appends a plain call of the listener of that index. */
  appendPlain(call: PlainCall, listener: number): void {
    if (this.#builder.isFull) this.flush();
    this.#builder.addPlain(call, listener);
    this.#segments.flushLater();
  }

  /** Writes what was appended, unless the disk fails. Never throws. */
  flush(): void {
    this.#segments.flush();
  }

  /** Flushes, and ends the segment. To be called once, as the last method. */
  close(): void {
    this.#segments.close();
  }
}
