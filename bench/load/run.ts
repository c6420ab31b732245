/**
 * `npm run bench:load`: requests a second and CPU time a request of the gateway, and of the upstream alone for comparison.
 *
 *     node build/bench/load/run.js [--seconds 8] [--rounds 5] [--connections 64] [--smoke]
 *
 * Closed-loop, so the figures are throughput; latencies are those under full load. Upstream, gateway and load generator are
 * separate processes. All scenarios run once in each round, so that a slow moment of the machine hits all of them; shown are
 * medians over the rounds, with the lowest and the highest. CPU time is user + system of all threads of the contender's
 * processes, from /proc, over the time of the load.
 */
import { parseArgs } from 'node:util';
import { request } from '../../test/support/http.js';
import type { Scope } from '../../test/support/mock.js';
import { chunksOf, isWholeText, textOf } from '../../test/support/sse.js';
import { machineLine } from '../support/machine.js';
import { cpuMicros } from '../support/proc.js';
import { applyLoad } from './load.js';
import { startScenarios, type Scenario } from './scenarios.js';

interface Sample {
  readonly requestsPerSecond: number;
  readonly cpuMicrosPerRequest: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

const PATH = '/v1/chat/completions';
const STREAM_CHUNKS = 20;
/** The compiler and the connection pools want some time before they are what they will be. */
const WARM_UP_SECONDS = 2;

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '8' },
    rounds: { type: 'string', default: '5' },
    connections: { type: 'string', default: '64' },
    smoke: { type: 'boolean', default: false },
  },
});
const seconds = values.smoke ? 1 : Number(values.seconds);
const rounds = values.smoke ? 1 : Number(values.rounds);
const connections = values.smoke ? 8 : Number(values.connections);

const line = (text: string): void => void process.stdout.write(`${text}\n`);

/** One request with a look at its answer, before anything is measured. */
async function checkCorrect({ contender, headers, body, status }: Scenario): Promise<void> {
  const ask = () => request({ port: contender.port, path: PATH, headers, body });
  let answer = await ask();
  // The first call of the limited key is admitted; it is the second that is refused.
  if (status === 429 && answer.status === 200) answer = await ask();
  if (answer.status !== status)
    throw new Error(`${contender.name} answered ${answer.status}: ${answer.body}`);
  if (answer.headers['content-type']?.startsWith('text/event-stream') !== true) return;
  if (!isWholeText(textOf(chunksOf(answer.body)), STREAM_CHUNKS))
    throw new Error(`not whole: ${answer.body}`);
}

async function measure(
  { name, contender, headers, body, status }: Scenario,
  forSeconds: number,
): Promise<Sample> {
  const url = `http://127.0.0.1:${contender.port}${PATH}`;
  const pids = contender.pids();
  const beforeMicros = cpuMicros(pids);
  const result = await applyLoad({ url, method: 'POST', headers, body, connections, seconds: forSeconds });
  const usedMicros = cpuMicros(pids) - beforeMicros;
  const expected = result.statuses.get(status) ?? 0;
  // A limited key is let in once a minute.
  const strays = result.answers - expected - (status === 429 ? (result.statuses.get(200) ?? 0) : 0);
  if (strays > 0 || result.failures > 0 || expected === 0) {
    const seen = JSON.stringify(Object.fromEntries(result.statuses));
    throw new Error(`${contender.name}, ${name}: wanted ${status}, got ${seen}, ${result.failures} failures`);
  }
  return {
    requestsPerSecond: result.answers / result.seconds,
    cpuMicrosPerRequest: usedMicros / result.answers,
    p50Ms: result.p50Ms,
    p99Ms: result.p99Ms,
  };
}

function spread(samples: readonly Sample[], figure: keyof Sample, digits: number): string {
  const sorted = samples.map((sample) => sample[figure]).sort((a, b) => a - b);
  const show = (value: number): string => value.toFixed(digits);
  const median = show(sorted[Math.floor(sorted.length / 2)]!);
  return sorted.length === 1 ? median : `${median} (${show(sorted[0]!)}–${show(sorted.at(-1)!)})`;
}

function table(scenarios: readonly Scenario[], samples: ReadonlyMap<Scenario, readonly Sample[]>): string[] {
  const rows = [['scenario', 'contender', 'requests/s', 'CPU µs/request', 'p50 ms', 'p99 ms']];
  for (const scenario of scenarios) {
    const taken = samples.get(scenario)!;
    rows.push([
      scenario.name,
      scenario.contender.name,
      spread(taken, 'requestsPerSecond', 0),
      spread(taken, 'cpuMicrosPerRequest', 1),
      spread(taken, 'p50Ms', 0),
      spread(taken, 'p99Ms', 0),
    ]);
  }
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  return rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column]!))
      .join('  ')
      .trimEnd(),
  );
}

const ending: (() => unknown)[] = [];
const scope: Scope = { teardown: (after) => ending.unshift(after) };
try {
  line(machineLine());
  line(
    `${connections} connections, closed-loop, ${rounds} round(s) of ${seconds} s, median (lowest–highest)`,
  );
  const scenarios = await startScenarios(scope);
  for (const scenario of scenarios) await checkCorrect(scenario);
  if (!values.smoke) for (const scenario of scenarios) await measure(scenario, WARM_UP_SECONDS);
  const samples = new Map<Scenario, Sample[]>(scenarios.map((scenario) => [scenario, []]));
  for (let round = 0; round < rounds; round += 1) {
    for (const scenario of scenarios) samples.get(scenario)!.push(await measure(scenario, seconds));
  }
  line('');
  for (const row of table(scenarios, samples)) line(row);
} finally {
  for (const end of ending) await end();
}
