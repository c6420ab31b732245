/**
 * What single keys may do, on a real gateway with two listeners: limits of their own, expiry, rotation, last
 * use; and what a change of plan leaves as it was.
 */
import t from 'tap';
import type { KeyView, RotatedKeyView } from '#src/admin/views.js';
import { setTimeout as sleep } from 'node:timers/promises';
import { startBed } from '../support/bed.js';
import { KILLS, CrashingGateway } from '../support/crash.js';
import { checkError } from '../support/error-answer.js';
import { TEST_MODEL, eventually, temporaryFolder, testSettings, type Gateway } from '../support/gateway.js';
import { keepAliveAgent, request, type Answer } from '../support/http.js';
import { startMock } from '../support/mock.js';

/** With two listeners, that all of these are at one happens once in 2^31. */
const CONNECTIONS = 32;
/** On every thread (docs/limits.md). What is waited for beyond it is the machine's. */
const LIVE_MS = 100;
/** Time for 24 requests on connections that are open, also on a machine that is slow. */
const SHORT_SECONDS = 6;

const PLANS = [
  { id: 'ten', requests_per_minute: 10, calls_per_day: 1_000 },
  { id: 'more', requests_per_minute: 25, calls_per_day: 1_000 },
  { id: 'less', requests_per_minute: 3, calls_per_day: 15 },
];

type Created = KeyView & { readonly key: string };

async function done<View>(
  gateway: Pick<Gateway, 'admin'>,
  method: string,
  path: string,
  body?: object,
): Promise<View> {
  const answer = await gateway.admin.send(method, `/admin/v1${path}`, body);
  if (answer.status !== 200) throw new Error(`${method} ${path} answered ${answer.status}: ${answer.body}`);
  return answer.json() as View;
}

/** `count` calls at once over many connections. */
async function callMany(gateway: Gateway, key: string, count: number): Promise<Answer[]> {
  const agent = keepAliveAgent(CONNECTIONS);
  const body = { model: TEST_MODEL, messages: [{ role: 'user', content: 'Hello' }] };
  const answers = await Promise.all(
    Array.from({ length: count }, () => gateway.request(key, { body, agent })),
  );
  agent.destroy();
  return answers;
}

const statusesOf = (answers: readonly Answer[]): number[] =>
  [...new Set(answers.map(({ status }) => status))].sort();
const served = (answers: readonly Answer[]): number => answers.filter(({ status }) => status === 200).length;

void t.test('limits of single keys, beside those of their account', async (t) => {
  const { gateway } = await startBed(t, { listen: { listeners: 2 }, plans: PLANS });
  const { accountId, key: free } = await gateway.admin.customer({ plan: 'ten' });
  let keys = 0;
  const make = (body: object) =>
    done<Created>(gateway, 'POST', '/keys', { account: accountId, name: `k${++keys}`, ...body });

  const minute = await make({ requests_per_minute: 4 });
  t.match(minute, { requests_per_minute: 4, calls_per_day: null, expires: null, last_used: null });
  const first = await gateway.chat(minute.key, 'Hello');
  t.match(
    first.headers,
    { 'x-ratelimit-limit': '4', 'x-ratelimit-remaining': '3' },
    'the tighter one is told',
  );
  const rest = await callMany(gateway, minute.key, 40);
  t.equal(served(rest), 3, 'four of 41, over both listeners');
  const refused = rest.find(({ status }) => status === 429)!;
  t.match(refused.headers, { 'x-ratelimit-limit': '4', 'x-ratelimit-remaining': '0' });
  t.match(checkError(t, refused, 'rate_limit_exceeded', 'key'), /^This key allows 4 requests per minute/);
  t.equal(
    (await gateway.admin.account(accountId)).requests_this_minute,
    4,
    'refused ones cost the account nothing',
  );

  const day = await make({ calls_per_day: 2 });
  const answers = await callMany(gateway, day.key, 4);
  t.equal(served(answers), 2);
  const daily = answers.find(({ status }) => status === 429)!;
  t.match(daily.headers, { 'x-ratelimit-limit': '10' });
  t.match(checkError(t, daily, 'daily_limit_exceeded', 'key'), /^This key allows 2 calls per day/);
  t.equal(daily.headers['retry-after'], /after (\d+) seconds/.exec(daily.body)?.[1]);
  t.equal((await gateway.admin.account(accountId)).calls_today, 6);

  t.equal(served(await callMany(gateway, free, 10)), 2, 'the account has what they have left of its ten');
  const full = await gateway.chat(day.key, 'Hello');
  t.match(checkError(t, full, 'rate_limit_exceeded', 'account'), /^The plan ten allows 10/);
  t.equal(await gateway.stop(), 0);
});

void t.test('a change of plan leaves what was used in this minute and day', async (t) => {
  const { gateway } = await startBed(t, { listen: { listeners: 2 }, plans: PLANS });
  const { accountId, key } = await gateway.admin.customer({ plan: 'ten' });
  const setPlan = (plan: string) => done(gateway, 'POST', `/accounts/${accountId}/set-plan`, { plan });
  t.equal(served(await callMany(gateway, key, 20)), 10);
  await setPlan('more');
  t.match(await gateway.admin.account(accountId), { requests_this_minute: 10, calls_today: 10 });
  t.equal(served(await callMany(gateway, key, 30)), 15, '25 a minute, of which ten were used');
  await setPlan('less');
  const message = checkError(t, await gateway.chat(key, 'Hello'), 'rate_limit_exceeded', 'less');
  t.match(message, /^The plan less allows 3 requests per minute/);
  await setPlan('ample');
  t.equal(served(await callMany(gateway, key, 5)), 5);
  t.match(await gateway.admin.account(accountId), { requests_this_minute: 30, calls_today: 30 });
  t.equal(await gateway.stop(), 0);
});

void t.test('expiry and rotation, on every listener', async (t) => {
  const { gateway } = await startBed(t, { listen: { listeners: 2 } });
  const { accountId } = await gateway.admin.customer();
  const make = (body: object) => done<Created>(gateway, 'POST', '/keys', { account: accountId, ...body });
  const agent = keepAliveAgent(CONNECTIONS);
  t.teardown(() => agent.destroy());
  /** Each different status of one request on each connection. */
  const ask = async (key: string): Promise<number[]> =>
    statusesOf(
      await Promise.all(
        Array.from({ length: CONNECTIONS }, () =>
          gateway.request(key, { method: 'GET', path: '/v1/models', agent }),
        ),
      ),
    );

  const old = await make({ name: 'laptop', requests_per_minute: 1_000 });
  t.same(await ask(old.key), [200], 'every connection is open and served');
  const short = await make({ name: 'short', expires_in: SHORT_SECONDS });
  const rotated = await done<RotatedKeyView>(gateway, 'POST', '/keys/laptop/rotate', {
    grace: SHORT_SECONDS,
  });
  t.same(await ask(short.key), [200]);
  t.match(rotated, { name: 'laptop', account: accountId, requests_per_minute: 1_000, expires: null });
  t.match(rotated.replaces, { id: old.id, replaced_by: rotated.id, expired: false });
  t.same([await ask(rotated.key), await ask(old.key)], [[200], [200]], 'both within the grace');
  await sleep(Math.max(0, rotated.replaces.expires! * 1_000 + LIVE_MS - Date.now()));
  t.same([await ask(rotated.key), await ask(old.key), await ask(short.key)], [[200], [403], [403]]);
  const message = checkError(t, await gateway.chat(short.key, 'Hello'), 'key_disabled', 'expired');
  t.match(message, /has expired/);
  t.match(await done(gateway, 'GET', '/keys/short'), { expired: true, active: true });
  const again = await done<RotatedKeyView>(gateway, 'POST', '/keys/laptop/rotate', { grace: 0 });
  t.same([await ask(again.key), await ask(rotated.key)], [[200], [403]], 'without grace at once');

  for (const [body, field] of [
    [{ name: 'x', expires: 1 }, 'expires'],
    [{ name: 'x', expires_in: 0 }, 'expires_in'],
    [{ name: 'x', expires_in: 1, expires: 9_999 }, 'expires'],
    [{ name: 'x', requests_per_minute: 0 }, 'requests_per_minute'],
    [{ name: 'x', calls_per_day: '5' }, 'calls_per_day'],
  ] as const) {
    const answer = await gateway.admin.send('POST', '/admin/v1/keys', { account: accountId, ...body });
    t.match(checkError(t, answer, 'invalid_parameters', field), field);
  }
  const wrong = await gateway.admin.send('POST', `/admin/v1/keys/laptop/rotate`, { grace: -1 });
  t.match(checkError(t, wrong, 'invalid_parameters', 'grace'), /grace/);
  const { data } = await done<{ data: KeyView[] }>(gateway, 'GET', `/keys?account=${accountId}&limit=3`);
  t.same(
    data.map(({ name, expired }) => [name, expired]),
    [
      ['test', false],
      ['laptop', true],
      ['short', true],
    ],
  );
  t.equal(await gateway.stop(), 0);
});

void t.test('what was answered holds after kill -9', async (t) => {
  const mock = await startMock(t);
  const settings = testSettings(mock.url, { flush_interval_ms: 50 });
  const crashing = new CrashingGateway(t, temporaryFolder(t), settings);
  let serving = await crashing.start();
  const { accountId } = await serving.admin.customer();
  const status = async (key: string): Promise<number> => {
    const headers = { authorization: `Bearer ${key}` };
    return (await request({ port: serving.port, path: '/v1/models', headers })).status;
  };
  const limits = { account: accountId, calls_per_day: 3 };
  const chat = (key: string) =>
    request({
      port: serving.port,
      path: '/v1/chat/completions',
      headers: { authorization: `Bearer ${key}` },
      body: { model: TEST_MODEL, messages: [{ role: 'user', content: 'Hello' }] },
    });
  const counted = await done<Created>(serving, 'POST', '/keys', { name: 'counted', ...limits });
  t.equal((await chat(counted.key)).status, 200);
  const { last_used: lastUsed } = await done<KeyView>(serving, 'GET', '/keys/counted');
  t.type(lastUsed, 'number');
  // Two flushes that have something to write: what was used before the first is on disk with the second at
  // the latest.
  const other = await done<Created>(serving, 'POST', '/keys', { account: accountId, name: 'other' });
  for (let flush = 0; flush < 2; flush++) {
    const before = (await done<KeyView>(serving, 'GET', '/keys/other')).last_used;
    await eventually('another second of use', async () => {
      await status(other.key);
      return (await done<KeyView>(serving, 'GET', '/keys/other')).last_used === before ? undefined : true;
    });
    await sleep(100);
  }

  // A supervisor that lives, and none: a grace of 0, and of an hour.
  for (const [round, kill] of KILLS.slice(0, 2).entries()) {
    const old = await done<Created>(serving, 'POST', '/keys', { name: `key ${round}`, ...limits });
    const rotated = await done<RotatedKeyView>(serving, 'POST', `/keys/${old.id}/rotate`, {
      grace: round * 3_600,
    });
    serving = await crashing.kill(kill)();
    t.equal(await status(rotated.key), 200, 'the new key');
    t.equal(await status(old.key), round === 0 ? 403 : 200, 'the old key within its grace, and without');
    t.match(await done<KeyView>(serving, 'GET', `/keys/${old.id}`), {
      replaced_by: rotated.id,
      expires: rotated.replaces.expires,
      calls_per_day: 3,
    });
    t.match(await done<KeyView>(serving, 'GET', '/keys/counted'), { last_used: lastUsed });
  }
  t.same(
    [(await chat(counted.key)).status, (await chat(counted.key)).status, (await chat(counted.key)).status],
    [200, 200, 429],
    'the day of a key goes on where it was',
  );
});
