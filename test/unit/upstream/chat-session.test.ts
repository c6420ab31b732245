/** Whole calls that go well, streamed or not: what the client gets, the bill, back-pressure. */
import t from 'tap';
import { FRAME_BYTES_MAX } from '#src/core/limits.js';
import type { Usage } from '#src/core/token-counts.js';
import {
  answerOf,
  chunkOf,
  DONE,
  FakeDownstream,
  requestOf,
  sse,
  USAGE,
  usageEvent,
} from '../../fixtures/upstream-server.js';
import {
  REPORTED,
  COUNTED,
  STREAM,
  turn,
  answering,
  streaming,
  failing,
  world,
} from '../../fixtures/upstream-world.js';
import type { UpstreamTarget } from '#src/upstream/target.js';
import { eventually } from '../../support/gateway.js';
import { settingsOf } from '../../support/provider-forms.js';

void t.test('a count knows whether the upstream got the thoughts of the conversation', async (t) => {
  for (const thoughtsBack of [true, undefined]) {
    const { run, counts } = await world(t, [answering(answerOf(undefined))], undefined, { thoughtsBack });
    await run();
    t.equal(counts[0]?.thoughtsBack, thoughtsBack);
  }
});

void t.test('a whole answer goes through unchanged, with its bill', async (t) => {
  const { upstreams, run, counts } = await world(t, [answering(answerOf(USAGE))], undefined, {
    model: 'their "model"',
  });
  const downstream = await run();
  t.equal(downstream.text, answerOf(USAGE));
  t.equal(downstream.pieces.length, 0);
  t.strictSame(downstream.usage, REPORTED);
  t.equal(counts.length, 0);
  t.equal(upstreams[0]?.requests[0]?.body, requestOf().body.replace('"m"', '"their \\"model\\""'));
});

void t.test('the echo model, whole and streamed', async (t) => {
  const { run } = await world(t, [{ origin: 'echo:' }]);
  t.match(JSON.parse((await run()).text), { choices: [{ message: { content: 'hello world' } }] });
  const body = requestOf().body.replace('{', '{"stream":true,');
  const downstream = await run({ body, stream: true });
  t.ok(downstream.text.endsWith(DONE));
  t.notMatch(downstream.text, /prompt_tokens/);
  t.strictSame(downstream.usage, {
    promptTokens: 2,
    cachedTokens: 0,
    cacheWriteTokens: 0,
    cacheWrite1hTokens: 0,
    reasoningTokens: 0,
    completionTokens: 2,
    source: 'reported',
  });
});

void t.test(
  "failover ends: each once, the shortest wait, and not at all for the caller's mistakes",
  async (t) => {
    const busy = await world(t, [
      failing(429, { 'retry-after': '90' }),
      failing(503, { 'retry-after': '20' }),
      failing(500),
    ]);
    const { error } = await busy.run();
    t.equal(error?.code, 'provider_unavailable');
    t.equal(error?.retryAfterSeconds, 20);
    t.match(error?.message, /after 20 seconds/);
    t.strictSame(
      busy.upstreams.map((upstream) => upstream.requests.length),
      [1, 1, 1],
    );

    const wrong = await world(t, [failing(400), answering(answerOf(USAGE))]);
    t.equal((await wrong.run()).error?.code, 'invalid_parameters');
    t.equal(wrong.upstreams[1]?.requests.length, 0);
  },
);

void t.test('streams', async (t) => {
  let text = STREAM + sse(usageEvent(USAGE)) + DONE;
  const { run, counts } = await world(t, [
    (request, response, body) => streaming(text)(request, response, body),
  ]);
  const plain = await run({ stream: true });
  t.equal(plain.text, STREAM + DONE);
  t.equal(plain.rest?.toString(), DONE, 'the end travels with the bill');
  t.strictSame(plain.usage, REPORTED);
  t.equal((await run({ stream: true, includeUsage: true })).text, text);
  t.equal(counts.length, 0);

  for (const usage of [
    undefined,
    { prompt_tokens: -1, completion_tokens: 1 },
    { ...USAGE, total_tokens: 9 },
  ]) {
    text = STREAM + (usage === undefined ? '' : sse(usageEvent(usage))) + DONE;
    const downstream = await run({ stream: true });
    t.equal(downstream.text, STREAM + DONE);
    t.strictSame(downstream.usage, COUNTED);
  }
  t.equal(counts.length, 3);
  t.match(counts[0], {
    tokenizer: 'o200k_base',
    completionForm: 'stream',
    completion: STREAM,
    relayedBytes: STREAM.length,
  });

  text = STREAM;
  t.equal((await run({ stream: true })).text, STREAM + DONE, '[DONE] was missing');
  text = STREAM + DONE + sse(usageEvent(USAGE));
  t.strictSame((await run({ stream: true })).usage, REPORTED, 'usage after [DONE]');
});

void t.test('chunks do not wait for the count, the end does', async (t) => {
  let give: (usage: Usage) => void = () => undefined;
  const { call, counts } = await world(
    t,
    [streaming(STREAM + DONE)],
    () => new Promise((resolve) => (give = resolve)),
  );
  const { downstream } = call({ stream: true });
  while (counts.length === 0) await turn();
  t.equal(downstream.text, STREAM);
  t.equal(downstream.endings, 0);
  give(COUNTED);
  await downstream.ended;
  t.equal(downstream.text, STREAM + DONE);
});

void t.test('a counter that fails does not cost the caller the answer', async (t) => {
  const { run, log } = await world(t, [answering(answerOf(undefined, 'x'.repeat(40)))], () =>
    Promise.reject(new Error('dead')),
  );
  const { usage, error } = await run();
  t.equal(error, undefined);
  t.match(usage, { completionTokens: 10, source: 'estimated' });
  t.equal(log.lines[0]?.level, 'warn');
});

void t.test('a large whole answer goes in frames, as credits come', async (t) => {
  const answer = answerOf(USAGE, 'x'.repeat(5 * FRAME_BYTES_MAX));
  const { call } = await world(t, [answering(answer)]);
  const { session, downstream } = call();
  downstream.open = false;
  for (let pieces = 1; pieces <= 5; pieces++) {
    while (downstream.pieces.length < pieces) await turn();
    await turn();
    t.equal(downstream.pieces.length, pieces, 'one piece, then it waits');
    t.equal(downstream.endings, 0);
    session.onCredit();
  }
  await downstream.ended;
  t.ok(downstream.pieces.every((piece) => piece.length === FRAME_BYTES_MAX));
  t.equal(downstream.text, answer);
  t.strictSame(downstream.usage, REPORTED);

  const left = call();
  left.downstream.open = false;
  while (left.downstream.pieces.length === 0) await turn();
  left.session.onCancel();
  await left.downstream.ended;
  t.equal(left.downstream.rest?.length, 0);
  t.strictSame(left.downstream.usage, REPORTED, 'it was whole when the client left');
});

void t.test('a client that does not read stops the upstream', async (t) => {
  const event = sse(chunkOf('x'.repeat(50_000)));
  const events = 400;
  let written = 0;
  const { call } = await world(t, [
    (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const write = (): void => {
        while (written < events) {
          written++;
          if (!response.write(event)) {
            response.once('drain', write);
            return;
          }
        }
        response.end(sse(chunkOf('', 'stop')) + sse(usageEvent(USAGE)) + DONE);
      };
      write();
    },
  ]);
  const { session, downstream } = call({ stream: true });
  downstream.open = false;
  while (downstream.pieces.length === 0) await turn();
  let before = -1;
  while (before !== written) {
    before = written;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  t.ok(written < events, `${written} of ${events} events written`);
  t.equal(downstream.pieces.length, 1);
  downstream.open = true;
  session.onCredit();
  await downstream.ended;
  t.equal(downstream.text, event.repeat(events) + sse(chunkOf('', 'stop')) + DONE);
  t.strictSame(downstream.usage, REPORTED);
});

void t.test('a response that does not end once its outcome is known loses its connection soon', async (t) => {
  const event = sse(chunkOf('x'));
  const ended = STREAM + sse(usageEvent(USAGE)) + DONE;
  const bodies: [name: string, status: number, body: string, later: string][] = [
    ['a stream that is silent after [DONE]', 200, ended, ''],
    ['a stream that goes on after [DONE]', 200, ended, event],
    ['comments after [DONE]', 200, ended, ': ping\n\n'],
    ['the body of an error', 503, '{"error":{}}', ' '],
  ];
  for (const [name, status, body, later] of bodies) {
    const { call, upstreams } = await world(t, [
      (_request, response) => {
        response.writeHead(status, { 'content-type': status === 200 ? 'text/event-stream' : 'text/plain' });
        response.write(body);
        if (later === '') return;
        const timer = setInterval(() => response.write(later), 50);
        response.on('close', () => clearInterval(timer));
      },
    ]);
    const { downstream } = call({ stream: true });
    await downstream.ended;
    t.equal(downstream.error?.code, status === 200 ? undefined : 'provider_unavailable', name);
    await eventually(name, () => (upstreams[0]!.sockets.size === 0 ? true : undefined), 4_000);
    t.equal(downstream.endings, 1, name);
  }
});

void t.test('a rejection whose body does not end reaches the caller once its reason is whole', async (t) => {
  const reason = '{"error":{"message":"too many stöps","code":"bad"}}';
  const anthropics = '{"type":"error","error":{"type":"invalid_request_error","message":"too many stöps"}}';
  const anthropic = { provider: settingsOf('anthropic'), key: 'sk-1' };
  // In how many pieces the body comes. The umlaut is cut too.
  const cases: [name: string, body: string, pieces: number, target: Partial<UpstreamTarget>][] = [
    ['at once', reason, 1, {}],
    ['in pieces', `${reason}\n`, 8, {}],
    ['of a provider', anthropics, 1, anthropic],
    ['of a provider, in pieces', anthropics, 8, anthropic],
  ];
  for (const [name, body, pieces, target] of cases) {
    const bytes = Buffer.from(body);
    const step = Math.ceil(bytes.length / pieces);
    const { call } = await world(
      t,
      [
        async (_request, response) => {
          response.writeHead(400, { 'content-type': 'application/json' });
          for (let at = 0; at < bytes.length; at += step) {
            response.write(bytes.subarray(at, at + step));
            await new Promise((resolve) => setTimeout(resolve, 5));
          }
        },
      ],
      undefined,
      target,
    );
    const { downstream } = call({});
    await eventually(name, () => (downstream.endings > 0 ? true : undefined), 4_000);
    t.match(downstream.error, { code: 'invalid_parameters', message: /too many stöps/ }, name);
    t.equal(downstream.endings, 1, name);
  }
});

void t.test('a bug of ours ends as internal_error, is logged, and closes the connection', async (t) => {
  const { call, log } = await world(t, [streaming(STREAM + DONE)]);
  const downstream = new FakeDownstream();
  downstream.onPiece = () => {
    throw new Error('boom');
  };
  call({ stream: true }, downstream);
  await downstream.ended;
  t.equal(downstream.error?.code, 'internal_error');
  t.equal(log.lines[0]?.level, 'error');
  t.match(log.lines[0]?.fields.cause, /boom/);
  await turn();
  t.equal(downstream.endings, 1);

  const unknown = call({ modelIndex: 7 });
  t.equal(unknown.downstream.error?.code, 'internal_error');
});

void t.test('a large body is freed once its call needs it no more', async (t) => {
  const { body } = requestOf();
  const ways = [failing(503), answering(answerOf(undefined)), streaming(STREAM)];
  for (const model of [undefined, 'their "model"']) {
    const sent = model === undefined ? body : body.replace('"m"', JSON.stringify(model));
    for (const [way, first] of ways.entries()) {
      const counted: string[] = [];
      const { run, upstreams } = await world(
        t,
        [first, answering(answerOf(USAGE))],
        async (request) => {
          await turn();
          counted.push(Buffer.from(request.body as Uint8Array).toString());
          return COUNTED;
        },
        { model },
      );
      const largeBody = new Uint8Array(Buffer.from(body));
      t.equal((await run({ body: '', largeBody, stream: way === 2 })).error, undefined);
      const asked = upstreams.flatMap(({ requests }) => requests);
      t.strictSame(
        asked.map((request) => request.body),
        way === 0 ? [sent, sent] : [sent],
      );
      t.strictSame(counted, way === 0 ? [] : [body], 'it is there for the count');
      // Node 20 cannot free it.
      t.equal(largeBody.length, 'transfer' in ArrayBuffer.prototype ? 0 : body.length);
    }
  }
});
