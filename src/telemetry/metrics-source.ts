/**
 * Declares what a scrape reads (MetricsSource), and what a metric is (MetricFamily, Sample), with helpers for
 * samples. gateway/gateway-metrics.ts provides the source; the files named …-families.ts read it. Main
 * thread.
 *
 * A new metric is a MetricFamily in one of those files, and a line in exposition.names.test.ts. If it reads
 * something new, add that to MetricsSource, and provide it in gateway-metrics.ts or gateway/stats.ts.
 * `npm run docs` then copies names, labels and help to docs/metrics.md.
 *
 * Must hold of all families:
 * - Names and labels stay, because dashboards use them (test/unit/telemetry/exposition.names.test.ts).
 * - No label has a value that a caller can choose, so that the number of time series is bounded.
 * - Samples have the labels that the family declares (`labelled`; test/unit/telemetry/exposition.test.ts).
 * - Members of Sample keep their names, and `type` and `across` their values: processes of two versions send
 *   each other samples (metrics-snapshot.ts).
 * - All samples of a histogram have one `sharedLabels` object and follow each other, as `histogram` makes
 *   them: exposition.ts makes the text of the labels anew at each change of the object.
 */
import type { Service } from '../core/door-names.js';
import type { UpstreamQuotaName } from '../core/quotas.js';
import type { FlushSnapshot } from './flush-meter.js';
import type { HistogramSnapshot } from './histogram.js';
import type { MetricsReader } from './metrics-reader.js';
import type { CredentialStatus, RegistryState, SharingState } from './status-document.js';
import type { ExportCounts } from './export-budget.js';
import type { NamedUpstream, UpstreamScopeLimits } from './upstream-names.js';

export interface ModelName {
  readonly id: string;
  readonly ownedBy: string;
  readonly serves: readonly Service[];
}

/** The names that OpenTelemetry's conventions give to operations, and our own for those that they lack. */
export const OPERATIONS: Readonly<Record<Service, string>> = {
  chat: 'chat',
  embeddings: 'embeddings',
  completions: 'text_completion',
  moderations: 'moderation',
  rerank: 'rerank',
};

/** One account, if `metrics.account_labels` is on. */
export interface AccountSample {
  readonly id: string;
  readonly name: string;
  /** Undefined while it is not known what the processes or hosts that share the account have left. */
  readonly availablePicoUnits: bigint | undefined;
  readonly spentPicoUnits: bigint;
  readonly callsToday: number;
}

/** One quota of a group. */
export interface GroupQuotaSample {
  readonly group: string;
  /** Empty unless `metrics.account_labels` is on. */
  readonly name: string;
  readonly quota: string;
  /** Used and held, divided by the limit: 1 is all. */
  readonly ratio: number;
}

/** Webhooks of quotas and balances, since the start. */
export interface WebhookCounts {
  readonly sent: number;
  /** Attempts that failed, also of webhooks that were sent later. */
  readonly failedAttempts: number;
  /** Webhooks that could not be sent for a day, or whose receiver accepts no more. */
  readonly givenUp: number;
  /** Webhooks that were not kept because too many waited. */
  readonly dropped: number;
}

/**
 * The bounds of SharingSnapshot's `exchanges`: from a transaction in the host's own file to the longest wait
 * for a server.
 */
export const EXCHANGE_BOUNDS_MS = [0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000];

/** How limits are shared. sharing/sharing-stats.ts makes it. */
export interface SharingSnapshot {
  /** Who else uses the limits: other processes of this host, or other hosts too. */
  readonly with: 'processes' | 'hosts';
  readonly state: SharingState;
  /** Undefined while the state is `connected`. */
  readonly reason: string | undefined;
  /** Time since the state was last `connected`; 0 while it is. */
  readonly lostMs: number;
  /** Durations of exchanges with the coordinator that were answered, in milliseconds. */
  readonly exchanges: HistogramSnapshot;
  /** Exchanges that were not answered, or were rejected. */
  readonly failures: number;
  /** How many scopes (accounts, groups, keys with limits of their own) are leased or waited for. */
  readonly leased: number;
  /** Requests that wait for a lease now. */
  readonly waits: number;
  /** Undefined if only the processes of one host share the registry. */
  readonly registry: { readonly state: RegistryState; readonly reason: string | undefined } | undefined;
}

/** What is used of one limit of upstreams. */
interface UpstreamQuotaUse {
  readonly quota: UpstreamQuotaName;
  readonly limit: number;
  /** Includes what calls hold. */
  readonly used: number;
}

export interface MetricsSource {
  readonly version: string;
  readonly reader: MetricsReader;
  /** In the order of their indices in the catalogue. */
  readonly models: () => readonly ModelName[];
  /** Upstreams of all settings since the start (`known` of UpstreamNames): a reload removes no counter. */
  readonly knownUpstreams: () => readonly NamedUpstream[];
  /** Upstreams of the present settings. */
  readonly upstreams: () => readonly NamedUpstream[];
  /** Returns what is used of each limit of the scope. */
  readonly upstreamUse: (scope: UpstreamScopeLimits) => readonly UpstreamQuotaUse[];
  /** In the order of the stripes (`threadNames` of metrics-layout.ts). No reload changes the threads. */
  readonly threads: readonly string[];
  /** The setting limits.calls_in_flight, for this process, which no reload changes. */
  readonly callsInFlightMax: number;
  /** Memory that the bodies of requests take now, and how much they may take. */
  readonly bodies: { readonly bytesInWork: () => number; readonly bytesInWorkMax: () => number };
  /** Durations and errors of writing the accounting to disk, and how far the disk is behind. */
  readonly flush: () => FlushSnapshot;
  /** How many accounts have charges that wait in memory for the disk. */
  readonly unflushedAccounts: () => number;
  /** How full each listener's journal is, 0 to 1. */
  readonly journalFills: () => readonly number[];
  /** Undefined if no spans are exported. */
  readonly spans: () => ExportCounts | undefined;
  /** Undefined if no records of calls are exported. */
  readonly logRecords: () => ExportCounts | undefined;
  readonly droppedCalls: () => DroppedCalls;
  /** Undefined if no receiver of webhooks is set. */
  readonly webhooks: () => WebhookCounts | undefined;
  /** The credentials of upstreams that are renewed. */
  readonly credentials: () => readonly CredentialStatus[];
  /** Undefined if limits are not shared. */
  readonly sharing: () => SharingSnapshot | undefined;
  /** Bytes of cached responses on disk. */
  readonly cacheStoredBytes: () => number;
  /** The groups that are nearest to a limit, at most GROUPS_SHOWN_MAX (gateway/primary-metrics.ts). */
  readonly groupQuotas: () => readonly GroupQuotaSample[];
  /** Empty if account labels are off. At most ACCOUNT_LABELS_MAX accounts (gateway/primary-metrics.ts). */
  readonly accounts: () => readonly AccountSample[];
}

/** How many calls, or their contents, the call log lacks. */
export interface DroppedCalls {
  readonly records: number;
  readonly contents: number;
  /** Rejected calls that were not stored, because only so many are in a second (call-ring-writer.ts). */
  readonly rejected: number;
}

/**
 * One number of the page. Samples of a histogram share the object `sharedLabels`, so that exposition.ts makes
 * its text once; the text follows that of `labels`.
 */
export interface Sample {
  readonly value: number;
  readonly labels: Readonly<Record<string, string>>;
  readonly sharedLabels?: Readonly<Record<string, string>>;
  /** Present if it differs from the family's name, for the parts of a histogram. */
  readonly metricName?: string;
}

/** A metric: its declaration, and how to read its samples. Made by `counter`, `gauge` and `histogram`. */
export interface MetricFamily extends Series {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  /**
   * How the samples of several processes become those of a page (metrics-snapshot.ts). `max`: the largest
   * value. `each`: all, with the label `process`. `one`: those of one process, because all have the same.
   * Undefined: the sum of the values with the same labels.
   */
  readonly across?: 'max' | 'each' | 'one' | undefined;
}

/** The samples of a family, and the names of the labels that each of them has. */
interface Series {
  readonly labels: readonly string[];
  readonly collect: (source: MetricsSource) => Sample[];
}

/** Series with these labels: a sample that lacks one does not compile. */
export function labelled<const Label extends string>(
  labels: readonly Label[],
  collect: (source: MetricsSource) => { readonly value: number; readonly labels: Record<Label, string> }[],
): Series {
  return { labels, collect };
}

/** One sample without labels; none while `valueOf` returns undefined. */
export function single(valueOf: (source: MetricsSource) => number | undefined): Series {
  return labelled([], (source) => {
    const value = valueOf(source);
    return value === undefined ? [] : [{ value, labels: {} }];
  });
}

/** OpenMetrics asks that the name of a counter, and no other name, ends in `_total`. */
export function counter(
  name: `${string}_total`,
  help: string,
  series: Series,
  across?: MetricFamily['across'],
): MetricFamily {
  return { name, type: 'counter', help, across, ...series };
}

export function gauge(
  name: string,
  help: string,
  series: Series,
  across?: MetricFamily['across'],
): MetricFamily {
  return { name, type: 'gauge', help, across, ...series };
}

/** `scale` converts bounds and sums to the unit of the metric; by default they have it already. */
export function histogram<const Label extends string>(
  name: string,
  help: string,
  labels: readonly Label[],
  read: (
    source: MetricsSource,
  ) => { readonly snapshot: HistogramSnapshot; readonly labels: Record<Label, string> }[],
  scale: (value: number) => number = (value) => value,
): MetricFamily {
  const collect = (source: MetricsSource): Sample[] =>
    read(source).flatMap(({ snapshot, labels: ownLabels }) =>
      histogramSamples(name, snapshot, ownLabels, scale),
    );
  return { name, type: 'histogram', help, across: undefined, labels, collect };
}

const MS_PER_SECOND = 1_000;
/** Returns seconds, as Prometheus wants them in metrics; everything else here counts milliseconds. */
export const secondsOf = (ms: number): number => ms / MS_PER_SECOND;
const PICO_UNITS_PER_UNIT = 1e12;
/** Returns money in units of the operator's currency, as a float: for graphs, not for bills. */
export const currencyOf = (picoUnits: number | bigint): number => Number(picoUnits) / PICO_UNITS_PER_UNIT;

/** Returns the samples of one histogram, with cumulative counts as Prometheus asks for. */
function histogramSamples(
  name: string,
  { bounds, counts, sum }: HistogramSnapshot,
  sharedLabels: Readonly<Record<string, string>>,
  scale: (value: number) => number,
): Sample[] {
  let cumulative = 0;
  const samples = counts.map((count, bucket): Sample => {
    cumulative += count;
    // `le` is the label by which Prometheus knows the upper bound of a bucket.
    const le = bucket < bounds.length ? String(scale(bounds[bucket]!)) : '+Inf';
    return { metricName: `${name}_bucket`, value: cumulative, labels: { le }, sharedLabels };
  });
  samples.push({ metricName: `${name}_sum`, value: scale(sum), labels: {}, sharedLabels });
  samples.push({ metricName: `${name}_count`, value: cumulative, labels: {}, sharedLabels });
  return samples;
}
