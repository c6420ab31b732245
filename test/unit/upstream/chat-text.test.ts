/**
 * No place of a response holds text for nothing: each kind is counted, in streams, in whole responses, and of
 * those who leave.
 */
import t from 'tap';
import { addStreamTexts } from '#src/upstream/chat-text.js';
import { countTokens, type CountRequest } from '#src/upstream/token-count.js';
import { sse } from '../../fixtures/upstream-server.js';
import { streaming, turn, world } from '../../fixtures/upstream-world.js';
import { streamChoice, TEXT_KINDS, wholeChoice, type TextKind } from '../../support/text-kinds.js';

const TEXT = 'The quick brown fox jumps over the lazy dog.';
const TOKENS = 10;
/** A word is a token, but for the last with its full stop. */
const PIECES = TEXT.split(/(?= )/);
/** Their texts end up side by side in two choices. */
const CHOICES = 2;

function countOf(completionForm: CountRequest['completionForm'], completion: string): number {
  const bytes = Buffer.byteLength(completion);
  return countTokens({
    tokenizer: 'o200k_base',
    body: '{}',
    completionForm,
    texts: new Map(),
    completion,
    completionBytes: bytes,
    relayedBytes: bytes,
  }).completionTokens;
}

const eventsOf = (kind: TextKind, pieces: readonly string[]): string =>
  pieces
    .flatMap((piece) =>
      Array.from({ length: CHOICES }, (_, index) => sse({ choices: [streamChoice(kind, index, piece)] })),
    )
    .join('');

for (const kind of TEXT_KINDS) {
  void t.test(kind.name, async (t) => {
    t.equal(countOf('stream', eventsOf(kind, PIECES)), CHOICES * TOKENS, 'in a stream, in pieces');
    const both = [0, 1].map((index) => streamChoice(kind, index, TEXT));
    t.equal(countOf('stream', sse({ choices: both })), CHOICES * TOKENS, 'in one event for all choices');
    const choices = [0, 1].map((index) => wholeChoice(kind, index, TEXT));
    t.equal(countOf('response', JSON.stringify({ choices })), CHOICES * TOKENS, 'in a whole answer');

    const events = eventsOf(kind, PIECES.slice(0, 4));
    const { call } = await world(
      t,
      [
        (_request, response) =>
          response.writeHead(200, { 'content-type': 'text/event-stream' }).write(events),
      ],
      (request) => Promise.resolve(countTokens(request)),
    );
    const { session, downstream } = call({ stream: true, choices: CHOICES });
    while (downstream.text.length < events.length) await turn();
    session.onCancel();
    await downstream.ended;
    t.equal(downstream.usage?.completionTokens, CHOICES * 4, 'of a client that left');
    t.equal(downstream.usage?.source, 'estimated');
  });

  void t.test(`${kind.name}, behind a report that knows nothing of it`, async (t) => {
    const early = { choices: [], usage: { prompt_tokens: 7, completion_tokens: 1, total_tokens: 8 } };
    const events = eventsOf(kind, PIECES.slice(0, 1)) + sse(early) + eventsOf(kind, PIECES.slice(1));
    const stop = sse({ choices: [0, 1].map((index) => ({ index, delta: {}, finish_reason: 'stop' })) });
    const { run } = await world(t, [streaming(events + stop)], (request) =>
      Promise.resolve(countTokens(request)),
    );
    const { usage } = await run({ stream: true, choices: CHOICES });
    t.equal(usage?.completionTokens, CHOICES * TOKENS);
  });
}

void t.test('a name that is repeated with each piece of the arguments counts once', (t) => {
  const piece = (name: string, json: string): string =>
    sse({
      choices: [{ index: 0, delta: { tool_calls: [{ index: 0, function: { name, arguments: json } }] } }],
    });
  const once = piece('weather', '') + piece('', '{"city":') + piece('', '"Paris"}');
  const repeated = piece('weather', '') + piece('weather', '{"city":') + piece('weather', '"Paris"}');
  t.equal(countOf('stream', repeated), countOf('stream', once));
  const inPieces = piece('wea', '') + piece('ther', '{"city":"Paris"}');
  t.equal(countOf('stream', inPieces), countOf('stream', once), 'a name in pieces is whole');
  t.end();
});

void t.test('arguments that are an object count as its JSON', (t) => {
  const message = { tool_calls: [{ function: { name: 'weather', arguments: { city: 'Paris' } } }] };
  t.equal(countOf('response', JSON.stringify({ choices: [{ index: 0, message }] })), 6);
  t.end();
});

void t.test('what is no text, or lies too deep, is passed over', (t) => {
  const values = [
    null,
    1,
    true,
    {},
    [],
    [null, 1, {}],
    { text: 1 },
    [{ type: 'image_url', image_url: { url: 'x' } }],
  ];
  for (const value of values) {
    const message = {
      content: value,
      reasoning: value,
      audio: value,
      tool_calls: value,
      function_call: value,
    };
    t.equal(
      countOf('response', JSON.stringify({ choices: [{ message, text: value }] })),
      0,
      JSON.stringify(value),
    );
  }
  const open = '['.repeat(100_000);
  t.equal(
    countOf('response', `{"choices":[{"message":{"content":${open}"word"${']'.repeat(100_000)}}}]}`),
    0,
  );
  t.end();
});

void t.test('many pieces of a name in one event take no time that grows with their square', (t) => {
  const calls = Array.from({ length: 14_000 }, (_, at) => ({
    index: 0,
    function: { name: `name${at % 7}`, arguments: 'x' },
  }));
  const events = Buffer.from(sse({ choices: [{ index: 0, delta: { tool_calls: calls } }] }));
  const { user } = process.cpuUsage();
  addStreamTexts(new Map(), events, Infinity);
  const tookMs = (process.cpuUsage().user - user) / 1_000;
  t.ok(tookMs < 700, `${tookMs} ms of CPU`);
  t.end();
});
