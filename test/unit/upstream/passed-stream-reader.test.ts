/**
 * The count of a stream that passes and reports no usage: each token once, however long the stream is,
 * whatever its events repeat or bring beside texts, and wherever its client leaves.
 */
import t from 'tap';
import { type Dialect, NO_MEANING } from '#src/doors/door.js';
import { MESSAGES_DIALECT } from '#src/doors/messages/messages-dialect.js';
import { RESPONSES_DIALECT } from '#src/doors/responses/responses-dialect.js';
import { PassedStreamReader } from '#src/upstream/passed-stream-reader.js';
import { ResponseBudget, WorkerBudget, createBudget } from '#src/upstream/worker-budget.js';
import { type LastBytes } from '#src/upstream/response-reader.js';
import { countTokens } from '#src/upstream/token-count.js';
import { UsageMeter } from '#src/upstream/usage-meter.js';

interface Read {
  readonly tokens: number;
  readonly relayed: string;
  readonly isComplete: boolean;
}

/** What is counted of a stream of these events, in pieces of `pieceBytes`. */
function read(events: readonly string[], pieceBytes = Infinity, dialect: Dialect = RESPONSES_DIALECT): Read {
  const meter = new UsageMeter();
  let relayed = '';
  let isComplete = false;
  const reader = new PassedStreamReader(
    {
      sink: {
        relay: (bytes) => void (relayed += Buffer.from(bytes).toString()),
        crash: (error) => {
          throw error as Error;
        },
      },
      outcome: {
        onBegin: () => undefined,
        complete: (last: LastBytes) => {
          if (last instanceof Uint8Array) relayed += Buffer.from(last).toString();
          isComplete = true;
        },
        reject: ({ cause }) => {
          throw new Error(cause);
        },
      },
      meter,
      budget: new ResponseBudget(new WorkerBudget(createBudget(1, Infinity), 0, 0)),
    },
    dialect.openJudge!(),
  );
  const bytes = Buffer.from(events.join(''));
  for (let start = 0; start < bytes.length; start += pieceBytes)
    reader.onData(bytes.subarray(start, Math.min(bytes.length, start + pieceBytes)));
  const { completionTokens } = countTokens(meter.countRequest({ tokenizer: 'cl100k_base', body: '{}' }));
  return { tokens: completionTokens, relayed, isComplete };
}

const sse = (type: string, members: object): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`;

interface Shape {
  readonly words: number;
  readonly wordsOfDelta: number;
  /** The first events that bring the text. */
  readonly first: 'delta' | 'text' | 'item' | 'response';
  /** Characters of instructions and tools, which the first events repeat. */
  readonly requestChars?: number;
}

/** Each word is a token. `textEvents`: how many events come before all of the text was there. */
function streamOf({ words, wordsOfDelta, first, requestChars = 0 }: Shape) {
  const text = ' word'.repeat(words);
  const request = { instructions: 'i'.repeat(requestChars), output: [] };
  const item = { id: 'm', type: 'message', content: [{ type: 'output_text', text }] };
  const events = [sse('response.created', { response: request })];
  events.push(sse('response.in_progress', { response: request }));
  events.push(sse('response.output_item.added', { item: { ...item, content: [] } }));
  let textEvents = events.length;
  if (first === 'delta')
    for (let word = 0; word < words; word += wordsOfDelta)
      events.push(sse('response.output_text.delta', { item_id: 'm', delta: ' word'.repeat(wordsOfDelta) }));
  if (first === 'delta') textEvents = events.length;
  if (first === 'delta' || first === 'text')
    events.push(sse('response.output_text.done', { item_id: 'm', text }));
  if (first === 'text') textEvents = events.length;
  if (first !== 'response') {
    events.push(sse('response.content_part.done', { item_id: 'm', part: item.content[0] }));
    events.push(sse('response.output_item.done', { item }));
  }
  if (first === 'item') textEvents = events.length;
  events.push(sse('response.completed', { response: { ...request, output: [item], usage: null } }));
  if (first === 'response') textEvents = events.length;
  return { events, textEvents };
}

for (const first of ['delta', 'text', 'item', 'response'] as const)
  for (const [words, wordsOfDelta] of [
    [50, 1],
    [6_600, 300],
    [80_000, 500],
    ...(first === 'delta' ? ([[20_000, 4]] as const) : []),
  ] as const)
    void t.test(`${words} words, first in ${first} events of ${wordsOfDelta}`, (t) => {
      for (const requestChars of [0, 100_000]) {
        const { events, textEvents } = streamOf({ words, wordsOfDelta, first, requestChars });
        const isWithin = (tokens: number): boolean => Math.abs(tokens - words) <= words / 50;
        for (const pieceBytes of [Infinity, 1_500]) {
          const { tokens, relayed, isComplete } = read(events, pieceBytes);
          t.ok(isWithin(tokens), `${tokens} tokens, beside a request of ${requestChars}`);
          t.ok(relayed === events.join('') && isComplete, 'the client gets each byte');
        }
        for (let end = textEvents; end < events.length; end++) {
          const { tokens } = read(events.slice(0, end));
          t.ok(isWithin(tokens), `${tokens} tokens for a client that left after ${end} events`);
        }
      }
      t.end();
    });

void t.test('a call that comes whole beside a text in deltas', (t) => {
  const { events } = streamOf({ words: 100, wordsOfDelta: 1, first: 'delta' });
  const called = { id: 'c', type: 'function_call', name: 'look' };
  const call = { ...called, arguments: JSON.stringify({ a: ' word'.repeat(300) }) };
  const end = events.pop()!;
  events.push(sse('response.output_item.added', { item: { ...called, arguments: '' } }));
  events.push(sse('response.output_item.done', { item: call }));
  const { tokens } = read(events);
  t.ok(tokens >= 400 && tokens < 415, `${tokens} tokens`);
  t.equal(read([...events, end]).tokens, tokens);
  t.end();
});

void t.test('sound and images of a response are no text', (t) => {
  const { events } = streamOf({ words: 10_000, wordsOfDelta: 4, first: 'delta' });
  const sound = sse('response.audio.delta', { delta: 'QUJD'.repeat(20_000) });
  const image = sse('response.image_generation_call.partial_image', {
    partial_image_b64: 'QUJD'.repeat(50_000),
  });
  for (const heard of [
    [...events.slice(0, 3), sound, image, ...events.slice(3)],
    [...events.slice(0, -1), sound, image],
  ]) {
    const { tokens, relayed } = read(heard);
    t.ok(Math.abs(tokens - 10_000) <= 200, `${tokens} tokens`);
    t.ok(relayed === heard.join(''));
  }
  t.end();
});

void t.test('what a tool of the provider finds, and signatures, are no text of a message', (t) => {
  const words = 12_000;
  const block = (index: number, start: object, ...deltas: object[]): string[] => [
    sse('content_block_start', { index, content_block: start }),
    ...deltas.map((delta) => sse('content_block_delta', { index, delta })),
    sse('content_block_stop', { index }),
  ];
  const found = { type: 'web_search_result', encrypted_content: 'c'.repeat(200_000) };
  const results = block(0, { type: 'web_search_tool_result', content: [found] });
  const text = block(
    1,
    { type: 'text', text: '' },
    ...Array.from({ length: words / 4 }, () => ({ type: 'text_delta', text: ' word'.repeat(4) })),
  );
  const signature = { type: 'signature_delta', signature: 's'.repeat(100_000) };
  const thoughts = block(2, { type: 'thinking', thinking: '', signature: '' }, signature);
  const start = sse('message_start', { message: { id: 'm', model: 'claude', content: [] } });
  for (const blocks of [text, [...results, ...text], [...text, ...results], [...text, ...thoughts]]) {
    const { tokens, relayed } = read([start, ...blocks], 1_500, MESSAGES_DIALECT);
    t.ok(Math.abs(tokens - words) <= words / 50, `${tokens} tokens`);
    t.ok(relayed === start + blocks.join(''));
  }
  t.end();
});

void t.test('text takes back that the text was over, but not what its own event says of that', (t) => {
  const dialect: Dialect = {
    ...RESPONSES_DIALECT,
    openJudge: () => ({
      lastEvent: 'data: {}\n\n',
      // With a model, so that the event is no template of others.
      judge: ({ over }) => ({ ...NO_MEANING, isText: true, model: 'm', isTextOver: over === 1 }),
    }),
  };
  const [over, more, fault] = [
    'data: {"over":1}\n\n',
    'data: {"over":0}\n\n',
    'data: no JSON..\n\n',
  ] as const;
  const { isComplete, relayed } = read([over, fault], over.length, dialect);
  t.ok(isComplete, 'the client has all of the text');
  t.equal(relayed, `${over}data: {}\n\n`);
  t.throws(() => read([over, more, fault], over.length, dialect), /no JSON object/);
  t.end();
});
