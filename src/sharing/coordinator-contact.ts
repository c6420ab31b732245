/**
 * Whether the coordinator answers, and when to try again after it did not. `LeaseManager` and `EqualShare`
 * have one each. Main thread.
 */
import { emptyHistogram, type HistogramSnapshot } from '../telemetry/histogram.js';
import { EXCHANGE_BOUNDS_MS } from '../telemetry/metrics-snapshot.js';
import { CoordinatorLost, type LossReason } from './coordinator.js';

/** The pause after a loss doubles from first to longest; a random part keeps nodes from coming at once. */
const RETRY_MS_MIN = 100;
const RETRY_MS_MAX = 2_000;

/** For status and metrics. */
export interface ContactState {
  /** Undefined while the coordinator answers. */
  readonly lost:
    { readonly reason: LossReason; readonly message: string; readonly sinceMs: number } | undefined;
  /** How long the answered exchanges took. */
  readonly exchanges: HistogramSnapshot;
  readonly losses: number;
  /** When the last exchange was answered. */
  readonly answeredMs: number;
}

export class CoordinatorContact {
  readonly #random: () => number;
  #lost: ContactState['lost'];
  readonly #exchanges = emptyHistogram(EXCHANGE_BOUNDS_MS);
  #losses = 0;
  #answeredMs = 0;
  #failures = 0;
  #retryMs = 0;

  constructor(random: () => number) {
    this.#random = random;
  }

  get state(): ContactState {
    return {
      lost: this.#lost,
      exchanges: this.#exchanges,
      losses: this.#losses,
      answeredMs: this.#answeredMs,
    };
  }

  get isLost(): boolean {
    return this.#lost !== undefined;
  }

  /** False during the pause after a loss. */
  mayTry(nowMs: number): boolean {
    return nowMs >= this.#retryMs;
  }

  answered(sentMs: number, nowMs: number): void {
    this.#lost = undefined;
    this.#failures = 0;
    const tookMs = nowMs - sentMs;
    const bucket = EXCHANGE_BOUNDS_MS.findIndex((bound) => tookMs <= bound);
    this.#exchanges.counts[bucket < 0 ? EXCHANGE_BOUNDS_MS.length : bucket]! += 1;
    this.#exchanges.sum += tookMs;
    this.#answeredMs = nowMs;
  }

  failed(error: unknown, nowMs: number): void {
    const reason = error instanceof CoordinatorLost ? error.reason : 'failing';
    this.#lost = { reason, message: String(error), sinceMs: this.#lost?.sinceMs ?? nowMs };
    this.#losses += 1;
    const pauseMs = Math.min(RETRY_MS_MAX, RETRY_MS_MIN * 2 ** this.#failures);
    this.#failures += 1;
    this.#retryMs = nowMs + pauseMs * (0.5 + this.#random());
  }
}
