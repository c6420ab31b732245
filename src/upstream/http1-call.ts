/**
 * One call over HTTP/1.1: its handler, its deadlines, its pause and abort. Upstream worker.
 */
import type { Clock } from '../core/clock.js';
import type { Roster } from '../core/roster.js';
import type { MonotonicMs } from '../core/units.js';
import type { UpstreamCall, UpstreamFault, UpstreamHandler } from './client.js';
import type { ConnectionFault, Http1Connection } from './http1-connection.js';
import type { ResponseHead } from './http1-head.js';
import type { Http1Pool } from './http1-pool.js';
import type { UpstreamTarget } from './target.js';
import type { Waiter } from './waiting-line.js';

type TimeoutCode =
  'TIMEOUT_CONNECT' | 'TIMEOUT_QUEUE' | 'TIMEOUT_FIRST_BYTE' | 'TIMEOUT_IDLE' | 'TIMEOUT_TOTAL';

export interface Http1Request {
  readonly head: string;
  readonly body: string | Uint8Array;
  /** A character of head and body is a byte. */
  readonly isAscii: boolean;
}

export class Http1Call implements UpstreamCall, Waiter<Http1Call> {
  readonly #target: UpstreamTarget;
  readonly #handler: UpstreamHandler;
  readonly #clock: Clock;
  /** All that run, for their deadlines. */
  readonly #calls: Roster<Http1Call>;
  #place: number | undefined;
  // In the pool's line.
  isWaiting = false;
  ahead: Http1Call | undefined;
  behind: Http1Call | undefined;
  readonly #totalDeadlineMs: number;
  /** Of the phase that `#waitsFor` names; Infinity while the call is paused, for then we let the upstream wait. */
  #deadlineMs: number;
  #waitsFor: TimeoutCode = 'TIMEOUT_CONNECT';
  /** Let go when it is sent. */
  #request: Http1Request | undefined;
  #pool: Http1Pool | undefined;
  #connection: Http1Connection | undefined;
  #paused = false;
  /** Ended, failed or aborted: the handler hears nothing more. */
  #over = false;
  #started = false;
  #sent = false;

  constructor(target: UpstreamTarget, handler: UpstreamHandler, clock: Clock, calls: Roster<Http1Call>) {
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

  dispatch(pool: Http1Pool, request: Http1Request): void {
    this.#place = this.#calls.add(this);
    this.#pool = pool;
    this.#request = request;
    pool.take(this);
  }

  /** In place of `dispatch`: fails once `start` has returned. */
  refuse(fault: ConnectionFault): void {
    queueMicrotask(() => this.onFault(fault, false));
  }

  pause(): void {
    if (this.#paused || this.#over) return;
    this.#paused = true;
    this.#deadlineMs = Infinity;
    if (this.#started) this.#connection!.pause();
  }

  resume(): void {
    if (!this.#paused || this.#over) return;
    this.#paused = false;
    this.#wait('TIMEOUT_IDLE', this.#target.idleTimeoutMs);
    if (this.#started) this.#connection!.resume();
  }

  abort(): void {
    if (this.#over) return;
    this.#finish();
    this.#pool?.forget(this);
    this.#connection?.destroy();
  }

  /** Ends the call if one of its deadlines has passed. */
  expire(nowMs: MonotonicMs): void {
    if (nowMs >= this.#totalDeadlineMs) this.#timeOut('TIMEOUT_TOTAL');
    else if (nowMs >= this.#deadlineMs) this.#timeOut(this.#isQueued ? 'TIMEOUT_QUEUE' : this.#waitsFor);
  }

  /** A connection is there. */
  sendOn(connection: Http1Connection): void {
    const { head, body, isAscii } = this.#request!;
    this.#request = undefined;
    this.#connection = connection;
    this.#sent = true;
    this.#wait('TIMEOUT_FIRST_BYTE', this.#target.firstByteTimeoutMs);
    connection.send(this, head, body, isAscii);
  }

  onHead(head: ResponseHead): void {
    this.#started = true;
    this.#wait('TIMEOUT_IDLE', this.#target.idleTimeoutMs);
    this.#handler.onStart(head.status, (name) => head.header(name));
  }

  onBody(bytes: Buffer): void {
    if (!this.#paused) this.#wait('TIMEOUT_IDLE', this.#target.idleTimeoutMs);
    this.#handler.onData(bytes);
  }

  onEnd(): void {
    if (this.#over) return;
    this.#finish();
    this.#handler.onEnd();
  }

  /** `wasDead`: the connection had most likely been closed before the request came to it. */
  onFault({ code, message }: ConnectionFault, wasDead: boolean): void {
    this.#fail({ code, message, repeatable: !this.#sent || wasDead });
  }

  /** Every connection that there may be carries another call, so this one was not even begun. */
  get #isQueued(): boolean {
    return !this.#sent && this.#pool!.isFull;
  }

  #timeOut(code: TimeoutCode): void {
    const connection = this.#connection;
    this.#pool?.forget(this);
    this.#fail({ code, message: 'timed out', repeatable: !this.#sent });
    connection?.destroy();
  }

  #fail(fault: UpstreamFault): void {
    if (this.#over) return;
    this.#finish();
    this.#handler.onError(fault);
  }

  #wait(code: TimeoutCode, ms: number): void {
    this.#waitsFor = code;
    this.#deadlineMs = this.#clock.monotonicMs() + ms;
  }

  #finish(): void {
    this.#over = true;
    this.#request = undefined;
    if (this.#place !== undefined) this.#calls.remove(this.#place);
  }
}
