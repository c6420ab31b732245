/**
 * The gateway fetches nothing that a caller names: addresses in each member that may hold one, by each door,
 * at each provider, in headers and in the request's target. A server that counts its connections stands for
 * whatever is reachable from the gateway alone, such as a cloud's metadata.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { PROVIDER_MODELS, startProviderBed, type ProviderModel } from '../support/provider-bed.js';
import { TEST_MODEL, startGateway, testSettings } from '../support/gateway.js';

const AT_OPENAI: ProviderModel = {
  id: 'at-openai',
  provider: 'openai',
  model: 'gpt-4o',
  upstream: { key: '${PROVIDER_KEY}' },
  signsThinking: false,
};

/** Counts its connections; answers each request as an upstream might. */
async function startCanary(t: Test): Promise<{ readonly origin: string; readonly count: () => number }> {
  let connections = 0;
  const server = createServer((incoming, response) => {
    incoming.resume();
    response.writeHead(200, { 'content-type': 'application/json' }).end('{"choices":[]}');
  });
  server.on('connection', () => (connections += 1));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    count: () => connections,
  };
}

/** Members of a request to the door, with an address wherever one may stand. */
type Ask = readonly [path: string, members: Readonly<Record<string, unknown>>];

function asksAt(url: string): Ask[] {
  const text = { type: 'text', text: 'Hi' };
  const chat = (part: unknown, more: object = {}): Ask => [
    '/v1/chat/completions',
    { messages: [{ role: 'user', content: [text, part] }], ...more },
  ];
  const messages = (block: unknown, more: object = {}): Ask => [
    '/v1/messages',
    { max_tokens: 64, messages: [{ role: 'user', content: [text, block] }], ...more },
  ];
  const responses = (part: unknown, more: object = {}): Ask => [
    '/v1/responses',
    { input: [{ role: 'user', content: [{ type: 'input_text', text: 'Hi' }, part] }], ...more },
  ];
  const mcp = { type: 'mcp', server_label: 'x', server_url: url, require_approval: 'never' };
  return [
    chat({ type: 'image_url', image_url: { url: `${url}/x.png` } }),
    chat({ type: 'image_url', image_url: { url: 'http://169.254.169.254/latest/meta-data/' } }),
    chat({ type: 'video_url', video_url: { url: `${url}/x.mp4` } }),
    chat({ type: 'input_audio', input_audio: { data: `${url}/x.wav`, format: 'wav' } }),
    chat({ type: 'file', file: { file_data: `${url}/x.pdf`, filename: 'x.pdf' } }),
    chat({ type: 'file', file: { file_id: `${url}/x.pdf` } }),
    chat(text, { base_url: url, api_base: url, url, proxy: url, endpoint: url }),
    chat(text, { tools: [mcp] }),
    chat(text, { web_search_options: { url } }),
    chat(text, {
      response_format: { type: 'json_schema', json_schema: { name: 'x', schema: { $ref: `${url}/x.json` } } },
    }),
    chat(text, { tools: [{ type: 'function', function: { name: 'f', parameters: { $ref: `${url}/x` } } }] }),
    messages({ type: 'image', source: { type: 'url', url: `${url}/x.png` } }),
    messages({ type: 'document', source: { type: 'url', url: `${url}/x.pdf` } }),
    messages(text, { mcp_servers: [{ type: 'url', url, name: 'x' }] }),
    responses({ type: 'input_image', image_url: `${url}/x.png` }),
    responses({ type: 'input_file', file_url: `${url}/x.pdf` }),
    responses({ type: 'input_text', text: 'x' }, { tools: [mcp] }),
  ];
}

/** Names by which proxies and gateways are told where to go. */
const headersAt = (url: string): Record<string, string> => ({
  'x-forwarded-host': url.slice('http://'.length),
  forwarded: `host=${url.slice('http://'.length)}`,
  'x-original-url': url,
  'x-rewrite-url': url,
  'x-upstream-url': url,
  'openai-base-url': url,
  destination: url,
  referer: url,
});

void t.test('addresses in bodies and headers', async (t) => {
  const canary = await startCanary(t);
  const { gateway } = await startProviderBed(t, {}, [], [AT_OPENAI]);
  const { key } = await gateway.admin.customer({ credit: '1000.00' });
  const statuses = new Map<number, number>();
  for (const { id } of [...PROVIDER_MODELS, AT_OPENAI]) {
    const answers = await Promise.all(
      asksAt(canary.origin).map(([path, members]) =>
        gateway.request(key, { path, headers: headersAt(canary.origin), body: { model: id, ...members } }),
      ),
    );
    for (const { status, body } of answers) {
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
      t.ok(status < 500, `${id}: ${status} ${body}`);
    }
  }
  t.ok(statuses.get(200)! > 20 && statuses.get(400)! > 20, JSON.stringify([...statuses]));
  t.equal(canary.count(), 0, 'nobody came');
  await fetch(canary.origin);
  t.equal(canary.count(), 1, 'it would have been seen');
});

void t.test("the request's target, and CONNECT", async (t) => {
  const canary = await startCanary(t);
  const gateway = await startGateway(t, { config: testSettings(canary.origin, {}) });
  const { key } = await gateway.admin.customer({});
  t.equal((await gateway.chat(key, 'Hi')).status, 200, 'the upstream of the settings');
  const before = canary.count();
  t.equal(before, 1);
  const other = await startCanary(t);
  const body = JSON.stringify({ model: TEST_MODEL, messages: [{ role: 'user', content: 'Hi' }] });
  const host = other.origin.slice('http://'.length);
  for (const line of [
    `POST ${other.origin}/v1/chat/completions HTTP/1.1`,
    `POST //${host}/v1/chat/completions HTTP/1.1`,
    `CONNECT ${host} HTTP/1.1`,
    `GET ${other.origin}/ HTTP/1.1`,
  ]) {
    const socket = connect(gateway.port, '127.0.0.1');
    socket.end(
      `${line}\r\nhost: ${host}\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\n` +
        `content-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`,
    );
    socket.resume();
    await once(socket, 'close');
  }
  t.equal(other.count(), 0, 'nobody came');
});
