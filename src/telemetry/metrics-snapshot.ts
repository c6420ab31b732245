/**
 * The samples of all metrics of one process at one moment, and their sum over processes. Main thread, and supervisor process.
 *
 * Counters and histograms add up, those of processes that have ended among them, so that no sum ever falls. Gauges are of the
 * processes that live.
 */
import type { HistogramSnapshot } from './histogram.js';
import type { MetricFamily, Sample } from './metrics-source.js';

/** Plain, for the channel between processes. The names and rules of a family travel with it: the supervisor knows none. */
export interface FamilySnapshot extends Pick<MetricFamily, 'name' | 'type' | 'across'> {
  readonly samples: readonly Sample[];
}

export type MetricsSnapshot = readonly FamilySnapshot[];

export interface MemberSnapshot {
  /** For the label `process`. */
  readonly slot: number;
  /** Whether the page is made by this one. */
  readonly own: boolean;
  readonly families: MetricsSnapshot;
}

/** What of a reading goes on when its process has ended: all that only ever grows, and grows in each process for itself. */
export function endedSnapshot(families: MetricsSnapshot): MetricsSnapshot {
  return families.filter(({ type, across }) => type !== 'gauge' && across === undefined);
}

/** Two that have ended as one. */
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

/** One page's samples of `family`, of all processes. Some microseconds a sample. */
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

/** Samples of the same name and labels become one. */
function combine(samples: readonly Sample[], merge: (left: number, right: number) => number): Sample[] {
  const merged = new Map<string, Sample>();
  for (const { value, labels: own, sharedLabels, metricName } of samples) {
    const labels = { ...own, ...sharedLabels };
    // A build of another version may have its labels in another order.
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

/*
 * How a gateway stands with those it shares limits, accounts and keys with, at one moment. Main thread.
 */

/**
 * `connected`; `lost`: the coordinator cannot be asked; `quarantine`: it has lost its data and lends nothing until what it had lent
 * is over; `alone`: this process lives on its equal share. From the best to the worst.
 */
export const SHARING_STATES = ['connected', 'alone', 'quarantine', 'lost'] as const;
export type SharingState = (typeof SHARING_STATES)[number];

/** `following`; `lost`: the server cannot be had, so nothing can be changed; `diverged`: an operator must decide. */
export const REGISTRY_STATES = ['following', 'lost', 'diverged'] as const;
export type RegistryState = (typeof REGISTRY_STATES)[number];

/** From a transaction of the host's own file to the longest that a server is waited for. */
export const EXCHANGE_BOUNDS_MS = [0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000];

export interface SharingSnapshot {
  readonly with: 'processes' | 'hosts';
  readonly state: SharingState;
  /** Undefined where it is connected. */
  readonly reason: string | undefined;
  /** Since it was connected; 0 where it is. */
  readonly lostMs: number;
  /** Of exchanges with the coordinator that were answered. */
  readonly exchanges: HistogramSnapshot;
  /** Of exchanges that were not. */
  readonly failures: number;
  /** Accounts and keys of which something is leased. */
  readonly leased: number;
  /** Requests that wait for a lease. */
  readonly waits: number;
  /** Undefined where the registry is shared between the processes of one host alone. */
  readonly registry: { readonly state: RegistryState; readonly reason: string | undefined } | undefined;
}
