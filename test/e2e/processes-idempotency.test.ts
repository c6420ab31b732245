/**
 * Four processes on one port, and clients that send a call again under the same `Idempotency-Key`: it is made
 * once, whichever process each of them meets, also where a process that made one is killed.
 */
import { readFileSync } from 'node:fs';
import t from 'tap';
import { startBed } from '../support/bed.js';
import { booksOf } from '../support/crash.js';
import { TEST_MODEL, eventually, knownEverywhere, type Gateway } from '../support/gateway.js';
import type { Answer } from '../support/http.js';
import { steered } from '../support/mock.js';

const PROCESSES = 4;
const FLUSH_INTERVAL_MS = 200;
const KEYS = 12;
/** At once, each on a connection of its own. */
const REPEATS = 6;

const SLOW = steered('first_byte_ms=60000');

const serving = (gateway: Gateway, processes: number): Promise<true> =>
  eventually(`${processes} processes serve`, () =>
    gateway.log().filter((line) => line.includes('"gateway serves"')).length >= processes ? true : undefined,
  );

function call(gateway: Gateway, key: string, name: string, prompt: string): Promise<Answer> {
  const body = { model: TEST_MODEL, max_tokens: 20, messages: [{ role: 'user', content: prompt }] };
  return gateway.request(key, { body, headers: { 'idempotency-key': name } });
}

function repeat(gateway: Gateway, key: string, name: string, prompt = 'Hello'): Promise<Answer[]> {
  return Promise.all(Array.from({ length: REPEATS }, () => call(gateway, key, name, prompt)));
}

void t.test('a call is made by one process', { timeout: 600_000 }, async (t) => {
  const { gateway, mock } = await startBed(t, { processes: PROCESSES, flush_interval_ms: FLUSH_INTERVAL_MS });
  await serving(gateway, PROCESSES);
  const { key, accountId } = await gateway.admin.customer();
  await knownEverywhere(gateway, key);
  const first = new Map<string, string>();
  for (let round = 0; round < KEYS; round++) {
    const name = `round ${round}`;
    const answers = await repeat(gateway, key, name);
    const given = answers.filter(({ status }) => status === 200);
    t.ok(given.length >= 1, `${given.length} of ${REPEATS} are answered`);
    t.same(
      answers
        .filter(({ status }) => status !== 200 && status !== 409)
        .map(({ status, body }) => [status, body]),
      [],
      'all others are told that it runs',
    );
    t.equal(new Set(given.map(({ body }) => body)).size, 1, 'one answer for all');
    first.set(name, given[0]!.body);
  }
  await eventually('all is flushed', async () =>
    (await booksOf(gateway.admin, accountId)).calls >= KEYS ? true : undefined,
  );
  await eventually('the last answer in all processes', async () => {
    const answers = await repeat(gateway, key, `round ${KEYS - 1}`);
    return answers.every(({ status }) => status === 200) ? true : undefined;
  });
  for (const [name, body] of first) {
    const answers = await repeat(gateway, key, name);
    t.same(
      answers.map((answer) => [answer.status, answer.body]),
      answers.map(() => [200, body]),
      'every process has the answer',
    );
  }
  t.equal((await booksOf(gateway.admin, accountId)).calls, KEYS, 'each was made and charged once');

  // The process that makes a call is killed with all others: the key is free.
  await mock.resetStats();
  const cut = Promise.allSettled([call(gateway, key, 'cut', SLOW)]);
  await eventually('it is made', async () => ((await mock.stats()).requests > 0 ? true : undefined));
  const others = await repeat(gateway, key, 'cut', SLOW);
  t.same(
    others.map(({ status }) => status),
    others.map(() => 409),
    'it runs',
  );
  const { pid } = gateway.child;
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'latin1').trim().split(' ').map(Number);
  for (const child of children) process.kill(child, 'SIGKILL');
  await cut;
  await serving(gateway, 2 * PROCESSES);
  const { status } = await call(gateway, key, 'cut', 'Hello');
  t.equal(status, 200);
});
