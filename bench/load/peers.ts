/**
 * What a run of the bench says of gateways side by side, for docs/benchmarks.md and its picture:
 *
 *     node build/bench/load/peers.js report.json > bench/peers/measured.json && npm run docs
 *
 * `report.json` is what `npm run bench -- --json` has written, with the scenarios whole-small and stream-20.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { ContenderName } from './contenders/contender.js';
import type { Result } from './results.js';

const WHOLE = 'whole-small';
const STREAM = 'stream-20';

interface Peer {
  readonly name: string;
  readonly kind: 'own' | 'gateway' | 'floor';
  /** What it checks and counts. Markdown. */
  readonly on: string;
}

/** Contenders that stand for something outside of the bench; the others are its own measures. */
const PEERS: Partial<Readonly<Record<ContenderName, Peer>>> = {
  tollgate: { name: 'Tollgate', kind: 'own', on: 'keys, minute, day, money, usage, metrics, disk' },
  portkey: { name: 'Portkey', kind: 'gateway', on: 'nothing' },
  litellm: { name: 'LiteLLM', kind: 'gateway', on: 'master key, one worker, no database' },
  any: { name: 'the other', kind: 'gateway', on: 'what it was started with' },
  nginx: { name: 'nginx', kind: 'floor', on: 'nothing: `proxy_pass`' },
  haproxy: { name: 'HAProxy', kind: 'floor', on: 'nothing' },
};
/** Gateways from the cheapest to the dearest, then the floor. */
const KINDS = ['own', 'gateway', 'floor'] as const;

export interface PeersReport {
  readonly machine: string;
  readonly connections: number;
  readonly rounds: number;
  readonly seconds: number;
  readonly results: readonly Pick<Result, 'scenario' | 'contender' | 'figures'>[];
}

const rounded = (value: number, digits: number): number => Number(value.toFixed(digits));

/** As bench/peers/measured.json has it. `date` as 2026-11-23, `build` a commit. */
export function measuredOf(report: PeersReport, date: string, build: string): object {
  const figuresOf = (scenario: string, contender: ContenderName) =>
    report.results.find((result) => result.scenario === scenario && result.contender === contender)?.figures;
  const measured = (Object.entries(PEERS) as [ContenderName, Peer][]).flatMap(([contender, peer]) => {
    const whole = figuresOf(WHOLE, contender);
    if (whole === undefined) return [];
    const stream = figuresOf(STREAM, contender);
    const costOf = ({ cpuMicrosPerRequest: cpu, requestsPerSecond }: NonNullable<typeof whole>) => ({
      cpuMicros: rounded(cpu.median, 1),
      lowest: rounded(cpu.lowest, 1),
      highest: rounded(cpu.highest, 1),
      requestsPerSecond: Math.round(requestsPerSecond.median),
    });
    return [
      {
        ...peer,
        whole: { ...costOf(whole), p50Ms: whole.p50Ms.median, p99Ms: whole.p99Ms.median },
        stream: stream === undefined ? null : costOf(stream),
        mebibytes: Math.round(whole.peakBytes.median / 2 ** 20),
      },
    ];
  });
  const { machine, connections, rounds, seconds } = report;
  return {
    date,
    build,
    machine,
    load: `autocannon, ${connections} connections, ${rounds} rounds of ${seconds} s in turn, medians`,
    contenders: measured.sort(
      (a, b) => KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind) || a.whole.cpuMicros - b.whole.cpuMicros,
    ),
  };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const report = JSON.parse(readFileSync(process.argv[2]!, 'utf8')) as PeersReport;
  const build = execFileSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8' }).trim();
  const date = new Date().toISOString().slice(0, 10);
  process.stdout.write(`${JSON.stringify(measuredOf(report, date, build), null, 2)}\n`);
}
