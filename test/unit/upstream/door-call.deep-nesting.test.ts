/**
 * JSON that is nested too deeply to be written again, in a text of a request or in a response: the parser of
 * bodies does not see it. Nobody gets an error of the gateway for it.
 */
import t from 'tap';
import { DOOR_INDEX } from '#src/core/door-names.js';
import { MESSAGES } from '#src/doors/messages/messages-door.js';
import { FORMS, settingsOf } from '../../support/provider-forms.js';
import { answerOf, chunkOf, sse, USAGE } from '../../fixtures/upstream-server.js';
import { answering, streaming, STREAM, world } from '../../fixtures/upstream-world.js';

const deepJson = (levels: number): string => `${'{"a":'.repeat(levels)}1${'}'.repeat(levels)}`;
const DEEP = deepJson(20_000);
/** JSON.stringify could not write the object that this stands for. */
const PLACE = '"the deep object"';

/** Bodies whose calls have these arguments, by the door that they come by. */
const bodyWith = (args: string): [door: keyof typeof DOOR_INDEX, body: object, member: string][] => {
  const call = { id: 'c1', type: 'function', function: { name: 'f', arguments: args } };
  const item = { type: 'function_call', call_id: 'c1', name: 'f', arguments: args };
  return [
    [
      'chat',
      {
        messages: [
          { role: 'user', content: 'hi' },
          { role: 'assistant', tool_calls: [call] },
        ],
      },
      'messages[1].tool_calls[0].function.arguments',
    ],
    ['responses', { input: [{ role: 'user', content: 'hi' }, item] }, 'input[1].arguments'],
  ];
};

void t.test('arguments in a request', async (t) => {
  for (const { name, provider, model, credential } of FORMS) {
    if (credential.kind !== 'key') continue;
    const target = { model, provider: settingsOf(provider), key: 'sk-1' };
    const { run, upstreams } = await world(t, [answering('{}')], undefined, target);
    for (const levels of [65, 20_000])
      for (const [door, members, member] of bodyWith(deepJson(levels))) {
        const body = JSON.stringify({ model: 'm', ...members });
        for (const largeBody of [undefined, new Uint8Array(Buffer.from(body))]) {
          const text = largeBody === undefined ? body : '';
          const { error } = await run({ door: DOOR_INDEX[door], body: text, largeBody });
          const what = `${name}, ${door}, ${levels} levels, ${text === '' ? 'large' : 'short'}`;
          t.equal(error?.code, 'invalid_parameters', what);
          t.match(error?.message, `${member} must be nested at most 64 levels deep`, what);
        }
      }
    t.equal(upstreams[0]!.requests.length, 0, name);
    for (const [door, members] of bodyWith(deepJson(64))) {
      await run({ door: DOOR_INDEX[door], body: JSON.stringify({ model: 'm', ...members }) });
      t.match(upstreams[0]!.requests.at(-1)?.body, deepJson(64), `${name}, ${door}: as deep as a body`);
    }
  }
});

void t.test('a result that Gemini would get as an object goes as a text', async (t) => {
  const { model, provider } = FORMS.find(({ name }) => name === 'gemini')!;
  const target = { model, provider: settingsOf(provider), key: 'sk-1' };
  const { run, upstreams } = await world(t, [answering('{}')], undefined, target);
  const call = { id: 'c1', type: 'function', function: { name: 'f', arguments: '{}' } };
  const messages = [
    { role: 'user', content: 'hi' },
    { role: 'assistant', tool_calls: [call] },
    { role: 'tool', tool_call_id: 'c1', content: DEEP },
  ];
  await run({ body: JSON.stringify({ model: 'm', messages }) });
  t.match(upstreams[0]!.requests[0]?.body, JSON.stringify({ result: DEEP }));
});

void t.test('content that another turn may have carried, and the input of a tool', async (t) => {
  const carried = Buffer.from(`{"blocks":[${DEEP}],"extra":${DEEP}}`).toString('base64');
  const input = [
    { role: 'user', content: 'hi' },
    { type: 'reasoning', summary: [], encrypted_content: `tollgate-1:${carried}` },
  ];
  const { run, upstreams } = await world(t, [answering(answerOf(USAGE))]);
  const body = JSON.stringify({ model: 'm', input });
  for (const largeBody of [undefined, new Uint8Array(Buffer.from(body))]) {
    const text = largeBody === undefined ? body : '';
    const { error } = await run({ door: DOOR_INDEX.responses, body: text, largeBody });
    t.equal(error, undefined);
    t.notMatch(upstreams[0]!.requests.at(-1)!.body, 'thinking_blocks', 'not ours, so it is left out');
  }
  const messages = [
    { role: 'assistant', content: [{ type: 'tool_use', id: 'c1', name: 'f', input: 'the deep object' }] },
  ];
  const called = JSON.stringify({ model: 'm', max_tokens: 5, messages }).replace(PLACE, DEEP);
  const read = MESSAGES.read(Buffer.from(called));
  t.match(read, { ok: false, error: { message: 'the request body must be nested at most 64 levels deep' } });
});

/** Members of messages and deltas that are written again. */
const ANSWERS: Readonly<Record<string, (deep: unknown) => object>> = {
  'arguments as a text': () => ({ tool_calls: [callOf(DEEP)] }),
  'arguments as an object': (deep) => ({ tool_calls: [callOf(deep)] }),
  'thinking blocks': (deep) => ({
    content: 'x',
    thinking_blocks: [{ type: 'redacted_thinking', data: deep }],
  }),
  'extra content': (deep) => ({ tool_calls: [{ ...callOf('{}'), extra_content: { deep } }] }),
};
const callOf = (args: unknown): object => ({
  index: 0,
  id: 't',
  type: 'function',
  function: { name: 'f', arguments: args },
});

void t.test('an answer', async (t) => {
  const bodies = {
    chat: { messages: [{ role: 'user', content: 'hello' }] },
    messages: { max_tokens: 5, messages: [{ role: 'user', content: 'hello' }] },
    responses: { input: 'hello' },
  };
  for (const [what, membersOf] of Object.entries(ANSWERS)) {
    const members = membersOf('the deep object');
    const filled = (value: object, choice: object): string =>
      JSON.stringify({ ...value, choices: [{ index: 0, ...choice }] }).replace(PLACE, DEEP);
    const whole = filled(JSON.parse(answerOf(USAGE)) as object, { message: members, finish_reason: 'stop' });
    const event = filled(chunkOf(''), { delta: members, finish_reason: null });
    const stream = sse(chunkOf('first')) + `data: ${event}\n\n` + STREAM;
    for (const [door, body] of Object.entries(bodies) as [keyof typeof bodies, object][])
      for (const isStream of [false, true]) {
        const script = isStream ? streaming(stream) : answering(whole);
        const { run, log } = await world(t, [script], undefined, { breakerFailuresMax: 0 });
        const { error, text, wasCut } = await run({
          door: DOOR_INDEX[door],
          stream: isStream,
          body: JSON.stringify({ model: 'm', stream: isStream, ...body }),
        });
        const at = `${what}, ${door}, ${isStream ? 'stream' : 'whole'}`;
        if (door === 'chat') t.equal(error, undefined, at);
        // A cut stream has begun: the caller gets its text so far, and an error event.
        if (error === undefined) t.ok(wasCut || /stop|completed/.test(text), `${at}: as it is`);
        else t.equal(error.code, 'provider_unavailable', at);
        t.notMatch(JSON.stringify(log), 'RangeError', at);
      }
  }
});
