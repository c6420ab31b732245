/**
 * Sums over the stripes of all threads (metrics-layout.ts), for `/metrics`, the status and the snapshots that
 * gateway processes exchange. gateway/gateway-metrics.ts creates the reader; the families in telemetry/ and
 * gateway/process-status.ts call it. Main thread.
 *
 * The sums are not of one moment: a call that ends during a read may be in one sum and not in another. The
 * two words of a cost are read one after the other, so what the newest charge adds to one of them may be
 * missing until the next read. No cost falls, because neither word falls.
 *
 * Must hold: each sum is read from the words in which metrics-writers.ts counts it
 * (test/unit/telemetry/metrics-layout.test.ts). `!` on a word is safe: openStripes returns whole stripes.
 */
import { SystemClock, type Clock } from '../core/clock.js';
import { DOOR_NAMES, type DoorName } from '../core/door-names.js';
import { addHistogram, emptyHistogram, type HistogramBounds, type HistogramSnapshot } from './histogram.js';
import * as layout from './metrics-layout.js';

interface DoorOutcomes {
  readonly door: DoorName;
  /** Outcomes of calls, without those in `broken`. */
  readonly outcomes: ReadonlyMap<layout.Outcome, number>;
  /** Errors of calls whose response had begun with 200. */
  readonly broken: ReadonlyMap<layout.Outcome, number>;
}

export interface ModelSnapshot {
  /** Calls of all doors, in the order of OUTCOMES. Each is counted once, whether it is broken or not. */
  readonly calls: readonly number[];
  readonly cachedTokens: number;
  readonly cacheWriteTokens: number;
  readonly reasoningTokens: number;
  /** Calls that named the model and were answered by another. */
  readonly fallenBack: number;
  /** Calls that named another model and were answered by this one, as its fallback. */
  readonly stoodIn: number;
  /** Requests for which the cache had a response, and those for which it had none. */
  readonly cacheHits: number;
  readonly cacheMisses: number;
  readonly costPicoUnits: bigint;
  /** What calls cost beyond the balances of their accounts. */
  readonly uncoveredPicoUnits: bigint;
  readonly inputTokens: HistogramSnapshot;
  readonly outputTokens: HistogramSnapshot;
  readonly durationMs: HistogramSnapshot;
  readonly firstTokenMs: HistogramSnapshot;
}

export interface UpstreamSnapshot {
  readonly attempts: number;
  readonly retries: number;
  readonly callsInFlight: number;
  readonly failures: ReadonlyMap<layout.FailureKind, number>;
  /**
   * The last failure at any worker; undefined before the first. If a failure is counted during the read, its
   * kind may be read together with the time of the failure before.
   */
  readonly lastFailure: { readonly kind: layout.FailureKind; readonly atMs: number } | undefined;
  /** Reports of usage that were not believed, so that the gateway counted the tokens, by reason. */
  readonly disbelieved: ReadonlyMap<layout.DisbeliefReason, number>;
  /** Calls whose clients left after the request was sent, by what became of the upstream's response. */
  readonly left: ReadonlyMap<layout.EndWithoutClient, number>;
  /** Calls that wait for the limits of upstreams now, and waits that have ended. */
  readonly waits: {
    readonly now: number;
    readonly ended: number;
    readonly rejected: number;
    readonly ms: number;
  };
  /** How many workers have the breaker of this upstream in each state. All states are present. */
  readonly breakers: ReadonlyMap<layout.BreakerState, number>;
}

export interface ThreadSnapshot {
  /** The number of the thread's stripe: its index in what `threadNames` of metrics-layout.ts returns. */
  readonly thread: number;
  readonly delayP99Ms: number;
  readonly delayMaxMs: number;
  readonly heapBytes: number;
}

export class MetricsReader {
  readonly #listeners: readonly Float64Array[];
  readonly #workers: readonly Float64Array[];
  readonly #threads: readonly Float64Array[];
  readonly #clock: Clock;

  /** `clock` is that of the workers. */
  constructor(buffers: layout.MetricsBuffers, clock: Clock = new SystemClock()) {
    this.#clock = clock;
    this.#listeners = layout.openStripes(buffers.listeners, layout.LISTENER_STRIPE_WORDS);
    this.#workers = layout.openStripes(buffers.upstreams, layout.UPSTREAM_STRIPE_WORDS);
    this.#threads = layout.openStripes(buffers.threads, layout.THREAD_STRIPE_WORDS);
  }

  /** Returns how many calls workers handle now. */
  callsInFlight(): number {
    return sum(this.#listeners, layout.IN_FLIGHT);
  }

  /** Returns how many requests of a route other than a door's have ended, by outcome. */
  route(route: layout.OtherRoute): ReadonlyMap<layout.Outcome, number> {
    return sumsByName(
      this.#listeners,
      layout.ROUTES + layout.OTHER_ROUTES.indexOf(route) * layout.OUTCOMES.length,
      layout.OUTCOMES,
    );
  }

  /** Returns how many chat calls were rejected before they were sent to an upstream, by reason. */
  rejections(): ReadonlyMap<layout.RejectionReason, number> {
    return sumsByName(this.#listeners, layout.REJECTIONS, layout.REJECTION_REASONS);
  }

  /** Returns what the response caches of the listeners hold, and how much they have evicted. */
  cache(): { readonly entries: number; readonly bytes: number; readonly evictions: number } {
    return {
      entries: sum(this.#listeners, layout.CACHE_ENTRIES),
      bytes: sum(this.#listeners, layout.CACHE_BYTES),
      evictions: sum(this.#listeners, layout.CACHE_EVICTIONS),
    };
  }

  /** Returns the overhead of calls: of streams, or of responses that were sent whole. */
  overheadMs(isStream: boolean): HistogramSnapshot {
    return histogram(
      this.#listeners,
      isStream ? layout.OVERHEAD_STREAM : layout.OVERHEAD_WHOLE,
      layout.OVERHEAD_BOUNDS_MS,
    );
  }

  /**
   * Returns the sums of a model. `modelSlot`: the number of the model's block (`modelSlotOf`), which may be
   * NO_MODEL or OTHER_MODEL. Without the counts of `doors`, because the status reads every model every 2 s.
   */
  model(modelSlot: number): ModelSnapshot {
    const block = layout.firstWordOfModel(modelSlot);
    const listeners = this.#listeners;
    const sumOf = (word: number): number => sum(listeners, block + word);
    return {
      calls: callsByOutcome(listeners, modelSlot),
      cachedTokens: sumOf(layout.MODEL_CACHED_TOKENS),
      cacheWriteTokens: sumOf(layout.MODEL_CACHE_WRITE_TOKENS),
      reasoningTokens: sumOf(layout.MODEL_REASONING_TOKENS),
      fallenBack: sumOf(layout.MODEL_FALLEN_BACK),
      stoodIn: sumOf(layout.MODEL_STOOD_IN),
      cacheHits: sumOf(layout.MODEL_CACHE_HITS),
      cacheMisses: sumOf(layout.MODEL_CACHE_MISSES),
      costPicoUnits: money(sumOf(layout.MODEL_COST), sumOf(layout.MODEL_COST_REST)),
      uncoveredPicoUnits: money(sumOf(layout.MODEL_UNCOVERED), sumOf(layout.MODEL_UNCOVERED_REST)),
      inputTokens: histogram(listeners, block + layout.MODEL_INPUT, layout.TOKENS_BOUNDS),
      outputTokens: histogram(listeners, block + layout.MODEL_OUTPUT, layout.TOKENS_BOUNDS),
      durationMs: histogram(listeners, block + layout.MODEL_DURATION, layout.DURATION_BOUNDS_MS),
      firstTokenMs: histogram(listeners, block + layout.MODEL_FIRST_TOKEN, layout.FIRST_TOKEN_BOUNDS_MS),
    };
  }

  /** Returns the calls of a model by door; leaves out doors without calls. `modelSlot`: as in `model`. */
  doors(modelSlot: number): DoorOutcomes[] {
    return DOOR_NAMES.flatMap((door, index) => {
      const firstWord = layout.firstWordOfDoor(modelSlot, index);
      const endWord = firstWord + 2 * layout.OUTCOMES.length;
      const hasCalls = this.#listeners.some((words) => {
        for (let word = firstWord; word < endWord; word += 1) if (words[word]! > 0) return true;
        return false;
      });
      if (!hasCalls) return [];
      return {
        door,
        outcomes: sumsByName(this.#listeners, firstWord, layout.OUTCOMES),
        broken: sumsByName(this.#listeners, firstWord + layout.OUTCOMES.length, layout.OUTCOMES),
      };
    });
  }

  /** Returns the sums of an upstream. `upstreamSlot`: its slot by UpstreamNames (upstream-names.ts). */
  upstream(upstreamSlot: number): UpstreamSnapshot {
    const block = layout.firstWordOfUpstream(upstreamSlot);
    const breakers = new Map<layout.BreakerState, number>(layout.BREAKER_STATES.map((state) => [state, 0]));
    const nowMs = this.#clock.monotonicMs();
    let lastFailure: UpstreamSnapshot['lastFailure'];
    for (const words of this.#workers) {
      const atMs = words[block + layout.UPSTREAM_FAILED_AT]!;
      if (atMs > (lastFailure?.atMs ?? 0)) {
        lastFailure = { kind: layout.FAILURE_KINDS[words[block + layout.UPSTREAM_FAILED_KIND]!]!, atMs };
      }
      const written = layout.BREAKER_STATES[words[block + layout.UPSTREAM_BREAKER]!]!;
      const isOver = words[block + layout.UPSTREAM_COOLDOWN_END]! <= nowMs;
      const state = written === 'open' && isOver ? 'half_open' : written;
      breakers.set(state, breakers.get(state)! + 1);
    }
    return {
      attempts: sum(this.#workers, block + layout.UPSTREAM_ATTEMPTS),
      retries: sum(this.#workers, block + layout.UPSTREAM_RETRIES),
      callsInFlight: sum(this.#workers, block + layout.UPSTREAM_IN_FLIGHT),
      failures: sumsByName(this.#workers, block + layout.UPSTREAM_FAILURES, layout.FAILURE_KINDS),
      lastFailure,
      waits: {
        now: sum(this.#workers, block + layout.UPSTREAM_WAITING),
        ended: sum(this.#workers, block + layout.UPSTREAM_WAITS),
        rejected: sum(this.#workers, block + layout.UPSTREAM_WAITS_REJECTED),
        ms: sum(this.#workers, block + layout.UPSTREAM_WAITED_MS),
      },
      disbelieved: sumsByName(this.#workers, block + layout.UPSTREAM_DISBELIEVED, layout.DISBELIEF_REASONS),
      left: sumsByName(this.#workers, block + layout.UPSTREAM_CLIENTS_LEFT, layout.ENDS_WITHOUT_CLIENT),
      breakers,
    };
  }

  /** Returns the threads that run: the words of others have no heap (THREAD_HEAP_BYTES). */
  threads(): ThreadSnapshot[] {
    return this.#threads
      .map((words, thread) => ({
        thread,
        delayP99Ms: words[layout.THREAD_DELAY_P99_MS]!,
        delayMaxMs: words[layout.THREAD_DELAY_MAX_MS]!,
        heapBytes: words[layout.THREAD_HEAP_BYTES]!,
      }))
      .filter(({ heapBytes }) => heapBytes > 0);
  }
}

/** Returns the sum of word `word` of all stripes. */
function sum(stripes: readonly Float64Array[], word: number): number {
  let total = 0;
  for (const words of stripes) total += words[word]!;
  return total;
}

/** Returns the calls of a model by all doors, broken ones among them, in the order of OUTCOMES. */
function callsByOutcome(listeners: readonly Float64Array[], modelSlot: number): number[] {
  const calls = new Array<number>(layout.OUTCOMES.length).fill(0);
  for (let door = 0; door < DOOR_NAMES.length; door += 1) {
    const firstWord = layout.firstWordOfDoor(modelSlot, door);
    for (const words of listeners)
      for (let outcome = 0; outcome < calls.length; outcome += 1)
        calls[outcome]! += words[firstWord + outcome]! + words[firstWord + calls.length + outcome]!;
  }
  return calls;
}

/** Returns pico-units, which are counted in two words (MODEL_COST in metrics-layout.ts) of whole numbers. */
function money(parts: number, rest: number): bigint {
  return BigInt(parts) * layout.COST_PART + BigInt(rest);
}

/** Returns one sum for each name: words follow each other in the order of `names`, from `firstWord` on. */
function sumsByName<Name>(
  stripes: readonly Float64Array[],
  firstWord: number,
  names: readonly Name[],
): ReadonlyMap<Name, number> {
  return new Map(names.map((name, index) => [name, sum(stripes, firstWord + index)]));
}

function histogram(
  stripes: readonly Float64Array[],
  firstWord: number,
  bounds: HistogramBounds,
): HistogramSnapshot {
  const snapshot = emptyHistogram(bounds);
  for (const words of stripes) addHistogram(snapshot, words, firstWord);
  return snapshot;
}
