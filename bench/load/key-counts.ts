/**
 * What many keys cost a request: gateways with more and more of them, whose calls go round a sample of keys
 * at a fixed rate.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { AdminClient } from '../../test/support/admin-client.js';
import { startGateway, temporaryFolder, testSettings } from '../../test/support/gateway.js';
import { startMockProcess, type Scope } from '../../test/support/mock.js';
import { cpuMicros, processTree, rssBytes } from '../support/proc.js';
import { CHAT_PATH, JSON_HEADERS } from './contenders/contender.js';
import { applyPacedLoad } from './paced/paced-load.js';
import { spreadOf, type Spread } from './results.js';
import { WHOLE } from './scenarios/whole.js';

export const FULL_KEY_COUNTS: readonly number[] = [1_000, 100_000, 1_000_000];
export const SMOKE_KEY_COUNTS: readonly number[] = [1_000];

const KEYS_PER_ACCOUNT = 10;
/** Of one request of the admin interface. */
const ACCOUNTS_PER_REQUEST = 500;
/** More than a cache of the machine holds of them. */
const SAMPLE_MAX = 50_000;
const RATE_PER_SECOND = 3_000;
const CONNECTIONS_MAX = 128;
/** Of the ledger and the key table: as much again. */
const ROOM = 2;
const WARM_UP_SECONDS = 5;

/** One line of the table. */
export interface KeyCount {
  readonly keys: number;
  readonly cpuMicrosPerRequest: Spread;
  /** Over that with the fewest keys in the same round. */
  readonly cpuRatio: Spread;
  readonly p99Micros: Spread;
  /** Of all processes, after the last round. */
  readonly residentBytes: number;
}

interface Running {
  readonly keys: number;
  readonly port: number;
  readonly pids: readonly number[];
  readonly keysFile: string;
  readonly cpu: number[];
  readonly p99: number[];
}

async function createKeys(admin: AdminClient, count: number): Promise<string[]> {
  const sample: string[] = [];
  const every = Math.max(1, Math.floor(count / SAMPLE_MAX));
  for (let made = 0; made < count; made += ACCOUNTS_PER_REQUEST * KEYS_PER_ACCOUNT) {
    const accounts = Math.min(ACCOUNTS_PER_REQUEST, Math.ceil((count - made) / KEYS_PER_ACCOUNT));
    const answer = await admin.send('POST', '/admin/v1/bulk', {
      accounts: Array.from({ length: accounts }, (_, at) => ({
        name: `customer-${made + at}`,
        plan: 'ample',
        credit: '1000.00',
        keys: Array.from({ length: KEYS_PER_ACCOUNT }, (_key, key) => ({ name: `key-${key}` })),
      })),
    });
    if (answer.status !== 200)
      throw new Error(`bulk answered ${answer.status}: ${answer.body.slice(0, 500)}`);
    const { data } = answer.json() as { data: { keys: { key: string }[] }[] };
    const keys = data.flatMap((one) => one.keys.map(({ key }) => key));
    sample.push(...keys.filter((_, at) => (made + at) % every === 0));
  }
  return sample;
}

async function start(scope: Scope, upstream: string, keys: number): Promise<Running> {
  const limits = { accounts: (keys / KEYS_PER_ACCOUNT) * ROOM, keys: keys * ROOM };
  const gateway = await startGateway(scope, { config: testSettings(upstream, { limits }) });
  const keysFile = join(temporaryFolder(scope), 'keys');
  writeFileSync(keysFile, (await createKeys(gateway.admin, keys)).join('\n'));
  return { keys, port: gateway.port, pids: processTree(gateway.child.pid), keysFile, cpu: [], p99: [] };
}

async function measure({ port, pids, keysFile, cpu, p99 }: Running, seconds: number): Promise<void> {
  const beforeMicros = cpuMicros(pids);
  const report = await applyPacedLoad({
    port,
    path: CHAT_PATH,
    headers: JSON_HEADERS,
    body: WHOLE[0]!.body,
    keysFile,
    ratePerSecond: RATE_PER_SECOND,
    seconds,
    connectionsMax: CONNECTIONS_MAX,
  });
  cpu.push((cpuMicros(pids) - beforeMicros) / report.answers);
  p99.push(report.wholeMicros.p99);
}

/** Starts a gateway for each count; a million keys are made in about a minute. */
export async function measureKeyCounts(
  scope: Scope,
  counts: readonly number[],
  { rounds, seconds }: { readonly rounds: number; readonly seconds: number },
): Promise<KeyCount[]> {
  const mock = await startMockProcess(scope);
  const running: Running[] = [];
  for (const keys of counts) running.push(await start(scope, mock.url, keys));
  if (rounds > 1) {
    for (const one of running) await measure(one, WARM_UP_SECONDS);
    for (const { cpu, p99 } of running) cpu.length = p99.length = 0;
  }
  for (let round = 0; round < rounds; round++) for (const one of running) await measure(one, seconds);
  return running.map(({ keys, pids, cpu, p99 }) => ({
    keys,
    cpuMicrosPerRequest: spreadOf(cpu),
    cpuRatio: spreadOf(cpu.map((micros, round) => micros / running[0]!.cpu[round]!)),
    p99Micros: spreadOf(p99),
    residentBytes: pids.reduce((sum, pid) => sum + rssBytes(pid), 0),
  }));
}
