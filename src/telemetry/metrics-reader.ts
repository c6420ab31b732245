/**
 * Sums over the stripes of all threads (metrics-layout.ts), for `/metrics` and for the status. Main thread.
 * The sums are not of one moment: a call that ends meanwhile may be in one sum and not in another.
 *
 * Must hold: the sums are read where metrics-writers.ts counts (test/unit/telemetry/metrics-layout.test.ts).
 */
import { DOOR_NAMES, type DoorName } from '../core/door-names.js';
import { addHistogram, emptyHistogram, type HistogramBounds, type HistogramSnapshot } from './histogram.js';
import {
  BREAKER_STATES,
  CACHE_BYTES,
  CACHE_ENTRIES,
  CACHE_EVICTIONS,
  COST_PART,
  DISBELIEF_REASONS,
  DURATION_BOUNDS_MS,
  FAILURE_KINDS,
  FIRST_TOKEN_BOUNDS_MS,
  IN_FLIGHT,
  LISTENER_STRIPE_WORDS,
  MODEL_CACHED_TOKENS,
  MODEL_CACHE_HITS,
  MODEL_CACHE_MISSES,
  MODEL_CACHE_WRITE_TOKENS,
  MODEL_COST,
  MODEL_COST_REST,
  MODEL_DURATION,
  MODEL_FALLEN_BACK,
  MODEL_FIRST_TOKEN,
  MODEL_INPUT,
  MODEL_OUTPUT,
  MODEL_REASONING_TOKENS,
  MODEL_STOOD_IN,
  OTHER_ROUTES,
  OUTCOMES,
  OVERHEAD_BOUNDS_MS,
  OVERHEAD_STREAM,
  OVERHEAD_WHOLE,
  REJECTIONS,
  REJECTION_REASONS,
  ROUTES,
  THREAD_DELAY_MAX_MS,
  THREAD_DELAY_P99_MS,
  THREAD_HEAP_BYTES,
  THREAD_STRIPE_WORDS,
  TOKENS_BOUNDS,
  UPSTREAM_ATTEMPTS,
  UPSTREAM_BREAKER,
  UPSTREAM_DISBELIEVED,
  UPSTREAM_FAILED_AT,
  UPSTREAM_FAILED_KIND,
  UPSTREAM_FAILURES,
  UPSTREAM_IN_FLIGHT,
  UPSTREAM_RETRIES,
  UPSTREAM_STRIPE_WORDS,
  UPSTREAM_WAITED_MS,
  UPSTREAM_WAITING,
  UPSTREAM_WAITS,
  UPSTREAM_WAITS_REJECTED,
  doorAt,
  modelAt,
  openStripes,
  upstreamAt,
  type BreakerState,
  type DisbeliefReason,
  type FailureKind,
  type MetricsBuffers,
  type OtherRoute,
  type Outcome,
  type RejectionReason,
} from './metrics-layout.js';

interface DoorOutcomes {
  readonly door: DoorName;
  /** Outcomes of calls, without those in `broken`. */
  readonly outcomes: ReadonlyMap<Outcome, number>;
  /** Errors of calls whose response had begun with 200. */
  readonly broken: ReadonlyMap<Outcome, number>;
}

export interface ModelSnapshot {
  readonly doors: readonly DoorOutcomes[];
  readonly cachedTokens: number;
  readonly cacheWriteTokens: number;
  readonly reasoningTokens: number;
  /** Calls that named the model and were answered by another. */
  readonly fallenBack: number;
  /** Calls that named another model and were answered by this one. */
  readonly stoodIn: number;
  /** Requests for which the cache had a response, and those for which it had none. */
  readonly cacheHits: number;
  readonly cacheMisses: number;
  readonly costPicoUnits: bigint;
  readonly inputTokens: HistogramSnapshot;
  readonly outputTokens: HistogramSnapshot;
  readonly durationMs: HistogramSnapshot;
  readonly firstTokenMs: HistogramSnapshot;
}

export interface UpstreamSnapshot {
  readonly attempts: number;
  readonly retries: number;
  readonly callsInFlight: number;
  readonly failures: ReadonlyMap<FailureKind, number>;
  /** The last failure at any worker; undefined before the first. */
  readonly lastFailure: { readonly kind: FailureKind; readonly atMs: number } | undefined;
  /** Reports of usage that were not believed. */
  readonly disbelieved: ReadonlyMap<DisbeliefReason, number>;
  /** Calls that wait for the limits of upstreams now, and waits that have ended. */
  readonly waits: {
    readonly now: number;
    readonly ended: number;
    readonly rejected: number;
    readonly ms: number;
  };
  /** Number of workers by the state of their breaker. */
  readonly breakers: ReadonlyMap<BreakerState, number>;
}

export interface ThreadSnapshot {
  /** Index in `threadNames`. */
  readonly thread: number;
  readonly delayP99Ms: number;
  readonly delayMaxMs: number;
  readonly heapBytes: number;
}

export class MetricsReader {
  readonly #listeners: readonly Float64Array[];
  readonly #workers: readonly Float64Array[];
  readonly #threads: readonly Float64Array[];

  constructor(buffers: MetricsBuffers) {
    this.#listeners = openStripes(buffers.listeners, LISTENER_STRIPE_WORDS);
    this.#workers = openStripes(buffers.upstreams, UPSTREAM_STRIPE_WORDS);
    this.#threads = openStripes(buffers.threads, THREAD_STRIPE_WORDS);
  }

  callsInFlight(): number {
    return sum(this.#listeners, IN_FLIGHT);
  }

  route(route: OtherRoute): ReadonlyMap<Outcome, number> {
    return row(this.#listeners, ROUTES + OTHER_ROUTES.indexOf(route) * OUTCOMES.length, OUTCOMES);
  }

  rejections(): ReadonlyMap<RejectionReason, number> {
    return row(this.#listeners, REJECTIONS, REJECTION_REASONS);
  }

  /** Cached responses in the memory of the listeners. */
  cache(): { readonly entries: number; readonly bytes: number; readonly evictions: number } {
    return {
      entries: sum(this.#listeners, CACHE_ENTRIES),
      bytes: sum(this.#listeners, CACHE_BYTES),
      evictions: sum(this.#listeners, CACHE_EVICTIONS),
    };
  }

  overheadMs(stream: boolean): HistogramSnapshot {
    return histogram(this.#listeners, stream ? OVERHEAD_STREAM : OVERHEAD_WHOLE, OVERHEAD_BOUNDS_MS);
  }

  /** Takes the model's slot, which may be NO_MODEL or OTHER_MODEL. Costs some 3 µs a listener. */
  model(modelSlot: number): ModelSnapshot {
    const at = modelAt(modelSlot);
    const listeners = this.#listeners;
    return {
      doors: DOOR_NAMES.map((door, index) => {
        const first = doorAt(modelSlot, index);
        return {
          door,
          outcomes: row(listeners, first, OUTCOMES),
          broken: row(listeners, first + OUTCOMES.length, OUTCOMES),
        };
      }),
      cachedTokens: sum(listeners, at + MODEL_CACHED_TOKENS),
      cacheWriteTokens: sum(listeners, at + MODEL_CACHE_WRITE_TOKENS),
      reasoningTokens: sum(listeners, at + MODEL_REASONING_TOKENS),
      fallenBack: sum(listeners, at + MODEL_FALLEN_BACK),
      stoodIn: sum(listeners, at + MODEL_STOOD_IN),
      cacheHits: sum(listeners, at + MODEL_CACHE_HITS),
      cacheMisses: sum(listeners, at + MODEL_CACHE_MISSES),
      costPicoUnits:
        BigInt(sum(listeners, at + MODEL_COST)) * COST_PART + BigInt(sum(listeners, at + MODEL_COST_REST)),
      inputTokens: histogram(listeners, at + MODEL_INPUT, TOKENS_BOUNDS),
      outputTokens: histogram(listeners, at + MODEL_OUTPUT, TOKENS_BOUNDS),
      durationMs: histogram(listeners, at + MODEL_DURATION, DURATION_BOUNDS_MS),
      firstTokenMs: histogram(listeners, at + MODEL_FIRST_TOKEN, FIRST_TOKEN_BOUNDS_MS),
    };
  }

  upstream(upstreamSlot: number): UpstreamSnapshot {
    const at = upstreamAt(upstreamSlot);
    const breakers = new Map<BreakerState, number>(BREAKER_STATES.map((state) => [state, 0]));
    let lastFailure: UpstreamSnapshot['lastFailure'];
    for (const words of this.#workers) {
      const atMs = words[at + UPSTREAM_FAILED_AT]!;
      if (atMs > (lastFailure?.atMs ?? 0)) {
        lastFailure = { kind: FAILURE_KINDS[words[at + UPSTREAM_FAILED_KIND]!]!, atMs };
      }
      const state = BREAKER_STATES[words[at + UPSTREAM_BREAKER]!]!;
      breakers.set(state, breakers.get(state)! + 1);
    }
    return {
      attempts: sum(this.#workers, at + UPSTREAM_ATTEMPTS),
      retries: sum(this.#workers, at + UPSTREAM_RETRIES),
      callsInFlight: sum(this.#workers, at + UPSTREAM_IN_FLIGHT),
      failures: row(this.#workers, at + UPSTREAM_FAILURES, FAILURE_KINDS),
      lastFailure,
      waits: {
        now: sum(this.#workers, at + UPSTREAM_WAITING),
        ended: sum(this.#workers, at + UPSTREAM_WAITS),
        rejected: sum(this.#workers, at + UPSTREAM_WAITS_REJECTED),
        ms: sum(this.#workers, at + UPSTREAM_WAITED_MS),
      },
      disbelieved: row(this.#workers, at + UPSTREAM_DISBELIEVED, DISBELIEF_REASONS),
      breakers,
    };
  }

  /** Returns the threads that run. */
  threads(): ThreadSnapshot[] {
    return this.#threads
      .map((words, thread) => ({
        thread,
        delayP99Ms: words[THREAD_DELAY_P99_MS]!,
        delayMaxMs: words[THREAD_DELAY_MAX_MS]!,
        heapBytes: words[THREAD_HEAP_BYTES]!,
      }))
      .filter(({ heapBytes }) => heapBytes > 0);
  }
}

function sum(stripes: readonly Float64Array[], at: number): number {
  let total = 0;
  for (const words of stripes) total += words[at]!;
  return total;
}

/** Returns one sum for each name, from word `at` on. */
function row<Name>(
  stripes: readonly Float64Array[],
  at: number,
  names: readonly Name[],
): ReadonlyMap<Name, number> {
  return new Map(names.map((name, index) => [name, sum(stripes, at + index)]));
}

function histogram(stripes: readonly Float64Array[], at: number, bounds: HistogramBounds): HistogramSnapshot {
  const snapshot = emptyHistogram(bounds);
  for (const words of stripes) addHistogram(snapshot, words, at);
  return snapshot;
}
