/**
 * The package `openai`, unmodified, as a client: what it can do against the provider it can do here, with the
 * error classes that it documents. Its retry after a 429 is in rate-limit.test.ts, where a minute is waited
 * anyway.
 */
import OpenAI from 'openai';
import t from 'tap';
import { startBed } from '../support/bed.js';
import { HIDDEN_MODEL, TEST_MODEL, eventually } from '../support/gateway.js';
import { steered } from '../support/mock.js';
import { isWholeText } from '../support/sse.js';

const UPSTREAM_KEY = 'secret-of-the-upstream';
/** The aim is 50 ms, which the comment shows; the bound is for a machine that has other work. */
const ABORT_MS_MAX = 2_000;
const CALLS_IN_FLIGHT = 8;
const TOOLS: OpenAI.ChatCompletionTool[] = [
  {
    type: 'function',
    function: {
      name: 'weather',
      description: 'Größe & "quotes" \u2028 and escapes',
      parameters: {
        type: 'object',
        properties: { city: { type: 'string' }, days: { type: 'number', minimum: 1.0 } },
      },
    },
  },
];
const RESPONSE_FORMAT: OpenAI.ResponseFormatJSONSchema = {
  type: 'json_schema',
  json_schema: {
    name: 'answer',
    strict: true,
    schema: { type: 'object', properties: {}, additionalProperties: false },
  },
};

const prompt = (content: string): OpenAI.ChatCompletionMessageParam[] => [{ role: 'user', content }];

interface Echo {
  readonly headers: Record<string, string>;
  readonly body: string;
}

void t.test('the openai package', async (t) => {
  const { gateway, mock } = await startBed(
    t,
    {
      upstream: { key: '${TEST_UPSTREAM_KEY}' },
      limits: { calls_in_flight: CALLS_IN_FLIGHT },
      plans: [
        { id: 'one-a-minute', requests_per_minute: 1, calls_per_day: 1_000 },
        { id: 'narrow', requests_per_minute: 1_000, calls_per_day: 1_000, models: [TEST_MODEL] },
      ],
    },
    { env: { TEST_UPSTREAM_KEY: UPSTREAM_KEY }, mockArgs: ['--chunks', '10'] },
  );
  const { key } = await gateway.admin.customer();
  const sent: string[] = [];
  const clientOf = (apiKey: string, maxRetries = 0): OpenAI =>
    new OpenAI({
      apiKey,
      baseURL: `${gateway.url}/v1`,
      maxRetries,
      fetch: (input, init) => {
        if (typeof init?.body === 'string') sent.push(init.body);
        return fetch(input, init);
      },
    });
  const client = clientOf(key);
  const create = (
    from: OpenAI,
    content: string,
    more: object = {},
  ): Promise<OpenAI.ChatCompletion & { _request_id?: string | null }> =>
    from.chat.completions.create({ model: TEST_MODEL, messages: prompt(content), ...more, stream: false });

  await t.test('create', async (t) => {
    const completion = await create(client, 'Hello');
    t.match(completion, { object: 'chat.completion', model: TEST_MODEL, usage: { prompt_tokens: 2 } });
    t.ok(isWholeText(completion.choices[0]!.message.content!, 10));
    t.match(completion._request_id, /./, 'a request id');
  });

  await t.test('stream with for await', async (t) => {
    const stream = await client.chat.completions.create({
      model: TEST_MODEL,
      messages: prompt('Hello'),
      stream: true,
    });
    let text = '';
    for await (const chunk of stream) {
      t.equal(chunk.object, 'chat.completion.chunk');
      t.notOk(chunk.usage, 'usage was not asked for');
      text += chunk.choices[0]?.delta.content ?? '';
    }
    t.ok(isWholeText(text, 10), text);
    const withUsage = await client.chat.completions.create({
      model: TEST_MODEL,
      messages: prompt('Hello'),
      stream: true,
      stream_options: { include_usage: true },
    });
    let last: unknown;
    for await (const chunk of withUsage) last = chunk;
    t.match(last, { choices: [], usage: { prompt_tokens: 2 } });
  });

  await t.test('abort in the middle reaches the upstream', async (t) => {
    const delaysMs: number[] = [];
    for (let turn = 0; turn < 5; turn += 1) {
      await mock.resetStats();
      const stream = await client.chat.completions.create({
        model: TEST_MODEL,
        messages: prompt(steered('chunks=1000&chunk_ms=20')),
        stream: true,
      });
      let chunks = 0;
      let leftMs = 0;
      for await (const chunk of stream) {
        chunks += chunk.choices.length;
        leftMs = Date.now();
        if (chunks === 4) break;
      }
      const abortMs = await eventually(
        'the abort',
        async () => (await mock.stats()).lastAbortMs ?? undefined,
      );
      delaysMs.push(abortMs - leftMs);
    }
    delaysMs.sort((a, b) => a - b);
    t.comment(`upstream saw the abort after ${delaysMs.join(', ')} ms`);
    t.ok(delaysMs[2]! <= ABORT_MS_MAX, 'the median of five');
    t.equal((await mock.stats()).open, 0);
  });

  await t.test('models', async (t) => {
    const list = await client.models.list();
    t.same(list.data.map((model) => model.id).sort(), [HIDDEN_MODEL, TEST_MODEL]);
    t.match(list.data[0], { object: 'model', owned_by: 'mock', created: Number });
    t.match(await client.models.retrieve(TEST_MODEL), { id: TEST_MODEL, object: 'model' });
    const narrow = clientOf((await gateway.admin.customer({ plan: 'narrow' })).key);
    t.same(
      (await narrow.models.list()).data.map((model) => model.id),
      [TEST_MODEL],
    );
    await t.rejects(narrow.models.retrieve(HIDDEN_MODEL), { status: 404, code: 'model_not_found' });
  });

  await t.test('tools and response_format pass through byte for byte', async (t) => {
    const more = { tools: TOOLS, response_format: RESPONSE_FORMAT, seed: 7, stop: ['\n\n'], user: 'ü' };
    const completion = await create(client, steered('echo=1'), more);
    const echo = JSON.parse(completion.choices[0]!.message.content!) as Echo;
    t.equal(echo.body, sent.at(-1), 'the body is the very bytes that the client sent');
    t.equal(echo.headers.authorization, `Bearer ${UPSTREAM_KEY}`);
    t.notMatch(JSON.stringify(echo.headers), key, "the caller's key stays here");

    const stream = await client.chat.completions.create({
      model: TEST_MODEL,
      messages: prompt(steered('echo=1')),
      ...more,
      stream: true,
    });
    let text = '';
    for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
    const streamed = JSON.parse(text) as Echo;
    t.same(JSON.parse(streamed.body), {
      ...(JSON.parse(sent.at(-1)!) as object),
      stream_options: { include_usage: true },
    });
    t.ok(
      streamed.body.startsWith(sent.at(-1)!.slice(0, -1)),
      'the same bytes, with the usage asked for at the end',
    );
  });

  await t.test('every error class', async (t) => {
    const rejection = async (work: Promise<unknown>): Promise<unknown> => {
      try {
        return await work;
      } catch (error) {
        return error;
      }
    };
    const cases: [string, () => Promise<unknown>, new (...args: never[]) => Error, object][] = [
      [
        '401',
        () => create(clientOf(`sk-${'A'.repeat(43)}`), 'x'),
        OpenAI.AuthenticationError,
        { code: 'invalid_api_key' },
      ],
      [
        '400',
        () => create(client, 'x', { temperature: 3 }),
        OpenAI.BadRequestError,
        { code: 'invalid_parameters' },
      ],
      [
        'model',
        () => create(client, 'x', { model: 'none' }),
        OpenAI.BadRequestError,
        { code: 'model_not_found' },
      ],
      [
        '502',
        () => create(client, steered('status=500')),
        OpenAI.InternalServerError,
        { code: 'provider_unavailable' },
      ],
    ];
    const poor = await gateway.admin.customer({ credit: '0' });
    cases.push([
      '403',
      () => create(clientOf(poor.key), 'x'),
      OpenAI.PermissionDeniedError,
      { code: 'insufficient_quota', type: 'permission_error' },
    ]);
    const slow = await gateway.admin.customer({ plan: 'one-a-minute' });
    await create(clientOf(slow.key), 'x');
    cases.push([
      '429',
      () => create(clientOf(slow.key), 'x'),
      OpenAI.RateLimitError,
      { code: 'rate_limit_exceeded' },
    ]);
    for (const [name, work, Class, fields] of cases) {
      const error = await rejection(work());
      t.ok(error instanceof Class, `${name}: ${String(error)}`);
      t.match(error, fields, name);
    }
  });

  await t.test('a 503 is retried after the seconds of Retry-After', async (t) => {
    // A call that its client left keeps its place until its tokens are counted.
    const noCallInFlight = () =>
      eventually('no call in flight', async () => {
        const status = (await gateway.admin.send('GET', '/admin/v1/status')).json() as {
          calls_in_flight: number;
        };
        return status.calls_in_flight === 0 ? true : undefined;
      });
    await noCallInFlight();
    const busy = await Promise.all(
      Array.from({ length: CALLS_IN_FLIGHT }, () =>
        client.chat.completions.create({
          model: TEST_MODEL,
          messages: prompt(steered('chunks=1000&chunk_ms=20')),
          stream: true,
        }),
      ),
    );
    const seen: { status: number; startedMs: number; endedMs: number; retryAfter: number }[] = [];
    const patient = new OpenAI({
      apiKey: key,
      baseURL: `${gateway.url}/v1`,
      maxRetries: 1,
      fetch: async (input, init) => {
        const startedMs = performance.now();
        // The places of the calls that are aborted below are free once their tokens are counted.
        if (seen.length > 0) await noCallInFlight();
        const answer = await fetch(input, init);
        const retryAfter = Number(answer.headers.get('retry-after') ?? 0);
        seen.push({ status: answer.status, startedMs, endedMs: performance.now(), retryAfter });
        for (const stream of busy) stream.controller.abort();
        return answer;
      },
    });
    await create(patient, 'Hello');
    t.same(
      seen.map(({ status }) => status),
      [503, 200],
    );
    const waitedMs = seen[1]!.startedMs - seen[0]!.endedMs;
    t.ok(waitedMs >= seen[0]!.retryAfter * 1_000, `waited ${waitedMs} ms`);
  });

  await t.test('a stream that breaks is an error, not an end', async (t) => {
    for (const fault of ['reset-mid', 'error-event']) {
      const stream = await client.chat.completions.create({
        model: TEST_MODEL,
        messages: prompt(steered(`fault=${fault}&chunk_ms=20`)),
        stream: true,
      });
      await t.rejects(
        async () => {
          for await (const chunk of stream) t.equal(chunk.object, 'chat.completion.chunk');
        },
        { code: 'provider_unavailable' },
        fault,
      );
    }
  });

  t.equal(await gateway.stop(), 0);
});
