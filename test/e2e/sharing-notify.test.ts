/** Two hosts on one Redis: what both use of an account and of its group is told by one of the two. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { eventually, temporaryFolder } from '../support/gateway.js';
import { startHosts } from '../support/hosts.js';
import { NO_REDIS } from '../support/redis-server.js';
import { startReceiver, WEBHOOK_SECRET } from '../support/webhook-receiver.js';

void t.test('one of two hosts tells', NO_REDIS, async (t) => {
  const receiver = await startReceiver(t);
  const secretFile = join(temporaryFolder(t), 'secret');
  writeFileSync(secretFile, WEBHOOK_SECRET);
  const settings = {
    plans: [{ id: 'small', requests_per_minute: 1_000, calls_per_day: 100 }],
    flush_interval_ms: 100,
    notify: { url: receiver.url, secret_file: secretFile, at: [50] },
  };
  const { hosts } = await startHosts(t, { count: 2, settings });
  const [one, two] = hosts.map(({ gateway }) => gateway) as [
    (typeof hosts)[0]['gateway'],
    (typeof hosts)[0]['gateway'],
  ];
  await one.admin.send('POST', '/admin/v1/groups', { name: 'research', calls_per_month: 100 });
  const { accountId, key } = await one.admin.customer({ plan: 'small' });
  await one.admin.send('POST', `/admin/v1/accounts/${accountId}/set-group`, { group: 'research' });
  await eventually('the account in its group at the other host', async () => {
    const { group_name: group } = (await two.admin.account(accountId)) as { group_name: string | null };
    return group === 'research' ? true : undefined;
  });
  // 60 of 100 calls: neither host alone has made half of them.
  for (let calls = 0; calls < 60; calls++) {
    const { status } = await (calls % 2 === 0 ? one : two).chat(key, 'Hello');
    t.equal(status, 200, `call ${calls}`);
  }
  const told = (): string[] =>
    receiver.received.map(({ body }) => (JSON.parse(body) as { data: { quota: string } }).data.quota).sort();
  await eventually('both webhooks', () => (told().length >= 2 ? true : undefined), 30_000).catch(
    () => undefined,
  );
  await sleep(2_000);
  t.same(told(), ['calls_per_day', 'calls_per_month']);
});
