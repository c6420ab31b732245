/**
 * The text of `/metrics`: reads every metric family at the scrape and writes the samples in the format that
 * the scraper asks for, Prometheus' own text (0.0.4) or OpenMetrics 1.0.0. gateway/gateway-metrics.ts creates
 * the Exposition and asks for pages, which admin/server.ts serves. Main thread.
 *
 * https://prometheus.io/docs/instrumenting/exposition_formats/
 *
 * Must hold: both formats are valid (promtool reads them), and the samples of a family have the type and the
 * labels that it declares (test/unit/telemetry/exposition.test.ts).
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { GATEWAY_FAMILIES } from './gateway-families.js';
import type { FamilySnapshot, MetricsSnapshot } from './metrics-snapshot.js';
import type { MetricFamily, MetricsSource, Sample } from './metrics-source.js';
import { REQUEST_FAMILIES } from './request-families.js';

export const METRIC_FAMILIES: readonly MetricFamily[] = [...REQUEST_FAMILIES, ...GATEWAY_FAMILIES];

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
 * Reads all samples of this process. Takes some microseconds a sample, and yields to the event loop between
 * two families. The snapshot may be sent to the process that writes the page.
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
  /** Pages that are being written, by format. Concurrent scrapes of one format share a page. */
  readonly #runningPages = new Map<MetricsFormat, Promise<MetricsPage>>();

  /** `collect` reads the samples of all processes, and is called once a page. */
  constructor(collect: () => Promise<FamilySamples>) {
    this.#collect = collect;
  }

  /**
   * Writes a page. Yields to the event loop between two families, so that a page of a thousand models delays
   * no flush. Rejects if `collect` does.
   */
  render(format: MetricsFormat): Promise<MetricsPage> {
    const running = this.#runningPages.get(format);
    if (running !== undefined) return running;
    const page = this.#write(format).finally(() => this.#runningPages.delete(format));
    this.#runningPages.set(format, page);
    return page;
  }

  async #write(format: MetricsFormat): Promise<MetricsPage> {
    const texts: string[] = [];
    const samplesOf = await this.#collect();
    for (const family of METRIC_FAMILIES) {
      texts.push(familyText(family, samplesOf(family), format));
      await nextTurn();
    }
    // Only OpenMetrics has an end mark, and forbids the empty lines that make Prometheus' text readable.
    const text = format === 'openmetrics' ? `${texts.join('\n')}\n# EOF\n` : `${texts.join('\n\n')}\n`;
    return { contentType: CONTENT_TYPES[format], body: Buffer.from(text) };
  }
}

/**
 * Returns the lines of one family. OpenMetrics declares a counter without the suffix `_total`, which the
 * counter's samples have in both formats.
 */
function familyText(
  { name, type, help }: MetricFamily,
  samples: readonly Sample[],
  format: MetricsFormat,
): string {
  const declared = format === 'openmetrics' && type === 'counter' ? name.replace(/_total$/, '') : name;
  const helpText = format === 'openmetrics' ? withQuotesEscaped(help) : escaped(help);
  const lines = [`# HELP ${declared} ${helpText}`, `# TYPE ${declared} ${type}`];
  // All samples of one histogram have the same `sharedLabels` object, so the text of the labels is made once.
  let shared: Sample['sharedLabels'];
  let sharedText = '';
  for (const { metricName = name, labels, sharedLabels, value } of samples) {
    if (sharedLabels !== shared) {
      shared = sharedLabels;
      sharedText = labelsText(sharedLabels ?? {});
    }
    const ownText = labelsText(labels);
    const allText = ownText === '' || sharedText === '' ? ownText + sharedText : `${ownText},${sharedText}`;
    lines.push(`${metricName}${allText === '' ? '' : `{${allText}}`} ${valueText(value)}`);
  }
  return lines.join('\n');
}

function labelsText(labels: Readonly<Record<string, string>>): string {
  let text = '';
  for (const name in labels) {
    text += `${text === '' ? '' : ','}${name}="${withQuotesEscaped(labels[name]!)}"`;
  }
  return text;
}

/** Escapes quotes too: in values of labels, and in OpenMetrics also in the help. */
function withQuotesEscaped(text: string): string {
  return escaped(text).replace(/"/g, '\\"');
}

/** Escapes backslashes and line feeds, as both formats want it in every text. */
function escaped(text: string): string {
  return text.replace(/\\/g, '\\\\').replace(/\n/g, '\\n');
}

/** Prometheus reads numbers by Go's ParseFloat, which reads JavaScript's text of all but the infinities. */
function valueText(value: number): string {
  if (value === Infinity) return '+Inf';
  return value === -Infinity ? '-Inf' : String(value);
}

/** Returns the format that an `Accept` header asks for: Prometheus' own unless it prefers OpenMetrics. */
export function formatOf(accept: string): MetricsFormat {
  return weightOf(accept, 'application/openmetrics-text') > weightOf(accept, 'text/plain')
    ? 'openmetrics'
    : 'prometheus';
}

/** Returns the highest weight (RFC 9110, 12.4.2) that the header gives the type, 0 if it does not name it. */
function weightOf(accept: string, type: string): number {
  const weights = accept
    .split(',')
    .map((range) => range.split(';').map((field) => field.trim().toLowerCase()))
    .filter(([name]) => name === type)
    .map((fields) => Number(fields.find((field) => field.startsWith('q='))?.slice(2) ?? 1));
  return Math.max(0, ...weights.filter((weight) => weight >= 0));
}
