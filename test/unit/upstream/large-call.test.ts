/**
 * A large body that another thread translates gives the upstream the same bytes, and the caller the same
 * response, as a short one that the worker translates itself.
 */
import t, { type Test } from 'tap';
import { AskRejected, type PendingQuestion } from '#src/core/ask-port.js';
import { DOOR_INDEX, type DoorName } from '#src/core/door-names.js';
import type { UpstreamTarget } from '#src/upstream/target.js';
import { translateLarge, type LargeTranslated } from '#src/upstream/large-translation.js';
import { answerOf, USAGE, type Script } from '../../fixtures/upstream-server.js';
import { answering, failing, turn, world, type World } from '../../fixtures/upstream-world.js';
import { FORMS, settingsOf } from '../../support/provider-forms.js';
import { requestCases } from '../../support/provider-requests.js';
import { StoppedClock } from '../store/support.js';

const BODIES: Readonly<Record<'messages' | 'responses', object>> = {
  messages: {
    max_tokens: 100,
    system: [{ type: 'text', text: 'Be short.', cache_control: { type: 'ephemeral' } }],
    messages: [
      { role: 'user', content: 'What is the weather in Zürich?' },
      {
        role: 'assistant',
        content: [{ type: 'tool_use', id: 't1', name: 'weather', input: { city: 'Zürich' } }],
      },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't1', content: '3 degrees' }] },
    ],
    tools: [{ name: 'weather', input_schema: { type: 'object' } }],
  },
  responses: {
    instructions: 'Be short.',
    input: 'What is the weather in Zürich?',
    metadata: { a: 'b' },
    tools: [
      { type: 'namespace', name: 'home', tools: [{ type: 'function', name: 'weather', parameters: {} }] },
    ],
  },
};
const CALLED = JSON.stringify({
  id: 'x',
  choices: [
    {
      index: 0,
      message: {
        role: 'assistant',
        content: 'Wait.',
        tool_calls: [{ id: 'c', type: 'function', function: { name: 'home__weather', arguments: '{}' } }],
      },
      finish_reason: 'tool_calls',
    },
  ],
  usage: USAGE,
});

/**
 * The same call with a short body, then with a large one. Returns what came of each; `requests` is undefined
 * for the echo model.
 */
async function bothWays(
  { run, upstreams }: World,
  door: DoorName,
  members: object,
): Promise<[short: unknown, large: unknown]> {
  const body = JSON.stringify({ model: 'm', ...members });
  const outcomes: unknown[] = [];
  for (const isLarge of [false, true]) {
    const sent = upstreams[0]?.requests.length;
    const { text, rest, error } = await run({
      door: DOOR_INDEX[door],
      stream: (members as { stream?: boolean }).stream === true,
      body: isLarge ? '' : body,
      largeBody: isLarge ? new Uint8Array(Buffer.from(body)) : undefined,
    });
    const requests = upstreams[0]?.requests.slice(sent);
    outcomes.push({ requests, text: text + Buffer.from(rest ?? []).toString(), error });
  }
  return outcomes as [unknown, unknown];
}

const targets: readonly (readonly [name: string, target: Partial<UpstreamTarget>])[] = [
  ['openai', { model: 'theirs' }],
  ...FORMS.filter(({ credential }) => credential.kind === 'key').map(
    ({ name, provider, model }) => [name, { model, provider: settingsOf(provider), key: 'sk-1' }] as const,
  ),
  [
    'bedrock with a key',
    { model: FORMS.at(-1)!.model, provider: settingsOf('bedrock'), key: 'bedrock-api-key' },
  ],
];

const worldAt = (
  t: Test,
  script: Script | Partial<UpstreamTarget>,
  target: Partial<UpstreamTarget>,
  translate?: typeof REFUSES,
) =>
  world(
    t,
    [script],
    undefined,
    { breakerFailuresMax: 0, ...target },
    new StoppedClock(),
    undefined,
    translate,
  );

const REFUSES = (): PendingQuestion<LargeTranslated> => ({
  reply: Promise.reject(new AskRejected({ code: 'overloaded', message: 'the queue is full' })),
  withdraw: () => undefined,
});

for (const [name, target] of targets)
  void t.test(`the same request at ${name}`, async (t) => {
    const at = await worldAt(t, failing(500), target);
    for (const door of ['messages', 'responses'] as const)
      for (const stream of [false, true]) {
        const [short, large] = await bothWays(at, door, { ...BODIES[door], stream });
        t.same(large, short, `${door}, stream ${stream}`);
        t.match(short, { requests: [{ body: /Z.rich/ }] }, 'it was asked');
      }
    if (target.provider === undefined) return;
    for (const { name, request } of requestCases()) {
      const [short, large] = await bothWays(at, 'chat', request);
      t.same(large, short, name);
    }
  });

void t.test('the echo model gets large bodies too', async (t) => {
  const at = await worldAt(t, { origin: 'echo:' }, { memberNames: { max_tokens: 'max_completion_tokens' } });
  const chat = { max_tokens: 9, messages: [{ role: 'user', content: 'What is the weather in Zürich?' }] };
  for (const [door, members] of [...Object.entries(BODIES), ['chat', chat]] as [DoorName, object][])
    for (const stream of [false, true]) {
      const [short, large] = await bothWays(at, door, { ...members, stream });
      t.same(large, short, `${door}, stream ${stream}`);
      t.match(short, { error: undefined, text: /weather/ });
    }
});

void t.test('integers in the input of a tool, and in schemas, keep their digits', async (t) => {
  for (const [name, target] of targets) {
    const at = await worldAt(t, failing(500), target);
    const input = { id: 'ID' };
    const messages = [
      { role: 'user', content: 'Go on.' },
      { role: 'assistant', content: [{ type: 'tool_use', id: 't1', name: 'f', input }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't1', content: 'done' }] },
    ];
    const tools = [
      {
        name: 'f',
        input_schema: { type: 'object', properties: { id: { type: 'integer', maximum: 'MAX' } } },
      },
    ];
    const schema = { type: 'object', properties: { n: { type: 'integer', enum: ['MAX'] } } };
    const output_config = { format: { type: 'json_schema', schema } };
    const body = JSON.stringify({ model: 'm', max_tokens: 9, messages, tools, output_config }).replace(
      /"(?:ID|MAX)"/g,
      '9007199254740993',
    );
    for (const largeBody of [undefined, new Uint8Array(Buffer.from(body))]) {
      await at.run({
        door: DOOR_INDEX.messages,
        body: largeBody === undefined ? body : '',
        ...(largeBody && { largeBody }),
      });
      t.match(at.upstreams[0]!.requests.at(-1)!.body, /\bid\\?":9007199254740993\b/, name);
      // Of a chat completion that is translated once more, only arguments and results keep all digits.
      const sent = at.upstreams[0]!.requests.at(-1)!.body;
      if (target.provider === undefined || largeBody !== undefined) {
        t.match(sent, /\bmaximum\\*"?: ?9007199254740993/, name);
        t.match(sent, /\benum\\*": ?\[9007199254740993\]/, name);
      }
      t.notMatch(sent, /integer [0-9a-f]{8}-/, `${name}: no mark is left`);
    }
  }
});

void t.test('integers in schemas of Responses keep their digits, and a response has no mark', async (t) => {
  const parameters = { type: 'object', properties: { id: { type: 'integer', maximum: 'MAX' } } };
  const schema = { type: 'object', properties: { n: { type: 'integer', enum: ['MAX'] } } };
  const body = JSON.stringify({
    model: 'm',
    input: 'Go on.',
    tools: [{ type: 'function', name: 'f', parameters }],
    text: { format: { type: 'json_schema', name: 'n', schema } },
  }).replaceAll('"MAX"', '9007199254740993');
  for (const [name, target] of targets) {
    const at = await worldAt(t, answering(answerOf(USAGE)), target);
    for (const largeBody of [undefined, new Uint8Array(Buffer.from(body))]) {
      const { text, rest } = await at.run({
        door: DOOR_INDEX.responses,
        body: largeBody === undefined ? body : '',
        ...(largeBody && { largeBody }),
      });
      const sent = at.upstreams[0]!.requests.at(-1)!.body;
      if (target.provider === undefined || largeBody !== undefined) {
        t.match(sent, /\bmaximum\\*"?: ?9007199254740993/, name);
        t.match(sent, /\benum\\*": ?\[9007199254740993\]/, name);
      }
      const response = text + Buffer.from(rest ?? []).toString();
      if (target.provider === undefined) t.match(response, '"enum":[9007199254740992]', 'as a number has it');
      for (const each of [sent, response])
        t.notMatch(each, /integer [0-9a-f]{8}-/, `${name}: no mark is left`);
    }
  }
});

void t.test('thoughts go back to the upstream that wants them', async (t) => {
  for (const thoughtsBack of [true, undefined]) {
    const at = await worldAt(t, failing(500), { thoughtsBack });
    const thinking = { type: 'thinking', thinking: 'Hm.', signature: '' };
    const reasoning = { type: 'reasoning', summary: [{ type: 'summary_text', text: 'Hm.' }] };
    for (const [door, members] of [
      ['messages', { max_tokens: 9, messages: [{ role: 'assistant', content: [thinking] }] }],
      ['responses', { input: [reasoning, { role: 'assistant', content: 'Done.' }] }],
    ] as const) {
      const [short, large] = await bothWays(at, door, members);
      t.same(large, short, door);
      const [{ body }] = (short as { requests: [{ body: string }] }).requests;
      t.equal(body.includes('"reasoning_content":"Hm."'), thoughtsBack === true, door);
    }
  }
});

void t.test('integers keep their digits where members are renamed', async (t) => {
  const at = await worldAt(t, failing(500), { memberNames: { seed: 'random_seed' } });
  const body =
    '{"model":"m","seed":12345678901234567890,"messages":[],"tools":[{"enum":[9007199254740993]}]}';
  for (const largeBody of [undefined, new Uint8Array(Buffer.from(body))]) {
    await at.run({ body: largeBody === undefined ? body : '', ...(largeBody && { largeBody }) });
    const sent = at.upstreams[0]!.requests.at(-1)!.body;
    t.match(sent, /"random_seed":12345678901234567890\b/);
    t.match(sent, /"enum":\[9007199254740993\]/);
  }
});

void t.test('a body without a member to rename stays as it is, byte for byte', async (t) => {
  const names = { model: 'theirs', memberNames: { max_tokens: 'max_completion_tokens' } };
  const at = await worldAt(t, failing(500), names);
  const members = '"messages": [{"9":1e400,"10":"\\u0041"}],"tools":[{"max_tokens":1.0}]}';
  const body = `{"model":"m", ${members}`;
  for (const largeBody of [undefined, new Uint8Array(Buffer.from(body))]) {
    await at.run({ body: largeBody === undefined ? body : '', ...(largeBody && { largeBody }) });
    t.equal(at.upstreams[0]!.requests.at(-1)!.body, `{"model":"theirs", ${members}`);
  }
});

void t.test('the same response', async (t) => {
  const at = await worldAt(t, answering(CALLED), {});
  for (const door of ['messages', 'responses'] as const) {
    const [short, large] = await bothWays(at, door, BODIES[door]);
    t.same(large, short, door);
    t.match(short, { error: undefined, text: door === 'responses' ? /"namespace":"home"/ : /tool_use/ });
  }
});

void t.test('a member that the upstream has no word for, by the name that the caller gave it', async (t) => {
  const at = await worldAt(t, answering(answerOf(USAGE)), targets[1]![1]);
  const image = { type: 'input_image', file_id: 'file-1' };
  for (const [door, members] of [
    ['responses', { input: [{ role: 'user', content: [image] }] }],
    ['chat', { messages: [{ role: 'user', content: 'Hello' }], logit_bias: { '1': 1 } }],
  ] as const) {
    const [short, large] = await bothWays(at, door, members);
    t.same(large, short);
    t.match(short, { requests: [], error: { code: 'invalid_parameters' } }, JSON.stringify(short));
  }
});

void t.test('the counter pool takes no more', async (t) => {
  const at = await worldAt(t, answering(answerOf(USAGE)), {}, REFUSES);
  const [, large] = await bothWays(at, 'messages', BODIES.messages);
  t.match(large, { requests: [], error: { code: 'overloaded', retryAfterSeconds: 5 } });
});

void t.test('a caller who leaves meanwhile', async (t) => {
  let withdrawn = 0;
  let release = (): void => undefined;
  const slow = new Promise<void>((resolve) => (release = resolve));
  const translate = (large: Parameters<typeof translateLarge>[0]): PendingQuestion<LargeTranslated> => ({
    reply: slow.then(() => translateLarge(large)),
    withdraw: () => (withdrawn += 1),
  });
  const at = await worldAt(t, answering(answerOf(USAGE)), {}, translate as typeof REFUSES);
  const body = new Uint8Array(Buffer.from(JSON.stringify({ model: 'm', ...BODIES.messages })));
  const { session, downstream } = at.call({ door: DOOR_INDEX.messages, body: '', largeBody: body });
  session.onCancel();
  await downstream.ended;
  release();
  for (let turns = 0; turns < 10; turns += 1) await turn();
  t.equal(withdrawn, 1);
  t.equal(at.upstreams[0]!.requests.length, 0, 'nothing is sent');
  t.equal(downstream.endings, 1);
});
