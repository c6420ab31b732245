/**
 * The text of `/metrics`: reads every metric family from shared memory at the scrape and writes it in the
 * format that the scraper asks for, Prometheus' own text (0.0.4) or OpenMetrics 1.0.0.
 * gateway/gateway-metrics.ts calls it, on the main thread.
 *
 * https://prometheus.io/docs/instrumenting/exposition_formats/
 *
 * Must hold: both formats are valid (promtool reads them), and the samples of a family have the type and the
 * labels that it declares (test/unit/telemetry/exposition.test.ts).
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
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

const CONTENT_TYPES: Readonly<Record<MetricsFormat, string>> = {
  prometheus: 'text/plain; version=0.0.4; charset=utf-8',
  openmetrics: 'application/openmetrics-text; version=1.0.0; charset=utf-8',
};

/** Returns the samples of one family of the page. */
export type FamilySamples = (family: MetricFamily) => readonly Sample[];

/**
 * Reads all samples of this process, for a page that another process writes. Takes some microseconds a
 * sample, with a turn of the event loop between two families.
 */
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
  /** Pages being written, by format: scrapes that come meanwhile get the same page. */
  readonly #underWay = new Map<MetricsFormat, Promise<MetricsPage>>();

  /** `collect` is called once a page. */
  constructor(collect: () => Promise<FamilySamples>) {
    this.#collect = collect;
  }

  /**
   * Writes a page. There is a turn of the event loop between two families, so that a page of a thousand
   * models does not delay a flush.
   */
  render(format: MetricsFormat): Promise<MetricsPage> {
    const underWay = this.#underWay.get(format);
    if (underWay !== undefined) return underWay;
    const page = this.#render(format).finally(() => this.#underWay.delete(format));
    this.#underWay.set(format, page);
    return page;
  }

  async #render(format: MetricsFormat): Promise<MetricsPage> {
    const texts: string[] = [];
    const samplesOf = await this.#collect();
    for (const family of METRIC_FAMILIES) {
      texts.push(familyText(family, samplesOf(family), format));
      await nextTurn();
    }
    const text = format === 'openmetrics' ? `${texts.join('\n')}\n# EOF\n` : `${texts.join('\n\n')}\n`;
    return { contentType: CONTENT_TYPES[format], body: Buffer.from(text) };
  }
}

/** OpenMetrics declares a counter without the suffix `_total` that its samples have. */
function familyText(
  { name, type, help }: MetricFamily,
  samples: readonly Sample[],
  format: MetricsFormat,
): string {
  const header = format === 'openmetrics' && type === 'counter' ? name.replace(/_total$/, '') : name;
  const helpText = format === 'openmetrics' ? quotable(help) : escaped(help);
  const lines = [`# HELP ${header} ${helpText}`, `# TYPE ${header} ${type}`];
  // All samples of one histogram have the same object: its text is made once.
  let shared: Sample['sharedLabels'];
  let sharedText = '';
  for (const { metricName = name, labels, sharedLabels, value } of samples) {
    if (sharedLabels !== shared) {
      shared = sharedLabels;
      sharedText = labelsText(sharedLabels ?? {});
    }
    const text = labelsText(labels);
    const all = text === '' || sharedText === '' ? text + sharedText : `${text},${sharedText}`;
    lines.push(`${metricName}${all === '' ? '' : `{${all}}`} ${valueText(value)}`);
  }
  return lines.join('\n');
}

function labelsText(labels: Readonly<Record<string, string>>): string {
  let text = '';
  for (const name in labels) {
    text += `${text === '' ? '' : ','}${name}="${quotable(labels[name]!)}"`;
  }
  return text;
}

/** As `escaped`, and quotes too: for values of labels, and for the help in OpenMetrics alone. */
function quotable(text: string): string {
  return escaped(text).replace(/"/g, '\\"');
}

function escaped(text: string): string {
  return text.replace(/\\/g, '\\\\').replace(/\n/g, '\\n');
}

/** Go's ParseFloat, which Prometheus uses, reads JavaScript's text of a number except of the infinities. */
function valueText(value: number): string {
  if (value === Infinity) return '+Inf';
  return value === -Infinity ? '-Inf' : String(value);
}

/**
 * Returns the format that an `Accept` header asks for: Prometheus' own text unless it prefers OpenMetrics.
 */
export function formatOf(accept: string): MetricsFormat {
  return weightOf(accept, 'application/openmetrics-text') > weightOf(accept, 'text/plain')
    ? 'openmetrics'
    : 'prometheus';
}

/** Returns the highest weight (RFC 9110, 12.4.2) that the header gives the type, 0 if it does not name it. */
function weightOf(accept: string, type: string): number {
  const weights = accept
    .split(',')
    .map((range) => range.split(';').map((part) => part.trim().toLowerCase()))
    .filter(([name]) => name === type)
    .map((parts) => Number(parts.find((part) => part.startsWith('q='))?.slice(2) ?? 1));
  return Math.max(0, ...weights.filter((weight) => weight >= 0));
}
