/** A webhook is signed as Standard Webhooks says, and each way in which a receiver fails has its answer. */
import { createServer, type AddressInfo, type Socket } from 'node:net';
import OpenAI from 'openai';
import t from 'tap';
import { webhookKeyOf } from '#src/config/notify-schema.js';
import { sendWebhook, signedHeaders } from '#src/telemetry/webhook.js';
import { collect } from '../../support/collections.js';
import { eventually } from '../../support/gateway.js';
import { startReceiver, WEBHOOK_SECRET } from '../../support/webhook-receiver.js';

const KEY = webhookKeyOf(WEBHOOK_SECRET)!;
const WEBHOOK = { id: 'msg_p5jXN8AQM9LWM0D4loKWxJek', body: '{"test": 2432232314}' };
const RUNS = new AbortController().signal;

void t.test('the signature is the one of the reference implementation', (t) => {
  // By the package standardwebhooks 1.1.1.
  t.same(signedHeaders(WEBHOOK, KEY, 1_614_265_330), {
    'webhook-id': WEBHOOK.id,
    'webhook-timestamp': '1614265330',
    'webhook-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
  });
  t.end();
});

void t.test('a receiver can verify it', async (t) => {
  const receiver = await startReceiver(t);
  const to = { url: `${receiver.url}?to=ops`, key: KEY, timeoutMs: 10_000 };
  const body = JSON.stringify({ type: 'balance.low', data: { name: 'Ünïcødé ✓' } });
  t.same(await sendWebhook({ id: 'msg_1', body }, to, Date.now(), RUNS), { sent: true });
  const [got] = receiver.received;
  t.equal(got?.path, '/hook?to=ops');
  t.equal(got?.body, body);
  t.match(got?.headers, { 'content-type': 'application/json', 'user-agent': /^tollgate\/\d/ });
  const judge = new OpenAI({ apiKey: 'none' }).webhooks;
  const headers = got!.headers as Record<string, string>;
  await t.resolves(judge.verifySignature(got!.body, headers, WEBHOOK_SECRET));
  await t.rejects(judge.verifySignature(`${got!.body} `, headers, WEBHOOK_SECRET));
});

void t.test('what a receiver answers', async (t) => {
  const receiver = await startReceiver(t);
  const to = { url: receiver.url, key: KEY, timeoutMs: 10_000 };
  const nowMs = Date.UTC(2026, 0, 1);
  const date = new Date(nowMs + 90_000).toUTCString();
  const cases: readonly [number, Record<string, string>, object][] = [
    [200, {}, { sent: true }],
    [500, {}, { sent: false, reason: 'status 500' }],
    [429, { 'retry-after': '7' }, { sent: false, reason: 'status 429', pauseMs: 7_000 }],
    [503, { 'retry-after': date }, { sent: false, reason: 'status 503', pauseMs: 90_000 }],
    [503, { 'retry-after': '999999' }, { sent: false, reason: 'status 503', pauseMs: 3_600_000 }],
    [503, { 'retry-after': 'soon' }, { sent: false, reason: 'status 503' }],
    [410, {}, { sent: false, reason: 'status 410', rejectedForGood: true }],
    [
      307,
      { location: `${receiver.url}/elsewhere` },
      { sent: false, reason: 'status 307: redirects are not followed' },
    ],
  ];
  for (const [status, headers, expected] of cases) {
    receiver.replies.push({ status, headers });
    t.same(await sendWebhook(WEBHOOK, to, nowMs, RUNS), expected, `${status} ${JSON.stringify(headers)}`);
  }
  t.equal(receiver.received.length, cases.length, 'nothing was sent elsewhere');
});

void t.test('a receiver that is silent, or is not there', async (t) => {
  const receiver = await startReceiver(t);
  receiver.replies.push({ status: undefined }, { status: undefined });
  const to = { url: receiver.url, key: KEY, timeoutMs: 300 };
  const silent = sendWebhook(WEBHOOK, to, 0, RUNS);
  await eventually('the webhook', () => receiver.received[0]);
  collect();
  t.same(
    await silent,
    { sent: false, reason: 'no answer within notify.timeout_ms' },
    'no collection of garbage takes the time limit',
  );
  const stop = new AbortController();
  const cut = sendWebhook(WEBHOOK, { ...to, timeoutMs: 60_000 }, 0, stop.signal);
  stop.abort();
  t.match(await cut, { sent: false }, 'the end of the process waits for no receiver');
  const nowhere = { ...to, url: 'http://127.0.0.1:1/' };
  t.same(await sendWebhook(WEBHOOK, nowhere, 0, RUNS), { sent: false, reason: 'ECONNREFUSED' });
});

const OK = 'HTTP/1.1 200 OK\r\n';
const SWITCH = 'HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n';
/** How receivers answer that speak no good HTTP, and whether the webhook counts as sent. */
const FORMS: readonly (readonly [string, boolean, (socket: Socket) => void])[] = [
  ['another protocol', false, (socket) => socket.write(`${SWITCH}hello`)],
  ['another protocol, and the end', false, (socket) => socket.end(SWITCH)],
  ['101 without a protocol', false, (socket) => socket.end('HTTP/1.1 101 Switching Protocols\r\n\r\n')],
  ['the end', false, (socket) => socket.end()],
  ['a reset', false, (socket) => socket.resetAndDestroy()],
  ['no HTTP', false, (socket) => socket.end('hello\r\n\r\n')],
  ['half a status line', false, (socket) => socket.write('HTTP/1.1 20')],
  ['two lengths', false, (socket) => socket.end(`${OK}content-length: 5\r\ncontent-length: 6\r\n\r\n`)],
  [
    'hints for ever',
    false,
    (socket) => flood(socket, 'HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n'.repeat(99)),
  ],
  ['headers for ever', false, (socket) => flood(socket, `x: ${'y'.repeat(999)}\r\n`, OK)],
  ['a body for ever', true, (socket) => flood(socket, 'y'.repeat(99_999), `${OK}\r\n`)],
  [
    'two responses',
    true,
    (socket) => socket.end(`${OK}content-length: 0\r\n\r\n${OK}content-length: 0\r\n\r\n`),
  ],
];

function flood(socket: Socket, piece: string, first = ''): void {
  socket.write(first);
  const timer = setInterval(() => socket.write(piece), 1);
  socket.on('close', () => clearInterval(timer));
}

void t.test('whatever a receiver answers, the attempt ends', async (t) => {
  for (const [name, sent, answer] of FORMS) {
    const server = createServer((socket) => {
      socket.on('error', () => undefined);
      socket.once('data', () => answer(socket));
    });
    t.teardown(() => server.close());
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    const delivery = await sendWebhook(WEBHOOK, { url, key: KEY, timeoutMs: 1_000 }, 0, RUNS);
    t.match(delivery, sent ? { sent } : { sent, reason: String }, `${name}: ${delivery.reason ?? 'sent'}`);
    await eventually('the end of the connection', async () => {
      const open = await new Promise<number>((resolve) =>
        server.getConnections((_, count) => resolve(count)),
      );
      return open === 0 ? true : undefined;
    });
  }
});
