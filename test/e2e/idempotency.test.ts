/**
 * `Idempotency-Key`: who repeats a request gets the response of the first, and one call is made and charged.
 */
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import OpenAI from 'openai';
import t, { type Test } from 'tap';
import { startBed, type Bed } from '../support/bed.js';
import { TEST_MODEL, eventually, startGateway, temporaryFolder, testSettings } from '../support/gateway.js';
import { checkError } from '../support/error-answer.js';
import type { Answer } from '../support/http.js';
import { startMock, steered } from '../support/mock.js';
import { eventData, isDone } from '../support/sse.js';
import { SlowReader } from '../support/slow-reader.js';

const ANSWER_BYTES = 4_000_000;
const MINUTE = 1_000_000;

const bodyOf = (prompt: string, more: object = {}): object => ({
  model: TEST_MODEL,
  messages: [{ role: 'user', content: prompt }],
  ...more,
});

/** A call with an Idempotency-Key. */
const keyed = ({ gateway }: Pick<Bed, 'gateway'>, key: string, idempotencyKey: string, body: object) =>
  gateway.request(key, { headers: { 'idempotency-key': idempotencyKey }, body });

/** `again` is what was answered before, and says so. */
function checkReplay(t: Test, first: Answer, again: Answer): void {
  t.equal(again.status, 200);
  t.equal(again.body, first.body);
  t.equal(again.headers['content-type'], first.headers['content-type']);
  t.equal(again.headers['cache-control'], first.headers['cache-control']);
  t.equal(again.headers['idempotent-replayed'], 'true');
  t.equal(first.headers['idempotent-replayed'], undefined);
  t.not(again.headers['x-request-id'], first.headers['x-request-id'], 'a request of its own');
}

void t.test('repeats', async (t) => {
  const bed = await startBed(t, { idempotency: { answer_bytes: ANSWER_BYTES }, listen: { listeners: 2 } });
  const { gateway, mock } = bed;

  /** What one call costs, and that repeats cost nothing more. */
  async function checkOnce(
    t: Test,
    body: object,
  ): Promise<{ readonly first: Answer; readonly key: string; readonly accountId: string }> {
    const { key, accountId } = await gateway.admin.customer();
    await mock.resetStats();
    const first = await keyed(bed, key, 'once', body);
    const { spent } = await gateway.admin.account(accountId);
    t.not(spent, '0.00');
    // Several connections, so that both listeners get some.
    for (let n = 0; n < 4; n++) checkReplay(t, first, await keyed(bed, key, 'once', body));
    const view = await gateway.admin.account(accountId);
    t.match(view, { spent, held: '0.00', calls_today: 1, requests_this_minute: 5 });
    t.equal((await mock.stats()).requests, 1);
    return { first, key, accountId };
  }

  await t.test('a whole answer', async (t) => {
    const { first, key } = await checkOnce(t, bodyOf('Hello'));
    const again = await keyed(bed, key, 'once', bodyOf('Hello'));
    t.equal(again.headers['content-length'], first.headers['content-length']);
    t.equal(again.headers['x-ratelimit-remaining'], String(MINUTE - 6), "the limit's headers are of now");
    checkError(t, await keyed(bed, key, 'once', bodyOf('Hello!')), 'invalid_parameters', 'another body');
    t.equal((await keyed(bed, key, 'twice', bodyOf('Hello!'))).headers['idempotent-replayed'], undefined);
  });

  await t.test('a long whole answer, and a long body', async (t) => {
    const body = bodyOf(steered('bytes=200000', 'x'.repeat(200_000)));
    const { key } = await checkOnce(t, body);
    const other = bodyOf(steered('bytes=200000', `${'x'.repeat(199_999)}y`));
    checkError(t, await keyed(bed, key, 'once', other), 'invalid_parameters', 'another long body');
  });

  await t.test('a long body that the balance would not cover any more', async (t) => {
    const body = bodyOf('x'.repeat(200_000));
    const { first, key, accountId } = await checkOnce(t, body);
    const { balance } = await gateway.admin.account(accountId);
    await gateway.admin.credit(accountId, `-${balance}`);
    checkReplay(t, first, await keyed(bed, key, 'once', body));
    checkError(t, await keyed(bed, key, 'another', body), 'insufficient_quota', 'a call of its own');
  });

  await t.test('a stream', async (t) => {
    const { first } = await checkOnce(t, bodyOf(steered('chunks=500'), { stream: true }));
    t.equal(first.headers['content-type'], 'text/event-stream; charset=utf-8');
    t.equal(eventData(first.body).filter(isDone).length, 1);
    t.equal(eventData(first.body).length > 500, true);
    t.ok(first.body.length > 65_536, 'in several pieces');
  });

  await t.test('keys are of one account', async (t) => {
    const [one, other] = [await gateway.admin.customer(), await gateway.admin.customer()];
    const body = bodyOf('Hello');
    const first = await keyed(bed, one.key, 'same', body);
    const second = await keyed(bed, other.key, 'same', body);
    t.equal(second.headers['idempotent-replayed'], undefined);
    t.equal(second.status, 200);
    checkReplay(t, first, await keyed(bed, one.key, 'same', body));
    t.equal((await gateway.admin.account(other.accountId)).calls_today, 1);
  });

  await t.test('while the first still runs', async (t) => {
    const { key, accountId } = await gateway.admin.customer();
    await mock.resetStats();
    const body = bodyOf(steered('first_byte_ms=1500'));
    // Two at once: one of them is the first.
    const both = [keyed(bed, key, 'slow', body), keyed(bed, key, 'slow', body)];
    const refused = await Promise.race(both);
    checkError(t, refused, 'request_in_progress', 'the second');
    t.equal(refused.headers['retry-after'], '1');
    checkError(t, await keyed(bed, key, 'slow', bodyOf('?')), 'invalid_parameters', 'another body');
    const first = (await Promise.all(both)).find(({ status }) => status === 200)!;
    checkReplay(t, first, await keyed(bed, key, 'slow', body));
    t.equal((await mock.stats()).requests, 1);
    t.equal((await gateway.admin.account(accountId)).calls_today, 1);
  });

  await t.test('a client that left: the next is a new call', async (t) => {
    const { key, accountId } = await gateway.admin.customer();
    await mock.resetStats();
    const body = bodyOf(steered('chunks=4&chunk_ms=150'), { stream: true });
    const left = new AbortController();
    const begun = await fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'idempotency-key': 'left' },
      body: JSON.stringify(body),
      signal: left.signal,
    });
    await begun.body!.getReader().read();
    left.abort();
    const again = await eventually('the key is free', async () => {
      const answer = await keyed(bed, key, 'left', body);
      return answer.status === 409 ? undefined : answer;
    });
    t.equal(again.status, 200);
    t.equal(again.headers['idempotent-replayed'], undefined);
    t.equal(eventData(again.body).filter(isDone).length, 1);
    checkReplay(t, again, await keyed(bed, key, 'left', body));
    t.equal((await mock.stats()).requests, 2);
    t.match(await gateway.admin.account(accountId), { calls_today: 2, held: '0.00' });
  });

  await t.test('a slow reader of a repeat gets all of it', async (t) => {
    const { key } = await gateway.admin.customer();
    // More than the kernel's buffers hold for a reader that reads nothing at first.
    const body = bodyOf(steered('chunks=18000&bytes=100000'), { stream: true });
    const first = await keyed(bed, key, 'slow-reader', body);
    t.ok(first.body.length > 3_000_000 && first.body.length < ANSWER_BYTES, `${first.body.length} bytes`);
    const reader = new SlowReader(gateway.port, key, body, 1_000, true, { 'idempotency-key': 'slow-reader' });
    await eventually('the answer has begun', () => (reader.readBytes > 0 ? true : undefined));
    reader.bytesPerSecond = 100_000_000;
    const text = await eventually('the end', () => {
      const seen = Buffer.concat(reader.parts).toString();
      return seen.includes('[DONE]') ? seen : undefined;
    });
    reader.socket.destroy();
    t.match(text, /idempotent-replayed: true/);
    t.same(eventData(withoutFraming(text)), eventData(first.body));
  });

  await t.test('an answer that is could not be kept is not charged twice', async (t) => {
    const { key, accountId } = await gateway.admin.customer();
    for (const stream of [false, true]) {
      const body = bodyOf(steered(`bytes=${ANSWER_BYTES}&chunks=10`), { stream });
      t.equal((await keyed(bed, key, `long ${stream}`, body)).status, 200);
      const { spent } = await gateway.admin.account(accountId);
      const again = await keyed(bed, key, `long ${stream}`, body);
      t.match(checkError(t, again, 'invalid_parameters', 'the repeat'), /could not be kept/);
      t.equal((await gateway.admin.account(accountId)).spent, spent);
    }
  });

  await t.test('what is no key', async (t) => {
    const { key, accountId } = await gateway.admin.customer();
    for (const text of ['', 'k'.repeat(256), 'schl\u00fcssel', 'a\tb']) {
      const answer = await keyed(bed, key, text, bodyOf('Hello'));
      t.match(checkError(t, answer, 'invalid_parameters', text), /Idempotency-Key must be 1 to 255/);
    }
    t.equal((await keyed(bed, key, 'k'.repeat(255), bodyOf('Hello'))).status, 200);
    t.equal((await gateway.admin.account(accountId)).calls_today, 1);
    const without = await gateway.request(key, { body: bodyOf('Hello') });
    t.equal(without.status, 200, 'no header is no wrong one');
    t.equal((await gateway.admin.account(accountId)).calls_today, 2);
  });

  await t.test('what was refused is not kept', async (t) => {
    const { key, accountId } = await gateway.admin.customer({ credit: '0.000001' });
    const body = bodyOf('Hello');
    checkError(t, await keyed(bed, key, 'poor', body), 'insufficient_quota', 'without money');
    await gateway.admin.credit(accountId, '1.00');
    t.equal((await keyed(bed, key, 'poor', body)).status, 200);
    const wrong = { ...body, temperature: 3 };
    for (let n = 0; n < 2; n++)
      checkError(t, await keyed(bed, key, 'wrong', wrong), 'invalid_parameters', 'a wrong body');
    const unknown = { ...body, model: 'unknown' };
    for (let n = 0; n < 2; n++)
      checkError(t, await keyed(bed, key, 'unknown', unknown), 'model_not_found', 'an unknown model');
  });

  await t.test('the openai package', async (t) => {
    const { key, accountId } = await gateway.admin.customer();
    class Client extends OpenAI {
      // What the package leaves to the provider: without it, its option does nothing.
      protected override idempotencyHeader = 'Idempotency-Key';
    }
    const client = new Client({ apiKey: key, baseURL: `${gateway.url}/v1`, maxRetries: 5 });
    const create = (content: string) =>
      client.chat.completions
        .create(
          { model: TEST_MODEL, messages: [{ role: 'user', content }], stream: false },
          { idempotencyKey: 'from-the-package' },
        )
        .withResponse();
    // The second meets the first and retries after 409 by itself.
    const [first, second] = await Promise.all([
      create(steered('first_byte_ms=300')),
      create(steered('first_byte_ms=300')),
    ]);
    t.same(second.data, first.data);
    const replayed = [first, second].map(({ response }) => response.headers.get('idempotent-replayed'));
    t.same(replayed.sort(), ['true', null].sort());
    t.equal((await gateway.admin.account(accountId)).calls_today, 1);
    await t.rejects(create('other'), { status: 400, code: 'invalid_parameters' });
  });

  t.equal(await gateway.stop(), 0);
});

/** The body of a response in chunks, as it came over the wire. */
function withoutFraming(text: string): string {
  let rest = text.slice(text.indexOf('\r\n\r\n') + 4);
  let body = '';
  for (;;) {
    const end = rest.indexOf('\r\n');
    const length = parseInt(rest.slice(0, end), 16);
    if (!(length > 0)) return body;
    body += rest.slice(end + 2, end + 2 + length);
    rest = rest.slice(end + 4 + length);
  }
}

void t.test('a provider that failed is asked again', async (t) => {
  let status = 503;
  let requests = 0;
  const provider = createServer((incoming, outgoing) => {
    requests += 1;
    incoming.resume().once('end', () => {
      const usage = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };
      const message = { role: 'assistant', content: 'Hi' };
      const choices = [{ index: 0, message, finish_reason: 'stop' }];
      const answer = { id: 'c', object: 'chat.completion', created: 1, model: 'm', choices, usage };
      const refusal = { error: { message: 'the provider says no', type: 'server_error', code: 'no' } };
      outgoing.writeHead(status, { 'content-type': 'application/json' });
      outgoing.end(JSON.stringify(status === 200 ? answer : refusal));
    });
  });
  provider.listen(0, '127.0.0.1');
  await once(provider, 'listening');
  t.teardown(() => provider.close());
  const url = `http://127.0.0.1:${(provider.address() as AddressInfo).port}/v1`;
  const gateway = await startGateway(t, {
    config: testSettings(url, { upstream: { breaker_failures: 100 } }),
  });
  const { key, accountId } = await gateway.admin.customer();
  const body = bodyOf('Hello');
  checkError(t, await keyed({ gateway }, key, 'k', body), 'provider_unavailable', 'while it fails');
  status = 400;
  checkError(t, await keyed({ gateway }, key, 'k', body), 'invalid_parameters', 'while it refuses');
  status = 200;
  const first = await keyed({ gateway }, key, 'k', body);
  t.equal(first.status, 200);
  const asked = requests;
  status = 503;
  checkReplay(t, first, await keyed({ gateway }, key, 'k', body));
  t.equal(requests, asked);
  t.match(await gateway.admin.account(accountId), { calls_today: 2, held: '0.00' });
  t.equal(await gateway.stop(), 0);
});

for (const durability of ['interval', 'commit'] as const) {
  void t.test(`answers outlive a restart, ${durability}`, async (t) => {
    const folder = temporaryFolder(t);
    // A period that no test waits for: what is on disk is there because of the stop or the commit.
    const settings = { durability, flush_interval_ms: 60_000 };
    const mock = await startMock(t);
    const config = testSettings(mock.url, settings);
    const before = await startGateway(t, { config, folder });
    const { key, accountId } = await before.admin.customer();
    const bodies = [
      bodyOf('Hello'),
      bodyOf(steered('chunks=300'), { stream: true }),
      bodyOf(steered('bytes=500000')),
    ];
    const firsts: Answer[] = [];
    for (const [n, body] of bodies.entries())
      firsts.push(await keyed({ gateway: before }, key, `k${n}`, body));
    for (const [n, body] of bodies.entries())
      checkReplay(t, firsts[n]!, await keyed({ gateway: before }, key, `k${n}`, body));
    const { spent } = await before.admin.account(accountId);
    t.equal(await before.stop(), 0);

    const after = await startGateway(t, { config, folder });
    for (const [n, body] of bodies.entries())
      checkReplay(t, firsts[n]!, await keyed({ gateway: after }, key, `k${n}`, body));
    t.match(await after.admin.account(accountId), { spent, calls_today: bodies.length });
    t.equal(await after.stop(), 0);
  });
}

void t.test('a listener that fails leaves its keys', async (t) => {
  const faults = temporaryFolder(t);
  const preload = join(process.cwd(), 'test/fixtures/fault-preload.mjs');
  const { gateway, mock } = await startBed(
    t,
    {},
    { env: { NODE_OPTIONS: `--import=${preload}`, TOLLGATE_TEST_FAULTS: faults } },
  );
  const { key, accountId } = await gateway.admin.customer();
  const kept = await keyed({ gateway }, key, 'kept', bodyOf('Hello'));
  const body = bodyOf(steered('first_byte_ms=4000'));
  const cut = keyed({ gateway }, key, 'cut', body).then(
    () => 'answered',
    () => 'cut',
  );
  await eventually('the call is open', async () => ((await mock.stats()).open === 1 ? true : undefined));
  writeFileSync(join(faults, 'listener-0.throw'), '');
  t.equal(await cut, 'cut');
  const again = await eventually('a new listener', () => keyed({ gateway }, key, 'cut', body));
  t.equal(again.status, 200);
  t.equal(again.headers['idempotent-replayed'], undefined);
  checkReplay(t, kept, await keyed({ gateway }, key, 'kept', bodyOf('Hello')));
  t.match(await gateway.admin.account(accountId), { calls_today: 2, held: '0.00' });
  t.equal(await gateway.stop(), 0);
});
