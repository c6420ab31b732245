/**
 * What a change of the gateway's code costs or saves a request: CPU time of builds in folders of their own, in one run.
 *
 *     node build/bench/load/builds.js --build before=../before --build after=. [--seconds 3] [--rounds 5] [--connections 32]
 *         [--scenario whole|large|stream]
 *
 * Each build runs once in each round, in turn, and every second round the other way round, so that a slow moment of the machine hits
 * all of them. The ratio of a build is the median of its rounds' ratios to the first one, with the lowest and the highest.
 */
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { startGateway, testSettings, TEST_MODEL } from '../../test/support/gateway.js';
import { startMock, type Scope } from '../../test/support/mock.js';
import { machineLine } from '../support/machine.js';
import { cpuMicros, processTree } from '../support/proc.js';
import { applyLoad } from './load.js';
import { spreadOf, spreadText } from './results.js';

interface Shape {
  readonly promptChars: number;
  readonly stream: boolean;
  readonly upstream: readonly string[];
}

/** As the scenarios whole-small, whole-large and stream-20 of the bench. */
const SHAPES: Readonly<Record<string, Shape>> = {
  whole: { promptChars: 200, stream: false, upstream: ['--bytes', '240', '--chunks', '20'] },
  large: { promptChars: 16_384, stream: false, upstream: ['--bytes', '3800', '--chunks', '20'] },
  stream: { promptChars: 200, stream: true, upstream: ['--bytes', '240', '--chunks', '20'] },
};
const WARM_UP_SECONDS = 2;

const { values } = parseArgs({
  options: {
    build: { type: 'string', multiple: true, default: [] },
    seconds: { type: 'string', default: '3' },
    rounds: { type: 'string', default: '5' },
    connections: { type: 'string', default: '32' },
    scenario: { type: 'string', default: 'whole' },
  },
});
const shape = SHAPES[values.scenario];
if (shape === undefined)
  throw new Error(`--scenario wants ${Object.keys(SHAPES).join(', ')}, got ${values.scenario}`);
const builds = values.build.map((text) => {
  const [name = '', folder] = text.split('=');
  if (folder === undefined) throw new Error(`--build wants name=folder, got ${text}`);
  return { name, folder };
});
if (builds.length < 2) throw new Error('at least two --build name=folder are wanted');

const print = (text: string): void => void process.stdout.write(`${text}\n`);

async function startBuild(scope: Scope, upstreamUrl: string, { name, folder }: (typeof builds)[number]) {
  const main = resolve(folder, 'dist/cli/main.js');
  const gateway = await startGateway(scope, { config: testSettings(upstreamUrl), main });
  const { key } = await gateway.admin.customer({ credit: '1000000.00' });
  const pids = processTree(gateway.child.pid);
  const load = {
    url: `http://127.0.0.1:${gateway.port}/v1/chat/completions`,
    method: 'POST' as const,
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      model: TEST_MODEL,
      stream: shape!.stream,
      messages: [{ role: 'user', content: 'x'.repeat(shape!.promptChars) }],
    }),
    connections: Number(values.connections),
  };
  await applyLoad({ ...load, seconds: WARM_UP_SECONDS });
  const measure = async (): Promise<number> => {
    const before = cpuMicros(pids);
    const result = await applyLoad({ ...load, seconds: Number(values.seconds) });
    if (result.statuses.get(200) !== result.answers) throw new Error('not every answer was a 200');
    return (cpuMicros(pids) - before) / result.answers;
  };
  return { name, measure, taken: [] as number[] };
}

async function measureAll(scope: Scope): Promise<void> {
  const mock = await startMock(scope, shape!.upstream);
  const started: Awaited<ReturnType<typeof startBuild>>[] = [];
  for (const build of builds) started.push(await startBuild(scope, mock.url, build));
  for (let round = 0; round < Number(values.rounds); round++) {
    const turn = round % 2 === 0 ? started : [...started].reverse();
    for (const { measure, taken } of turn) taken.push(await measure());
  }
  print(`| ${values.scenario} | CPU µs/request | ratio |\n| --- | --- | --- |`);
  for (const { name, taken } of started) {
    const ratios = spreadOf(taken.map((micros, round) => micros / started[0]!.taken[round]!));
    const cpu = spreadOf(taken).median.toFixed(1);
    print(`| ${name} | ${cpu} | ${spreadText(ratios, 3, taken.length)} |`);
  }
}

const ends: (() => unknown)[] = [];
print(machineLine());
try {
  await measureAll({ teardown: (after) => ends.push(after) });
} finally {
  for (const end of ends.reverse()) await end();
}
