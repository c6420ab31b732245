/**
 * What plans bound and what models are called, on a real gateway.
 */
import t from 'tap';
import { startBed } from '../support/bed.js';
import { checkError } from '../support/error-answer.js';
import {
  TEST_PRICE,
  eventually,
  knownEverywhere,
  startGateway,
  temporaryFolder,
  testSettings,
} from '../support/gateway.js';
import { startMock, steered, type Mock } from '../support/mock.js';

const LARGE_BODY_CHARS = 100_000;

const PLANS = [
  { id: 'terse', requests_per_minute: 1_000, calls_per_day: 1_000, max_tokens: 20 },
  { id: 'single', requests_per_minute: 1_000, calls_per_day: 1_000, calls_in_flight: 1 },
  { id: 'short', requests_per_minute: 1_000, calls_per_day: 1_000, body_bytes: 2_000 },
];

async function sentBody(mock: Mock): Promise<Record<string, unknown>> {
  return JSON.parse((await mock.stats()).last!.body) as Record<string, unknown>;
}

void t.test('what a plan allows', async (t) => {
  const { gateway, mock } = await startBed(t, { plans: PLANS });
  const { admin } = gateway;

  const terse = await admin.customer({ plan: 'terse' });
  for (const field of ['max_tokens', 'max_completion_tokens']) {
    const message = checkError(
      t,
      await gateway.chat(terse.key, 'Hello', { [field]: 21 }),
      'invalid_parameters',
      field,
    );
    t.equal(message, `${field} must be at most 20 on the plan terse, got 21`);
  }
  t.equal((await mock.stats()).requests, 0, 'a refused call is not sent');
  t.equal((await gateway.chat(terse.key, 'Hello', { max_tokens: 20 })).status, 200);
  t.match(await sentBody(mock), { max_tokens: 20 });
  t.equal((await gateway.chat(terse.key, 'Hello', { stream: true })).status, 200);
  t.match(await sentBody(mock), { max_tokens: 20, stream: true }, 'who asks for nothing is bounded');
  const long = 'x'.repeat(LARGE_BODY_CHARS);
  t.equal((await gateway.chat(terse.key, long)).status, 200);
  t.match(await sentBody(mock), { max_tokens: 20, messages: [{ content: long }] }, 'in a large body too');
  const large = await gateway.chat(terse.key, long, { max_tokens: 21 });
  checkError(t, large, 'invalid_parameters', 'a large body that asks for more');

  const single = await admin.customer({ plan: 'single' });
  const slow = gateway.chat(single.key, steered('first_byte_ms=4000'));
  // Before that another call could have the place, and this one would be refused.
  await eventually('the call at its upstream', async () => (await mock.stats()).open === 1 || undefined);
  const second = await eventually('the account to be full', async () => {
    const answer = await gateway.chat(single.key, 'Hello');
    return answer.status === 200 ? undefined : answer;
  });
  checkError(t, second, 'overloaded', 'a second call');
  t.equal((await slow).status, 200);
  t.equal((await gateway.chat(single.key, 'Hello')).status, 200, 'and then the next');
  const ample = await admin.customer();
  const both = [1, 2].map(() => gateway.chat(ample.key, steered('first_byte_ms=200')));
  t.same(
    (await Promise.all(both)).map(({ status }) => status),
    [200, 200],
    'other plans are as before',
  );

  const short = await admin.customer({ plan: 'short' });
  t.equal((await gateway.chat(short.key, 'x'.repeat(1_500))).status, 200);
  const tooLong = await gateway.chat(short.key, 'x'.repeat(2_000));
  t.match(checkError(t, tooLong, 'request_too_large', 'body'), /longer than the 2000 bytes/);
  t.equal((await gateway.chat(ample.key, 'x'.repeat(2_000))).status, 200);

  const plans = (await admin.send('GET', '/admin/v1/plans')).json() as { data: object[] };
  t.match(plans.data[0], { id: 'ample', max_tokens: null, calls_in_flight: 20_000, body_bytes: 10_485_760 });
  t.match(plans.data[1], { id: 'terse', max_tokens: 20 });
  t.equal(await gateway.stop(), 0);
});

void t.test(
  'members that would choose another model go upstream only where the model lets them',
  async (t) => {
    const mock = await startMock(t);
    const named = { price: TEST_PRICE, max_output_tokens: 1_000, upstreams: [{ url: mock.url }] };
    const gateway = await startGateway(t, {
      config: {
        models: [
          { id: 'strict', ...named },
          { id: 'open', ...named, pass_members: ['models', 'provider'] },
        ],
        plans: [{ id: 'ample', requests_per_minute: 1_000, calls_per_day: 1_000 }],
      },
    });
    const { key } = await gateway.admin.customer();
    const routed = { models: ['dearer'], provider: { order: ['x'], allow_fallbacks: false } };
    for (const prompt of ['x', 'é'.repeat(LARGE_BODY_CHARS)]) {
      const refused = await gateway.chat(key, prompt, { model: 'strict', ...routed });
      t.match(checkError(t, refused, 'invalid_parameters', 'strict'), /^models must not be given/);
      t.equal((await gateway.chat(key, prompt, { model: 'open', ...routed })).status, 200);
      t.match(await sentBody(mock), { model: 'open', ...routed });
      const more = await gateway.chat(key, prompt, { model: 'open', ...routed, api_base: 'http://x' });
      t.match(checkError(t, more, 'invalid_parameters', 'open'), /^api_base must not be given/);
      const longer = await gateway.chat(key, prompt, { model: 'open', max_tokens: 1, n_predict: 900 });
      t.match(checkError(t, longer, 'invalid_parameters', 'n_predict'), /use max_tokens/);
    }
  },
);

void t.test('aliases name a model and nothing more', async (t) => {
  const mock = await startMock(t);
  const named = { price: TEST_PRICE, max_output_tokens: 1_000 };
  const gateway = await startGateway(t, {
    config: {
      models: [
        { id: 'mini', aliases: ['fast', 'cheap/one'], ...named, upstreams: [{ url: mock.url }] },
        { id: 'large', aliases: ['m-large'], ...named, upstreams: [{ url: mock.url, model: 'its-name' }] },
      ],
      plans: [
        { id: 'ample', requests_per_minute: 1_000, calls_per_day: 1_000 },
        { id: 'narrow', requests_per_minute: 1_000, calls_per_day: 1_000, models: ['m*'] },
      ],
    },
  });
  const { admin } = gateway;
  const narrow = await admin.customer({ plan: 'narrow' });
  const ample = await admin.customer();
  const prompt = steered('prompt_tokens=1&completion_tokens=1');
  for (const [key, model, sent] of [
    [narrow.key, 'mini', 'mini'],
    [narrow.key, 'fast', 'mini'],
    [narrow.key, 'cheap/one', 'mini'],
    [ample.key, 'm-large', 'its-name'],
    [ample.key, 'large', 'its-name'],
  ] as const) {
    for (const stream of [false, true]) {
      t.equal((await gateway.chat(key, prompt, { model, stream })).status, 200, `${model} is served`);
      t.equal((await sentBody(mock)).model, sent, `${model} goes upstream as ${sent}`);
    }
  }
  const long = 'é'.repeat(LARGE_BODY_CHARS);
  t.equal((await gateway.chat(narrow.key, long, { model: 'fast' })).status, 200);
  t.match(await sentBody(mock), { model: 'mini', messages: [{ content: long }] }, 'in a large body too');
  // The pattern m* matches the alias m-large and not the id, which is what counts.
  checkError(t, await gateway.chat(narrow.key, prompt, { model: 'm-large' }), 'model_not_found', 'hidden');

  const get = async (path: string) => gateway.request(narrow.key, { path, method: 'GET' });
  const mini = { id: 'mini', object: 'model', created: 0, owned_by: 'tollgate', serves: ['chat'] };
  t.same((await get('/v1/models')).json(), { object: 'list', data: [mini] });
  for (const name of ['mini', 'fast', 'cheap/one', 'cheap%2Fone']) {
    t.same((await get(`/v1/models/${name}`)).json(), mini, name);
  }
  checkError(t, await get('/v1/models/m-large'), 'model_not_found', 'the alias of a hidden model', 404);

  // 7 calls of the narrow account and 4 of the other, under two names.
  const usage = await eventually('the books', async () => {
    const { data } = (await admin.send('GET', '/admin/v1/usage?by=model')).json() as {
      data: { model: string; calls: number }[];
    };
    return data.reduce((sum, { calls }) => sum + calls, 0) === 11 ? data : undefined;
  });
  t.match(usage, [
    { model: 'large', calls: 4 },
    { model: 'mini', calls: 7 },
  ]);
  const models = (await admin.send('GET', '/admin/v1/models')).json() as { data: object[] };
  t.match(models.data, [{ id: 'mini', aliases: ['fast', 'cheap/one'] }, { id: 'large' }]);
  t.equal(await gateway.stop(), 0);
});

for (const processes of [1, 2]) {
  void t.test(`a rule for a model, with ${processes} processes`, { timeout: 120_000 }, async (t) => {
    const rule = { model: 'mock-*', requests_per_minute: 5, calls_per_day: 1_000 };
    const plans = [{ id: 'ruled', requests_per_minute: 1_000, calls_per_day: 1_000, models_limits: [rule] }];
    const mock = await startMock(t);
    const start = { config: testSettings(mock.url, { plans, processes }), folder: temporaryFolder(t) };
    const gateway = await startGateway(t, start);
    const { key } = await gateway.admin.customer({ plan: 'ruled' });
    await knownEverywhere(gateway, key);
    const answers = [];
    for (let call = 0; call < 9; call++) answers.push(await gateway.chat(key, 'Hello'));
    const statuses = answers.map(({ status }) => status);
    t.equal(statuses.filter((status) => status === 200).length, 5, `exactly 5 of ${statuses.join(' ')}`);
    const refused = answers.find(({ status }) => status !== 200)!;
    const message = checkError(t, refused, 'rate_limit_exceeded', 'the sixth call');
    t.match(message, /model/);
    t.ok(Number(refused.headers['retry-after']) > 0);
    const other = await gateway.admin.customer({ plan: 'ruled' });
    await knownEverywhere(gateway, other.key);
    t.equal((await gateway.chat(other.key, 'Hello')).status, 200, 'each account has its own');
    t.equal(await gateway.stop(), 0);
    const again = await startGateway(t, start);
    checkError(t, await again.chat(key, 'Hello'), 'rate_limit_exceeded', 'after a restart');
    t.equal((await again.chat(other.key, 'Hello')).status, 200);
    t.equal(await again.stop(), 0);
  });
}
