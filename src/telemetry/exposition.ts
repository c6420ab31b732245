/**
 * The text of `/metrics`: every family, rendered by prom-client from what it collects at the scrape. Main thread.
 *
 * prom-client renders whatever has the shape of its metrics (its own cluster mode registers such objects), so the figures go
 * from shared memory to text without a second set of counters. It renders one family at a time here, with a turn of the event
 * loop between two, so that a page of a thousand models does not stand before a flush.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Registry, type Metric, type RegistryContentType } from 'prom-client';
import { GATEWAY_FAMILIES, SHARING_FAMILIES } from './gateway-families.js';
import type { FamilySnapshot, MetricsSnapshot } from './metrics-snapshot.js';
import type { MetricFamily, MetricsSource, Sample } from './metrics-source.js';
import { REQUEST_FAMILIES } from './request-families.js';

export const METRIC_FAMILIES: readonly MetricFamily[] = [
  ...REQUEST_FAMILIES,
  ...GATEWAY_FAMILIES,
  ...SHARING_FAMILIES,
];

export interface MetricsPage {
  readonly contentType: string;
  readonly body: Buffer;
}

export type MetricsFormat = 'prometheus' | 'openmetrics';

const CONTENT_TYPES: Readonly<Record<MetricsFormat, RegistryContentType>> = {
  prometheus: Registry.PROMETHEUS_CONTENT_TYPE,
  openmetrics: Registry.OPENMETRICS_CONTENT_TYPE,
};

/** Gives the samples of one family of the page. */
export type FamilySamples = (family: MetricFamily) => readonly Sample[];

/** The samples of this process, for the page that another one makes. Costs some microseconds a sample, in pieces. */
export async function readMetrics(source: MetricsSource): Promise<MetricsSnapshot> {
  const families: FamilySnapshot[] = [];
  for (const { name, type, across, collect } of METRIC_FAMILIES) {
    families.push({ name, type, across, samples: collect(source) });
    await nextTurn();
  }
  return families;
}

export class Exposition {
  readonly #collect: () => Promise<FamilySamples>;
  /** Scrapes that come while a page is being made get that page: more scrapers cost no more. */
  readonly #underWay = new Map<MetricsFormat, Promise<MetricsPage>>();

  /** `collect` is called once a page. */
  constructor(collect: () => Promise<FamilySamples>) {
    this.#collect = collect;
  }

  /** Costs some 2 µs a sample, in pieces. */
  render(format: MetricsFormat): Promise<MetricsPage> {
    const underWay = this.#underWay.get(format);
    if (underWay !== undefined) return underWay;
    const page = this.#render(format).finally(() => this.#underWay.delete(format));
    this.#underWay.set(format, page);
    return page;
  }

  async #render(format: MetricsFormat): Promise<MetricsPage> {
    const contentType = CONTENT_TYPES[format];
    const registry = new Registry<RegistryContentType>();
    registry.setContentType(contentType);
    const texts: string[] = [];
    const samplesOf = await this.#collect();
    for (const family of METRIC_FAMILIES) {
      const metric = metricOf(family, format, samplesOf);
      registry.registerMetric(metric as unknown as Metric);
      texts.push(await registry.getSingleMetricAsString(metric.name));
      await nextTurn();
    }
    const text = format === 'openmetrics' ? `${texts.join('\n')}\n# EOF\n` : `${texts.join('\n\n')}\n`;
    return { contentType, body: Buffer.from(text) };
  }
}

/** What prom-client asks a metric for. OpenMetrics names a counter without the suffix that its samples have. */
function metricOf(family: MetricFamily, format: MetricsFormat, samplesOf: FamilySamples) {
  const { name: given, type, help } = family;
  const name = format === 'openmetrics' && type === 'counter' ? given.replace(/_total$/, '') : given;
  const get = () => ({ name, type, help, values: samplesOf(family) });
  return { name, get };
}

/** The format that an `Accept` header asks for: Prometheus' own text unless it prefers OpenMetrics. */
export function formatOf(accept: string): MetricsFormat {
  return weightOf(accept, 'application/openmetrics-text') > weightOf(accept, 'text/plain')
    ? 'openmetrics'
    : 'prometheus';
}

/** The highest weight (RFC 9110, 12.4.2) that the header gives the type, 0 where it does not name it. */
function weightOf(accept: string, type: string): number {
  const weights = accept
    .split(',')
    .map((range) => range.split(';').map((part) => part.trim().toLowerCase()))
    .filter(([name]) => name === type)
    .map((parts) => Number(parts.find((part) => part.startsWith('q='))?.slice(2) ?? 1));
  return Math.max(0, ...weights.filter((weight) => weight >= 0));
}
