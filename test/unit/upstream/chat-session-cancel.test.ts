/** Calls whose client leaves, at each moment. */
import { once } from 'node:events';
import t from 'tap';
import type { Usage } from '#src/core/token-counts.js';
import { FORMS, settingsOf } from '../../support/provider-forms.js';
import { answerOf, chunkOf, requestOf, sse, USAGE } from '../../fixtures/upstream-server.js';
import { COUNTED, turn, answering, failing, world } from '../../fixtures/upstream-world.js';

void t.test('cancel before anything was sent costs nothing', async (t) => {
  const { call, counts, upstreams } = await world(t, [answering(answerOf(USAGE))]);
  const { session, downstream } = call();
  session.onCancel();
  session.onCancel();
  session.onCredit();
  await downstream.ended;
  t.ok(downstream.error);
  t.equal(counts.length, 0);
  await turn();
  t.equal(upstreams[0]?.requests.length, 0);
});

void t.test("cancel closes the upstream's socket at once and bills what was relayed", async (t) => {
  const first = sse(chunkOf('a'));
  const { call, counts, upstreams } = await world(t, [
    (_request, response, body) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      if (!body.includes('silent')) response.write(first);
    },
  ]);
  for (const [name, body] of [
    ['before the first byte', requestOf().body.replace('hello', 'silent')],
    ['after it', requestOf().body],
  ] as const) {
    const { session, downstream } = call({ stream: true, body });
    const seen = counts.length;
    const requests = upstreams[0]!.requests.length;
    while (upstreams[0]!.requests.length === requests || (name === 'after it' && downstream.text === ''))
      await turn();
    const closed = Promise.race([...upstreams[0]!.sockets].map((socket) => once(socket, 'close')));
    const startMs = performance.now();
    session.onCancel();
    session.onCancel();
    await closed;
    // A millisecond or two; the shortest timeout that could close it instead takes 30 s.
    t.ok(performance.now() - startMs < 5_000, `${name}: ${(performance.now() - startMs).toFixed(1)} ms`);
    await downstream.ended;
    t.equal(downstream.rest?.length, 0);
    t.strictSame(downstream.usage, { ...COUNTED, source: 'estimated' }, name);
    t.equal(counts.length, seen + 1);
    t.equal(counts.at(-1)?.completionForm, name === 'after it' ? 'stream' : 'none');
    session.onCancel();
    await turn();
    t.equal(downstream.endings, 1);
  }
});

void t.test('a prompt that was told before the text is billed as told', async (t) => {
  for (const completion of [1, 0]) {
    const details = { prompt_tokens_details: { cached_tokens: 4 } };
    const usage = { prompt_tokens: 7, completion_tokens: completion, ...details };
    const { call, counts, log } = await world(t, [
      (_request, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write(sse({ ...chunkOf(''), usage }) + sse(chunkOf('a')));
      },
    ]);
    const { session, downstream } = call({ stream: true });
    while (!downstream.text.includes('"a"')) await turn();
    session.onCancel();
    await downstream.ended;
    const told = { promptTokens: 7, cachedTokens: 4, source: 'estimated' };
    t.strictSame(downstream.usage, { ...COUNTED, ...told });
    t.strictSame(counts[0]?.body, '{}', 'the prompt is not counted');
    t.strictSame(log.lines, [], 'and nothing wrong is logged');
  }
});

void t.test('cancel between two tries, while counting, and after the end', async (t) => {
  const retry = await world(t, [failing(500), answering(answerOf(USAGE))]);
  const retried = retry.call();
  while (retry.log.lines.length === 0) await turn();
  // The second try has been started meanwhile; it may or may not have been sent, but there is one end.
  retried.session.onCancel();
  await retried.downstream.ended;
  await turn();
  t.equal(retried.downstream.endings, 1);

  let give: (usage: Usage) => void = () => undefined;
  const counting = await world(
    t,
    [answering(answerOf(undefined))],
    () => new Promise((resolve) => (give = resolve)),
  );
  const { session, downstream } = counting.call();
  while (counting.counts.length === 0) await turn();
  session.onCancel();
  t.equal(downstream.endings, 0);
  give(COUNTED);
  await downstream.ended;
  t.equal(downstream.rest?.length, 0);
  session.onCancel();
  session.onCredit();
  t.equal(downstream.endings, 1);
});

void t.test('a client that leaves while a rejection comes pays nothing', async (t) => {
  const plain = [400, 413, 422].map((status) => ({ what: 'chat', status, target: {}, changes: {} }));
  const body = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'hi' }] });
  const largeBody = new Uint8Array(Buffer.from(body));
  const translated = FORMS.filter(({ credential }) => credential.kind === 'key').flatMap((form) =>
    [400, 401, 429, 529].flatMap((status) =>
      [{ body }, { body: '', largeBody }].map((changes) => ({
        ...{ what: form.name, status, changes },
        target: { model: form.model, provider: settingsOf(form.provider), key: 'sk-1' },
      })),
    ),
  );
  for (const { what, status, target, changes } of [...plain, ...translated]) {
    const { call, counts, upstreams } = await world(
      t,
      [
        (_request, response) => {
          response.writeHead(status, { 'content-type': 'application/json', 'content-length': 100 });
          response.write('{"error":{');
        },
      ],
      undefined,
      target,
    );
    const { session, downstream } = call(changes);
    while (upstreams[0]!.requests.length === 0) await turn();
    // The head and the half of the body are on their way.
    await new Promise((resolve) => setTimeout(resolve, 100));
    session.onCancel();
    await downstream.ended;
    t.equal(downstream.usage, undefined, `${what}, ${status}: not charged`);
    t.ok(downstream.error);
    t.equal(downstream.endings, 1);
    t.equal(counts.length, 0);
  }
});
