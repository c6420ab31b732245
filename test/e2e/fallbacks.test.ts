/**
 * Models that answer in place of another: when they do, what it costs to the pico-unit, what names them, and
 * who does not get them.
 */
import t from 'tap';
import { decimalOf, picoUnitsOf } from '#src/core/money.js';
import type { AccountView, Customer } from '../support/admin-client.js';
import { eventually, startGateway, testSettings, type Gateway } from '../support/gateway.js';
import { startMock, steered, type Mock, type Scope } from '../support/mock.js';

/** Currency per million tokens: a token costs 10^6 times as many pico-units. */
const PRICES = {
  first: { input: '1', output: '2' },
  second: { input: '3', output: '5', cache_write: '7', cache_write_1h: '11', reasoning: '13' },
  third: { input: '0.5', output: '0.5' },
};
const CREDIT = '100.00';
const TOO_LONG = JSON.stringify({
  error: { message: 'it is too long', type: 'invalid_request_error', code: 'context_length_exceeded' },
});

/** What the mocks of a world do, and settings of its model `first`. */
interface Script {
  readonly first: readonly string[];
  readonly second?: readonly string[];
  readonly more?: object;
}

interface Mocks {
  readonly first: Mock;
  readonly second: Mock;
}

/** The model `first` at one mock; `second` and `third` at another. All are named after their world. */
function modelsOf(world: string, { first, second }: Mocks, more: object): object[] {
  const model = { max_output_tokens: 1_000 };
  return [
    {
      ...model,
      id: `${world}first`,
      price: PRICES.first,
      fallbacks: [`${world}second`, `${world}third`],
      ...more,
      upstreams: [{ url: first.url, breaker_failures: 0 }],
    },
    {
      ...model,
      id: `${world}second`,
      max_output_tokens: 300,
      price: PRICES.second,
      fallbacks: [`${world}third`],
      upstreams: [{ url: second.url, model: 'second-at-home', breaker_failures: 0 }],
    },
    { ...model, id: `${world}third`, price: PRICES.third, upstreams: [{ url: second.url }] },
  ];
}

/** A gateway of all these worlds; the plans `narrow` and `alone` are of the one without a name. */
async function startWorlds<Name extends string>(
  t: Scope,
  scripts: Readonly<Record<Name, Script>>,
): Promise<{ readonly gateway: Gateway; readonly mocks: Readonly<Record<Name, Mocks>> }> {
  const worlds = await Promise.all(
    (Object.entries(scripts) as [Name, Script][]).map(async ([name, script]) => {
      const [first, second] = await Promise.all([startMock(t, script.first), startMock(t, script.second)]);
      return { name, mocks: { first, second }, more: script.more ?? {} };
    }),
  );
  const limits = { requests_per_minute: 1_000_000, calls_per_day: 1_000_000 };
  const config = testSettings('echo:', {
    models: worlds.flatMap(({ name, mocks, more }) => modelsOf(name, mocks, more)),
    plans: [
      { id: 'narrow', ...limits, models: ['first', 'third'] },
      { id: 'alone', ...limits, models: ['first'] },
    ],
    access_log: { enabled: true },
  });
  const gateway = await startGateway(t, { config });
  const mocks = Object.fromEntries(worlds.map((world) => [world.name, world.mocks]));
  return { gateway, mocks: mocks as Record<Name, Mocks> };
}

const TOO_LONG_SCRIPT = ['--status', '400', '--body', TOO_LONG];
const started = startWorlds(t, {
  '': { first: ['--status', '503'] },
  'refused-': { first: ['--status', '429', '--retry-after', '7'], second: ['--status', '400'] },
  'begun-': { first: ['--fault', 'reset-mid', '--chunk-ms', '20'] },
  'by-length-': { first: TOO_LONG_SCRIPT, more: { fallback_on: ['unavailable', 'context_length'] } },
  'cut-': {
    first: TOO_LONG_SCRIPT,
    second: ['--fault', 'reset-mid', '--chunk-ms', '20'],
    more: { fallback_on: ['context_length'] },
  },
  'long-': { first: TOO_LONG_SCRIPT },
});

const ask = (gateway: Gateway, key: string, prompt: string, more: object = {}) =>
  gateway.request(key, {
    body: { model: 'first', messages: [{ role: 'user', content: prompt }], ...more },
  });

const settled = (gateway: Gateway, { accountId }: Customer): Promise<AccountView> =>
  eventually('nothing held', async () => {
    const account = await gateway.admin.account(accountId);
    return account.held === '0.00' ? account : undefined;
  });

const NUMBERS = 'prompt_tokens=100&cached_tokens=10&completion_tokens=9';
const PARTS = `${NUMBERS}&cache_write_tokens=20&cache_write_hour_tokens=30&thinking_bytes=12`;
/** Of `PARTS` at the price of `second`. */
const COST = (40n * 3n + 10n * 3n + 20n * 7n + 30n * 11n + 6n * 5n + 3n * 13n) * 1_000_000n;

void t.test('another model answers', async (t) => {
  const { gateway, mocks } = await started;
  const { second } = mocks[''];
  const { admin } = gateway;

  await t.test('at its own price, whole and streamed, and is named', async (t) => {
    const customer = await admin.customer({ credit: CREDIT });
    let spent = 0n;
    for (const stream of [false, true]) {
      const answer = await ask(gateway, customer.key, steered(PARTS), { stream, max_tokens: 900 });
      t.equal(answer.status, 200);
      t.equal(answer.headers['x-tollgate-model'], 'second');
      spent += COST;
      const account = await settled(gateway, customer);
      t.equal(account.spent, decimalOf(spent));
      t.equal(picoUnitsOf(account.balance)! + spent, picoUnitsOf(CREDIT));
    }
    const { last } = await second.stats();
    const body = JSON.parse((last as { body: string }).body) as Record<string, unknown>;
    t.match(body, { model: 'second-at-home', max_tokens: 300 }, 'no more than it can generate');
    const line = await eventually('the usage in the books', () => admin.usageOf(customer.accountId));
    t.match(line, {
      model: 'second',
      calls: 2,
      fallback_calls: 2,
      prompt_tokens: 200,
      cached_tokens: 20,
      cache_write_tokens: 100,
      cache_write_1h_tokens: 60,
      completion_tokens: 18,
      reasoning_tokens: 6,
      cost: decimalOf(spent),
    });
  });

  await t.test('the hold covers the dearest', async (t) => {
    // The prompt's bytes and 300 tokens at the price of `second`; `first` alone would cost less.
    const customer = await admin.customer({ credit: '0.003' });
    const answer = await ask(gateway, customer.key, 'Hello', { max_tokens: 1_000 });
    t.equal(answer.status, 403);
    t.equal((await settled(gateway, customer)).spent, '0.00');
  });

  await t.test('not one that is not on the plan', async (t) => {
    const narrow = await admin.customer({ credit: CREDIT, plan: 'narrow' });
    const third = await ask(gateway, narrow.key, steered(NUMBERS));
    t.match(third, { status: 200, headers: { 'x-tollgate-model': 'third' } });
    t.equal((await settled(gateway, narrow)).spent, decimalOf(109n * 500_000n));
    const alone = await admin.customer({ credit: CREDIT, plan: 'alone' });
    t.match(await ask(gateway, alone.key, 'Hello'), { status: 502 });
    t.equal((await settled(gateway, alone)).spent, '0.00');
  });

  await t.test('a repeat by its idempotency key is told so too', async (t) => {
    const customer = await admin.customer({ credit: CREDIT });
    const headers = { 'idempotency-key': 'once' };
    const [one, two] = [
      await gateway.request(customer.key, bodyOf(headers)),
      await gateway.request(customer.key, bodyOf(headers)),
    ];
    t.match(one, { status: 200, headers: { 'x-tollgate-model': 'second' } });
    t.match(two, { status: 200, headers: { 'x-tollgate-model': 'second', 'idempotent-replayed': 'true' } });
    t.equal(two.body, one.body);
    t.equal((await settled(gateway, customer)).spent, decimalOf(COST));
  });

  await t.test('a bound of null is none there too', async (t) => {
    const { key } = await admin.customer({ credit: CREDIT });
    for (const bounds of [{ max_tokens: null }, { max_tokens: null, max_completion_tokens: null }]) {
      const response = await ask(gateway, key, steered(PARTS), bounds);
      t.match(response, { status: 200, headers: { 'x-tollgate-model': 'second' } });
      const { last } = await second.stats();
      t.match(JSON.parse((last as { body: string }).body), { model: 'second-at-home', ...bounds });
    }
  });

  await t.test('metrics and the access log name both', async (t) => {
    const text = (await admin.send('GET', '/metrics')).body;
    t.match(text, /tollgate_fallbacks_total\{model="first",role="named"\} [1-9]/);
    t.match(text, /tollgate_fallbacks_total\{model="second",role="answered"\} [1-9]/);
    t.match(text, /tollgate_reasoning_output_tokens_total\{model="second"\} [1-9]/);
    t.match(text, /tollgate_cache_write_input_tokens_total\{model="second"\} [1-9]/);
    const line = await eventually('a line of the access log', () =>
      gateway.log().find((one) => one.includes('"answered_model":"second"')),
    );
    t.match(JSON.parse(line), { model: 'first', answered_model: 'second', status: 200, reasoning_tokens: 3 });
  });
});

const bodyOf = (headers: Readonly<Record<string, string>>) => ({
  headers,
  body: { model: 'first', messages: [{ role: 'user', content: steered(PARTS) }] },
});

void t.test('what fallbacks refuse or fail at is not told, but why the named model failed', async (t) => {
  const { gateway, mocks } = await started;
  const { second } = mocks['refused-'];
  const customer = await gateway.admin.customer({ credit: CREDIT });
  const answer = await ask(gateway, customer.key, 'Hello', { model: 'refused-first' });
  t.match(answer, { status: 502, headers: { 'retry-after': '7', 'x-tollgate-model': undefined } });
  t.equal((await second.stats()).requests, 2, 'second, then third');
  t.match(await settled(gateway, customer), { spent: '0.00', calls_today: 0 });
});

void t.test('a stream that has begun does not fall back', async (t) => {
  const { gateway, mocks } = await started;
  const { second } = mocks['begun-'];
  const customer = await gateway.admin.customer({ credit: CREDIT });
  const answer = await ask(gateway, customer.key, 'Hello', { model: 'begun-first', stream: true });
  t.equal(answer.status, 200);
  t.match(answer.body, /provider_unavailable/);
  t.equal(answer.headers['x-tollgate-model'], undefined);
  t.equal((await settled(gateway, customer)).spent, '0.00');
  t.equal((await second.stats()).requests, 0, 'the fallback heard nothing');
});

void t.test('a call that is too long for the model, only by setting', async (t) => {
  const { gateway } = await started;
  const customer = await gateway.admin.customer({ credit: CREDIT });
  const answer = await ask(gateway, customer.key, steered(PARTS), { model: 'by-length-first' });
  t.match(answer, { status: 200, headers: { 'x-tollgate-model': 'by-length-second' } });
  t.equal((await settled(gateway, customer)).spent, decimalOf(COST));

  const third = await gateway.admin.customer({ credit: CREDIT });
  const cut = await ask(gateway, third.key, 'Hello', { model: 'cut-first', stream: true });
  t.match(cut, { status: 200, headers: { 'x-tollgate-model': 'cut-second' } });
  t.match(cut.body, /provider_unavailable/, 'a stream of the fallback ends with the error of the fallback');
  t.notMatch(cut.body, /too long/);
  t.match(await settled(gateway, third), { spent: '0.00', calls_today: 0 });

  const other = await gateway.admin.customer({ credit: CREDIT });
  t.match(await ask(gateway, other.key, 'Hello', { model: 'long-first' }), { status: 400 });
  t.equal((await settled(gateway, other)).spent, '0.00');
});
