/**
 * Calls with an `Idempotency-Key` and kill -9: clients repeat each of their keys after the restart. Whatever
 * was on disk, each key has then been answered and charged exactly once; with `commit` nobody who had a
 * response gets another one.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { picoUnitsOf } from '#src/core/money.js';
import type { Customer } from '../support/admin-client.js';
import { CrashingGateway, KILLS, booksOf, type Serving } from '../support/crash.js';
import { TEST_MODEL, TEST_PRICE, eventually, temporaryFolder, testSettings } from '../support/gateway.js';
import { keepAliveAgent, request, type Answer } from '../support/http.js';
import { startMock, steered } from '../support/mock.js';
import { eventData, isDone } from '../support/sse.js';
import { newSeed, randomBelow } from '../support/random.js';

const FULL = process.env.TOLLGATE_CRASH_FULL === '1';
const ROUNDS = FULL ? 20 : 2;
const SEED = newSeed();
const CONNECTIONS = 6;
/** Short, so that a kill comes between flushes and within them. */
const FLUSH_INTERVAL_MS = 100;
const LOAD_MS = { least: 100, most: 400 };
/** Each is repeated twice after the restart. */
const CALLS_MAX = 250;

const TOKENS = 10n;
const COST = (TOKENS * (picoUnitsOf(TEST_PRICE.input)! + picoUnitsOf(TEST_PRICE.output)!)) / 1_000_000n;
const PROMPT = steered(`prompt_tokens=${TOKENS}&completion_tokens=${TOKENS}&chunks=40&bytes=4000`);

const isWhole = ({ body }: Answer, stream: boolean): boolean =>
  !stream || eventData(body).filter(isDone).length === 1;

function call(port: number, { key }: Customer, n: number, agent: RequestAgent): Promise<Answer> {
  return request({
    port,
    path: '/v1/chat/completions',
    agent,
    headers: { authorization: `Bearer ${key}`, 'idempotency-key': `call ${n}` },
    body: { model: TEST_MODEL, stream: n % 2 === 1, messages: [{ role: 'user', content: PROMPT }] },
  });
}

type RequestAgent = ReturnType<typeof keepAliveAgent>;

/**
 * Calls one after the other on each connection until the gateway is gone; the responses that came to their
 * ends, by number.
 */
async function load(
  serving: Serving,
  customer: Customer,
  answers: Map<number, Answer>,
  stop: { asked: boolean },
): Promise<{ readonly answers: ReadonlyMap<number, Answer>; readonly calls: number }> {
  const agent = keepAliveAgent(CONNECTIONS);
  let calls = 0;
  const connection = async (): Promise<void> => {
    while (!stop.asked && calls < CALLS_MAX) {
      const n = calls++;
      try {
        const answer = await call(serving.port, customer, n, agent);
        if (answer.status === 200 && isWhole(answer, n % 2 === 1)) answers.set(n, answer);
      } catch {
        return;
      }
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, connection));
  agent.destroy();
  return { answers, calls };
}

/** Repeats every key twice; how many of those answered before the kill were answered anew. */
async function repeat(
  t: Test,
  serving: Serving,
  customer: Customer,
  { answers, calls }: Awaited<ReturnType<typeof load>>,
): Promise<number> {
  const agent = keepAliveAgent(CONNECTIONS);
  let anew = 0;
  const faults: string[] = [];
  for (let n = 0; n < calls; n++) {
    const first = answers.get(n);
    const again = await call(serving.port, customer, n, agent);
    const replayed = again.headers['idempotent-replayed'] === 'true';
    if (again.status !== 200 || !isWhole(again, n % 2 === 1))
      faults.push(`${n}: ${again.status} ${again.body}`);
    if (first !== undefined && replayed && again.body !== first.body) faults.push(`${n}: another answer`);
    if (first !== undefined && !replayed) anew++;
    const third = await call(serving.port, customer, n, agent);
    if (third.body !== again.body || third.headers['idempotent-replayed'] !== 'true')
      faults.push(`${n}: third`);
  }
  t.same(faults, []);
  agent.destroy();
  return anew;
}

for (const durability of ['interval', 'commit'] as const) {
  void t.test(`durability ${durability}, ${ROUNDS} rounds`, { timeout: 900_000 }, async (t) => {
    t.comment(`seed ${SEED}`);
    const random = randomBelow(SEED);
    const mock = await startMock(t);
    const config = testSettings(mock.url, { durability, flush_interval_ms: FLUSH_INTERVAL_MS });
    const gateway = new CrashingGateway(t, temporaryFolder(t), config);
    let serving = await gateway.start();
    let [answered, anew] = [0, 0];
    const customers: Customer[] = [];
    for (let n = 0; n < ROUNDS; n++) customers.push(await serving.admin.customer());
    for (const customer of customers) {
      const stop = { asked: false };
      const answers = new Map<number, Answer>();
      const loaded = load(serving, customer, answers, stop);
      await eventually('the first answers', () => (answers.size > 0 ? true : undefined));
      await sleep(LOAD_MS.least + random(LOAD_MS.most - LOAD_MS.least));
      const restart = gateway.kill(KILLS[random(KILLS.length)]!);
      stop.asked = true;
      serving = await restart();
      const before = await loaded;
      t.comment(`${answers.size} of ${before.calls} calls were answered`);
      anew += await repeat(t, serving, customer, before);
      answered += answers.size;
      // The usage shown is that of the last flush.
      const books = await eventually('the flush', async () => {
        const now = await booksOf(serving.admin, customer.accountId);
        return now.calls >= before.calls ? now : undefined;
      });
      t.equal(books.calls, before.calls, 'each key was charged once');
      t.equal(books.cost, BigInt(before.calls) * COST);
      t.equal(picoUnitsOf(books.account.spent), books.cost);
      t.equal(picoUnitsOf(books.account.held), 0n);
      const audit = await gateway.audit();
      t.equal(audit.status, 0, audit.output);
    }
    if (durability === 'commit') t.equal(anew, 0, 'who had an answer gets the same again');
    t.equal(await gateway.stop(), 0);
    t.comment(`${durability}: ${anew} of ${answered} answers were not on disk when the gateway was killed`);
  });
}
