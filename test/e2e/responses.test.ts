/**
 * The Responses API by the packages of OpenAI, unmodified: at an upstream that speaks it, and translated to
 * chat completions of each provider. What a call costs is compared with what the mock reports.
 */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import OpenAI from 'openai';
import t from 'tap';
import { decimalOf } from '#src/core/money.js';
import type { Customer } from '../support/admin-client.js';
import { eventually, startGateway } from '../support/gateway.js';
import { startMock, steered, type Mock } from '../support/mock.js';
import { modelAt, PROVIDER_ENV, PROVIDER_MODELS, PROVIDER_PRICE } from '../support/provider-bed.js';
import { isWholeText } from '../support/sse.js';

const CHUNKS = 10;
const PYTHON = 'build/tools/judges-python/bin/python';
/** Pico-units a token, as PROVIDER_PRICE says. */
const PRICES = { input: 1_500_000, cached: 750_000, output: 2_250_000 };
const SCHEMA = {
  type: 'object',
  properties: { text: { type: 'string' } },
  required: ['text'],
  additionalProperties: false,
};
const TOOLS: OpenAI.Responses.Tool[] = ['weather', 'time'].map((name) => ({
  type: 'function',
  name,
  parameters: SCHEMA,
  strict: true,
}));
const PASSED = 'passed';
const AT_OPENAI = 'at-openai';
/** As PASSED, without leave for what the provider runs and stores. */
const GATED = 'gated';
const STORED = ['previous_response_id', 'conversation', 'prompt', 'item_reference', 'hosted_tools'];
/** The tool results and the whole of a conversation go back with each turn: nothing is stored. */
type Items = OpenAI.Responses.ResponseInputItem[];

void t.test('the Responses API', async (t) => {
  const mockArgs = ['--chunks', String(CHUNKS)];
  const openai = await startMock(t, mockArgs);
  const mocks = new Map<string, Mock>([
    [PASSED, openai],
    [AT_OPENAI, openai],
  ]);
  for (const { id, provider } of PROVIDER_MODELS)
    if (['at-anthropic', 'at-gemini', 'at-bedrock'].includes(id))
      mocks.set(id, await startMock(t, ['--provider', provider, ...mockArgs]));
  const signing = new Set(PROVIDER_MODELS.filter((model) => model.signsThinking).map(({ id }) => id));
  const plain = (id: string, more: object): object => ({
    id,
    price: PROVIDER_PRICE,
    max_output_tokens: 8_000,
    pass_members: STORED,
    upstreams: [{ url: openai.url, ...more }],
  });
  const gateway = await startGateway(t, {
    config: {
      models: [
        plain(PASSED, { speaks: ['responses'] }),
        { ...plain(GATED, { speaks: ['responses'] }), pass_members: [] },
        plain(AT_OPENAI, {}),
        ...PROVIDER_MODELS.filter(({ id }) => mocks.has(id)).map((model) =>
          modelAt(model, mocks.get(model.id)!.origin),
        ),
      ],
      plans: [
        { id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000 },
        { id: 'one-a-minute', requests_per_minute: 1, calls_per_day: 1_000 },
      ],
    },
    env: PROVIDER_ENV,
  });
  const clientOf = ({ key }: Pick<Customer, 'key'>, maxRetries = 0): OpenAI =>
    new OpenAI({ apiKey: key, baseURL: `${gateway.url}/v1`, maxRetries });
  const customer = await gateway.admin.customer({ plan: 'ample', credit: '1000.00' });
  const client = clientOf(customer);

  for (const model of mocks.keys()) {
    await t.test(`${model}: whole, stream, a schema`, async (t) => {
      const whole = await client.responses.create({ model, input: 'Hello', metadata: { a: 'b' } });
      t.match(whole, { object: 'response', status: 'completed', usage: { input_tokens: 2 } });
      t.ok(isWholeText(whole.output_text, CHUNKS), whole.output_text);
      const stream = client.responses.stream({ model, input: 'Hello' });
      let text = '';
      stream.on('response.output_text.delta', ({ delta }) => (text += delta));
      const last = await stream.finalResponse();
      t.equal(text, whole.output_text, 'the deltas');
      t.equal(last.output_text, text);
      t.same(last.usage, whole.usage, 'the same usage');
      const created = await client.responses.create({ model, input: 'Hello', stream: true });
      const types: string[] = [];
      for await (const event of created) types.push(event.type);
      t.equal(types[0], 'response.created');
      t.equal(types.at(-1), 'response.completed');
      const { output } = await client.responses.create({
        model,
        input: [{ role: 'user', content: steered('finish=length') }],
      });
      t.ok(output.length > 0);
      const parsed = await client.responses.parse({
        model,
        input: steered('echo=1'),
        text: { format: { type: 'json_schema', name: 'answer', strict: true, schema: SCHEMA } },
      });
      t.match(parsed.output_parsed, { body: /additionalProperties/ }, 'the text is parsed');
      const called = await client.responses.parse({ model, input: steered('tool_calls=1'), tools: TOOLS });
      const call = called.output.find((item) => item.type === 'function_call');
      t.match(call, { parsed_arguments: { text: /./ } }, 'arguments are parsed');
    });

    await t.test(`${model}: tools over two turns, with reasoning`, async (t) => {
      for (const isStream of [false, true]) {
        const input: Items = [
          {
            role: 'user',
            content: steered('tool_calls=2&thinking_bytes=60', 'What is the weather, and when?'),
          },
        ];
        const ask = async (): Promise<OpenAI.Responses.Response> => {
          const body = {
            model,
            input,
            tools: TOOLS,
            store: false,
            include: ['reasoning.encrypted_content' as const],
          };
          return isStream
            ? client.responses.stream(body).finalResponse()
            : client.responses.create({ ...body, stream: false });
        };
        const first = await ask();
        const calls = first.output.filter((item) => item.type === 'function_call');
        t.same(
          calls.map(({ name }) => name),
          ['weather', 'time'],
        );
        for (const call of calls) t.type(JSON.parse(call.arguments), 'object');
        const reasoning = first.output.find((item) => item.type === 'reasoning');
        t.match(reasoning, { summary: [{ type: 'summary_text', text: /^w0 / }] });
        input.push(...(first.output as Items));
        for (const { call_id: id } of calls)
          input.push({ type: 'function_call_output', call_id: id, output: `of ${id}` });
        const second = await ask();
        t.ok(isWholeText(second.output_text, CHUNKS), second.output_text);
        const sent = (await mocks.get(model)!.stats()).last!.body;
        for (const { call_id: id } of calls) t.match(sent, `of ${id}`, 'each result');
        if (signing.has(model)) t.match(sent, /"signature":"[^"]+"/, 'the signature goes back');
      }
    });

    await t.test(`${model}: usage and money`, async (t) => {
      const payer = await gateway.admin.customer({ plan: 'ample', credit: '100.00' });
      const paying = clientOf(payer).responses;
      const input = steered('prompt_tokens=100&cached_tokens=30&completion_tokens=40');
      let spent = 0;
      for (const stream of [false, true]) {
        const { usage } = stream
          ? await paying.stream({ model, input }).finalResponse()
          : await paying.create({ model, input });
        t.match(usage, {
          input_tokens: 100,
          input_tokens_details: { cached_tokens: 30 },
          output_tokens: 40,
          total_tokens: 140,
        });
        spent += 70 * PRICES.input + 30 * PRICES.cached + 40 * PRICES.output;
        const account = await eventually('nothing held', async () => {
          const view = await gateway.admin.account(payer.accountId);
          return view.held === '0.00' ? view : undefined;
        });
        t.equal(account.spent, decimalOf(BigInt(spent)), `to the pico-unit, stream ${stream}`);
      }
      await paying.create({ model, input: steered('usage=missing') });
      await paying.stream({ model, input: steered('usage=missing') }).finalResponse();
      const counted = await eventually('nothing held', async () => {
        const view = await gateway.admin.account(payer.accountId);
        return view.held === '0.00' ? view : undefined;
      });
      t.ok(Number(counted.spent) > Number(decimalOf(BigInt(spent))), 'without a report tokens are counted');
    });

    await t.test(`${model}: errors`, async (t) => {
      const create = (input: string): Promise<unknown> => client.responses.create({ model, input });
      await t.rejects(create(steered('status=400')), {
        constructor: OpenAI.BadRequestError,
        code: 'invalid_parameters',
      });
      await t.rejects(create(steered('status=500')), {
        constructor: OpenAI.InternalServerError,
        status: 502,
        code: 'provider_unavailable',
      });
      await t.rejects(create(steered('fault=broken-json')), { status: 502, code: 'provider_unavailable' });
      for (const fault of ['error-event', 'reset-mid', 'broken-sse'])
        await t.rejects(
          client.responses.stream({ model, input: steered(`fault=${fault}&chunk_ms=5`) }).finalResponse(),
          { constructor: OpenAI.APIError, code: 'provider_unavailable' },
          fault,
        );
    });
  }

  await t.test('what passes byte for byte, and what only that upstream can say', async (t) => {
    const hosted = { input: 'Hello', tools: [{ type: 'web_search' as const }] };
    await client.responses.create({ model: PASSED, ...hosted, previous_response_id: 'resp_1', store: true });
    t.same(JSON.parse((await openai.stats()).last!.body), {
      model: PASSED,
      ...hosted,
      previous_response_id: 'resp_1',
      store: true,
    });
    const cases = {
      ...{ previous_response_id: 'resp_1', conversation: 'conv_1', store: true },
      prompt: { id: 'p' },
    };
    for (const [name, value] of Object.entries(cases))
      await t.rejects(
        client.responses.create({ model: AT_OPENAI, input: 'Hello', [name]: value }),
        { status: 400, code: 'invalid_parameters', message: new RegExp(name) },
        name,
      );
    await t.rejects(client.responses.create({ model: AT_OPENAI, ...hosted }), {
      status: 400,
      message: /tools\[0\]\.type/,
    });
    for (const [name, value] of Object.entries({
      ...{ previous_response_id: 'resp_1', conversation: 'conv_1', prompt: { id: 'p' } },
      item_reference: [{ type: 'item_reference', id: 'msg_1' }],
      hosted_tools: [{ type: 'mcp', server_label: 'x' }],
    })) {
      const member = name === 'item_reference' ? 'input' : name === 'hosted_tools' ? 'tools' : name;
      await t.rejects(
        client.responses.create({ model: GATED, input: 'Hello', [member]: value }),
        { status: 400, message: new RegExp(`${name}.*pass_members`) },
        `${name}: the provider's to bill or to tell`,
      );
    }
    const tools = [{ type: 'local_shell' as const }, ...TOOLS];
    await client.responses.create({ model: GATED, input: 'Hello', tools, store: true });
    for (const model of [PASSED, AT_OPENAI])
      await t.rejects(client.responses.create({ model, input: 'Hello', background: true }), {
        status: 400,
        message: /background/,
      });
  });

  await t.test('refusals as classes', async (t) => {
    const create = (from: OpenAI): Promise<unknown> =>
      from.responses.create({ model: AT_OPENAI, input: 'Hello' });
    await t.rejects(create(clientOf({ key: `sk-${'A'.repeat(43)}` })), {
      constructor: OpenAI.AuthenticationError,
      code: 'invalid_api_key',
    });
    const poor = await gateway.admin.customer({ plan: 'ample', credit: '0' });
    await t.rejects(create(clientOf(poor)), {
      constructor: OpenAI.PermissionDeniedError,
      code: 'insufficient_quota',
    });
    await t.rejects(client.responses.create({ model: AT_OPENAI, input: 'x', temperature: 3 }), {
      constructor: OpenAI.BadRequestError,
      message: /temperature must be/,
    });
    const slow = clientOf(await gateway.admin.customer({ plan: 'one-a-minute' }));
    await create(slow);
    await t.rejects(create(slow), { constructor: OpenAI.RateLimitError, code: 'rate_limit_exceeded' });
  });

  await t.test('the package retries what the gateway could not get', async (t) => {
    let calls = 0;
    const patient = new OpenAI({
      apiKey: customer.key,
      baseURL: `${gateway.url}/v1`,
      maxRetries: 1,
      fetch: (input, init) => {
        calls++;
        return fetch(input, init);
      },
    });
    await t.rejects(patient.responses.create({ model: PASSED, input: steered('status=500') }), {
      status: 502,
      code: 'provider_unavailable',
    });
    t.equal(calls, 2);
  });

  await t.test(
    'the Python package',
    { skip: existsSync(PYTHON) ? false : 'no Python of the judges: test/setup-tools.sh judges' },
    (t) => {
      const run = spawnSync(
        PYTHON,
        ['test/judges/responses_client.py', `${gateway.url}/v1`, customer.key, PASSED, AT_OPENAI],
        {
          encoding: 'utf8',
          timeout: 120_000,
        },
      );
      t.equal(run.status, 0, run.stderr.slice(-2_000));
      t.equal(run.stdout.trim(), 'ok');
      t.end();
    },
  );

  t.equal(await gateway.stop(), 0);
});
