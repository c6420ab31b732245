/**
 * One call over HTTP/1.1: its handler, its deadlines, its pauses and its abort. Http1Client makes it, the
 * pool gives it a connection, and the connection reports to it (PooledCall). Upstream worker.
 *
 * Must hold: the handler gets onStart, any number of onData, then onEnd or onError; onError alone is
 * possible; nothing after `abort` (test/unit/http1/client.test.ts). The connection keeps that order, and
 * reports nothing once it is destroyed. `pause` comes after onStart: all pauses begin in
 * upstream/chat-session.ts, which has relayed bytes then. Earlier, `pause` would not stop the connection, and
 * `resume` would replace the deadline of the first byte.
 */
import type { Clock } from '../core/clock.js';
import { HELD_UP_MS_MAX, HELD_UP_MS_MIN, HELD_UP_MS_REMEMBERED } from '../core/limits.js';
import type { SlotList } from '../core/slot-list.js';
import type { MonotonicMs } from '../core/units.js';
import type { HttpTarget, HttpCall, HttpFault, HttpHandler } from './http-client.js';
import type { ConnectionError, Http1Connection } from './connection.js';
import type { ResponseHead } from './head.js';
import type { Http1Pool, PooledCall } from './pool.js';

type TimeoutCode =
  | 'TIMEOUT_CONNECT'
  | 'TIMEOUT_QUEUE'
  | 'TIMEOUT_FIRST_BYTE'
  | 'TIMEOUT_IDLE'
  | 'TIMEOUT_TOTAL'
  | 'TIMEOUT_HELD_UP';

/** `head` has only what http1/client.ts found sendable, and ends with an empty line. */
interface Http1Request {
  readonly head: string;
  readonly body: string | Uint8Array;
  /** Each character of head and body is one byte. */
  readonly isAscii: boolean;
}

export class Http1Call implements HttpCall, PooledCall {
  readonly #target: HttpTarget;
  readonly #handler: HttpHandler;
  readonly #clock: Clock;
  /** All calls that run: in each sweep the client calls `expire` of each. */
  readonly #calls: SlotList<Http1Call>;
  #slot: number | undefined;
  // Links of the pool's WaitQueue, which alone sets them.
  isWaiting = false;
  previous: PooledCall | undefined;
  next: PooledCall | undefined;
  /** Monotonic, as all times here. Pauses do not count: each moves the deadline by its length. */
  #totalDeadlineMs: number;
  /** When the call fails with the code `#waitsFor`. While the call is paused it bounds the pause. */
  #deadlineMs: number;
  #waitsFor: TimeoutCode = 'TIMEOUT_CONNECT';
  /** Undefined once it is sent. */
  #request: Http1Request | undefined;
  #pool: Http1Pool | undefined;
  #connection: Http1Connection | undefined;
  #paused = false;
  #pausedAtMs = 0;
  #resumedAtMs = 0;
  /** Sum of the pauses that are over. */
  #pausedMs = 0;
  /** The pauses, less the time for which the stream has run between them: see HELD_UP_MS_MIN. */
  #heldUpMs = 0;
  /** The call has ended, failed or was aborted: its handler is not called any more. */
  #isOver = false;
  #hasHead = false;
  #sent = false;

  constructor(target: HttpTarget, handler: HttpHandler, clock: Clock, calls: SlotList<Http1Call>) {
    this.#target = target;
    this.#handler = handler;
    this.#clock = clock;
    this.#calls = calls;
    const nowMs = clock.monotonicMs();
    this.#totalDeadlineMs = nowMs + target.totalTimeoutMs;
    this.#deadlineMs = nowMs + target.connectTimeoutMs;
  }

  get sent(): boolean {
    return this.#sent;
  }

  get isHeldUp(): boolean {
    const heldUpMs = this.#paused
      ? this.#heldUpMs + this.#clock.monotonicMs() - this.#pausedAtMs
      : this.#heldUpMsLeft();
    return heldUpMs >= HELD_UP_MS_MIN;
  }

  /** Once, by Http1Client. */
  dispatch(pool: Http1Pool, request: Http1Request): void {
    this.#slot = this.#calls.add(this);
    this.#pool = pool;
    this.#request = request;
    pool.enqueue(this);
  }

  /** Instead of `dispatch`: the call fails once `start` has returned. */
  reject(error: ConnectionError): void {
    queueMicrotask(() => this.onConnectionError(error, false));
  }

  pause(): void {
    if (this.#paused || this.#isOver) return;
    this.#paused = true;
    this.#heldUpMs = this.#heldUpMsLeft();
    this.#pausedAtMs = this.#wait('TIMEOUT_HELD_UP', HELD_UP_MS_MAX - this.#pausedMs);
    if (this.#hasHead) this.#connection!.pause();
  }

  resume(): void {
    if (!this.#paused || this.#isOver) return;
    this.#paused = false;
    this.#resumedAtMs = this.#wait('TIMEOUT_IDLE', this.#target.idleTimeoutMs);
    const pausedMs = this.#resumedAtMs - this.#pausedAtMs;
    this.#pausedMs += pausedMs;
    this.#totalDeadlineMs += pausedMs;
    this.#heldUpMs = Math.min(HELD_UP_MS_REMEMBERED, this.#heldUpMs + pausedMs);
    if (this.#hasHead) this.#connection!.resume();
  }

  abort(): void {
    if (this.#isOver) return;
    this.#finish();
    this.#pool?.forget(this);
    this.#connection?.destroy();
  }

  /** Ends the call if one of its deadlines has passed. Each sweep of the client calls it, once dispatched. */
  expire(nowMs: MonotonicMs): void {
    if (nowMs >= this.#totalDeadlineMs && !this.#paused) this.#timeOut('TIMEOUT_TOTAL');
    else if (nowMs >= this.#deadlineMs) this.#timeOut(this.#isQueued ? 'TIMEOUT_QUEUE' : this.#waitsFor);
  }

  /** Once: the pool has taken the call out of its queue, and an ended call is no longer in that. */
  sendOn(connection: Http1Connection): void {
    const { head, body, isAscii } = this.#request!;
    this.#request = undefined;
    this.#connection = connection;
    this.#sent = true;
    this.#wait('TIMEOUT_FIRST_BYTE', this.#target.firstByteTimeoutMs);
    connection.send(this, head, body, isAscii);
  }

  onHead(head: ResponseHead): void {
    this.#hasHead = true;
    this.#wait('TIMEOUT_IDLE', this.#target.idleTimeoutMs);
    this.#handler.onStart(head.status, (name) => head.header(name));
  }

  onBody(bytes: Buffer): void {
    if (!this.#paused) this.#wait('TIMEOUT_IDLE', this.#target.idleTimeoutMs);
    this.#handler.onData(bytes);
  }

  onEnd(): void {
    if (this.#isOver) return;
    this.#finish();
    this.#handler.onEnd();
  }

  onConnectionError({ code, message }: ConnectionError, wasDead: boolean): void {
    this.#fail({ code, message, repeatable: !this.#sent || wasDead });
  }

  /** Whether the call waits because the pool's connections all carry other calls. */
  get #isQueued(): boolean {
    return !this.#sent && this.#pool!.isFull;
  }

  /** The handler is told before `destroy`, which lets the pool go on with other calls. */
  #timeOut(code: TimeoutCode): void {
    const connection = this.#connection;
    this.#pool?.forget(this);
    this.#fail({ code, message: 'timed out', repeatable: !this.#sent });
    connection?.destroy();
  }

  #fail(error: HttpFault): void {
    if (this.#isOver) return;
    this.#finish();
    this.#handler.onError(error);
  }

  /** Makes the call fail with `code` in `ms`, unless it is called again. Returns the current time. */
  #wait(code: TimeoutCode, ms: number): number {
    const nowMs = this.#clock.monotonicMs();
    this.#waitsFor = code;
    this.#deadlineMs = nowMs + ms;
    return nowMs;
  }

  /**
   * Returns `#heldUpMs`, less the time for which the stream has run since the last pause. To be called while
   * it is not paused. Only the time up to its last byte counts as running, because a provider that gave up
   * during the pause is silent too. That byte, or `resume`, has set the deadline.
   */
  #heldUpMsLeft(): number {
    if (this.#heldUpMs === 0) return 0;
    const lastByteMs = this.#deadlineMs - this.#target.idleTimeoutMs;
    return Math.max(0, this.#heldUpMs - (lastByteMs - this.#resumedAtMs));
  }

  #finish(): void {
    this.#isOver = true;
    this.#request = undefined;
    if (this.#slot !== undefined) this.#calls.remove(this.#slot);
  }
}
