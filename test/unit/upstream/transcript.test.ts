/**
 * What is kept of a stream: every word of a usual one, a bounded part of a long one, and how much it stands
 * for.
 */
import t from 'tap';
import { TRANSCRIPT_CHARS_MAX, TRANSCRIPT_EVENTS_BYTES_MAX } from '#src/core/limits.js';
import { addStreamTexts } from '#src/upstream/chat-text.js';
import { countTokens } from '#src/upstream/token-count.js';
import { Transcript } from '#src/upstream/transcript.js';
import { chunkOf, sse } from '../../fixtures/upstream-server.js';

const textOf = (transcript: Transcript): string => {
  const texts = new Map(transcript.texts);
  addStreamTexts(texts, transcript.events(), Infinity);
  return [...texts.values()].join('');
};

void t.test('a short stream is not looked at', (t) => {
  const transcript = new Transcript();
  const event = Buffer.from(sse(chunkOf('hello')));
  for (let count = 0; count < 10; count += 1) transcript.add(event);
  t.equal(transcript.texts.size, 0);
  t.equal(transcript.keptBytes, 10 * event.length);
  t.equal(textOf(transcript), 'hello'.repeat(10));
  t.end();
});

void t.test('of 7,000 tokens no word is lost, and little is kept', (t) => {
  const transcript = new Transcript();
  let bytes = 0;
  let text = '';
  for (let count = 0; count < 6_500; count += 1) {
    const word = ` w${count % 1_000}`;
    const event = Buffer.from(sse(chunkOf(word)));
    text += word;
    bytes += event.length;
    transcript.add(event);
    const kept = transcript.events().length;
    if (kept >= TRANSCRIPT_EVENTS_BYTES_MAX) t.fail(`${kept} bytes of events are kept`);
  }
  t.ok(text.length < TRANSCRIPT_CHARS_MAX && bytes > 10 * TRANSCRIPT_EVENTS_BYTES_MAX);
  t.equal(transcript.keptBytes, bytes);
  t.equal(textOf(transcript), text);
  t.end();
});

void t.test('of a longer stream a part is kept, which tells its length', (t) => {
  const transcript = new Transcript();
  const event = Buffer.from(sse(chunkOf(' hello'.repeat(50))));
  const count = 2_000;
  for (let index = 0; index < count; index += 1) transcript.add(event);
  const relayedBytes = count * event.length;
  const text = textOf(transcript);
  t.ok(
    text.length >= TRANSCRIPT_CHARS_MAX && text.length < TRANSCRIPT_CHARS_MAX + 300,
    `${text.length} characters`,
  );
  t.equal(transcript.events().length, 0);
  t.equal(
    transcript.keptBytes,
    (text.length / 300) * event.length,
    'the bytes of the events that were taken',
  );
  const usage = countTokens({
    tokenizer: 'o200k_base',
    body: '{}',
    completionForm: 'stream',
    texts: transcript.texts,
    completion: transcript.events().toString(),
    completionBytes: transcript.keptBytes,
    relayedBytes,
  });
  t.equal(usage.completionTokens, 50 * count, 'scaled up to all of it');
  t.equal(usage.source, 'estimated');
  t.end();
});

void t.test('texts of several choices and fields stay apart', (t) => {
  const transcript = new Transcript();
  const event = Buffer.from(
    sse({
      id: 'x'.repeat(2_000),
      choices: [
        { index: 0, delta: { content: 'a'.repeat(100) } },
        { index: 1, delta: { content: 'b'.repeat(100), reasoning: 'c'.repeat(100) } },
      ],
    }),
  );
  for (let index = 0; index < 70; index += 1) transcript.add(event);
  t.equal(transcript.keptBytes, 70 * event.length);
  const texts = new Map(transcript.texts);
  t.ok(texts.size > 0, 'a part is kept as text');
  addStreamTexts(texts, transcript.events(), Infinity);
  const wanted = ['a', 'b', 'c'].map((letter) => letter.repeat(100 * 70));
  t.ok([...texts.values()].every((text, place) => text === wanted[place]));
  t.equal(texts.size, wanted.length);
  t.end();
});

void t.test('long ids count toward what is kept', (t) => {
  const transcript = new Transcript();
  for (let index = 0; index < 20; index++) {
    const id = `${index}${'x'.repeat(100_000)}`;
    transcript.add(Buffer.from(sse({ type: 'response.output_text.delta', item_id: id, delta: 'w' })));
  }
  let kept = transcript.events().length;
  for (const [key, text] of transcript.texts) kept += key.length + text.length;
  t.ok(kept < 300_000, `${kept} characters`);
  t.end();
});
