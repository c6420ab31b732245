/**
 * How often a gateway asks the Valkey or Redis that it shares: scripts run there for 1,000 requests, by the
 * rate of requests and by how many accounts they go round. An open loop at a real gateway and a real server;
 * needs `redis-server`.
 *
 *     node build/bench/sharing/round-trips.js [--rate 100 …] [--accounts 1 …] [--seconds 10] [--json FILE]
 *
 * Where the machine is too slow for a rate, the one that it reached is told: the table is about requests, not
 * about time.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { startGateway, temporaryFolder, testSettings, type Gateway } from '../../test/support/gateway.js';
import { startMockProcess, type Scope } from '../../test/support/mock.js';
import { startRedis, type RedisServer } from '../../test/support/redis-server.js';
import { CHAT_PATH, JSON_HEADERS } from '../load/contenders/contender.js';
import type { PacedReport } from '../load/paced/messages.js';
import { applyPacedLoad } from '../load/paced/paced-load.js';
import { WHOLE } from '../load/scenarios/whole.js';
import { machineLine } from '../support/machine.js';
import { inScope } from '../support/scope.js';

const WARM_UP_SECONDS = 3;
const CONNECTIONS_MAX = 256;
/** Of one request of the admin interface. */
const ACCOUNTS_PER_REQUEST = 500;

const { values } = parseArgs({
  options: {
    rate: { type: 'string', multiple: true, default: ['100', '1000', '10000'] },
    accounts: { type: 'string', multiple: true, default: ['1', '100', '10000'] },
    seconds: { type: 'string', default: '10' },
    json: { type: 'string' },
  },
});

interface Cell {
  readonly accounts: number;
  readonly wantedPerSecond: number;
  /** Both undefined where the machine came nowhere near. */
  readonly reachedPerSecond?: number;
  readonly roundTripsPer1000?: number;
}

async function createKeys({ admin }: Gateway, scope: Scope, count: number): Promise<string> {
  const keys: string[] = [];
  for (let made = 0; made < count; made += ACCOUNTS_PER_REQUEST) {
    const accounts = Array.from({ length: Math.min(ACCOUNTS_PER_REQUEST, count - made) }, (_, at) => ({
      name: `of-${count}-${made + at}`,
      plan: 'ample',
      credit: '1000.00',
      keys: [{ name: 'bench' }],
    }));
    const answer = await admin.send('POST', '/admin/v1/bulk', { accounts });
    if (answer.status !== 200) throw new Error(`bulk: ${answer.status} ${answer.body.slice(0, 500)}`);
    const { data } = answer.json() as { data: { keys: { key: string }[] }[] };
    keys.push(...data.flatMap((one) => one.keys.map(({ key }) => key)));
  }
  const file = join(temporaryFolder(scope), 'keys');
  writeFileSync(file, keys.join('\n'));
  return file;
}

async function scriptsRun(redis: RedisServer): Promise<number> {
  const text = await redis.command('INFO', 'commandstats');
  return Number(/cmdstat_evalsha:calls=(\d+)/.exec(text)?.[1] ?? 0);
}

async function measure(
  redis: RedisServer,
  apply: (seconds: number) => Promise<PacedReport>,
): Promise<Pick<Cell, 'reachedPerSecond' | 'roundTripsPer1000'>> {
  try {
    await apply(WARM_UP_SECONDS);
    const before = await scriptsRun(redis);
    const { answers, seconds } = await apply(Number(values.seconds));
    const roundTrips = (await scriptsRun(redis)) - before;
    return {
      reachedPerSecond: Math.round(answers / seconds),
      roundTripsPer1000: (roundTrips * 1_000) / answers,
    };
  } catch (error) {
    // Calls were late by ten seconds; the other cells are as good without this one.
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
    return {};
  }
}

async function measureAll(scope: Scope): Promise<Cell[]> {
  const redis = await startRedis(scope);
  const mock = await startMockProcess(scope);
  const most = Math.max(...values.accounts.map(Number));
  const room = { accounts: 4 * most + 1_000, keys: 4 * most + 1_000 };
  const settings = { sharing: { url: redis.url }, limits: room };
  const gateway = await startGateway(scope, { config: testSettings(mock.url, settings) });
  const cells: Cell[] = [];
  for (const accounts of values.accounts.map(Number)) {
    const keysFile = await createKeys(gateway, scope, accounts);
    for (const ratePerSecond of values.rate.map(Number)) {
      const apply = (seconds: number): Promise<PacedReport> =>
        applyPacedLoad({
          port: gateway.port,
          path: CHAT_PATH,
          headers: JSON_HEADERS,
          body: WHOLE[0]!.body,
          keysFile,
          ratePerSecond,
          seconds,
          connectionsMax: CONNECTIONS_MAX,
        });
      const cell = { accounts, wantedPerSecond: ratePerSecond, ...(await measure(redis, apply)) };
      cells.push(cell);
      const { reachedPerSecond, roundTripsPer1000 } = cell;
      process.stdout.write(
        `| ${accounts} | ${ratePerSecond} | ${reachedPerSecond ?? '–'} | ${roundTripsPer1000?.toFixed(1) ?? '–'} |\n`,
      );
    }
  }
  return cells;
}

process.stdout.write(
  `${machineLine()}\n| accounts | requests/s wanted | reached | round trips per 1,000 |\n`,
);
process.stdout.write('| --- | --- | --- | --- |\n');
const cells = await inScope(measureAll);
if (values.json !== undefined) writeFileSync(values.json, JSON.stringify({ machine: machineLine(), cells }));
