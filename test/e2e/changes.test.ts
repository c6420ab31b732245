/** Who changed what: recorded of every way to change something, and whole after crashes and over hosts. */
import { writeFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import type { ChainView } from '#src/admin/change-routes.js';
import type { OperatorChange } from '#src/registry/operator-change.js';
import { openTables } from '#src/store/tables.js';
import { runCommand } from '../support/command.js';
import { eventually, startGateway, temporaryFolder, testSettings, type Gateway } from '../support/gateway.js';
import { startMock } from '../support/mock.js';
import { NO_REDIS, startRedis } from '../support/redis-server.js';

async function changesOf({ admin }: Gateway, query = ''): Promise<OperatorChange[]> {
  const answer = await admin.send('GET', `/admin/v1/changes?limit=1000${query}`);
  return (answer.json() as { data: OperatorChange[] }).data;
}

async function chainOf({ admin }: Gateway): Promise<ChainView> {
  return (await admin.send('GET', '/admin/v1/changes/verify')).json() as ChainView;
}

void t.test('by interface, command, signal and changed file, and what is no row of the store', async (t) => {
  const mock = await startMock(t);
  const folder = temporaryFolder(t);
  const config = { ...testSettings(mock.url), processes: 2 };
  const gateway = await startGateway(t, { folder, config });
  const { accountId } = await gateway.admin.customer({ credit: '1.00' });
  const made = await changesOf(gateway);
  t.ok(made.every(({ who, from }) => who === 'bootstrap' && from.endsWith('127.0.0.1')));

  const newest = async (): Promise<OperatorChange> => (await changesOf(gateway))[0]!;
  await gateway.admin.send('PUT', '/admin/v1/log', { level: 'warn' });
  t.match(await newest(), {
    action: 'log.set',
    changes: [{ field: 'level', before: 'info', after: 'warn' }],
  });
  await gateway.admin.send('PUT', '/admin/v1/log', { level: 'info' });
  await gateway.admin.send('POST', '/admin/v1/upstreams/reset', {});
  t.match(await newest(), { action: 'upstreams.reset', target: { type: 'upstreams', name: null } });
  await gateway.admin.send('POST', '/admin/v1/cache/clear', {});
  t.match(await newest(), { action: 'cache.clear' });
  const { number } = await newest();

  for (const [method, path, body] of [
    ['POST', `/accounts/${accountId}/set-plan`, { plan: 'none' }],
    ['POST', '/keys/nobody/disable', {}],
    ['POST', '/reload', { dry_run: true }],
    ['POST', '/flush', {}],
    ['PUT', '/log', {}],
    ['GET', '/accounts', undefined],
  ] as const) {
    await gateway.admin.send(method, `/admin/v1${path}`, body);
    t.equal((await newest()).number, number, `${method} ${path} changed nothing`);
  }

  const plan = { id: 'new', requests_per_minute: 1, calls_per_day: 1 };
  const changed = { ...testSettings(mock.url, { plans: [plan], low_balance: 'clamp' }), processes: 2 };
  writeFileSync(join(folder, 'tollgate.yaml'), JSON.stringify(changed));
  gateway.child.signal('SIGHUP');
  const reloaded = await eventually('the row of the reload', async () =>
    (await changesOf(gateway, '&action=settings')).at(0),
  );
  t.match(reloaded, {
    ...{ who: 'signal', action: 'settings.reload' },
    changes: [
      { field: 'plans.new (added)', before: null, after: null },
      { field: 'low_balance', before: 'refuse', after: 'clamp' },
    ],
  });
  t.match(
    (await runCommand(folder, ['changes', 'list', '--action', 'settings'])).stdout,
    / plans\.new \(added\), low_balance refuse → clamp\n/,
  );
  t.equal((await gateway.admin.send('POST', '/admin/v1/reload', { restart: true })).status, 200);
  const replaced = (await changesOf(gateway, '&action=settings.reload&who=bootstrap'))[0];
  t.match(replaced?.changes, [{ field: 'gateways replaced', after: 2 }]);
  // The interface moves from process to process meanwhile.
  for (let at = 0; at < 20; at++) {
    await eventually('a change', async () => {
      const answer = await gateway.admin
        .send('POST', `/admin/v1/accounts/${accountId}/credit`, {
          ...{ amount: '0.01', note: `${at}`, idempotency_key: `at-${at}` },
        })
        .catch(() => undefined);
      return answer?.status === 200 ? true : undefined;
    });
  }
  const chain = await chainOf(gateway);
  t.equal(chain.ok, true, JSON.stringify(chain.problems));
  const credits = await changesOf(gateway, '&action=accounts.credit');
  t.equal(credits.filter(({ changes }) => changes.some(({ field }) => field === 'amount')).length, 20);
  const lines = gateway.child.stderr();
  t.ok(lines.includes(chain.head.hash), 'the log has the hash');
  t.equal(await gateway.stop(), 0);

  t.equal((await runCommand(folder, ['accounts', 'disable', accountId, '--yes'])).code, 0);
  const listed = await runCommand(folder, ['changes', 'list', '--limit', '1', '--json']);
  t.match(listed.json(), {
    data: [
      {
        ...{
          who: 'command',
          from: userInfo().username,
          action: 'accounts.disable',
          number: chain.head.number + 1,
        },
        target: { type: 'account', id: accountId },
        changes: [{ field: 'status', before: 'active', after: 'disabled' }],
      },
    ],
  });
  const whole = await runCommand(folder, ['changes', 'verify']);
  t.match([whole.code, whole.stdout], [0, /The chain is whole/]);

  const tables = openTables(join(folder, 'data'));
  const stored = tables.operatorChanges.get(3) as { text: string };
  tables.environment.write(() =>
    tables.recorder.record(() =>
      tables.operatorChanges.putSync(3, { ...stored, text: stored.text.replace('bootstrap', 'ann') }),
    ),
  );
  await tables.environment.close();
  const broken = await runCommand(folder, ['changes', 'verify']);
  t.match([broken.code, broken.stdout], [1, /row 3: it was altered/]);
  const audit = await runCommand(folder, ['audit', '--json']);
  t.match(audit.json(), { ok: false, differences: [{ place: 'record 3 of table operator_changes' }] });
});

void t.test('after kill -9 at any moment every acknowledged change is there', async (t) => {
  const mock = await startMock(t);
  const folder = temporaryFolder(t);
  const acknowledged = new Set<string>();
  for (let life = 0; life < 3; life++) {
    const gateway = await startGateway(t, { folder, config: testSettings(mock.url) });
    const rows = await changesOf(gateway, '&action=groups');
    const names = new Set(rows.map(({ target }) => target.name));
    for (const name of acknowledged) t.ok(names.has(name), name);
    const end = sleep(100 + Math.random() * 500).then(() => gateway.child.signal('SIGKILL'));
    for (let at = 0; at < 10_000; at++) {
      const name = `g${life}-${at}`;
      const answer = await gateway.admin.send('POST', '/admin/v1/groups', { name }).catch(() => undefined);
      if (answer?.status !== 200) break;
      acknowledged.add(name);
    }
    await end;
  }
  t.ok(acknowledged.size > 3, `${acknowledged.size} changes`);
  const whole = await eventually('the store, which the killed gateway gives back', async () => {
    const verified = await runCommand(folder, ['changes', 'verify', '--json']);
    return verified.stdout === '' ? undefined : (verified.json() as ChainView);
  });
  t.equal(whole.ok, true, JSON.stringify(whole.problems));
});

void t.test('two hosts that change at once have one chain', NO_REDIS, async (t) => {
  const redis = await startRedis(t);
  const mock = await startMock(t);
  const config = testSettings(mock.url, { sharing: { url: redis.url } });
  const hosts = await Promise.all([startGateway(t, { config }), startGateway(t, { config })]);
  await Promise.all(
    hosts.map(async ({ admin }, host) => {
      for (let at = 0; at < 15; at++) {
        const answer =
          at % 5 === 0
            ? await admin.send('POST', '/admin/v1/upstreams/reset', {})
            : await admin.send('POST', '/admin/v1/groups', { name: `g${host}-${at}` });
        t.equal(answer.status, 200, answer.body);
      }
    }),
  );
  const chains = await eventually('the same head at both', async () => {
    const found = await Promise.all(hosts.map(chainOf));
    return found[0]?.head.hash === found[1]?.head.hash ? found : undefined;
  });
  for (const { ok, rows, problems } of chains) {
    t.ok(ok, JSON.stringify(problems));
    t.equal(rows, 30);
  }
  const [first, second] = await Promise.all(hosts.map((host) => changesOf(host)));
  t.same(first, second);
  for (const host of hosts) t.equal(await host.stop(), 0);
});
