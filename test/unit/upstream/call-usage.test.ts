/** The usage of a call whose provider reported the prompt before the last text. */
import t from 'tap';
import { DOOR_INDEX } from '#src/core/door-names.js';
import { usageOf } from '#src/upstream/call-usage.js';
import { countTokens } from '#src/upstream/token-count.js';
import { UsageMeter } from '#src/upstream/usage-meter.js';
import { requestOf, sse } from '../../fixtures/upstream-server.js';

void t.test(
  'a prompt that the response repeats (`echo`) is no completion beside an old report',
  async (t) => {
    const [prompt, output] = ['The quick brown fox', ' jumps over the lazy dog.'];
    const meter = new UsageMeter();
    meter.report({ prompt_tokens: 4, completion_tokens: 1, total_tokens: 5 });
    meter.recordText();
    meter.addRelayed(Buffer.from(sse({ choices: [{ index: 0, text: prompt + output }] })));
    const attempt = { meter, usageSoFar: undefined, taken: { target: { slot: 0, name: 'up' } } };
    const route = { tokenizer: 'o200k_base', outputTokensMax: 100, mediaPartTokens: 0 };
    const counted: unknown[] = [];
    const deps = {
      routes: { routeOf: () => route },
      count: (request: Parameters<typeof countTokens>[0]) => {
        counted.push(request.body);
        return Promise.resolve(countTokens(request));
      },
    };
    const body = JSON.stringify({ model: 'm', prompt, echo: true });
    const request = { ...requestOf({}), door: DOOR_INDEX.completions, body };
    const usage = await usageOf(attempt as never, request, deps as never);
    t.match(usage, { promptTokens: 4, completionTokens: countTokens(ofOutput(output)).completionTokens });

    await usageOf(attempt as never, { ...request, body: JSON.stringify({ prompt }) }, deps as never);
    t.same(counted, [body, '{}'], 'without `echo` the prompt, which was reported, is not counted');
  },
);

void t.test('beside an old report of one of several prompts, all of them are counted', async (t) => {
  const meter = new UsageMeter();
  meter.addRelayed(Buffer.from(sse({ choices: [{ index: 0, text: 'a' }] })));
  const told = { prompt_tokens: 2, completion_tokens: 1, total_tokens: 3 };
  const attempt = { meter, usageSoFar: told, taken: { target: { slot: 0, name: 'up' } } };
  const route = { tokenizer: 'o200k_base', outputTokensMax: 100, mediaPartTokens: 0 };
  const deps = {
    routes: { routeOf: () => route },
    count: (request: Parameters<typeof countTokens>[0]) => Promise.resolve(countTokens(request)),
  };
  const body = JSON.stringify({ model: 'm', prompt: ['one two', 'three four five six'] });
  const request = { ...requestOf({}), door: DOOR_INDEX.completions, body };
  const prompts = await usageOf(attempt as never, { ...request, choices: 2 }, deps as never);
  t.equal(prompts.promptTokens, 6);
  const prompt = await usageOf(attempt as never, request, deps as never);
  t.equal(prompt.promptTokens, 2, 'of one prompt the report is exact');
});

void t.test('a report that takes a text for reasoning lacks it', async (t) => {
  const words = ' word'.repeat(30);
  const told = {
    ...{ prompt_tokens: 4, completion_tokens: 9, total_tokens: 13 },
    completion_tokens_details: { reasoning_tokens: 9 },
  };
  const route = { tokenizer: 'o200k_base', outputTokensMax: 100, mediaPartTokens: 0 };
  const deps = {
    routes: { routeOf: () => route },
    count: (request: Parameters<typeof countTokens>[0]) => Promise.resolve(countTokens(request)),
  };
  const whole = (message: object) => (meter: UsageMeter) =>
    meter.setWholeResponse(Buffer.from(JSON.stringify({ choices: [{ index: 0, message }] })));
  const stream = (event: object) => (meter: UsageMeter) => meter.addRelayed(Buffer.from(sse(event)));
  const delta = (choice: object): object => ({ choices: [{ index: 0, delta: choice }] });
  type Case = [name: string, fill: (meter: UsageMeter) => void, completionTokens: number];
  const ofItem = (name: string, item: object, completionTokens: number): Case[] => [
    [
      `${name}, whole`,
      (meter) => meter.setWholeResponse(Buffer.from(JSON.stringify({ output: [item] }))),
      completionTokens,
    ],
    [`${name}, done`, stream({ type: 'response.output_item.done', item }), completionTokens],
    [
      `${name}, at the end`,
      stream({ type: 'response.completed', response: { output: [item] } }),
      completionTokens,
    ],
  ];
  const cases: Case[] = [
    ['a text', whole({ content: words }), 30],
    ['a streamed text', stream(delta({ content: words })), 30],
    ['thoughts', whole({ content: null, reasoning_content: words }), 9],
    ['streamed thoughts', stream(delta({ thinking: words })), 9],
    [
      'streamed thoughts of Responses',
      stream({ type: 'response.reasoning_summary_text.delta', item_id: 'rs_1', delta: words }),
      9,
    ],
    ['nothing', whole({ content: '' }), 9],
    ...[
      {
        name: 'summary',
        item: { type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: words }] },
      },
      {
        name: 'content',
        item: { type: 'reasoning', id: 'rs_1', content: [{ type: 'reasoning_text', text: words }] },
      },
    ].flatMap(({ name, item }) => ofItem(`thoughts of Responses, ${name}`, item, 9)),
    ...ofItem('a message of Responses', { type: 'message', id: 'msg_1', content: [{ text: words }] }, 30),
    ...ofItem('a call of Responses', { type: 'function_call', id: 'fc_1', arguments: words }, 30),
  ];
  for (const [name, fill, completionTokens] of cases) {
    const meter = new UsageMeter();
    fill(meter);
    meter.report(told);
    const attempt = { meter, usageSoFar: undefined, taken: { target: { slot: 0, name: 'up' } } };
    const usage = await usageOf(attempt as never, requestOf({}), deps as never);
    t.match(usage, { promptTokens: 4, completionTokens, reasoningTokens: 9 }, name);
  }
});

function ofOutput(text: string): Parameters<typeof countTokens>[0] {
  const completion = JSON.stringify({ choices: [{ text }] });
  const completionBytes = Buffer.byteLength(completion);
  const form = { completionForm: 'response', texts: new Map(), completion } as const;
  return { tokenizer: 'o200k_base', body: '{}', ...form, completionBytes, relayedBytes: completionBytes };
}
