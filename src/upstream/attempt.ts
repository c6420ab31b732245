/**
 * One attempt of a call on one upstream, by one HttpCall (a request to the upstream). The attempt looks at
 * the status, and gives the body to a reader, which writes to the session. chat-session.ts makes Attempts.
 * Upstream worker.
 *
 * Must hold: the session gets exactly one complete, reject or cut, and nothing after it. The attempt releases
 * its TakenTarget on every path, and a failure that is not the upstream's does not count against its breaker.
 * No exception of the gateway reaches the HTTP client, which would count it as a failure of the upstream
 * (test/unit/upstream/chat-session-failover.test.ts, test/unit/upstream/chat-session-cancel.test.ts).
 */
import type { Clock } from '../core/clock.js';
import { CHAT_DOOR } from '../core/door-names.js';
import { invariant } from '../core/errors.js';
import { isWholeObject, type Members } from '../core/json.js';
import type { UpstreamRequest } from '../channel/messages.js';
import { traceHeadersOf } from '../telemetry/trace-context.js';
import { type ResponseBudget } from './worker-budget.js';
import {
  type LastBytes,
  type ResponseBodyReader,
  type ResponseOutcome,
  ResponseReader,
  type ResponseSink,
} from './response-reader.js';
import type { TimeoutCode } from '../http1/call.js';
import { isEncoded, isHtml, isReadable } from '../http1/content-headers.js';
import type { HeaderLookup, HttpCall, HttpFault, HttpHandler } from '../http1/http-client.js';
import {
  budgetFailure,
  connectionFailure,
  invalidResponseFailure,
  meaningOf,
  pageFailure,
  rejectionFailure,
  statusFailure,
  type AttemptFailure,
} from './error-mapping.js';
import { isLargeTranslation, isTranslated, startLargeCall, type LargeDeps } from './large-call.js';
import { FailedCall } from '../providers/provider-client.js';
import { FIELD_UNSUPPORTED, FieldError } from '../providers/provider.js';
import { doorAttemptOf, type DoorAttempt, translatedAttemptOf } from './door-call.js';
import type { AttemptSpan } from './attempt-span.js';
import { secretFragmentsOf } from './secret-fragments.js';
import { StreamReader } from './stream-reader.js';
import type { AttemptClient, UpstreamTarget } from './target.js';
import type { TakenTarget } from './target-state.js';
import { bodyFor, chatBodyFor } from './upstream-body.js';
import { UsageMeter } from './usage-meter.js';

/** A body that no reader gets (a rejection's, or one that is dropped) is cut off after so many bytes. */
const UNREAD_BYTES_MAX = 64 * 1024;

/** The code of HttpFault if the upstream's `total_timeout_ms` has passed. */
const TOTAL_TIMEOUT = 'TIMEOUT_TOTAL' satisfies TimeoutCode;

/** The session, as its attempts and their readers see it. */
export interface AttemptOwner extends ResponseSink {
  /** The memory budget of the response, if it is not a stream. */
  readonly budget: ResponseBudget;
  /** The response is whole and valid; the session sends `lastBytes`. */
  complete(lastBytes: LastBytes): void;
  /** The attempt failed. */
  reject(failure: AttemptFailure): void;
  /**
   * In place of `reject`, for a stream that has begun and was cut by a bound of the gateway or by its client:
   * what was relayed is charged. `isHeldUp`: the client cut the stream, because it did not read.
   */
  cut(failure: AttemptFailure, isHeldUp: boolean): void;
}

/**
 * `waiting`: for a status. `reading`: a reader gets the body. `rejected`: the body is kept for its reason.
 * `drained`, also by `abort` from any state: the outcome is known, and what still comes is dropped.
 */
type State = 'waiting' | 'reading' | 'rejected' | 'drained';

export class Attempt implements HttpHandler, ResponseOutcome {
  readonly meter = new UsageMeter();
  readonly taken: TakenTarget;
  readonly #owner: AttemptOwner;
  readonly #request: UpstreamRequest;
  readonly #clock: Clock;
  readonly #span: AttemptSpan | undefined;
  readonly #call: HttpCall;
  /** Undefined for a call by the door of chat completions, and until a counter thread has translated it. */
  #door: DoorAttempt | undefined;
  #state: State = 'waiting';
  #reader: ResponseBodyReader | undefined;
  #status = 0;
  /** The client has a part of the response. */
  #hasBegun = false;
  #contentType: string | undefined;
  #unreadChunks: Uint8Array[] = [];
  #unreadBytes = 0;

  constructor(
    client: AttemptClient,
    taken: TakenTarget,
    request: UpstreamRequest,
    span: AttemptSpan | undefined,
    deps: LargeDeps,
    owner: AttemptOwner,
  ) {
    const { clock } = deps;
    this.taken = taken;
    this.#owner = owner;
    this.#request = request;
    this.#clock = clock;
    this.#span = span;
    const headers = headersOf(request, span);
    const { target } = taken;
    // A counter thread translates the body first.
    if (isLargeTranslation(request, target)) {
      const onWritten = (members: Members): void => {
        if (request.door !== CHAT_DOOR) this.#door = translatedAttemptOf(request, target, clock, members);
      };
      this.#call = startLargeCall(deps, client, target, request, this, headers, onWritten);
      return;
    }
    // If the chat completion must be translated, ProviderClient does that.
    if (request.door === CHAT_DOOR) {
      const body = isTranslated(target) ? request.body : chatBodyFor(target, request);
      this.#call = client.start(target, body, request.requestId, this, headers);
      return;
    }
    const door = doorAttemptOrFault(request, target, clock);
    if ('code' in door) {
      this.#call = new FailedCall(this, door);
      return;
    }
    this.#door = door;
    const body = door.body ?? bodyFor(target, request);
    this.#call =
      door.passed === undefined
        ? client.start(target, body, request.requestId, this, headers, door.path)
        : deps.providers.startPassed(target, body, door.passed, request.requestId, this, headers);
  }

  /** HTTP status; 0 if none came. */
  get status(): number {
    return this.#status;
  }

  /** Whether a byte may have reached the upstream, so that the attempt may cost something there. */
  get sent(): boolean {
    return this.#call.sent;
  }

  /** What the upstream has reported of its usage, but no reader has given to the meter. */
  get usageSoFar(): unknown {
    // A translator knows more than the reader of what it has written.
    return this.#call.usageSoFar ?? this.#reader?.usageSoFar;
  }

  /** The upstream rejects the request, and charges nothing. The reason may still be on the way. */
  get isRejected(): boolean {
    return this.#state === 'rejected' || this.#call.isRefused === true;
  }

  pause(): void {
    this.#call.pause();
  }

  resume(): void {
    this.#call.resume();
  }

  /** Closes the connection at once. The owner is not called any more. */
  abort(): void {
    this.#state = 'drained';
    this.#endSpan('cancelled');
    this.taken.release();
    this.#call.abort();
  }

  // The HTTP client calls the next five methods. An exception in one is a bug of the gateway, so the
  // exception goes to the session: the HTTP client would count it as a failure of the upstream.

  onStart(status: number, header: HeaderLookup): void {
    try {
      this.#start(status, header);
    } catch (error) {
      this.#owner.crash(error);
    }
  }

  onData(chunk: Uint8Array): void {
    try {
      if (this.#state === 'reading') this.#reader!.onData(chunk);
      else this.#onUnread(chunk);
    } catch (error) {
      this.#owner.crash(error);
    }
  }

  onWhole(body: Buffer, members: Readonly<Record<string, unknown>>): void {
    try {
      if (this.#state !== 'reading') this.#onUnread(body);
      else if (this.#reader instanceof ResponseReader) this.#reader.onWhole(body, members);
      else this.#reader!.onData(body);
    } catch (error) {
      this.#owner.crash(error);
    }
  }

  onEnd(): void {
    try {
      invariant(this.#state !== 'waiting', 'the end follows a status');
      if (this.#state === 'reading') this.#reader!.onEnd();
      else this.#endRejected();
    } catch (error) {
      this.#owner.crash(error);
    }
  }

  onError(fault: HttpFault): void {
    try {
      if (this.#state === 'rejected') this.#endRejected();
      else if (this.#state !== 'drained') this.#connectionFailed(fault);
    } catch (error) {
      this.#owner.crash(error);
    }
  }

  // TranslatedCall calls `countBuffered`, the reader the three methods after it (ResponseOutcome).
  countBuffered(bytes: number): boolean {
    if (this.#owner.budget.grow(bytes)) return true;
    this.reject(budgetFailure());
    return false;
  }

  onBegin(): void {
    this.#span?.recordFirstByte(this.#clock.monotonicMs());
    this.taken.recordResponseBegin();
    this.#hasBegun = true;
  }

  complete(lastBytes: LastBytes): void {
    // The timer of a reader may come after `abort` (stream-reader.ts).
    if (this.#state !== 'reading') return;
    this.#endSpan(undefined);
    this.taken.releaseGood();
    this.#drain();
    this.#owner.complete(lastBytes);
  }

  /** Gives the response up and closes its connection. `abort` comes last: it ends the span as cancelled. */
  reject(failure: AttemptFailure): void {
    if (this.#state === 'drained') return;
    const { isHeldUp } = this.#call;
    // A caller can cause these failures, so the text that was relayed before is charged.
    if (this.#hasBegun && (isHeldUp || failure.isOurs)) {
      this.#cut(failure, isHeldUp);
      return;
    }
    this.#endSpan(failure.kind);
    this.#releaseFailed(failure);
    this.abort();
    this.#owner.reject(failure);
  }

  #start(status: number, header: HeaderLookup): void {
    invariant(this.#state === 'waiting', 'a response starts once');
    this.#status = status;
    const meaning = meaningOf(status);
    if (meaning === 'rejected') {
      this.#state = 'rejected';
      this.#contentType = header('content-type');
    } else if (meaning === 'unavailable') {
      const failure = statusFailure(status, header('retry-after'), this.#clock.wallMs());
      this.#endSpan(failure.kind);
      this.#releaseFailed(failure);
      this.#drain();
      this.#owner.reject(failure);
    } else if (isEncoded(header('content-encoding'))) {
      this.reject(invalidResponseFailure('encoded, which was not asked for'));
    } else if (!isReadable(header('content-type'), this.#request.stream)) {
      this.reject(
        isHtml(header('content-type')) ? pageFailure() : invalidResponseFailure('wrong content type'),
      );
    } else {
      this.#state = 'reading';
      const { meter } = this;
      const { stream, includeUsage, choices } = this.#request;
      const sink = this.#owner;
      const { budget } = sink;
      if (this.#door !== undefined)
        this.#reader = this.#door.openReader({ sink, outcome: this, meter, budget });
      else if (stream) this.#reader = new StreamReader({ sink, outcome: this, meter }, includeUsage, choices);
      else this.#reader = new ResponseReader(this, meter, budget);
    }
  }

  /** Bytes that no reader gets: the reason of a rejection, or what still comes of a body. */
  #onUnread(chunk: Uint8Array): void {
    invariant(this.#state !== 'waiting', 'data follows a status');
    this.#unreadBytes += chunk.length;
    if (this.#state === 'rejected') this.#unreadChunks.push(chunk);
    if (this.#unreadBytes > UNREAD_BYTES_MAX) this.#call.abort();
    else if (this.#state !== 'rejected' || !isWholeObject(this.#unreadChunks)) return;
    this.#endRejected();
  }

  #connectionFailed(fault: HttpFault): void {
    // The upstream has sent all of the response but the end of its body, so the fault changes nothing.
    if (this.#reader?.isWhole === true) {
      this.#reader.onEnd();
      return;
    }
    const failure = connectionFailure(this.#door?.inDoorsNames?.(fault) ?? fault);
    const isHeldUp = this.#hasBegun && this.#call.isHeldUp;
    if (isHeldUp || (this.#hasBegun && fault.code === TOTAL_TIMEOUT)) {
      this.#cut(failure, isHeldUp);
      return;
    }
    this.#endSpan(failure.kind);
    this.#releaseFailed(failure);
    this.#drain();
    this.#owner.reject(failure);
  }

  /** A failed count of tokens leaves the breaker alone: an upstream that cannot count may be healthy. */
  #releaseFailed(failure: AttemptFailure): void {
    if (this.#door?.isCount === true) this.taken.release();
    else this.taken.releaseFailed(failure);
  }

  /** Ends a stream that has begun and whose failure is not the upstream's. */
  #cut(failure: AttemptFailure, isHeldUp: boolean): void {
    this.#endSpan(failure.kind);
    this.taken.release();
    this.abort();
    this.#owner.cut(failure, isHeldUp);
  }

  /** The upstream rejected the request. The message of its body is used as far as it came. */
  #endRejected(): void {
    if (this.#state !== 'rejected') return;
    const body = Buffer.concat(this.#unreadChunks).toString('utf8');
    this.#unreadChunks = [];
    const fragments = secretFragmentsOf(this.taken.target);
    const failure = rejectionFailure(this.#status, this.#contentType, body, fragments);
    if (failure.callerError === undefined) this.#releaseFailed(failure);
    else this.taken.releaseGood();
    this.#drain();
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

  /** The outcome is known. What still comes of the body is dropped, so that the connection can be kept. */
  #drain(): void {
    this.#state = 'drained';
    this.taken.release();
    this.#call.drain();
  }
}

/** The DoorAttempt, or the fault if the upstream cannot serve the request. */
function doorAttemptOrFault(
  request: UpstreamRequest,
  target: UpstreamTarget,
  clock: Clock,
): DoorAttempt | HttpFault {
  try {
    return doorAttemptOf(request, target, clock);
  } catch (error) {
    if (!(error instanceof FieldError)) throw error;
    return { code: FIELD_UNSUPPORTED, message: error.message, repeatable: false };
  }
}

function headersOf({ trace }: UpstreamRequest, span: AttemptSpan | undefined): readonly string[] | undefined {
  if (span !== undefined) return span.headers;
  return trace === undefined ? undefined : traceHeadersOf(trace);
}
