/** What the Bedrock mock sends for Claude in Anthropic's protocol, read by the AWS SDK; what it refuses. */
import {
  CountTokensCommand,
  InvokeModelCommand,
  InvokeModelWithResponseStreamCommand,
  ValidationException,
} from '@aws-sdk/client-bedrock-runtime';
import t from 'tap';
import { MOCK_DEFAULTS, mockOptionsWith } from '#src/mock/mock-options.js';
import { startMockUpstream } from '#src/mock/mock-upstream.js';
import { bedrockSdk, CLAUDE } from '../../support/bedrock.js';

const REQUEST = {
  anthropic_version: 'bedrock-2023-05-31',
  max_tokens: 100,
  messages: [{ role: 'user', content: 'Hello there' }],
};
const COUNTING = 'anthropic.claude-haiku-4-5-20251001-v1:0';

void t.test('Claude in its own protocol', async (t) => {
  const settings = { host: '127.0.0.1', port: 0, record: false, provider: 'bedrock' } as const;
  const mock = await startMockUpstream({ ...settings, defaults: MOCK_DEFAULTS });
  t.teardown(() => mock.close());
  const client = bedrockSdk(`http://127.0.0.1:${mock.port}`);
  const invoke = (request: object) =>
    client.send(new InvokeModelCommand({ modelId: CLAUDE, body: JSON.stringify(request) }));

  const whole = JSON.parse((await invoke(REQUEST)).body.transformToString()) as object;
  t.match(whole, { type: 'message', role: 'assistant', stop_reason: 'end_turn', usage: {} });

  const command = new InvokeModelWithResponseStreamCommand({
    modelId: CLAUDE,
    body: JSON.stringify(REQUEST),
  });
  const types: unknown[] = [];
  for await (const { chunk } of (await client.send(command)).body!)
    types.push((JSON.parse(Buffer.from(chunk!.bytes!).toString()) as { type: string }).type);
  t.equal(types[0], 'message_start');
  t.equal(types.at(-1), 'message_stop');

  // ConverseStream has no such exception, this stream has it.
  const late = new Map<string, string | number>([
    ['fault', 'error-event'],
    ['errorStatus', '408'],
  ]) as unknown as Parameters<typeof mockOptionsWith>[1];
  const failing = await startMockUpstream({ ...settings, defaults: mockOptionsWith(MOCK_DEFAULTS, late) });
  t.teardown(() => failing.close());
  const { body } = await bedrockSdk(`http://127.0.0.1:${failing.port}`).send(command);
  await t.rejects(
    async () => {
      for await (const event of body!) void event;
    },
    { name: 'ModelTimeoutException' },
  );

  const count = (modelId: string, body: object) =>
    client.send(
      new CountTokensCommand({
        modelId,
        input: { invokeModel: { body: Buffer.from(JSON.stringify(body)) } },
      }),
    );
  t.equal((await count(COUNTING, REQUEST)).inputTokens, 3);
  await t.rejects(count(CLAUDE, REQUEST), /support counting tokens/, 'a profile');
  await t.rejects(count(COUNTING, { ...REQUEST, max_tokens: undefined }), /max_tokens/);

  for (const [more, wanted] of [
    [{ anthropic_version: 'x' }, /anthropic_version/],
    [{ anthropic_beta: ['claude-code-20250219'] }, /invalid beta flag/],
    [{ model: 'x' }, /model: Extra inputs/],
    [{ stream: true }, /stream: Extra inputs/],
    [{ max_tokens: undefined }, /max_tokens: Field required/],
  ] as const)
    await t.rejects(invoke({ ...REQUEST, ...more }), wanted, JSON.stringify(more));
  await t.rejects(invoke({ ...REQUEST, messages: [] }), ValidationException);
});
