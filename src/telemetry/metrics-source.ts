/**
 * What the exposition reads at a scrape, and the shape of what it makes of it. Main thread.
 */
import type { FlushSnapshot, HistogramSnapshot } from './histogram.js';
import { UPSTREAM_SLOTS_MAX } from './metrics-layout.js';
import type { MetricsReader } from './metrics-reader.js';
import type { SharingSnapshot } from './metrics-snapshot.js';
import type { SpanCounts } from './span-outbox.js';

export interface ModelName {
  readonly id: string;
  readonly ownedBy: string;
}

/** One account, where account labels are switched on. */
export interface AccountSample {
  readonly id: string;
  readonly name: string;
  readonly availablePicoUnits: bigint;
  readonly spentPicoUnits: bigint;
  readonly callsToday: number;
}

export interface MetricsSource {
  readonly version: string;
  readonly reader: MetricsReader;
  /** By their indices in the catalogue. */
  readonly models: () => readonly ModelName[];
  /** Of all settings that there were: counters go on. */
  readonly knownUpstreams: () => readonly NamedUpstream[];
  /** Of the present settings. */
  readonly upstreams: () => readonly NamedUpstream[];
  /** In the order of their stripes. */
  readonly threads: readonly string[];
  readonly callsInFlightMax: number;
  /** Memory that the bodies of calls in work take, and may take. */
  readonly bodies: { readonly bytesInWork: () => number; readonly bytesInWorkMax: () => number };
  readonly flush: () => FlushSnapshot;
  readonly unflushedAccounts: () => number;
  /** Of each listener's journal, 0 to 1. */
  readonly journalFills: () => readonly number[];
  /** Undefined where none are exported. */
  readonly spans: () => SpanCounts | undefined;
  /** Undefined where the gateway has its limits for itself. */
  readonly sharing: () => SharingSnapshot | undefined;
  /** None where account labels are switched off; bounded by whoever gives them. */
  readonly accounts: () => readonly AccountSample[];
}

/** One line of the page. Samples with the same `sharedLabels` object share its text; those labels stand last. */
export interface Sample {
  readonly value: number;
  readonly labels: Readonly<Record<string, string>>;
  readonly sharedLabels?: Readonly<Record<string, string>>;
  /** Where it differs from the family's: the parts of a histogram. */
  readonly metricName?: string;
}

/** One metric: what is declared of it, and how its samples are had. */
export interface MetricFamily {
  /** A counter's ends in `_total`. */
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  readonly labels: readonly string[];
  /**
   * How several processes show as one: `max`, the largest value; `each`, with the label `process`; `one`, any of them, for all
   * tell the same. Without it values of the same labels add up.
   */
  readonly across?: 'max' | 'each' | 'one' | undefined;
  readonly collect: (source: MetricsSource) => Sample[];
}

const MS_PER_SECOND = 1_000;
export const secondsOf = (ms: number): number => ms / MS_PER_SECOND;
const PICO_UNITS_PER_UNIT = 1e12;
/** Money in units of the operator's currency: a float, for graphs and not for bills. */
export const currencyOf = (picoUnits: number | bigint): number => Number(picoUnits) / PICO_UNITS_PER_UNIT;

/** Samples of one histogram, with its counts made cumulative; bounds and sum times `scale`. */
export function histogramSamples(
  name: string,
  { bounds, counts, sum }: HistogramSnapshot,
  sharedLabels: Readonly<Record<string, string>>,
  scale: (value: number) => number = (value) => value,
): Sample[] {
  let total = 0;
  const samples = counts.map((count, bucket): Sample => {
    total += count;
    const le = bucket < bounds.length ? String(scale(bounds[bucket]!)) : '+Inf';
    return { metricName: `${name}_bucket`, value: total, labels: { le }, sharedLabels };
  });
  samples.push({ metricName: `${name}_sum`, value: scale(sum), labels: {}, sharedLabels });
  samples.push({ metricName: `${name}_count`, value: total, labels: {}, sharedLabels });
  return samples;
}

/** An upstream as the settings have it. */
export interface UpstreamSetting {
  readonly model: string;
  /** Host and port, or `echo`: without path, key or query. */
  readonly name: string;
  readonly priority: number;
  readonly weight: number;
}

export interface NamedUpstream extends UpstreamSetting {
  readonly slot: number;
}

/**
 * Gives every upstream of every model a slot for its counters and a name for their labels. An upstream keeps both
 * for the life of the process, also when settings are reloaded.
 */
export class UpstreamNames {
  /** By model and name; never smaller, bounded by the slots. */
  readonly #slots = new Map<string, number>();
  /** By slot, also those that are in the settings no more. */
  readonly #known: NamedUpstream[] = [];
  #current: readonly NamedUpstream[] = [];

  /**
   * All upstreams of new settings, with their slots, in the order given. Those of one model that have the same name are
   * told apart by `#2`, `#3`, …. What comes when all slots are taken shares the last, whose counters then are of several.
   */
  assign(settings: readonly UpstreamSetting[]): readonly NamedUpstream[] {
    const seen = new Map<string, number>();
    this.#current = settings.map((setting) => {
      const base = `${setting.model} ${setting.name}`;
      const count = (seen.get(base) ?? 0) + 1;
      seen.set(base, count);
      const name = count === 1 ? setting.name : `${setting.name}#${count}`;
      const upstream = { ...setting, name, slot: this.#slotOf(`${setting.model} ${name}`) };
      this.#known[upstream.slot] = upstream;
      return upstream;
    });
    return this.#current;
  }

  /** Of the present settings. */
  get current(): readonly NamedUpstream[] {
    return this.#current;
  }

  /** Of all settings that there were. */
  get known(): readonly NamedUpstream[] {
    return this.#known;
  }

  #slotOf(key: string): number {
    const known = this.#slots.get(key);
    if (known !== undefined) return known;
    const slot = this.#slots.size;
    if (slot >= UPSTREAM_SLOTS_MAX) return UPSTREAM_SLOTS_MAX - 1;
    this.#slots.set(key, slot);
    return slot;
  }
}
