/**
 * One caller's hostile texts and large bodies do not hold up another's, what leaves is billed, and what waits
 * too long is told so.
 */
import { request as send, type ClientRequest } from 'node:http';
import t from 'tap';
import { startBed } from '../support/bed.js';
import { TEST_MODEL, eventually, type Gateway } from '../support/gateway.js';
import { scrape } from '../support/metrics.js';
import { steered } from '../support/mock.js';

/**
 * It was 21 s beside nested bodies and 157 s beside counts; now it is some turns of 250 ms, and the machine
 * has other work.
 */
const ANSWER_MS_MAX = 8_000;
const BODIES = process.env.TOLLGATE_HOSTILE_FULL === undefined ? 20 : 60;
const COUNTS = 4;
/**
 * A third of a text that a thread once took 50 s for: more of them than the counter threads. Short enough
 * that a slow machine counts them before an estimate takes their place.
 */
const EVIL_WORDS = 600_000;
const EVIL_TEXT = "'s".repeat(EVIL_WORDS);

/** A stream whose usage is counted by the gateway. */
const UNREPORTED = 'chunks=1000&bytes=9000&chunk_ms=50&usage=missing';

const bodyOf = (text: string, query: string): Buffer =>
  Buffer.from(
    JSON.stringify({
      model: TEST_MODEL,
      stream: true,
      messages: [{ role: 'user', content: steered(query, text) }],
    }),
  );

/** Posts `body` and resolves with the first bytes of the response. */
const begin = (gateway: Gateway, key: string, body: Buffer): Promise<ClientRequest> =>
  new Promise((resolve, reject) => {
    const outgoing = send(
      {
        host: '127.0.0.1',
        port: gateway.port,
        method: 'POST',
        path: '/v1/chat/completions',
        headers: { authorization: `Bearer ${key}`, 'content-length': body.length },
      },
      (incoming) => {
        if (incoming.statusCode !== 200) reject(new Error(`answered ${incoming.statusCode ?? 'nothing'}`));
        incoming.on('error', () => undefined);
        incoming.once('data', () => resolve(outgoing));
      },
    );
    outgoing.on('error', reject);
    outgoing.end(body);
  });

const leave = async (gateway: Gateway, key: string, body: Buffer): Promise<void> => {
  (await begin(gateway, key, body)).destroy();
};

void t.test("another's call of 100 KB is answered beside hostile counts and bodies", async (t) => {
  const { gateway } = await startBed(t);
  const [attacker, other] = await Promise.all([
    gateway.admin.customer({ credit: '100000.00' }),
    gateway.admin.customer({ credit: '100000.00' }),
  ]);
  const large = bodyOf('x '.repeat(50_000), 'bytes=20');
  const answeredMs = async (): Promise<number> => {
    const startMs = performance.now();
    t.equal((await gateway.request(other.key, { body: large })).status, 200);
    return performance.now() - startMs;
  };
  t.comment(`alone ${(await answeredMs()).toFixed(0)} ms`);

  const evil = bodyOf(EVIL_TEXT, UNREPORTED);
  await Promise.all(Array.from({ length: COUNTS }, () => leave(gateway, attacker.key, evil)));
  for (let call = 0; call < 3; call++) {
    const tookMs = await answeredMs();
    t.comment(`beside ${COUNTS} counts ${tookMs.toFixed(0)} ms`);
    t.ok(tookMs < ANSWER_MS_MAX);
  }

  const arrays = `${'['.repeat(60)}${'[1],'.repeat(2_000_000)}1${']'.repeat(60)}`;
  const nested = Buffer.from(
    `{"model":"${TEST_MODEL}","messages":[{"role":"user","content":"x"}],"x":${arrays}}`,
  );
  const many = Array.from({ length: BODIES }, () =>
    gateway.request(attacker.key, { body: nested }).then(
      ({ status }) => status,
      () => 0,
    ),
  );
  const tookMs = await answeredMs();
  t.comment(`beside ${BODIES} nested bodies of 8 MB ${tookMs.toFixed(0)} ms`);
  t.ok(tookMs < ANSWER_MS_MAX);
  const statuses = await Promise.all(many);
  t.ok(
    statuses.every((status) => [400, 429, 503].includes(status)),
    `statuses ${[...new Set(statuses)].join(' ')}`,
  );

  const usage = await eventually('all counts are billed', async () => {
    const { data } = (await gateway.admin.send('GET', '/admin/v1/usage')).json() as {
      data: { calls: number; estimated_calls: number; prompt_tokens: number }[];
    };
    return data[0]!.calls === COUNTS + 5 ? data[0]! : undefined;
  });
  t.equal(usage.estimated_calls, COUNTS, 'of callers who left');
  t.ok(usage.prompt_tokens > COUNTS * EVIL_WORDS, `${usage.prompt_tokens} tokens`);
  t.equal(await gateway.stop(), 0);
});

/**
 * Accounts that count at the same time: so many turns of up to 250 ms on two threads are up to 3 s, and above
 * 500 ms on a fast machine.
 */
const COUNTING_ACCOUNTS = 24;
/** Less than a call waits then; the threads may need longer to start. */
const PARSE_WAIT_MS = 500;

void t.test(
  'a large call that waits longer than parse_wait_ms is told 503 and has taken nothing',
  async (t) => {
    const { gateway } = await startBed(t, { limits: { parse_wait_ms: PARSE_WAIT_MS } });
    const customer = () => gateway.admin.customer({ credit: '100000.00' });
    const [other, ...counting] = await Promise.all(Array.from({ length: 1 + COUNTING_ACCOUNTS }, customer));
    const { key, accountId } = other!;
    const large = bodyOf('x '.repeat(50_000), 'bytes=20');
    const headers = { 'idempotency-key': 'told-503-at-first' };

    const evil = bodyOf(EVIL_TEXT, UNREPORTED);
    const streams: ClientRequest[] = [];
    // One after another, and again after a refusal: their own bodies are not to wait.
    for (const caller of counting)
      streams.push(await eventually('a stream', () => begin(gateway, caller.key, evil)));
    const refusals = async (): Promise<number> =>
      (await scrape(gateway.admin.port)).value('tollgate_refusals_total', { reason: 'large_bodies' });
    const refusalsBefore = await refusals();
    for (const stream of streams) stream.destroy();

    let served = 0;
    const refused = await eventually(
      'a call that waits too long',
      async () => {
        const startMs = performance.now();
        const answer = await gateway.request(key, { body: large });
        const tookMs = performance.now() - startMs;
        if (answer.status !== 503) return void (served += 1);
        return { answer, tookMs, keyed: await gateway.request(key, { body: large, headers }) };
      },
      15_000,
    );
    const { answer, tookMs, keyed } = refused;
    t.comment(`refused after ${tookMs.toFixed(0)} ms; ${served} calls were served before`);
    t.ok(tookMs >= PARSE_WAIT_MS - 1, 'it had its time');
    t.ok(tookMs < ANSWER_MS_MAX, 'and not much more');
    for (const { status, body, headers: told } of [answer, keyed]) {
      t.equal(status, 503);
      t.equal(told['retry-after'], '5');
      t.match(body, /"code":"overloaded"/);
      t.match(body, /within 500 ms, .* Retry after 5 seconds/);
    }

    const account = await gateway.admin.account(accountId);
    t.equal(account.calls_today, served, 'the day has its calls');
    t.equal(account.requests_this_minute, served + 2, 'the minute is used by whoever has a key');
    t.equal(Number(account.held), 0, 'no money is held');
    t.equal((await refusals()) - refusalsBefore, 2, 'the metrics tell both');

    await eventually('the counts to be over, and all memory to be free', async () => {
      const metricsNow = await scrape(gateway.admin.port);
      return metricsNow.value('tollgate_bodies_in_work_bytes', {}) === 0 ? true : undefined;
    });
    const again = await gateway.request(key, { body: large, headers });
    t.equal(again.status, 200);
    t.notOk('idempotent-replayed' in again.headers, 'the key of a call that was refused is free');
    t.equal((await gateway.admin.account(accountId)).calls_today, served + 1);
    t.equal(await gateway.stop(), 0);
  },
);
