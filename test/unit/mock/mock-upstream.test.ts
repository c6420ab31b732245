/**
 * The mock over a socket: in a process of its own, because µWS and its clients in one thread would wait for
 * each other.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { MOCK_DEFAULTS } from '#src/mock/mock-options.js';
import { startMockUpstream } from '#src/mock/mock-upstream.js';
import { request } from '../../support/http.js';
import { startMockProcess, steered, type MockProcess } from '../../support/mock.js';
import { RawConnection } from '../../support/raw-connection.js';
import { chunksOf, isWholeText, openStream, readRest, textOf } from '../../support/sse.js';
import { eventually } from '../../support/gateway.js';

const chat = (prompt: string, more: object = {}): object => ({
  model: 'm',
  messages: [{ role: 'user', content: prompt }],
  ...more,
});
const post = (mock: MockProcess, body: unknown, headers: Record<string, string> = {}) =>
  request({ port: mock.port, path: '/v1/chat/completions', body, headers });

void t.test('the mock serves as it is told', async (t) => {
  const mock = await startMockProcess(t, ['--chunks', '3']);

  await t.test('whole, streamed, models, 404', async (t) => {
    const whole = await post(mock, chat('Hello'));
    t.equal(whole.status, 200);
    t.match(whole.json(), { object: 'chat.completion', model: 'm', usage: { prompt_tokens: 2 } });
    const streamed = await post(mock, chat('Hello', { stream: true }));
    t.equal(streamed.headers['content-type'], 'text/event-stream');
    t.ok(isWholeText(textOf(chunksOf(streamed.body)), 3));
    t.match((await request({ port: mock.port, path: '/v1/models' })).json(), { object: 'list' });
    t.equal((await request({ port: mock.port, path: '/else' })).status, 404);
  });

  await t.test('header and prompt steer', async (t) => {
    const byHeader = await post(mock, chat('Hello'), { 'x-mock': 'status=429&retry_after=2' });
    t.match([byHeader.status, byHeader.headers['retry-after']], [429, '2']);
    t.equal((await post(mock, chat(steered('status=503')))).status, 503);
    const wrong = await post(mock, chat(steered('stat=1')));
    t.equal(wrong.status, 400);
    t.match(wrong.body, /no option/);
    t.equal((await post(mock, '{')).status, 400);
  });

  await t.test('echo gives headers and body as they came', async (t) => {
    const sent = JSON.stringify(chat(steered('echo=1'), { tools: [{ x: 1.0 }] }));
    const completion = await post(mock, sent, { 'x-other': 'yes' });
    const { choices } = completion.json() as { choices: [{ message: { content: string } }] };
    const echo = JSON.parse(choices[0].message.content) as { headers: Record<string, string>; body: string };
    t.equal(echo.body, sent);
    t.equal(echo.headers['x-other'], 'yes');
    t.same((await mock.stats()).last, echo, 'recorded the same');
  });

  await t.test('connections break where they are told to', async (t) => {
    for (const fault of ['reset-before', 'reset-headers', 'reset-mid']) {
      await t.rejects(post(mock, chat(steered(`fault=${fault}`))), { code: 'ECONNRESET' }, fault);
    }
    const { incoming } = await openStream(mock.port, '', chat(steered('fault=reset-mid'), { stream: true }));
    await t.rejects(readRest(incoming), { code: 'ECONNRESET' });
    await t.rejects(post(mock, chat('x'.repeat(65 * 1024 * 1024))), 'a body of more than 64 MiB');
    t.equal((await mock.stats()).aborted, 0, 'nobody else closed');
  });

  await t.test('a client that leaves is counted at once', async (t) => {
    await mock.resetStats();
    for (const query of ['fault=stall-before', 'fault=stall-mid', 'chunk_ms=50&chunks=1000']) {
      const connection = await RawConnection.open(mock.port);
      const body = JSON.stringify(chat(steered(query), { stream: true }));
      connection.send(
        `POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      );
      await eventually('the call', async () => ((await mock.stats()).open === 1 ? true : undefined));
      connection.close();
      await eventually('its end', async () => ((await mock.stats()).open === 0 ? true : undefined));
    }
    const { aborted, lastAbortMs } = await mock.stats();
    t.equal(aborted, 3);
    t.ok(Math.abs(Date.now() - lastAbortMs!) < 5_000);
  });

  await t.test('a reader that does not read stops the writer', async (t) => {
    await mock.resetStats();
    const totalBytes = 50_000_000;
    const { incoming, outgoing } = await openStream(
      mock.port,
      '',
      chat(steered(`bytes=${totalBytes}&chunks=1000`), { stream: true }),
    );
    const first = await eventually('bytes', async () => (await mock.stats()).sentBytes || undefined);
    t.ok(first < totalBytes / 2, `${first} bytes sent`);
    t.equal((await mock.stats()).sentBytes, first, 'and no more');
    t.ok(isWholeText(textOf(chunksOf(await readRest(incoming))), 1_000), 'then all comes');
    outgoing.destroy();
  });

  await t.test('SIGTERM ends it well', async (t) => {
    t.same(await mock.child.stop('SIGTERM', 5_000), { code: 0, signal: null });
  });
});

void t.test('one mock has a port: another one says so, in a line', async (t) => {
  const { port } = await startMockProcess(t, []);
  const main = fileURLToPath(new URL('../../../../dist/cli/main.js', import.meta.url));
  const second = spawn(process.execPath, [main, 'mock-upstream', '--port', String(port)]);
  t.teardown(() => second.kill());
  const timer = setTimeout(() => second.kill(), 20_000);
  t.teardown(() => clearTimeout(timer));
  const [stderr, [code]] = await Promise.all([
    text(second.stderr),
    once(second, 'exit') as Promise<[number | null]>,
  ]);
  t.match(stderr, new RegExp(`^cannot listen on 127.0.0.1:${port}: .*\\n$`));
  t.equal(code, 1);
});

void t.test('an IPv6 address has its brackets before the port', async (t) => {
  const settings = { host: '::1', record: false, defaults: MOCK_DEFAULTS };
  const mock = await startMockUpstream({ ...settings, port: 0 });
  t.teardown(() => mock.close());
  const { port } = mock;
  await t.rejects(startMockUpstream({ ...settings, port }), {
    message: new RegExp(`^cannot listen on \\[::1\\]:${port}: `),
  });
});
