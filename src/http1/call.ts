/**
 * One call, here a request to an upstream: its handler, its deadlines, its pauses and its abort. client.ts
 * makes the call, pool.ts gives it a connection, connection.ts reports to it (PooledCall). Upstream worker.
 *
 * Must hold (test/unit/http1/client.test.ts):
 * - The handler gets onStart, any number of onData, then onEnd or onError; onError alone is possible; nothing
 *   comes after `abort`. The connection keeps this order, and reports nothing once it is destroyed.
 * - `pause` comes after onStart, or it throws: before, there may be no connection to stop, and `resume` would
 *   replace the first byte's deadline. All pauses begin in upstream/chat-session.ts, which has relayed bytes.
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { HELD_UP_MS_MAX, HELD_UP_MS_MIN, HELD_UP_MS_REMEMBERED } from '../core/limits.js';
import type { SlotArray } from '../core/slot-array.js';
import type { MonotonicMs } from '../core/units.js';
import type { HttpTarget, HttpCall, HttpFault, HttpHandler } from './http-client.js';
import type { ConnectionError, Http1Connection } from './connection.js';
import type { ResponseHead } from './head.js';
import type { Http1Pool, PooledCall } from './pool.js';

/**
 * How long a response may take to end once nobody needs what still comes. Some servers keep a stream open
 * after `[DONE]`: by then a new connection costs less than one of `connectionsMax` that stands still.
 */
const DRAIN_MS_MAX = 1_000;

export type TimeoutCode =
  | 'TIMEOUT_CONNECT'
  | 'TIMEOUT_QUEUE'
  | 'TIMEOUT_FIRST_BYTE'
  | 'TIMEOUT_IDLE'
  | 'TIMEOUT_TOTAL'
  | 'TIMEOUT_HELD_UP';

/** `head` has only what client.ts found sendable, and ends with an empty line. */
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
  /** All calls of the client that run. Its sweeps call `expire` of each. */
  readonly #calls: SlotArray<Http1Call>;
  /** This call's slot in `#calls`; undefined before `dispatch`, and for a call that was rejected. */
  #slot: number | undefined;
  // Links of the WaitQueue (pool.ts), which alone sets them.
  isWaiting = false;
  previous: PooledCall | undefined;
  next: PooledCall | undefined;
  /** Monotonic, as all times here. Pauses do not count: each moves the deadline by its length. */
  #totalDeadlineMs: number;
  /** When the call fails with `#deadlineCode`. While the call is paused, a pause ends then at the latest. */
  #deadlineMs: number;
  #deadlineCode: TimeoutCode = 'TIMEOUT_CONNECT';
  /** Set from `dispatch` until the request is sent or the call is over. */
  #request: Http1Request | undefined;
  #pool: Http1Pool | undefined;
  #connection: Http1Connection | undefined;
  #isPaused = false;
  #pausedAtMs = 0;
  #resumedAtMs = 0;
  /** Sum of the pauses that are over. */
  #pausedMs = 0;
  /** The pauses, less the time for which the stream has run between the pauses: see HELD_UP_MS_MIN. */
  #heldUpMs = 0;
  /** The call has ended, failed or was aborted: its handler is not called any more. */
  #isOver = false;
  #hasHead = false;
  #wasSent = false;

  constructor(target: HttpTarget, handler: HttpHandler, clock: Clock, calls: SlotArray<Http1Call>) {
    this.#target = target;
    this.#handler = handler;
    this.#clock = clock;
    this.#calls = calls;
    const nowMs = clock.monotonicMs();
    this.#totalDeadlineMs = nowMs + target.totalTimeoutMs;
    this.#deadlineMs = nowMs + target.connectTimeoutMs;
  }

  get sent(): boolean {
    return this.#wasSent;
  }

  get isHeldUp(): boolean {
    if (!this.#isPaused) return this.#heldUpMsByNow() >= HELD_UP_MS_MIN;
    const nowMs = this.#clock.monotonicMs();
    // The last pause may be short, if earlier pauses took nearly all of HELD_UP_MS_MAX long ago.
    return nowMs >= this.#deadlineMs || this.#heldUpMs + nowMs - this.#pausedAtMs >= HELD_UP_MS_MIN;
  }

  /** Called once, by Http1Client. */
  dispatch(pool: Http1Pool, request: Http1Request): void {
    this.#slot = this.#calls.add(this);
    this.#pool = pool;
    this.#request = request;
    pool.enqueue(this);
  }

  /** Called instead of `dispatch`: the call fails once `start` of the client has returned. */
  reject(error: ConnectionError): void {
    queueMicrotask(() => this.onConnectionError(error));
  }

  pause(): void {
    if (this.#isPaused || this.#isOver) return;
    invariant(this.#hasHead && this.#connection !== undefined, 'a call is paused after its head has come');
    this.#isPaused = true;
    this.#heldUpMs = this.#heldUpMsByNow();
    this.#pausedAtMs = this.#setDeadline('TIMEOUT_HELD_UP', HELD_UP_MS_MAX - this.#pausedMs);
    this.#connection.pause();
  }

  resume(): void {
    if (!this.#isPaused || this.#isOver) return;
    this.#isPaused = false;
    this.#resumedAtMs = this.#setDeadline('TIMEOUT_IDLE', this.#target.idleTimeoutMs);
    const pausedMs = this.#resumedAtMs - this.#pausedAtMs;
    this.#pausedMs += pausedMs;
    this.#totalDeadlineMs += pausedMs;
    this.#heldUpMs = Math.min(HELD_UP_MS_REMEMBERED, this.#heldUpMs + pausedMs);
    // `pause` has found a connection.
    this.#connection!.resume();
  }

  drain(): void {
    if (this.#isOver) return;
    this.resume();
    this.#totalDeadlineMs = Math.min(this.#totalDeadlineMs, this.#clock.monotonicMs() + DRAIN_MS_MAX);
  }

  abort(): void {
    if (this.#isOver) return;
    this.#finish();
    this.#pool?.forget(this);
    this.#connection?.destroy();
  }

  /** Fails the call if one of its deadlines has passed. Each sweep of the client calls it. */
  expire(nowMs: MonotonicMs): void {
    if (nowMs >= this.#totalDeadlineMs && !this.#isPaused) this.#timeOut('TIMEOUT_TOTAL');
    else if (nowMs >= this.#deadlineMs) this.#timeOut(this.#isQueued ? 'TIMEOUT_QUEUE' : this.#deadlineCode);
  }

  /** Called at most once, as the pool takes the call out of its queue; never if the call is over. */
  sendOn(connection: Http1Connection): void {
    // Set by `dispatch`, which comes before.
    const { head, body, isAscii } = this.#request!;
    this.#request = undefined;
    this.#connection = connection;
    this.#wasSent = true;
    this.#setDeadline('TIMEOUT_FIRST_BYTE', this.#target.firstByteTimeoutMs);
    connection.send(this, head, body, isAscii);
  }

  onHead(head: ResponseHead): void {
    this.#hasHead = true;
    this.#setDeadline('TIMEOUT_IDLE', this.#target.idleTimeoutMs);
    this.#handler.onStart(head.status, (name) => head.header(name));
  }

  onBody(bytes: Buffer): void {
    // Bytes that were read before the pause must not replace the deadline of the pause.
    if (!this.#isPaused) this.#setDeadline('TIMEOUT_IDLE', this.#target.idleTimeoutMs);
    this.#handler.onData(bytes);
  }

  onEnd(): void {
    if (this.#isOver) return;
    this.#finish();
    this.#handler.onEnd();
  }

  onConnectionError({ code, message }: ConnectionError): void {
    this.#fail({ code, message, repeatable: !this.#wasSent });
  }

  onDeadConnection({ code, message }: ConnectionError): void {
    this.#fail({ code, message, repeatable: true });
  }

  /** Whether the call waits because the pool's connections all carry other calls. */
  get #isQueued(): boolean {
    return !this.#wasSent && this.#pool!.isFull;
  }

  /** The handler gets the error first: within `destroy` the pool already sends other calls. */
  #timeOut(code: TimeoutCode): void {
    const connection = this.#connection;
    this.#pool?.forget(this);
    this.#fail({ code, message: 'timed out', repeatable: !this.#wasSent });
    connection?.destroy();
  }

  #fail(error: HttpFault): void {
    if (this.#isOver) return;
    this.#finish();
    this.#handler.onError(error);
  }

  /** Makes the call fail with `code` in `ms`, in place of the deadline before. Returns the current time. */
  #setDeadline(code: TimeoutCode, ms: number): number {
    const nowMs = this.#clock.monotonicMs();
    this.#deadlineCode = code;
    this.#deadlineMs = nowMs + ms;
    return nowMs;
  }

  /**
   * Returns `#heldUpMs`, less the time for which the stream has run since the last pause. Called only while
   * the stream is not paused. Only the time up to the last byte counts as running, because a provider that
   * gave up during the pause is silent too. The last byte, or `resume`, has set the deadline.
   */
  #heldUpMsByNow(): number {
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
