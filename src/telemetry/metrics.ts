/**
 * Counters in shared memory: one stripe a listener, written by that listener alone, read by the main thread.
 *
 * A stripe is an array of 64-bit floats in the order of METRIC_NAMES. One writer and aligned words need no atomics: a
 * reader sees the old value or the new one. A float counts exactly to 2^53, 28,000 years at 10,000 a second.
 */
import { ERROR_CODES, type ErrorCode } from '../core/errors.js';

/** Outcomes of a chat call: `ok`, one of the error codes, or the client left before its answer was whole. */
export type Outcome = 'ok' | 'client_gone' | ErrorCode;
export const OUTCOMES: readonly Outcome[] = ['ok', 'client_gone', ...ERROR_CODES];

const GAUGES = ['calls_in_flight', 'prompt_tokens', 'completion_tokens'] as const;
type Gauge = (typeof GAUGES)[number];

/** A stripe fills whole cache lines, so that two listeners never write to the same one. */
const STRIPE_WORDS = Math.ceil((OUTCOMES.length + GAUGES.length) / 8) * 8;

export type MetricsBuffer = SharedArrayBuffer;

export function createMetrics(stripes: number): MetricsBuffer {
  return new SharedArrayBuffer(stripes * STRIPE_WORDS * Float64Array.BYTES_PER_ELEMENT);
}

/** A listener's own stripe. */
export class MetricsStripe {
  readonly #words: Float64Array;

  constructor(buffer: MetricsBuffer, stripe: number) {
    this.#words = new Float64Array(
      buffer,
      stripe * STRIPE_WORDS * Float64Array.BYTES_PER_ELEMENT,
      STRIPE_WORDS,
    );
  }

  countOutcome(outcome: Outcome): void {
    this.#words[OUTCOMES.indexOf(outcome)]! += 1;
  }

  add(gauge: Gauge, amount: number): void {
    this.#words[OUTCOMES.length + GAUGES.indexOf(gauge)]! += amount;
  }

  reset(gauge: Gauge): void {
    this.#words[OUTCOMES.length + GAUGES.indexOf(gauge)] = 0;
  }
}

export interface MetricsReading {
  readonly outcomes: Readonly<Record<Outcome, number>>;
  readonly callsInFlight: number;
  readonly promptTokens: number;
  readonly completionTokens: number;
}

/** Sums of all stripes. Main thread. */
export function readMetrics(buffer: MetricsBuffer): MetricsReading {
  const words = new Float64Array(buffer);
  const sum = (offset: number): number => {
    let total = 0;
    for (let at = offset; at < words.length; at += STRIPE_WORDS) total += words[at]!;
    return total;
  };
  const gauge = (name: Gauge): number => sum(OUTCOMES.length + GAUGES.indexOf(name));
  return {
    outcomes: Object.fromEntries(OUTCOMES.map((outcome, i) => [outcome, sum(i)])) as Record<Outcome, number>,
    callsInFlight: gauge('calls_in_flight'),
    promptTokens: gauge('prompt_tokens'),
    completionTokens: gauge('completion_tokens'),
  };
}
