/**
 * Samples of all metrics of one process at one moment, and their sum over the processes of a group: the
 * process that writes a page merges the snapshots, the supervisor keeps those of ended processes. Also the
 * types of the sharing status. Pure.
 *
 * Counters and histograms are sums that include ended processes. Gauges are of running processes only.
 *
 * Must hold: no sum falls when a process ends, else Prometheus takes it for a restart and counts twice
 * (test/unit/telemetry/metrics-snapshot.test.ts).
 */
import type { HistogramSnapshot } from './histogram.js';
import type { MetricFamily, Sample } from './metrics-source.js';

/**
 * Plain data, for the channel between processes. It carries the rules for merging, because the supervisor
 * does not load the families.
 */
export interface FamilySnapshot extends Pick<MetricFamily, 'name' | 'type' | 'across'> {
  readonly samples: readonly Sample[];
}

export type MetricsSnapshot = readonly FamilySnapshot[];

export interface MemberSnapshot {
  /** Value of the label `process`. */
  readonly slot: number;
  /** Whether this is the process that writes the page. */
  readonly own: boolean;
  readonly families: MetricsSnapshot;
}

/**
 * Returns the families that still count when the process has ended: those that only grow, and in each process
 * by themselves.
 */
export function endedSnapshot(families: MetricsSnapshot): MetricsSnapshot {
  return families.filter(({ type, across }) => type !== 'gauge' && across === undefined);
}

/** Adds up the snapshots of two processes that have ended. */
export function addEnded(left: MetricsSnapshot, right: MetricsSnapshot): MetricsSnapshot {
  const names = new Map([...left, ...right].map((family) => [family.name, family]));
  return [...names.values()].map((family) => ({
    ...family,
    samples: combine(
      [left, right].flatMap((snapshot) => samplesOf(snapshot, family.name)),
      sum,
    ),
  }));
}

/** Returns the samples of `family` over all processes. Takes some microseconds a sample. */
export function mergeFamily(
  family: MetricFamily,
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
      return combine(
        members.flatMap(({ families }) => samplesOf(families, name)),
        Math.max,
      );
    default:
      return combine(
        [...members.map(({ families }) => families), ended].flatMap((families) => samplesOf(families, name)),
        sum,
      );
  }
}

const sum = (left: number, right: number): number => left + right;

function samplesOf(families: MetricsSnapshot, name: string): readonly Sample[] {
  return families.find((family) => family.name === name)?.samples ?? [];
}

/** Merges samples of the same name and labels. */
function combine(samples: readonly Sample[], merge: (left: number, right: number) => number): Sample[] {
  const merged = new Map<string, Sample>();
  for (const { value, labels: own, sharedLabels, metricName } of samples) {
    const labels = { ...own, ...sharedLabels };
    // A process of another version may have its labels in another order.
    const key = JSON.stringify([metricName, ...Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1))]);
    const former = merged.get(key);
    merged.set(key, {
      value: former === undefined ? value : merge(former.value, value),
      labels,
      ...(metricName === undefined ? {} : { metricName }),
    });
  }
  return [...merged.values()];
}

/**
 * State of a gateway's contact with the coordinator, from the best to the worst. `alone`: this process uses
 * its equal share. `quarantine`: the coordinator has lost its data and grants nothing until its former leases
 * have ended. `lost`: the coordinator cannot be reached.
 */
export const SHARING_STATES = ['connected', 'alone', 'quarantine', 'lost'] as const;
export type SharingState = (typeof SHARING_STATES)[number];

/** `lost`: the server cannot be reached, so nothing can be changed. `diverged`: an operator must decide. */
export const REGISTRY_STATES = ['following', 'lost', 'diverged'] as const;
export type RegistryState = (typeof REGISTRY_STATES)[number];

/** From a transaction in the host's own file to the longest wait for a server. */
export const EXCHANGE_BOUNDS_MS = [0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000];

export interface SharingSnapshot {
  readonly with: 'processes' | 'hosts';
  readonly state: SharingState;
  /** Undefined while the state is `connected`. */
  readonly reason: string | undefined;
  /** Time since the state was last `connected`; 0 while it is. */
  readonly lostMs: number;
  /** Durations of exchanges with the coordinator that were answered, in milliseconds. */
  readonly exchanges: HistogramSnapshot;
  /** Exchanges that were not answered. */
  readonly failures: number;
  /** Accounts and keys of which something is leased. */
  readonly leased: number;
  /** Requests that wait for a lease. */
  readonly waits: number;
  /** Undefined if only the processes of one host share the registry. */
  readonly registry: { readonly state: RegistryState; readonly reason: string | undefined } | undefined;
}
