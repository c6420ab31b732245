/**
 * What sharing costs a request: CPU time of one gateway process, of two on one port, of one that has as many
 * threads as the two and shares nothing, and of one that leases from a Valkey or Redis, in interleaved
 * rounds. Needs `redis-server`, or `--url` of a server.
 *
 *     node build/bench/sharing/cpu.js [--rounds 7] [--seconds 3] [--connections 32] [--url redis://…] [--json FILE]
 *
 * Each runs once in each round, in turn, and every second round the other way round, so that a slow moment of
 * the machine hits all of them. A ratio is the median of the rounds' ratios to one process alone, with the
 * lowest and the highest. The CPU time of the server is not in it.
 */
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { eventually, startGateway, testSettings } from '../../test/support/gateway.js';
import { startMockProcess, type Mock, type Scope } from '../../test/support/mock.js';
import { startRedis } from '../../test/support/redis-server.js';
import { applyLoad } from '../load/load.js';
import { spreadOf, type Spread } from '../load/results.js';
import { WHOLE } from '../load/scenarios/whole.js';
import { machineLine } from '../support/machine.js';
import { inScope } from '../support/scope.js';
import { cpuMicros, processTree } from '../support/proc.js';

/** Each of two processes compiles its code for itself, with half of the calls. */
const WARM_UP_SECONDS = 8;
const READY_MS_MAX = 90_000;

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '7' },
    seconds: { type: 'string', default: '3' },
    connections: { type: 'string', default: '32' },
    url: { type: 'string' },
    json: { type: 'string' },
  },
});

interface Contender {
  readonly name: string;
  readonly port: number;
  readonly key: string;
  readonly pids: readonly number[];
  readonly taken: number[];
}

async function start(scope: Scope, mock: Mock, name: string, settings: object): Promise<Contender> {
  const processes = (settings as { processes?: number }).processes ?? 1;
  const gateway = await startGateway(scope, { config: testSettings(mock.url, { ...settings }) });
  const allReady = async (): Promise<true | undefined> => {
    const status = (await gateway.admin.send('GET', '/admin/v1/status')).json();
    const { processes: all } = status as { processes: readonly { readonly ready: boolean }[] };
    return all.filter(({ ready }) => ready).length === processes ? true : undefined;
  };
  await eventually('all processes', allReady, READY_MS_MAX);
  const { key } = await gateway.admin.customer({ credit: '1000000.00' });
  return { name, port: gateway.port, key, pids: processTree(gateway.child.pid), taken: [] };
}

/** CPU µs of a request. */
async function measure({ port, key, pids }: Contender, seconds: number): Promise<number> {
  const beforeMicros = cpuMicros(pids);
  const { answers, statuses } = await applyLoad({
    url: `http://127.0.0.1:${port}/v1/chat/completions`,
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: WHOLE[0]!.body,
    connections: Number(values.connections),
    seconds,
  });
  if (statuses.get(200) !== answers) throw new Error('not every answer was a 200');
  return (cpuMicros(pids) - beforeMicros) / answers;
}

const text = ({ median, lowest, highest }: Spread, digits: number): string =>
  `${median.toFixed(digits)} (${lowest.toFixed(digits)}–${highest.toFixed(digits)})`;

async function measureAll(scope: Scope): Promise<void> {
  const mock = await startMockProcess(scope);
  const url = values.url ?? (await startRedis(scope)).url;
  const all = [
    await start(scope, mock, 'one process', {}),
    await start(scope, mock, 'two processes', { processes: 2 }),
    await start(scope, mock, 'one process, threads of two', { listen: { listeners: 2 }, workers: 2 }),
    await start(scope, mock, 'one process with Valkey', { sharing: { url } }),
  ];
  for (const one of all) await measure(one, WARM_UP_SECONDS);
  for (let round = 0; round < Number(values.rounds); round++)
    for (const one of round % 2 === 0 ? all : [...all].reverse())
      one.taken.push(await measure(one, Number(values.seconds)));
  const results = all.map(({ name, taken }) => ({
    name,
    cpuMicrosPerRequest: spreadOf(taken),
    ratio: spreadOf(taken.map((micros, round) => micros / all[0]!.taken[round]!)),
    taken,
  }));
  process.stdout.write('| gateway | CPU µs/request | ratio |\n| --- | --- | --- |\n');
  for (const { name, cpuMicrosPerRequest, ratio } of results)
    process.stdout.write(`| ${name} | ${text(cpuMicrosPerRequest, 1)} | ${text(ratio, 3)} |\n`);
  if (values.json !== undefined)
    writeFileSync(values.json, JSON.stringify({ machine: machineLine(), results }));
}

process.stdout.write(`${machineLine()}\n`);
await inScope(measureAll);
