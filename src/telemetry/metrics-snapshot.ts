/**
 * Samples of all metrics of one process at one moment, and how they are merged over a host's processes.
 * gateway/process-group-stats.ts merges the snapshots for a page. supervisor/group-snapshots.ts adds up the
 * last snapshots of ended processes, of which counters and histograms stay in the sums. Pure.
 *
 * Must hold:
 * - No sum of a counter or histogram falls when a process ends. Prometheus would take the fall for a restart
 *   and count twice (test/unit/telemetry/metrics-snapshot.test.ts).
 * - Members of snapshots and samples keep their names, because the processes may be of different versions.
 */
import type { MetricFamily, Sample } from './metrics-source.js';

/**
 * Plain data, which processes send each other. A snapshot has the rules for merging (`type` and `across`, see
 * `mergeFamily`), because the supervisor does not load the families.
 */
export interface FamilySnapshot extends Pick<MetricFamily, 'name' | 'type' | 'across'> {
  readonly samples: readonly Sample[];
}

export type MetricsSnapshot = readonly FamilySnapshot[];

export interface MemberSnapshot {
  /** The slot of the process (the member), which is the value of the label `process`. */
  readonly slot: number;
  /** Whether this is the process that writes the page `/metrics`. Exactly one snapshot of a page is. */
  readonly own: boolean;
  readonly families: MetricsSnapshot;
}

/**
 * Returns the families that still count when the process has ended: counters and histograms that each process
 * has for itself. A counter with `across` is left out: the running processes show its value too or, with
 * `each`, its series ends with its process.
 */
export function endedSnapshot(families: MetricsSnapshot): MetricsSnapshot {
  return families.filter(({ type, across }) => type !== 'gauge' && across === undefined);
}

/** Adds up two results of `endedSnapshot` or of this function: sample by sample, families of both. */
export function addEnded(first: MetricsSnapshot, second: MetricsSnapshot): MetricsSnapshot {
  const byName = new Map([...first, ...second].map((family) => [family.name, family]));
  return [...byName.values()].map((family) => ({
    ...family,
    samples: mergeSamples(
      [first, second].flatMap((snapshot) => samplesOf(snapshot, family.name)),
      sum,
    ),
  }));
}

/**
 * Returns the samples of `family` over all processes. By `across` they are:
 *
 * - `one`: as the process that writes the page has them;
 * - `each`: those of all processes, with the label `process`;
 * - `max`: the largest of each name and labels;
 * - undefined: the sum, with `ended` (what `addEnded` returned for the ended processes).
 *
 * Takes one or two microseconds a sample.
 */
export function mergeFamily(
  family: Pick<MetricFamily, 'name' | 'across'>,
  members: readonly MemberSnapshot[],
  ended: MetricsSnapshot,
): readonly Sample[] {
  const { name, across } = family;
  switch (across) {
    case 'one':
      return members.filter(({ own }) => own).flatMap(({ families }) => samplesOf(families, name));
    case 'each':
      return members.flatMap(({ slot, families }) =>
        samplesOf(families, name).map((sample) => ({
          ...sample,
          labels: { ...sample.labels, process: String(slot) },
        })),
      );
    case 'max':
      return mergeSamples(
        members.flatMap(({ families }) => samplesOf(families, name)),
        Math.max,
      );
    default:
      return mergeSamples(
        [...members.map(({ families }) => families), ended].flatMap((families) => samplesOf(families, name)),
        sum,
      );
  }
}

const sum = (first: number, second: number): number => first + second;

/** Returns no samples if the snapshot lacks the family: a process of another version may not have it. */
function samplesOf(families: MetricsSnapshot, name: string): readonly Sample[] {
  return families.find((family) => family.name === name)?.samples ?? [];
}

/** Merges samples of the same name and labels into one. They stay in order, as histograms have to. */
function mergeSamples(
  samples: readonly Sample[],
  mergeValues: (first: number, second: number) => number,
): Sample[] {
  const merged = new Map<string, Sample>();
  // All samples of one histogram have the same `sharedLabels` object.
  let shared: Sample['sharedLabels'];
  let sharedTexts: readonly string[] = [];
  for (const sample of samples) {
    if (sample.sharedLabels !== shared) {
      shared = sample.sharedLabels;
      sharedTexts = labelTexts(shared);
    }
    // Sorted, because a process of another version may have its labels in another order.
    const texts = [...labelTexts(sample.labels), ...sharedTexts].sort();
    const key = `${sample.metricName ?? ''} ${texts.join()}`;
    const earlier = merged.get(key);
    merged.set(
      key,
      earlier === undefined ? sample : { ...earlier, value: mergeValues(earlier.value, sample.value) },
    );
  }
  return [...merged.values()];
}

function labelTexts(labels: Readonly<Record<string, string>> = {}): string[] {
  return Object.entries(labels).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
}
