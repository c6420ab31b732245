/**
 * What a listener counts, in its own stripe: see metrics-layout.ts. Listener thread. Plain stores, no allocation.
 */
import { observe } from './histogram.js';
import {
  CHAT_ROUTE,
  DURATION_BOUNDS_MS,
  FIRST_TOKEN_BOUNDS_MS,
  IN_FLIGHT,
  LISTENER_STRIPE_WORDS,
  MODEL_BROKEN,
  MODEL_CACHED_TOKENS,
  MODEL_COST,
  MODEL_DURATION,
  MODEL_FIRST_TOKEN,
  MODEL_INPUT,
  MODEL_OUTPUT,
  MODEL_TOLD,
  NO_MODEL,
  OTHER_ROUTES,
  OUTCOMES,
  OVERHEAD_BOUNDS_MS,
  OVERHEAD_STREAM,
  OVERHEAD_WHOLE,
  REFUSALS,
  REFUSAL_REASONS,
  ROUTES,
  TOKENS_BOUNDS,
  modelAt,
  openStripe,
  type MetricsBuffers,
  type Outcome,
  type RefusalReason,
  type Route,
} from './metrics-layout.js';

/** Of a call that was charged. */
export interface CountedTokens {
  readonly promptTokens: number;
  /** Part of `promptTokens`. */
  readonly cachedTokens: number;
  readonly completionTokens: number;
}

export class ListenerMetrics {
  readonly #words: Float64Array;

  /** Of the listener of that index. A listener that died in this one's place had calls in flight; they are gone. */
  constructor(buffers: MetricsBuffers, listenerIndex: number) {
    this.#words = openStripe(buffers.listeners, listenerIndex, LISTENER_STRIPE_WORDS);
    this.#words[IN_FLIGHT] = 0;
  }

  /** A call has been given to a worker. */
  callBegun(): void {
    this.#words[IN_FLIGHT]! += 1;
  }

  /** Its worker has said its last word. */
  callEnded(): void {
    this.#words[IN_FLIGHT]! -= 1;
  }

  /** A request whose model does not matter, or is not known. */
  countRequest(route: Route, outcome: Outcome): void {
    if (route === CHAT_ROUTE) this.countCall(NO_MODEL, outcome, false);
    else
      this.#words[ROUTES + OTHER_ROUTES.indexOf(route) * OUTCOMES.length + OUTCOMES.indexOf(outcome)]! += 1;
  }

  /** The end of a chat call; `broken` where its response had begun with 200 before it failed. */
  countCall(modelSlot: number, outcome: Outcome, broken: boolean): void {
    const column = broken ? MODEL_BROKEN : MODEL_TOLD;
    this.#words[modelAt(modelSlot) + column + OUTCOMES.indexOf(outcome)]! += 1;
  }

  countRefusal(reason: RefusalReason): void {
    this.#words[REFUSALS + REFUSAL_REASONS.indexOf(reason)]! += 1;
  }

  /** What a call was charged for, and how much. */
  countUsage(modelSlot: number, tokens: CountedTokens, chargedPicoUnits: bigint): void {
    const words = this.#words;
    const model = modelAt(modelSlot);
    observe(words, model + MODEL_INPUT, TOKENS_BOUNDS, tokens.promptTokens);
    observe(words, model + MODEL_OUTPUT, TOKENS_BOUNDS, tokens.completionTokens);
    words[model + MODEL_CACHED_TOKENS]! += tokens.cachedTokens;
    words[model + MODEL_COST]! += Number(chargedPicoUnits);
  }

  observeDuration(modelSlot: number, durationMs: number): void {
    observe(this.#words, modelAt(modelSlot) + MODEL_DURATION, DURATION_BOUNDS_MS, durationMs);
  }

  observeFirstToken(modelSlot: number, firstTokenMs: number): void {
    observe(this.#words, modelAt(modelSlot) + MODEL_FIRST_TOKEN, FIRST_TOKEN_BOUNDS_MS, firstTokenMs);
  }

  observeOverhead(stream: boolean, overheadMs: number): void {
    observe(this.#words, stream ? OVERHEAD_STREAM : OVERHEAD_WHOLE, OVERHEAD_BOUNDS_MS, overheadMs);
  }
}
