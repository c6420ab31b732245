/**
 * Embeddings, completions by the former interface, moderations and reranks through a real gateway, with the
 * package `openai` as it is: answers, money to the last pico-unit, limits, repeats, other upstreams, and
 * clients that leave.
 */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import OpenAI from 'openai';
import t from 'tap';
import { mockVector } from '#src/mock/mock-openai-doors.js';
import { picoUnitsOf } from '#src/core/money.js';
import type { Customer } from '../support/admin-client.js';
import { eventually, startGateway, type Gateway } from '../support/gateway.js';
import { startMock, steered } from '../support/mock.js';

/** Nobody listens there. */
const PYTHON = 'build/tools/judges-python/bin/python';
const DEAD = 'http://127.0.0.1:1/v1';
const INPUT_PRICE = '0.02';
/** Of one token, in pico-units. */
const INPUT = 20_000n;
const CALL = 2_000_000_000n;

interface Row {
  readonly calls: number;
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly cost: bigint;
}

async function booked(gateway: Gateway, { accountId }: Customer, calls: number): Promise<Row> {
  return eventually(`${calls} calls in the books`, async () => {
    const row = await gateway.admin.usageOf(accountId);
    return row?.calls === calls ? { ...row, cost: picoUnitsOf(row.cost)! } : undefined;
  });
}

void t.test('doors that pass calls on', async (t) => {
  const mock = await startMock(t, ['--chunks', '10']);
  const azure = await startMock(t, ['--provider', 'azure']);
  const url = `${mock.origin}/v1`;
  const embed = { serves: ['embeddings'], price: { input: INPUT_PRICE, output: '0' } };
  const gateway = await startGateway(t, {
    env: { TEST_KEY: 'key' },
    config: {
      models: [
        { id: 'embed', ...embed, upstreams: [{ url, model: 'text-embedding-3-small' }] },
        { id: 'twice', ...embed, upstreams: [{ url: DEAD }, { url, priority: 2 }] },
        { id: 'fallen', ...embed, fallbacks: ['embed'], upstreams: [{ url: DEAD }] },
        {
          id: 'azure',
          ...embed,
          upstreams: [{ provider: 'azure', url: azure.origin, key: '${TEST_KEY}' }],
        },
        {
          id: 'instruct',
          serves: ['completions'],
          price: { input: '1', output: '2' },
          upstreams: [{ url }],
        },
        {
          id: 'moderate',
          serves: ['moderations'],
          price: { input: '0', output: '0', call: '0.002' },
          upstreams: [{ url }],
        },
        {
          id: 'rank',
          serves: ['rerank'],
          price: { input: INPUT_PRICE, output: '0', call: '0.002' },
          upstreams: [{ url }],
        },
        { id: 'talk', upstreams: [{ url }] },
      ],
      plans: [
        { id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000 },
        { id: 'two', requests_per_minute: 2, calls_per_day: 1_000 },
        { id: 'tokens', requests_per_minute: 1_000, calls_per_day: 1_000, tokens_per_minute: 300 },
        { id: 'spend', requests_per_minute: 1_000, calls_per_day: 1_000, spend_per_day: '0.005' },
      ],
    },
  });
  const clientOf = ({ key }: Customer): OpenAI =>
    new OpenAI({ apiKey: key, baseURL: `${gateway.url}/v1`, maxRetries: 0 });
  const post = (who: Customer, path: string, body: object, headers: object = {}): Promise<Response> =>
    fetch(`${gateway.url}/v1/${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${who.key}`, 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    });
  const single = (floats: readonly number[]): number[] => [...floats];

  await t.test('embeddings', async (t) => {
    const who = await gateway.admin.customer();
    const { embeddings } = clientOf(who);
    const one = await embeddings.create({ model: 'embed', input: 'Hello' });
    t.same(single(one.data[0]!.embedding), mockVector('Hello'), 'base64, as the package asks for');
    t.same(one.usage, { prompt_tokens: 2, total_tokens: 2 });
    const many = await embeddings.create({
      model: 'embed',
      input: ['Größe', 'b'.repeat(9_000), 'c'],
      encoding_format: 'float',
      dimensions: 400,
    });
    t.same(
      many.data.map(({ embedding }) => embedding),
      ['Größe', 'b'.repeat(9_000), 'c'].map((text) => mockVector(text, 400)),
    );
    const tokens = await embeddings.create({ model: 'embed', input: [[1, 2, 3], [4]] });
    t.equal(tokens.usage.prompt_tokens, 4);
    const sum = 2 + 2 + 2_250 + 1 + 4;
    t.match(await booked(gateway, who, 3), {
      prompt_tokens: sum,
      completion_tokens: 0,
      cost: INPUT * BigInt(sum),
    });
    const named = await embeddings.create({ model: 'azure', input: 'Hello' });
    t.same(single(named.data[0]!.embedding), mockVector('Hello'), 'by the path of a deployment');
  });

  const noPython = existsSync(PYTHON) ? false : 'no Python of the judges: test/setup-tools.sh judges';
  await t.test('embeddings by the Python package', { skip: noPython }, async (t) => {
    const { key } = await gateway.admin.customer();
    const args = ['test/judges/embeddings_client.py', `${gateway.url}/v1`, key, 'embed'];
    const run = spawnSync(PYTHON, args, { encoding: 'utf8', timeout: 120_000 });
    t.equal(run.status, 0, run.stderr.slice(-2_000));
    t.equal(run.stdout.trim(), 'ok');
  });

  await t.test('usage that is missing is counted, impossible usage is not believed', async (t) => {
    const who = await gateway.admin.customer();
    const { embeddings } = clientOf(who);
    await embeddings.create({ model: 'embed', input: [steered('usage=missing', ''), 'Hello there'] });
    const counted = await booked(gateway, who, 1);
    t.ok(counted.prompt_tokens > 5 && counted.prompt_tokens < 20, String(counted.prompt_tokens));
    t.equal(counted.cost, INPUT * BigInt(counted.prompt_tokens));
    await embeddings.create({ model: 'embed', input: steered('usage=absurd') });
    const both = await booked(gateway, who, 2);
    t.ok(both.prompt_tokens < 60, String(both.prompt_tokens));
  });

  await t.test('completions, whole and streamed', async (t) => {
    const who = await gateway.admin.customer();
    const { completions } = clientOf(who);
    const whole = await completions.create({
      model: 'instruct',
      prompt: ['Hello', 'World'],
      n: 2,
      max_tokens: 200,
    });
    t.equal(whole.choices.length, 4);
    t.match(whole, { object: 'text_completion', usage: { prompt_tokens: 4, completion_tokens: 400 } });
    t.match(await booked(gateway, who, 1), { cost: 4n * 1_000_000n + 400n * 2_000_000n });
    let text = '';
    let events = 0;
    for await (const chunk of await completions.create({
      model: 'instruct',
      prompt: 'Hello',
      stream: true,
    })) {
      text += chunk.choices[0]?.text ?? '';
      t.notOk(chunk.usage, 'usage was not asked for');
      events++;
    }
    t.equal(text, (await completions.create({ model: 'instruct', prompt: 'Hello' })).choices[0]!.text);
    t.equal(events, 11);
    t.match(await booked(gateway, who, 3), { prompt_tokens: 8, completion_tokens: 600 });
    let last: unknown;
    const asked = { stream: true, stream_options: { include_usage: true } } as const;
    for await (const chunk of await completions.create({ model: 'instruct', prompt: 'Hello', ...asked }))
      last = chunk;
    t.match(last, { choices: [], usage: { prompt_tokens: 2, completion_tokens: 100 } });
    await t.rejects(completions.create({ model: 'instruct', prompt: 'a', best_of: 3 }), {
      status: 400,
      message: /best_of must not be given, use n/,
    });
  });

  await t.test('a stream that its client leaves is charged for what was sent', async (t) => {
    const who = await gateway.admin.customer();
    const stream = await clientOf(who).completions.create({
      model: 'instruct',
      prompt: steered('chunks=50&chunk_ms=100&bytes=4000'),
      stream: true,
    });
    for await (const chunk of stream) if (chunk.choices.length > 0) break;
    const { completion_tokens: sent, cost } = await booked(gateway, who, 1);
    t.ok(sent > 0 && sent < 900, String(sent));
    t.ok(cost > 0n);
  });

  await t.test('moderations and reranks', async (t) => {
    const who = await gateway.admin.customer();
    const moderated = await clientOf(who).moderations.create({
      model: 'moderate',
      input: ['calm', 'violence'],
    });
    t.same(
      moderated.results.map(({ flagged }) => flagged),
      [false, true],
    );
    t.match(await booked(gateway, who, 1), { prompt_tokens: 0, completion_tokens: 0, cost: CALL });
    const other = await gateway.admin.customer();
    const documents = ['a fish', { text: 'red house' }, 'red fish'];
    const answer = await post(other, 'rerank', { model: 'rank', query: 'red fish', documents, top_n: 2 });
    t.equal(answer.status, 200);
    t.match(await answer.json(), {
      results: [
        { index: 2, relevance_score: 1 },
        { index: 0, relevance_score: 0.5 },
      ],
      usage: { total_tokens: 9 },
    });
    t.match(await booked(gateway, other, 1), { prompt_tokens: 9, cost: CALL + 9n * INPUT });
    // As a provider reports that counts the query with each document.
    const third = await gateway.admin.customer();
    const query = steered('prompt_tokens=400000', 'fish '.repeat(1_000));
    const many = await post(third, 'rerank', { model: 'rank', query, documents: Array(400).fill('d') });
    t.equal(many.status, 200);
    t.match(await booked(gateway, third, 1), { prompt_tokens: 400_000, cost: CALL + 400_000n * INPUT });
  });

  await t.test('a door that the model does not serve, and what bodies must be', async (t) => {
    const who = await gateway.admin.customer();
    const { embeddings, chat } = clientOf(who);
    await t.rejects(embeddings.create({ model: 'talk', input: 'a' }), {
      status: 400,
      message: /talk does not serve embeddings.*POST \/v1\/chat\/completions/,
    });
    await t.rejects(chat.completions.create({ model: 'embed', messages: [{ role: 'user', content: 'a' }] }), {
      status: 400,
      message: /embed does not serve chat.*POST \/v1\/embeddings/,
    });
    await t.rejects(embeddings.create({ model: 'embed', input: [] }), {
      status: 400,
      message: /input must have at least 1 item/,
    });
    await t.rejects(embeddings.create({ model: 'nothing', input: 'a' }), {
      status: 400,
      message: /does not exist/,
    });
    const models = (await (
      await fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${who.key}` } })
    ).json()) as { data: readonly { id: string; serves?: readonly string[] }[] };
    t.same(models.data.find(({ id }) => id === 'rank')?.serves, ['rerank']);
  });

  await t.test('limits', async (t) => {
    const two = await gateway.admin.customer({ plan: 'two' });
    const create = (who: Customer, input: string): Promise<unknown> =>
      clientOf(who).embeddings.create({ model: 'embed', input });
    await create(two, 'a');
    await clientOf(two).moderations.create({ model: 'moderate', input: 'a' });
    await t.rejects(create(two, 'a'), { status: 429, message: /./ }, 'doors share the minute');
    const tokens = await gateway.admin.customer({ plan: 'tokens' });
    await create(tokens, 'Hello');
    await t.rejects(create(tokens, 'a'.repeat(1_000)), { status: 400, message: /./ }, 'more than ever fits');
    const spend = await gateway.admin.customer({ plan: 'spend' });
    const moderate = (): Promise<unknown> =>
      clientOf(spend).moderations.create({ model: 'moderate', input: 'a' });
    await moderate();
    await moderate();
    await t.rejects(moderate(), { status: 429, message: /./ }, 'the price of the call is held');
    const poor = await gateway.admin.customer({ credit: '0.001' });
    await t.rejects(clientOf(poor).moderations.create({ model: 'moderate', input: 'a' }), {
      status: 403,
      message: /may cost up to 0.002/,
    });
  });

  await t.test('a repeat is answered from what is kept', async (t) => {
    const who = await gateway.admin.customer();
    const headers = { 'idempotency-key': 'embeddings-1' };
    const texts: string[] = [];
    for (let time = 0; time < 2; time++) {
      const answer = await post(who, 'embeddings', { model: 'embed', input: 'Hello' }, headers);
      t.equal(answer.status, 200);
      texts.push(await answer.text());
    }
    t.equal(texts[0], texts[1]);
    const elsewhere = await post(who, 'moderations', { model: 'embed', input: 'Hello' }, headers);
    t.equal(elsewhere.status, 400, 'the same body at another door is another request');
    t.match(await elsewhere.text(), /Idempotency-Key/);
    t.match(await booked(gateway, who, 1), { cost: 2n * INPUT });
  });

  await t.test('errors of the upstream, other upstreams and fallbacks', async (t) => {
    const who = await gateway.admin.customer();
    const { embeddings } = clientOf(who);
    for (const model of ['twice', 'fallen']) {
      const { data } = await embeddings.create({ model, input: 'Hello' });
      t.same(single(data[0]!.embedding), mockVector('Hello'), model);
    }
    const wrong: readonly (readonly [string, number])[] = [
      ['status=500', 503],
      ['status=429', 503],
      ['status=400', 400],
      ['fault=broken-json', 502],
      ['fault=reset-mid', 502],
      ['fault=wrong-type', 502],
      ['body=%7B%22object%22%3A%22list%22%7D', 502],
    ];
    for (const [query, status] of wrong) {
      const answer = await post(who, 'embeddings', { model: 'embed', input: steered(query) });
      t.ok([status, 502, 503].includes(answer.status), `${query}: ${answer.status}`);
      t.match(await answer.json(), { error: { message: /./, code: /./ } }, query);
      // A breaker may have opened.
      if (answer.status === 503) t.ok(answer.headers.get('retry-after') ?? true);
    }
    t.match(await gateway.admin.account(who.accountId), { id: who.accountId });
  });
});
