/**
 * The listener's side of the link: call slots, choice of a worker, and what the workers send back. Listener thread.
 *
 * Each listener owns a range of call slots and hands them out itself, so no slot is ever contended. A slot is taken
 * before admission (the ledger keeps the call's reservation under the same index) and is free again when the worker's
 * last frame for it has been seen, or its worker has died, and the client has taken the response.
 */
import { invariant, type ErrorRecord } from '../core/errors.js';
import { asCallSlot, type CallSlot } from '../core/units.js';
import type { Usage } from '../protocol/usage.js';
import type { CallTable } from './call-table.js';
import { FramePort, type FrameChannel } from './frame-port.js';
import {
  CALL_GENERATION,
  FRAME_CALL,
  FRAME_CANCEL,
  FRAME_CREDIT,
  FRAME_CUT,
  FRAME_DATA,
  FRAME_END,
  FRAME_FAIL,
  slotOfCall,
  usageOfFrame,
  type CallFrame,
  type CallId,
  type CutFrame,
  type DataFrame,
  type EndFrame,
  type Frame,
  type UpstreamRequest,
} from './messages.js';

/**
 * Who gets a call's answer. Exactly one of onEnd, onCut and onFail is called, last. They return whether the call's slot is free
 * again; where not, because the client has not taken the response yet, the receiver gives it back by `release`.
 */
export interface CallReceiver {
  /**
   * `bytes` are of shared memory and valid during the call only, or with `more` until the next: it says that the next frame of the call
   * is here too, whose onData, onEnd, onCut or onFail follows at once.
   */
  onData(bytes: Uint8Array, more: boolean): void;
  /** `bytes` as in `onData`. */
  onEnd(bytes: Uint8Array, usage: Usage, upstreamWaitMs: number): boolean;
  /** The rest of the stream will not come; it is billed up to here. */
  onCut(usage: Usage, upstreamWaitMs: number): boolean;
  onFail(error: ErrorRecord): boolean;
}

/** The slots `first` to `first + count - 1` belong to this listener. */
export interface SlotRange {
  readonly first: number;
  readonly count: number;
}

interface WorkerEnd {
  readonly port: FramePort;
  inFlight: number;
}

interface OpenCall {
  readonly id: CallId;
  readonly worker: WorkerEnd;
  readonly receiver: CallReceiver;
}

const WORKER_DIED: ErrorRecord = {
  code: 'internal_error',
  message: 'The gateway lost the worker that served this call. The call was not billed; try it again.',
};

export class ListenerChannel {
  readonly #table: CallTable;
  readonly #range: SlotRange;
  readonly #freeSlots: Int32Array;
  #freeCount: number;
  readonly #generations: Float64Array;
  readonly #calls: (OpenCall | undefined)[];
  readonly #workers = new Map<number, WorkerEnd>();

  constructor(table: CallTable, range: SlotRange) {
    this.#table = table;
    this.#range = range;
    // Handed out from the low end, so a quiet gateway touches few pages of the shared buffers.
    this.#freeSlots = Int32Array.from({ length: range.count }, (_, i) => range.first + range.count - 1 - i);
    this.#freeCount = range.count;
    this.#generations = new Float64Array(range.count);
    this.#calls = new Array<OpenCall | undefined>(range.count).fill(undefined);
  }

  /** Slots in use: calls between admission and their worker's last frame. */
  get inFlight(): number {
    return this.#range.count - this.#freeCount;
  }

  /** A worker is there, or a new one in the place of one that died, whose calls then fail. */
  attachWorker(index: number, channel: FrameChannel): void {
    this.detachWorker(index);
    const worker: WorkerEnd = {
      port: new FramePort(channel, (frames) => {
        for (let at = 0; at < frames.length; at++) {
          this.#receive(frames[at]!, frames[at + 1]?.[1] === frames[at]![1]);
        }
      }),
      inFlight: 0,
    };
    this.#workers.set(index, worker);
  }

  /** The worker is gone: each of its calls ends as `internal_error`, every other call goes on. */
  detachWorker(index: number): void {
    const worker = this.#workers.get(index);
    if (worker === undefined) return;
    this.#workers.delete(index);
    worker.port.close();
    for (const call of this.#calls) {
      if (call?.worker === worker) {
        this.#finish(call, call.receiver.onFail(WORKER_DIED));
      }
    }
  }

  /** A slot for a new call; undefined where all are taken, which is an overload. */
  acquire(): CallSlot | undefined {
    if (this.#freeCount === 0) return undefined;
    this.#freeCount -= 1;
    const slot = asCallSlot(this.#freeSlots[this.#freeCount]!);
    this.#table.forgetUpstream(slot);
    return slot;
  }

  /** Where the call of a slot went last, by the upstream's slot among the metrics; until the slot is acquired again. */
  upstreamOf(slot: CallSlot): number | undefined {
    return this.#table.upstreamOf(slot);
  }

  /** Gives back a slot that was never dispatched, or whose receiver kept it beyond the call. */
  release(slot: CallSlot): void {
    this.#freeSlots[this.#freeCount] = slot;
    this.#freeCount += 1;
  }

  /** Sends the call, and with it its `largeBody`, to the worker with the fewest calls in flight. False where no worker is there. */
  dispatch(slot: CallSlot, request: UpstreamRequest, receiver: CallReceiver): boolean {
    const worker = this.#leastLoadedWorker();
    if (worker === undefined) return false;
    const local = slot - this.#range.first;
    invariant(this.#calls[local] === undefined, 'a call slot carries one call');
    const generation = (this.#generations[local]! += 1);
    const id: CallId = generation * CALL_GENERATION + slot;
    this.#table.open(slot, this.inFlight);
    this.#calls[local] = { id, worker, receiver };
    worker.inFlight += 1;
    const frame: CallFrame = [
      FRAME_CALL,
      id,
      request.requestId,
      request.modelIndex,
      request.stream,
      request.includeUsage,
      request.modelStart,
      request.modelEnd,
      request.body,
      request.bodyIsAscii,
      request.largeBody,
      request.trace,
      request.account,
      request.outputTokensMax,
      request.choices,
    ];
    worker.port.push(frame);
    return true;
  }

  /** The client has gone: the worker aborts its upstream, then sends the last frame as always. */
  cancel(slot: CallSlot): void {
    const call = this.#calls[slot - this.#range.first];
    if (call === undefined) return;
    this.#table.cancel(slot);
    call.worker.port.push([FRAME_CANCEL, call.id]);
  }

  /** `bytes` of the call's answer have left for the client. */
  refund(slot: CallSlot, bytes: number): void {
    const call = this.#calls[slot - this.#range.first];
    if (call !== undefined && this.#table.refund(slot, bytes)) call.worker.port.push([FRAME_CREDIT, call.id]);
  }

  close(): void {
    for (const worker of this.#workers.values()) worker.port.close();
    this.#workers.clear();
  }

  #leastLoadedWorker(): WorkerEnd | undefined {
    let least: WorkerEnd | undefined;
    for (const worker of this.#workers.values()) {
      if (least === undefined || worker.inFlight < least.inFlight) least = worker;
    }
    return least;
  }

  #receive(frame: Frame, more: boolean): void {
    const id = frame[1] as CallId;
    const call = this.#calls[slotOfCall(id) - this.#range.first];
    // A frame of a call whose worker was given up, or which has ended: its number names another generation.
    if (call?.id !== id) return;
    switch (frame[0]) {
      case FRAME_DATA:
        call.receiver.onData((frame as DataFrame)[2], more);
        return;
      case FRAME_END: {
        const end = frame as EndFrame;
        this.#finish(call, call.receiver.onEnd(end[2], usageOfFrame(end[3]), end[4]));
        return;
      }
      case FRAME_CUT: {
        const cut = frame as CutFrame;
        this.#finish(call, call.receiver.onCut(usageOfFrame(cut[2]), cut[3]));
        return;
      }
      case FRAME_FAIL:
        this.#finish(call, call.receiver.onFail(frame[2] as ErrorRecord));
        return;
      default:
        invariant(false, `a worker sends data, end, cut or fail, not kind ${String(frame[0])}`);
    }
  }

  #finish(call: OpenCall, slotIsFree: boolean): void {
    const slot = slotOfCall(call.id);
    this.#calls[slot - this.#range.first] = undefined;
    call.worker.inFlight -= 1;
    if (slotIsFree) this.release(slot);
  }
}
