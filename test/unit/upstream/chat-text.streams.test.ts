/** The texts of streams: items of Responses count once, in any parts, and no value makes an event throw. */
import t from 'tap';
import { addStreamTexts } from '#src/upstream/chat-text.js';
import { chunkOf, sse } from '../../fixtures/upstream-server.js';

void t.test('items of the Responses API count once, with deltas or without', (t) => {
  const item = (id: string, text: string) => ({
    id,
    type: 'message',
    content: [{ type: 'output_text', text }],
  });
  const done = (id: string, text: string): string =>
    sse({ type: 'response.output_item.done', item: item(id, text) });
  const completed = (...output: object[]): string =>
    sse({ type: 'response.completed', response: { output } });
  const delta = (id: string, text: string): string =>
    sse({ type: 'response.output_text.delta', item_id: id, delta: text });
  const called = { id: 'c', type: 'function_call', name: 'look', arguments: '{"up":1}' };
  const whole = (events: string): string => {
    const texts = new Map<string, string>();
    // In two parts, as a long stream is read.
    for (const part of events.split(/(?=^data)/m)) addStreamTexts(texts, Buffer.from(part), Infinity);
    const atOnce = new Map<string, string>();
    addStreamTexts(atOnce, Buffer.from(events), Infinity);
    t.same([...texts.values()].join(), [...atOnce.values()].join());
    return [...texts.values()].join();
  };
  const both = [item('a', 'one'), item('b', 'two')];
  t.equal(whole(done('a', 'one') + done('b', 'two') + completed(...both)), 'one,two');
  t.equal(whole(completed(...both)), 'one,two');
  t.equal(whole(delta('a', 'on') + delta('a', 'e') + done('a', 'one') + completed(both[0]!)), 'one');
  t.equal(whole(delta('x', 'one') + done('a', 'one') + completed(item('y', 'one'))), 'one', 'other ids');
  const added = sse({ type: 'response.output_item.added', item: { ...called, arguments: '' } });
  const ended = sse({ type: 'response.output_item.done', item: called });
  t.equal(whole(added + ended + completed(called)), 'look,{"up":1}');
  // Messages come in deltas, and calls whole.
  const texted = delta('a', 'one') + done('a', 'one');
  t.equal(whole(texted + added + ended), 'one,look,{"up":1}');
  t.equal(whole(texted + added + ended + completed(both[0]!, called)), 'one,look,{"up":1}');
  // Texts come at once, and their items later.
  const textDone = (id: string, text: string): string =>
    sse({ type: 'response.output_text.done', item_id: id, text });
  t.equal(whole(textDone('a', 'one')), 'one');
  t.equal(whole(textDone('a', 'one') + textDone('b', 'two') + completed(...both)), 'one,two');
  t.equal(whole(textDone('x', 'one') + done('a', 'one') + completed(item('y', 'one'))), 'one', 'other ids');
  const argumentsOf = (kind: string, text: object): string =>
    sse({ type: `response.function_call_arguments.${kind}`, item_id: 'c', ...text });
  const argumentsDone = argumentsOf('done', { arguments: '{"up":1}' });
  t.equal(whole(texted + added + argumentsDone + ended + completed(called)), 'one,look,{"up":1}');
  const argumentsDelta = argumentsOf('delta', { delta: '{"up":1}' });
  t.equal(whole(added + argumentsDelta + argumentsDone + ended), 'look,{"up":1}');
  t.equal(whole(delta('a', 'one') + textDone('a', 'one') + completed(both[0]!)), 'one');
  t.equal(whole(sse({ type: 'response.new.delta', delta: 'one' }) + completed(both[0]!)), 'one', 'unknown');
  // Only items that are done come.
  t.equal(whole(ended + completed(called)), 'look,{"up":1}', 'with the name');
  const named = { ...called, id: 'd', arguments: '' };
  t.equal(whole(completed(named, called)), 'look,look,{"up":1}', 'a call without arguments');
  t.equal(whole(done('a/1', 'one') + completed(item('a/1', 'one'))), 'one', 'an id with a slash');
  const first = { ...item('a', 'one'), id: undefined };
  const second = { ...item('b', 'two'), id: undefined };
  t.equal(whole(completed(first, second)), 'one,two', 'items without ids');
  const doneAt = (index: number, of: object): string =>
    sse({ type: 'response.output_item.done', output_index: index, item: of });
  t.equal(whole(doneAt(0, first) + doneAt(1, second) + completed(first, second)), 'one,two', 'by position');
  t.end();
});

void t.test('an event whose values are none of the expected is passed over, and the next is read', (t) => {
  const deep = `${'['.repeat(20_000)}${']'.repeat(20_000)}`;
  const values = ['{"toString":1}', deep, 'null', '"x"', '-1', '1e999', '{}', '[]', 'true'];
  const forms = [
    (value: string) => `{"type":"content_block_delta","index":${value},"delta":{"text":"x"}}`,
    (value: string) => `{"type":"content_block_start","index":0,"content_block":${value}}`,
    (value: string) => `{"type":"response.output_text.delta","item_id":${value},"delta":"x"}`,
    (value: string) => `{"type":"response.output_text.delta","delta":${value}}`,
    (value: string) => `{"type":"response.output_text.done","text":${value}}`,
    (value: string) => `{"type":"response.output_item.added","output_index":${value},"item":{"name":"x"}}`,
    (value: string) => `{"type":"response.output_item.done","item":{"id":${value},"content":${value}}}`,
    (value: string) => `{"type":"response.output_item.done","item":${value}}`,
    (value: string) => `{"type":"response.completed","response":{"output":${value}}}`,
    (value: string) => `{"type":${value},"choices":[{"index":${value},"delta":{"content":"x"}}]}`,
    (value: string) => `{"choices":[{"delta":${value},"text":${value}}]}`,
    (value: string) => `{"choices":[{"delta":{"content":${value},"thinking":${value}}}]}`,
    (value: string) => `{"choices":[{"delta":{"tool_calls":[{"index":${value},"function":${value}}]}}]}`,
    (value: string) =>
      `{"choices":[{"delta":{"function_call":{"name":${value},"arguments":${value}},"audio":${value}}}]}`,
  ];
  for (const form of forms) {
    for (const value of values) {
      const texts = new Map<string, string>();
      const events = `data: ${form(value)}\n\n${sse(chunkOf('next'))}`;
      t.doesNotThrow(() => addStreamTexts(texts, Buffer.from(events), Infinity), form(value).slice(0, 200));
      t.match([...texts.values()].join(), /next/u, form(value).slice(0, 200));
    }
  }
  t.end();
});

void t.test('a chunk with a type of its own is read as a chat completion', (t) => {
  const texts = new Map<string, string>();
  addStreamTexts(texts, Buffer.from(sse({ ...chunkOf('word'), type: 'chunk' })), Infinity);
  t.same([...texts.values()], ['word']);
  t.end();
});

void t.test('items that are done take time in proportion to their number', (t) => {
  const events = (items: number): Buffer =>
    Buffer.from(
      Array.from({ length: items }, (_, at) => {
        const item = { id: `item${at}`, type: 'message', content: [{ type: 'output_text', text: 'w' }] };
        return `data: ${JSON.stringify({ type: 'response.output_item.done', item })}\n\n`;
      }).join(''),
    );
  const msOf = (items: number): number => {
    const bytes = events(items);
    const startMs = process.cpuUsage().user;
    const texts = new Map<string, string>();
    t.equal(addStreamTexts(texts, bytes, Infinity).chars, items);
    return (process.cpuUsage().user - startMs) / 1_000;
  };
  msOf(1_000);
  const fewMs = msOf(1_000);
  const manyMs = msOf(20_000);
  // In proportion 20 times, 400 times by the square.
  t.ok(manyMs < 120 * Math.max(fewMs, 5), `${manyMs.toFixed(0)} ms, ${fewMs.toFixed(0)} ms for a twentieth`);
  t.end();
});
