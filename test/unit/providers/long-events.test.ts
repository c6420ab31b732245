/** Images of Gemini are events of megabytes: how long one may be, and what memory all of them may take. */
import t, { type Test } from 'tap';
import {
  SSE_EVENT_BYTES_MAX,
  UPSTREAM_RESPONSE_BYTES_MAX,
  WHOLE_RESPONSES_BYTES_MAX,
} from '#src/core/limits.js';
import { answering, world, type World } from '../../fixtures/upstream-world.js';
import type { Script } from '../../fixtures/upstream-server.js';
import { settingsOf } from '../../support/provider-forms.js';
import { chunksOf } from '../../support/sse.js';

const imageEvent = (bytes: number): string => {
  const part = { inlineData: { mimeType: 'image/png', data: 'A'.repeat(bytes) } };
  const candidate = { content: { role: 'model', parts: [part] }, finishReason: 'STOP', index: 0 };
  return `data: ${JSON.stringify({ candidates: [candidate], usageMetadata: { promptTokenCount: 7, candidatesTokenCount: 3 } })}\r\n\r\n`;
};
const STREAMED = {
  stream: true,
  body: JSON.stringify({ model: 'm', stream: true, messages: [{ role: 'user', content: 'Paint' }] }),
};
const gemini = (test: Test, script: Script): Promise<World> =>
  world(test, [script], undefined, { provider: settingsOf('gemini') });

void t.test('an image of megabytes reaches the caller whole', async (t) => {
  const bytes = 3 * SSE_EVENT_BYTES_MAX;
  const { run } = await gemini(t, answering(imageEvent(bytes), 'text/event-stream'));
  const { text, error, usage } = await run(STREAMED);
  t.equal(error, undefined);
  const images = (chunksOf(text) as { choices: { delta: { images?: { image_url: { url: string } }[] } }[] }[])
    .flatMap(({ choices }) => choices)
    .flatMap(({ delta }) => delta.images ?? []);
  t.equal(images.length, 1);
  t.equal(images[0]!.image_url.url, `data:image/png;base64,${'A'.repeat(bytes)}`);
  t.match(usage, { promptTokens: 7, completionTokens: 3, source: 'reported' });
});

void t.test('one that is longer than a whole response may be is given up', async (t) => {
  const { run, log } = await gemini(
    t,
    answering(imageEvent(1.25 * UPSTREAM_RESPONSE_BYTES_MAX), 'text/event-stream'),
  );
  const { error } = await run(STREAMED);
  t.equal(error?.code, 'provider_unavailable');
  t.match(JSON.stringify(log), 'an event is too long', 'the log says why');
});

void t.test('all of them have room together, which comes back', async (t) => {
  const bytes = 12 * SSE_EVENT_BYTES_MAX;
  const event = imageEvent(bytes);
  let open = 0;
  const { call, run } = await gemini(t, (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    open++;
    if (open <= 100) response.write(event.slice(0, -10));
    else response.end(event);
  });
  const calls = Array.from({ length: Math.ceil(WHOLE_RESPONSES_BYTES_MAX / bytes) + 1 }, () =>
    call(STREAMED),
  );
  await Promise.race(calls.map(({ downstream }) => downstream.ended));
  t.ok(
    calls.some(({ downstream }) => downstream.error?.code === 'overloaded'),
    'one found no room',
  );
  for (const { session } of calls) session.onCancel();
  await Promise.all(calls.map(({ downstream }) => downstream.ended));
  open = 100;
  t.equal((await run(STREAMED)).error, undefined, 'all room was given back');
});
