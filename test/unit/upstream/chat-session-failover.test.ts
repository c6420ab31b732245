/** Whole calls that go wrong: what each failure of an upstream means, and who is asked next. */
import { createServer } from 'node:http';
import t from 'tap';
import { DOOR_INDEX } from '#src/core/door-names.js';
import { UPSTREAM_RESPONSE_BYTES_MAX } from '#src/core/limits.js';
import type { UpstreamTarget } from '#src/upstream/target.js';
import {
  answerOf,
  chunkOf,
  closedOrigin,
  DONE,
  sse,
  USAGE,
  type Script,
} from '../../fixtures/upstream-server.js';
import {
  REPORTED,
  STREAM,
  turn,
  answering,
  streaming,
  failing,
  world,
} from '../../fixtures/upstream-world.js';

const good = answering(answerOf(USAGE));

void t.test('every status has its row', async (t) => {
  let status = 200;
  const { run, log } = await world(t, [(request, response) => failing(status)(request, response, '')]);
  for (status of [400, 409, 413, 422]) {
    const { error } = await run();
    t.strictSame(
      error,
      { code: 'invalid_parameters', message: 'internal host db-7 is down' },
      `status ${status}`,
    );
  }
  t.equal(log.lines.length, 0);
  for (status of [301, 302, 304, 401, 402, 403, 404, 405, 408, 418, 429, 500, 502, 503, 504, 529]) {
    const { error } = await run();
    t.equal(error?.code, 'provider_unavailable', `status ${status}`);
    t.notMatch(error?.message, /db-7|127\.0\.0\.1|sk-provider/);
  }
  const rejected = log.lines.filter((line) => line.message.includes('key or account'));
  t.equal(rejected[0]?.level, 'error');
  t.equal(rejected[0]?.fields.subject, 'upstream-0');
  t.notMatch(JSON.stringify(log.lines), /sk-provider/);
  const misplaced = log.lines.filter((line) => line.message.includes('no chat interface'));
  t.match(misplaced[0], { level: 'warn', fields: { subject: 'upstream-0', cause: /^status 301, at http:/ } });
  t.match(misplaced[0]?.fields.cause, /\/v1\/chat\/completions$/);
});

void t.test('a response that the door cannot express: the next upstream is asked', async (t) => {
  const callOf = (json: string): object => ({
    id: 'c',
    type: 'function',
    function: { name: 'f', arguments: json },
  });
  const whole = (json: string): Script => {
    const message = { role: 'assistant', tool_calls: [callOf(json)] };
    const choices = [{ index: 0, message, finish_reason: 'tool_calls' }];
    return answering(JSON.stringify({ choices, usage: USAGE }));
  };
  const streamed = (...pieces: readonly object[]): Script =>
    streaming(
      pieces
        .map((call) => sse({ choices: [{ index: 0, delta: { tool_calls: [call] }, finish_reason: null }] }))
        .join('') +
        sse(chunkOf('', 'tool_calls')) +
        DONE,
    );
  const door = DOOR_INDEX.messages;
  const first = { index: 0, ...callOf('{}') };
  for (const [stream, bad, next] of [
    [false, whole('[1]'), whole('{"a":1}')],
    [true, streamed({ index: 1, ...callOf('{}') }, first), streamed(first)],
  ] as const) {
    const { run, log } = await world(t, [bad, next]);
    const { text, error, upstreams } = await run({ door, stream });
    t.equal(error, undefined, `stream ${stream}`);
    t.match(text, /"tool_use"/);
    t.equal(upstreams.length, 2);
    t.notMatch(JSON.stringify(log.lines), /inside of the gateway/);
    const alone = await world(t, [bad]);
    t.match((await alone.run({ door, stream })).error, { code: 'provider_unavailable' });
  }
});

void t.test('what is no answer', async (t) => {
  let script: Script = () => undefined;
  const { run } = await world(t, [(request, response, body) => script(request, response, body)]);
  const rows: [string, Script][] = [
    ['html', answering('<html></html>', 'text/html')],
    ['html that calls itself JSON', answering('<html></html>')],
    ['cut JSON', answering(answerOf(USAGE).slice(0, -5))],
    ['an array', answering('[]')],
    ['no choices', answering('{"object":"x"}')],
    ['nothing', answering('')],
    ['no content', (_request, response) => response.writeHead(204).end()],
    ['an error that calls itself a success', answering('{"error":{"message":"m"}}')],
    ['a stream', streaming(STREAM + DONE)],
    ['too much', answering(`{"choices":[],"x":"${'a'.repeat(UPSTREAM_RESPONSE_BYTES_MAX)}"}`)],
    ['packed', answering(answerOf(USAGE), 'application/json', 200, { 'content-encoding': 'gzip' })],
    ['no HTTP', (request) => request.socket.end('oops\r\n\r\n')],
    ['a reset', (request) => request.socket.resetAndDestroy()],
  ];
  for (const [name, next] of rows) {
    script = next;
    const { error, text } = await run();
    t.equal(error?.code, 'provider_unavailable', name);
    t.match(error?.message, /retry later/, name);
    t.equal(text, '');
  }
  script = answering(answerOf(USAGE));
  t.equal((await run({ stream: true })).error?.code, 'provider_unavailable', 'JSON for a stream');
  t.equal((await run()).error, undefined, 'and the next call is well');
});

void t.test('JSON is a whole answer by any name of its type but those of pages and streams', async (t) => {
  let script: Script = () => undefined;
  const { run } = await world(t, [(request, response, body) => script(request, response, body)]);
  const types = [
    'application/json',
    'Application/JSON; charset=utf-8',
    'application/problem+json',
    // What Go's servers say of JSON if their handler names no type.
    'text/plain; charset=utf-8',
    'application/octet-stream',
    'nonsense',
    '',
  ];
  for (const type of types) {
    script = answering(answerOf(USAGE), type);
    t.equal((await run()).error, undefined, type);
    script = answering('OK', type);
    t.equal((await run()).error?.code, 'provider_unavailable', `${type}, but no JSON`);
  }
  for (const type of ['text/html', 'Application/XHTML+xml', 'text/event-stream', 'TEXT/Event-Stream;x=y']) {
    script = answering(answerOf(USAGE), type);
    t.equal((await run()).error?.code, 'provider_unavailable', type);
  }
  for (const type of ['text/plain', 'application/json', 'application/octet-stream', '']) {
    script = answering(STREAM + DONE, type);
    t.equal((await run({ stream: true })).error?.code, 'provider_unavailable', `a stream as ${type}`);
  }
});

void t.test('an error body without end does not hold the caller', async (t) => {
  const { run } = await world(t, [
    (_request, response) => {
      response.writeHead(400);
      const write = (): void => {
        while (response.write('x'.repeat(10_000)));
        response.once('drain', write);
      };
      write();
    },
  ]);
  t.equal((await run()).error?.code, 'invalid_parameters');
});

void t.test('failover: the next upstream answers', async (t) => {
  const bads: [string, Script | Partial<UpstreamTarget>][] = [
    ['nobody there', { origin: await closedOrigin() }],
    ['reset', (request) => request.socket.resetAndDestroy()],
    ['429', failing(429)],
    ['500', failing(500)],
    ['our key refused', failing(401)],
    ['garbage', answering('nonsense')],
    [
      'a reset in the middle of the answer',
      (request, response) => {
        response.writeHead(200, { 'content-type': 'application/json', 'content-length': '99' });
        response.write('{"choices"', () => request.socket.resetAndDestroy());
      },
    ],
  ];
  for (const [name, bad] of bads) {
    const { run, upstreams, log } = await world(t, [bad, good]);
    const downstream = await run();
    t.equal(downstream.text, answerOf(USAGE), name);
    t.strictSame(downstream.usage, REPORTED);
    t.ok(upstreams.every((upstream) => upstream.requests.length === 1));
    t.equal(log.lines.length, 1);
    t.equal(log.lines[0]?.level, name === 'our key refused' ? 'error' : 'warn');
  }
  const stalled = await world(t, [() => undefined, good], undefined, { firstByteTimeoutMs: 100 });
  t.equal((await stalled.run()).text, answerOf(USAGE), 'a stall');
  const streamed = await world(t, [streaming(sse({ error: 'x' })), streaming(STREAM + DONE)]);
  t.equal((await streamed.run({ stream: true })).text, STREAM + DONE, 'a stream that starts with an error');
});

void t.test('a single upstream is tried again only where that repeats no work', async (t) => {
  let calls = 0;
  const kept = await world(t, [
    (request, response, body) => {
      calls++;
      if (calls === 2) request.socket.resetAndDestroy();
      else answering(answerOf(USAGE))(request, response, body);
    },
  ]);
  t.equal((await kept.run()).error, undefined);
  await turn();
  t.equal((await kept.run()).error, undefined, 'the dead connection was not noticed by the caller');
  t.equal(calls, 3);

  const fresh = await world(t, [(request) => request.socket.resetAndDestroy()]);
  t.equal((await fresh.run()).error?.code, 'provider_unavailable');
  t.equal(fresh.upstreams[0]?.requests.length, 1, 'it may have begun to work on it');

  const always = await world(t, [{ origin: await closedOrigin() }]);
  const startMs = performance.now();
  t.equal((await always.run()).error?.code, 'provider_unavailable');
  const ms = performance.now() - startMs;
  t.ok(ms >= 150, `two pauses: ${ms.toFixed(0)} ms`);
  t.equal(always.log.lines[0]?.message, 'an upstream failed, the call was tried again');
  t.equal(always.log.lines[1]?.message, 'an upstream failed, the call was lost');
});

void t.test(
  'an upstream that is back after a pause serves the call; who leaves in the pause costs nothing',
  async (t) => {
    const origin = await closedOrigin();
    const { call } = await world(t, [{ origin }]);
    const { downstream, session } = call();
    const server = createServer((_request, response) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(answerOf(USAGE));
    });
    t.teardown(() => server.close());
    const { port, hostname } = new URL(origin);
    server.listen(Number(port), hostname);
    await downstream.ended;
    t.strictSame(downstream.usage, REPORTED);
    session.onCancel();

    const gone = await world(t, [{ origin: await closedOrigin() }]);
    const leaving = gone.call();
    while (gone.log.lines.length === 0) await turn();
    leaving.session.onCancel();
    await leaving.downstream.ended;
    t.equal(leaving.downstream.error?.code, 'internal_error');
    await new Promise((resolve) => setTimeout(resolve, 250));
    t.equal(leaving.downstream.endings, 1);
  },
);

void t.test('an upstream that keeps failing is left alone: no call reaches it, and none waits', async (t) => {
  let status = 500;
  const one = await world(
    t,
    [(request, response, body) => (status === 200 ? good : failing(status))(request, response, body)],
    undefined,
    { breakerFailuresMax: 3 },
  );
  for (let count = 0; count < 3; count++) await one.run();
  for (let count = 0; count < 5; count++) {
    const { error } = await one.run();
    t.equal(error?.code, 'provider_unavailable');
    t.ok(error?.retryAfterSeconds !== undefined && error.retryAfterSeconds <= 2);
    t.match(error?.message, /it failed repeatedly\); retry after (1 second|2 seconds)\./);
  }
  t.equal(one.upstreams[0]?.requests.length, 3);
  t.equal(one.log.lines.filter(({ message }) => message.includes('all upstreams of a model rest')).length, 1);
  status = 200;
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  t.equal((await one.run()).text, answerOf(USAGE), 'the probe');
  t.equal((await one.run()).text, answerOf(USAGE));

  const two = await world(t, [failing(500), good], undefined, { breakerFailuresMax: 3 });
  for (let count = 0; count < 10; count++) t.equal((await two.run()).text, answerOf(USAGE));
  t.equal(two.upstreams[0]?.requests.length, 3);
});

void t.test("the caller's own mistakes and his leaving do not open the breaker", async (t) => {
  const mistaken = await world(t, [failing(400)], undefined, { breakerFailuresMax: 1 });
  for (let count = 0; count < 3; count++) t.equal((await mistaken.run()).error?.code, 'invalid_parameters');
  const silent = await world(t, [() => undefined], undefined, { breakerFailuresMax: 1 });
  for (let count = 1; count <= 3; count++) {
    const { session, downstream } = silent.call();
    while (silent.upstreams[0]!.requests.length < count) await turn();
    session.onCancel();
    await downstream.ended;
  }
});

void t.test(
  'Retry-After: the next upstream meanwhile; with none, the wait is told and nobody asked',
  async (t) => {
    for (const status of [429, 503]) {
      const two = await world(t, [failing(status, { 'retry-after': '30' }), good]);
      for (let count = 0; count < 3; count++) t.equal((await two.run()).text, answerOf(USAGE));
      t.equal(two.upstreams[0]?.requests.length, 1);
      const one = await world(t, [failing(status, { 'retry-after': '30' })]);
      t.equal((await one.run()).error?.retryAfterSeconds, 30);
      const { error } = await one.run();
      t.equal(error?.retryAfterSeconds, 5, 'then one call asks again');
      t.match(error?.message, /it asked for a pause\); retry after 5 seconds/);
      t.equal(one.upstreams[0]?.requests.length, 1);
    }
    const both = await world(t, [failing(429, { 'retry-after': '30' }), failing(500)]);
    t.equal((await both.run()).error?.retryAfterSeconds, 30);
  },
);

void t.test('after the longest duration of a try no other upstream is asked', async (t) => {
  const { run, upstreams } = await world(t, [() => undefined, good], undefined, { totalTimeoutMs: 150 });
  t.match((await run()).error?.message, /did not finish in time/);
  t.equal(upstreams[1]?.requests.length, 0);
});

void t.test('a refused call leaves its connection usable', async (t) => {
  const { run, upstreams } = await world(t, [failing(500)]);
  for (let count = 0; count < 5; count++) {
    await run();
    await turn();
    await turn();
  }
  t.equal(upstreams[0]?.connections, 1);
});

void t.test('after the first byte there is no second try', async (t) => {
  const rows: [string, Script][] = [
    [
      'reset',
      (request, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write(sse(chunkOf('a')), () => setTimeout(() => request.socket.resetAndDestroy(), 50));
      },
    ],
    [
      'error event',
      (_request, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write(sse(chunkOf('a')), () =>
          setTimeout(() => response.end(sse({ error: { message: 'm' } })), 50),
        );
      },
    ],
    [
      'no end',
      (_request, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.end(sse(chunkOf('a')));
      },
    ],
    [
      'stall',
      (_request, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write(sse(chunkOf('a')));
      },
    ],
  ];
  for (const [name, bad] of rows) {
    const { run, upstreams } = await world(t, [bad, streaming(STREAM + DONE)], undefined, {
      idleTimeoutMs: 200,
    });
    const { error, text } = await run({ stream: true });
    t.equal(error?.code, 'provider_unavailable', name);
    t.equal(text, sse(chunkOf('a')));
    t.equal(upstreams[1]?.requests.length, 0);
  }
});
