/**
 * Prometheus' text, read strictly: what a scrape brought, by name and labels.
 */
import { request } from './http.js';

export interface ScrapedSample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export class Scrape {
  readonly contentType: string;
  readonly text: string;
  readonly samples: readonly ScrapedSample[];

  /** Throws where a line is neither a comment nor a sample, or two samples are the same. */
  constructor(contentType: string, text: string) {
    this.contentType = contentType;
    this.text = text;
    this.samples = text
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('#'))
      .map(sampleOf);
    const seen = new Set<string>();
    for (const { name, labels } of this.samples) {
      const identity = `${name} ${JSON.stringify(Object.entries(labels).sort())}`;
      if (seen.has(identity)) throw new Error(`twice: ${identity}`);
      seen.add(identity);
    }
  }

  /** The sample with exactly these labels; 0 where there is none. */
  value(name: string, labels: Readonly<Record<string, string>>): number {
    const wanted = Object.entries(labels);
    const found = this.samples.find(
      (sample) =>
        sample.name === name &&
        Object.keys(sample.labels).length === wanted.length &&
        wanted.every(([label, value]) => sample.labels[label] === value),
    );
    return found?.value ?? 0;
  }

  /** Of all samples of that name. */
  sum(name: string): number {
    return this.samples.reduce((sum, sample) => sum + (sample.name === name ? sample.value : 0), 0);
  }

  names(): Set<string> {
    return new Set(this.samples.map(({ name }) => name));
  }
}

/** Of the gateway with that admin port, without a token. */
export async function scrape(adminPort: number, accept = '*/*'): Promise<Scrape> {
  const answer = await request({ port: adminPort, path: '/metrics', headers: { accept } });
  if (answer.status !== 200) throw new Error(`/metrics answered ${answer.status}: ${answer.body}`);
  return new Scrape(answer.headers['content-type'] ?? '', answer.body);
}

function sampleOf(line: string): ScrapedSample {
  const match = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
  if (match === null) throw new Error(`no sample: ${line}`);
  const labels: Record<string, string> = {};
  const text = match[2] ?? '';
  const rest = text.replace(
    /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"(?:,|$)/g,
    (_, label: string, value: string) => {
      labels[label] = value.replace(/\\(.)/g, (__, escaped: string) => (escaped === 'n' ? '\n' : escaped));
      return '';
    },
  );
  if (rest !== '') throw new Error(`bad labels: ${line}`);
  return { name: match[1]!, labels, value: match[3] === '+Inf' ? Infinity : Number(match[3]) };
}
