/**
 * The model that serves a call now: the model that the caller named, then its fallbacks, each if the model
 * before has failed. CallModels has the request as that model's upstreams get it, and the RetryPlan of the
 * attempts on these upstreams. chat-session.ts makes a CallModels for each session, and asks for no further
 * model once the client has a byte. Upstream worker.
 *
 * Must hold: if all models fail, the caller gets the error of the model that it named, because it knows no
 * other. A bound of the output is lowered for a fallback, because its provider would reject a higher bound.
 * No bound is added (test/unit/upstream/call-models.test.ts).
 */
import type { FallbackModels, UpstreamRequest } from '../channel/messages.js';
import type { Clock } from '../core/clock.js';
import type { ErrorRecord } from '../core/errors.js';
import { dialectAt } from '../doors/dialects.js';
import { freeBody } from '../http1/body-memory.js';
import { isNowhere, withModelId, withOutputTokensMax } from '../protocol/chat-call.js';
import { RetryPlan } from './retry-plan.js';
import type { RouteTable } from './route-table.js';
import type { FallbackReason, ModelRoute } from './target.js';
import { tokensMaxOf } from './usage-bounds.js';

export class CallModels {
  readonly #original: UpstreamRequest;
  readonly #routes: RouteTable;
  readonly #clock: Clock;
  /** Why the model that the caller named failed; undefined until it has. */
  #error: ErrorRecord | undefined = undefined;
  /** Milliseconds and attempts that the models before the current one took. */
  #earlierMs = 0;
  #earlierAttempts = 0;
  /** The request as the model's upstreams get it. */
  request: UpstreamRequest;
  /** The attempts on the model's upstreams. */
  retries: RetryPlan;
  /** 0 while the caller's model serves, else the position of the fallback, from 1. */
  fallbackNumber = 0;

  constructor(original: UpstreamRequest, routes: RouteTable, clock: Clock) {
    this.#original = original;
    this.#routes = routes;
    this.#clock = clock;
    this.request = original;
    this.retries = this.#newRetries();
  }

  /** Milliseconds since the worker got the call. */
  spentMs(): number {
    return this.#earlierMs + this.retries.spentMs();
  }

  /** Attempts so far, on all models. */
  get attempts(): number {
    return this.#earlierAttempts + this.retries.attempts;
  }

  /**
   * Whether another model gets the call if the current model fails now. `fallbackReason` is undefined if the
   * provider rejected the request. `fallbackOn` is about the named model alone. Once a fallback has the call,
   * the next one follows after any failure, even a rejection: nobody wrote the request for that fallback.
   */
  hasNext(fallbackReason: FallbackReason | undefined): boolean {
    const { fallbacks, modelIndex } = this.#original;
    if (fallbacks === undefined || this.fallbackNumber === fallbacks.models.length) return false;
    return (
      this.fallbackNumber > 0 ||
      (fallbackReason !== undefined && this.#routes.routeOf(modelIndex).fallbackOn.includes(fallbackReason))
    );
  }

  /** The model has failed. Undefined if the next one gets the call, else the error for the caller. */
  failOver(error: ErrorRecord, fallbackReason: FallbackReason | undefined): ErrorRecord | undefined {
    this.#error ??= error;
    if (!this.hasNext(fallbackReason)) return this.#error;
    this.#earlierMs += this.retries.spentMs();
    this.#earlierAttempts += this.retries.attempts;
    const modelIndex = this.#original.fallbacks!.models[this.fallbackNumber]!;
    this.request = requestTo(modelIndex, this.#routes.routeOf(modelIndex), this.#original);
    this.fallbackNumber += 1;
    this.retries = this.#newRetries();
    return undefined;
  }

  /** The usage is known and no attempt follows, so nobody reads the body any more: its memory is freed. */
  freeBody(): void {
    const { largeBody } = this.request;
    if (largeBody !== undefined) freeBody(largeBody);
  }

  /** RetryPlan asks for tokens only if an upstream limits them. A call that only counts tokens uses none. */
  #newRetries(): RetryPlan {
    const { request } = this;
    // `dialectAt` returns undefined for chat, whose calls never only count.
    const isCount = dialectAt(request.door)?.isCount === true;
    return new RetryPlan(this.#routes.balancerOf(request.modelIndex), request.account, this.#clock, () =>
      isCount ? 0 : tokensMaxOf(request, this.#routes.routeOf(request.modelIndex)),
    );
  }
}

/**
 * The request with the fallback's id as the model, and with no more output than the fallback can generate. A
 * call that sets no bound gets none. Copies the body. The call has `fallbacks`, or `failOver` would not ask.
 */
function requestTo(
  modelIndex: number,
  { id, outputTokensMax }: ModelRoute,
  original: UpstreamRequest,
): UpstreamRequest {
  const { maxTokens, maxCompletionTokens }: FallbackModels = original.fallbacks!;
  const { body, largeBody, modelStart, modelEnd } = original;
  // `bodyEnd` is needed only to add a bound, which does not happen here.
  const renamed = withModelId(
    { body, largeBody, modelStart, modelEnd, maxTokens, maxCompletionTokens, bodyEnd: 0 },
    id,
  );
  // `renamed` has both spans moved by the change.
  const isBounded = !isNowhere(maxTokens) || !isNowhere(maxCompletionTokens);
  const isLowered = isBounded && original.outputTokensMax > outputTokensMax;
  const bounded = isLowered ? withOutputTokensMax(renamed, outputTokensMax) : renamed;
  return {
    ...original,
    modelIndex,
    body: bounded.body,
    largeBody: bounded.largeBody,
    modelStart: bounded.modelStart,
    modelEnd: bounded.modelEnd,
    outputTokensMax: isLowered ? outputTokensMax : original.outputTokensMax,
  };
}
