/**
 * What the call log costs a call: CPU time of a gateway whose call log a reload turns on and off, over and
 * over, while it is under load. Two gateways of the same build differ by more than what is looked for here;
 * one with itself does not.
 *
 *     node build/bench/load/call-log.js [--scenario whole|stream] [--pairs 40] [--connections 64]
 *       [--build NAME=FOLDER …]
 *
 * Told are the median of the pairs' ratios of on to off, and how sure it is: the range of the middle half of
 * 2,000 medians of pairs drawn anew (bootstrap). A slice is a second, since calls are written once a second.
 * CPU time is that of all threads of the gateway's processes. With several builds they take turns.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { startGateway, testSettings, TEST_MODEL, type Gateway } from '../../test/support/gateway.js';
import { startMockProcess, type Scope } from '../../test/support/mock.js';
import { randomBelow } from '../../test/support/random.js';
import { machineLine } from '../support/machine.js';
import { processTree, threadsCpuNanos } from '../support/proc.js';
import { inScope } from '../support/scope.js';
import { ClosedLoop } from './parts/closed-loop.js';
import { SHAPES } from './parts/variants.js';

const THIS_BUILD = new URL('../../..', import.meta.url).pathname;
const WARM_UP_MS = 5_000;
const LEAD_MS = 200;
const SLICE_MS = 1_000;
const DRAWS = 2_000;

const { values } = parseArgs({
  options: {
    scenario: { type: 'string', default: 'whole' },
    pairs: { type: 'string', default: '40' },
    connections: { type: 'string', default: '64' },
    build: { type: 'string', multiple: true, default: [`this build=${THIS_BUILD}`] },
    smoke: { type: 'boolean', default: false },
  },
});
const shape = values.scenario === 'stream' ? SHAPES.stream : SHAPES.whole;
const pairs = values.smoke ? 2 : Number(values.pairs);

interface Measured {
  readonly name: string;
  readonly gateway: Gateway;
  readonly load: ClosedLoop;
  readonly ratios: number[];
  readonly micros: { readonly on: number[]; readonly off: number[] };
}

async function started(scope: Scope, build: string, upstreamUrl: string): Promise<Measured> {
  const [name = '', folder = ''] = build.split('=');
  const gateway = await startGateway(scope, {
    config: testSettings(upstreamUrl),
    main: join(folder, 'dist/cli/main.js'),
  });
  const { key } = await gateway.admin.customer({ credit: '1000000.00' });
  const body = JSON.stringify({
    model: TEST_MODEL,
    stream: shape.stream,
    messages: [{ role: 'user', content: 'x'.repeat(shape.promptChars) }],
  });
  const request =
    `POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer ${key}\r\n` +
    `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
  const load = new ClosedLoop(gateway.port, request, Number(values.connections), 200);
  return { name, gateway, load, ratios: [], micros: { on: [], off: [] } };
}

/** CPU microseconds a call with the call log so. */
async function slice({ gateway, load }: Measured, upstreamUrl: string, enabled: boolean): Promise<number> {
  const config = JSON.stringify(testSettings(upstreamUrl, { call_log: { enabled } }));
  writeFileSync(join(gateway.folder, 'tollgate.yaml'), config);
  const reloaded = await gateway.admin.send('POST', '/admin/v1/reload', {});
  if (reloaded.status !== 200) throw new Error(reloaded.body);
  await sleep(LEAD_MS);
  const pids = processTree(gateway.child.pid);
  const before = { nanos: threadsCpuNanos(pids), answers: load.answers };
  await sleep(SLICE_MS);
  return (threadsCpuNanos(pids) - before.nanos) / 1_000 / (load.answers - before.answers);
}

async function measurePair(measured: Measured, upstreamUrl: string, onFirst: boolean): Promise<void> {
  const { load, ratios, micros } = measured;
  load.start();
  await sleep(LEAD_MS);
  const first = await slice(measured, upstreamUrl, onFirst);
  const second = await slice(measured, upstreamUrl, !onFirst);
  await load.stop();
  const [on, off] = onFirst ? [first, second] : [second, first];
  micros.on.push(on);
  micros.off.push(off);
  ratios.push(on / off);
}

function medianOf(numbers: readonly number[]): number {
  return [...numbers].sort((left, right) => left - right)[numbers.length >> 1]!;
}

function rangeOf(numbers: readonly number[]): [number, number] {
  const below = randomBelow(1);
  const medians = Array.from({ length: DRAWS }, () =>
    medianOf(numbers.map(() => numbers[below(numbers.length)]!)),
  );
  medians.sort((left, right) => left - right);
  return [medians[DRAWS >> 2]!, medians[(3 * DRAWS) >> 2]!];
}

async function measureAll(scope: Scope): Promise<void> {
  const { url } = await startMockProcess(scope, shape.upstream);
  const all: Measured[] = [];
  for (const build of values.build) {
    const measured = await started(scope, build, url);
    measured.load.start();
    await sleep(values.smoke ? LEAD_MS : WARM_UP_MS);
    await measured.load.stop();
    all.push(measured);
  }
  for (let pair = 0; pair < pairs; pair++)
    for (const measured of all) await measurePair(measured, url, pair % 2 === 0);
  for (const { name, ratios, micros } of all) {
    const [low, high] = rangeOf(ratios);
    const [on, off] = [micros.on, micros.off].map((taken) => medianOf(taken).toFixed(1));
    process.stdout.write(
      `${name}: ${on} µs a call, ${off} without, × ${medianOf(ratios).toFixed(3)} (${low.toFixed(3)}–${high.toFixed(3)}), ${ratios.length} pairs\n`,
    );
  }
}

process.stdout.write(`${machineLine()}\n`);
await inScope(measureAll);
