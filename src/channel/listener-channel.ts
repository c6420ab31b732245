/**
 * The listener's side of the channels to all workers: hands out call slots, chooses a worker for each call,
 * and receives the workers' frames. request/listener.thread.ts makes one and attaches the workers; admit.ts
 * acquires a slot, delivery.ts dispatches, cancels, refunds and releases, and replay.ts releases. Listener
 * thread.
 *
 * Each listener owns a range of call slots and hands them out itself, so no two threads contend for a slot. A
 * slot is acquired before admission, because the ledger keeps the call's reservation under the same index.
 * The slot is free again once the worker has sent its last frame for the call, or has died, and the client
 * has taken the response. Credits that a worker spends come back by `refund` as the client takes bytes.
 *
 * Must hold: a slot is acquired again only when its call is over for worker and client, and each call's
 * receiver gets one end. Otherwise the ledger settles another call's hold (test/unit/channel/link.test.ts).
 * `release` throws if the slot is free already, or if its worker has not sent the last frame.
 */
import { invariant, type ErrorRecord } from '../core/errors.js';
import { asCallSlot, type CallSlot } from '../core/units.js';
import type { Usage } from '../core/token-counts.js';
import type { CallTable } from './call-table.js';
import { FramePort, type FrameChannel } from './frame-port.js';
import {
  FRAME_CALL,
  FRAME_CANCEL,
  FRAME_CREDIT,
  FRAME_CUT,
  FRAME_DATA,
  FRAME_END,
  FRAME_FAIL,
  FRAME_STOP,
  FRAME_TRIED,
  type ListenerFrame,
  type TriedAttempt,
  type UpstreamRequest,
  type WorkerFrame,
} from './messages.js';
import { OpenCalls, type CallId } from './open-calls.js';

/**
 * Receives a call's response. Exactly one of onEnd, onCut and onFail is called, last. These three return
 * whether the call's slot is free again. They return false while the client has not taken the whole response.
 * Then the receiver calls `release` later, once.
 */
export interface CallReceiver {
  /** An attempt has failed, or has ended after its client had left. */
  onTried(attempt: TriedAttempt): void;
  /**
   * `bytes` are shared memory that the worker writes to again: they are valid until this method returns. With
   * `hasNext` the next frame of the same call has arrived too. The channel then calls the receiver's next
   * method at once, and `bytes` are valid until that method returns.
   */
  onData(bytes: Uint8Array, hasNext: boolean): void;
  /**
   * `bytes` are the last ones, valid as those of `onData`. `upstreamWaitMs`: how long the call waited for its
   * upstreams before the first byte of its response could be sent.
   */
  onEnd(bytes: Uint8Array, usage: Usage, upstreamWaitMs: number): boolean;
  /** The stream has broken off: no more of it comes. The call is billed for the part that came. */
  onCut(usage: Usage, upstreamWaitMs: number): boolean;
  /** The call is not billed. */
  onFail(error: ErrorRecord): boolean;
}

/** The slots `first` to `first + count - 1`, which belong to one listener. */
export interface SlotRange {
  readonly first: number;
  readonly count: number;
}

interface AttachedWorker {
  readonly port: FramePort<ListenerFrame, WorkerFrame>;
  /** Calls of this listener that the worker has not ended. The channel's `inFlight` counts others too. */
  inFlight: number;
}

interface OpenCall {
  readonly id: CallId;
  readonly slot: CallSlot;
  readonly worker: AttachedWorker;
  readonly receiver: CallReceiver;
}

/** How many calls of one event-loop turn the worker in this thread may get. */
const OWN_CALLS_OF_TURN_MAX = 8;

const WORKER_DIED: ErrorRecord = {
  code: 'internal_error',
  message: 'The gateway lost the worker that served this call. The call was not billed; try it again.',
};

export class ListenerChannel {
  /** The words of all calls. What a worker recorded of a call stays until its slot is acquired again. */
  readonly table: CallTable;
  /** A stack. Its first `#freeCount` numbers are the free slots; the others mean nothing. */
  readonly #freeSlots: Int32Array;
  #freeCount: number;
  /** By slot, less the first one: 1 from `acquire` to `release`, else 0. */
  readonly #isTaken: Uint8Array;
  readonly #firstSlot: number;
  readonly #calls: OpenCalls<OpenCall>;
  /** By the worker's index, without `#own`. */
  readonly #workers = new Map<number, AttachedWorker>();
  /** The worker in this thread, if there is one. */
  #own: AttachedWorker | undefined;
  /** How many calls `#own` got in this event-loop turn. */
  #ownCallsOfTurn = 0;
  /** Returns whether this thread has time for a call of `#own`. */
  #hasTime: () => boolean = () => false;
  /** Whether `stopLeftCalls` was called. */
  #isStopping = false;

  constructor(table: CallTable, { first, count }: SlotRange) {
    this.table = table;
    // Slots are handed out from the low end, so a quiet gateway touches few pages of the shared buffers.
    this.#freeSlots = Int32Array.from({ length: count }, (_, index) => first + count - 1 - index);
    this.#freeCount = count;
    this.#isTaken = new Uint8Array(count);
    this.#firstSlot = first;
    this.#calls = new OpenCalls(first, count);
  }

  /** Slots in use: calls from `acquire` until their slot is free again, also those that no worker has. */
  get inFlight(): number {
    return this.#freeSlots.length - this.#freeCount;
  }

  /** Adds the worker of that index. If an earlier worker had the index, its calls fail. */
  attachWorker(index: number, channel: FrameChannel): void {
    this.detachWorker(index);
    this.#workers.set(index, this.#workerOf(channel));
  }

  /**
   * Adds the worker that runs in this thread and ends with it. It gets calls while `hasTime` returns true,
   * and all calls while there is no other worker.
   */
  attachOwnWorker(channel: FrameChannel, hasTime: () => boolean): void {
    this.#own = this.#workerOf(channel);
    this.#hasTime = hasTime;
  }

  /** The worker has died: each of its calls ends as `internal_error`. Idempotent. */
  detachWorker(index: number): void {
    const worker = this.#workers.get(index);
    if (worker === undefined) return;
    this.#workers.delete(index);
    worker.port.close();
    // `all` returns a copy, so `#finish` may remove calls meanwhile.
    for (const call of this.#calls.all())
      if (call.worker === worker) this.#finish(call, call.receiver.onFail(WORKER_DIED));
  }

  /** Returns a slot for a new call, to be released once; undefined if all are taken, which is an overload. */
  acquire(): CallSlot | undefined {
    if (this.#freeCount === 0) return undefined;
    this.#freeCount -= 1;
    const slot = asCallSlot(this.#freeSlots[this.#freeCount]!);
    this.#isTaken[slot - this.#firstSlot] = 1;
    // `begin` clears the slot's words, `open` in `dispatch` sets the credits. The call log reads the words of
    // calls that no worker takes, too: they must not have the upstream of the slot's last call. `nextId`
    // returns the same id in `dispatch`.
    this.table.begin(this.#calls.nextId(slot));
    return slot;
  }

  /**
   * Gives back a slot that was never dispatched, or that its receiver kept beyond the last frame. Call it
   * once: an invariant fails at a second release, which would give the slot to two calls.
   */
  release(slot: CallSlot): void {
    invariant(this.#isTaken[slot - this.#firstSlot] === 1, 'a call slot is released once');
    invariant(this.#calls.at(slot) === undefined, 'a call slot is released after the last frame of its call');
    this.#isTaken[slot - this.#firstSlot] = 0;
    this.#freeSlots[this.#freeCount] = slot;
    this.#freeCount += 1;
  }

  /**
   * Sends the call to the worker in this thread, or to that with the fewest calls in flight. Called once for
   * a slot from `acquire`: an invariant fails if the slot has a call already. False if there is no worker:
   * delivery.ts still has the slot then, and the receiver is not called. `largeBody` goes to the worker's
   * thread at the end of the event-loop turn and is empty here from then on: do not use it after this.
   */
  dispatch(slot: CallSlot, request: UpstreamRequest, receiver: CallReceiver): boolean {
    const worker = this.#isForOwnWorker(request) ? this.#own : (this.#leastLoadedWorker() ?? this.#own);
    if (worker === undefined) return false;
    const id = this.#calls.nextId(slot);
    this.#calls.add(id, { id, slot, worker, receiver });
    // The more calls are in flight, the fewer bytes of this call's response may be under way.
    this.table.open(slot, this.inFlight);
    worker.inFlight += 1;
    worker.port.push({ kind: FRAME_CALL, id, request });
    return true;
  }

  /**
   * The client has left: the worker aborts the upstream, or lets it finish (`when_client_leaves`), and then
   * sends the last frame as always. Does nothing if the worker has sent its last frame.
   */
  cancel(slot: CallSlot): void {
    this.#sendCancel(slot, this.#isStopping ? FRAME_STOP : FRAME_CANCEL);
  }

  /** As `cancel`, but the listener itself has cut the client: the worker aborts the upstream in any case. */
  stop(slot: CallSlot): void {
    this.#sendCancel(slot, FRAME_STOP);
  }

  #sendCancel(slot: CallSlot, kind: typeof FRAME_CANCEL | typeof FRAME_STOP): void {
    const call = this.#calls.at(slot);
    if (call === undefined) return;
    this.table.cancel(call.id);
    call.worker.port.push({ kind, id: call.id });
  }

  /** The listener is about to end: a call whose client has left, or leaves from now on, is aborted. */
  stopLeftCalls(): void {
    this.#isStopping = true;
    for (const { id, worker } of this.#calls.all())
      if (this.table.isCancelled(id)) worker.port.push({ kind: FRAME_STOP, id });
  }

  /** The client's socket has taken `bytes` that `onData` brought. Bytes of an End cost no credits. */
  refund(slot: CallSlot, bytes: number): void {
    const call = this.#calls.at(slot);
    if (call !== undefined && this.table.refund(slot, bytes))
      call.worker.port.push({ kind: FRAME_CREDIT, id: call.id });
  }

  /**
   * Closes the channels to all workers, as this thread ends. Calls no receiver: listener.thread.ts calls this
   * after its server has cut the calls. A worker cancels the open calls of a listener that has ended.
   */
  close(): void {
    for (const worker of this.#workers.values()) worker.port.close();
    this.#workers.clear();
    this.#own?.port.close();
    this.#own = undefined;
  }

  #workerOf(channel: FrameChannel): AttachedWorker {
    return { port: new FramePort(channel, (frame, hasNext) => this.#receive(frame, hasNext)), inFlight: 0 };
  }

  /**
   * `hasTime` tells the load of a moment ago, so of many calls at once the worker in this thread gets only a
   * few. It gets no large bodies, which would delay other calls.
   */
  #isForOwnWorker({ largeBody }: UpstreamRequest): boolean {
    if (this.#own === undefined || largeBody !== undefined) return false;
    if (this.#own.port.isFlushed) this.#ownCallsOfTurn = 0;
    if (this.#ownCallsOfTurn === OWN_CALLS_OF_TURN_MAX || !this.#hasTime()) return false;
    this.#ownCallsOfTurn += 1;
    return true;
  }

  #leastLoadedWorker(): AttachedWorker | undefined {
    let leastLoaded: AttachedWorker | undefined;
    for (const worker of this.#workers.values()) {
      if (leastLoaded === undefined || worker.inFlight < leastLoaded.inFlight) leastLoaded = worker;
    }
    return leastLoaded;
  }

  #receive(frame: WorkerFrame, hasNext: boolean): void {
    const call = this.#calls.get(frame.id);
    // The call's worker was detached, or the call has ended.
    if (call === undefined) return;
    const { receiver } = call;
    switch (frame.kind) {
      case FRAME_DATA:
        receiver.onData(frame.bytes, hasNext);
        return;
      case FRAME_END:
        this.#finish(call, receiver.onEnd(frame.bytes, frame.usage, frame.upstreamWaitMs));
        return;
      case FRAME_CUT:
        this.#finish(call, receiver.onCut(frame.usage, frame.upstreamWaitMs));
        return;
      case FRAME_TRIED:
        receiver.onTried(frame.attempt);
        return;
      case FRAME_FAIL:
        this.#finish(call, receiver.onFail(frame.error));
        return;
      default:
        frame satisfies never;
    }
  }

  /** `isSlotFree`: what the receiver's last method has returned. */
  #finish({ id, slot, worker }: OpenCall, isSlotFree: boolean): void {
    this.#calls.remove(id);
    worker.inFlight -= 1;
    if (isSlotFree) this.release(slot);
  }
}
