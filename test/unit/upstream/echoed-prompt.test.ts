/** The prompt that a completion repeats (`echo`) counts once: as tokens, in a part, in an estimate. */
import t from 'tap';
import { countTokens as encodingOf, encode } from 'gpt-tokenizer/encoding/o200k_base';
import { DOOR_INDEX } from '#src/core/door-names.js';
import type { Usage } from '#src/core/token-counts.js';
import { countTokens, type CountRequest, TokenCount } from '#src/upstream/token-count.js';
import { estimateTokens } from '#src/upstream/token-estimate.js';
import { sse } from '../../fixtures/upstream-server.js';

const PROMPT = 'The quick brown fox, 狐狸';
const OUTPUT = ' jumps over the lazy dog.';
const OUTPUT_TOKENS = encodingOf(OUTPUT);

function request(members: object, completion: string, changes: Partial<CountRequest> = {}): CountRequest {
  const completionBytes = Buffer.byteLength(completion);
  return {
    tokenizer: 'o200k_base',
    door: DOOR_INDEX.completions,
    body: JSON.stringify({ model: 'm', echo: true, ...members }),
    completionForm: 'response',
    texts: new Map(),
    completion,
    completionBytes,
    relayedBytes: completionBytes,
    ...changes,
  };
}

const responseOf = (...texts: string[]): string =>
  JSON.stringify({ choices: texts.map((text, index) => ({ index, text })) });

/** Events of one text, in pieces of one length, so that their bytes tell how many they are. */
const eventsOf = (text: string, pieceChars = 4): string[] =>
  (text.match(new RegExp(`.{1,${pieceChars}}`, 'gs')) ?? []).map((piece) =>
    sse({ choices: [{ index: 0, text: piece.padEnd(pieceChars, '.') }] }),
  );

void t.test('of a prompt as tokens', (t) => {
  const completionTokensOf = (members: object, ...texts: string[]): number =>
    countTokens(request(members, responseOf(...texts))).completionTokens;
  const tokens = encode(PROMPT);
  t.equal(completionTokensOf({ prompt: tokens }, PROMPT + OUTPUT), OUTPUT_TOKENS);
  t.equal(completionTokensOf({ prompt: tokens }, OUTPUT), OUTPUT_TOKENS, 'a server that ignores `echo`');
  const lists = { prompt: [tokens, encode('What is')], n: 2 };
  const texts = [PROMPT, PROMPT, 'What is', 'What is'].map((prompt) => prompt + OUTPUT);
  t.equal(completionTokensOf(lists, ...texts), 4 * OUTPUT_TOKENS, 'of several prompts and choices');
  const all = encodingOf(PROMPT + OUTPUT);
  t.equal(completionTokensOf({ prompt: tokens, echo: false }, PROMPT + OUTPUT), all);
  const others = tokens.map((token) => token + 1);
  t.equal(completionTokensOf({ prompt: others }, PROMPT + OUTPUT), all, 'tokens of another tokenizer');
  t.equal(completionTokensOf({ prompt: [1e9] }, OUTPUT), OUTPUT_TOKENS, 'a number that is no token');
  // 狐 has three bytes, and some tokens end within a character.
  const rare = '\u{12000}';
  const cut = encode(rare).slice(0, -1);
  t.ok(cut.length > 0);
  const withRare = encodingOf(rare + OUTPUT);
  t.equal(completionTokensOf({ prompt: [...tokens, ...cut] }, PROMPT + rare + OUTPUT), withRare);
  t.end();
});

const wordsOf = (count: number): string =>
  Array.from({ length: count }, (_, index) => ` a${10 + (index % 90)}`).join('');
/** 5,000 characters, with as many tokens a character as the output. */
const LONG = wordsOf(1_250);
const LONG_OUTPUT = wordsOf(400);

void t.test('of a response of which a part was kept', (t) => {
  const events = eventsOf(LONG + LONG_OUTPUT);
  const relayedBytes = Buffer.byteLength(events.join(''));
  const outputTokens = encodingOf(LONG_OUTPUT);
  const usageOf = (kept: number, members: object): Usage =>
    countTokens(request(members, events.slice(0, kept).join(''), { completionForm: 'stream', relayedBytes }));
  const promptEvents = eventsOf(LONG).length;
  // A part of the prompt; the prompt; a part of the output too.
  for (const kept of [promptEvents / 2, promptEvents, promptEvents + 100])
    for (const prompt of [LONG, encode(LONG)]) {
      const { completionTokens, source } = usageOf(kept, { prompt });
      t.ok(Math.abs(completionTokens - outputTokens) < 0.1 * outputTokens, `${completionTokens} for ${kept}`);
      t.equal(source, 'estimated');
    }
  const all = usageOf(promptEvents, { prompt: LONG, echo: false }).completionTokens;
  t.ok(all > encodingOf(LONG), 'without `echo` all is output');
  t.equal(usageOf(promptEvents, { prompt: `not ${LONG}` }).completionTokens, all);
  t.end();
});

void t.test('of a response of which a part was kept, and that is counted in turns', (t) => {
  const events = eventsOf(LONG + LONG_OUTPUT);
  const counted = request({ prompt: LONG }, events.slice(0, -50).join(''), {
    completionForm: 'stream',
    relayedBytes: Buffer.byteLength(events.join('')),
  });
  let count = TokenCount.begin(counted);
  let usage: Usage | undefined;
  let turns = 0;
  for (; (usage = count.run(0)) === undefined; turns++) count = TokenCount.resume(count.rest());
  t.ok(turns > 5, `${turns} turns`);
  // A cut of a text costs a token at most.
  t.ok(Math.abs(usage.completionTokens - countTokens(counted).completionTokens) <= 2 * turns);
  t.end();
});

void t.test('in an estimate, also of a body of which only some members are read', (t) => {
  const outputTokens = Math.ceil(OUTPUT.length / 4);
  for (const length of [1_000, 400_000]) {
    const prompt = 'fox '.repeat(length / 4);
    const { completionTokens, promptTokens } = estimateTokens(
      request({ n: 1, prompt }, responseOf(prompt + OUTPUT)),
    );
    t.equal(completionTokens, outputTokens, `${length} characters`);
    t.ok(promptTokens >= length / 4);
    const plain = estimateTokens(request({ prompt, echo: false }, responseOf(prompt + OUTPUT)));
    t.equal(plain.completionTokens, Math.ceil((prompt + OUTPUT).length / 4));
  }
  const body = Buffer.from(`{"echo":true,"prompt":"${'x'.repeat(400_000)}`);
  t.ok(estimateTokens({ ...request({}, responseOf(OUTPUT)), body }).completionTokens > 0, 'no JSON');
  t.end();
});
