/** What the mocks of OpenAI's and Azure's protocols send, read by OpenAI's own SDK. */
import OpenAI, { AzureOpenAI } from 'openai';
import t, { type Test } from 'tap';
import { mockOptionsWith, MOCK_DEFAULTS } from '#src/mock/mock-options.js';
import { startMockUpstream } from '#src/mock/mock-upstream.js';

type Options = Parameters<typeof mockOptionsWith>[1];

const LONG: [string, string][] = [
  ['bytes', '60'],
  ['chunks', '6'],
  ['toolCalls', '2'],
  ['cachedTokens', '1'],
];
const TOOL = { type: 'object', properties: { text: { type: 'string' } } };
const CHAT_TOOLS: OpenAI.ChatCompletionTool[] = [
  { type: 'function', function: { name: 'weather', parameters: TOOL } },
];
const RESPONSE_TOOLS: OpenAI.Responses.FunctionTool[] = [
  { type: 'function', name: 'weather', parameters: TOOL, strict: false },
];

async function startAs(t: Test, provider: 'openai' | 'azure'): Promise<string> {
  const mock = await startMockUpstream({
    host: '127.0.0.1',
    port: 0,
    record: true,
    provider,
    defaults: mockOptionsWith(MOCK_DEFAULTS, new Map(LONG) as unknown as Options),
  });
  t.teardown(() => mock.close());
  return `http://127.0.0.1:${mock.port}`;
}

const HOW = {
  openai: (origin: string) => new OpenAI({ apiKey: 'k', baseURL: `${origin}/v1`, maxRetries: 0 }),
  azure: (origin: string) =>
    new AzureOpenAI({ apiKey: 'k', endpoint: origin, apiVersion: '2024-10-21', maxRetries: 0 }),
};

for (const provider of ['openai', 'azure'] as const) {
  void t.test(`${provider}: chat completions, whole and streamed alike`, async (t) => {
    const client = HOW[provider](await startAs(t, provider));
    const call = {
      model: 'gpt-x',
      messages: [{ role: 'user' as const, content: 'Hello there' }],
      tools: CHAT_TOOLS,
    };
    const whole = await client.chat.completions.create(call);
    const [choice] = whole.choices;
    t.match(choice, { finish_reason: 'tool_calls', message: { role: 'assistant', content: /^w0 .*w5 / } });
    t.equal(choice!.message.tool_calls!.length, 2);
    t.match(whole.usage, { prompt_tokens: 3, prompt_tokens_details: { cached_tokens: 1 } });
    const stream = client.chat.completions.stream({ ...call, stream_options: { include_usage: true } });
    const streamed = await stream.finalChatCompletion();
    t.match(streamed.choices[0], {
      finish_reason: 'tool_calls',
      message: { content: choice!.message.content! },
    });
    t.strictSame(
      streamed.choices[0]!.message.tool_calls!.map((one) => [one.id, JSON.stringify(one.function)]),
      choice!.message.tool_calls!.map((one) => [one.id, JSON.stringify('function' in one && one.function)]),
    );
    t.strictSame(streamed.usage, whole.usage);
  });

  void t.test(`${provider}: errors by their classes`, async (t) => {
    const client = HOW[provider](await startAs(t, provider));
    const failed = (query: string): Promise<unknown> =>
      client.chat.completions
        .create({ model: 'gpt-x', messages: [{ role: 'user', content: `x-mock: ${query}` }] })
        .then(
          () => undefined,
          (error: unknown) => error,
        );
    t.type(await failed('status=401'), OpenAI.AuthenticationError);
    t.type(await failed('status=429&retry_after=7'), OpenAI.RateLimitError);
    t.type(await failed('status=400'), OpenAI.BadRequestError);
    t.type(await failed('status=503'), OpenAI.InternalServerError);
  });
}

void t.test('Responses, whole and streamed alike', async (t) => {
  const { responses } = HOW.openai(await startAs(t, 'openai'));
  const call = { model: 'gpt-x', input: 'Hello there', tools: RESPONSE_TOOLS };
  const whole = await responses.create(call);
  t.match(whole, { status: 'completed', output_text: /^w0 .*w5 /, usage: { input_tokens: 3 } });
  t.equal(whole.output.filter(({ type }) => type === 'function_call').length, 2);
  const streamed = await responses.stream(call).finalResponse();
  t.equal(streamed.output_text, whole.output_text);
  t.strictSame(streamed.usage, whole.usage);
  t.strictSame(
    streamed.output.map(({ type }) => type),
    whole.output.map(({ type }) => type),
  );
});

void t.test('embeddings and completions', async (t) => {
  const { embeddings, completions } = HOW.openai(await startAs(t, 'openai'));
  const packed = await embeddings.create({ model: 'e', input: ['Hello', 'there'] });
  const floats = await embeddings.create({ model: 'e', input: ['Hello', 'there'], encoding_format: 'float' });
  const vectors = ({ data }: OpenAI.CreateEmbeddingResponse): number[][] =>
    data.map(({ embedding }) => Array.from(embedding, (value) => Math.fround(value)));
  t.strictSame(vectors(packed), vectors(floats), 'base64, as the SDK asks for');
  t.match(packed.usage, { prompt_tokens: 4, total_tokens: 4 });
  const said = await completions.create({ model: 'c', prompt: 'Hello' });
  t.match(said.choices[0], { text: /^w0 /, finish_reason: 'stop' });
});
