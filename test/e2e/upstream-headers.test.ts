/**
 * What of headers crosses the gateway: nothing of the caller's goes up but its trace (traces.test.ts),
 * nothing of the provider's comes down.
 */
import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { answerOf, chunkOf, DONE, sse } from '../fixtures/upstream-server.js';
import { startGateway, testSettings } from '../support/gateway.js';
import { startMock } from '../support/mock.js';

const SECRET = 'sk-provider-secret-0123456789';
const CALLERS = {
  cookie: 'session=callers-own',
  'proxy-authorization': 'Basic callers-own',
  'x-api-key': 'callers-own',
  'api-key': 'callers-own',
  'x-forwarded-for': '10.1.2.3',
  'x-mock': 'status=500',
  te: 'trailers',
  'keep-alive': 'timeout=5',
  'proxy-connection': 'keep-alive',
  'accept-encoding': 'gzip, br',
  'user-agent': 'callers-own',
  'openai-organization': 'callers-own',
  'x-request-id': 'callers-own',
};
/** Names the gateway gives to a response, and those that the server's own HTTP adds. */
const ALLOWED = new Set([
  'content-type',
  'content-length',
  'transfer-encoding',
  'connection',
  'keep-alive',
  'date',
  'cache-control',
  'x-accel-buffering',
  'x-request-id',
  'x-ratelimit-limit',
  'x-ratelimit-remaining',
  'x-ratelimit-reset',
  'uwebsockets',
]);

void t.test("the caller's headers stay here", async (t) => {
  const mock = await startMock(t);
  const upstream = {
    key: '${PROVIDER_KEY}',
    headers: { 'X-Team': 'gateway', 'OpenAI-Organization': 'ours' },
  };
  const gateway = await startGateway(t, {
    config: testSettings(mock.url, { upstream }),
    env: { PROVIDER_KEY: SECRET },
  });
  const { key } = await gateway.admin.customer();
  for (const stream of [false, true]) {
    const body = { model: 'mock-model', messages: [{ role: 'user', content: 'Hello' }], stream };
    const answer = await gateway.request(key, { body, headers: CALLERS });
    t.equal(answer.status, 200, 'not even steering of the mock crosses');
    const { headers } = (await mock.stats()).last!;
    t.same(
      Object.keys(headers).sort(),
      [
        'accept-encoding',
        'authorization',
        'connection',
        'content-length',
        'content-type',
        'host',
        'openai-organization',
        'user-agent',
        'x-request-id',
        'x-team',
      ],
      'these and no others',
    );
    t.match(headers, {
      authorization: `Bearer ${SECRET}`,
      'accept-encoding': 'identity',
      'openai-organization': 'ours',
      'user-agent': /^tollgate\//,
      'x-request-id': answer.headers['x-request-id'],
      'x-team': 'gateway',
    });
    t.notMatch(JSON.stringify(headers), /callers-own|10\.1\.2\.3/);
    t.notMatch(JSON.stringify(headers), key);
  }
  t.equal(await gateway.stop(), 0);
});

void t.test("the provider's headers stay there", async (t) => {
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      const text = Buffer.concat(parts).toString();
      const stream = text.includes('"stream":true');
      response.writeHead(text.includes('refuse') ? 400 : 200, {
        'content-type': stream ? 'text/event-stream' : 'application/json',
        'set-cookie': 'session=providers-own',
        authorization: SECRET,
        'www-authenticate': 'Bearer realm="providers-own"',
        'proxy-authenticate': 'Basic',
        server: 'providers-own',
        'x-request-id': 'providers-own',
        'x-ratelimit-remaining-tokens': '5',
        'access-control-allow-origin': '*',
        'strict-transport-security': 'max-age=1',
        'keep-alive': 'timeout=1',
        upgrade: 'h2c',
        trailer: 'x-late',
        via: '1.1 providers-own',
      });
      const events = sse(chunkOf('hi', 'stop')) + DONE;
      response.end(
        stream
          ? events
          : text.includes('refuse')
            ? `{"error":{"message":"bad key ${SECRET}"}}`
            : answerOf(undefined),
      );
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
  const gateway = await startGateway(t, {
    config: testSettings(url, { upstream: { key: '${PROVIDER_KEY}' } }),
    env: { PROVIDER_KEY: SECRET },
  });
  const { key } = await gateway.admin.customer();
  for (const [prompt, stream, status] of [
    ['Hello', false, 200],
    ['Hello', true, 200],
    ['refuse', false, 400],
  ] as const) {
    const answer = await gateway.chat(key, prompt, { stream });
    t.equal(answer.status, status, answer.body);
    t.same(
      Object.keys(answer.headers).filter((name) => !ALLOWED.has(name)),
      [],
      `${prompt}, stream ${stream}`,
    );
    t.notMatch(JSON.stringify(answer), /providers-own/);
    t.notMatch(JSON.stringify(answer), SECRET);
  }
  t.equal(await gateway.stop(), 0);
  t.notMatch(gateway.log().join('\n'), SECRET);
});
