/**
 * Appends the records of calls to segments. gateway/gateway-logs.ts has a CallWriter, on the main thread.
 *
 * Must hold: a call is in the file a second after it was appended, so that a killed process loses only that
 * second (test/unit/call-log/call-log.test.ts, test/durability/call-log.test.ts). segment-writer.ts flushes
 * in time, and says what a power cut or a failing disk costs.
 */
import type { CallRecord, CallSink } from '../telemetry/call-record.js';
import type { PlainCall } from '../telemetry/call-ring-reader.js';
import { BlockBuilder } from './block-builder.js';
import type { SlotNames } from './block-names.js';
import { type Block, SEGMENT_START } from './call-block.js';
import { SegmentIndex } from './segment-index.js';
import { SegmentWriter, type SegmentWriterOptions } from './segment-writer.js';

interface CallWriterOptions extends Omit<SegmentWriterOptions, 'kind' | 'start'> {
  /** Looks up the names of plain calls. Without `names`, `appendPlain` throws. */
  readonly names?: SlotNames;
}

/** The segment that a writer appends to. */
export interface GrowingSegment {
  readonly number: number;
  /** How many bytes of the segment are written. The index has all calls in these bytes. */
  readonly bytes: number;
  readonly index: SegmentIndex;
}

export class CallWriter extends SegmentWriter<Block> implements CallSink {
  readonly #builder: BlockBuilder;
  /** The index of the newest segment. */
  #index = new SegmentIndex();

  constructor({ names, ...options }: CallWriterOptions) {
    super({ kind: 'calls', start: SEGMENT_START, ...options });
    this.#builder = new BlockBuilder(names);
  }

  /** The segment that is being written; undefined without one. A reader in this thread uses its index. */
  get growing(): GrowingSegment | undefined {
    const { openSegment } = this;
    return openSegment && { ...openSegment, index: this.#index };
  }

  append(call: CallRecord): void {
    if (!this.#builder.add(call)) {
      // A full block is written at once. `flush` takes it also if the disk fails, so there is space now.
      this.flush();
      this.#builder.add(call);
    }
    this.flushLater();
  }

  /**
   * Call it before plain calls are taken out of their rings, because the slots of accounts, keys, groups
   * and upstreams may have new names.
   */
  forgetSlots(): void {
    this.#builder.forgetSlots();
  }

  /** Appends a plain call of the listener of that index. */
  appendPlain(call: PlainCall, listener: number): void {
    if (!this.#builder.addPlain(call, listener)) {
      this.flush();
      this.#builder.addPlain(call, listener);
    }
    this.flushLater();
  }

  protected take(): Block | undefined {
    return this.#builder.count === 0 ? undefined : this.#builder.take();
  }

  protected newIndex(): SegmentIndex {
    return (this.#index = new SegmentIndex());
  }
}
