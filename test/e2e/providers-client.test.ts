/**
 * The package `openai`, unmodified, as the client of models at other providers, each behind its mock: chat,
 * streams, tools over two turns with their thinking, schemas, images, errors, and what all of it costs.
 */
import OpenAI from 'openai';
import t, { type Test } from 'tap';
import { decimalOf } from '#src/core/money.js';
import type { AccountView, Customer } from '../support/admin-client.js';
import { joinedChat } from '../support/chat-joiner.js';
import { eventually } from '../support/gateway.js';
import { steered } from '../support/mock.js';
import { PROVIDER_MODELS, SECRET, startProviderBed, type ProviderModel } from '../support/provider-bed.js';
import { isWholeText } from '../support/sse.js';

const CHUNKS = 10;
const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const TOOLS: OpenAI.ChatCompletionTool[] = ['weather', 'time'].map((name) => ({
  type: 'function',
  function: { name, parameters: { type: 'object', properties: { city: { type: 'string' } } } },
}));
/** Pico-units a token, as PROVIDER_PRICE says. */
const PRICES = { input: 1_500_000, cached: 750_000, written: 3_500_000, hour: 4_750_000, output: 2_250_000 };

type Messages = OpenAI.ChatCompletionMessageParam[];
const ask = (content: string): Messages => [{ role: 'user', content }];

void t.test('the openai package with other providers', async (t) => {
  const { gateway, mocks } = await startProviderBed(t, {}, ['--chunks', String(CHUNKS)]);
  const received: string[] = [];
  const clientOf = (customer: Customer): OpenAI =>
    new OpenAI({
      apiKey: customer.key,
      baseURL: `${gateway.url}/v1`,
      maxRetries: 0,
      fetch: async (input, init) => {
        const answer = await fetch(input, init);
        received.push(JSON.stringify([...answer.headers]), await answer.clone().text());
        return answer;
      },
    });
  const customer = await gateway.admin.customer();
  const client = clientOf(customer);

  const streamed = async (
    body: Omit<OpenAI.ChatCompletionCreateParamsStreaming, 'stream' | 'stream_options'>,
  ): Promise<ReturnType<typeof joinedChat>> => {
    const chunks: object[] = [];
    const stream = await client.chat.completions.create({
      ...body,
      stream: true,
      stream_options: { include_usage: true },
    });
    for await (const chunk of stream) chunks.push(chunk);
    return joinedChat(chunks);
  };

  const lastBody = async ({ id }: ProviderModel): Promise<string> =>
    (await mocks.get(id)!.stats()).last!.body;

  /** The client's loop: calls, their results, and the answer to them. */
  async function talkWithTools(t: Test, model: ProviderModel, isStream: boolean): Promise<void> {
    const messages = ask(steered('tool_calls=2&thinking_bytes=60', 'What is the weather, and when?'));
    const body = { model: model.id, messages, tools: TOOLS };
    const first = isStream
      ? await streamed(body)
      : await client.chat.completions
          .create(body)
          .then(({ choices: [choice] }) => ({ message: choice!.message, finish: choice!.finish_reason }));
    t.equal(first.finish, 'tool_calls');
    const message = first.message as unknown as OpenAI.ChatCompletionMessage & {
      thinking_blocks?: { signature: string; thinking: string }[];
    };
    const calls = message.tool_calls!;
    t.same(
      calls.map((call) => 'function' in call && call.function.name),
      ['weather', 'time'],
    );
    t.equal(new Set(calls.map(({ id }) => id)).size, 2, 'each has an id');
    for (const call of calls) if ('function' in call) t.type(JSON.parse(call.function.arguments), 'object');
    if (model.signsThinking) {
      t.match(message.thinking_blocks, [{ thinking: /./, signature: /./ }]);
    }
    const results: Messages = calls.map(({ id }) => ({
      role: 'tool',
      tool_call_id: id,
      content: `of ${id}`,
    }));
    const next = { ...body, messages: [...messages, message, ...results] };
    const second = isStream
      ? await streamed(next)
      : await client.chat.completions
          .create(next)
          .then(({ choices: [choice] }) => ({ message: choice!.message, finish: choice!.finish_reason }));
    t.equal(second.finish, 'stop');
    t.ok(isWholeText((second.message as { content: string }).content, CHUNKS), 'a text');
    const sent = await lastBody(model);
    for (const { id } of calls) t.match(sent, `of ${id}`, 'each result');
    for (const { signature, thinking } of message.thinking_blocks ?? []) {
      t.match(sent, JSON.stringify(signature), 'the signature goes back');
      t.match(sent, JSON.stringify(thinking), 'and what it signs');
    }
  }

  for (const model of PROVIDER_MODELS) {
    const { id } = model;

    await t.test(`${id}: whole and stream`, async (t) => {
      const whole = await client.chat.completions.create({ model: id, messages: ask('Hello') });
      t.match(whole, {
        object: 'chat.completion',
        model: model.model.replace(/@.*/, ''),
        id: /./,
        choices: [{ finish_reason: 'stop' }],
      });
      t.ok(isWholeText(whole.choices[0]!.message.content!, CHUNKS), JSON.stringify(whole));
      const joined = await streamed({ model: id, messages: ask('Hello') });
      t.equal(joined.message.content, whole.choices[0]!.message.content);
      t.equal(joined.finish, 'stop');
      t.same(joined.usage, whole.usage, 'the same usage');
      t.equal(joined.model, whole.model);
    });

    await t.test(`${id}: tools over two turns`, async (t) => {
      await talkWithTools(t, model, false);
      await talkWithTools(t, model, true);
    });

    await t.test(`${id}: a schema, an image, ends`, async (t) => {
      const schema = {
        type: 'object',
        properties: { name: { type: 'string' } },
        required: ['name'],
        additionalProperties: false,
      };
      const structured = await client.chat.completions.create({
        model: id,
        messages: ask('Hello'),
        response_format: { type: 'json_schema', json_schema: { name: 'person', strict: true, schema } },
      });
      t.type(structured.choices[0]!.message.content, 'string');
      t.equal(structured.choices[0]!.finish_reason, 'stop');
      t.match(await lastBody(model), 'additionalProperties');
      await client.chat.completions.create({
        model: id,
        messages: [
          {
            role: 'user',
            content: [
              { type: 'text', text: 'What is this?' },
              { type: 'image_url', image_url: { url: `data:image/png;base64,${PIXEL}` } },
            ],
          },
        ],
      });
      t.match(await lastBody(model), PIXEL);
      for (const finish of ['length', 'content_filter']) {
        const { choices } = await client.chat.completions.create({
          model: id,
          messages: ask(steered(`finish=${finish}`)),
        });
        t.equal(choices[0]!.finish_reason, finish);
        const joined = await streamed({ model: id, messages: ask(steered(`finish=${finish}`)) });
        t.equal(joined.finish, finish, 'in a stream');
      }
    });

    await t.test(`${id}: usage and money`, async (t) => {
      const payer = await gateway.admin.customer({ credit: '100.00' });
      const paying = clientOf(payer);
      // Written to the cache only where the provider reports that.
      const writes = model.signsThinking;
      const query = `prompt_tokens=100&cached_tokens=30&completion_tokens=40${
        writes ? '&cache_write_tokens=20&cache_write_hour_tokens=7' : ''
      }`;
      let spent = 0;
      for (const stream of [false, true]) {
        const messages = ask(steered(query));
        let usage: unknown;
        if (stream) {
          const events = await paying.chat.completions.create({
            model: id,
            messages,
            stream,
            stream_options: { include_usage: true },
          });
          for await (const chunk of events) usage = chunk.usage ?? usage;
        } else ({ usage } = await paying.chat.completions.create({ model: id, messages }));
        const { prompt_tokens: prompt, prompt_tokens_details: parts } = usage as {
          prompt_tokens: number;
          prompt_tokens_details: Record<string, number | undefined>;
        };
        t.match(usage, { completion_tokens: 40, prompt_tokens_details: { cached_tokens: 30 } });
        const written = parts.cache_write_tokens ?? 0;
        const hour = parts.cache_write_1h_tokens ?? 0;
        t.same([written, hour], writes ? [27, 7] : [0, 0], JSON.stringify(usage));
        t.equal(prompt, 100, JSON.stringify(usage));
        const fresh = prompt - 30 - written;
        spent +=
          fresh * PRICES.input +
          30 * PRICES.cached +
          (written - hour) * PRICES.written +
          hour * PRICES.hour +
          40 * PRICES.output;
        const account: AccountView = await eventually('nothing held', async () => {
          const view = await gateway.admin.account(payer.accountId);
          return view.held === '0.00' ? view : undefined;
        });
        t.equal(account.spent, decimalOf(BigInt(spent)), `to the pico-unit, stream ${stream}`);
      }
    });

    await t.test(`${id}: errors`, async (t) => {
      const create = (content: string, more: object = {}): Promise<unknown> =>
        client.chat.completions.create({ model: id, messages: ask(content), ...more });
      if (model.provider !== 'azure')
        await t.rejects(create('Hello', { a_member_of_tomorrow: 1 }), {
          status: 400,
          code: 'invalid_parameters',
          message: /a_member_of_tomorrow/,
        });
      for (const status of [400, 413])
        await t.rejects(create(steered(`status=${status}`)), { status: 400, code: 'invalid_parameters' });
      for (const status of [401, 403, 404, 429, 500, 503, 529])
        await t.rejects(
          create(steered(`status=${status}`)),
          { status: 502, code: 'provider_unavailable' },
          String(status),
        );
      for (const fault of ['broken-json', 'wrong-type', 'empty', 'reset-before', 'reset-mid'])
        await t.rejects(
          create(steered(`fault=${fault}`)),
          { status: 502, code: 'provider_unavailable' },
          fault,
        );
      for (const fault of ['error-first', 'empty'])
        await t.rejects(
          streamed({ model: id, messages: ask(steered(`fault=${fault}`)) }),
          { status: 502, code: 'provider_unavailable' },
          fault,
        );
      for (const fault of ['error-event', 'reset-mid', 'broken-sse'])
        await t.rejects(
          streamed({ model: id, messages: ask(steered(`fault=${fault}&chunk_ms=5`)) }),
          { code: 'provider_unavailable' },
          fault,
        );
    });
  }

  t.notMatch(received.join('\n'), SECRET, 'no key, token or project reached the caller');
  t.notMatch(received.join('\n'), /127\.0\.0\.1:\d|arn:aws/, 'nor an address or an ARN');
  t.equal(await gateway.stop(), 0);
  t.notMatch(gateway.log().join('\n'), SECRET, 'nor the log');
});
