/**
 * What was measured, and what it is compared with: figures over the rounds, and ratios to the reference of
 * the same round.
 */
import type { ContenderName } from './contenders/contender.js';
import type { Sample } from './round.js';

/** Median, lowest and highest over the rounds. */
export interface Spread {
  readonly median: number;
  readonly lowest: number;
  readonly highest: number;
}

/** One line of the table. */
export interface Result {
  readonly scenario: string;
  readonly contender: ContenderName;
  /** What the ratios are to; the contender itself where it is the reference. */
  readonly reference: ContenderName;
  /** One for each round. */
  readonly samples: readonly Sample[];
  readonly figures: Readonly<Record<keyof Sample, Spread>>;
  /** CPU time a request, as a multiple of the reference's in the same round. */
  readonly cpuRatio: Spread;
  /** Requests a second, likewise. */
  readonly rateRatio: Spread;
}

/** The first of these that took part: what costs least of those that do comparable work. */
const REFERENCES: readonly ContenderName[] = ['bare', 'nginx', 'direct'];

export function spreadOf(values: readonly number[]): Spread {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const median = sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
  return { median, lowest: sorted[0]!, highest: sorted.at(-1)! };
}

/** `median (lowest–highest)`, or the median alone where there was one round. */
export function spreadText({ median, lowest, highest }: Spread, digits: number, rounds: number): string {
  const show = (value: number): string => value.toFixed(digits);
  return rounds === 1 ? show(median) : `${show(median)} (${show(lowest)}–${show(highest)})`;
}

/** Lines of one scenario; every contender has a sample of every round. */
export function resultsOf(
  scenario: string,
  samples: ReadonlyMap<ContenderName, readonly Sample[]>,
): Result[] {
  const [first] = samples.keys();
  const reference = REFERENCES.find((name) => samples.has(name)) ?? first!;
  const base = samples.get(reference)!;
  return Array.from(samples, ([contender, taken]) => {
    const over = (figure: keyof Sample): Spread => spreadOf(taken.map((sample) => sample[figure]));
    const ratio = (figure: keyof Sample): Spread =>
      spreadOf(taken.map((sample, round) => sample[figure] / base[round]![figure]));
    return {
      scenario,
      contender,
      reference,
      samples: taken,
      figures: {
        requestsPerSecond: over('requestsPerSecond'),
        cpuMicrosPerRequest: over('cpuMicrosPerRequest'),
        p50Ms: over('p50Ms'),
        p99Ms: over('p99Ms'),
        peakBytes: over('peakBytes'),
      },
      cpuRatio: ratio('cpuMicrosPerRequest'),
      rateRatio: ratio('requestsPerSecond'),
    };
  });
}
