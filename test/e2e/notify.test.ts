/**
 * An operator is told before it hurts: calls bring a balance below its bound and a quota to its thresholds, a
 * receiver gets signed webhooks, and none comes twice, also after a restart.
 */
import OpenAI from 'openai';
import t from 'tap';
import { setTimeout as sleep } from 'node:timers/promises';
import { eventually, knownEverywhere, startGateway, testSettings } from '../support/gateway.js';
import { startMock, steered } from '../support/mock.js';
import { startReceiver, WEBHOOK_SECRET, type Received } from '../support/webhook-receiver.js';

const PROMPT = steered('prompt_tokens=7&completion_tokens=9');

interface Notice {
  readonly type: string;
  readonly data: Readonly<Record<string, unknown>>;
}

const noticeOf = ({ body }: Received): Notice => JSON.parse(body) as Notice;

void t.test('told once, signed, and not again after a restart', async (t) => {
  const mock = await startMock(t);
  const receiver = await startReceiver(t);
  const plans = [{ id: 'small', requests_per_minute: 1_000, calls_per_day: 5 }];
  const config = testSettings(mock.url, {
    plans,
    flush_interval_ms: 50,
    notify: { url: receiver.url, secret: '${HOOK_SECRET}', low_balance: '9.00' },
  });
  const env = { HOOK_SECRET: WEBHOOK_SECRET };
  const first = await startGateway(t, { config, env });
  const customer = await first.admin.customer({ credit: '9.00', plan: 'small' });
  const other = await first.admin.customer({ credit: '9.00', plan: 'small' });
  // The receiver is away at first.
  receiver.replies.push({ status: 503, headers: { 'retry-after': '1' } });
  const notices = (): Notice[] =>
    [...new Map(receiver.received.map((got) => [got.headers['webhook-id'], got])).values()].map(noticeOf);
  const told = (count: number): Promise<Notice[]> =>
    eventually(`${count} notices`, () => (notices().length >= count ? notices() : undefined));
  for (let calls = 0; calls < 4; calls++) t.equal((await first.chat(customer.key, PROMPT)).status, 200);
  t.match(
    (await told(2)).map(({ type, data }) => [type, data.id, data.quota, data.threshold_percent]).sort(),
    [
      ['balance.low', customer.accountId, undefined, undefined],
      ['quota.threshold_reached', customer.accountId, 'calls_per_day', 80],
    ],
  );
  t.equal((await first.chat(customer.key, PROMPT)).status, 200);
  t.equal((await first.chat(customer.key, PROMPT)).status, 429);
  t.match((await told(3))[2], {
    data: { quota: 'calls_per_day', threshold_percent: 100, used: 5, limit: 5 },
  });
  for (const { body, headers } of receiver.received)
    await new OpenAI({ apiKey: '-' }).webhooks.verifySignature(body, headers, WEBHOOK_SECRET);
  const page = await first.admin.send('GET', '/metrics');
  t.match(page.body, /tollgate_webhooks_total\{state="sent"\} 3\n/);
  const lines = first.log().join('\n');
  t.match(lines, /80 % of a quota is used/);
  t.match(lines, /a quota is used up/);
  t.match(lines, /a balance is low/);
  t.notMatch(lines, WEBHOOK_SECRET.slice(6));
  await first.stop();

  const before = receiver.received.length;
  const second = await startGateway(t, { config, env, folder: first.folder });
  t.equal((await second.chat(customer.key, PROMPT)).status, 429);
  t.equal((await second.chat(other.key, PROMPT)).status, 200);
  await told(4);
  t.equal(receiver.received.length, before + 1, 'of the first account nothing comes again');
  t.match(noticeOf(receiver.received.at(-1)!), { type: 'balance.low', data: { id: other.accountId } });
  t.equal(await second.stop(), 0);
});

void t.test('a group over two processes is told once', async (t) => {
  const mock = await startMock(t);
  const receiver = await startReceiver(t);
  const notify = { url: receiver.url, secret: '${HOOK_SECRET}', at: [50] };
  const config = testSettings(mock.url, { processes: 2, flush_interval_ms: 50, notify });
  const gateway = await startGateway(t, { config, env: { HOOK_SECRET: WEBHOOK_SECRET } });
  const { admin } = gateway;
  await admin.send('POST', '/admin/v1/groups', { name: 'research', calls_per_month: 40 });
  const customers = [await admin.customer(), await admin.customer()];
  for (const { accountId, key } of customers) {
    await admin.send('POST', `/admin/v1/accounts/${accountId}/set-group`, { group: 'research' });
    await knownEverywhere(gateway, key);
  }
  // Each on a connection of its own, which the kernel deals out.
  const calls = Array.from({ length: 30 }, (_, at) => gateway.chat(customers[at % 2]!.key, PROMPT));
  t.same(new Set((await Promise.all(calls)).map(({ status }) => status)), new Set([200]));
  const first = await eventually('a webhook', () => receiver.received[0]);
  const { scope, name, quota, used, limit } = noticeOf(first).data;
  t.same(
    { scope, name, quota, limit },
    { scope: 'group', name: 'research', quota: 'calls_per_month', limit: 40 },
  );
  t.ok((used as number) >= 20 && (used as number) <= 30, `${used as number} used`);
  const page = await eventually('the group in the metrics', async () => {
    const { body } = await admin.send('GET', '/metrics');
    return body.includes('tollgate_quota_used_ratio{') ? body : undefined;
  });
  t.match(
    page,
    /tollgate_quota_used_ratio\{group="grp_\w+",group_name="",quota="calls_per_month"\} 0\.[5-9]/,
  );
  for (const { key } of customers) t.equal((await gateway.chat(key, PROMPT)).status, 200);
  await sleep(500);
  t.equal(receiver.received.length, 1, 'and by none of the two again');
  t.equal(await gateway.stop(), 0);
});
