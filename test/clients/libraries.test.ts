/**
 * The AI SDK, LangChain and LlamaIndex, unmodified, over the doors: whole, streamed, a tool over two turns,
 * errors with their status, and embeddings. What they report as usage is what the books have.
 */
import t from 'tap';
import { eventually, startGateway } from '../support/gateway.js';
import { startMock, steered } from '../support/mock.js';
import { isWholeText } from '../support/sse.js';
import { installed, WANTS_CLIENTS } from './installed.js';

const CHUNKS = 10;
const TOOL_SCHEMA = { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] };
const TOOL_PROMPT = steered('tool_calls=1', 'Hello');
/** The mock refuses the call. */
const BAD_PROMPT = steered('status=400', 'Hello');

/** What an error of a library must have. */
const refusal = (member: string, status: number): Error => ({ [member]: status }) as unknown as Error;

interface Tokens {
  readonly input: number;
  readonly output: number;
}

/** What one library does over one door. */
interface Client {
  whole(): Promise<Tokens & { readonly text: string }>;
  stream(): Promise<Tokens & { readonly text: string }>;
  /** Two calls: the model calls a tool, gets its result and says something. */
  tool(): Promise<Tokens & { readonly text: string; readonly argument: string }>;
  fail(): Promise<unknown>;
  /** The member of the error that has the status. */
  readonly statusMember: string;
}

interface AiUsage {
  readonly inputTokens: number;
  readonly outputTokens: number;
}
interface AiSdk {
  generateText: (options: object) => Promise<{ text: string; totalUsage: AiUsage }>;
  streamText: (options: object) => {
    readonly textStream: AsyncIterable<string>;
    readonly totalUsage: Promise<AiUsage>;
  };
  embed: (options: object) => Promise<{ embedding: number[]; usage: { tokens: number } }>;
  stepCountIs: (steps: number) => unknown;
  jsonSchema: (schema: object) => unknown;
}
interface AiOpenAi {
  chat(model: string): object;
  responses(model: string): object;
  embedding(model: string): object;
}

const tokensOf = ({ inputTokens, outputTokens }: AiUsage): Tokens => ({
  input: inputTokens,
  output: outputTokens,
});

function aiClient(model: object): Client {
  const { generateText, streamText, stepCountIs, jsonSchema } = installed<AiSdk>('ai');
  // Else it refers to items of earlier responses by their ids, which upstreams that speak chat don't store.
  const plain = { model, maxRetries: 0, providerOptions: { openai: { store: false } } };
  return {
    statusMember: 'statusCode',
    async whole() {
      const { text, totalUsage } = await generateText({ ...plain, prompt: 'Hello' });
      return { text, ...tokensOf(totalUsage) };
    },
    async stream() {
      const { textStream, totalUsage } = streamText({ ...plain, prompt: 'Hello' });
      let text = '';
      for await (const piece of textStream) text += piece;
      return { text, ...tokensOf(await totalUsage) };
    },
    async tool() {
      let argument = '';
      const execute = (input: { text: string }): string => ((argument = input.text), 'sunny');
      const weather = { description: 'Weather', inputSchema: jsonSchema(TOOL_SCHEMA), execute };
      const tools = { weather };
      const { text, totalUsage } = await generateText({
        ...plain,
        prompt: TOOL_PROMPT,
        tools,
        stopWhen: stepCountIs(3),
      });
      return { text, argument, ...tokensOf(totalUsage) };
    },
    fail: () => generateText({ ...plain, prompt: BAD_PROMPT }),
  };
}

interface ChainMessage {
  readonly text: string;
  readonly tool_calls: readonly { readonly id: string; readonly args: { readonly text: string } }[];
  readonly usage_metadata?: { readonly input_tokens: number; readonly output_tokens: number };
  concat(other: ChainMessage): ChainMessage;
}
interface Chain {
  invoke(messages: unknown): Promise<ChainMessage>;
  stream(messages: unknown): Promise<AsyncIterable<ChainMessage>>;
  bindTools(tools: readonly object[]): Chain;
}

function chainClient(chain: Chain): Client {
  const used = ({ text, usage_metadata: usage }: ChainMessage): Tokens & { text: string } => ({
    text,
    input: usage!.input_tokens,
    output: usage!.output_tokens,
  });
  return {
    statusMember: 'status',
    whole: async () => used(await chain.invoke('Hello')),
    async stream() {
      let sum: ChainMessage | undefined;
      for await (const chunk of await chain.stream('Hello')) sum = sum?.concat(chunk) ?? chunk;
      return used(sum!);
    },
    async tool() {
      const { ToolMessage, HumanMessage } = installed<{
        ToolMessage: new (fields: object) => object;
        HumanMessage: new (text: string) => object;
      }>('@langchain/core/messages');
      const weather = { name: 'weather', description: 'Weather', parameters: TOOL_SCHEMA };
      const bound = chain.bindTools([{ type: 'function', function: weather }]);
      const asked = new HumanMessage(TOOL_PROMPT);
      const called = await bound.invoke([asked]);
      const [{ id, args }] = called.tool_calls as [ChainMessage['tool_calls'][number]];
      const result = new ToolMessage({ content: 'sunny', tool_call_id: id });
      const last = used(await bound.invoke([asked, called, result]));
      const first = used(called);
      return {
        text: last.text,
        argument: args.text,
        input: first.input + last.input,
        output: first.output + last.output,
      };
    },
    fail: () => chain.invoke(BAD_PROMPT),
  };
}

interface IndexResponse {
  readonly message: {
    readonly content: string | readonly { readonly text: string }[];
    readonly options: { readonly toolCall: readonly { readonly id: string; readonly input: string }[] };
  };
  readonly raw: { readonly usage: Readonly<Record<string, number>> };
}
interface IndexChunk {
  readonly delta: string;
  readonly raw: { readonly type?: string };
}
interface IndexLlm {
  chat(options: { readonly stream: true; readonly messages: object[] }): Promise<AsyncIterable<IndexChunk>>;
  chat(options: { readonly messages: object[]; readonly tools?: object[] }): Promise<IndexResponse>;
}

function indexClient(llm: IndexLlm): Client {
  const said = ({ message: { content }, raw }: IndexResponse): Tokens & { text: string } => ({
    text: typeof content === 'string' ? content : content.map(({ text }) => text).join(''),
    input: (raw.usage.input_tokens ?? raw.usage.prompt_tokens)!,
    output: (raw.usage.output_tokens ?? raw.usage.completion_tokens)!,
  });
  const ask = (text: string): object => ({ role: 'user', content: text });
  return {
    statusMember: 'status',
    whole: async () => said(await llm.chat({ messages: [ask('Hello')] })),
    async stream() {
      let text = '';
      for await (const { delta, raw } of await llm.chat({ messages: [ask('Hello')], stream: true })) {
        // By Responses, chunks of events without a text repeat the last one.
        if (raw.type === undefined || raw.type.endsWith('delta')) text += delta;
      }
      return { text, input: Number.NaN, output: Number.NaN };
    },
    async tool() {
      const metadata = { name: 'weather', description: 'Weather', parameters: TOOL_SCHEMA };
      const tools = [{ metadata, call: () => 'sunny' }];
      const asked = ask(TOOL_PROMPT);
      const called = await llm.chat({ messages: [asked], tools });
      const [{ id, input }] = called.message.options.toolCall as [{ id: string; input: string }];
      const toolResult = { id, result: 'sunny', isError: false };
      const result = { role: 'user', content: 'sunny', options: { toolResult } };
      const last = said(await llm.chat({ messages: [asked, called.message, result], tools }));
      const first = said(called);
      return {
        text: last.text,
        argument: (JSON.parse(input) as { text: string }).text,
        input: first.input + last.input,
        output: first.output + last.output,
      };
    },
    fail: () => llm.chat({ messages: [ask(BAD_PROMPT)] }),
  };
}

void t.test('client libraries over the doors', WANTS_CLIENTS, async (t) => {
  const mock = await startMock(t, ['--chunks', String(CHUNKS)]);
  const claude = await startMock(t, ['--chunks', String(CHUNKS), '--provider', 'anthropic']);
  const upstreams = [{ url: mock.url }];
  const price = { input: '1', output: '2' };
  const gateway = await startGateway(t, {
    config: {
      models: [
        { id: 'translated', price, upstreams },
        { id: 'passed', price, upstreams: [{ url: mock.url, speaks: ['responses'] }] },
        { id: 'anthropic', price, upstreams: [{ provider: 'anthropic', url: claude.origin, key: '${KEY}' }] },
        { id: 'embed', serves: ['embeddings'], price, upstreams },
      ],
      plans: [{ id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000 }],
    },
    env: { KEY: 'sk-upstream-0123456789' },
  });
  const baseURL = `${gateway.url}/v1`;
  const { createOpenAI } = installed<{ createOpenAI: (options: object) => AiOpenAi }>('@ai-sdk/openai');
  const { ChatOpenAI, OpenAIEmbeddings } = installed<{
    ChatOpenAI: new (options: object) => Chain;
    OpenAIEmbeddings: new (options: object) => { embedQuery(text: string): Promise<number[]> };
  }>('@langchain/openai');
  const chainOf = (apiKey: string, model: string, useResponsesApi: boolean): Client =>
    chainClient(
      new ChatOpenAI({ model, apiKey, useResponsesApi, maxRetries: 0, configuration: { baseURL } }),
    );
  const { createAnthropic } = installed<{ createAnthropic: (options: object) => (model: string) => object }>(
    '@ai-sdk/anthropic',
  );
  const { ChatAnthropic } = installed<{ ChatAnthropic: new (options: object) => Chain }>(
    '@langchain/anthropic',
  );
  type IndexLlmOf = new (options: object) => IndexLlm;
  const index = installed<{ OpenAI: IndexLlmOf; OpenAIResponses: IndexLlmOf }>('@llamaindex/openai');
  const indexClaude = installed<{ Anthropic: IndexLlmOf; AnthropicSession: new (options: object) => object }>(
    '@llamaindex/anthropic',
  );
  const CLIENTS: Readonly<Record<string, (apiKey: string, model: string) => Client>> = {
    'AI SDK, chat': (apiKey, model) => aiClient(createOpenAI({ apiKey, baseURL }).chat(model)),
    'AI SDK, Responses': (apiKey, model) => aiClient(createOpenAI({ apiKey, baseURL }).responses(model)),
    'LangChain, chat': (apiKey, model) => chainOf(apiKey, model, false),
    'LangChain, Responses': (apiKey, model) => chainOf(apiKey, model, true),
    'AI SDK, Messages': (apiKey, model) => aiClient(createAnthropic({ apiKey, baseURL })(model)),
    'LangChain, Messages': (apiKey, model) =>
      chainClient(new ChatAnthropic({ model, apiKey, anthropicApiUrl: gateway.url, maxRetries: 0 })),
    'LlamaIndex, chat': (apiKey, model) =>
      indexClient(new index.OpenAI({ model, apiKey, baseURL, maxRetries: 0 })),
    'LlamaIndex, Responses': (apiKey, model) =>
      indexClient(new index.OpenAIResponses({ model, apiKey, baseURL, maxRetries: 0 })),
    'LlamaIndex, Messages': (apiKey, model) => {
      // Its only way to another address.
      const session = new indexClaude.AnthropicSession({ apiKey, baseURL: gateway.url, maxRetries: 0 });
      return indexClient(new indexClaude.Anthropic({ model, session }));
    },
  };
  const bookedTokens = (accountId: string, calls: number): Promise<Tokens> =>
    eventually(`${calls} calls in the books`, async () => {
      const row = await gateway.admin.usageOf(accountId);
      return row?.calls === calls ? { input: row.prompt_tokens, output: row.completion_tokens } : undefined;
    });

  for (const [name, clientOf] of Object.entries(CLIENTS)) {
    const passed = name.endsWith('Responses') ? ['passed'] : name.endsWith('Messages') ? ['anthropic'] : [];
    for (const model of ['translated', ...passed]) {
      await t.test(`${name}, ${model}`, async (t) => {
        const who = await gateway.admin.customer();
        const client = clientOf(who.key, model);
        const whole = await client.whole();
        t.ok(isWholeText(whole.text, CHUNKS), whole.text);
        const streamed = await client.stream();
        // It adds the usage of message_start, with a token of output, to that of message_delta, of which it
        // takes no input.
        // LlamaIndex reports no usage of a stream.
        if (name === 'LangChain, Messages' || name.startsWith('LlamaIndex'))
          Object.assign(streamed, { input: whole.input, output: whole.output });
        t.same(streamed, whole, 'text and usage of a stream');
        const tool = await client.tool();
        t.equal(tool.argument, 'w0 "é"');
        t.ok(isWholeText(tool.text.slice(-whole.text.length), CHUNKS), tool.text);
        t.same(await bookedTokens(who.accountId, 4), {
          input: whole.input + streamed.input + tool.input,
          output: whole.output + streamed.output + tool.output,
        });
        await t.rejects(client.fail(), refusal(client.statusMember, 400));
        const stranger = clientOf('tg_wrong', model);
        await t.rejects(stranger.whole(), refusal(client.statusMember, 401));
      });
    }
  }

  await t.test('the AI SDK is told to send items, not references to them', async (t) => {
    const who = await gateway.admin.customer();
    const { generateText, stepCountIs, jsonSchema } = installed<AiSdk>('ai');
    const weather = { inputSchema: jsonSchema(TOOL_SCHEMA), execute: () => 'sunny' };
    const model = createOpenAI({ apiKey: who.key, baseURL }).responses('translated');
    await t.rejects(
      generateText({
        model,
        maxRetries: 0,
        prompt: TOOL_PROMPT,
        tools: { weather },
        stopWhen: stepCountIs(3),
      }),
      /item_reference .*send store: false/,
    );
  });

  await t.test('embeddings', async (t) => {
    const who = await gateway.admin.customer();
    const { embed } = installed<AiSdk>('ai');
    const one = await embed({
      model: createOpenAI({ apiKey: who.key, baseURL }).embedding('embed'),
      value: 'Hello',
    });
    t.equal(one.usage.tokens, 2);
    const settings = { model: 'embed', apiKey: who.key, maxRetries: 0 };
    const chained = await new OpenAIEmbeddings({ ...settings, configuration: { baseURL } }).embedQuery(
      'Hello',
    );
    const { OpenAIEmbedding } = installed<{
      OpenAIEmbedding: new (options: object) => { getTextEmbedding(text: string): Promise<number[]> };
    }>('@llamaindex/openai');
    const indexed = await new OpenAIEmbedding({ ...settings, baseURL }).getTextEmbedding('Hello');
    t.same(chained, one.embedding);
    t.same(indexed, one.embedding);
    t.same(await bookedTokens(who.accountId, 3), { input: 6, output: 0 });
  });
});
