/**
 * One call through undici: its handler, its deadlines, its pause and abort. The older handler methods (onConnect, onHeaders, …) are
 * used on purpose: undici calls them directly, the newer ones through a wrapper that builds an object of all headers. Upstream worker.
 */
import type { Dispatcher, Pool } from 'undici';
import type { Clock } from '../core/clock.js';
import type { MonotonicMs } from '../core/units.js';
import type { UpstreamCall, UpstreamFault, UpstreamHandler } from './client.js';
import type { UpstreamTarget } from './target.js';

/** What a connection that the other side has closed meanwhile fails with. */
const DEAD_CONNECTION_CODES: ReadonlySet<string> = new Set(['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET']);

type TimeoutCode =
  'TIMEOUT_CONNECT' | 'TIMEOUT_QUEUE' | 'TIMEOUT_FIRST_BYTE' | 'TIMEOUT_IDLE' | 'TIMEOUT_TOTAL';

export class UndiciCall implements UpstreamCall, Dispatcher.DispatchHandler {
  readonly #target: UpstreamTarget;
  readonly #handler: UpstreamHandler;
  readonly #clock: Clock;
  readonly #calls: Set<UndiciCall>;
  readonly #bytesReadByError: WeakMap<Error, number>;
  readonly #totalDeadlineMs: number;
  /** Of the phase that `#waitsFor` names; Infinity while the call is paused, for then we let the upstream wait. */
  #deadlineMs: number;
  #waitsFor: TimeoutCode = 'TIMEOUT_CONNECT';
  #pool: Pool | undefined;
  #abort: ((error?: Error) => void) | undefined;
  #resume: (() => void) | undefined;
  #paused = false;
  /** Ended, failed or aborted: the handler hears nothing more. */
  #over = false;
  #started = false;
  #sent = false;

  constructor(
    target: UpstreamTarget,
    handler: UpstreamHandler,
    clock: Clock,
    calls: Set<UndiciCall>,
    bytesReadByError: WeakMap<Error, number>,
  ) {
    this.#target = target;
    this.#handler = handler;
    this.#clock = clock;
    this.#calls = calls;
    this.#bytesReadByError = bytesReadByError;
    const nowMs = clock.monotonicMs();
    this.#totalDeadlineMs = nowMs + target.totalTimeoutMs;
    this.#deadlineMs = nowMs + target.connectTimeoutMs;
  }

  get sent(): boolean {
    return this.#sent;
  }

  dispatch(pool: Pool, headers: string[], body: string | Uint8Array): void {
    this.#calls.add(this);
    this.#pool = pool;
    // Not given: query and typeOfService, which cost time for every call when they are, even if empty.
    pool.dispatch(
      {
        path: this.#target.path,
        method: 'POST',
        headers,
        body,
        idempotent: false,
        blocking: false,
        upgrade: null,
        headersTimeout: 0,
        bodyTimeout: 0,
        reset: false,
        expectContinue: false,
      },
      this,
    );
  }

  pause(): void {
    this.#paused = true;
    this.#deadlineMs = Infinity;
  }

  resume(): void {
    if (!this.#paused || this.#over) return;
    this.#paused = false;
    this.#wait('TIMEOUT_IDLE', this.#target.idleTimeoutMs);
    // Nothing to undici unless its parser stands.
    this.#resume?.();
  }

  abort(): void {
    if (this.#over) return;
    this.#finish();
    this.#abort?.();
  }

  /** Ends the call if one of its deadlines has passed. */
  expire(nowMs: MonotonicMs): void {
    if (nowMs >= this.#totalDeadlineMs) this.#timeOut('TIMEOUT_TOTAL');
    else if (nowMs >= this.#deadlineMs) this.#timeOut(this.#isQueued ? 'TIMEOUT_QUEUE' : this.#waitsFor);
  }

  /** Every connection that there may be carries another call, so this one was not even begun. */
  get #isQueued(): boolean {
    return !this.#sent && this.#pool!.stats.running >= this.#target.connectionsMax;
  }

  // undici's side. A request that was aborted while it waited is dropped by throwing: that leaves the connection alone.

  onConnect(abort: (error?: Error) => void): void {
    if (this.#over) throw new Error('aborted before it was sent');
    this.#abort = abort;
    this.#sent = true;
    this.#wait('TIMEOUT_FIRST_BYTE', this.#target.firstByteTimeoutMs);
  }

  onHeaders(status: number, headers: Buffer[], resume: () => void): boolean {
    // Informational answers (102, 103) come before the one that counts.
    if (status < 200 || this.#over) return true;
    this.#resume = resume;
    this.#started = true;
    this.#wait('TIMEOUT_IDLE', this.#target.idleTimeoutMs);
    this.#handler.onStart(status, (name) => headerOf(headers, name));
    return !this.#paused;
  }

  onData(chunk: Buffer): boolean {
    if (this.#over) return true;
    if (!this.#paused) this.#wait('TIMEOUT_IDLE', this.#target.idleTimeoutMs);
    this.#handler.onData(chunk);
    return !this.#paused;
  }

  onComplete(): void {
    if (this.#over) return;
    this.#finish();
    this.#handler.onEnd();
  }

  onError(error: Error): void {
    const fault = this.#faultOf(error);
    // undici reports a request that it refuses (a bad header, a closed pool) before dispatch returns.
    if (this.#sent) this.#fail(fault);
    else queueMicrotask(() => this.#fail(fault));
  }

  #timeOut(code: TimeoutCode): void {
    const fault: UpstreamFault = { code, message: 'timed out', repeatable: !this.#sent };
    this.#fail(fault);
    this.#abort?.();
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
    this.#calls.delete(this);
  }

  #faultOf(error: Error): UpstreamFault {
    const code = 'code' in error && typeof error.code === 'string' ? error.code : error.name;
    const dead =
      !this.#started && DEAD_CONNECTION_CODES.has(code) && (this.#bytesReadByError.get(error) ?? 0) > 0;
    return { code, message: error.message, repeatable: !this.#sent || dead };
  }
}

/** Value of the first header of that lower-case name in undici's raw list. */
function headerOf(headers: readonly Buffer[], name: string): string | undefined {
  for (let index = 0; index + 1 < headers.length; index += 2) {
    const field = headers[index]!;
    if (field.length === name.length && field.toString('latin1').toLowerCase() === name) {
      return headers[index + 1]!.toString('latin1');
    }
  }
  return undefined;
}
