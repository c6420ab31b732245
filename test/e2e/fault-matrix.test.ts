/**
 * Everything that an upstream can do wrong, whole and streamed, with one upstream and with a healthy second
 * one: what the caller gets, what it costs to the pico-unit, and that nothing stays behind. One gateway; each
 * row and number of upstreams is a model of its own.
 */
import { gzipSync } from 'node:zlib';
import { createServer as createTlsServer } from 'node:https';
import { once } from 'node:events';
import type { AddressInfo, Socket } from 'node:net';
import t from 'tap';
import type { Test } from 'tap';
import { UPSTREAM_RESPONSE_BYTES_MAX } from '#src/core/limits.js';
import { decimalOf, picoUnitsOf } from '#src/core/money.js';
import { selfSigned } from '../fixtures/upstream-certificate.js';
import { answerOf, chunkOf, closedOrigin, DONE, sse, usageEvent } from '../fixtures/upstream-server.js';
import { checkError } from '../support/error-answer.js';
import {
  BROKEN,
  cellsOf,
  checkCells,
  checkNothingStays,
  checkServed,
  COUNTED,
  FAULT_TIMEOUTS,
  REJECTED,
  SERVED,
  settledAccount,
  slugOf,
  UNSERVED,
  type FaultCell,
} from '../support/fault-cells.js';
import {
  chunked,
  drip,
  FaultServer,
  flood,
  head,
  LAST_CHUNK,
  send,
  type FaultScript,
  sendOnceReached,
} from '../support/fault-server.js';
import { eventually, startGateway, TEST_PRICE, type Gateway } from '../support/gateway.js';
import type { Answer } from '../support/http.js';
import { startMock } from '../support/mock.js';
import { SlowReader } from '../support/slow-reader.js';

const CREDIT = '100.00';
const SECRET = 'sk-provider-secret-0123456789';
/** Beyond the longest whole response, which no stream is bounded by. */
const HUGE_BYTES = 1.5 * UPSTREAM_RESPONSE_BYTES_MAX;

const INPUT = 1_500_000n;
const OUTPUT = 2_250_000n;
/**
 * Pico-units that a response costs: as the faulty upstream reports it, as the healthy one does, as it is
 * counted here.
 */
const BILLS = {
  ok: 7n * INPUT + 3n * OUTPUT,
  other: 11n * INPUT + 5n * OUTPUT,
  // "Hello" in its frame, and "hi there"; tiktoken says so, too.
  counted: 8n * INPUT + 2n * OUTPUT,
  part: undefined,
  down: 0n,
  caller: 0n,
  cut: 0n,
} as const;

/**
 * ok: the upstream's response. other: the healthy upstream's. counted: as ok, with tokens counted here. down:
 * 502. caller: 400. cut: a stream that ends with an error event. part: a stream whose connection is cut, and
 * which is charged for what came.
 */
type Ending = keyof typeof BILLS;

interface Row {
  readonly name: string;
  /** In the order one upstream, two upstreams; undefined: not a case. */
  readonly whole: readonly [Ending, Ending] | undefined;
  readonly stream: readonly [Ending, Ending] | undefined;
  /** What the upstream does; or where the upstream is. */
  readonly script: FaultScript | { readonly url: string };
  /** Of the 502 with one upstream. */
  readonly retryAfterSeconds?: number;
  readonly upstream?: object;
}

const USAGE = { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 };
const FIRST = sse(chunkOf('hi'));
const EVENTS = FIRST + sse(chunkOf(' there')) + sse(chunkOf('', 'stop'));
const streamOf = (usage: unknown): string =>
  EVENTS + (usage === undefined ? '' : sse(usageEvent(usage))) + DONE;
const bodyWith = (stream: boolean, usage: unknown): string => (stream ? streamOf(usage) : answerOf(usage));
const bodyOf = (stream: boolean): string => bodyWith(stream, USAGE);
const typeOf = (stream: boolean): string => (stream ? 'text/event-stream' : 'application/json');

interface Reply {
  readonly status?: number;
  readonly type?: string | undefined;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: (stream: boolean) => string | Uint8Array;
}

/** A well-formed answer with its length. */
const reply =
  ({ status = 200, type, headers = {}, body = bodyOf }: Reply): FaultScript =>
  (socket, stream) => {
    const bytes = Buffer.from(body(stream) as string);
    const fields = { 'content-type': type ?? typeOf(stream), 'content-length': String(bytes.length) };
    send(socket, [head(status, { ...fields, connection: 'close', ...headers }), bytes], 'close');
  };
const error = (status: number, headers: Readonly<Record<string, string>> = {}): FaultScript =>
  reply({
    status,
    headers,
    type: 'application/json',
    body: () => '{"error":{"message":"the upstream says so"}}',
  });
const bad = (whole: string, stream: string): FaultScript =>
  reply({ body: (isStream) => (isStream ? stream : whole) });
const usage = (value: unknown): FaultScript => reply({ body: (stream) => bodyWith(stream, value) });
/** Bytes as they are, in parts. */
const raw =
  (end: 'close' | 'reset' | 'stall', ...parts: ((stream: boolean) => string)[]): FaultScript =>
  (socket, stream) =>
    send(
      socket,
      parts.map((part) => part(stream)),
      end,
    );

/** The same, but of a stream the third part, or the end, comes when the caller has the second. */
const apart =
  (end: 'close' | 'reset' | 'stall', ...parts: ((stream: boolean) => string)[]): FaultScript =>
  (socket, stream, reached) => {
    const texts = parts.map((part) => part(stream));
    if (stream) sendOnceReached(reached, socket, texts.slice(0, 2), texts.slice(2), end);
    else send(socket, texts, end);
  };

// Each says that it closes: a connection that a script is about to close must not carry the next row's call.
const chunkedHead = (stream: boolean): string =>
  head(200, { 'content-type': typeOf(stream), 'transfer-encoding': 'chunked', connection: 'close' });
const someBody = (stream: boolean): string => chunked(stream ? FIRST : answerOf(USAGE).slice(0, 40));
const someChunk = (stream: boolean): string => `fff\r\n${stream ? `${FIRST}data: {"cho` : '{"choices":['}`;
const sized = (length: string) => (stream: boolean) =>
  head(200, { 'content-type': typeOf(stream), 'content-length': length, connection: 'close' });

/** The same break at each place of a response. */
function breaks(end: 'close' | 'reset' | 'stall'): Row[] {
  return [
    { name: `${end} before headers`, ...UNSERVED, script: raw(end) },
    { name: `${end} in the status line`, ...UNSERVED, script: raw(end, () => 'HTTP/1.1 20') },
    { name: `${end} mid-headers`, ...UNSERVED, script: raw(end, () => 'HTTP/1.1 200 OK\r\ncontent-ty') },
    { name: `${end} after headers`, ...UNSERVED, script: raw(end, chunkedHead) },
    { name: `${end} mid-body`, ...BROKEN, script: apart(end, chunkedHead, someBody) },
    { name: `${end} mid-chunk`, ...BROKEN, script: apart(end, chunkedHead, someChunk) },
    {
      name: `${end} before the promised length`,
      ...BROKEN,
      script: apart(end, sized('9999'), (stream) => (stream ? FIRST : '{"choices":[')),
    },
  ];
}

const STATUSES: Row[] = [
  ...[400, 409, 413, 422].map((status) => ({
    name: `status ${status}`,
    ...REJECTED,
    script: error(status),
  })),
  ...[401, 402, 403, 404, 405, 408, 418, 429, 451, 500, 501, 502, 503, 504, 520, 529].map((status) => ({
    name: `status ${status}`,
    ...UNSERVED,
    script: error(status),
  })),
  ...[429, 503].map((status) => ({
    name: `status ${status} with Retry-After`,
    ...UNSERVED,
    script: error(status, { 'retry-after': '20' }),
    retryAfterSeconds: 20,
  })),
  { name: 'status 500 with Retry-After', ...UNSERVED, script: error(500, { 'retry-after': '20' }) },
  { name: 'status 429 with nonsense for a wait', ...UNSERVED, script: error(429, { 'retry-after': 'soon' }) },
  ...[301, 302, 303, 307, 308].map((status) => ({
    name: `redirect ${status}`,
    ...UNSERVED,
    script: error(status, { location: '/followed/v1/chat/completions' }),
  })),
  { name: 'status 204', ...UNSERVED, script: raw('close', () => head(204, { connection: 'close' })) },
  { name: 'status 304', ...UNSERVED, script: raw('close', () => head(304, { connection: 'close' })) },
];

const good = (stream: boolean): string =>
  head(200, {
    'content-type': typeOf(stream),
    'content-length': String(Buffer.byteLength(bodyOf(stream))),
    connection: 'close',
  }) + bodyOf(stream);

const INTERIM: Row[] = [
  { name: '102 first', ...SERVED, script: raw('close', () => head(102), good) },
  {
    name: '103 first',
    ...SERVED,
    script: raw('close', () => head('103 Early Hints', { link: '</x>' }), good),
  },
  {
    name: '102 again and again, then the answer',
    ...SERVED,
    script: raw('close', ...Array.from({ length: 5 }, () => () => head(102)), good),
  },
  // RFC 9110, 15.2: asked for or not. A 101 that was not is a breach of the protocol.
  { name: '100 first', ...SERVED, script: raw('close', () => head(100), good) },
  {
    name: '101 unasked',
    ...UNSERVED,
    script: raw('close', () => head(101, { upgrade: 'x', connection: 'upgrade' })),
  },
  { name: '102 and nothing more', ...UNSERVED, script: raw('stall', () => head(102)) },
  { name: '102 without end', ...UNSERVED, script: (socket) => drip(socket, head(102)) },
];

const GARBAGE: Row[] = [
  { name: 'no HTTP', ...UNSERVED, script: raw('close', () => 'hello\r\n\r\n') },
  { name: 'HTTP of another version', ...UNSERVED, script: raw('close', () => 'HTTP/9.9 200 OK\r\n\r\n') },
  { name: 'status of four digits', ...UNSERVED, script: raw('close', () => 'HTTP/1.1 2000 OK\r\n\r\n') },
  {
    name: 'a header without a colon',
    ...UNSERVED,
    script: raw('close', () => 'HTTP/1.1 200 OK\r\nnonsense\r\n\r\n'),
  },
  {
    name: 'headers of 100 KB',
    ...UNSERVED,
    script: raw('close', () => head(200, { x: 'x'.repeat(100_000) })),
  },
  { name: 'length that is no number', ...UNSERVED, script: raw('close', sized('ten'), bodyOf) },
  { name: 'negative length', ...UNSERVED, script: raw('close', sized('-5'), bodyOf) },
  { name: 'two lengths', ...UNSERVED, script: raw('close', sized('10\r\ncontent-length: 20'), bodyOf) },
  {
    name: 'length and chunks',
    ...UNSERVED,
    script: raw('close', sized('10\r\ntransfer-encoding: chunked'), bodyOf),
  },
  { name: 'a chunk size that is none', ...UNSERVED, script: raw('close', chunkedHead, () => 'zz\r\nx\r\n') },
  {
    name: 'a chunk size beyond all numbers',
    ...UNSERVED,
    script: raw('close', chunkedHead, () => `${'f'.repeat(40)}\r\nx`),
  },
  {
    name: 'a bad chunk size later on',
    ...BROKEN,
    script: apart('close', chunkedHead, someBody, () => 'zz\r\n'),
  },
  {
    name: 'a length that is too short',
    whole: ['down', 'other'],
    stream: ['down', 'other'],
    script: raw('close', sized('20'), bodyOf),
  },
  {
    name: 'a second answer that nobody asked for',
    ...SERVED,
    // In one piece: what came later could not be told from the response to the next row's call.
    script: raw('stall', (stream) => good(stream).replace('connection: close\r\n', '') + good(stream)),
  },
  { name: 'empty body', ...UNSERVED, script: bad('', '') },
  { name: 'HTML', ...UNSERVED, script: reply({ type: 'text/html', body: () => '<html></html>' }) },
  { name: 'HTML under a right type', ...UNSERVED, script: bad('<html></html>', '<html></html>') },
  {
    name: 'the type of the other kind',
    ...UNSERVED,
    script: (socket, stream, reached) =>
      reply({ type: typeOf(!stream), body: () => bodyOf(!stream) })(socket, stream, reached),
  },
  { name: 'broken JSON', ...UNSERVED, script: bad(answerOf(USAGE).slice(0, -9), 'data: {"choices":[\n\n') },
  { name: 'no object', ...UNSERVED, script: bad('[]', 'data: []\n\n') },
  { name: 'no choices', ...UNSERVED, script: bad('{}', 'data: {}\n\n') },
  {
    name: 'an error for an answer',
    ...UNSERVED,
    script: bad('{"error":{"message":"x"}}', sse({ error: { message: 'x' } })),
  },
  { name: 'no event at all', whole: undefined, stream: ['down', 'other'], script: bad('', ': comment\n\n') },
  { name: '[DONE] alone', whole: undefined, stream: ['down', 'other'], script: bad('', DONE) },
  ...[
    ['broken SSE', 'data: {"choices":[\n\n'],
    ['an error event', sse({ error: { message: 'x' } })],
    ['no end', ''],
  ].map(([name, text]): Row => ({
    name: `${name} after the first event`,
    whole: undefined,
    stream: ['cut', 'cut'],
    script: apart(
      'close',
      chunkedHead,
      () => chunked(FIRST),
      () => (text === '' ? '' : chunked(text!)) + LAST_CHUNK,
    ),
  })),
  {
    name: 'no [DONE]',
    whole: undefined,
    stream: ['ok', 'ok'],
    script: bad('', streamOf(USAGE).replace(DONE, '')),
  },
  // The text is whole, and so is its bill, whatever follows.
  ...(['reset', 'close', 'stall'] as const).map((end): Row => ({
    name: `${end} after the last text`,
    whole: undefined,
    stream: ['counted', 'counted'],
    script: apart(end, chunkedHead, () => chunked(EVENTS)),
  })),
  ...[
    ['broken SSE', 'data: {"choices":[\n\n'],
    ['an error event', sse({ error: { message: 'x' } })],
  ].map(([name, text]): Row => ({
    name: `${name} after the last text`,
    whole: undefined,
    stream: ['counted', 'counted'],
    script: apart(
      'close',
      chunkedHead,
      () => chunked(EVENTS),
      () => chunked(text!),
    ),
  })),
  {
    name: 'gzip',
    ...UNSERVED,
    script: reply({ headers: { 'content-encoding': 'gzip' }, body: (stream) => gzipSync(bodyOf(stream)) }),
  },
  {
    name: 'gzip that does not say so',
    ...UNSERVED,
    script: reply({ body: (stream) => gzipSync(bodyOf(stream)) }),
  },
  {
    name: 'byte by byte',
    ...SERVED,
    script: (socket, stream) => {
      const bytes = Buffer.from(good(stream));
      const next = (at: number): void => {
        if (at === bytes.length) socket.end();
        else socket.write(bytes.subarray(at, at + 1), () => setImmediate(next, at + 1));
      };
      next(0);
    },
  },
  {
    name: 'never-ending',
    // The time of a whole call is over: no second upstream is begun. A stream that goes on is ours to cut,
    // and is paid for.
    whole: ['down', 'down'],
    stream: ['part', 'part'],
    script: (socket, stream) => {
      socket.write(chunkedHead(stream));
      drip(socket, chunked(stream ? FIRST : '        '));
    },
  },
];

const USAGES: Row[] = [
  { name: 'usage missing', ...COUNTED, script: usage(undefined) },
  { name: 'usage null', ...COUNTED, script: usage(null) },
  { name: 'usage a text', ...COUNTED, script: usage('7') },
  { name: 'usage negative', ...COUNTED, script: usage({ prompt_tokens: -5, completion_tokens: -5 }) },
  { name: 'usage absurd', ...COUNTED, script: usage({ prompt_tokens: 1e15, completion_tokens: 1e15 }) },
  { name: 'usage in fractions', ...COUNTED, script: usage({ prompt_tokens: 7.5, completion_tokens: 3 }) },
  { name: 'usage in texts', ...COUNTED, script: usage({ prompt_tokens: '7', completion_tokens: '3' }) },
  { name: 'usage with a sum that is too small', ...COUNTED, script: usage({ ...USAGE, total_tokens: 9 }) },
  {
    name: 'usage of nothing beside a text',
    ...COUNTED,
    script: usage({ prompt_tokens: 7, completion_tokens: 0 }),
  },
  {
    name: 'usage of more output than the model can give',
    ...COUNTED,
    script: usage({ prompt_tokens: 7, completion_tokens: 1_000_000 }),
  },
  {
    name: 'usage with more cached than there is',
    ...COUNTED,
    script: usage({ ...USAGE, prompt_tokens_details: { cached_tokens: 8 } }),
  },
  {
    name: 'usage beyond the balance',
    ...COUNTED,
    script: usage({ prompt_tokens: 900_000_000, completion_tokens: 3 }),
  },
];

const LONG = { total_timeout_ms: 60_000 };

/** Each takes seconds of a core for itself: they run by themselves. */
const HUGE: Row[] = [
  {
    name: 'too much in one piece',
    ...UNSERVED,
    upstream: LONG,
    script: (socket, stream) => {
      socket.write(head(200, { 'content-type': typeOf(stream), connection: 'close' }));
      socket.write(stream ? 'data: {"choices":["' : '{"choices":["');
      flood(socket, 'x'.repeat(65_536), HUGE_BYTES);
    },
  },
  {
    name: 'as much in events',
    whole: undefined,
    stream: ['ok', 'ok'],
    upstream: LONG,
    script: (socket) => {
      socket.write(head(200, { 'content-type': typeOf(true), connection: 'close' }));
      flood(socket, sse(chunkOf('x'.repeat(65_536))), HUGE_BYTES, streamOf(USAGE));
    },
  },
];

/** Faults of the connection itself; they need listeners of their own. */
async function connectionRows(t: Test, server: FaultServer): Promise<Row[]> {
  const plain = await server.listen('plain', (socket) =>
    socket.on('data', () => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n')),
  );
  const silent = await server.listen('silent', (socket) => socket.resume());
  const resetting = await server.listen('resetting', (socket) => socket.resetAndDestroy());
  const rows: Row[] = [
    { name: 'connect refused', ...UNSERVED, script: { url: `${await closedOrigin()}/v1` } },
    { name: 'DNS failure', ...UNSERVED, script: { url: 'http://nobody.invalid/v1' } },
    { name: 'reset at connect', ...UNSERVED, script: { url: `http://127.0.0.1:${resetting}/v1` } },
    {
      name: 'TLS: the other side speaks none',
      ...UNSERVED,
      script: { url: `https://127.0.0.1:${plain}/v1` },
    },
    { name: 'TLS: the other side is silent', ...UNSERVED, script: { url: `https://127.0.0.1:${silent}/v1` } },
    { name: 'TLS: reset', ...UNSERVED, script: { url: `https://127.0.0.1:${resetting}/v1` } },
  ];
  const made = selfSigned();
  if (made === undefined) {
    t.comment('openssl is not installed: no row with a certificate');
    return rows;
  }
  const tls = createTlsServer({ key: made.key, cert: made.certificate }, (_request, response) =>
    response.end('{}'),
  );
  tls.on('connection', (socket: Socket) => server.track(socket, 'TLS'));
  tls.listen(0, '127.0.0.1');
  await once(tls, 'listening');
  t.teardown(() => tls.close());
  const { port } = tls.address() as AddressInfo;
  return [
    ...rows,
    { name: 'TLS: a certificate of nobody', ...UNSERVED, script: { url: `https://127.0.0.1:${port}/v1` } },
  ];
}

type Cell = FaultCell<Row, Ending>;

const modelOf = ({ row, upstreams }: Pick<Cell, 'row' | 'upstreams'>): string =>
  `${slugOf(row.name)}-${upstreams}`;

function checkAnswer(t: Test, answer: Answer, { row, stream, upstreams, ending }: Cell, name: string): void {
  t.notMatch(answer.body, SECRET, name);
  t.ok(answer.headers['x-request-id'], `${name}: named`);
  if (ending === 'down') {
    const message = checkError(t, answer, 'provider_unavailable', name);
    t.notMatch(message, /127\.0\.0\.1|invalid|ECONN/, `${name}: no address`);
    if (upstreams === 1 && row.retryAfterSeconds !== undefined) {
      const seconds = Number(answer.headers['retry-after']);
      // The call that it refused is told the upstream's own wait; others, when one of them asks again.
      t.ok(seconds > 0 && (seconds <= 5 || seconds === row.retryAfterSeconds), `${name}: wait ${seconds} s`);
    } else t.equal(answer.headers['retry-after'], undefined, `${name}: no wait is named`);
    return;
  }
  if (ending === 'caller') {
    t.equal(checkError(t, answer, 'invalid_parameters', name), 'the upstream says so', name);
    return;
  }
  const expected = ending === 'other' ? /^w0 / : ending === 'cut' ? /^(hi)+$/ : /hi there$/;
  checkServed(t, answer, { stream, isCut: ending === 'cut', expected }, name);
}

/** No error event, which would say that nothing is charged, and no end. */
async function checkPart(t: Test, gateway: Gateway, key: string, cell: Cell, name: string): Promise<void> {
  const messages = [{ role: 'user', content: 'Hello' }];
  const body = { model: modelOf(cell), messages, stream: true };
  const reader = new SlowReader(gateway.port, key, body, 1_000_000, true);
  await reader.closed;
  const text = reader.text();
  t.match(text, /"hi"/, name);
  t.notMatch(text, /"error"|\[DONE\]|\r\n0\r\n/, `${name}: ${text.slice(-200)}`);
}

async function checkCell(t: Test, gateway: Gateway, server: FaultServer, cell: Cell): Promise<void> {
  const { row, stream, upstreams, ending } = cell;
  const name = `${row.name}, ${stream ? 'stream' : 'whole'}, ${upstreams}`;
  const customer = await gateway.admin.customer({ credit: CREDIT });
  if (ending === 'part') {
    await checkPart(t, gateway, customer.key, cell, name);
  } else {
    const answer = await gateway.request(customer.key, {
      body: { model: modelOf(cell), messages: [{ role: 'user', content: 'Hello' }], stream },
      onBegun: stream ? () => server.reach(modelOf(cell)) : undefined,
    });
    checkAnswer(t, answer, cell, name);
  }
  const account = await settledAccount(gateway, customer.accountId, name);
  const bill = BILLS[ending];
  if (bill === undefined) t.ok(picoUnitsOf(account.spent)! > BILLS.counted, `${name}: ${account.spent}`);
  else t.equal(account.spent, decimalOf(bill), `${name}: bill`);
  t.equal(account.calls_today, ending === 'down' || ending === 'cut' ? 0 : 1, `${name}: day`);
  t.equal(
    picoUnitsOf(account.credited),
    picoUnitsOf(account.balance)! + picoUnitsOf(account.spent)!,
    `${name}: credited = balance + spent`,
  );
}

void t.test('fault matrix', async (t) => {
  const mock = await startMock(t, ['--prompt-tokens', '11', '--completion-tokens', '5']);
  const server = new FaultServer(t);
  const quick = [
    ...(await connectionRows(t, server)),
    ...(['reset', 'close', 'stall'] as const).flatMap(breaks),
    ...STATUSES,
    ...INTERIM,
    ...GARBAGE,
    ...USAGES,
  ];
  const rows = [...quick, ...HUGE];
  t.equal(new Set(rows.map(({ name }) => slugOf(name))).size, rows.length, 'each row has a name of its own');
  const scripts = rows.flatMap(({ name, script }): [string, FaultScript][] =>
    typeof script === 'function' ? [1, 2].map((count) => [`${slugOf(name)}-${count}`, script]) : [],
  );
  const port = await server.scripted(new Map(scripts));
  const healthy = { url: mock.url, priority: 2 };
  const models = rows.flatMap((row) =>
    ([1, 2] as const).map((upstreams) => {
      const id = modelOf({ row, upstreams });
      const url = 'url' in row.script ? row.script.url : `http://127.0.0.1:${port}/${id}/v1`;
      const faulty = { url, key: '${PROVIDER_KEY}', ...FAULT_TIMEOUTS, ...row.upstream };
      return {
        id,
        price: TEST_PRICE,
        max_output_tokens: 1_000,
        upstreams: upstreams === 1 ? [faulty] : [faulty, healthy],
      };
    }),
  );
  const gateway = await startGateway(t, {
    config: {
      models,
      plans: [{ id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000 }],
    },
    env: { PROVIDER_KEY: SECRET },
  });

  await t.test('each row', async (t) => {
    const cells = cellsOf<Ending, Row>(quick);
    t.comment(`${rows.length} rows, ${cells.length + cellsOf<Ending, Row>(HUGE).length} cells`);
    await checkCells(t, cells, (cell) => checkCell(t, gateway, server, cell));
  });

  await t.test('more bytes than a whole response may have', async (t) => {
    const startMs = performance.now();
    for (const cell of cellsOf<Ending, Row>(HUGE)) await checkCell(t, gateway, server, cell);
    t.comment(`${((performance.now() - startMs) / 1_000).toFixed(1)} s`);
  });

  await t.test('nothing stays behind', async (t) => {
    await checkNothingStays(t, gateway, server, SECRET);
    await eventually('no call is open upstream', async () => (await mock.stats()).open === 0 || undefined);
    const status = (await gateway.admin.send('GET', '/admin/v1/status')).json() as {
      calls_in_flight: number;
    };
    t.equal(status.calls_in_flight, 0);
    t.match(gateway.log().join('\n'), /an upstream refuses our key or account/, 'the alarm');
  });

  t.equal(await gateway.stop(), 0);
  await eventually('the end of all connections', () => (server.sockets.size === 0 ? true : undefined));
});
