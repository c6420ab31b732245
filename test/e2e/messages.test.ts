/**
 * The package `@anthropic-ai/sdk`, unmodified, at `POST /v1/messages`: at upstreams that speak it and at
 * those for which the gateway translates. Whole, stream, tools over two turns, errors, and what it costs.
 */
import Anthropic from '@anthropic-ai/sdk';
import t from 'tap';
import { decimalOf, picoUnitsOf } from '#src/core/money.js';
import { eventually } from '../support/gateway.js';
import { steered } from '../support/mock.js';
import { PROVIDER_MODELS, SECRET, startProviderBed, type ProviderModel } from '../support/provider-bed.js';
import { isWholeText } from '../support/sse.js';

const CHUNKS = 10;
/** Pico-units a token, as PROVIDER_PRICE says. */
const PRICES = { input: 1_500_000, cached: 750_000, written: 3_500_000, hour: 4_750_000, output: 2_250_000 };
const CALL_PRICE = 3_000_000;
const TOOLS: Anthropic.Tool[] = [{ name: 'weather', input_schema: { type: 'object', properties: {} } }];

/** Bedrock counts tokens for names of models, not for those of profiles. */
const MORE_MODELS: readonly ProviderModel[] = [
  { id: 'at-openai', provider: 'openai', model: 'gpt-5', upstream: {}, signsThinking: false },
  {
    ...PROVIDER_MODELS.find(({ provider }) => provider === 'bedrock')!,
    id: 'counting-bedrock',
    model: 'anthropic.claude-haiku-4-5-20251001-v1:0',
    price: { call: '0.000003' },
  },
];
/** Of `Hello`: by the mocks, which count four bytes a token, and by the gateway. */
const HELLO_TOKENS = { there: 2, here: 8 };

const ask = (content: string): Anthropic.MessageParam[] => [{ role: 'user', content }];

const textOf = ({ content }: Anthropic.Message): string =>
  content.map((block) => (block.type === 'text' ? block.text : '')).join('');

void t.test('the anthropic package', async (t) => {
  const { gateway, mocks } = await startProviderBed(t, {}, ['--chunks', String(CHUNKS)], MORE_MODELS);
  const received: string[] = [];
  const clientOf = (key: string): Anthropic =>
    new Anthropic({
      apiKey: key,
      baseURL: gateway.url,
      maxRetries: 0,
      fetch: async (input, init) => {
        const answer = await fetch(input, init);
        received.push(JSON.stringify([...answer.headers]), await answer.clone().text());
        return answer;
      },
    });
  const customer = await gateway.admin.customer();
  const client = clientOf(customer.key);

  for (const { id, provider, model, signsThinking, price } of [...PROVIDER_MODELS, ...MORE_MODELS]) {
    const passes = provider === 'anthropic' || provider === 'bedrock' || id === 'claude-at-vertex';
    const counts = passes && !model.startsWith('us.');
    const base = { model: id, max_tokens: 2_000 };

    await t.test(`${id}: whole and stream`, async (t) => {
      const { data: whole, response } = await client.messages
        .create({ ...base, messages: ask('Hello') })
        .withResponse();
      t.match(whole, { type: 'message', role: 'assistant', stop_reason: 'end_turn', id: /./ });
      t.ok(isWholeText(textOf(whole), CHUNKS), JSON.stringify(whole));
      t.match(response.headers.get('request-id'), /^req_/);
      const resetMs = Date.parse(response.headers.get('anthropic-ratelimit-requests-reset')!) - Date.now();
      t.ok(resetMs > 0 && resetMs <= 63_000, `${resetMs} ms ahead`);
      const joined = await client.messages.stream({ ...base, messages: ask('Hello') }).finalMessage();
      t.equal(textOf(joined), textOf(whole));
      t.equal(joined.stop_reason, 'end_turn');
      t.match(joined.usage, {
        input_tokens: whole.usage.input_tokens,
        output_tokens: whole.usage.output_tokens,
      });
      if (provider === 'gemini' || id === 'gemini-at-vertex') {
        const events = await client.messages.create({ ...base, messages: ask('Hello'), stream: true });
        const read = [];
        for await (const event of events) read.push(event);
        const input = whole.usage.input_tokens;
        t.match(read[0], { message: { usage: { input_tokens: input } } }, 'what Google tells by then');
        t.match(read.at(-2), { usage: { input_tokens: input, output_tokens: whole.usage.output_tokens } });
      }
      const { stop_reason: stop } = await client.messages.create({
        ...base,
        messages: ask(steered('finish=length')),
      });
      t.equal(stop, 'max_tokens');
    });

    await t.test(`${id}: tools over two turns`, async (t) => {
      const messages = ask(steered('tool_calls=1&thinking_bytes=60', 'What is the weather?'));
      for (const isStream of [false, true]) {
        const say = (body: Anthropic.MessageCreateParamsNonStreaming): Promise<Anthropic.Message> =>
          isStream ? client.messages.stream(body).finalMessage() : client.messages.create(body);
        const first = await say({ ...base, messages, tools: TOOLS });
        t.equal(first.stop_reason, 'tool_use');
        const call = first.content.find((block) => block.type === 'tool_use')!;
        t.match(call, { name: 'weather', id: /./ });
        t.type(call.input, 'object');
        const thought = first.content.find((block) => block.type === 'thinking');
        if (signsThinking) t.match(thought, { thinking: /./, signature: /./ });
        const second = await say({
          ...base,
          tools: TOOLS,
          messages: [
            ...messages,
            { role: 'assistant', content: first.content },
            { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content: 'it rains' }] },
          ],
        });
        t.equal(second.stop_reason, 'end_turn');
        t.ok(isWholeText(textOf(second), CHUNKS), 'a text');
        const { last } = await mocks.get(id)!.stats();
        t.match(last!.body, 'it rains');
        if (thought?.type === 'thinking' && thought.signature !== '')
          t.match(last!.body, JSON.stringify(thought.signature), 'the signature goes back');
      }
    });

    await t.test(`${id}: usage and money`, async (t) => {
      const payer = await gateway.admin.customer({ credit: '100.00' });
      const paying = clientOf(payer.key);
      const query = `prompt_tokens=100&cached_tokens=30&completion_tokens=40${
        signsThinking ? '&cache_write_tokens=20&cache_write_hour_tokens=7' : ''
      }`;
      let spent = 0;
      for (const isStream of [false, true]) {
        const body = { ...base, messages: ask(steered(query)) };
        const { usage } = isStream
          ? await paying.messages.stream(body).finalMessage()
          : await paying.messages.create(body);
        const written = usage.cache_creation_input_tokens ?? 0;
        // The package takes these parts from message_start alone, before a translation knows them.
        const isTold = passes || !isStream;
        const told = usage.cache_creation?.ephemeral_1h_input_tokens ?? 0;
        const hour = isTold ? told : signsThinking ? 7 : 0;
        t.same([written, hour], signsThinking ? [27, 7] : [0, 0], JSON.stringify(usage));
        t.match(usage, { input_tokens: 70 - written, cache_read_input_tokens: 30, output_tokens: 40 });
        spent +=
          (70 - written) * PRICES.input +
          30 * PRICES.cached +
          (written - hour) * PRICES.written +
          hour * PRICES.hour +
          40 * PRICES.output +
          (price === undefined ? 0 : CALL_PRICE);
      }
      const account = await eventually('nothing held', async () => {
        const view = await gateway.admin.account(payer.accountId);
        return view.spent === decimalOf(BigInt(spent)) ? view : undefined;
      });
      t.equal(account.spent, decimalOf(BigInt(spent)), 'to the pico-unit');
    });

    await t.test(`${id}: bytes and headers`, { skip: !passes }, async (t) => {
      const messages: Anthropic.MessageParam[] = [
        { role: 'user', content: [{ type: 'text', text: 'é “x”', cache_control: { type: 'ephemeral' } }] },
      ];
      const foreign = 'claude-code-20250219';
      const betas = `context-1m-2025-08-07, ${foreign}`;
      await client.messages.create({ ...base, messages }, { headers: { 'anthropic-beta': betas } });
      const { last } = await mocks.get(id)!.stats();
      t.match(last!.body, JSON.stringify(messages), 'the messages are as they were sent');
      t.match(JSON.stringify(last), 'context-1m-2025-08-07', 'the beta goes along');
      // Bedrock and Vertex refuse names that they do not know.
      const isTold = JSON.stringify(last).includes(foreign);
      t.equal(isTold, provider === 'anthropic', 'a beta of Anthropic alone');
    });

    await t.test(`${id}: tokens are counted at no cost`, async (t) => {
      const payer = await gateway.admin.customer({ credit: '0.00' });
      // Neither tokens nor the price of a call.
      const body = { model: id, messages: ask('Hello') };
      const { data, response } = await clientOf(payer.key).messages.countTokens(body).withResponse();
      t.same(data, { input_tokens: counts ? HELLO_TOKENS.there : HELLO_TOKENS.here });
      t.equal(response.headers.get('anthropic-ratelimit-requests-remaining'), '999999', 'of the minute');
      const view = await gateway.admin.account(payer.accountId);
      t.match(view, { spent: '0', held: '0' });
      t.equal((await gateway.admin.account(payer.accountId)).calls_today, 0, 'no call of the day');
      const failed = await clientOf(payer.key).messages.countTokens({
        ...body,
        messages: ask(steered('status=503', 'Hello')),
      });
      t.ok(failed.input_tokens > 5, 'what a provider cannot tell is counted here');
      const large = 'a word '.repeat(40_000);
      const { input_tokens: many } = await clientOf(payer.key).messages.countTokens({
        ...body,
        messages: ask(large),
      });
      t.ok(many > 60_000 && many < 100_000, `${many} tokens`);
      const row = await eventually('all of them in the usage', async () => {
        const row = await gateway.admin.usageOf(payer.accountId);
        return row?.calls === 3 ? row : undefined;
      });
      t.match(row, { prompt_tokens: 0, completion_tokens: 0 }, 'calls without tokens');
      t.equal(picoUnitsOf(row.cost), 0n);
    });
  }

  await t.test('errors as the package’s classes', async (t) => {
    const messages = ask('Hello');
    const failure = async (run: Promise<unknown>): Promise<unknown> => run.catch((error: unknown) => error);
    const body = { model: 'at-anthropic', max_tokens: 9, messages };
    t.ok(
      (await failure(clientOf('sk-wrong').messages.create(body))) instanceof Anthropic.AuthenticationError,
    );
    const unknown = await failure(client.messages.create({ ...body, model: 'none' }));
    t.ok(unknown instanceof Anthropic.NotFoundError);
    t.match(unknown, { error: { type: 'error', error: { type: 'not_found_error' }, request_id: /^req_/ } });
    const wrong = await failure(client.messages.create({ ...body, ...({ temperature: 3 } as object) }));
    t.ok(wrong instanceof Anthropic.BadRequestError);
    t.match(wrong, /temperature must be a number between 0 and 1/);
    const hosted: Anthropic.ToolUnion[] = [{ type: 'web_search_20250305', name: 'web_search' }];
    t.ok(
      (await failure(client.messages.create({ ...body, tools: hosted }))) instanceof
        Anthropic.BadRequestError,
    );
    const uncounted = { model: 'at-openai', messages: [], ...({ system: 3 } as object) };
    t.match(await failure(client.messages.countTokens(uncounted)), /messages must have at least 1 item/);
    const refused = ask(steered('status=400'));
    t.ok(
      (await failure(client.messages.create({ ...body, messages: refused }))) instanceof
        Anthropic.BadRequestError,
    );
    const failed = ask(steered('status=500'));
    t.match(await failure(client.messages.create({ ...body, messages: failed })), { status: 502 });
  });

  t.notMatch(received.join('\n'), SECRET, 'no secret came to the caller');
});
