/**
 * What parts of the gateway, its settings and changes of its code cost a request: CPU time of gateways that
 * differ in them alone, in one run.
 *
 *     node build/bench/load/parts.js [--variant NAME …]
 *       [--scenario whole|large|stream|stream200|embeddings|401|429] [--upstream mock|canned]
 *         [--build NAME=FOLDER …] [--turns 10] [--connections 64] [--smoke]
 *
 * All gateways run at once, and all but one are idle: each is under load for a second, in turn and then the
 * other way round, so that a slow moment of the machine hits all of them. Told are, of the CPU time of a
 * call, median and quartiles of those slices, with the ratio of each to that of the first gateway in the same
 * turn; and, of windows of a quarter of a second, the lower quartile and the lowest tenth, which a busy
 * machine disturbs least.
 *
 * To compare doors and protocols, take `--upstream canned`: one process speaks them all and sends bytes
 * that were made before, so that each protocol's upstream is equally quick (parts/canned-upstream.ts). A
 * mock for each, the default, takes longer for a protocol whose requests have more rules, and a gateway
 * beside a slower upstream gets fewer calls a wake-up, which would count as the cost of the protocol. The
 * text of the responses is the same; around it each has what its API sends: of `whole` 553 bytes by chat,
 * 759 by Messages. `renamed` is a chat whose upstream has its own name of the model, as those of `messages`
 * and of the providers have.
 *
 * CPU time is that of all threads of the gateway's processes. Without --build all variants of this build run,
 * with it the builds as they come, unless variants are named; of several builds and variants each with each.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { startMockProcess, type Scope } from '../../test/support/mock.js';
import { machineLine } from '../support/machine.js';
import { startChild } from '../support/child.js';
import { inScope } from '../support/scope.js';
import { startMeasured, type MeasuredGateway } from './parts/measured-gateway.js';
import { AS_IT_COMES, SHAPES, VARIANTS, type Variant } from './parts/variants.js';

const FULL = { warmUpMs: 2_500, slice: { leadMs: 400, windowMs: 250, windows: 4, answersMin: 20 } };
const SMOKE = { warmUpMs: 100, slice: { leadMs: 50, windowMs: 500, windows: 1, answersMin: 1 } };
const THIS_BUILD = new URL('../../..', import.meta.url).pathname;

const { values } = parseArgs({
  options: {
    scenario: { type: 'string', default: 'whole' },
    variant: { type: 'string', multiple: true },
    build: { type: 'string', multiple: true },
    turns: { type: 'string', default: '10' },
    connections: { type: 'string', default: '64' },
    upstream: { type: 'string', default: 'mock' },
    smoke: { type: 'boolean', default: false },
  },
});
const upstream = known('upstream', ['mock', 'canned'], (name) => name, values.upstream);
const pace = values.smoke ? SMOKE : FULL;
const turns = values.smoke ? 1 : Number(values.turns);
const connections = values.smoke ? 8 : Number(values.connections);
const shape = known('scenario', Object.entries(SHAPES), ([name]) => name, values.scenario)[1];

const print = (text: string): void => void process.stdout.write(`${text}\n`);

function known<T>(option: string, all: readonly T[], nameOf: (one: T) => string, wanted: string): T {
  const found = all.find((one) => nameOf(one) === wanted);
  if (found === undefined) throw new Error(`--${option} wants ${all.map(nameOf).join(', ')}, got ${wanted}`);
  return found;
}

function buildsOf(
  texts: readonly string[] | undefined,
): { readonly name: string; readonly folder: string }[] {
  if (texts === undefined) return [{ name: '', folder: THIS_BUILD }];
  return texts.map((text) => {
    const [name = '', folder] = text.split('=');
    if (folder === undefined) throw new Error(`--build wants name=folder, got ${text}`);
    return { name, folder: resolve(folder) };
  });
}

/** Of builds and variants each with each, named by what there are several of. */
function gatewaysOf() {
  const builds = buildsOf(values.build);
  const variants =
    values.variant?.map((name) => known('variant', VARIANTS, (variant) => variant.name, name)) ??
    (values.build === undefined ? VARIANTS : [AS_IT_COMES]);
  return builds.flatMap(({ name, folder }) =>
    variants.map((variant) => ({
      name: [name, ...(name === '' || variants.length > 1 ? [variant.name] : [])].filter(Boolean).join(' '),
      folder,
      variant,
    })),
  );
}

/** Takes what comes. */
async function startCollector(scope: Scope): Promise<string> {
  const server = createServer((request, response) => {
    request.resume();
    request.once('end', () => response.end());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  scope.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

type UpstreamOf = (variant: Variant) => Promise<string>;

/** A mock for all that speak OpenAI's protocol, and one for each other gateway. */
async function startMocks(scope: Scope): Promise<UpstreamOf> {
  const { url: openaiUrl } = await startMockProcess(scope, shape.upstream);
  return async ({ provider }) => {
    if (provider === undefined) return openaiUrl;
    return (await startMockProcess(scope, ['--provider', provider, ...shape.upstream])).origin;
  };
}

/** One process for all protocols, which answers each alike. */
async function startCanned(scope: Scope): Promise<UpstreamOf> {
  const providers = [...new Set(gatewaysOf().map(({ variant }) => variant.provider ?? 'openai'))];
  const options = shape.upstream.join('=').replace(/=--/g, '&').replace(/^--/, '');
  const child = await startChild({
    name: 'canned upstream',
    args: [
      new URL('./parts/canned-upstream.js', import.meta.url).pathname,
      JSON.stringify({ providers, options }),
    ],
    ready: /\{"ports":.*\}\n/,
    readyTimeoutMs: 30_000,
  });
  scope.teardown(() => child.signal('SIGKILL'));
  const { ports } = JSON.parse(child.ready[0]) as { ports: readonly number[] };
  return ({ provider = 'openai' }) => {
    const origin = `http://127.0.0.1:${ports[providers.indexOf(provider)]}`;
    return Promise.resolve(provider === 'openai' ? `${origin}/v1` : origin);
  };
}

function quantile(taken: readonly number[], share: number): number {
  const sorted = [...taken].sort((a, b) => a - b);
  return sorted[Math.floor(share * (sorted.length - 1))] ?? Number.NaN;
}

/** `median (quartile–quartile)` */
function quartilesText(taken: readonly number[], digits: number): string {
  const [low, median, high] = [0.25, 0.5, 0.75].map((share) => quantile(taken, share).toFixed(digits));
  return `${median} (${low}–${high})`;
}

function printTable(gateways: readonly MeasuredGateway[]): void {
  const first = gateways[0]!;
  print(`| ${values.scenario} | CPU µs/request | ratio | lowest | ratio |`);
  print('| --- | --- | --- | --- | --- |');
  for (const { name, slices, windows } of gateways) {
    const ratios = slices.map((micros, turn) => micros / first.slices[turn]!);
    const low = [0.25, 0.1].map(
      (share) => [quantile(windows, share), quantile(first.windows, share)] as const,
    );
    const micros = low.map(([own]) => own.toFixed(1)).join(' \\| ');
    const windowRatios = low.map(([own, firsts]) => (own / firsts).toFixed(3)).join(' \\| ');
    print(
      `| ${name} | ${quartilesText(slices, 1)} | ${quartilesText(ratios, 3)} | ${micros} | ${windowRatios} |`,
    );
  }
}

async function measureAll(scope: Scope): Promise<void> {
  const upstreamOf = upstream === 'canned' ? await startCanned(scope) : await startMocks(scope);
  const collectorUrl = await startCollector(scope);
  const gateways: MeasuredGateway[] = [];
  for (const gateway of gatewaysOf()) {
    const upstreamUrl = await upstreamOf(gateway.variant);
    const measured = await startMeasured(scope, {
      ...gateway,
      shape,
      connections,
      upstreamUrl,
      collectorUrl,
    });
    await measured.warmUp(pace.warmUpMs);
    gateways.push(measured);
  }
  for (let turn = 0; turn < turns; turn++) {
    for (const gateway of turn % 2 === 0 ? gateways : [...gateways].reverse())
      await gateway.slice(pace.slice);
  }
  printTable(gateways);
}

print(machineLine());
await inScope(measureAll);
