/** Token counts against known numbers, and texts that would hurt. */
import t from 'tap';
import { countTokens as encodingOf } from 'gpt-tokenizer/encoding/o200k_base';
import { DOOR_INDEX } from '#src/core/door-names.js';
import { addStreamTexts, type StreamTexts } from '#src/upstream/chat-text.js';
import { countTokens, type CountRequest } from '#src/upstream/token-count.js';
import { estimateTokens } from '#src/upstream/token-estimate.js';
import { answerOf, chunkOf, DONE, sse } from '../../fixtures/upstream-server.js';
import { newSeed } from '../../support/random.js';

function request(messages: unknown, changes: Partial<CountRequest> & { more?: object } = {}): CountRequest {
  const { more = {}, ...rest } = changes;
  const body = JSON.stringify({ model: 'm', messages, ...more });
  const completion = rest.completion ?? '';
  const completionBytes = Buffer.byteLength(completion);
  return {
    tokenizer: 'o200k_base',
    body,
    completionForm: 'none',
    texts: new Map(),
    completion,
    completionBytes,
    relayedBytes: completionBytes,
    ...rest,
  };
}

void t.test('thoughts of the prompt count for an upstream that gets them', (t) => {
  const thought = 'The caller wants to know how warm it is, so look it up.';
  const bodies = {
    messages: {
      max_tokens: 5,
      messages: [
        { role: 'user', content: 'How warm?' },
        { role: 'assistant', content: [{ type: 'thinking', thinking: thought, signature: '' }] },
      ],
    },
    responses: {
      input: [
        { role: 'user', content: 'How warm?' },
        { type: 'reasoning', summary: [{ type: 'summary_text', text: thought }] },
        { role: 'assistant', content: '' },
      ],
    },
  };
  for (const [door, members] of Object.entries(bodies)) {
    const body = JSON.stringify({ model: 'm', ...members });
    const countOf = (thoughtsBack: boolean): number =>
      countTokens(request([], { body, door: DOOR_INDEX[door as 'messages'], thoughtsBack })).promptTokens;
    t.equal(countOf(true) - countOf(false), encodingOf(thought), door);
  }
  t.end();
});

void t.test("the cookbook's example: 129 tokens with cl100k_base, 124 with o200k_base", (t) => {
  // https://cookbook.openai.com/examples/how_to_count_tokens_with_tiktoken: numbers that the interface itself
  // reported.
  const helper =
    'You are a helpful, pattern-following assistant that translates corporate jargon into plain English.';
  const messages = [
    { role: 'system', content: helper },
    { role: 'system', name: 'example_user', content: 'New synergies will help drive top-line growth.' },
    {
      role: 'system',
      name: 'example_assistant',
      content: 'Things working well together will increase revenue.',
    },
    {
      role: 'system',
      name: 'example_user',
      content:
        "Let's circle back when we have more bandwidth to touch base on opportunities for increased leverage.",
    },
    {
      role: 'system',
      name: 'example_assistant',
      content: "Let's talk later when we're less busy about how to do better.",
    },
    {
      role: 'user',
      content: "This late pivot means we don't have time to boil the ocean for the client deliverable.",
    },
  ];
  t.equal(countTokens(request(messages, { tokenizer: 'cl100k_base' })).promptTokens, 129);
  const usage = countTokens(request(messages));
  t.equal(usage.promptTokens, 124);
  t.strictSame(usage, {
    promptTokens: 124,
    cachedTokens: 0,
    cacheWriteTokens: 0,
    cacheWrite1hTokens: 0,
    reasoningTokens: 0,
    completionTokens: 0,
    source: 'counted',
  });
  t.end();
});

void t.test('text parts count as text; what is no text makes it an estimate', (t) => {
  const plain = countTokens(request([{ role: 'user', content: 'hello world' }]));
  const parts = countTokens(request([{ role: 'user', content: [{ type: 'text', text: 'hello world' }] }]));
  t.strictSame(parts, plain);
  const image = countTokens(
    request([{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }]),
  );
  t.equal(image.source, 'estimated');
  t.end();
});

void t.test('parts that are no text count what they are taken for, also in an estimate', (t) => {
  const messages = [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }];
  for (const tokenizer of ['o200k_base', 'none'] as const) {
    const without = countTokens(request(messages, { tokenizer }));
    const counted = countTokens(request(messages, { tokenizer, mediaTokens: 1_500 }));
    t.strictSame(counted, { ...without, promptTokens: without.promptTokens + 1_500 });
  }
  const url = `data:image/png;base64,${'A'.repeat(400_000)}`;
  const large = [{ role: 'user', content: [{ type: 'image_url', image_url: { url } }] }];
  const less = estimateTokens(request(large)).promptTokens;
  t.ok(less < 100, 'data is no text');
  t.equal(estimateTokens(request(large, { mediaTokens: 1_500 })).promptTokens, less + 1_500);
  t.end();
});

void t.test('tool calls and tools count', (t) => {
  const none = countTokens(request([{ role: 'assistant', content: null }])).promptTokens;
  const call = { id: 'x', type: 'function', function: { name: 'weather', arguments: '{"city":"Paris"}' } };
  const called = countTokens(
    request([{ role: 'assistant', content: null, tool_calls: [call] }]),
  ).promptTokens;
  t.equal(called - none, 6, 'weather + {"city":"Paris"}');
  const tools = [{ type: 'function', function: { name: 'weather' } }];
  t.ok(
    countTokens(request([{ role: 'assistant', content: null }], { more: { tools } })).promptTokens > none + 5,
  );
  t.end();
});

void t.test('completions: whole, streamed in any cut, tool calls', (t) => {
  const text = 'The quick brown fox jumps over the lazy dog.';
  const whole = countTokens(
    request([], { completionForm: 'response', completion: answerOf(undefined, text) }),
  );
  t.equal(whole.completionTokens, 10);
  t.equal(whole.source, 'counted');
  const letters =
    text
      .split('')
      .map((letter) => sse(chunkOf(letter)))
      .join('') + DONE;
  t.equal(countTokens(request([], { completionForm: 'stream', completion: letters })).completionTokens, 10);

  const delta = (index: number, called: object) => ({
    choices: [{ index: 0, delta: { tool_calls: [{ index, function: called }] } }],
  });
  const calls =
    sse(delta(0, { name: 'weather', arguments: '' })) +
    sse(delta(0, { arguments: '{"city"' })) +
    sse(delta(0, { arguments: ':"Paris"}' }));
  t.equal(countTokens(request([], { completionForm: 'stream', completion: calls })).completionTokens, 6);
  t.end();
});

void t.test('a prompt that a completion repeats (`echo`) counts as the prompt alone', (t) => {
  const [short, long] = ['The quick', 'The quick brown fox'];
  const output = ' jumps over the lazy dog.';
  const usagesOf = (members: object, texts: readonly string[]) => {
    const choices = texts.map((text, index) => ({ index, text }));
    const body = JSON.stringify({ model: 'm', ...members });
    const door = DOOR_INDEX.completions;
    const whole = JSON.stringify({ choices });
    const counted = countTokens(request([], { body, door, completionForm: 'response', completion: whole }));
    // Pieces of three characters, as an upstream may cut them.
    const events = choices.flatMap(({ index, text }) =>
      (text.match(/.{1,3}/gs) ?? []).map((piece) => sse({ choices: [{ index, text: piece }] })),
    );
    const completion = events.join('');
    return {
      counted,
      streamed: countTokens(request([], { body, door, completionForm: 'stream', completion })),
    };
  };
  const usageOf = (members: object, texts: readonly string[]) => {
    const { counted, streamed } = usagesOf(members, texts);
    t.strictSame(streamed, counted, 'a stream counts as its whole response');
    return counted;
  };
  const outputTokens = encodingOf(output);
  t.match(usageOf({ prompt: long, echo: true }, [long + output]), {
    promptTokens: encodingOf(long),
    completionTokens: outputTokens,
  });
  t.equal(usageOf({ prompt: long, echo: false }, [long + output]).completionTokens, 10);
  const several = [short, short, long, long].map((prompt) => prompt + output);
  t.equal(usageOf({ prompt: [short, long], n: 2, echo: true }, several).completionTokens, 4 * outputTokens);
  // The client left before the prompt was whole. A whole response like that: a server that ignores `echo`.
  const { counted, streamed } = usagesOf({ prompt: long, echo: true }, [short]);
  t.equal(streamed.completionTokens, 0);
  t.equal(counted.completionTokens, encodingOf(short));
  // Servers that ignore `echo` send the output alone.
  t.equal(usageOf({ prompt: long, echo: true }, [output]).completionTokens, outputTokens);
  t.end();
});

void t.test('what was kept as text and what was kept as events are one text', (t) => {
  const text = 'The quick brown fox jumps over the lazy dog.';
  const words = text.split(/(?= )/);
  for (let kept = 0; kept <= words.length; kept += 1) {
    const texts: StreamTexts = new Map();
    const before = words.slice(0, kept).map((word) => sse(chunkOf(word)));
    addStreamTexts(texts, Buffer.from(before.join('')), Infinity);
    const completion = words
      .slice(kept)
      .map((word) => sse(chunkOf(word)))
      .join('');
    const usage = countTokens(request([], { completionForm: 'stream', texts, completion }));
    t.equal(usage.completionTokens, 10, `${kept} words as text`);
  }
  t.end();
});

void t.test('a transcript that was cut is scaled up and flagged', (t) => {
  const completion = sse(chunkOf('hello world'));
  const cut = countTokens(
    request([], { completionForm: 'stream', completion, relayedBytes: 10 * Buffer.byteLength(completion) }),
  );
  t.equal(cut.completionTokens, 20);
  t.equal(cut.source, 'estimated');
  t.end();
});

void t.test("'none' and long texts are estimated from their bytes", (t) => {
  const none = countTokens(request([{ role: 'user', content: 'x'.repeat(400) }], { tokenizer: 'none' }));
  t.strictSame(none, {
    promptTokens: 3 + 3 + 1 + 100,
    cachedTokens: 0,
    cacheWriteTokens: 0,
    cacheWrite1hTokens: 0,
    reasoningTokens: 0,
    completionTokens: 0,
    source: 'estimated',
  });
  const startMs = performance.now();
  const long = countTokens(request([{ role: 'user', content: 'hello '.repeat(800_000) }]));
  t.equal(long.promptTokens, 7 + 1_200_000);
  t.equal(long.source, 'estimated');
  t.ok(performance.now() - startMs < 10_000);
  t.end();
});

void t.test('special tokens are text', (t) => {
  const special = '<|endoftext|>';
  const usage = countTokens(request([{ role: 'user', content: `${special} <|im_start|>` }]));
  t.equal(usage.source, 'counted');
  t.ok(usage.promptTokens > 7 + 8, 'not one token each');
  t.end();
});

void t.test('no text hangs or throws', (t) => {
  const texts: [string, string][] = [
    ['one letter', 'a'.repeat(1_000_000)],
    ['blanks', ' '.repeat(1_000_000)],
    ['newlines', '\n'.repeat(1_000_000)],
    ['signs', '!'.repeat(1_000_000)],
    ['slashes and newlines', '/\n'.repeat(500_000)],
    [
      'random signs',
      Array.from({ length: 500_000 }, (_, index) => String.fromCharCode(33 + ((index * 7919) % 15))).join(''),
    ],
    ['han', '\u9f98'.repeat(330_000)],
    ['emoji', '\u{1f468}\u200d\u{1f469}'.repeat(90_000)],
    ['marks', `a${'\u0301'.repeat(500_000)}`],
    ['upper case', 'QZ'.repeat(500_000)],
    ['every unit', Array.from({ length: 65_536 }, (_, code) => String.fromCharCode(code)).join('')],
    ['special', '<|endoftext|>'.repeat(70_000)],
    ['lone surrogates', '\ud800'.repeat(300_000)],
  ];
  for (const tokenizer of ['o200k_base', 'cl100k_base'] as const) {
    for (const [name, text] of texts) {
      const startMs = performance.now();
      const usage = countTokens(request([{ role: 'user', content: text }], { tokenizer }));
      const ms = performance.now() - startMs;
      t.ok(usage.promptTokens > 7, `${name}, ${tokenizer}: ${usage.promptTokens} tokens`);
      t.ok(ms < 15_000, `${name}, ${tokenizer}: ${ms.toFixed(0)} ms`);
    }
  }
  t.end();
});

void t.test('long runs without a repetition stay bounded, and a cut costs at most one token', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  let state = seed;
  const letters = (count: number): string =>
    Array.from({ length: count }, () => {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
      return String.fromCharCode(97 + ((state >>> 24) % 26));
    }).join('');
  for (let round = 0; round < 20; round++) {
    const text = letters(1_000);
    const ours = countTokens(request([{ role: 'user', content: text }])).promptTokens - 7;
    const exact = encodingOf(text);
    t.ok(Math.abs(ours - exact) <= 8, `${ours} for ${exact}`);
  }
  const startMs = performance.now();
  countTokens(request([{ role: 'user', content: letters(100_000) }]));
  t.ok(performance.now() - startMs < 15_000);
  t.end();
});

void t.test('a body that is no JSON is counted as text', (t) => {
  const usage = countTokens({ ...request([]), body: 'hello world' });
  t.equal(usage.promptTokens, 2);
  t.end();
});
