/**
 * A picture of a run for docs/benchmarks.md: CPU time a request of each contender, a group of bars a
 * scenario.
 *
 *     node build/bench/load/chart.js report.json > chart.svg
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

const WIDTH = 760;
const LABEL_WIDTH = 190;
const VALUE_WIDTH = 130;
const BAR_HEIGHT = 16;
const BAR_GAP = 4;
const GROUP_GAP = 30;
const HEAD_HEIGHT = 48;
const FOOT_HEIGHT = 46;
/** Bars longer than so many times the shortest are broken off. */
const LONGEST_RATIO = 12;

const STYLE = `
    text { font: 13px system-ui, sans-serif; fill: #1f2328; }
    .title { font-weight: 600; font-size: 15px; }
    .quiet { fill: #59636e; font-size: 12px; }
    .group { font-weight: 600; }
    .bar { fill: #8c959f; }
    .own { fill: #0969da; }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc; }
      .quiet { fill: #9198a1; }
      .bar { fill: #656c76; }
      .own { fill: #4493f8; }
    }`;

const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');

/**
 * One bar, at most as long as there is room; a bar of another magnitude is broken off, and its figure tells.
 */
function bar(y: number, contender: string, micros: number, scale: number): string {
  const room = WIDTH - LABEL_WIDTH - VALUE_WIDTH;
  const width = Math.min(room, micros * scale);
  const broken = micros * scale > room ? ' …' : '';
  const base = y + BAR_HEIGHT - BAR_GAP;
  const own = contender.startsWith('tollgate') ? 'bar own' : 'bar';
  return `
  <text x="${LABEL_WIDTH - 10}" y="${base}" text-anchor="end">${escaped(contender)}</text>
  <rect class="${own}" x="${LABEL_WIDTH}" y="${y}" width="${width.toFixed(1)}" height="${BAR_HEIGHT}" rx="2"/>
  <text x="${(LABEL_WIDTH + width + 8).toFixed(1)}" y="${base}">${micros.toFixed(1)} µs${broken}</text>`;
}

/** The upstream alone is left out: it is what every call costs besides. */
export function chartOf({ machine, rounds, seconds, results }: ChartReport): string {
  const shown = results.filter(({ contender }) => contender !== 'direct');
  const scenarios = [...new Set(shown.map(({ scenario }) => scenario))];
  const parts: string[] = [];
  let y = HEAD_HEIGHT;
  for (const scenario of scenarios) {
    const lines = shown.filter((result) => result.scenario === scenario);
    const microsOf = (result: (typeof lines)[number]): number => result.figures.cpuMicrosPerRequest.median;
    // One slow contender must not make the others' bars too short to be compared.
    const sorted = lines.map(microsOf).sort((a, b) => a - b);
    const longest = Math.min(sorted.at(-1)!, sorted[0]! * LONGEST_RATIO);
    const scale = (WIDTH - LABEL_WIDTH - VALUE_WIDTH) / longest;
    parts.push(`\n  <text class="group" x="10" y="${y + BAR_HEIGHT - BAR_GAP}">${escaped(scenario)}</text>`);
    for (const line of lines) {
      parts.push(bar(y, line.contender, microsOf(line), scale));
      y += BAR_HEIGHT + BAR_GAP;
    }
    y += GROUP_GAP - BAR_HEIGHT;
  }
  const height = y + FOOT_HEIGHT;
  const how = `median of ${rounds} rounds of ${seconds} s, in one run on`;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="CPU time a request">
  <style>${STYLE}
  </style>
  <text class="title" x="10" y="22">CPU time a request, all threads and processes; shorter is better</text>${parts.join('')}
  <text class="quiet" x="10" y="${height - 28}">${escaped(how)}</text>
  <text class="quiet" x="10" y="${height - 10}">${escaped(machine)}</text>
</svg>
`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const report = JSON.parse(readFileSync(process.argv[2]!, 'utf8')) as ChartReport;
  process.stdout.write(chartOf(report));
}
