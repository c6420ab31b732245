/**
 * Declares what a scrape reads (MetricsSource), the types of families and samples, and the names of upstreams
 * in labels (UpstreamNames). gateway/gateway-metrics.ts provides the source and creates the names; the files
 * named …-families.ts read the source. Main thread.
 *
 * Must hold (test/unit/telemetry/metrics-source.upstream-names.test.ts):
 * - An upstream keeps its slot over reloads, because workers count in the words of the slot.
 * - Slots are bounded by UPSTREAM_SLOTS_MAX: when all are given, further upstreams share the last one.
 */
import type { Service } from '../core/door-names.js';
import type { UpstreamLimits, UpstreamQuotaName } from '../core/quotas.js';
import type { UpstreamScopeIndex } from '../core/units.js';
import type { FlushSnapshot, HistogramSnapshot } from './histogram.js';
import { UPSTREAM_SLOTS_MAX } from './metrics-layout.js';
import type { MetricsReader } from './metrics-reader.js';
import type { CredentialStatus, RegistryState, SharingState } from './status-document.js';
import type { ExportCounts } from './span-outbox.js';

export interface ModelName {
  readonly id: string;
  readonly ownedBy: string;
  /** Not empty for a model of the settings. */
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

/** These bounds reach from a transaction in the host's own file to the longest wait for a server. */
export const EXCHANGE_BOUNDS_MS = [0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000];

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
  /** How many accounts and keys have a lease. */
  readonly leased: number;
  /** Requests that wait for a lease now. */
  readonly waits: number;
  /** Undefined if only the processes of one host share the registry. */
  readonly registry: { readonly state: RegistryState; readonly reason: string | undefined } | undefined;
}

export interface MetricsSource {
  readonly version: string;
  readonly reader: MetricsReader;
  /** In the order of their indices in the catalogue. */
  readonly models: () => readonly ModelName[];
  /** Upstreams of all settings since the start, because a reload removes no counter. */
  readonly knownUpstreams: () => readonly NamedUpstream[];
  /** Upstreams of the present settings. */
  readonly upstreams: () => readonly NamedUpstream[];
  /** Returns what is used of each limit of the scope. */
  readonly upstreamUse: (scope: UpstreamScopeLimits) => readonly UpstreamQuotaUse[];
  /** Names of threads, in the order of the stripes (`threadNames` of metrics-layout.ts). */
  readonly threads: readonly string[];
  /** The setting limits.calls_in_flight, for this process. */
  readonly callsInFlightMax: number;
  /** Memory that the bodies of requests take now, and how much they may take. */
  readonly bodies: { readonly bytesInWork: () => number; readonly bytesInWorkMax: () => number };
  readonly flush: () => FlushSnapshot;
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
  /** The groups that are nearest to a limit, at most GROUPS_SHOWN_MAX (gateway/gateway-metrics.ts). */
  readonly groupQuotas: () => readonly GroupQuotaSample[];
  /** Empty if account labels are off. At most ACCOUNT_LABELS_MAX accounts (gateway/gateway-metrics.ts). */
  readonly accounts: () => readonly AccountSample[];
}

/** How many calls, or their contents, the call log lacks. */
export interface DroppedCalls {
  readonly records: number;
  readonly contents: number;
  /** Rejected calls beyond those that are stored in a second (call-ring-writer.ts). */
  readonly rejected: number;
}

/** One number of the page. Samples of a histogram share the object `sharedLabels`, whose text comes last. */
export interface Sample {
  readonly value: number;
  readonly labels: Readonly<Record<string, string>>;
  readonly sharedLabels?: Readonly<Record<string, string>>;
  /** Present if it differs from the family's name, for the parts of a histogram. */
  readonly metricName?: string;
}

/** A metric: its declaration, and how to read its samples. */
export interface MetricFamily {
  /** The name of a counter ends in `_total`: exposition.ts relies on that for OpenMetrics. */
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  readonly labels: readonly string[];
  /**
   * How the samples of several processes become those of a page (metrics-snapshot.ts). `max`: the largest
   * value. `each`: all, with the label `process`. `one`: those of one process, because all have the same.
   * Undefined: the sum of the values with the same labels.
   */
  readonly across?: 'max' | 'each' | 'one' | undefined;
  readonly collect: (source: MetricsSource) => Sample[];
}

const MS_PER_SECOND = 1_000;
/** Returns seconds, as Prometheus wants them in metrics; everything else here counts milliseconds. */
export const secondsOf = (ms: number): number => ms / MS_PER_SECOND;
const PICO_UNITS_PER_UNIT = 1e12;
/** Returns money in units of the operator's currency, as a float: for graphs, not for bills. */
export const currencyOf = (picoUnits: number | bigint): number => Number(picoUnits) / PICO_UNITS_PER_UNIT;

/**
 * Returns the samples of one histogram, with cumulative counts as Prometheus asks for. `scale` converts
 * bounds and sum to the unit of the metric; by default they have it already.
 */
export function histogramSamples(
  name: string,
  { bounds, counts, sum }: HistogramSnapshot,
  sharedLabels: Readonly<Record<string, string>>,
  scale: (value: number) => number = (value) => value,
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

/** An upstream of the settings. */
interface UpstreamSetting {
  readonly model: string;
  /** Host and port, or `echo`; no path, key or query. */
  readonly name: string;
  readonly priority: number;
  readonly weight: number;
  /** Undefined if it has no limits. */
  readonly scope?: UpstreamScopeLimits | undefined;
}

/** The upstreams that share limits, and the limits. */
interface UpstreamScopeLimits {
  readonly index: UpstreamScopeIndex;
  readonly limits: UpstreamLimits;
}

interface UpstreamQuotaUse {
  readonly quota: UpstreamQuotaName;
  readonly limit: number;
  /** Includes what calls hold. */
  readonly used: number;
}

export interface NamedUpstream extends UpstreamSetting {
  readonly slot: number;
}

/**
 * Gives every upstream of every model a slot for its counters and a name for their labels. An upstream keeps
 * both for the life of the process, also when settings are reloaded.
 */
export class UpstreamNames {
  /** By model and name. No slot is ever removed; UPSTREAM_SLOTS_MAX bounds them. */
  readonly #slots = new Map<string, number>();
  /** By slot, upstreams that are no longer in the settings among them. */
  readonly #knownUpstreams: NamedUpstream[] = [];
  #currentUpstreams: readonly NamedUpstream[] = [];

  /**
   * Returns all upstreams of new settings with their slots, in the order given. If a model has several
   * upstreams of one name, the second is named `name#2` and so on. When all slots are taken, further
   * upstreams share the last.
   */
  assign(upstreams: readonly UpstreamSetting[]): readonly NamedUpstream[] {
    const timesNamed = new Map<string, number>();
    this.#currentUpstreams = upstreams.map((setting) => {
      const modelAndName = `${setting.model} ${setting.name}`;
      const count = (timesNamed.get(modelAndName) ?? 0) + 1;
      timesNamed.set(modelAndName, count);
      const name = count === 1 ? setting.name : `${setting.name}#${count}`;
      const upstream = { ...setting, name, slot: this.#slotOf(`${setting.model} ${name}`) };
      this.#knownUpstreams[upstream.slot] = upstream;
      return upstream;
    });
    return this.#currentUpstreams;
  }

  /** Upstreams of the present settings. */
  get current(): readonly NamedUpstream[] {
    return this.#currentUpstreams;
  }

  /** Upstreams of all settings since the start. */
  get known(): readonly NamedUpstream[] {
    return this.#knownUpstreams;
  }

  /** Returns the slot of a model and name. If they have none yet, gives them the next free slot. */
  #slotOf(modelAndName: string): number {
    const existingSlot = this.#slots.get(modelAndName);
    if (existingSlot !== undefined) return existingSlot;
    const slot = this.#slots.size;
    if (slot >= UPSTREAM_SLOTS_MAX) return UPSTREAM_SLOTS_MAX - 1;
    this.#slots.set(modelAndName, slot);
    return slot;
  }
}
