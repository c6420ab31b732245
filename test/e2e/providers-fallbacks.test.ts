/**
 * A model and its fallback that speak different protocols, in both directions, whole and streamed: who
 * answers, in which words, and what it costs to the pico-unit. The named model fails, or says in its
 * provider's words that the call is too long for it.
 */
import t from 'tap';
import { decimalOf, picoUnitsOf } from '#src/core/money.js';
import { eventually, startGateway, TEST_PRICE } from '../support/gateway.js';
import { FaultServer, head, send, type FaultScript } from '../support/fault-server.js';
import { startMock, steered } from '../support/mock.js';
import { DOOR_PATHS } from '#src/core/door-names.js';
import { DOOR_CASES } from '../support/doors.js';
import { modelAt, PROVIDER_ENV, PROVIDER_MODELS, SECRET } from '../support/provider-bed.js';
import { ERROR_FORMS } from '../support/provider-errors.js';
import { FORMS } from '../support/provider-forms.js';
import { chunksOf, eventData, isWholeText, textOf } from '../support/sse.js';

const CREDIT = '100.00';
const CHUNKS = 10;
const PROMPT = steered('prompt_tokens=100&cached_tokens=10&completion_tokens=9');
const costAt = (input: bigint, cached: bigint, output: bigint): bigint =>
  90n * input + 10n * cached + 9n * output;
/** As PROVIDER_PRICE and OPENAI_PRICE say, in pico-units a token. */
const PROVIDER_COST = costAt(1_500_000n, 750_000n, 2_250_000n);
const OPENAI_COST = costAt(3_000_000n, 500_000n, 7_000_000n);
const OPENAI_PRICE = { input: '3', cached_input: '0.5', output: '7' };

/** An overloaded provider, in its own words. */
const down = (provider: string): FaultScript => {
  const form = FORMS.find((one) => one.provider === provider);
  const forms = form && ERROR_FORMS.get(form.dialect);
  const body = forms?.body(503, 'down') ?? '{"error":{"message":"down","code":"overloaded"}}';
  const headers = {
    'content-type': 'application/json',
    'content-length': String(body.length),
    // Otherwise the next call may be sent on a connection that is being closed, and counted twice.
    connection: 'close',
  };
  return (socket) => send(socket, [head(503, { ...headers, ...forms?.headers(503) }), body], 'close');
};

void t.test('fallbacks between protocols', async (t) => {
  const names = [...new Set(PROVIDER_MODELS.map(({ provider }) => provider))];
  const args = ['--chunks', String(CHUNKS)];
  const mocks = new Map(
    await Promise.all(
      ['openai', ...names].map(
        async (name) => [name, await startMock(t, ['--provider', name, ...args])] as const,
      ),
    ),
  );
  const server = new FaultServer(t);
  const port = await server.scripted(new Map(['openai', ...names].map((name) => [name, down(name)])));
  const failing = (name: string): string => `http://127.0.0.1:${port}/${name}`;
  const openai = { price: OPENAI_PRICE, max_output_tokens: 8_000 };
  const still = { breaker_failures: 0, park_max_ms: 0 };
  const gateway = await startGateway(t, {
    config: {
      models: [
        { ...openai, id: 'good-openai', upstreams: [{ url: mocks.get('openai')!.url }] },
        ...PROVIDER_MODELS.flatMap((model) => [
          modelAt(model, mocks.get(model.provider)!.origin),
          {
            ...modelAt(model, failing(model.provider), still),
            id: `${model.id}-down`,
            fallbacks: ['good-openai'],
          },
          {
            ...openai,
            id: `openai-down-${model.id}`,
            price: TEST_PRICE,
            fallbacks: [model.id],
            upstreams: [{ url: failing('openai'), ...still }],
          },
        ]),
      ],
      plans: [{ id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000 }],
    },
    env: PROVIDER_ENV,
  });

  for (const { id, provider } of PROVIDER_MODELS)
    for (const [named, answers, cost, failed] of [
      [`openai-down-${id}`, id, PROVIDER_COST, 'openai'],
      [`${id}-down`, 'good-openai', OPENAI_COST, provider],
    ] as const)
      await t.test(`${named}, then ${answers}`, async (t) => {
        const customer = await gateway.admin.customer({ credit: CREDIT });
        let spent = 0n;
        for (const stream of [false, true]) {
          const asked = server.requests.get(failed) ?? 0;
          const answer = await gateway.chat(customer.key, PROMPT, { model: named, stream });
          t.equal(answer.status, 200, answer.body);
          t.equal(answer.headers['x-tollgate-model'], answers);
          t.equal(server.requests.get(failed), asked + 1, 'the named model was asked first');
          t.notMatch(answer.body + JSON.stringify(answer.headers), SECRET);
          const text = stream
            ? textOf(chunksOf(answer.body))
            : (answer.json() as { choices: [{ message: { content: string } }] }).choices[0].message.content;
          t.ok(isWholeText(text, CHUNKS), text);
          if (stream) t.equal(eventData(answer.body).at(-1), '[DONE]');
          spent += cost;
          const account = await eventually('nothing held', async () => {
            const view = await gateway.admin.account(customer.accountId);
            return view.held === '0.00' ? view : undefined;
          });
          t.equal(account.spent, decimalOf(spent), `to the pico-unit, stream ${stream}`);
          t.equal(picoUnitsOf(account.balance)! + spent, picoUnitsOf(CREDIT));
        }
        const line = await eventually('the usage in the books', () =>
          gateway.admin.usageOf(customer.accountId),
        );
        t.match(line, {
          model: answers,
          calls: 2,
          fallback_calls: 2,
          cached_tokens: 20,
          completion_tokens: 18,
        });
      });
  t.notMatch(gateway.log().join('\n'), SECRET);
  t.equal(await gateway.stop(), 0);
});

/** An error of a provider as its reference writes it; that of OpenAI if the provider has no other. */
const refused = (form: (typeof FORMS)[number] | undefined, message: string, code?: string): FaultScript => {
  const forms = form && ERROR_FORMS.get(form.dialect);
  const type = 'invalid_request_error';
  const body = forms?.body(400, message) ?? JSON.stringify({ error: { message, type, code } });
  const headers = {
    'content-type': 'application/json',
    'content-length': String(body.length),
    // Otherwise the next call may be sent on a connection that is being closed, and counted twice.
    connection: 'close',
  };
  return (socket) => send(socket, [head(400, { ...headers, ...forms?.headers(400) }), body], 'stall');
};

/** What providers say of a call that is longer than the model reads, as people have reported it. */
const TOO_LONG: readonly (readonly [
  id: string,
  messages: readonly string[],
  code?: string | undefined,
  speaks?: 'messages' | 'responses',
])[] = [
  [
    'at-anthropic',
    [
      'prompt is too long: 211238 tokens > 200000 maximum',
      'input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again',
    ],
  ],
  ['at-gemini', ['The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).']],
  [
    'gemini-at-vertex',
    [
      'The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).',
      'Unable to submit request because the input token count is 1200000 but the model only supports up to 1048576. Reduce the input token count and try again.',
    ],
  ],
  ['claude-at-vertex', ['Prompt is too long']],
  [
    'at-bedrock',
    [
      'Input is too long for requested model.',
      'The model returned the following errors: prompt is too long: 211238 tokens > 200000 maximum',
    ],
  ],
  [
    'at-azure',
    [
      "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
    ],
    'context_length_exceeded',
  ],
  // A server with OpenAI's paths, and one that speaks the door's own protocol.
  ['openai', ["This model's maximum context length is 4096 tokens."]],
  ['speaks-messages', ['prompt is too long: 211238 tokens > 200000 maximum'], undefined, 'messages'],
  [
    'speaks-responses',
    ['Your input exceeds the context window of this model. Please adjust your input and try again.'],
    'context_length_exceeded',
    'responses',
  ],
];

void t.test('a call that is too long for the model', async (t) => {
  const good = await startMock(t, ['--chunks', String(CHUNKS)]);
  const server = new FaultServer(t);
  const scripts = new Map<string, FaultScript>();
  const models = TOO_LONG.flatMap(([id, messages, code, speaks]) =>
    messages.map((message, place) => {
      const name = `${id}-${place}`;
      const model = PROVIDER_MODELS.find((one) => one.id === id);
      const form =
        model === undefined
          ? speaks === 'messages'
            ? FORMS.find(({ provider }) => provider === 'anthropic')
            : undefined
          : FORMS.find(
              ({ provider, model: named }) =>
                provider === model.provider && named.slice(0, 4) === model.model.slice(0, 4),
            );
      scripts.set(name, refused(form, message, code));
      return { name, model, speaks };
    }),
  );
  scripts.set('other', refused(undefined, 'temperature must be at most 1'));
  // OpenAI refuses, and each provider answers.
  const [openaiSays] = TOO_LONG.find(([id]) => id === 'at-azure')![1];
  scripts.set('openai-refuses', refused(undefined, openaiSays!, 'context_length_exceeded'));
  const mocks = new Map(
    await Promise.all(
      [...new Set(PROVIDER_MODELS.map(({ provider }) => provider))].map(
        async (name) => [name, await startMock(t, ['--provider', name, '--chunks', String(CHUNKS)])] as const,
      ),
    ),
  );
  const port = await server.scripted(scripts);
  const at = (name: string): string => `http://127.0.0.1:${port}/${name}`;
  const rules = { fallbacks: ['good'], fallback_on: ['context_length'] };
  const plain = (id: string, more: object = {}): object => ({
    ...{ id, price: TEST_PRICE, max_output_tokens: 8_000, ...rules },
    upstreams: [{ url: at(id), ...more }],
  });
  const gateway = await startGateway(t, {
    config: {
      models: [
        { id: 'good', price: OPENAI_PRICE, max_output_tokens: 8_000, upstreams: [{ url: good.url }] },
        ...models.map(({ name, model, speaks }) =>
          model === undefined
            ? plain(name, speaks && { speaks: [speaks] })
            : { ...modelAt(model, at(name)), id: name, ...rules },
        ),
        plain('other'),
        ...PROVIDER_MODELS.flatMap((model) => [
          modelAt(model, mocks.get(model.provider)!.origin),
          {
            ...{ id: `before-${model.id}`, price: TEST_PRICE, max_output_tokens: 8_000 },
            ...{ ...rules, fallbacks: [model.id], upstreams: [{ url: at('openai-refuses') }] },
          },
        ]),
      ],
      plans: [{ id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000 }],
    },
    env: PROVIDER_ENV,
  });
  const { key } = await gateway.admin.customer({ credit: CREDIT });

  for (const door of ['chat', 'messages', 'responses'] as const)
    await t.test(`by ${DOOR_PATHS[door]}`, async (t) => {
      const served = [
        ...models.map(({ name }) => [name, 'good'] as const),
        ...PROVIDER_MODELS.map(({ id }) => [`before-${id}`, id] as const),
      ];
      for (const [name, answers] of served)
        for (const stream of [false, true]) {
          const body = { model: name, stream, ...DOOR_CASES[door].body(PROMPT) };
          const answer = await gateway.request(key, { path: DOOR_PATHS[door], body });
          t.equal(answer.status, 200, `${name}, stream ${stream}: ${answer.body}`);
          t.equal(answer.headers['x-tollgate-model'], answers, name);
          if (stream)
            t.match(answer.body.trimEnd().split('\ndata: ').at(-1), DOOR_CASES[door].lastEvent!, name);
          else t.ok(isWholeText(DOOR_CASES[door].textOf(answer), CHUNKS), name);
        }
      const body = { model: 'other', ...DOOR_CASES[door].body(PROMPT) };
      const answer = await gateway.request(key, { path: DOOR_PATHS[door], body });
      t.equal(answer.status, 400, 'another error of the caller stays one');
      t.match(answer.body, /temperature/);
    });
  t.equal(await gateway.stop(), 0);
});
