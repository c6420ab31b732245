/**
 * The worker's side of the channel to one listener: it starts a session for each Call frame, and sends the
 * session's output as frames. upstream/upstream-task.ts makes one for each listener. Upstream worker.
 *
 * Must hold: each session ends its call once, which SessionHandle asserts. If the end does not come, the
 * listener waits for ever (test/unit/channel/link.test.ts).
 */
import { invariant, type ErrorRecord } from '../core/errors.js';
import type { CallSlot, MonotonicMs } from '../core/units.js';
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
  type CallFrame,
  type DownstreamHandle,
  type Frame,
  type StartSession,
  type TriedAttempt,
  type UpstreamSession,
} from './messages.js';
import { OpenCalls, slotOfCall, type CallId } from './open-calls.js';

const EMPTY = new Uint8Array(0);

export class WorkerChannel {
  readonly #table: CallTable;
  readonly #port: FramePort;
  readonly #startSession: StartSession;
  readonly #sessions: OpenCalls<UpstreamSession>;

  constructor(channel: FrameChannel, table: CallTable, startSession: StartSession) {
    this.#table = table;
    this.#startSession = startSession;
    this.#sessions = new OpenCalls(0, table.slots);
    this.#port = new FramePort(channel, (frame) => this.#receive(frame));
    // The listener has died, and with it the clients' connections.
    channel.port.on('close', () => this.cancelAll());
  }

  /** Aborts all calls of the listener, because the listener has died or the worker ends. */
  cancelAll(): void {
    for (const session of this.#sessions.all()) wake(session, 'onCancel', true);
  }

  /** As the thread ends, after `cancelAll`: the frames that were sent still go. */
  close(): void {
    this.#port.close();
  }

  #receive(frame: Frame): void {
    switch (frame.kind) {
      case FRAME_CALL:
        this.#start(frame);
        return;
      case FRAME_CANCEL:
        wake(this.#sessions.get(frame.id), 'onCancel');
        return;
      case FRAME_STOP:
        wake(this.#sessions.get(frame.id), 'onCancel', true);
        return;
      case FRAME_CREDIT:
        wake(this.#sessions.get(frame.id), 'onCredit');
        return;
      default:
        invariant(false, `a listener sends call, cancel, stop or credit, not kind ${frame.kind}`);
    }
  }

  #start({ id, request }: CallFrame): void {
    const downstream = new SessionHandle(id, this.#table, this.#port, this.#sessions);
    const session = this.#startSession(request, downstream);
    // A session may end its call at once.
    if (!downstream.ended) this.#sessions.add(id, session);
  }
}

/** An exception of one session is a bug. It ends that call, and not the worker with all of its calls. */
function wake(session: UpstreamSession | undefined, by: 'onCancel' | 'onCredit', atOnce = false): void {
  try {
    session?.[by](atOnce);
  } catch (error) {
    session?.crash(error);
  }
}

/** Sends the output of one session, and asserts that the session ends once. */
class SessionHandle implements DownstreamHandle {
  readonly #id: CallId;
  readonly #slot: CallSlot;
  readonly #table: CallTable;
  readonly #port: FramePort;
  readonly #sessions: OpenCalls<UpstreamSession>;
  ended = false;

  constructor(id: CallId, table: CallTable, port: FramePort, sessions: OpenCalls<UpstreamSession>) {
    this.#id = id;
    this.#slot = slotOfCall(id);
    this.#table = table;
    this.#port = port;
    this.#sessions = sessions;
  }

  data(bytes: Uint8Array): boolean {
    invariant(!this.ended, 'no data after the end of a call');
    // The client has gone, and the Cancel frame, or the news of the listener's end, is on its way.
    if (this.#table.isCancelled(this.#id)) return true;
    this.#port.push({ kind: FRAME_DATA, id: this.#id, bytes });
    return this.#table.spend(this.#slot, bytes.length);
  }

  recordUpstream(upstreamSlot: number, fallback: number, nowMs: MonotonicMs): void {
    if (this.#table.hasSlot(this.#id)) this.#table.recordUpstream(this.#slot, upstreamSlot, fallback, nowMs);
  }

  tried(attempt: TriedAttempt): void {
    this.#port.push({ kind: FRAME_TRIED, id: this.#id, attempt });
  }

  recordQueued(queuedMs: number): void {
    if (this.#table.hasSlot(this.#id)) this.#table.recordQueued(this.#slot, queuedMs);
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

  #finish(frame: Frame): void {
    invariant(!this.ended, 'a call ends once');
    this.ended = true;
    this.#sessions.remove(this.#id);
    this.#port.push(frame);
  }
}
