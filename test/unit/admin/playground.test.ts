/** The playground's calls: handed through as they come, with nothing of the operator's rights. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import type { HttpResponse } from 'uWebSockets.js';
import { Playground } from '#src/admin/playground.js';
import { checkError } from '../../support/error-answer.js';
import { eventually } from '../../support/gateway.js';
import { TOKEN, startAdminHouse } from './support.js';

const PATH = '/admin/playground';

/** Stands for the public port. */
async function startPublic(t: Test, serve: (request: IncomingMessage, response: ServerResponse) => void) {
  const server = createServer(serve);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  return (server.address() as AddressInfo).port;
}

void t.test('a call and its answer', async (t) => {
  const house = await startAdminHouse(t);
  let seen: { headers: IncomingMessage['headers']; url: string | undefined; body: string } | undefined;
  house.publicPort = await startPublic(t, (request, response) => {
    let body = '';
    request.on('data', (part) => (body += String(part)));
    request.on('end', () => {
      seen = { headers: request.headers, url: request.url, body };
      response.writeHead(429, {
        'content-type': 'application/json',
        'x-request-id': 'r-1',
        'x-ratelimit-limit': '5',
        'retry-after': '7',
        server: 'hidden',
      });
      response.end('{"error":{"message":"später"}}');
    });
  });
  const request = { model: 'm', messages: [] };
  const answer = await house.send('POST', PATH, { key: 'sk-customer', request });
  t.match(answer, {
    status: 429,
    body: '{"error":{"message":"später"}}',
    headers: {
      'x-request-id': 'r-1',
      'x-ratelimit-limit': '5',
      'retry-after': '7',
      'cache-control': 'no-store',
    },
  });
  t.notOk(answer.headers.server);
  t.match(seen, { url: '/v1/chat/completions', headers: { authorization: 'Bearer sk-customer' } });
  t.same(JSON.parse(seen!.body), request);
  t.notMatch(JSON.stringify(seen), TOKEN);
  t.same((await house.send('GET', PATH)).json(), { base_url: `http://127.0.0.1:${house.publicPort}/v1` });
});

void t.test('a stream comes as it comes, and ends upstream when the page leaves', async (t) => {
  const house = await startAdminHouse(t);
  const left = new Promise<void>((resolve) => {
    void startPublic(t, (_, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write('data: 1\n\n');
      response.once('close', resolve);
    }).then((port) => (house.publicPort = port));
  });
  while (house.publicPort === 1) await new Promise((resolve) => setImmediate(resolve));
  const leaving = new AbortController();
  const response = await fetch(`http://127.0.0.1:${house.port}${PATH}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${TOKEN}` },
    body: JSON.stringify({ key: 'sk-x', request: {} }),
    signal: leaving.signal,
  });
  const { value } = (await response.body!.getReader().read()) as { value: Uint8Array };
  t.equal(Buffer.from(value).toString(), 'data: 1\n\n', 'before the end');
  leaving.abort();
  await t.resolves(left);
});

void t.test('an operator with all calls under way keeps out no other', async (t) => {
  const house = await startAdminHouse(t);
  const open: ServerResponse[] = [];
  house.publicPort = await startPublic(t, (_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write('data: 1\n\n');
    open.push(response);
  });
  const made = await house.send('POST', '/admin/v1/operators', { name: 'ann', role: 'support' });
  const { token } = made.json() as { token: string };
  const call = (by: string): Promise<Response> =>
    fetch(`http://127.0.0.1:${house.port}${PATH}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${by}` },
      body: JSON.stringify({ key: 'sk-x', request: {} }),
    });
  const answers: Response[] = [];
  for (let count = 0; count < 16; count++) answers.push(await call(TOKEN));
  t.equal((await call(TOKEN)).status, 503);
  answers.push(await call(token));
  t.same(
    answers.map(({ status }) => status),
    Array(17).fill(200),
  );
  const full = await call(token);
  t.match(
    [full.status, await full.text()],
    [503, '17 calls of the playground are under way'],
    'an operator who has one, beyond the number for all',
  );
  for (const response of open) response.end();
  for (const answer of answers) await answer.text();
  t.equal((await call(TOKEN)).status, 200, 'they are over');
  for (const response of open) response.end();
});

void t.test('a request that is nested too deeply is refused, and takes no place', async (t) => {
  const house = await startAdminHouse(t);
  house.publicPort = await startPublic(t, (_, response) => response.end('{}'));
  for (let at = 0; at < 20; at++) {
    const deep = `{"key":"sk-x","request":{"model":${'['.repeat(100_000)}${']'.repeat(100_000)}}}`;
    checkError(t, await house.send('POST', PATH, deep), 'invalid_parameters', 'nested 100,000 times');
  }
  t.equal((await house.send('POST', PATH, { key: 'sk-x', request: {} })).status, 200, 'and it goes on');
});

void t.test('a connection that is reset within the answer breaks the answer, and nothing else', async (t) => {
  const house = await startAdminHouse(t);
  house.publicPort = await startPublic(t, (request, response) => {
    request.resume();
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write('data: 1\n\n', () => setTimeout(() => request.socket.resetAndDestroy(), 50));
  });
  for (let calls = 0; calls < 20; calls++) {
    const response = await fetch(`http://127.0.0.1:${house.port}${PATH}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${TOKEN}` },
      body: JSON.stringify({ key: 'sk-x', request: {} }),
    });
    let body = '';
    await t.rejects(async () => {
      for await (const part of response.body!) body += Buffer.from(part as Uint8Array).toString();
    }, 'it does not look whole');
    t.equal(body, 'data: 1\n\n', 'and has no other answer in it');
  }
  house.publicPort = await startPublic(t, (_, response) => response.end('{}'));
  t.equal((await house.send('POST', PATH, { key: 'sk-x', request: {} })).status, 200, 'and it goes on');
});

void t.test('what is refused', async (t) => {
  const house = await startAdminHouse(t);
  checkError(t, await house.send('POST', PATH, {}, { headers: {} }), 'missing_api_key', 'nobody');
  for (const body of [
    {},
    { key: 'sk-x' },
    { key: 'a\nb', request: {} },
    { key: 1, request: {} },
    { key: 'sk-x', request: [] },
    'x',
    'null',
  ]) {
    t.match(
      checkError(t, await house.send('POST', PATH, body), 'invalid_parameters', JSON.stringify(body)),
      'key',
    );
  }
  const closed = await house.send('POST', PATH, { key: 'sk-x', request: {} });
  t.match(checkError(t, closed, 'internal_error', 'nobody listens'), 'cannot be reached');
  house.publicPort = await startPublic(t, (_, response) => {
    response.writeHead(200);
    response.write('half', () => response.destroy());
  });
  await t.rejects(
    house.send('POST', PATH, { key: 'sk-x', request: {} }),
    'half an answer does not look whole',
  );
});

/** As µWS with a handler for `onWritable`: what the socket did not take is sent at the end of a cork. */
class SlowResponse {
  takes = false;
  kept = '';
  sent = '';
  onFree: () => boolean = () => true;
  readonly onAborted = (): void => undefined;
  readonly writeStatus = (): void => undefined;
  readonly writeHeader = (): void => undefined;
  readonly close = (): void => undefined;
  onWritable(handler: () => boolean): void {
    this.onFree = handler;
  }
  cork(act: () => void): void {
    act();
    if (!this.takes) return;
    this.sent += this.kept;
    this.kept = '';
  }
  write(chunk: Buffer): boolean {
    this.kept += chunk.toString();
    return this.takes;
  }
}

void t.test('what a slow page did not take at once comes before there is more', async (t) => {
  const port = await startPublic(t, (_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write('data: 1\n\n');
    t.teardown(() => response.destroy());
  });
  const playground = new Playground(() => ({ host: '127.0.0.1', port, tls: false }));
  const response = new SlowResponse();
  const body = JSON.stringify({ key: 'sk-x', request: {} });
  playground.serve(response as unknown as HttpResponse, body, 'ann', (work) => void work());
  await eventually('the first event', () => (response.kept === '' ? undefined : true));
  response.takes = true;
  response.onFree();
  t.equal(response.sent, 'data: 1\n\n');
});
