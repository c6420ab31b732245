/**
 * What a run of the bench says of gateways side by side, for docs/benchmarks.md and its pictures. It is one
 * entry of the list in bench/peers/measured.json:
 *
 *     node build/bench/load/peers.js report.json > run.json
 *
 * `report.json` is what `npm run bench -- --json` has written, with the scenarios whole-small and
 * stream-20, and rate-50, rate-500, rate-2000 and first-token for what a gateway adds to the time of a
 * call.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { AddedLatency, PeersMeasurement } from './chart.js';
import type { ContenderName } from './contenders/contender.js';
import type { Latency } from './latency.js';
import type { Result } from './results.js';

const WHOLE = 'whole-small';
const STREAM = 'stream-20';

interface Peer {
  readonly name: string;
  readonly kind: AddedLatency['kind'];
  /** Whether it held limits of its callers; undefined of the floor. */
  readonly limits?: boolean;
  /** What it checks and counts. Markdown. */
  readonly on: string;
}

/** Contenders that stand for something outside of the bench; the others are its own measures. */
const PEERS: Partial<Readonly<Record<ContenderName, Peer>>> = {
  tollgate: {
    name: 'Tollgate',
    kind: 'own',
    limits: true,
    on: 'keys, minute, day, money, usage, metrics, disk',
  },
  portkey: { name: 'Portkey', kind: 'gateway', limits: false, on: 'nothing' },
  litellm: { name: 'LiteLLM', kind: 'gateway', limits: false, on: 'master key, one worker, no database' },
  'litellm-limits': {
    name: 'LiteLLM, limits on',
    kind: 'gateway',
    limits: true,
    on: 'master key, requests and tokens per minute of the model, one worker, no database',
  },
  'litellm-rs': { name: 'litellm-rs', kind: 'gateway', limits: false, on: 'nothing' },
  'litellm-rs-limits': {
    name: 'litellm-rs, limits on',
    kind: 'gateway',
    limits: true,
    on: 'keys in SQLite, requests per minute',
  },
  any: { name: 'the other', kind: 'gateway', limits: false, on: 'what it was started with' },
  nginx: { name: 'nginx', kind: 'floor', on: 'nothing: `proxy_pass`' },
  haproxy: { name: 'HAProxy', kind: 'floor', on: 'nothing' },
};
/** Gateways from the cheapest to the dearest, then the floor. */
const KINDS = ['own', 'gateway', 'floor'] as const;
/** What is told of the time of a call. */
const TITLES: Readonly<Record<string, string>> = {
  'rate-50': 'a whole call, 50 a second',
  'rate-500': 'a whole call, 500 a second',
  'rate-2000': 'a whole call, 2,000 a second',
  'first-token': 'the first text of a stream, 300 a second',
};

export interface PeersReport {
  readonly machine: string;
  readonly connections: number;
  readonly rounds: number;
  readonly seconds: number;
  readonly results: readonly Pick<Result, 'scenario' | 'contender' | 'figures'>[];
  readonly latencies: readonly Latency[];
}

const rounded = (value: number, digits: number): number => Number(value.toFixed(digits));

/** Added latency of the peers, scenario by scenario, from the least p50 to the most. */
function latenciesOf(latencies: readonly Latency[]): AddedLatency[] {
  return Object.entries(TITLES).flatMap(([scenario, title]) =>
    latencies
      .filter((latency) => latency.scenario === scenario)
      .flatMap(({ contender, addedP50Micros, addedP99Micros }) => {
        const peer = PEERS[contender as ContenderName];
        if (peer === undefined) return [];
        const [p50Micros, p99Micros] = [addedP50Micros, addedP99Micros].map(({ median }) =>
          rounded(median, 0),
        );
        const { name, kind } = peer;
        return [{ scenario, title, name, kind, p50Micros: p50Micros!, p99Micros: p99Micros! }];
      })
      .sort((a, b) => a.p50Micros - b.p50Micros),
  );
}

/** An entry of the list in bench/peers/measured.json, as far as its readers in TypeScript use it. */
export interface PeersRun extends PeersMeasurement {
  readonly machine: string;
  readonly load: string;
  readonly latencies: readonly AddedLatency[];
}

/** An entry of bench/peers/measured.json. `date` as 2026-11-23, `build` a commit. */
export function measuredOf(report: PeersReport, date: string, build: string): PeersRun {
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
  const { machine, connections, rounds, seconds, latencies } = report;
  return {
    date,
    build,
    machine,
    load: `autocannon, ${connections} connections (Portkey and LiteLLM 16), ${rounds} rounds of ${seconds} s in turn, medians`,
    contenders: measured.sort(
      (a, b) => KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind) || a.whole.cpuMicros - b.whole.cpuMicros,
    ),
    latencies: latenciesOf(latencies),
  };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const report = JSON.parse(readFileSync(process.argv[2]!, 'utf8')) as PeersReport;
  const build = execFileSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8' }).trim();
  const date = new Date().toISOString().slice(0, 10);
  process.stdout.write(`${JSON.stringify(measuredOf(report, date, build), null, 2)}\n`);
}
