/**
 * One HTTP/1.1 connection: one call at a time, never the next before the response to the last is whole. Upstream worker.
 *
 * opening → busy ⇄ idle → gone. What is not beyond doubt ends the connection: bytes that nobody asked for, a response before the
 * request was out, a problem in the framing.
 */
import type { Socket } from 'node:net';
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import type { MonotonicMs } from '../core/units.js';
import type { Http1Call } from './call.js';
import type { Dialer, SocketEvents } from './dialer.js';
import type { ResponseHead } from './head.js';
import { Http1Parser } from './parser.js';

/**
 * How long a connection is kept idle where the server does not say. A second less than the 5 s of uvicorn and Node's servers, for a
 * connection without TLS costs next to nothing; before those with TLS stand balancers, which keep them for 60 s and more.
 */
const KEEP_ALIVE_PLAIN_MS = 4_000;
const KEEP_ALIVE_TLS_MS = 30_000;
/** Where a server announces how long it keeps a connection, that less this, for the time on the way. */
const KEEP_ALIVE_MARGIN_MS = 2_000;
/** However long a server promises: what stands between may be of another mind. */
const KEEP_ALIVE_MS_MAX = 30_000;

/** What a connection that the other side has closed meanwhile fails with. */
const DEAD_CODES: ReadonlySet<string> = new Set(['ECONNRESET', 'EPIPE', 'HTTP1_CLOSED']);

export interface ConnectionError {
  readonly code: string;
  readonly message: string;
}

/** What a server may send to a connection at rest right before it closes it (RFC 9110, 15.5.9); HAProxy and AWS do. */
const REQUEST_TIMEOUT = 408;
const REQUEST_TIMEOUT_LINE = /^HTTP\/1\.[01] 408 /;
const STATUS_LINE_BYTES = 13;
const CR = 0x0d;
const LF = 0x0a;

const UNASKED: ConnectionError = {
  code: 'HTTP1_UNASKED',
  message: 'it answered before it had the whole request',
};
const CLOSED: ConnectionError = { code: 'HTTP1_CLOSED', message: 'the other side closed the connection' };

/** The pool's side. */
export interface ConnectionOwner {
  /** It is open, or has given up its call whole, and takes another call. */
  onFree(connection: Http1Connection): void;
  /** It takes no calls any more; `fault` where it never opened. */
  onGone(connection: Http1Connection, fault: ConnectionError | undefined): void;
  /** It brought a response that no call has asked for, and is being closed. */
  onUnasked(): void;
}

export class Http1Connection implements SocketEvents {
  readonly #owner: ConnectionOwner;
  readonly #clock: Clock;
  readonly #isSecure: boolean;
  readonly #socket: Socket;
  readonly #parser = new Http1Parser();
  #state: 'opening' | 'busy' | 'idle' | 'gone' = 'opening';
  #call: Http1Call | undefined;
  #responses = 0;
  /** While opening: until it is given up. While idle: until it is closed. */
  deadlineMs: number;

  constructor(dialer: Dialer, owner: ConnectionOwner, clock: Clock, connectTimeoutMs: number) {
    this.#owner = owner;
    this.#clock = clock;
    this.#isSecure = dialer.isSecure;
    this.deadlineMs = clock.monotonicMs() + connectTimeoutMs;
    this.#socket = dialer.dial(this);
  }

  get isIdle(): boolean {
    return this.#state === 'idle';
  }

  get isOpening(): boolean {
    return this.#state === 'opening';
  }

  isExpired(nowMs: MonotonicMs): boolean {
    return nowMs >= this.deadlineMs;
  }

  /** Sends the request of a call; calls nothing of the call before it has returned. */
  send(call: Http1Call, head: string, body: string | Uint8Array, isAscii: boolean): void {
    invariant(this.#call === undefined && this.#state !== 'gone', 'a connection carries one call');
    this.#state = 'busy';
    this.#call = call;
    this.#parser.begin();
    if (typeof body === 'string') {
      this.#socket.write(head + body, isAscii ? 'latin1' : 'utf8');
      return;
    }
    // One writev. The bytes are not copied; what the system does not take at once waits in them.
    this.#socket.cork();
    this.#socket.write(head, 'latin1');
    this.#socket.write(body);
    this.#socket.uncork();
  }

  /** Stops reading, so that the other side has to wait. */
  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  /** Closes at once. A call that it carries hears nothing more. */
  destroy(): void {
    this.#leave(undefined);
  }

  // The socket's side.

  onOpen(): void {
    if (this.#state === 'opening') this.#free();
  }

  onBytes(bytes: Buffer, length: number): void {
    const call = this.#call;
    if (call === undefined) {
      this.#noteUnasked(bytes, 0, length);
      this.#leave(undefined);
      return;
    }
    const parser = this.#parser;
    const hadHead = parser.head !== undefined;
    parser.push(bytes, length);
    if (!hadHead && parser.head !== undefined) {
      if (this.#responses > 0 && this.#isOfAnother(parser.head)) return;
      call.onHead(parser.head);
    }
    // The call may have been aborted in any of its callbacks.
    if (this.#call === call && parser.bodyEnd > parser.bodyStart)
      call.onBody(copyOf(bytes, parser.bodyStart, parser.bodyEnd));
    if (this.#call !== call) return;
    if (parser.problem !== undefined) this.#fail({ code: 'HTTP1_INVALID', message: parser.problem });
    else if (parser.isOver) this.#finish(call, bytes, length);
  }

  onEnd(): void {
    const call = this.#call;
    if (call !== undefined) {
      this.#parser.close();
      if (this.#parser.isOver) {
        this.#leave(undefined);
        call.onEnd();
        return;
      }
    }
    this.#fail(CLOSED);
  }

  onError(error: Error): void {
    const code = 'code' in error && typeof error.code === 'string' ? error.code : error.name;
    this.#fail({ code, message: messageOf(error) });
  }

  onClose(): void {
    this.#fail(CLOSED);
  }

  #finish(call: Http1Call, bytes: Buffer, length: number): void {
    this.#call = undefined;
    this.#responses++;
    const keepMs = this.#keepMs();
    if (this.#parser.hasExcess) this.#noteUnasked(bytes, this.#parser.excessStart, length);
    // Part of the request may be unsent, where it was answered before its end.
    if (keepMs <= 0 || this.#parser.hasExcess || this.#socket.writableLength > 0) {
      this.#leave(undefined);
    } else {
      this.deadlineMs = this.#clock.monotonicMs() + keepMs;
      this.#free();
    }
    call.onEnd();
  }

  /** How long it may be kept idle; 0 where it may not. */
  #keepMs(): number {
    const head = this.#parser.head!;
    if (!head.keepsAlive) return 0;
    const seconds = head.keepAliveSeconds;
    if (seconds === undefined) return this.#isSecure ? KEEP_ALIVE_TLS_MS : KEEP_ALIVE_PLAIN_MS;
    return Math.min(KEEP_ALIVE_MS_MAX, seconds * 1_000 - KEEP_ALIVE_MARGIN_MS);
  }

  #free(): void {
    this.#state = 'idle';
    if (this.#socket.isPaused()) this.#socket.resume();
    this.#owner.onFree(this);
  }

  /**
   * Whether the first response to a request on a kept connection cannot be the response to it; then the call has failed. What the server sends
   * after it has the request cannot be told from the response: see Http1Pool for what follows from that.
   */
  #isOfAnother({ status, keepsAlive }: ResponseHead): boolean {
    const call = this.#call!;
    if (status === REQUEST_TIMEOUT && !keepsAlive) {
      // It was sent to the connection at rest; the request came too late.
      this.#leave(CLOSED);
      call.onFault(CLOSED, true);
      return true;
    }
    if (status >= 300 || this.#socket.writableLength === 0) return false;
    this.#owner.onUnasked();
    this.#leave(UNASKED);
    call.onFault(UNASKED, true);
    return true;
  }

  /** Line ends after a response, and the farewell of a server that closes, are no responses to anybody. */
  #noteUnasked(bytes: Buffer, start: number, length: number): void {
    if (this.#state === 'gone') return;
    let at = start;
    while (at < length && (bytes[at] === CR || bytes[at] === LF)) at++;
    if (at === length) return;
    const line = bytes.toString('latin1', at, Math.min(length, at + STATUS_LINE_BYTES));
    if (!REQUEST_TIMEOUT_LINE.test(line)) this.#owner.onUnasked();
  }

  /** Its call, if it carries one, fails. */
  #fail(fault: ConnectionError): void {
    if (this.#state === 'gone') return;
    const call = this.#call;
    // Nothing of a response had come, on a connection that had served before: most likely it was closed while idle.
    const wasDead = this.#responses > 0 && !this.#parser.hasBegun && DEAD_CODES.has(fault.code);
    this.#leave(fault);
    call?.onFault(fault, wasDead);
  }

  #leave(fault: ConnectionError | undefined): void {
    if (this.#state === 'gone') return;
    const wasOpening = this.#state === 'opening';
    this.#state = 'gone';
    this.#call = undefined;
    this.#socket.destroy();
    this.#owner.onGone(this, wasOpening ? fault : undefined);
  }
}

/** The read buffer is used again by the next read of any socket. */
function copyOf(bytes: Buffer, start: number, end: number): Buffer {
  const copy = Buffer.allocUnsafe(end - start);
  bytes.copy(copy, 0, start, end);
  return copy;
}

/** Of the addresses of a name each may have failed in its own way. */
function messageOf(error: Error): string {
  if (error.message !== '' || !(error instanceof AggregateError)) return error.message;
  const [first] = error.errors as unknown[];
  return first instanceof Error ? first.message : '';
}
