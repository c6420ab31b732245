/**
 * What a setting costs a request: CPU time of one gateway, whose settings a reload changes between the runs
 * of a round.
 *
 *     node build/bench/load/live-settings.js [--seconds 3] [--rounds 5] [--connections 32] [--stream]
 *
 * All variants run once in each round, in turn, so that a slow moment of the machine hits all of them. The
 * ratio of a variant is the median of its rounds' ratios to the first variant; its spread is told with it.
 * CPU time is that of all threads of the gateway's processes, from /proc.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { selfSigned } from '../../test/fixtures/upstream-certificate.js';
import { startGateway, testSettings, TEST_MODEL } from '../../test/support/gateway.js';
import { startMockProcess, type Scope } from '../../test/support/mock.js';
import { machineLine } from '../support/machine.js';
import { inScope } from '../support/scope.js';
import { cpuMicros, processTree } from '../support/proc.js';
import { applyLoad } from './load.js';
import { spreadOf, spreadText } from './results.js';

interface Variant {
  readonly name: string;
  readonly settings: object;
  readonly scheme: 'http' | 'https';
}

/** Of text, which makes a body of some 550 bytes. */
const ANSWER_BYTES = 240;
const CHUNKS = 20;

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '3' },
    rounds: { type: 'string', default: '5' },
    connections: { type: 'string', default: '32' },
    stream: { type: 'boolean', default: false },
  },
});
const seconds = Number(values.seconds);

const file = { enabled: true, path: 'access.ndjson' };
const tls = { cert_file: 'cert.pem', key_file: 'key.pem' };
const VARIANTS: readonly Variant[] = [
  { name: 'as it comes', settings: {}, scheme: 'http' },
  { name: 'access log, to a file', settings: { access_log: file }, scheme: 'http' },
  { name: 'the same, 10 percent', settings: { access_log: { ...file, sample_percent: 10 } }, scheme: 'http' },
  { name: 'access log, to a pipe', settings: { access_log: { enabled: true } }, scheme: 'http' },
  { name: 'https', settings: { listen: { tls } }, scheme: 'https' },
];

async function measureAll(scope: Scope): Promise<void> {
  const mock = await startMockProcess(scope, ['--bytes', String(ANSWER_BYTES), '--chunks', String(CHUNKS)]);
  const gateway = await startGateway(scope, { config: testSettings(mock.url) });
  const certificate = selfSigned();
  writeFileSync(join(gateway.folder, 'cert.pem'), certificate?.certificate ?? '');
  writeFileSync(join(gateway.folder, 'key.pem'), certificate?.key ?? '');
  const { key } = await gateway.admin.customer({ credit: '1000000.00' });
  const body = JSON.stringify({
    model: TEST_MODEL,
    stream: values.stream,
    messages: [{ role: 'user', content: 'x'.repeat(200) }],
  });
  const pids = processTree(gateway.child.pid);

  const measure = async ({ settings, scheme }: Variant): Promise<number> => {
    const config = JSON.stringify(testSettings(mock.url, settings as Parameters<typeof testSettings>[1]));
    writeFileSync(join(gateway.folder, 'tollgate.yaml'), config);
    const reloaded = await gateway.admin.send('POST', '/admin/v1/reload', {});
    if (reloaded.status !== 200) throw new Error(reloaded.body);
    const load = {
      url: `${scheme}://127.0.0.1:${gateway.port}/v1/chat/completions`,
      method: 'POST' as const,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body,
      connections: Number(values.connections),
    };
    await applyLoad({ ...load, seconds: 1 });
    const before = cpuMicros(pids);
    const result = await applyLoad({ ...load, seconds });
    if (result.statuses.get(200) !== result.answers) throw new Error('not every answer was a 200');
    return (cpuMicros(pids) - before) / result.answers;
  };

  const variants = certificate === undefined ? VARIANTS.slice(0, -1) : VARIANTS;
  const taken = variants.map((): number[] => []);
  for (let round = 0; round < Number(values.rounds); round++)
    for (const [at, variant] of variants.entries()) taken[at]!.push(await measure(variant));
  for (const [at, { name }] of variants.entries()) {
    const ratios = spreadOf(taken[at]!.map((micros, round) => micros / taken[0]![round]!));
    const cpu = spreadOf(taken[at]!).median.toFixed(1).padStart(6);
    print(`${name.padEnd(24)} ${cpu} µs/request  × ${spreadText(ratios, 3, taken[at]!.length)}`);
  }
}

const print = (text: string): void => void process.stdout.write(`${text}\n`);

print(machineLine());
await inScope(measureAll);
