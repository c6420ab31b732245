/**
 * The layout of the metrics in shared memory. The writers (metrics-writers.ts, thread-health.ts) and the
 * reader (metrics-reader.ts) open it through this file. Any thread.
 *
 * There are three buffers of 64-bit floats, each cut into stripes, and one thread alone writes a stripe. With
 * one writer and aligned words no atomics are needed: a reader sees the old value or the new one. A float
 * counts exactly to 2^53, 28,000 years at 10,000 a second. A thread that replaces one that died goes on in
 * its stripe. Pages that were never used cost no memory.
 *
 *     listener stripe   calls in flight
 *                       requests of other routes       route × outcome
 *                       refusals of chat calls         reason
 *                       overhead                       histogram, whole responses; histogram, streams
 *                       one block a model              see MODEL_*
 *     upstream stripe   one block an upstream          see UPSTREAM_*; one stripe an upstream worker
 *     thread stripe     see THREAD_*; one stripe a thread
 */
import {
  ERROR_CODES,
  REFUSAL_DETAILS,
  invariant,
  type ErrorCode,
  type RefusalDetail,
} from '../core/errors.js';
import { CATALOG_ENTRIES_MAX, COUNTER_THREADS_MAX } from '../core/limits.js';
import { histogramWords } from './histogram.js';
import { createLogSwitch, type LogSwitchBuffer } from './log.js';

/**
 * Outcome of a request: `ok`, an error code, or `client_gone` if the client left before its response was
 * whole.
 */
export type Outcome = 'ok' | 'client_gone' | ErrorCode;
export const OUTCOMES: readonly Outcome[] = ['ok', 'client_gone', ...ERROR_CODES];

export const CHAT_ROUTE = '/v1/chat/completions';
/** Routes other than the chat calls, which are counted by their model. */
export const OTHER_ROUTES = ['/v1/models', '/v1/models/{id}', 'other'] as const;
export type OtherRoute = (typeof OTHER_ROUTES)[number];
export type Route = typeof CHAT_ROUTE | OtherRoute;

/** Why a chat call was rejected before it was sent to an upstream. */
export type RefusalReason = ErrorCode | RefusalDetail;
export const REFUSAL_REASONS: readonly RefusalReason[] = [...ERROR_CODES, ...REFUSAL_DETAILS];

/** Why one attempt on an upstream failed. */
export const FAILURE_KINDS = [
  'connect',
  'connection_lost',
  'timeout',
  'rate_limited',
  'credentials',
  'status',
  'invalid_answer',
  'rejected',
  'no_connection_free',
  'no_room',
] as const;
export type FailureKind = (typeof FAILURE_KINDS)[number];

/**
 * Why an upstream's report of usage was not believed: it has no counts; they contradict each other; there is
 * more output than the model can give, or than max_tokens asked for; there is more input than the body holds;
 * there are no tokens although there was a prompt or a text.
 */
export const DISBELIEF_REASONS = [
  'malformed',
  'contradictory',
  'too_much_output',
  'beyond_max_tokens',
  'too_much_input',
  'zero',
] as const;
export type DisbeliefReason = (typeof DISBELIEF_REASONS)[number];

/** In the order of severity. */
export const BREAKER_STATES = ['closed', 'half_open', 'open'] as const;
export type BreakerState = (typeof BREAKER_STATES)[number];

/** Bounds of the OpenTelemetry conventions for `gen_ai.server.request.duration`. */
export const DURATION_BOUNDS_MS = [
  10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 5_120, 10_240, 20_480, 40_960, 81_920,
];
/** The same for `gen_ai.server.time_to_first_token`. */
export const FIRST_TOKEN_BOUNDS_MS = [
  1, 5, 10, 20, 40, 60, 80, 100, 250, 500, 750, 1_000, 2_500, 5_000, 7_500, 10_000,
];
/** The same for `gen_ai.client.token.usage`. */
export const TOKENS_BOUNDS = [
  1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 67_108_864,
];
/** From a call on an idle machine, 0.3 ms, to one that was delayed by a garbage collection or a queue. */
export const OVERHEAD_BOUNDS_MS = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000];

/** Upstreams of all models that have words of their own. Those beyond share the last words. */
export const UPSTREAM_SLOTS_MAX = 4_096;

const FLOAT_BYTES = Float64Array.BYTES_PER_ELEMENT;
/** Words of a cache line. A stripe fills whole lines, so that two threads never write to the same one. */
const LINE_WORDS = 8;
const wholeLines = (words: number): number => Math.ceil(words / LINE_WORDS) * LINE_WORDS;

/** The listener's stripe. */
export const IN_FLIGHT = 0;
export const ROUTES = IN_FLIGHT + 1;
export const REFUSALS = ROUTES + OTHER_ROUTES.length * OUTCOMES.length;
export const OVERHEAD_WHOLE = REFUSALS + REFUSAL_REASONS.length;
export const OVERHEAD_STREAM = OVERHEAD_WHOLE + histogramWords(OVERHEAD_BOUNDS_MS);
export const MODELS = wholeLines(OVERHEAD_STREAM + histogramWords(OVERHEAD_BOUNDS_MS));

/** Slots of calls that were rejected before their model was known, and of calls with an unknown model. */
export const NO_MODEL = 0;
export const OTHER_MODEL = 1;
const FIRST_MODEL = 2;
const MODEL_SLOTS = FIRST_MODEL + CATALOG_ENTRIES_MAX;

/** A model's block: outcomes, and those after the response had begun with 200 (broken). */
export const MODEL_OUTCOMES = 0;
export const MODEL_BROKEN = MODEL_OUTCOMES + OUTCOMES.length;
export const MODEL_CACHED_TOKENS = MODEL_BROKEN + OUTCOMES.length;
/** Pico-units: exact up to 9,007 units of currency, with a relative error of 10^-16 beyond. */
export const MODEL_COST = MODEL_CACHED_TOKENS + 1;
export const MODEL_INPUT = MODEL_COST + 1;
export const MODEL_OUTPUT = MODEL_INPUT + histogramWords(TOKENS_BOUNDS);
export const MODEL_DURATION = MODEL_OUTPUT + histogramWords(TOKENS_BOUNDS);
export const MODEL_FIRST_TOKEN = MODEL_DURATION + histogramWords(DURATION_BOUNDS_MS);
const MODEL_WORDS = wholeLines(MODEL_FIRST_TOKEN + histogramWords(FIRST_TOKEN_BOUNDS_MS));

export const LISTENER_STRIPE_WORDS = MODELS + MODEL_SLOTS * MODEL_WORDS;

/** An upstream's block. */
export const UPSTREAM_ATTEMPTS = 0;
export const UPSTREAM_RETRIES = 1;
export const UPSTREAM_IN_FLIGHT = 2;
/** Index into BREAKER_STATES. */
export const UPSTREAM_BREAKER = 3;
export const UPSTREAM_FAILURES = 4;
export const UPSTREAM_DISBELIEVED = UPSTREAM_FAILURES + FAILURE_KINDS.length;
/**
 * The last failure: its time in Unix milliseconds and its index in FAILURE_KINDS. 0 and 0 before the first.
 */
export const UPSTREAM_FAILED_AT = UPSTREAM_DISBELIEVED + DISBELIEF_REASONS.length;
export const UPSTREAM_FAILED_KIND = UPSTREAM_FAILED_AT + 1;
export const UPSTREAM_WORDS = wholeLines(UPSTREAM_FAILED_KIND + 1);
export const UPSTREAM_STRIPE_WORDS = UPSTREAM_SLOTS_MAX * UPSTREAM_WORDS;

/**
 * A thread's stripe, which the thread rewrites once a period. The heap is 0 while there is no such thread.
 */
export const THREAD_DELAY_P99_MS = 0;
export const THREAD_DELAY_MAX_MS = 1;
export const THREAD_HEAP_BYTES = 2;
/** A 32-bit integer: see thread-health.ts. */
export const THREAD_HOLDER = 3;
export const THREAD_STRIPE_WORDS = LINE_WORDS;

/** Returns the slot of a model of the catalogue, which keeps its index over reloads. */
export function modelSlotOf(modelIndex: number): number {
  return FIRST_MODEL + modelIndex;
}

/** Returns the first word of a model's block in a listener's stripe. */
export function modelAt(modelSlot: number): number {
  return MODELS + modelSlot * MODEL_WORDS;
}

/** Returns the first word of an upstream's block in a worker's stripe. */
export function upstreamAt(upstreamSlot: number): number {
  return upstreamSlot * UPSTREAM_WORDS;
}

/** Hand it to a thread in its `workerData`. */
export interface MetricsBuffers {
  readonly listeners: SharedArrayBuffer;
  readonly upstreams: SharedArrayBuffer;
  readonly threads: SharedArrayBuffer;
  /** What is logged at the moment. */
  readonly log: LogSwitchBuffer;
}

/** Returns the names of the threads in the order of their stripes. */
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

export function createMetrics(
  listeners: number,
  workers: number,
  log: LogSwitchBuffer = createLogSwitch(),
): MetricsBuffers {
  invariant(listeners >= 1 && workers >= 1, 'a gateway has a listener and a worker');
  const stripes = (count: number, words: number) => new SharedArrayBuffer(count * words * FLOAT_BYTES);
  return {
    listeners: stripes(listeners, LISTENER_STRIPE_WORDS),
    upstreams: stripes(workers, UPSTREAM_STRIPE_WORDS),
    threads: stripes(threadNames(listeners, workers).length, THREAD_STRIPE_WORDS),
    log,
  };
}

/** Returns one stripe of a buffer whose stripes are `words` long. */
export function openStripe(buffer: SharedArrayBuffer, stripe: number, words: number): Float64Array {
  return new Float64Array(buffer, stripe * words * FLOAT_BYTES, words);
}

/** Returns all stripes of such a buffer. */
export function openStripes(buffer: SharedArrayBuffer, words: number): Float64Array[] {
  const count = buffer.byteLength / (words * FLOAT_BYTES);
  return Array.from({ length: count }, (_, stripe) => openStripe(buffer, stripe, words));
}
