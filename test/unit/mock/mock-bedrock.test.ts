/** What the Bedrock mock sends, read by the AWS SDK; and what it refuses. */
import {
  ConverseCommand,
  ConverseStreamCommand,
  type BedrockRuntimeClient,
  type ContentBlock,
  type ConverseCommandInput,
  type TokenUsage,
} from '@aws-sdk/client-bedrock-runtime';
import t from 'tap';
import { BEDROCK_MOCK } from '#src/mock/mock-bedrock.js';
import { mockOptionsWith, MOCK_DEFAULTS } from '#src/mock/mock-options.js';
import { startMockUpstream } from '#src/mock/mock-upstream.js';
import { bedrockSdk, CLAUDE } from '../../support/bedrock.js';

type Options = Parameters<typeof mockOptionsWith>[1];

const TOOLS = [{ toolSpec: { name: 'weather', inputSchema: { json: { type: 'object', properties: {} } } } }];
const INPUT: ConverseCommandInput = {
  modelId: CLAUDE,
  messages: [{ role: 'user', content: [{ text: 'Hello there' }] }],
  inferenceConfig: { maxTokens: 100 },
  toolConfig: { tools: TOOLS },
};

async function clientOf(
  scope: { teardown(act: () => void): unknown },
  texts: readonly (readonly [string, string])[],
  token?: string,
): Promise<BedrockRuntimeClient> {
  const answers = mockOptionsWith(MOCK_DEFAULTS, new Map(texts) as unknown as Options);
  const mock = await startMockUpstream({
    host: '127.0.0.1',
    port: 0,
    record: true,
    provider: 'bedrock',
    defaults: answers,
  });
  scope.teardown(() => mock.close());
  return bedrockSdk(`http://127.0.0.1:${mock.port}`, token);
}

const LONG = [
  ['bytes', '60'],
  ['chunks', '6'],
  ['toolCalls', '2'],
  ['thinkingBytes', '40'],
  ['cachedTokens', '3'],
  ['cacheWriteTokens', '5'],
  ['cacheWriteHourTokens', '7'],
] as const;

interface Joined {
  readonly content: ContentBlock[];
  stopReason?: string | undefined;
  usage?: TokenUsage | undefined;
}

/** A stream's blocks, joined from what the SDK reads. */
async function joined(client: BedrockRuntimeClient): Promise<Joined> {
  const { stream } = await client.send(new ConverseStreamCommand(INPUT));
  const result: Joined = { content: [] };
  let input = '';
  for await (const event of stream!) {
    const { contentBlockStart: start, contentBlockDelta: delta, contentBlockStop: stop } = event;
    if (start?.start?.toolUse) {
      result.content[start.contentBlockIndex!] = { toolUse: { ...start.start.toolUse, input: '' } };
      input = '';
    }
    if (delta?.delta) {
      const { text, toolUse, reasoningContent } = delta.delta;
      const block = (result.content[delta.contentBlockIndex!] ??=
        text === undefined ? { reasoningContent: { reasoningText: { text: '' } } } : { text: '' });
      if (text !== undefined) block.text = `${block.text ?? ''}${text}`;
      if (toolUse) input += toolUse.input ?? '';
      const reasoningText = block.reasoningContent?.reasoningText;
      if (reasoningText && reasoningContent?.text !== undefined)
        reasoningText.text = `${reasoningText.text}${reasoningContent.text}`;
      if (reasoningText && reasoningContent?.signature) reasoningText.signature = reasoningContent.signature;
    }
    const called = stop && result.content[stop.contentBlockIndex!]?.toolUse;
    if (called) called.input = JSON.parse(input) as never;
    if (event.messageStop) result.stopReason = event.messageStop.stopReason;
    if (event.metadata) result.usage = event.metadata.usage;
  }
  return result;
}

for (const token of [undefined, 'bedrock-api-key']) {
  const how = token === undefined ? 'signed' : 'with an API key';
  void t.test(`the SDK reads thinking, text, two calls and usage, whole and streamed: ${how}`, async (t) => {
    const client = await clientOf(t, LONG, token);
    const whole = await client.send(new ConverseCommand(INPUT));
    const content = whole.output!.message!.content!;
    t.same(
      content.map((block) => Object.keys(block).find((name) => name !== '$unknown')),
      ['reasoningContent', 'text', 'toolUse', 'toolUse'],
    );
    t.equal(whole.stopReason, 'tool_use');
    t.match(whole.usage, {
      cacheReadInputTokens: 3,
      cacheWriteInputTokens: 12,
      cacheDetails: [
        { ttl: '1h', inputTokens: 7 },
        { ttl: '5m', inputTokens: 5 },
      ],
    });
    const streamed = await joined(client);
    t.same(streamed.content, content);
    t.equal(streamed.stopReason, 'tool_use');
    t.same(streamed.usage, whole.usage);
  });
}

void t.test('the SDK knows the errors by their names, before and inside a stream', async (t) => {
  for (const [status, name] of [
    ['400', 'ValidationException'],
    ['403', 'AccessDeniedException'],
    ['404', 'ResourceNotFoundException'],
    ['429', 'ThrottlingException'],
    ['500', 'InternalServerException'],
    ['503', 'ServiceUnavailableException'],
  ] as const) {
    const client = await clientOf(t, [['status', status]]);
    await t.rejects(client.send(new ConverseCommand(INPUT)), { name }, status);
  }
  for (const [status, name] of [
    ['400', 'ValidationException'],
    // These four are no exceptions of such a stream, so the gateway never gets them from AWS.
    ['403', 'InternalServerException'],
    ['404', 'InternalServerException'],
    ['408', 'InternalServerException'],
    ['599', 'InternalServerException'],
    ['424', 'ModelStreamErrorException'],
    ['429', 'ThrottlingException'],
    ['500', 'InternalServerException'],
    ['503', 'ServiceUnavailableException'],
  ] as const) {
    const client = await clientOf(t, [
      ['fault', 'error-event'],
      ['errorStatus', status],
    ]);
    await t.rejects(joined(client), { name }, `${status} in a stream`);
  }
  const broken = await clientOf(t, [['fault', 'broken-sse']]);
  await t.rejects(joined(broken), /checksum/);
});

void t.test('requests that Bedrock would refuse are refused', (t) => {
  const headers = { authorization: 'Bearer k', 'content-type': 'application/json' };
  const path = `/model/${encodeURIComponent(CLAUDE)}/converse`;
  const user = { role: 'user', content: [{ text: 'hi' }] };
  const refused = (body: object, reason: RegExp): void => {
    const completion = BEDROCK_MOCK.read({ path, query: '', headers, body: JSON.stringify(body) });
    t.match(completion, { status: 400, error: reason });
  };
  refused({ messages: [user], max_tokens: 1 }, /extraneous key \[max_tokens\]/);
  refused({ messages: [user, user] }, /alternate/);
  refused({ messages: [{ role: 'user', content: [{ text: ' ' }] }] }, /blank/);
  refused({ messages: [user], inferenceConfig: { temperature: 1.5 } }, /temperature/);
  refused({ messages: [user], toolConfig: { tools: [{ toolSpec: { name: 'a b' } }] } }, /toolSpec.name/);
  const point = { cachePoint: { type: 'default' } };
  const thought = { reasoningContent: { reasoningText: { text: 'hm', signature: 'x' } } };
  const file = (format: string): object => ({ document: { format, name: 'a', source: { bytes: 'AA' } } });
  refused({ messages: [{ role: 'user', content: [point, { text: 'hi' }] }] }, /nothing available to cache/);
  refused({ messages: [user, { role: 'assistant', content: [thought, point] }] }, /after reasoning block/);
  refused({ messages: [{ role: 'user', content: [{ text: 'hi' }, file('md'), point] }] }, /Field required/);
  const marked = { messages: [{ role: 'user', content: [{ text: 'hi' }, file('pdf'), point] }] };
  t.match(BEDROCK_MOCK.read({ path, query: '', headers, body: JSON.stringify(marked) }), { model: CLAUDE });
  const call = { toolUse: { toolUseId: 'a', name: 'f', input: {} } };
  const calls = [user, { role: 'assistant', content: [call] }];
  const result = (id: string): object => ({
    role: 'user',
    content: [{ toolResult: { toolUseId: id, content: [] } }],
  });
  refused({ messages: [...calls, result('b')], toolConfig: { tools: TOOLS } }, /toolResult/);
  refused({ messages: [...calls, result('a')] }, /toolConfig/);
  const called = (...uses: object[]): object => ({
    messages: [user, { role: 'assistant', content: uses.map((toolUse) => ({ toolUse })) }],
    toolConfig: { tools: TOOLS },
  });
  refused(called({ toolUseId: 'a', input: {} }), /toolUse.name/);
  refused(called({ toolUseId: 'a', name: 'f g', input: {} }), /toolUse.name/);
  refused(called({ name: 'f', input: {} }), /toolUse.toolUseId/);
  refused(called({ toolUseId: 'x'.repeat(65), name: 'f', input: {} }), /toolUse.toolUseId/);
  refused(called(call.toolUse, call.toolUse), /duplicate Ids: a/);
  refused(
    { messages: [...calls, result('a'), calls[1]!, result('a')], toolConfig: { tools: TOOLS } },
    /duplicate Ids: a/,
  );
  refused(
    { messages: [user], toolConfig: { tools: TOOLS, toolChoice: { tool: { name: 'other' } } } },
    /toolChoice.*other/,
  );

  const allowed = (authorization: string, more: Record<string, string> = {}): unknown => {
    const body = JSON.stringify({ messages: [user] });
    return BEDROCK_MOCK.read({ path, query: '', headers: { authorization, ...more }, body });
  };
  const signature = (names: string): string =>
    `AWS4-HMAC-SHA256 Credential=AKID/20261123/us-east-1/bedrock/aws4_request, SignedHeaders=${names}, Signature=${'0'.repeat(64)}`;
  const date = { 'x-amz-date': '20261123T120000Z', host: 'h' };
  t.match(allowed('Bearer k'), { model: CLAUDE, stream: false });
  t.match(allowed(signature('host;x-amz-date'), date), { model: CLAUDE });
  t.match(allowed(''), { status: 403 });
  t.match(allowed('Basic k'), { status: 403, error: /malformed/ });
  t.match(allowed(signature('host;x-amz-date'), { ...date, 'x-amz-date': '20261124T120000Z' }), {
    status: 403,
    error: /Date/,
  });
  t.match(allowed(signature('host;x-amz-date'), { ...date, 'x-amz-security-token': 's' }), {
    status: 403,
    error: /x-amz-security-token/,
  });
  t.match(BEDROCK_MOCK.read({ path: '/v1/chat/completions', query: '', headers, body: '{}' }), {
    status: 404,
  });
  t.match(BEDROCK_MOCK.read({ path: '/model/%zz/converse', query: '', headers, body: '{}' }), {
    status: 400,
    error: /URI/,
  });
  t.end();
});
