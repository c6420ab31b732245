/**
 * One call in an upstream worker, from its first attempt to its end: failover before the first byte,
 * back-pressure, cancelling, usage. channel/worker-channel.ts starts a session for each Call frame, by the
 * function that upstream-task.ts has made with createStartSession.
 *
 * Must hold: the listener gets exactly one of end, cut and fail, last. No upstream is tried after the first
 * byte for the client, or after the client has left. A client that leaves pays for what was relayed, or for
 * all that has come if its upstream may finish. It pays nothing if no request was sent, or if the upstream
 * rejects the request (test/unit/upstream/chat-session*.test.ts).
 */
import { freeDisposable } from '../core/bytes.js';
import { invariant, type ErrorRecord } from '../core/errors.js';
import { FRAME_BYTES_MAX } from '../core/limits.js';
import type {
  DownstreamHandle,
  StartSession,
  UpstreamRequest,
  UpstreamSession,
} from '../channel/messages.js';
import { dialectAt } from '../doors/dialects.js';
import type { Usage } from '../core/token-counts.js';
import type { AttemptCode } from '../telemetry/call-ring-layout.js';
import { ResponseBudget } from './worker-budget.js';
import { type LastBytes } from './response-reader.js';
import { clientOf, guarded, type SessionShared } from './session-shared.js';
import { newAttemptSpan } from './attempt-span.js';
import { Attempt, type AttemptOwner } from './attempt.js';
import { CallModels } from './call-models.js';
import { startCountSession } from './count-session.js';
import { usageOf } from './call-usage.js';
import type { LeftCall } from './left-calls.js';
import { CLIENT_GONE, CRASHED, tokensUsedBy, unavailableError } from './error-mapping.js';
import type { AttemptFailure } from './error-mapping.js';
import { beyondQuotaError, noRoomError, QuotaWait } from './quota-wait.js';
import { shorterWait } from './retry-after.js';
import type { FallbackReason } from './target.js';
import type { NoRoom } from './balancer.js';
import type { TakeBy } from './upstream-quotas.js';
import { bodyBytesOf } from './usage-bounds.js';

const EMPTY = new Uint8Array(0);
const NOT_HELD_UP = false;

/** Returns the function that the channel calls for each Call frame; it never throws. Called once a worker. */
export function createStartSession(shared: SessionShared): StartSession {
  const start: StartSession = (request, downstream) => new ChatSession(shared, request, downstream).start();
  return guarded(shared.errors, (request, downstream) =>
    dialectAt(request.door)?.isCount === true
      ? startCountSession(shared, request, downstream, start)
      : start(request, downstream),
  );
}

/** calling (attempts, pauses, waits) → counting (the usage is awaited) → delivering; from each → ended. */
type State = 'calling' | 'counting' | 'delivering' | 'ended';

class ChatSession implements UpstreamSession, AttemptOwner {
  readonly #shared: SessionShared;
  readonly #models: CallModels;
  readonly #downstream: DownstreamHandle;
  /** Bytes of a response that is no stream, which its reader adds. Cleared after each attempt. */
  readonly budget: ResponseBudget;
  #state: State = 'calling';
  /** Undefined in a pause or a wait. Set before the HTTP client calls the attempt for the first time. */
  #attempt: Attempt | undefined;
  #retryTimer: NodeJS.Timeout | undefined;
  /** Set at the first wait for upstreams that are at their limits, and kept for later waits. */
  #quotaWait: QuotaWait | undefined;
  /** `relay` was called, so no attempt may follow. */
  #hasRelayed = false;
  #upstreamWaitMs = 0;
  /** The client has left. */
  #isCancelled = false;
  /** Set if the client has left and the upstream may finish: what still comes is counted and discarded. */
  #leftCall: LeftCall | undefined;
  /** A bound, or a client that does not read, has cut the stream. The stream ends by `downstream.cut`. */
  #isCut = false;
  #retryAfterSeconds: number | undefined;
  /** Why the last attempt failed, for the caller. */
  #lastReason: string | undefined;
  /** Set if the protocol of an upstream cannot express the request. Another upstream's protocol may. */
  #unsupportedError: ErrorRecord | undefined;
  /** From `complete` on: the last bytes of the response, and those of them that were not sent yet. */
  #lastBytes: Uint8Array = EMPTY;
  #unsent: Uint8Array = EMPTY;
  #usage: Usage | undefined;

  constructor(shared: SessionShared, request: UpstreamRequest, downstream: DownstreamHandle) {
    this.#shared = shared;
    this.#models = new CallModels(request, shared.routes, shared.clock);
    this.#downstream = downstream;
    this.budget = new ResponseBudget(shared.wholeResponses);
  }

  start(): this {
    try {
      this.#tryNext();
    } catch (error) {
      this.crash(error);
    }
    return this;
  }

  // The channel calls the next three methods, and `crash` if one throws. `UpstreamSession` describes them.
  onCredit(): void {
    if (this.#state === 'calling') this.#attempt?.resume();
    else if (this.#state === 'delivering') this.#deliver();
  }

  onCancel(): void {
    if (!this.#isCancelled) this.#cancel('may finish');
  }

  onStop(): void {
    if (!this.#isCancelled || this.#leftCall !== undefined) this.#cancel('is aborted');
  }

  #cancel(upstream: 'may finish' | 'is aborted'): void {
    this.#isCancelled = true;
    // The response has come and is charged. If its tokens are still counted, `#onUsage` ends the call.
    if (this.#state === 'delivering') this.#end();
    if (this.#state !== 'calling') return;
    const attempt = this.#attempt;
    const isCharged = attempt?.sent === true && !attempt.isRejected;
    if (isCharged && this.#letFinish(attempt, upstream === 'is aborted')) return;
    attempt?.abort();
    if (isCharged) this.#findUsageSoon();
    else {
      attempt?.taken.settle(0);
      if (attempt !== undefined) this.#report(attempt, 'cancelled', '');
      this.#fail(CLIENT_GONE);
    }
  }

  /** Returns whether the attempt goes on without its client. At a second cancel it does not. */
  #letFinish(attempt: Attempt, atOnce: boolean): boolean {
    this.#leftCall?.end('cut');
    if (this.#leftCall !== undefined) return false;
    this.#leftCall = this.#shared.leftCalls.begin(attempt.taken.target, this.#models.request.account, atOnce);
    // The attempt may have been paused until the client reads, which it never will.
    if (this.#leftCall !== undefined && this.#hasRelayed) attempt.resume();
    return this.#leftCall !== undefined;
  }

  // The attempt and its reader call `relay`, `complete`, `reject`, `cut` and `crash`: see AttemptOwner.
  relay(bytes: Uint8Array): void {
    invariant(this.#state === 'calling', 'bytes are relayed during the call');
    if (!this.#hasRelayed) this.#upstreamWaitMs = this.#models.spentMs();
    this.#hasRelayed = true;
    if (this.#leftCall === undefined && !this.#downstream.data(bytes)) this.#attempt?.pause();
  }

  complete(lastBytes: LastBytes): void {
    if (!this.#hasRelayed) this.#upstreamWaitMs = this.#models.spentMs();
    if (this.#leftCall !== undefined) this.#report(this.#attempt!, undefined, '');
    this.#leftCall?.end('finished');
    this.#findUsage(lastBytes);
  }

  reject(failure: AttemptFailure): void {
    invariant(this.#state === 'calling', 'an attempt fails during the call');
    const attempt = this.#attempt!;
    // The client has left. What came is paid, as if the upstream had been aborted before the failure.
    if (this.#leftCall !== undefined && this.#hasRelayed) {
      this.cut(failure, NOT_HELD_UP);
      return;
    }
    this.#attempt = undefined;
    this.budget.clear();
    attempt.taken.settle(tokensUsedBy(failure, attempt.sent));
    this.#report(attempt, failure.kind, failure.cause);
    this.#shared.metrics.countFailure(attempt.taken.target.slot, failure.kind, this.#shared.clock.wallMs());
    const { callerError } = failure;
    if (callerError === undefined) this.#onAttemptFailed(attempt, failure);
    else if (failure.isOurs) {
      const text = 'a call ended at a bound of the gateway: room, descriptors, or length of a response';
      this.#shared.errors.write('error', 'gateway', text, failure.cause);
      this.#fail(callerError);
    } else this.#failModel(callerError, failure.isContextTooLong ? 'context_length' : undefined);
  }

  /** Another attempt follows; else the model fails: by the last reason, `#unsupportedError`, or cooldowns. */
  #onAttemptFailed(attempt: Attempt, failure: AttemptFailure): void {
    const { retries } = this.#models;
    this.#retryAfterSeconds = shorterWait(this.#retryAfterSeconds, failure.retryAfterSeconds);
    this.#unsupportedError ??= failure.unsupported;
    if (failure.unsupported === undefined) this.#lastReason = failure.reason;
    const mustStop = this.#hasRelayed || this.#isCancelled;
    const pauseMs = mustStop ? undefined : retries.planPauseMs(attempt.taken, failure, attempt.sent);
    const goesOn = pauseMs !== undefined || (!mustStop && this.#models.hasNext('unavailable'));
    if (failure.unsupported === undefined)
      this.#shared.errors.writeFailure(attempt.taken.target, failure, goesOn);
    if (pauseMs !== undefined) this.#tryNextAfter(pauseMs);
    else if (this.#lastReason !== undefined)
      this.#failModel(unavailableError(this.#lastReason, this.#retryAfterSeconds), 'unavailable');
    else if (retries.hasTriedAll) this.#failModel(this.#unsupportedError!, undefined);
    else this.#failCoolingDown();
  }

  /** The model has failed. A client that has a byte gets `error`; without one a fallback may get the call. */
  #failModel(error: ErrorRecord, reason: FallbackReason | undefined): void {
    const mustStop = this.#hasRelayed || this.#isCancelled;
    const callerError = mustStop ? error : this.#models.failOver(error, reason);
    if (callerError === undefined) this.#tryNextAfter(0);
    else this.#fail(callerError);
  }

  cut(failure: AttemptFailure, isHeldUp: boolean): void {
    this.#recordCut(failure, isHeldUp);
    this.#findUsage(EMPTY);
  }

  #recordCut(failure: AttemptFailure, isHeldUp: boolean): void {
    const { target } = this.#attempt!.taken;
    this.#report(this.#attempt!, failure.kind, failure.cause);
    if (!isHeldUp) {
      this.#shared.metrics.countFailure(target.slot, failure.kind, this.#shared.clock.wallMs());
      let text = 'a stream was cut at a bound of the gateway, what was relayed is charged';
      if (this.#leftCall) text = 'a stream without its client did not finish, what came is charged';
      this.#shared.errors.write('warn', target.name, text, failure.cause);
    }
    this.#leftCall?.end('cut');
    this.#isCut = true;
  }

  crash(error: unknown): void {
    this.#shared.errors.writeCrash(error);
    this.#attempt?.abort();
    // `settle` gets no number, because nobody knows what was used: all that the call may use counts.
    this.#attempt?.taken.settle();
    if (this.#state !== 'ended') this.#fail(CRASHED);
  }

  /** Reports a failed attempt to the listener; `code` is undefined if it ended well after its client left. */
  #report({ taken, status }: Attempt, code: AttemptCode | undefined, error: string): void {
    const { fallbackNumber: fallback, retries } = this.#models;
    const { slot: upstreamSlot } = taken.target;
    const startMs = retries.attemptStartMs;
    const durationMs = this.#shared.clock.monotonicMs() - startMs;
    this.#downstream.tried({ upstreamSlot, fallback, startMs, durationMs, status, code, error });
  }

  #tryNextAfter(pauseMs: number): void {
    const retry = (): void => {
      if (this.#state === 'calling') this.start();
    };
    // Never at once: a callback of the HTTP client may be running, in the middle of its parser.
    if (pauseMs === 0) queueMicrotask(retry);
    else this.#retryTimer = setTimeout(retry, pauseMs);
  }

  /** Starts the next attempt; else the call waits or fails. False tells the queue that the call waits on. */
  #tryNext(by: TakeBy = 'call'): boolean {
    const { request, retries, fallbackNumber: fallback } = this.#models;
    const taken = retries.take(by);
    if (taken === undefined) return this.#onNoneTaken(by);
    if (by === 'queue') this.#quotaWait!.end();
    this.#downstream.recordUpstream(taken.target.slot, fallback, retries.attemptStartMs);
    try {
      const client = clientOf(this.#shared, taken.target);
      const span = newAttemptSpan(this.#shared, this.#models, taken.target);
      this.#attempt = new Attempt(client, taken, request, span, this.#shared, this);
    } catch (error) {
      // A TakenTarget needs both, even if no attempt began (target-state.ts).
      taken.release();
      taken.settle(0);
      throw error;
    }
    return true;
  }

  /** No upstream can be taken: the call waits, or the model has failed. Returns the result of `#tryNext`. */
  #onNoneTaken(by: TakeBy): boolean {
    const noRoom = this.#models.retries.noRoom();
    if (noRoom !== undefined) {
      if (by === 'call') this.#queue(noRoom);
      return false;
    }
    if (by === 'queue') this.#quotaWait!.end();
    const { tokensBeyond } = this.#models.retries;
    if (tokensBeyond === undefined) this.#failCoolingDown();
    else this.#failModel(beyondQuotaError(this.#models.retries.tokens, tokensBeyond), 'unavailable');
    return true;
  }

  /** The call waits for room. `giveUp` may be called at once, if it may not wait or the queue is full. */
  #queue(noRoom: NoRoom): void {
    const { quotas, clock, metrics } = this.#shared;
    const { account } = this.#models.request;
    this.#quotaWait ??= new QuotaWait(quotas.queue, clock, metrics, {
      account,
      bytes: bodyBytesOf(this.#models.request),
      waitsFor: () => this.#models.retries.limits().map(({ scope }) => scope),
      tryNow: () => this.#tryNext('queue'),
      giveUp: () => this.#failNoRoom(),
      crash: (error) => this.crash(error),
      recordQueued: (ms) => this.#downstream.recordQueued(ms),
      mayBeGranted: () => this.#models.retries.limits().some((limits) => quotas.mayBeGranted(limits)),
    });
    this.#quotaWait.begin(noRoom);
  }

  #failNoRoom(): void {
    const noRoom = this.#models.retries.noRoom();
    const seconds = Math.max(1, Math.ceil((noRoom?.freeInMs ?? 0) / 1_000));
    const error =
      this.#lastReason === undefined
        ? noRoomError(noRoom?.quota, seconds, noRoom?.isUnknown)
        : unavailableError(this.#lastReason, shorterWait(this.#retryAfterSeconds, seconds));
    this.#failModel(error, 'unavailable');
  }

  /** All upstreams cool down. The model fails at once, so that calls do not pile up. */
  #failCoolingDown(): void {
    const { routes, errors } = this.#shared;
    const { waitMs, reason } = this.#models.retries.cooldown();
    const { id } = routes.routeOf(this.#models.request.modelIndex);
    errors.writeCoolingDown(id, reason, this.#models.hasNext('unavailable'));
    const seconds = shorterWait(this.#retryAfterSeconds, Math.max(1, Math.ceil(waitMs / 1_000)));
    this.#failModel(unavailableError(this.#lastReason ?? reason, seconds), 'unavailable');
  }

  /** After this event-loop turn, so that calls whose clients leave together are aborted before any count. */
  #findUsageSoon(): void {
    setImmediate(() => {
      try {
        if (this.#state === 'calling') this.#findUsage(EMPTY);
      } catch (error) {
        this.crash(error);
      }
    });
  }

  /** Finds the usage of a call that is charged, then delivers `lastBytes`. */
  #findUsage(lastBytes: LastBytes): void {
    invariant(this.#state === 'calling', 'the usage of a call is found once');
    this.#state = 'counting';
    const usage = usageOf(this.#attempt!, this.#models.request, this.#shared);
    if (usage instanceof Promise)
      usage.then((counted) => this.#onUsage(counted, lastBytes)).catch((error: unknown) => this.crash(error));
    else this.#onUsage(usage, lastBytes);
  }

  #onUsage(usage: Usage, lastBytes: LastBytes): void {
    // Not if the call has crashed while its tokens were counted.
    if (this.#state !== 'counting') return;
    if (!this.#isCancelled && !this.#isCut) {
      const result = typeof lastBytes === 'function' ? lastBytes(usage) : lastBytes;
      invariant(this.#hasRelayed || result instanceof Uint8Array, 'only a response that has begun is cut');
      if (result instanceof Uint8Array) this.#unsent = this.#lastBytes = result;
      // The last bytes could not be written, which is no fault of the client's.
      else this.#recordCut(result, NOT_HELD_UP);
    }
    this.#models.freeBody();
    const isUnread = this.#isCancelled || this.#isCut;
    this.#attempt?.taken.settle(usage.promptTokens + usage.completionTokens);
    this.#attempt = undefined;
    this.#state = 'delivering';
    this.#usage = isUnread && usage.source !== 'reported' ? { ...usage, source: 'estimated' } : usage;
    if (isUnread) this.#end();
    else this.#deliver();
  }

  /** Sends `#unsent`, in pieces if it is large, as credits allow. `onCredit` calls it again. */
  #deliver(): void {
    while (this.#unsent.length > FRAME_BYTES_MAX) {
      const piece = this.#unsent.subarray(0, FRAME_BYTES_MAX);
      this.#unsent = this.#unsent.subarray(FRAME_BYTES_MAX);
      if (!this.#downstream.data(piece)) return;
    }
    this.#end();
  }

  #end(): void {
    invariant(this.#state === 'delivering' && this.#usage !== undefined, 'a call ends once, with its usage');
    this.#state = 'ended';
    if (this.#isCut) this.#downstream.cut(this.#usage, this.#upstreamWaitMs);
    else this.#downstream.end(this.#isCancelled ? EMPTY : this.#unsent, this.#usage, this.#upstreamWaitMs);
    freeDisposable(this.#lastBytes);
    this.budget.clear();
  }

  #fail(error: ErrorRecord): void {
    invariant(this.#state !== 'ended', 'a call fails once');
    this.#state = 'ended';
    this.#attempt = undefined;
    this.budget.clear();
    clearTimeout(this.#retryTimer);
    this.#leftCall?.end('cut');
    this.#quotaWait?.leave();
    this.#downstream.fail(error);
  }
}
