/**
 * Bodies of requests that get their response before their body: a long one ends its connection, whoever
 * sends it and wherever, so that nobody has the gateway read for ever. After a short one the connection is
 * used again.
 */
import t, { type Test } from 'tap';
import { startBed, type Bed } from '../support/bed.js';
import { TEST_MODEL } from '../support/gateway.js';
import { RawConnection, type RawAnswer } from '../support/raw-connection.js';

const KIB = 1024;
const MIB = 1024 * KIB;
const ENDLESS_BYTES = 10 ** 14;
/** Within the budget of bodies that are discarded, which is 64 MiB at once, and above what is not counted. */
const MIDDLE_BYTES = 100 * KIB;
const SMALL_BYTES = 3 * KIB;
const UNKNOWN_KEY = `sk-${'a'.repeat(43)}`;

interface Case {
  readonly name: string;
  readonly line: string;
  readonly status: number;
  /** Headers, each with its line end. */
  readonly headers?: string;
  /** A new key for each request, of this plan. */
  readonly plan?: string;
  readonly isAdmin?: true;
}

const CALL = 'POST /v1/chat/completions';
const CASES: readonly Case[] = [
  { name: 'no key', line: CALL, status: 401 },
  { name: 'an unknown key', line: CALL, status: 401, headers: `authorization: Bearer ${UNKNOWN_KEY}\r\n` },
  { name: 'no key at Messages', line: 'POST /v1/messages', status: 401 },
  { name: 'a minute that is used up', line: CALL, status: 429, plan: 'none' },
  {
    name: 'a compressed body',
    line: CALL,
    status: 415,
    plan: 'ample',
    headers: 'content-encoding: gzip\r\n',
  },
  {
    name: 'a wrong key',
    line: CALL,
    status: 400,
    plan: 'ample',
    headers: `idempotency-key: ${'k'.repeat(256)}\r\n`,
  },
  { name: 'no such path', line: 'POST /v1/nothing', status: 404 },
  { name: 'a wrong method', line: 'PUT /v1/chat/completions', status: 405 },
  { name: 'a method that models have not', line: 'POST /v1/models', status: 405 },
  { name: 'models without a key', line: 'GET /v1/models', status: 401 },
  { name: 'models', line: 'GET /v1/models', status: 200, plan: 'ample' },
  { name: 'a model', line: `GET /v1/models/${TEST_MODEL}`, status: 200, plan: 'ample' },
  { name: 'the document', line: 'GET /openapi.json', status: 200 },
  {
    name: 'a preflight',
    line: 'OPTIONS /v1/chat/completions',
    status: 204,
    headers: 'origin: https://a.example\r\naccess-control-request-method: POST\r\n',
  },
  { name: 'admin: health', line: 'GET /healthz', status: 200, isAdmin: true },
  { name: 'admin: metrics', line: 'GET /metrics', status: 200, isAdmin: true },
  { name: 'admin: session', line: 'GET /admin/session', status: 200, isAdmin: true },
  { name: 'admin: no token', line: 'POST /admin/v1/accounts', status: 401, isAdmin: true },
];

const SETTINGS = {
  plans: [{ id: 'none', requests_per_minute: 1, calls_per_day: 1_000 }],
  listen: { cors: { origins: ['*'] } },
};

/** The head of a request of the case, whose body is to follow. */
async function headOf({ gateway }: Bed, { line, headers = '', plan }: Case, bytes: number): Promise<string> {
  let key = '';
  if (plan !== undefined) {
    const customer = await gateway.admin.customer({ plan });
    if (plan === 'none') await gateway.chat(customer.key, 'Hello');
    key = `authorization: Bearer ${customer.key}\r\n`;
  }
  return `${line} HTTP/1.1\r\nhost: 127.0.0.1\r\n${key}${headers}content-length: ${bytes}\r\n\r\n`;
}

/** µWS itself sends the interim response to `expect: 100-continue`. */
async function finalAnswer(connection: RawConnection): Promise<RawAnswer> {
  const answer = await connection.answer();
  return answer.status === 100 ? connection.answer() : answer;
}

const open = ({ gateway }: Bed, { isAdmin }: Case): Promise<RawConnection> =>
  RawConnection.open(isAdmin === true ? gateway.admin.port : gateway.port);

async function endsWith(t: Test, bed: Bed, one: Case, more = ''): Promise<void> {
  const connection = await open(bed, one);
  const head = await headOf(bed, { ...one, headers: (one.headers ?? '') + more }, ENDLESS_BYTES);
  connection.send(head);
  const { status, headers } = await finalAnswer(connection);
  t.equal(status, one.status, one.name);
  t.match(headers.get('connection'), /close/i, `${one.name}: and says so`);
  await connection.closed;
}

void t.test('a body without end is not read', async (t) => {
  const bed = await startBed(t, SETTINGS);
  for (const one of CASES) await endsWith(t, bed, one);
  for (const one of CASES.slice(0, 4)) await endsWith(t, bed, one, 'expect: 100-continue\r\n');
  for (const line of ['HEAD /v1/models', 'HEAD /openapi.json', 'HEAD /metrics']) {
    const isAdmin = line.endsWith('metrics');
    const connection = await RawConnection.open(isAdmin ? bed.gateway.admin.port : bed.gateway.port);
    connection.send(`${line} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: ${ENDLESS_BYTES}\r\n\r\n`);
    await connection.closed;
    t.match(connection.pending(), /\r\nconnection: close\r\n\r\n$/i, line);
  }
});

void t.test('after a short body the connection is used again', async (t) => {
  const bed = await startBed(t, SETTINGS);
  for (const bytes of [SMALL_BYTES, MIDDLE_BYTES])
    for (const more of ['', 'expect: 100-continue\r\n'])
      for (const one of CASES.filter(({ isAdmin }) => bytes === SMALL_BYTES || isAdmin !== true)) {
        // The interface of the admin closes after each rejection.
        if (one.isAdmin === true && one.status !== 200) continue;
        const connection = await open(bed, one);
        for (let request = 0; request < 2; request += 1) {
          const head = await headOf(bed, { ...one, headers: (one.headers ?? '') + more }, bytes);
          connection.send(head);
          // Who expects a response first gets that of the whole request with it.
          if (more === '') connection.send('x'.repeat(bytes));
          const { status, headers } = await finalAnswer(connection);
          t.equal(status, one.status, `${one.name}, ${bytes} bytes ${more}`);
          t.equal(headers.get('connection'), undefined, `${one.name}, ${bytes} bytes ${more}`);
          if (more !== '') connection.send('x'.repeat(bytes));
        }
        connection.close();
      }
});

void t.test('strangers do not use up what callers have', async (t) => {
  const bed = await startBed(t, SETTINGS);
  const [stranger] = CASES;
  const limited = CASES.find(({ status }) => status === 429)!;
  const callerHead = await headOf(bed, limited, MIB);
  let ended = 0;
  // All at once: what strangers may have is refilled by a quarter of a GiB a second.
  const head = await headOf(bed, stranger!, 60 * MIB);
  const strangers = await Promise.all(Array.from({ length: 5 }, () => open(bed, stranger!)));
  for (const connection of strangers) connection.send(head);
  for (const connection of strangers) {
    if ((await connection.answer()).headers.has('connection')) ended += 1;
    connection.close();
  }
  t.ok(ended > 0, `${ended} strangers of 60 MiB are ended`);
  const caller = await open(bed, limited);
  caller.send(callerHead + 'x'.repeat(MIB));
  const { status, headers } = await caller.answer();
  t.same([status, headers.has('connection')], [429, false]);
  caller.close();
});
