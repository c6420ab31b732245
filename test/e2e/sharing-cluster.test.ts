/**
 * Gateways as two hosts on a Cluster of three servers, with the accounts spread over all of them: limits,
 * money and keys hold as on one server.
 */
import t, { type Test } from 'tap';
import { picoUnitsOf } from '#src/core/money.js';
import { TEST_MODEL, eventually, startGateway, testSettings, type Gateway } from '../support/gateway.js';
import { startMock, steered } from '../support/mock.js';
import { startCluster } from '../support/redis-cluster.js';
import { NO_REDIS } from '../support/redis-server.js';
import { openStream } from '../support/sse.js';

/** So many that each server has some. */
const PARTITIONS = 6;
const LIMIT = 5;
const ACCOUNTS = 6;
const CREDIT = '1.00';
/** Of 2 and 100 tokens, at the prices of the test's model. */
const CALL_COST = picoUnitsOf('0.000228')!;

interface Served {
  readonly accountId: string;
  readonly calls: number;
}

void t.test('two hosts on a Cluster', { ...NO_REDIS, timeout: 120_000 }, async (t) => {
  const cluster = await startCluster(t);
  const mock = await startMock(t);
  const plans = [{ id: 'five', requests_per_minute: LIMIT, calls_per_day: 1_000 }];
  const settingsOf = (sharing: object): string | object => testSettings(mock.url, { plans, sharing });
  const config = settingsOf({ url: cluster.url, partitions: PARTITIONS });
  const first = await startGateway(t, { config });
  const second = await startGateway(t, { config });
  const both = [first, second] as const;

  await t.test('accounts of all servers', async (t) => {
    const served = await Promise.all(Array.from({ length: ACCOUNTS }, () => useUp(t, both)));
    for (const { accountId, calls } of served) {
      const { balance, spent } = await eventually('what was spent at both hosts', async () => {
        const view = await second.admin.account(accountId);
        return view.leased?.balance === '0.00' && Number(view.spent) > 0 ? view : undefined;
      });
      t.equal(picoUnitsOf(spent), BigInt(calls) * CALL_COST);
      t.equal(picoUnitsOf(balance)! + picoUnitsOf(spent)!, picoUnitsOf(CREDIT), 'the law');
    }
    const sizes = await Promise.all(cluster.servers.map(({ command }) => command('DBSIZE')));
    t.notOk(sizes.includes(':0'), `each server has some: ${sizes.join(' ')}`);
  });

  await t.test('calls are shown by their host, to the others as leased', async (t) => {
    const { key, accountId } = await first.admin.customer({ credit: CREDIT });
    await known(both, key);
    const body = { messages: [{ role: 'user', content: steered('chunks=10000&chunk_ms=20') }], stream: true };
    const call = await openStream(first.port, key, { model: TEST_MODEL, max_tokens: 500, ...body });
    const at = (gateway: Gateway) => gateway.admin.account(accountId);
    const here = await at(first);
    t.equal(here.calls_in_flight, 1);
    t.ok(picoUnitsOf(here.held)! > 0n);
    t.equal(picoUnitsOf(here.balance)! + picoUnitsOf(here.held)!, picoUnitsOf(CREDIT), 'the law');
    const there = await at(second);
    t.match(there, { calls_in_flight: 0, held: '0.00', balance: CREDIT });
    t.ok(there.leased!.calls_in_flight >= 1);
    t.ok(picoUnitsOf(there.leased!.balance)! >= picoUnitsOf(here.held)!);
    call.outgoing.destroy();
    // What a host has written it knows at once, and the others when they are told.
    const spentHere = await eventually('the call is charged', async () => {
      const { spent, calls_in_flight: calls } = await at(first);
      return calls === 0 && Number(spent) > 0 ? spent : undefined;
    });
    const told = await eventually('all is told', async () => {
      const view = await at(second);
      return view.leased?.balance === '0.00' ? view : undefined;
    });
    t.match(told, { spent: spentHere, held: '0.00', leased: { calls_in_flight: 0 } });
  });

  await t.test('a key is disabled', async (t) => {
    const { key, keyId } = await first.admin.customer();
    await known(both, key);
    await first.admin.disableKey(keyId);
    await eventually('a refusal at the other host', async () =>
      (await second.chat(key, 'Hello')).status === 403 ? true : undefined,
    );
    t.equal((await first.chat(key, 'Hello')).status, 403);
  });
});

/** Three times the limit at once, half of it at each host. */
async function useUp(t: Test, [first, second]: readonly [Gateway, Gateway]): Promise<Served> {
  const { key, accountId } = await first.admin.customer({ plan: 'five', credit: CREDIT });
  await known([first, second], key);
  const answers = await Promise.all(
    Array.from({ length: 3 * LIMIT }, (_, at) => (at % 2 === 0 ? first : second).chat(key, 'Hello')),
  );
  const calls = answers.filter(({ status }) => status === 200).length;
  t.equal(answers.filter(({ status }) => status === 429).length, answers.length - calls);
  t.ok(calls >= 0.8 * LIMIT && calls <= LIMIT, `${calls} of ${LIMIT}`);
  return { accountId, calls };
}

async function known(gateways: readonly Gateway[], key: string): Promise<void> {
  for (const gateway of gateways)
    await eventually('the key', async () => {
      const { status } = await gateway.request(key, { method: 'GET', path: '/v1/models' });
      return status === 200 ? true : undefined;
    });
}
