/**
 * The layout of the metrics in shared memory. The writers (metrics-writers.ts, thread-health.ts) and the
 * reader (metrics-reader.ts) open the memory through this file. Any thread.
 *
 * There are three buffers of 64-bit floats, each cut into stripes, and only one thread writes a stripe. With
 * one writer and aligned words no atomics are needed: a reader sees the old value of a word or the new one.
 * Of two words the reader may see the new value of one and the old value of the other. A float counts exactly
 * to 2^53, 28,000 years at 10,000 a second. A thread that replaces a dead one continues in the same stripe.
 * Pages that were never used cost no memory, so stripes may be larger than most gateways need.
 *
 * One word is an exception: THREAD_HOLDER is a 32-bit integer for Atomics, because several counter threads
 * may want the same stripe at once. The main thread also clears the stripe of a counter thread that has ended
 * (counter-stripes.ts).
 *
 * The buffers live as long as one gateway process, and other processes get samples with names. So the order
 * of outcomes, reasons, kinds and words may change, unless a comment below says otherwise.
 *
 *     buffer      one stripe for   words
 *     listeners   a listener       calls in flight
 *                                  requests of other routes    route × outcome
 *                                  rejections of chat calls    reason
 *                                  response cache              entries, bytes, evictions
 *                                  overhead                    histogram, whole responses; histogram, streams
 *                                  a block for each model      see MODEL_*
 *                                  a second one for each       calls by other doors than chat
 *     upstreams   a worker         a block for each upstream   see UPSTREAM_*
 *     threads     a thread         see THREAD_*
 *
 * Must hold:
 * - No two counters share a word, whether in one block or in two. Each constant below is the first word after
 *   the words of the constant before (the test goes through all exported constants of a block). A constant
 *   with several words gets its number of words there.
 * - Only one thread writes a stripe, but for the exception above
 *   (test/unit/telemetry/counter-stripes.test.ts).
 * - The names in the lists below stay: they are labels of metrics and members of the admin interface
 *   (test/unit/telemetry/exposition.names.test.ts).
 */
import {
  ERROR_CODES,
  REJECTION_DETAILS,
  invariant,
  type ErrorCode,
  type RejectionDetail,
} from '../core/errors.js';
import { CHAT_DOOR, DOOR_NAMES, type DoorPath } from '../core/door-names.js';
import { CATALOG_ENTRIES_MAX, COUNTER_THREADS_MAX } from '../core/limits.js';
import { histogramWords } from './histogram.js';
import { createLogSwitch, type LogSwitchBuffer } from './log-switch.js';

/** Outcome of a request: `ok`, an error code, or `client_gone` if the client left before the last byte. */
export type Outcome = 'ok' | 'client_gone' | ErrorCode;
export const OUTCOMES: readonly Outcome[] = ['ok', 'client_gone', ...ERROR_CODES];

/** Routes other than those of doors, whose calls are counted by their model instead. */
export const OTHER_ROUTES = ['/v1/models', '/v1/models/{id}', 'other'] as const;
export type OtherRoute = (typeof OTHER_ROUTES)[number];
export type Route = DoorPath | OtherRoute;

/** Why a chat call was rejected before it was sent to an upstream: its error code, or the code's detail. */
export type RejectionReason = ErrorCode | RejectionDetail;
export const REJECTION_REASONS: readonly RejectionReason[] = [...ERROR_CODES, ...REJECTION_DETAILS];

/** Why one attempt on an upstream failed. */
export const FAILURE_KINDS = [
  /** No connection: rejected, unreachable, unknown name, untrusted certificate, or connect_timeout_ms. */
  'connect',
  /** The connection ended before the response was whole. */
  'connection_lost',
  /** The response did not begin, go on or end in time, or it waited too long for a slow reader. */
  'timeout',
  /** Status 429. */
  'rate_limited',
  /** Status 401, 402 or 403: the provider rejects the gateway's key or account. */
  'credentials',
  /** Any other status that is neither a success nor `rejected`. */
  'status',
  /** The response breaks HTTP or the protocol of chat completions. */
  'invalid_answer',
  /** Status 400, 409, 413 or 422: the upstream rejected the request, and the caller gets its reason. */
  'rejected',
  /** Not sent: all connections_max connections were in use, or the process had no file descriptor left. */
  'no_connection_free',
  /** The gateway's own memory budget for non-streamed responses was used up. */
  'no_room',
] as const;
export type FailureKind = (typeof FAILURE_KINDS)[number];

/** Why an upstream's report of usage was not believed, so that tokens were counted here. */
export const DISBELIEF_REASONS = [
  /** A count is missing or is no count. */
  'malformed',
  /** The counts contradict each other. */
  'contradictory',
  /** More output than the model can generate. */
  'too_much_output',
  /** More output than the request allowed by max_tokens. */
  'beyond_max_tokens',
  /** More input than the request's body can hold. */
  'too_much_input',
  /** No input tokens, or no output tokens although the response has text. */
  'zero',
] as const;
export type DisbeliefReason = (typeof DISBELIEF_REASONS)[number];

/** How the response of the upstream ended, in a call whose client had left after the request was sent. */
export const ENDS_WITHOUT_CLIENT = [
  /** The upstream was aborted as the client left. */
  'aborted',
  /** The upstream's response was read to its end. */
  'finished',
  /** The response was being read, but a failure, a timeout or the gateway's end came before its end. */
  'cut',
] as const;
export type EndWithoutClient = (typeof ENDS_WITHOUT_CLIENT)[number];

/** From the best to the worst. `closed` stays first also because a word that was never written is 0. */
export const BREAKER_STATES = ['closed', 'half_open', 'open'] as const;
export type BreakerState = (typeof BREAKER_STATES)[number];

/** Bounds that the OpenTelemetry conventions set for `gen_ai.server.request.duration`. */
export const DURATION_BOUNDS_MS = [
  10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 5_120, 10_240, 20_480, 40_960, 81_920,
];
/** Their bounds for `gen_ai.server.time_to_first_token`. */
export const FIRST_TOKEN_BOUNDS_MS = [
  1, 5, 10, 20, 40, 60, 80, 100, 250, 500, 750, 1_000, 2_500, 5_000, 7_500, 10_000,
];
/** Their bounds for `gen_ai.client.token.usage`. */
export const TOKENS_BOUNDS = [
  1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 67_108_864,
];
/** From a call on an idle machine (0.3 ms) to one that was delayed by a garbage collection or a queue. */
export const OVERHEAD_BOUNDS_MS = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000];

/**
 * How many blocks a worker's stripe has. Each upstream of each model gets one for the life of the process.
 * When all are given, further upstreams share the last one (UpstreamNames in upstream-names.ts).
 */
export const UPSTREAM_SLOTS_MAX = 4_096;

const FLOAT_BYTES = Float64Array.BYTES_PER_ELEMENT;
/** Words of a cache line. A stripe fills whole lines, so that two threads never write to the same line. */
const LINE_WORDS = 8;
const wholeLines = (words: number): number => Math.ceil(words / LINE_WORDS) * LINE_WORDS;

/** Words of a listener's stripe. IN_FLIGHT: calls that a worker handles now. */
export const IN_FLIGHT = 0;
/** One word for each outcome of each of OTHER_ROUTES, then one for each of REJECTION_REASONS. */
export const ROUTES = IN_FLIGHT + 1;
export const REJECTIONS = ROUTES + OTHER_ROUTES.length * OUTCOMES.length;
/** The response cache in the listener's memory: responses, their bytes, and evictions since the start. */
export const CACHE_ENTRIES = REJECTIONS + REJECTION_REASONS.length;
export const CACHE_BYTES = CACHE_ENTRIES + 1;
export const CACHE_EVICTIONS = CACHE_BYTES + 1;
/** Histograms of the overhead: of calls whose response was sent whole, and of streams. */
export const OVERHEAD_WHOLE = CACHE_EVICTIONS + 1;
export const OVERHEAD_STREAM = OVERHEAD_WHOLE + histogramWords(OVERHEAD_BOUNDS_MS);
const MODELS = wholeLines(OVERHEAD_STREAM + histogramWords(OVERHEAD_BOUNDS_MS));

/**
 * A model slot is the number of a model's block in a listener's stripe. NO_MODEL is the slot of calls that
 * were rejected before their model was known.
 */
export const NO_MODEL = 0;
/** The model slot of calls that were rejected as `model_not_found`. */
export const OTHER_MODEL = 1;
const FIRST_MODEL = 2;
const MODEL_SLOTS = FIRST_MODEL + CATALOG_ENTRIES_MAX;

/**
 * Words of a model's block. MODEL_OUTCOMES: chat calls by outcome, one word each, without broken calls. It
 * and MODEL_BROKEN stay first, in this order, as `firstWordOfDoor` promises.
 */
const MODEL_OUTCOMES = 0;
/** Broken calls by outcome: their response had begun with 200 before they failed. */
const MODEL_BROKEN = MODEL_OUTCOMES + OUTCOMES.length;
export const MODEL_CACHED_TOKENS = MODEL_BROKEN + OUTCOMES.length;
export const MODEL_CACHE_WRITE_TOKENS = MODEL_CACHED_TOKENS + 1;
export const MODEL_REASONING_TOKENS = MODEL_CACHE_WRITE_TOKENS + 1;
/** Calls that named this model, and that a fallback of it answered. */
export const MODEL_FALLEN_BACK = MODEL_REASONING_TOKENS + 1;
/** Calls that named another model, and that this one answered as its fallback. */
export const MODEL_STOOD_IN = MODEL_FALLEN_BACK + 1;
/** Requests for which the cache had a response, and those for which it had none. */
export const MODEL_CACHE_HITS = MODEL_STOOD_IN + 1;
export const MODEL_CACHE_MISSES = MODEL_CACHE_HITS + 1;
/**
 * The sum of charges is MODEL_COST × COST_PART + MODEL_COST_REST pico-units. Each charge adds to both words:
 * so the sum is exact beyond the 2^53 pico-units of one float, until the second word alone reaches 2^53,
 * after 9·10⁹ calls at the earliest. A reader between the two stores lacks a part of one charge.
 */
export const MODEL_COST = MODEL_CACHE_MISSES + 1;
export const MODEL_COST_REST = MODEL_COST + 1;
export const COST_PART = 1_000_000n;
/** The sum of uncovered charges, in two words as MODEL_COST. */
export const MODEL_UNCOVERED = MODEL_COST_REST + 1;
export const MODEL_UNCOVERED_REST = MODEL_UNCOVERED + 1;
/** Histograms: of the tokens of a call, then of times in milliseconds. */
export const MODEL_INPUT = MODEL_UNCOVERED_REST + 1;
export const MODEL_OUTPUT = MODEL_INPUT + histogramWords(TOKENS_BOUNDS);
export const MODEL_DURATION = MODEL_OUTPUT + histogramWords(TOKENS_BOUNDS);
export const MODEL_FIRST_TOKEN = MODEL_DURATION + histogramWords(DURATION_BOUNDS_MS);
const MODEL_WORDS = wholeLines(MODEL_FIRST_TOKEN + histogramWords(FIRST_TOKEN_BOUNDS_MS));

/** The second blocks: calls by other doors than chat. They are last, because most are never written. */
const OTHER_DOORS = MODELS + MODEL_SLOTS * MODEL_WORDS;
/** Words of one door: calls by outcome, then broken calls by outcome, as at the start of a model's block. */
const DOOR_WORDS = 2 * OUTCOMES.length;
/** A second block has the words of all doors but chat, in the order of DOOR_NAMES. */
const MODEL_DOORS_WORDS = wholeLines((DOOR_NAMES.length - 1) * DOOR_WORDS);

export const LISTENER_STRIPE_WORDS = OTHER_DOORS + MODEL_SLOTS * MODEL_DOORS_WORDS;

/**
 * Words of an upstream's block in a worker's stripe. IN_FLIGHT, BREAKER, COOLDOWN_END and WAITING are current
 * values. FAILED_AT and FAILED_KIND describe the last failure. The others only grow.
 */
export const UPSTREAM_ATTEMPTS = 0;
/** Attempts that followed a failed attempt of the same call, here or on another upstream. */
export const UPSTREAM_RETRIES = 1;
export const UPSTREAM_IN_FLIGHT = 2;
/**
 * Index into BREAKER_STATES. The reader shows an open breaker as half open once its cooldown is over, because
 * the next call probes. If other workers get all calls, it may be long until that call.
 */
export const UPSTREAM_BREAKER = 3;
/** Failed attempts, one word for each of FAILURE_KINDS. */
export const UPSTREAM_FAILURES = 4;
/** Reports of usage that were not believed, one word for each of DISBELIEF_REASONS. */
export const UPSTREAM_DISBELIEVED = UPSTREAM_FAILURES + FAILURE_KINDS.length;
/** The last failure: its time in Unix milliseconds (0: there was none) and its index in FAILURE_KINDS. */
export const UPSTREAM_FAILED_AT = UPSTREAM_DISBELIEVED + DISBELIEF_REASONS.length;
export const UPSTREAM_FAILED_KIND = UPSTREAM_FAILED_AT + 1;
/** Calls that wait now for the limits of their upstreams. Each is counted at one of its upstreams. */
export const UPSTREAM_WAITING = UPSTREAM_FAILED_KIND + 1;
/** Waits that have ended, waits that ended in a rejection, and the milliseconds of all ended waits. */
export const UPSTREAM_WAITS = UPSTREAM_WAITING + 1;
export const UPSTREAM_WAITS_REJECTED = UPSTREAM_WAITS + 1;
export const UPSTREAM_WAITED_MS = UPSTREAM_WAITS_REJECTED + 1;
/** Calls whose clients have left, one word for each of ENDS_WITHOUT_CLIENT. */
export const UPSTREAM_CLIENTS_LEFT = UPSTREAM_WAITED_MS + 1;
/** When the cooldown of an open breaker ends, in the milliseconds of `Clock.monotonicMs`. */
export const UPSTREAM_COOLDOWN_END = UPSTREAM_CLIENTS_LEFT + ENDS_WITHOUT_CLIENT.length;
const UPSTREAM_WORDS = wholeLines(UPSTREAM_COOLDOWN_END + 1);
export const UPSTREAM_STRIPE_WORDS = UPSTREAM_SLOTS_MAX * UPSTREAM_WORDS;

/** Words of a thread's stripe. The thread writes the 99th percentile and the heap every 5 s. */
export const THREAD_DELAY_P99_MS = 0;
/** Written every 5 s, and at once if a longer delay is measured. */
export const THREAD_DELAY_MAX_MS = 1;
/** 0 before the thread has started and after a counter thread has ended: readers skip such a stripe. */
export const THREAD_HEAP_BYTES = 2;
/** Grows by 1 at each measurement: once a second or more often, while the thread's event loop runs. */
export const THREAD_MEASUREMENTS = 3;
/**
 * Node's id of the counter thread that has the stripe, or 0 if it is free; unused in stripes of other
 * threads. A 32-bit integer for Atomics in the first half of the word (counter-stripes.ts). THREAD_HOLDER is
 * the last word, because counter-stripes.ts clears the words before it and then frees the stripe.
 */
export const THREAD_HOLDER = 4;
export const THREAD_STRIPE_WORDS = wholeLines(THREAD_HOLDER + 1);

/** Returns the model slot of an index in the catalogue. Reloads do not change a model's index. */
export function modelSlotOf(modelIndex: number): number {
  return FIRST_MODEL + modelIndex;
}

/** Returns the first word of a model's block in a listener's stripe. */
export function firstWordOfModel(modelSlot: number): number {
  return MODELS + modelSlot * MODEL_WORDS;
}

/**
 * Returns the first of the words that count a model's calls by that door, in a listener's stripe: calls by
 * outcome, then broken calls by outcome. `door` is a position in DOOR_NAMES.
 */
export function firstWordOfDoor(modelSlot: number, door: number): number {
  if (door === CHAT_DOOR) return firstWordOfModel(modelSlot) + MODEL_OUTCOMES;
  // CHAT_DOOR is 0 (core/door-names.ts keeps it so): the other doors count from 1.
  return OTHER_DOORS + modelSlot * MODEL_DOORS_WORDS + (door - 1) * DOOR_WORDS;
}

/** Returns the first word of an upstream's block in a worker's stripe. */
export function firstWordOfUpstream(upstreamSlot: number): number {
  return upstreamSlot * UPSTREAM_WORDS;
}

/** The shared buffers, which each thread of a gateway gets in its `workerData`. */
export interface MetricsBuffers {
  readonly listeners: SharedArrayBuffer;
  readonly upstreams: SharedArrayBuffer;
  readonly threads: SharedArrayBuffer;
  /** What is logged. Not a metric, but every thread needs it too. */
  readonly log: LogSwitchBuffer;
}

/** The main thread's stripe: its position in `threadNames`. */
export const MAIN_THREAD = 0;

/**
 * Returns the names of the threads in the order of their stripes. `workers` is the setting: with 0 there is
 * no worker thread. `traces` exports spans. `traces` and the counter threads have stripes also while they do
 * not run.
 *
 * `main` stays first (MAIN_THREAD), and the listeners and workers follow it, as GatewayMetrics in
 * gateway/gateway-metrics.ts counts. The counter threads stay last, as counter-stripes.ts counts.
 */
export function threadNames(listeners: number, workers: number): string[] {
  const numbered = (name: string, count: number) => Array.from({ length: count }, (_, i) => `${name}-${i}`);
  return [
    'main',
    ...numbered('listener', listeners),
    ...numbered('worker', workers),
    'traces',
    ...numbered('counter', COUNTER_THREADS_MAX),
  ];
}

/**
 * `workers` is the number of worker threads, which may be 0, and `workersInListeners` that of listeners that
 * are upstream workers too. gateway/gateway-metrics.ts calls this once a process.
 */
export function createMetrics(
  listeners: number,
  workers: number,
  workersInListeners = 0,
  log: LogSwitchBuffer = createLogSwitch(),
): MetricsBuffers {
  invariant(listeners >= 1, 'a gateway has a listener');
  const stripes = (count: number, words: number) => new SharedArrayBuffer(count * words * FLOAT_BYTES);
  return {
    listeners: stripes(listeners, LISTENER_STRIPE_WORDS),
    upstreams: stripes(workers + workersInListeners, UPSTREAM_STRIPE_WORDS),
    threads: stripes(threadNames(listeners, workers).length, THREAD_STRIPE_WORDS),
    log,
  };
}

/** Returns the stripe of index `stripe` of a buffer whose stripes are `words` long. */
export function openStripe(buffer: SharedArrayBuffer, stripe: number, words: number): Float64Array {
  return new Float64Array(buffer, stripe * words * FLOAT_BYTES, words);
}

/** Returns all stripes of a buffer whose stripes are `words` long. */
export function openStripes(buffer: SharedArrayBuffer, words: number): Float64Array[] {
  const count = buffer.byteLength / (words * FLOAT_BYTES);
  return Array.from({ length: count }, (_, stripe) => openStripe(buffer, stripe, words));
}
