/**
 * Pictures for the docs: bars of CPU time a request, shorter is better. Two callers: this file as a program
 * draws a run of the bench (docs/benchmarks.md), and scripts/write-docs.mjs draws the gateways that were
 * measured side by side (docs/images/peers.svg).
 *
 *     node build/bench/load/chart.js report.json > bench/chart.svg
 *
 * `report.json` is what `npm run bench -- --json` has written.
 */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Result } from './results.js';

export interface ChartReport {
  readonly machine: string;
  readonly rounds: number;
  readonly seconds: number;
  readonly results: readonly Pick<Result, 'scenario' | 'contender' | 'figures'>[];
}

/** One run of bench/peers/measured.json, as far as it is drawn. */
export interface PeersMeasurement {
  readonly date: string;
  readonly build: string;
  readonly contenders: readonly {
    readonly name: string;
    readonly kind: Bar['kind'];
    /** Whether it held limits of its callers, not only their key. The floor has no such thing. */
    readonly limits?: boolean;
    readonly whole: { readonly cpuMicros: number };
  }[];
}

/** What a contender added to the time of a call, in one scenario. Microseconds. */
export interface AddedLatency {
  /** As the bench has it: `rate-500`. */
  readonly scenario: string;
  /** What was measured, for readers. */
  readonly title: string;
  readonly name: string;
  readonly kind: Bar['kind'];
  readonly p50Micros: number;
  readonly p99Micros: number;
}

interface Bar {
  readonly name: string;
  readonly kind: 'own' | 'gateway' | 'floor';
  /** Pixels. */
  readonly width: number;
  /** Stands behind the bar. */
  readonly value: string;
}

const WIDTH = 760;
const LABEL_WIDTH = 190;
const VALUE_WIDTH = 110;
/** Of the longest bar. */
const BAR_WIDTH = WIDTH - LABEL_WIDTH - VALUE_WIDTH;
const BAR_HEIGHT = 18;
const ROW_HEIGHT = 24;
const HEAD_HEIGHT = 56;
const GROUP_GAP = 26;
const FOOT_LINE_HEIGHT = 18;
/** In the chart of a run bars longer than so many times the shortest are broken off. */
const LONGEST_RATIO = 12;
/** The same in the chart of added latency, as a multiple of the gateway's own bar. */
const LONGEST_ADDED_RATIO = 8;
/** What p99 takes behind a bar. */
const P99_WIDTH = 60;

const STYLE = `
    text { font: 13px system-ui, sans-serif; fill: #1f2328; }
    .title { font-weight: 600; font-size: 15px; }
    .quiet { fill: #59636e; font-size: 12px; }
    .group { font-weight: 600; }
    .gateway { fill: #8c959f; }
    .floor { fill: #d1d9e0; }
    .own { fill: #0969da; }
    .line { stroke: #d1d9e0; }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc; }
      .quiet { fill: #9198a1; }
      .gateway { fill: #656c76; }
      .floor { fill: #3d444d; }
      .own { fill: #4493f8; }
      .line { stroke: #3d444d; }
    }`;

const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');

function text(place: string, content: string, style = ''): string {
  return `\n  <text ${style === '' ? '' : `class="${style}" `}${place}>${escaped(content)}</text>`;
}

function barsOf(bars: readonly Bar[], top: number): string {
  return bars
    .map(({ name, kind, width, value }, index) => {
      const y = top + index * ROW_HEIGHT;
      return (
        text(`x="${LABEL_WIDTH - 10}" y="${y + 14}" text-anchor="end"`, name) +
        `\n  <rect class="${kind}" x="${LABEL_WIDTH}" y="${y}" width="${width.toFixed(1)}" height="${BAR_HEIGHT}" rx="2"/>` +
        text(`x="${(LABEL_WIDTH + width + 8).toFixed(1)}" y="${y + 14}"`, value)
      );
    })
    .join('');
}

/** `bottom`: where the drawing ends, and the lines of the foot begin. */
function picture(
  label: string,
  title: string,
  drawing: string,
  bottom: number,
  foot: readonly string[],
): string {
  const height = bottom + 22 + foot.length * FOOT_LINE_HEIGHT;
  const lines = foot.map((line, index) =>
    text(`x="10" y="${height - 12 - (foot.length - 1 - index) * FOOT_LINE_HEIGHT}"`, line, 'quiet'),
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="${escaped(label)}">
  <style>${STYLE}
  </style>${text('x="10" y="22"', title, 'title')}${drawing}${lines.join('')}
</svg>
`;
}

/** A group of bars a scenario. The upstream alone is left out: it is what every call costs besides. */
export function chartOf({ machine, rounds, seconds, results }: ChartReport): string {
  const shown = results.filter(({ contender }) => contender !== 'direct');
  let drawing = '';
  let y = HEAD_HEIGHT;
  for (const scenario of new Set(shown.map((result) => result.scenario))) {
    const lines = shown
      .filter((result) => result.scenario === scenario)
      .map(({ contender, figures }) => ({ contender, micros: figures.cpuMicrosPerRequest.median }));
    // One slow contender must not make the others' bars too short to be compared.
    const sorted = lines.map(({ micros }) => micros).sort((a, b) => a - b);
    const longest = Math.min(sorted.at(-1)!, sorted[0]! * LONGEST_RATIO);
    const bars = lines.map(({ contender, micros }): Bar => ({
      name: contender,
      kind: contender.startsWith('tollgate') ? 'own' : 'gateway',
      width: Math.min(1, micros / longest) * BAR_WIDTH,
      value: `${micros.toFixed(1)} µs${micros > longest ? ' …' : ''}`,
    }));
    drawing += text(`x="10" y="${y + 14}"`, scenario, 'group') + barsOf(bars, y);
    y += bars.length * ROW_HEIGHT + GROUP_GAP;
  }
  return picture(
    'CPU time a request',
    'CPU time a request, all threads and processes; shorter is better',
    drawing,
    y - GROUP_GAP,
    [`median of ${rounds} rounds of ${seconds} s, in one run on`, machine],
  );
}

/**
 * Gateways differ by hundreds, so they stand on a scale of tens that begins at 1 µs. Those that held limits,
 * those that held none, and the floor are drawn apart.
 */
export function peersChartOf({ date, build, contenders }: PeersMeasurement): string {
  const tens = Math.ceil(Math.log10(Math.max(...contenders.map(({ whole }) => whole.cpuMicros))));
  const widthOf = (micros: number): number => (Math.log10(micros) / tens) * BAR_WIDTH;
  const bars = contenders.map(({ name, kind, whole: { cpuMicros } }): Bar => ({
    name,
    kind,
    width: widthOf(cpuMicros),
    value: `${cpuMicros.toLocaleString('en')} µs`,
  }));
  const groups = [
    ['with limits on', bars.filter((_, at) => contenders[at]!.limits === true)],
    ['with no limits', bars.filter((_, at) => contenders[at]!.limits === false)],
    ['the floor: proxies that check and count nothing', bars.filter(({ kind }) => kind === 'floor')],
  ] as const;
  let drawing = '';
  let y = HEAD_HEIGHT + GROUP_GAP;
  for (const [title, own] of groups.filter(([, own]) => own.length > 0)) {
    drawing += text(`x="${LABEL_WIDTH}" y="${y - 8}"`, title, 'quiet') + barsOf(own, y);
    y += own.length * ROW_HEIGHT + GROUP_GAP;
  }
  const bottom = y - GROUP_GAP;
  const scale = Array.from({ length: tens + 1 }, (_, power) => {
    const x = (LABEL_WIDTH + widthOf(10 ** power)).toFixed(1);
    return (
      `\n  <line class="line" x1="${x}" y1="${HEAD_HEIGHT - 6}" x2="${x}" y2="${bottom}"/>` +
      text(
        `x="${x}" y="${HEAD_HEIGHT - 12}" text-anchor="middle"`,
        (10 ** power).toLocaleString('en'),
        'quiet',
      )
    );
  });
  return picture(
    'CPU time of a small call, gateways side by side',
    'CPU time of a small call, µs, each step ten times as much; shorter is better',
    scale.join('') + drawing,
    bottom,
    [`measured side by side on ${date}, build ${build}, all threads and processes`],
  );
}

/**
 * What each contender adds to the time of a call: the median as a bar, and p99 as a number behind it. Bars
 * longer than so many times the gateway's own are broken off.
 */
export function latencyChartOf(latencies: readonly AddedLatency[], foot: readonly string[]): string {
  let drawing = '';
  let y = HEAD_HEIGHT;
  for (const scenario of new Set(latencies.map((latency) => latency.scenario))) {
    const lines = latencies.filter((latency) => latency.scenario === scenario);
    const own = lines.find(({ kind }) => kind === 'own') ?? lines[0]!;
    const longest = Math.min(
      Math.max(...lines.map(({ p50Micros }) => p50Micros)),
      own.p50Micros * LONGEST_ADDED_RATIO,
    );
    const bars = lines.map(({ name, kind, p50Micros, p99Micros }): Bar => ({
      name,
      kind,
      width: Math.max(1, Math.min(1, p50Micros / longest) * (BAR_WIDTH - P99_WIDTH)),
      value: `${durationText(p50Micros)}${p50Micros > longest ? ' …' : ''}, p99 ${durationText(p99Micros)}`,
    }));
    drawing += text(`x="10" y="${y + 14}"`, lines[0]!.title, 'group') + barsOf(bars, y + ROW_HEIGHT);
    y += (bars.length + 1) * ROW_HEIGHT + GROUP_GAP;
  }
  return picture(
    'Added latency, gateways side by side',
    'What a gateway adds to the time of a call: p50, and p99 behind it; shorter is better',
    drawing,
    y - GROUP_GAP,
    foot,
  );
}

function durationText(micros: number): string {
  if (micros < 1_000) return `${Math.round(micros)} µs`;
  return `${(micros / 1_000).toFixed(micros < 100_000 ? 1 : 0)} ms`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const report = JSON.parse(readFileSync(process.argv[2]!, 'utf8')) as ChartReport;
  process.stdout.write(chartOf(report));
}
