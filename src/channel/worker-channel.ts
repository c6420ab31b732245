/**
 * The worker's side of the link to one listener: turns Call frames into sessions and what a session says into frames.
 * Upstream worker.
 */
import { invariant, type ErrorRecord } from '../core/errors.js';
import type { CallSlot } from '../core/units.js';
import type { Usage } from '../protocol/usage.js';
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
  frameOfUsage,
  slotOfCall,
  type CallFrame,
  type CallId,
  type CutFrame,
  type DataFrame,
  type EndFrame,
  type Frame,
  type DownstreamHandle,
  type StartSession,
  type UpstreamSession,
} from './messages.js';

export class WorkerChannel {
  readonly #table: CallTable;
  readonly #port: FramePort;
  readonly #startSession: StartSession;
  readonly #sessions: SessionTable;

  constructor(channel: FrameChannel, table: CallTable, startSession: StartSession) {
    this.#table = table;
    this.#startSession = startSession;
    this.#sessions = new SessionTable(table.slots);
    this.#port = new FramePort(channel, (frames) => {
      for (const frame of frames) this.#receive(frame);
    });
    // The listener has gone: nobody is left to read the responses of its calls.
    channel.port.on('close', () => this.cancelAll());
  }

  get inFlight(): number {
    return this.#sessions.size;
  }

  cancelAll(): void {
    for (const session of this.#sessions.all()) session.onCancel();
  }

  close(): void {
    this.#port.close();
  }

  #receive(frame: Frame): void {
    const id = frame[1] as CallId;
    switch (frame[0]) {
      case FRAME_CALL:
        this.#start(frame as CallFrame);
        return;
      case FRAME_CANCEL:
        this.#sessions.get(id)?.onCancel();
        return;
      case FRAME_CREDIT:
        this.#sessions.get(id)?.onCredit();
        return;
      default:
        invariant(false, `a listener sends call, cancel or credit, not kind ${String(frame[0])}`);
    }
  }

  #start(frame: CallFrame): void {
    const id = frame[1];
    const downstream = new SessionHandle(id, this.#table, this.#port, this.#sessions);
    const session = this.#startSession(
      {
        requestId: frame[2],
        modelIndex: frame[3],
        stream: frame[4],
        includeUsage: frame[5],
        modelStart: frame[6],
        modelEnd: frame[7],
        body: frame[8],
        bodyIsAscii: frame[9],
        largeBody: frame[10],
        trace: frame[11],
        account: frame[12],
        outputTokensMax: frame[13],
        choices: frame[14],
      },
      downstream,
    );
    if (!downstream.ended) this.#sessions.add(id, session);
  }
}

/** By the slot of their call. Arrays in place of a Map for what comes and goes so often, see core/slot-list. */
class SessionTable {
  readonly #sessions: (UpstreamSession | undefined)[];
  /** Of the call whose session stands in a slot, or stood there last. */
  readonly #ids: Float64Array;
  #size = 0;

  constructor(slots: number) {
    this.#sessions = new Array<undefined>(slots).fill(undefined);
    this.#ids = new Float64Array(slots);
  }

  get size(): number {
    return this.#size;
  }

  get(id: CallId): UpstreamSession | undefined {
    const slot = slotOfCall(id);
    return this.#ids[slot] === id ? this.#sessions[slot] : undefined;
  }

  all(): UpstreamSession[] {
    return this.#sessions.filter((session) => session !== undefined);
  }

  add(id: CallId, session: UpstreamSession): void {
    const slot = slotOfCall(id);
    this.#ids[slot] = id;
    this.#sessions[slot] = session;
    this.#size++;
  }

  /** Nothing where the call was over before it was added. */
  remove(id: CallId): void {
    if (this.get(id) === undefined) return;
    this.#sessions[slotOfCall(id)] = undefined;
    this.#size--;
  }
}

/** What a session holds of its call; asserts that the last word is said once. */
class SessionHandle implements DownstreamHandle {
  readonly #id: CallId;
  readonly #slot: CallSlot;
  readonly #table: CallTable;
  readonly #port: FramePort;
  readonly #sessions: SessionTable;
  ended = false;

  constructor(id: CallId, table: CallTable, port: FramePort, sessions: SessionTable) {
    this.#id = id;
    this.#slot = slotOfCall(id);
    this.#table = table;
    this.#port = port;
    this.#sessions = sessions;
  }

  data(bytes: Uint8Array): boolean {
    invariant(!this.ended, 'no data after the end of a call');
    // A client that has gone reads nothing more; its Cancel frame is on the way.
    if (this.#table.isCancelled(this.#slot)) return true;
    this.#port.push([FRAME_DATA, this.#id, bytes] satisfies DataFrame);
    return this.#table.spend(this.#slot, bytes.length);
  }

  noteUpstream(upstreamSlot: number): void {
    this.#table.noteUpstream(this.#slot, upstreamSlot);
  }

  end(bytes: Uint8Array, usage: Usage, upstreamWaitMs: number): void {
    this.#finish([FRAME_END, this.#id, bytes, frameOfUsage(usage), upstreamWaitMs] satisfies EndFrame);
  }

  cut(usage: Usage, upstreamWaitMs: number): void {
    this.#finish([FRAME_CUT, this.#id, frameOfUsage(usage), upstreamWaitMs] satisfies CutFrame);
  }

  fail(error: ErrorRecord): void {
    this.#finish([FRAME_FAIL, this.#id, error]);
  }

  #finish(frame: Frame): void {
    invariant(!this.ended, 'a call ends once');
    this.ended = true;
    this.#sessions.remove(this.#id);
    this.#port.push(frame);
  }
}
