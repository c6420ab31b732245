/**
 * The budget over all bodies in work: who is refused, that a refusal has its response before the body, that
 * small calls pass, and that on every way that a call can end its body's memory is given back, once.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { shareBed, startBed, type Bed } from '../support/bed.js';
import { TEST_MODEL, eventually } from '../support/gateway.js';
import { scrape } from '../support/metrics.js';
import { steered } from '../support/mock.js';
import { RawConnection } from '../support/raw-connection.js';

const KIB = 1024;
/** Two of the longest bodies for one account, three for all. */
const BODY_BYTES = 200 * KIB;
const BUDGET_BYTES = 4 * 2 * BODY_BYTES;
const SETTINGS = { limits: { body_bytes: BODY_BYTES, bodies_in_work_bytes: BUDGET_BYTES } };

interface BodyOptions {
  readonly bytes?: number;
  readonly model?: string;
  readonly text?: string;
  readonly more?: object;
}

function bodyOf({ bytes = BODY_BYTES, model = TEST_MODEL, text = '', more = {} }: BodyOptions = {}): string {
  const body = (content: string): string =>
    JSON.stringify({ model, max_tokens: 1, ...more, messages: [{ role: 'user', content }] });
  return body(text + 'x'.repeat(bytes - body(text).length));
}

const headOf = (key: string, framing: string, more = ''): string =>
  `POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${key}\r\n${more}${framing}\r\n\r\n`;
const known = (bytes: number): string => `content-length: ${bytes}`;
const CHUNKED = 'transfer-encoding: chunked';
const chunkOf = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`;

async function inWork({ gateway }: Bed): Promise<number> {
  return (await scrape(gateway.admin.port)).value('tollgate_bodies_in_work_bytes', {});
}

const becomes = (bed: Bed, bytes: number): Promise<true> =>
  eventually(
    `${bytes} bytes in work`,
    async () => ((await inWork(bed)) === bytes ? true : undefined),
    20_000,
  );

/** The head of a call whose body does not follow yet. */
async function begun(bed: Bed, key: string, bytes = BODY_BYTES): Promise<RawConnection> {
  const connection = await RawConnection.open(bed.gateway.port);
  connection.send(headOf(key, known(bytes)));
  return connection;
}

async function refusalsBy(bed: Bed, reason: string): Promise<number> {
  return (await scrape(bed.gateway.admin.port)).value('tollgate_refusals_total', { reason });
}

/** Each that shares it leaves nothing in work. */
const sharedBed = shareBed(t, SETTINGS);

void t.test('beyond the budget a call is told 503 before its body is read', async (t) => {
  const bed = await sharedBed();
  const [one, other, third] = await Promise.all([1, 2, 3].map(() => bed.gateway.admin.customer()));
  const open = [await begun(bed, one!.key), await begun(bed, one!.key)];
  await becomes(bed, 2 * 2 * BODY_BYTES);

  const mine = await begun(bed, one!.key);
  const refused = await mine.answer();
  t.equal(refused.status, 503, 'without a byte of the body');
  t.match(refused.body, /"code":"overloaded"/);
  t.match(refused.body, /The account has/);
  t.equal(refused.headers.get('retry-after'), '1');
  t.equal(await refusalsBy(bed, 'account_bodies_in_work'), 1);

  // Its body is thrown away as it comes, and what follows on the connection is served.
  mine.send(bodyOf());
  const small = JSON.stringify({ model: TEST_MODEL, messages: [{ role: 'user', content: 'Hello' }] });
  mine.send(headOf(one!.key, known(small.length)) + small);
  t.equal((await mine.answer()).status, 200, 'the next call on the connection');

  open.push(await begun(bed, other!.key));
  await becomes(bed, 3 * 2 * BODY_BYTES);
  const full = await begun(bed, third!.key);
  const ofAll = await full.answer();
  t.equal(ofAll.status, 503);
  t.match(ofAll.body, /The gateway has/);
  t.equal(await refusalsBy(bed, 'bodies_in_work'), 1);

  const chunked = await RawConnection.open(bed.gateway.port);
  chunked.send(headOf(third!.key, CHUNKED));
  chunked.send(chunkOf(bodyOf().slice(0, 150 * KIB)));
  t.equal((await chunked.answer()).status, 503, 'in chunks too, in the middle of them');

  const { status } = await bed.gateway.request(third!.key, { body: bodyOf({ bytes: 60 * KIB }) });
  t.equal(status, 200, 'a body that a listener parses has its part of the budget');
  t.equal((await bed.gateway.request(third!.key, { body: bodyOf({ bytes: 3 * KIB }) })).status, 200);
  for (const connection of [...open, mine, full, chunked]) connection.close();
  await becomes(bed, 0);
  t.equal((await bed.gateway.request(third!.key, { body: bodyOf() })).status, 200);
  await becomes(bed, 0);
});

void t.test('what is certain to be refused is refused before the body is whole', async (t) => {
  const bed = await sharedBed();
  const poor = await bed.gateway.admin.customer({ credit: '0.001' });
  const rich = await bed.gateway.admin.customer();

  const unpaid = await begun(bed, poor.key);
  const unpaidAnswer = await unpaid.answer();
  t.equal(unpaidAnswer.status, 403, 'a body that the balance pays for on no model');
  t.match(unpaidAnswer.body, /"code":"insufficient_quota"/);
  t.equal(
    (await bed.gateway.chat(poor.key, 'Hello', { max_tokens: 1 })).status,
    200,
    'a small call is paid for',
  );

  const chunked = await RawConnection.open(bed.gateway.port);
  chunked.send(headOf(poor.key, CHUNKED));
  chunked.send(chunkOf(bodyOf().slice(0, 150 * KIB)));
  t.equal((await chunked.answer()).status, 403, 'of which as much has come');

  const unknown = await begun(bed, rich.key);
  unknown.send(bodyOf({ model: 'no-such-model' }).slice(0, 100 * KIB));
  const unknownAnswer = await unknown.answer();
  t.equal(unknownAnswer.status, 400, 'a model that the plan does not have');
  t.match(unknownAnswer.body, /"code":"model_not_found"/);
  await becomes(bed, 0);
  for (const connection of [unpaid, chunked, unknown]) connection.close();
});

/** Ways that a call can end; each leaves its connection open or not. */
const ENDS: readonly [string, (bed: Bed, key: string) => Promise<unknown>][] = [
  ['an answer', (bed, key) => bed.gateway.request(key, { body: bodyOf() })],
  ['a body in one chunk', (bed, key) => bed.gateway.request(key, { body: bodyOf({ bytes: 20 * KIB }) })],
  ['a stream', (bed, key) => bed.gateway.request(key, { body: bodyOf({ more: { stream: true } }) })],
  ['a body that is no JSON', (bed, key) => bed.gateway.request(key, { body: bodyOf().replace('{', '[') })],
  ['a wrong field', (bed, key) => bed.gateway.request(key, { body: bodyOf({ more: { temperature: 9 } }) })],
  ['a model that there is not', (bed, key) => bed.gateway.request(key, { body: bodyOf({ model: 'x' }) })],
  [
    'too much output for the balance',
    (bed, key) => bed.gateway.request(key, { body: bodyOf({ more: { n: 100, max_tokens: 1_000_000 } }) }),
  ],
  [
    'a fault of the provider',
    (bed, key) => bed.gateway.request(key, { body: bodyOf({ text: steered('status=500') }) }),
  ],
  [
    'a refusal of the provider',
    (bed, key) => bed.gateway.request(key, { body: bodyOf({ text: steered('status=400') }) }),
  ],
  [
    'a repeat of a kept answer',
    async (bed, key) => {
      const headers = { 'idempotency-key': `key-${key.slice(-8)}` };
      await bed.gateway.request(key, { body: bodyOf(), headers });
      await bed.gateway.request(key, { body: bodyOf(), headers });
      await bed.gateway.request(key, { body: bodyOf({ bytes: 100 * KIB }), headers });
    },
  ],
  [
    'a client that leaves within its body',
    async (bed, key) => {
      const connection = await begun(bed, key);
      connection.send(bodyOf().slice(0, 100 * KIB));
      await becomes(bed, 2 * BODY_BYTES);
      connection.close();
    },
  ],
  [
    'a client that leaves within its chunks',
    async (bed, key) => {
      const connection = await RawConnection.open(bed.gateway.port);
      connection.send(headOf(key, CHUNKED) + chunkOf(bodyOf().slice(0, 100 * KIB)));
      await becomes(bed, 2 * 128 * KIB);
      connection.close();
    },
  ],
  [
    'a client that leaves while its body is parsed',
    async (bed, key) => {
      const connection = await begun(bed, key);
      connection.send(bodyOf());
      await sleep(3);
      connection.close();
    },
  ],
  [
    'a client that leaves while the provider thinks',
    async (bed, key) => {
      const body = bodyOf({ text: steered('first_byte_ms=60000') });
      const connection = await begun(bed, key, body.length);
      connection.send(body);
      await eventually('the call at the provider', async () =>
        (await scrape(bed.gateway.admin.port)).value('tollgate_calls_in_flight', {}) === 1 ? true : undefined,
      );
      connection.close();
    },
  ],
  [
    'a body that is too long',
    async (bed, key) => {
      await bed.gateway.request(key, { body: 'x'.repeat(BODY_BYTES + 1) });
    },
  ],
];

async function endsIn(t: Test, bed: Bed): Promise<void> {
  for (const [name, end] of ENDS) {
    const { key } = await bed.gateway.admin.customer();
    await end(bed, key);
    t.ok(await becomes(bed, 0), name);
  }
  // All of it is there: had anything been given back twice, more would be.
  const { key } = await bed.gateway.admin.customer();
  const open = [await begun(bed, key), await begun(bed, key)];
  await becomes(bed, 2 * 2 * BODY_BYTES);
  const beyond = await begun(bed, key);
  t.equal((await beyond.answer()).status, 503);
  for (const connection of [...open, beyond]) connection.close();
  await becomes(bed, 0);
}

void t.test('on every way that a call ends its body is given back', async (t) =>
  endsIn(t, await sharedBed()),
);
void t.test('the same where charges are committed before answers end', async (t) =>
  endsIn(t, await startBed(t, { ...SETTINGS, durability: 'commit' })),
);
