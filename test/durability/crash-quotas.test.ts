/**
 * Quotas after kill -9: an account, its key and its groups have used what the last flush says, no less than
 * the usage on disk and no more than what callers sent. What calls in flight held is free again. With two
 * processes the rows on disk are judged so: the coordinator also counts what it had granted to those that
 * died.
 */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { picoUnitsOf } from '#src/core/money.js';
import { asAccountIndex, asGroupIndex, asKeyIndex } from '#src/core/units.js';
import type { AccountView, GroupView, KeyView, QuotasView } from '#src/admin/views.js';
import type { QuotaUseRecord, UsedScope } from '#src/registry/quota-use.js';
import { Store } from '#src/store/store.js';
import { booksOf, CrashingGateway, KILLS, type Serving } from '../support/crash.js';
import { CALL_COST, Caller } from '../support/crash-load.js';
import { eventually, temporaryFolder, testSettings } from '../support/gateway.js';
import { startMock } from '../support/mock.js';
import { newSeed, randomBelow } from '../support/random.js';

const ROUNDS = process.env.TOLLGATE_CRASH_FULL === '1' ? 10 : 2;
const SEED = newSeed();
const CONNECTIONS = 4;
const TOKENS_PER_CALL = 16;
const AMPLE = {
  tokens_per_minute: 1_000_000_000,
  tokens_per_day: 1_000_000_000,
  tokens_per_month: 1_000_000_000,
  calls_per_month: 1_000_000,
  spend_per_day: '1000.00',
  spend_per_month: '1000.00',
};
const PLANS = [{ id: 'quotas', requests_per_minute: 1_000_000, calls_per_day: 1_000_000, ...AMPLE }];

interface Scopes {
  readonly accountId: string;
  readonly keyId: string;
  readonly key: string;
  readonly groups: readonly string[];
}

async function ask<Answer>({ admin }: Serving, method: string, path: string, body?: object): Promise<Answer> {
  const answer = await admin.send(method, `/admin/v1${path}`, body);
  if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.body}`);
  return answer.json() as Answer;
}

async function scopesOf(serving: Serving): Promise<Scopes> {
  const top = await ask<GroupView>(serving, 'POST', '/groups', { name: 'top', ...AMPLE });
  const team = await ask<GroupView>(serving, 'POST', '/groups', { name: 'team', parent: 'top', ...AMPLE });
  const { id: accountId } = await ask<AccountView>(serving, 'POST', '/accounts', {
    ...{ name: 'acme', plan: 'quotas', credit: '100.00', group: 'team' },
  });
  const made = await ask<{ id: string; key: string }>(serving, 'POST', '/keys', {
    ...{ account: accountId, name: 'k', ...AMPLE },
  });
  return { accountId, keyId: made.id, key: made.key, groups: [top.id, team.id] };
}

async function quotasOf(serving: Serving, { accountId, keyId, groups }: Scopes): Promise<QuotasView[]> {
  const paths = [`/accounts/${accountId}`, `/keys/${keyId}`, ...groups.map((id) => `/groups/${id}`)];
  const views = await Promise.all(
    paths.map((path) => ask<AccountView | KeyView | GroupView>(serving, 'GET', path)),
  );
  return views.map(({ quotas }) => quotas);
}

/** The rows of the account, its key and its groups, as they are on disk. */
function rowsOf(dataFolder: string): QuotaUseRecord[] {
  const store = new Store(dataFolder);
  const scopes: UsedScope[] = [
    { kind: 'account', index: asAccountIndex(0) },
    { kind: 'key', index: asKeyIndex(0) },
    { kind: 'group', index: asGroupIndex(0) },
    { kind: 'group', index: asGroupIndex(1) },
  ];
  const rows = scopes.map((scope) => store.quotaUses.find(scope)!);
  void store.close();
  return rows;
}

for (const processes of [1, 2]) {
  void t.test(`quotas of each scope, ${processes} processes`, { timeout: 300_000 }, async (t) => {
    t.comment(`seed ${SEED}`);
    const random = randomBelow(SEED);
    const mock = await startMock(t);
    const config = testSettings(mock.url, { plans: PLANS, flush_interval_ms: 200, processes });
    const folder = temporaryFolder(t);
    const gateway = new CrashingGateway(t, folder, config);
    let serving = await gateway.start();
    const scopes = await scopesOf(serving);
    let sent = 0;
    for (let round = 0; round < ROUNDS; round++) {
      const caller = new Caller({
        port: serving.port,
        key: scopes.key,
        connections: CONNECTIONS,
        upstreamMs: 10,
      });
      await sleep(300 + random(400));
      const shown = serving.admin;
      const before = sent;
      await eventually('a flush', async () =>
        (await booksOf(shown, scopes.accountId)).calls > before ? true : undefined,
      );
      // With several processes only the supervisor's end ends all of them.
      const restart = gateway.kill(processes === 1 ? KILLS[random(KILLS.length)]! : 'supervisor, gateway');
      caller.stop();
      serving = await restart();
      await caller.done;
      t.same(
        [...caller.refused.keys()].filter((status) => status !== 503),
        [],
        'nothing was refused',
      );
      sent += caller.answeredMs.length + caller.broken;

      const rows = rowsOf(join(folder, 'data'));
      const { calls, cost } = await booksOf(serving.admin, scopes.accountId);
      for (const [at, quotas] of (await quotasOf(serving, scopes)).entries()) {
        const name = ['account', 'key', 'top', 'team'][at]!;
        const { tokens_per_month: tokens, calls_per_month: admitted, spend_per_month: spend } = quotas;
        const counts = `${name}: ${String(tokens?.used)} tokens, ${String(admitted?.used)} calls, ${String(spend?.used)}`;
        t.comment(`${counts}; usage has ${calls} calls, callers sent ${sent}`);
        t.same([tokens?.held, spend?.held], [0, '0.00'], `${name}: nothing is held`);
        t.ok(Number(tokens?.used) >= calls * TOKENS_PER_CALL, `${name}: tokens, no less than usage says`);
        t.ok(Number(admitted?.used) >= calls, `${name}: calls, no less than usage says`);
        const spent = picoUnitsOf(String(spend?.used))!;
        t.ok(spent >= cost, `${name}: money, no less than usage says`);
        if (processes === 1) t.equal(Number(tokens?.used), rows[at]!.tokensPerMonth, `${name}: as on disk`);
      }
      for (const row of rows) {
        // Each count by itself: a call may settle between the flush's reads of two counts of one row.
        for (const tokens of [row.tokensPerDay, row.tokensPerMonth]) {
          t.ok(tokens >= calls * TOKENS_PER_CALL, 'on disk no fewer tokens than usage says');
          t.ok(tokens <= sent * TOKENS_PER_CALL, 'and no more than were sent');
        }
        t.ok(row.callsPerMonth >= calls && row.callsPerMonth <= sent, 'nor calls');
        // Of each call at most a nano-unit more.
        t.ok(BigInt(row.spendPerMonth) * 1_000n <= BigInt(sent) * (CALL_COST + 1_000n), 'nor money');
      }
      const audit = await gateway.audit();
      t.equal(audit.status, 0, audit.output);
    }
    t.equal(await gateway.stop(), 0);
    t.equal((await gateway.audit()).status, 0);
  });
}
