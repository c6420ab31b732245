/**
 * What traces and the access log cost a request: CPU time of gateways that differ in them alone, in one run.
 *
 *     node build/bench/load/tracing.js [--seconds 3] [--rounds 5] [--connections 32] [--stream] [--base FOLDER]
 *
 * All variants run once in each round, in turn, so that a slow moment of the machine hits all of them. The ratio of a variant is the
 * median of its rounds' ratios to the first one; its spread is told with it. CPU time is that of all threads of the gateway's
 * processes, the exporting thread's too, from /proc; the collector takes what comes and is not counted. `--base` is the folder of
 * another build of Tollgate, which is then measured as well, as it comes.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { startGateway, testSettings, TEST_MODEL } from '../../test/support/gateway.js';
import { scrape } from '../../test/support/metrics.js';
import { startMock, type Scope } from '../../test/support/mock.js';
import { machineLine } from '../support/machine.js';
import { cpuMicros, processTree } from '../support/proc.js';
import { applyLoad } from './load.js';
import { spreadOf, spreadText } from './results.js';

interface Variant {
  readonly name: string;
  readonly settings?: object;
  readonly env?: Readonly<Record<string, string>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly main?: string;
}

/** Of text, which makes a body of some 550 bytes. */
const ANSWER_BYTES = 240;
const CHUNKS = 20;
const TRACEPARENT = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '3' },
    rounds: { type: 'string', default: '5' },
    connections: { type: 'string', default: '32' },
    stream: { type: 'boolean', default: false },
    base: { type: 'string' },
  },
});
const seconds = Number(values.seconds);

const print = (text: string): void => void process.stdout.write(`${text}\n`);

function variantsOf(collectorUrl: string): readonly Variant[] {
  const access = { access_log: { enabled: true, path: 'access.ndjson' } };
  const on = { OTEL_EXPORTER_OTLP_ENDPOINT: collectorUrl };
  const tenth = { ...on, OTEL_TRACES_SAMPLER: 'parentbased_traceidratio', OTEL_TRACES_SAMPLER_ARG: '0.1' };
  return [
    { name: 'as it comes' },
    ...(values.base === undefined ? [] : [{ name: 'base', main: join(values.base, 'dist/cli/main.js') }]),
    { name: "no exporter, caller's traceparent", headers: { traceparent: TRACEPARENT } },
    { name: 'traces, 10 percent', env: tenth },
    { name: 'traces, all', env: on },
    { name: 'access log, to a file', settings: access },
    { name: 'traces, all, and access log', settings: access, env: on },
  ];
}

async function startCollector(scope: Scope): Promise<string> {
  const server = createServer((request, response) => {
    request.resume();
    request.once('end', () => response.end('{}'));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  scope.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function startVariant(scope: Scope, upstreamUrl: string, variant: Variant) {
  const { settings = {}, env = {}, main } = variant;
  const config = testSettings(upstreamUrl, settings as Parameters<typeof testSettings>[1]);
  const gateway = await startGateway(scope, { config, env, main });
  const { key } = await gateway.admin.customer({ credit: '1000000.00' });
  const pids = processTree(gateway.child.pid);
  const load = {
    url: `http://127.0.0.1:${gateway.port}/v1/chat/completions`,
    method: 'POST' as const,
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...variant.headers },
    body: JSON.stringify({
      model: TEST_MODEL,
      stream: values.stream,
      messages: [{ role: 'user', content: 'x'.repeat(200) }],
    }),
    connections: Number(values.connections),
  };
  await applyLoad({ ...load, seconds: 2 });
  const measure = async (): Promise<number> => {
    const before = cpuMicros(pids);
    const result = await applyLoad({ ...load, seconds });
    if (result.statuses.get(200) !== result.answers) throw new Error('not every answer was a 200');
    return (cpuMicros(pids) - before) / result.answers;
  };
  const spans = async (): Promise<string> =>
    (await scrape(gateway.admin.port)).samples
      .filter(({ name }) => name === 'tollgate_spans_total')
      .map(({ labels, value }) => `${value} ${labels.state}`)
      .join(', ');
  return { name: variant.name, measure, spans, taken: [] as number[] };
}

async function measureAll(scope: Scope): Promise<void> {
  const mock = await startMock(scope, ['--bytes', String(ANSWER_BYTES), '--chunks', String(CHUNKS)]);
  const started: Awaited<ReturnType<typeof startVariant>>[] = [];
  for (const variant of variantsOf(await startCollector(scope)))
    started.push(await startVariant(scope, mock.url, variant));
  for (let round = 0; round < Number(values.rounds); round++)
    for (const { measure, taken } of started) taken.push(await measure());
  print('| gateway | CPU µs/request | ratio | spans |\n| --- | --- | --- | --- |');
  for (const { name, taken, spans } of started) {
    const ratios = spreadOf(taken.map((micros, round) => micros / started[0]!.taken[round]!));
    const cpu = spreadOf(taken).median.toFixed(1);
    print(`| ${name} | ${cpu} | ${spreadText(ratios, 3, taken.length)} | ${await spans()} |`);
  }
}

const ends: (() => unknown)[] = [];
print(machineLine());
try {
  await measureAll({ teardown: (after) => ends.push(after) });
} finally {
  for (const end of ends.reverse()) await end();
}
