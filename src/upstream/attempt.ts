/**
 * One try of a call on one upstream: judges the status, gives the body to its reader, and sees to it that the session hears
 * exactly one complete or reject and nothing after it. Upstream worker.
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import type { UpstreamRequest } from '../channel/messages.js';
import { withModelName } from '../protocol/chat-body.js';
import { traceHeadersOf } from '../telemetry/trace-context.js';
import { type ResponseBodyReader, ResponseReader, type ResponseSink } from './response-reader.js';
import type { ResponseBudget } from './response-budget.js';
import type { HttpCall, HttpClient, HttpFault, HttpHandler } from '../http1/http-client.js';
import {
  connectionFailure,
  garbageFailure,
  isHtml,
  meaningOf,
  pageFailure,
  rejectionFailure,
  statusFailure,
  type AttemptFailure,
} from './error-mapping.js';
import type { AttemptSpan } from './attempt-span.js';
import { tracesOf } from './secret-traces.js';
import { StreamReader } from './stream-reader.js';
import type { TakenTarget } from './target-choice.js';
import { UsageMeter } from './usage-meter.js';

/** Of an error's body as much as a message can need; and of a body that nobody reads as much as a connection is worth. */
const UNUSED_BODY_BYTES_MAX = 64 * 1024;

/** A generation that goes on is cut by a setting of ours. */
const TOTAL_TIMEOUT = 'TIMEOUT_TOTAL';

/** The session's side; `crash` is for exceptions, which are bugs of ours. */
export interface AttemptOwner extends ResponseSink {
  /** For the response, if it is a whole one. */
  readonly budget: ResponseBudget;
  /**
   * In the place of `reject`, of a stream that has begun: it was cut by our clock or its caller, so what was relayed is charged.
   * `isHeldUp`: by its caller.
   */
  cut(failure: AttemptFailure, isHeldUp: boolean): void;
  crash(error: unknown): void;
}

/** unanswered → reading or refused → drained; a fault or abort may come at any point. */
type Phase = 'unanswered' | 'reading' | 'refused' | 'drained';

export class Attempt implements HttpHandler, ResponseSink {
  readonly meter = new UsageMeter();
  readonly taken: TakenTarget;
  readonly #owner: AttemptOwner;
  readonly #request: UpstreamRequest;
  readonly #clock: Clock;
  readonly #span: AttemptSpan | undefined;
  readonly #call: HttpCall;
  #phase: Phase = 'unanswered';
  #reader: ResponseBodyReader | undefined;
  #status = 0;
  /** Of a stream: the client has some of it. */
  #relayed = false;
  #contentType: string | undefined;
  #unusedChunks: Uint8Array[] = [];
  #unusedBytes = 0;

  constructor(
    client: HttpClient,
    taken: TakenTarget,
    request: UpstreamRequest,
    span: AttemptSpan | undefined,
    clock: Clock,
    owner: AttemptOwner,
  ) {
    this.taken = taken;
    this.#owner = owner;
    this.#request = request;
    this.#clock = clock;
    this.#span = span;
    const body = bodyFor(taken.target.model, request);
    this.#call = client.start(taken.target, body, request.requestId, this, headersOf(request, span));
  }

  get sent(): boolean {
    return this.#call.sent;
  }

  pause(): void {
    this.#call.pause();
  }

  resume(): void {
    this.#call.resume();
  }

  /** Ends the connection at once; the owner hears nothing more. */
  abort(): void {
    this.#phase = 'drained';
    this.#endSpan('cancelled');
    this.taken.release();
    this.#call.abort();
  }

  // What throws below is a bug of ours; the client must not take it for a failure of the upstream.

  onStart(status: number, header: (name: string) => string | undefined): void {
    try {
      this.#start(status, header);
    } catch (error) {
      this.#owner.crash(error);
    }
  }

  onData(chunk: Uint8Array): void {
    try {
      if (this.#phase === 'reading') this.#reader!.onData(chunk);
      else this.#leave(chunk);
    } catch (error) {
      this.#owner.crash(error);
    }
  }

  onEnd(): void {
    try {
      if (this.#phase === 'reading') this.#reader!.onEnd();
      else this.#refuse();
    } catch (error) {
      this.#owner.crash(error);
    }
  }

  onError(fault: HttpFault): void {
    try {
      if (this.#phase === 'refused') this.#refuse();
      else if (this.#phase !== 'drained') this.#error(fault);
    } catch (error) {
      this.#owner.crash(error);
    }
  }

  relay(bytes: Uint8Array): void {
    if (this.#phase !== 'reading') return;
    if (this.#span?.isUnanswered === true) this.#span.firstByte(this.#clock.monotonicMs());
    this.taken.answered();
    this.#relayed = true;
    this.#owner.relay(bytes);
  }

  complete(rest: Uint8Array): void {
    if (this.#phase !== 'reading') return;
    this.#endSpan(undefined);
    this.taken.releaseGood();
    this.#settle();
    this.#owner.complete(rest);
  }

  /** What breaks the protocol is not worth a connection. */
  reject(failure: AttemptFailure): void {
    if (this.#phase === 'drained') return;
    if (this.#relayed && this.#call.isHeldUp) {
      this.#cut(failure, true);
      return;
    }
    this.#endSpan(failure.kind);
    this.taken.releaseFailed(failure);
    this.abort();
    this.#owner.reject(failure);
  }

  #start(status: number, header: (name: string) => string | undefined): void {
    invariant(this.#phase === 'unanswered', 'an answer starts once');
    this.#status = status;
    const meaning = meaningOf(status);
    if (meaning === 'refused') {
      this.#phase = 'refused';
      this.#contentType = header('content-type');
    } else if (meaning === 'unavailable') {
      const failure = statusFailure(status, header('retry-after'), this.#clock.wallMs());
      this.#endSpan(failure.kind);
      this.taken.releaseFailed(failure);
      this.#settle();
      this.#owner.reject(failure);
    } else if (!isPlain(header('content-encoding'))) {
      this.reject(garbageFailure('encoded, which was not asked for'));
    } else if (!isOfType(header('content-type'), this.#request.stream)) {
      this.reject(isHtml(header('content-type')) ? pageFailure() : garbageFailure('wrong content type'));
    } else {
      this.#phase = 'reading';
      this.#reader = this.#request.stream
        ? new StreamReader(this, this.meter, this.#request.includeUsage, this.#request.choices)
        : new ResponseReader(this, this.meter, this.#owner.budget);
    }
  }

  #leave(chunk: Uint8Array): void {
    invariant(this.#phase !== 'unanswered', 'data follows a status');
    this.#unusedBytes += chunk.length;
    if (this.#phase === 'refused') this.#unusedChunks.push(chunk);
    if (this.#unusedBytes <= UNUSED_BODY_BYTES_MAX) return;
    this.#call.abort();
    this.#refuse();
  }

  #error(fault: HttpFault): void {
    // Its end is missing, and nothing else.
    if (this.#reader?.isWhole === true) {
      this.#reader.onEnd();
      return;
    }
    const failure = connectionFailure(fault);
    if (this.#relayed) {
      const isHeldUp = this.#call.isHeldUp;
      if (isHeldUp || fault.code === TOTAL_TIMEOUT) {
        this.#cut(failure, isHeldUp);
        return;
      }
    }
    this.#endSpan(failure.kind);
    this.taken.releaseFailed(failure);
    this.#settle();
    this.#owner.reject(failure);
  }

  /** It says nothing about the upstream's health. */
  #cut(failure: AttemptFailure, isHeldUp: boolean): void {
    this.#endSpan(failure.kind);
    this.taken.release();
    this.abort();
    this.#owner.cut(failure, isHeldUp);
  }

  /** The upstream found the request wrong; its message is there as far as it came. */
  #refuse(): void {
    if (this.#phase !== 'refused') return;
    const body = Buffer.concat(this.#unusedChunks).toString('utf8');
    this.#unusedChunks = [];
    const failure = rejectionFailure(this.#status, this.#contentType, body, tracesOf(this.taken.target));
    if (failure.callerError === undefined) this.taken.releaseFailed(failure);
    else this.taken.releaseGood();
    this.#settle();
    this.#endSpan(failure.kind);
    this.#owner.reject(failure);
  }

  #endSpan(error: string | undefined): void {
    this.#span?.end({
      error,
      status: this.#status,
      responseModel: this.meter.responseModel,
      nowMs: this.#clock.monotonicMs(),
    });
  }

  /** The outcome is known. What is left of the body is let run off, so that the connection can be used again. */
  #settle(): void {
    this.#phase = 'drained';
    this.taken.release();
    this.#call.resume();
  }
}

function headersOf({ trace }: UpstreamRequest, span: AttemptSpan | undefined): readonly string[] | undefined {
  if (span !== undefined) return span.headers;
  return trace === undefined ? undefined : traceHeadersOf(trace);
}

/** The body with the model's name as the upstream knows it. */
function bodyFor(model: string | undefined, request: UpstreamRequest): string | Uint8Array {
  const { largeBody } = request;
  if (model === undefined) return largeBody ?? request.body;
  if (largeBody !== undefined) {
    return Buffer.concat([
      largeBody.subarray(0, request.modelStart),
      Buffer.from(JSON.stringify(model)),
      largeBody.subarray(request.modelEnd),
    ]);
  }
  return withModelName(request, model);
}

function isPlain(contentEncoding: string | undefined): boolean {
  return contentEncoding === undefined || contentEncoding.trim().toLowerCase() === 'identity';
}

/** A whole response without a type is let through: it is checked as JSON all the same. */
function isOfType(contentType: string | undefined, stream: boolean): boolean {
  // Nearly all of them, as they come.
  if (contentType === (stream ? 'text/event-stream' : 'application/json')) return true;
  const type = contentType?.split(';', 1)[0]!.trim().toLowerCase();
  if (stream) return type === 'text/event-stream';
  return type === undefined || type === 'application/json' || type.endsWith('+json');
}
