/** Gateways as two hosts on one server: what an operator does at one holds at both. */
import t from 'tap';
import { eventually, startGateway, testSettings } from '../support/gateway.js';
import { startMock } from '../support/mock.js';
import { NO_REDIS, startRedis } from '../support/redis-server.js';

/** Of 2 and 100 tokens each, at the prices of the test's model. */
const TWO_CALLS = '0.000456';

void t.test('accounts, keys and money of two hosts', NO_REDIS, async (t) => {
  const redis = await startRedis(t);
  const mock = await startMock(t);
  const config = testSettings(mock.url, { sharing: { url: redis.url } });
  const first = await startGateway(t, { config });
  const second = await startGateway(t, { config });
  const { accountId, keyId, key } = await first.admin.customer({ credit: '10.00' });

  const here = await first.chat(key, 'Hello');
  t.equal(here.status, 200, here.body);
  const there = await eventually('the key at the other host', async () => {
    const answer = await second.chat(key, 'Hello');
    return answer.status === 401 ? undefined : answer;
  });
  t.equal(there.status, 200, there.body);

  // Each host knows its own charge at once, and the other's when that has sent its next message to the
  // server.
  const [, settled] = await Promise.all(
    [first, second].map((host) =>
      eventually('the charges of both hosts', async () => {
        const account = await host.admin.account(accountId);
        return account.spent === TWO_CALLS && account.credited === '10.00' ? account : undefined;
      }),
    ),
  );

  const path = `/admin/v1/accounts/${accountId}/credit`;
  const debit = await second.admin.send('POST', path, { amount: `-${settled!.balance}` });
  t.equal(debit.status, 200, debit.body);
  t.match(debit.json(), { balance: '0.00', spent: TWO_CALLS });
  const tooMuch = await first.admin.send('POST', path, { amount: '-0.02' });
  t.equal(tooMuch.status, 400, tooMuch.body);

  const sinceMs = performance.now();
  await second.admin.disableKey(keyId);
  await eventually('the disabled key at the other host', async () => {
    const answer = await first.chat(key, 'Hello');
    return answer.body.includes('key_disabled') ? true : undefined;
  });
  const tookMs = performance.now() - sinceMs;
  t.comment(`disabled everywhere after ${tookMs.toFixed(0)} ms`);
  // A second where the machine does nothing else.
  t.ok(tookMs < 20_000);

  await redis.kill();
  const refused = await first.admin.send('POST', `/admin/v1/keys/${keyId}/enable`, {});
  // A client may try again by itself what gets 503: only what was surely not made.
  const isKnown = refused.body.includes('Nothing was changed');
  t.equal(refused.status, isKnown ? 503 : 409, refused.body);
  t.match(refused.body, /Nothing was changed|not known whether/);
  t.equal((await first.admin.send('GET', `/admin/v1/keys/${keyId}`)).status, 200, 'reading goes on');
});
