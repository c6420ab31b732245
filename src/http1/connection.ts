/**
 * One HTTP/1.1 connection to an upstream. pool.ts opens it and gives it calls (call.ts). A response is here
 * _unsolicited_ if no request asked for it. Upstream worker.
 *
 *     opening ──> idle ⇄ busy        and each of the three ──> gone
 *
 * Must hold: a connection carries one call at a time, and takes the next only after the last response is
 * whole. Otherwise a caller gets the response of another. So any doubt closes the connection: unsolicited
 * bytes, a response before the whole request was sent, an error in the framing. Tests:
 * test/unit/http1/connection.test.ts, test/hostile/upstreams.test.ts.
 */
import type { Socket } from 'node:net';
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import type { MonotonicMs } from '../core/units.js';
import { writeBody } from './body-memory.js';
import type { Dialer, SocketEvents } from './dialer.js';
import type { ResponseHead } from './head.js';
import { Http1Parser } from './parser.js';

/**
 * How long an idle connection is kept if the server does not announce a time. Plain: uvicorn and Node's
 * servers close after 5 s. TLS: balancers keep connections for a minute or more.
 */
const KEEP_ALIVE_PLAIN_MS = 4_000;
const KEEP_ALIVE_TLS_MS = 30_000;
/** Subtracted from the time that a server announces, so that a request arrives before the server closes. */
const KEEP_ALIVE_MARGIN_MS = 2_000;
/** The longest time of an idle connection, whatever the server announces: a middlebox may close earlier. */
const KEEP_ALIVE_MS_MAX = 30_000;

/** Errors that may mean that the upstream had closed before the request was written: see `#fail`. */
const DEAD_CODES: ReadonlySet<string> = new Set(['ECONNRESET', 'EPIPE', 'HTTP1_CLOSED']);

export interface ConnectionError {
  readonly code: string;
  readonly message: string;
}

/** HAProxy and AWS send this status on an idle connection right before they close (RFC 9110, 15.5.9). */
const REQUEST_TIMEOUT = 408;
const REQUEST_TIMEOUT_START = /^HTTP\/1\.[01] 408 /;
/** The length of what REQUEST_TIMEOUT_START matches. */
const REQUEST_TIMEOUT_START_BYTES = 13;
const CR = 0x0d;
const LF = 0x0a;

/** Of an unsolicited response that a connection has noticed, because it came too early. */
const EARLY_RESPONSE: ConnectionError = {
  code: 'HTTP1_UNASKED',
  message: 'it answered before it had the whole request',
};
const CLOSED: ConnectionError = { code: 'HTTP1_CLOSED', message: 'the other side closed the connection' };

/** onHead once, any number of onBody, then onEnd or an error; or an error alone. Nothing after `destroy`. */
export interface ResponseEvents {
  onHead(head: ResponseHead): void;
  /** `bytes` are a copy, which belongs to the call. */
  onBody(bytes: Buffer): void;
  /** The response is whole. */
  onEnd(): void;
  onConnectionError(error: ConnectionError): void;
  /**
   * As `onConnectionError`, but the call may be sent again, although a response costs money: the upstream had
   * not got the whole request, or, most likely, had closed the kept connection before the request. An
   * upstream that dies as it begins to work looks the same as the latter, and may then work twice. Without a
   * second attempt each close of a kept connection would fail a call.
   */
  onDeadConnection(error: ConnectionError): void;
}

/** The pool, as a connection sees it. */
export interface ConnectionOwner {
  /** The connection can take a call. Called before `onEnd` of the last call, which may begin the next. */
  onFree(connection: Http1Connection): void;
  /** The connection takes no calls any more. `error`: why it failed to open; otherwise undefined. */
  onGone(connection: Http1Connection, error: ConnectionError | undefined): void;
  /** The upstream sent an unsolicited response. The connection is being closed. */
  onUnsolicited(): void;
}

export class Http1Connection implements SocketEvents {
  readonly #owner: ConnectionOwner;
  readonly #clock: Clock;
  readonly #isSecure: boolean;
  readonly #socket: Socket;
  readonly #parser = new Http1Parser();
  #state: 'opening' | 'busy' | 'idle' | 'gone' = 'opening';
  /** The call whose response is not whole yet. Each of its methods may abort it, which clears `#call`. */
  #call: ResponseEvents | undefined;
  /** Whether the connection was kept idle before its last request, after a response or unused. */
  #wasIdle = false;
  /** Until when the connection must open, or may be idle. Means nothing while it is busy. */
  #deadlineMs: number;

  constructor(dialer: Dialer, owner: ConnectionOwner, clock: Clock, connectTimeoutMs: number) {
    this.#owner = owner;
    this.#clock = clock;
    this.#isSecure = dialer.isSecure;
    this.#deadlineMs = clock.monotonicMs() + connectTimeoutMs;
    this.#socket = dialer.dial(this);
  }

  get isIdle(): boolean {
    return this.#state === 'idle';
  }

  /** Whether an opening or idle connection has passed its deadline. Means nothing of a busy one. */
  isExpired(nowMs: MonotonicMs): boolean {
    return nowMs >= this.#deadlineMs;
  }

  /** On an idle connection. Calls no method of `call` before it returns. `isAscii`: as in Http1Request. */
  send(call: ResponseEvents, head: string, body: string | Uint8Array, isAscii: boolean): void {
    invariant(this.#state === 'idle', 'a connection carries one call');
    this.#state = 'busy';
    this.#call = call;
    this.#parser.begin();
    if (typeof body === 'string') {
      this.#socket.write(head + body, isAscii ? 'latin1' : 'utf8');
      return;
    }
    // One writev. The body is not copied: bytes that the kernel does not take at once are read later.
    this.#socket.cork();
    this.#socket.write(head, 'latin1');
    writeBody(this.#socket, body);
    this.#socket.uncork();
  }

  /** Stops reading, so that TCP stops the upstream. After the response `#becomeIdle` reads again. */
  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  /** Closes at once. Calls `onGone` of the owner, but no method of the call. */
  destroy(): void {
    this.#close(undefined);
  }

  // SocketEvents, which dialer.ts calls.

  onOpen(): void {
    if (this.#state === 'opening') this.#becomeIdle(this.#unannouncedKeepAliveMs);
  }

  onBytes(bytes: Buffer, length: number): void {
    const call = this.#call;
    if (call === undefined) {
      this.#recordUnsolicited(bytes, 0, length);
      this.#close(undefined);
      return;
    }
    const parser = this.#parser;
    const hadHead = parser.head !== undefined;
    parser.push(bytes, length);
    if (!hadHead && parser.head !== undefined) {
      if (this.#wasIdle && this.#failIfUnsolicited(parser.head)) return;
      call.onHead(parser.head);
    }
    // Each callback may abort the call, which clears `#call`.
    if (this.#call === call && parser.bodyEnd > parser.bodyStart)
      call.onBody(copyOf(bytes, parser.bodyStart, parser.bodyEnd));
    if (this.#call !== call) return;
    if (parser.error !== undefined) this.#fail({ code: 'HTTP1_INVALID', message: parser.error });
    else if (parser.isOver) this.#finish(call, bytes, length);
  }

  /** The end of the connection: the upstream sends nothing more. */
  onEnd(): void {
    const call = this.#call;
    if (call !== undefined) {
      // The end of the connection may be the end of the body.
      this.#parser.close();
      if (this.#parser.isOver) {
        this.#close(undefined);
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

  /** Ends the call, whose response is whole, and keeps the connection or closes it. */
  #finish(call: ResponseEvents, bytes: Buffer, length: number): void {
    this.#call = undefined;
    const keepAliveMs = this.#keepAliveMs();
    const { excessStart } = this.#parser;
    if (excessStart !== undefined) this.#recordUnsolicited(bytes, excessStart, length);
    // `writableLength`: if the server responded early, part of the request may be unsent.
    if (keepAliveMs <= 0 || excessStart !== undefined || this.#socket.writableLength > 0) {
      this.#close(undefined);
    } else {
      this.#becomeIdle(keepAliveMs);
    }
    call.onEnd();
  }

  /** How long the connection may be kept idle; 0 or less if not at all. */
  #keepAliveMs(): number {
    // There is a head: `#finish` calls this after a whole response.
    const head = this.#parser.head!;
    if (!head.keepsAlive) return 0;
    const seconds = head.keepAliveSeconds;
    if (seconds === undefined) return this.#unannouncedKeepAliveMs;
    return Math.min(KEEP_ALIVE_MS_MAX, seconds * 1_000 - KEEP_ALIVE_MARGIN_MS);
  }

  /** How long the connection is kept idle if the server does not say for how long it does so. */
  get #unannouncedKeepAliveMs(): number {
    return this.#isSecure ? KEEP_ALIVE_TLS_MS : KEEP_ALIVE_PLAIN_MS;
  }

  #becomeIdle(keepAliveMs: number): void {
    this.#state = 'idle';
    this.#deadlineMs = this.#clock.monotonicMs() + keepAliveMs;
    // A call that ended while it was paused has left the socket paused. An idle connection must see its end.
    if (this.#socket.isPaused()) this.#socket.resume();
    this.#owner.onFree(this);
    // The owner may have sent the next request at once, or closed the connection.
    this.#wasIdle = this.isIdle;
  }

  /**
   * Fails the call if the response on a kept connection is certainly not for its request, and returns whether
   * it did. An unsolicited response that comes after the whole request looks like the right one. pool.ts
   * makes that rare: it waits an event-loop turn before each use of a kept connection.
   */
  #failIfUnsolicited({ status, keepsAlive }: ResponseHead): boolean {
    // `onBytes` has found that there is a call, and has called none of its methods yet.
    const call = this.#call!;
    if (status === REQUEST_TIMEOUT && !keepsAlive) {
      // The server sent the 408 while the connection was idle.
      this.#close(CLOSED);
      call.onDeadConnection(CLOSED);
      return true;
    }
    // A server may reject a request before it has the whole request, but cannot fulfil it. And as it never
    // gets the rest, the call may be sent again.
    if (status >= 300 || this.#socket.writableLength === 0) return false;
    this.#owner.onUnsolicited();
    this.#close(EARLY_RESPONSE);
    call.onDeadConnection(EARLY_RESPONSE);
    return true;
  }

  /** Reports unsolicited bytes to the owner, unless they are line ends or a 408. */
  #recordUnsolicited(bytes: Buffer, start: number, length: number): void {
    if (this.#state === 'gone') return;
    let lineStart = start;
    while (lineStart < length && (bytes[lineStart] === CR || bytes[lineStart] === LF)) lineStart++;
    if (lineStart === length) return;
    const lineEnd = Math.min(length, lineStart + REQUEST_TIMEOUT_START_BYTES);
    const line = bytes.toString('latin1', lineStart, lineEnd);
    if (!REQUEST_TIMEOUT_START.test(line)) this.#owner.onUnsolicited();
  }

  /** Closes the connection. Its call, if there is one, fails. */
  #fail(error: ConnectionError): void {
    if (this.#state === 'gone') return;
    const call = this.#call;
    // The connection was idle, and no byte of this response came: most likely the upstream closed it then.
    const wasDead = this.#wasIdle && !this.#parser.hasBegun && DEAD_CODES.has(error.code);
    this.#close(error);
    if (wasDead) call?.onDeadConnection(error);
    else call?.onConnectionError(error);
  }

  /** `error`: for the owner, if the connection failed to open. In other states the owner gets no error. */
  #close(error: ConnectionError | undefined): void {
    if (this.#state === 'gone') return;
    const wasOpening = this.#state === 'opening';
    this.#state = 'gone';
    this.#call = undefined;
    this.#socket.destroy();
    this.#owner.onGone(this, wasOpening ? error : undefined);
  }
}

/** Copies from the read buffer of dialer.ts, which the next read of any socket overwrites. */
function copyOf(bytes: Buffer, start: number, end: number): Buffer {
  const copy = Buffer.allocUnsafe(end - start);
  bytes.copy(copy, 0, start, end);
  return copy;
}

/** The error's message; if all addresses of a host failed, which leaves it empty, that of the first one. */
function messageOf(error: Error): string {
  if (error.message !== '' || !(error instanceof AggregateError)) return error.message;
  const [first] = error.errors as unknown[];
  return first instanceof Error ? first.message : '';
}
