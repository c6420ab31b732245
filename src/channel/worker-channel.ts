/**
 * The worker's side of the channel to one listener: it starts a session for each Call frame, and sends the
 * session's output as frames. upstream/upstream-task.ts makes one for each listener. Upstream worker.
 *
 * Must hold: each session ends its call once. SessionHandle asserts that no session ends its call twice. No
 * code notices a missing end, for which the listener waits for ever (test/unit/channel/link.test.ts).
 */
import { invariant, type ErrorRecord } from '../core/errors.js';
import type { CallSlot, MonotonicMs } from '../core/units.js';
import type { Usage } from '../core/token-counts.js';
import type { WorkerCallTable } from './call-table.js';
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
  type CallFrame,
  type DownstreamHandle,
  type ListenerFrame,
  type StartSession,
  type TriedAttempt,
  type UpstreamSession,
  type WorkerFrame,
} from './messages.js';
import { OpenCalls, slotOfCall, type CallId } from './open-calls.js';

const EMPTY = new Uint8Array(0);

export class WorkerChannel {
  readonly #table: WorkerCallTable;
  readonly #port: FramePort<WorkerFrame, ListenerFrame>;
  readonly #startSession: StartSession;
  readonly #sessions: OpenCalls<UpstreamSession>;

  constructor(channel: FrameChannel, table: WorkerCallTable, startSession: StartSession) {
    this.#table = table;
    this.#startSession = startSession;
    // Over the slots of all listeners, because the range of this listener is not known here.
    this.#sessions = new OpenCalls(0, table.slots);
    this.#port = new FramePort(channel, (frame) => this.#receive(frame));
    // The event comes if the listener has died. After our own `close` nothing is left to cancel.
    channel.port.on('close', () => this.cancelAll());
  }

  /** Aborts all calls, because the listener has died or been replaced, or the worker ends. Idempotent. */
  cancelAll(): void {
    // Sessions may end their calls, and so remove themselves, within the loop: `all` returns a copy.
    for (const session of this.#sessions.all()) notify(session, 'onStop');
  }

  /** Called as the thread ends, after `cancelAll`. Sends the frames that are still queued. */
  close(): void {
    this.#port.close();
  }

  /** Ignores a frame that was sent before the last frame of its call had arrived. */
  #receive(frame: ListenerFrame): void {
    switch (frame.kind) {
      case FRAME_CALL:
        this.#start(frame);
        return;
      case FRAME_CANCEL:
        notify(this.#sessions.get(frame.id), 'onCancel');
        return;
      case FRAME_STOP:
        notify(this.#sessions.get(frame.id), 'onStop');
        return;
      case FRAME_CREDIT:
        notify(this.#sessions.get(frame.id), 'onCredit');
        return;
      default:
        frame satisfies never;
    }
  }

  #start({ id, request }: CallFrame): void {
    const downstream = new SessionHandle(id, this.#table, this.#port, this.#sessions);
    // Without `try`: a StartSession does not throw (`guarded` of upstream/session-shared.ts).
    const session = this.#startSession(request, downstream);
    // A session may end its call at once.
    if (!downstream.isEnded) this.#sessions.add(id, session);
  }
}

/**
 * Calls one method of a session; does nothing without a session, as when the call is not open. An exception
 * is a bug, which `crash` turns into the end of that call alone. An exception of `crash` itself ends the
 * worker with all its calls.
 */
function notify(session: UpstreamSession | undefined, method: 'onCancel' | 'onStop' | 'onCredit'): void {
  try {
    session?.[method]();
  } catch (error) {
    session?.crash(error);
  }
}

/** Sends the output of one session, and asserts that the session does not end its call twice. */
class SessionHandle implements DownstreamHandle {
  readonly #id: CallId;
  readonly #slot: CallSlot;
  readonly #table: WorkerCallTable;
  readonly #port: FramePort<WorkerFrame, ListenerFrame>;
  readonly #sessions: OpenCalls<UpstreamSession>;
  isEnded = false;

  constructor(
    id: CallId,
    table: WorkerCallTable,
    port: FramePort<WorkerFrame, ListenerFrame>,
    sessions: OpenCalls<UpstreamSession>,
  ) {
    this.#id = id;
    this.#slot = slotOfCall(id);
    this.#table = table;
    this.#port = port;
    this.#sessions = sessions;
  }

  data(bytes: Uint8Array): boolean {
    invariant(!this.isEnded, 'no data after the end of a call');
    // The client has left or the listener has ended; the Cancel frame or the `close` event is still to come.
    // Also true if another call has the slot, so `spend` below only changes the words of this call.
    if (this.#table.isCancelled(this.#id)) return true;
    this.#port.push({ kind: FRAME_DATA, id: this.#id, bytes });
    return this.#table.spend(this.#slot, bytes.length);
  }

  recordUpstream(upstreamSlot: number, fallback: number, nowMs: MonotonicMs): void {
    this.#table.recordUpstream(this.#id, upstreamSlot, fallback, nowMs);
  }

  // Does not check `isEnded`: the listener drops a Tried frame that comes after the end of its call.
  tried(attempt: TriedAttempt): void {
    this.#port.push({ kind: FRAME_TRIED, id: this.#id, attempt });
  }

  recordQueued(queuedMs: number): void {
    this.#table.recordQueued(this.#id, queuedMs);
  }

  end(bytes: Uint8Array, usage: Usage, upstreamWaitMs: number): void {
    this.#finish({ kind: FRAME_END, id: this.#id, bytes, usage, upstreamWaitMs });
  }

  cut(usage: Usage, upstreamWaitMs: number): void {
    this.#finish({ kind: FRAME_CUT, id: this.#id, bytes: EMPTY, usage, upstreamWaitMs });
  }

  fail(error: ErrorRecord): void {
    this.#finish({ kind: FRAME_FAIL, id: this.#id, error });
  }

  #finish(frame: WorkerFrame): void {
    invariant(!this.isEnded, 'a call ends once');
    this.isEnded = true;
    // Does nothing within `startSession`, before the session was added.
    this.#sessions.remove(this.#id);
    this.#port.push(frame);
  }
}
