/**
 * One HTTP/1.1 connection. Its pool makes it and gives it calls. Upstream worker.
 *
 * Must hold: it carries one call at a time, and the next only after the last response is whole; otherwise a
 * caller gets the response of another (test/unit/http1/connection.test.ts).
 *
 * opening → busy ⇄ idle → gone. The connection is closed on any doubt: bytes without a request, a response
 * before the request was sent, a problem in the framing.
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
 * How long a connection is kept idle if the server does not say. Without TLS a second less than the 5 s of
 * uvicorn and Node's servers: a new connection costs next to nothing. With TLS there are balancers, which
 * keep connections for 60 s and more.
 */
const KEEP_ALIVE_PLAIN_MS = 4_000;
const KEEP_ALIVE_TLS_MS = 30_000;
/** If a server announces how long it keeps a connection, this is subtracted for the time on the wire. */
const KEEP_ALIVE_MARGIN_MS = 2_000;
/** However long a server promises: a middlebox may close earlier. */
const KEEP_ALIVE_MS_MAX = 30_000;

/** Errors of a connection that the other side had closed. */
const DEAD_CODES: ReadonlySet<string> = new Set(['ECONNRESET', 'EPIPE', 'HTTP1_CLOSED']);

export interface ConnectionError {
  readonly code: string;
  readonly message: string;
}

/**
 * Some servers send this on an idle connection right before they close it (RFC 9110, 15.5.9); HAProxy and AWS
 * do.
 */
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

/** The pool, as a connection sees it. */
export interface ConnectionOwner {
  /** It has opened, or its call's response is whole, and it can take a call. */
  onFree(connection: Http1Connection): void;
  /** It takes no calls any more; `fault` if it never opened. */
  onGone(connection: Http1Connection, fault: ConnectionError | undefined): void;
  /** It brought a response without a request, and is being closed. */
  onUnsolicited(): void;
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
  /** While opening, when it is given up; while idle, when it is closed. */
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

  isExpired(nowMs: MonotonicMs): boolean {
    return nowMs >= this.deadlineMs;
  }

  /** Sends a call's request; does not call the call before it has returned. */
  send(call: Http1Call, head: string, body: string | Uint8Array, isAscii: boolean): void {
    invariant(this.#call === undefined && this.#state !== 'gone', 'a connection carries one call');
    this.#state = 'busy';
    this.#call = call;
    this.#parser.begin();
    if (typeof body === 'string') {
      this.#socket.write(head + body, isAscii ? 'latin1' : 'utf8');
      return;
    }
    // One writev. The bytes are not copied; what the kernel does not take at once stays in them.
    this.#socket.cork();
    this.#socket.write(head, 'latin1');
    this.#socket.write(body);
    this.#socket.uncork();
  }

  /** Stops reading, so that the other side must wait. */
  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  /** Closes at once. Its call is not called any more. */
  destroy(): void {
    this.#leave(undefined);
  }

  // Called by the socket.

  onOpen(): void {
    if (this.#state === 'opening') this.#free();
  }

  onBytes(bytes: Buffer, length: number): void {
    const call = this.#call;
    if (call === undefined) {
      this.#recordUnsolicited(bytes, 0, length);
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
    if (this.#parser.hasExcess) this.#recordUnsolicited(bytes, this.#parser.excessStart, length);
    // Part of the request may be unsent if the server responded before its end.
    if (keepMs <= 0 || this.#parser.hasExcess || this.#socket.writableLength > 0) {
      this.#leave(undefined);
    } else {
      this.deadlineMs = this.#clock.monotonicMs() + keepMs;
      this.#free();
    }
    call.onEnd();
  }

  /** How long it may be kept idle; 0 if it may not. */
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
   * Whether the response to a request on a kept connection cannot belong to that request; then the call has
   * failed. What the server sends after it has the request cannot be told from the response: see Http1Pool
   * for the consequence.
   */
  #isOfAnother({ status, keepsAlive }: ResponseHead): boolean {
    const call = this.#call!;
    if (status === REQUEST_TIMEOUT && !keepsAlive) {
      // The server sent it on the idle connection; the request came too late.
      this.#leave(CLOSED);
      call.onFault(CLOSED, true);
      return true;
    }
    if (status >= 300 || this.#socket.writableLength === 0) return false;
    this.#owner.onUnsolicited();
    this.#leave(UNASKED);
    call.onFault(UNASKED, true);
    return true;
  }

  /** Line ends after a response, and the 408 of a server that closes, do not count as responses. */
  #recordUnsolicited(bytes: Buffer, start: number, length: number): void {
    if (this.#state === 'gone') return;
    let at = start;
    while (at < length && (bytes[at] === CR || bytes[at] === LF)) at++;
    if (at === length) return;
    const line = bytes.toString('latin1', at, Math.min(length, at + STATUS_LINE_BYTES));
    if (!REQUEST_TIMEOUT_LINE.test(line)) this.#owner.onUnsolicited();
  }

  /** Closes; its call, if it carries one, fails. */
  #fail(fault: ConnectionError): void {
    if (this.#state === 'gone') return;
    const call = this.#call;
    // No byte of a response came, on a connection that had served before: most likely it was closed while
    // idle.
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

/** The next read of any socket overwrites the read buffer. */
function copyOf(bytes: Buffer, start: number, end: number): Buffer {
  const copy = Buffer.allocUnsafe(end - start);
  bytes.copy(copy, 0, start, end);
  return copy;
}

/** Each address of a name may have failed in its own way; the first one is reported. */
function messageOf(error: Error): string {
  if (error.message !== '' || !(error instanceof AggregateError)) return error.message;
  const [first] = error.errors as unknown[];
  return first instanceof Error ? first.message : '';
}
