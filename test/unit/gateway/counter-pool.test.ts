/**
 * Accounts have their turns on the counter threads, what nobody waits for leaves, and a turn that does not
 * end ends.
 */
import { MessageChannel } from 'node:worker_threads';
import t, { type Test } from 'tap';
import { COUNTER_THREADS_MAX } from '#src/core/limits.js';
import { asAccountIndex } from '#src/core/units.js';
import { CounterPool } from '#src/gateway/counter-pool.js';
import { AskPort, AskRejected, type PendingQuestion } from '#src/core/ask-port.js';
import type { Usage } from '#src/core/token-counts.js';
import { createMetrics } from '#src/telemetry/metrics-layout.js';
import type { CounterAsk } from '#src/upstream/worker-messages.js';
import { BROKEN, DEAD, STRIPE, STUCK } from '../../fixtures/counter-turns.js';
import { FakeLog } from '../../fixtures/upstream-server.js';
import { eventually } from '../../support/gateway.js';

const LATE = { code: 'overloaded', message: 'late' } as const;
const GONE = { code: 'internal_error', message: 'gone' } as const;
const LONG_MS = 60_000;
/** Threads start within it. */
const STUCK_MS = 2_000;

interface Bed {
  readonly pool: CounterPool;
  readonly log: FakeLog;
  readonly port: AskPort<CounterAsk, Usage>;
  readonly parse: (account: number, ...bytes: number[]) => PendingQuestion<Usage>;
  readonly count: (account: number, turns: number) => PendingQuestion<Usage>;
}

function bed(t: Test, stuckMs = LONG_MS): Bed {
  const log = new FakeLog();
  const pool = new CounterPool({
    metrics: createMetrics(1, 1),
    log,
    entry: new URL('../../fixtures/counter-turns.js', import.meta.url),
    stuckMs,
  });
  const { port1, port2 } = new MessageChannel();
  pool.serve(port1);
  const port = new AskPort<CounterAsk, Usage>(port2);
  t.teardown(async () => {
    port.close();
    await pool.close();
  });
  const ask = (account: number, task: CounterAsk['task']): PendingQuestion<Usage> =>
    port.askWithin(LONG_MS, LATE, { account: asAccountIndex(account), task });
  return {
    pool,
    log,
    port,
    parse: (account, ...bytes) =>
      ask(account, { kind: 'parse', door: 'chat', pieces: [Uint8Array.from(bytes)] }),
    count: (account, turns) => ask(account, { kind: 'count', request: { body: String(turns) } as never }),
  };
}

const refusalOf = (asked: PendingQuestion<Usage>): Promise<string> =>
  asked.reply.then(
    (usage) => `answer ${usage.promptTokens}`,
    (error: unknown) => (error instanceof AskRejected ? error.rejection.code : String(error)),
  );

void t.test('each question gets its own answer, a count after all of its turns', async (t) => {
  const { parse, count } = bed(t);
  const asked = Array.from({ length: 200 }, (_, index) => parse(index % 7, 0, index));
  const counts = [1, 2, 3, 16].map((turns) => count(1, turns));
  t.same(await Promise.all(asked.map(async ({ reply }) => (await reply).promptTokens)), [...asked.keys()]);
  for (const { reply } of counts) t.equal((await reply).promptTokens, 0);
});

void t.test('an account with sixty long jobs delays the one job of another by few turns', async (t) => {
  const { count } = bed(t);
  let over = 0;
  const many = Array.from({ length: 60 }, () => count(1, 50).reply.then(() => (over += 1)));
  await Promise.race(many);
  const first = over;
  await count(2, 1).reply;
  t.ok(over - first <= 3, `${over - first} of the sixty ended before it`);
  await Promise.all(many);
});

void t.test('one that is taken back leaves the queue', async (t) => {
  const { pool, count } = bed(t);
  const long = [count(1, 100_000), count(1, 100_000)];
  const many = Array.from({ length: 60 }, () => count(1, 100_000));
  await eventually('all wait', () => (pool.waiting >= 60 ? true : undefined));
  for (const asked of [...many, ...long]) asked.withdraw(GONE);
  t.same([...new Set(await Promise.all([...many, ...long].map(refusalOf)))], [GONE.code]);
  await eventually('nobody waits', () => (pool.waiting === 0 ? true : undefined));
  t.equal((await count(1, 3).reply).promptTokens, 0, 'and the threads are free');
});

void t.test('what a listener asked for goes with its port', async (t) => {
  const { pool, port, count } = bed(t);
  for (let index = 0; index < 60; index++) void refusalOf(count(1, 100_000));
  await eventually('all wait', () => (pool.waiting >= 58 ? true : undefined));
  port.close();
  await eventually('nobody waits', () => (pool.waiting === 0 ? true : undefined));
});

void t.test('threads that are stuck are replaced, what broke is refused, the next are served', async (t) => {
  const { parse, log } = bed(t, STUCK_MS);
  const asked = [parse(1, STUCK), parse(1, STUCK), parse(2, BROKEN), parse(3, DEAD)];
  t.same(await Promise.all(asked.map(refusalOf)), Array<string>(4).fill('overloaded'));
  t.comment(JSON.stringify(log.lines));
  t.ok(log.lines.length > 0);
  // A thread that starts slowly on a busy machine is taken for stuck here, too.
  await eventually(
    'the next is served',
    async () => (await parse(1, 0, 5).reply).promptTokens === 5 || undefined,
  );
});

void t.test('a thread that has ended leaves its stripe to a later one', async (t) => {
  const { parse } = bed(t);
  for (let ended = 0; ended <= COUNTER_THREADS_MAX; ended++) {
    await eventually(
      `there is a stripe after ${ended} threads`,
      async () => (await parse(1, STRIPE).reply).promptTokens === 1 || undefined,
    );
    t.equal(await refusalOf(parse(1, DEAD)), 'overloaded');
  }
});

void t.test('what waits is bounded; the account with the most gives way to others', async (t) => {
  const { pool, parse, count } = bed(t);
  const rejected = new Map<number, number>();
  const blockers = [count(0, 100_000), count(0, 100_000)];
  const all: Promise<unknown>[] = [];
  const note = (account: number, asked: PendingQuestion<Usage>): void => {
    all.push(asked.reply.catch(() => rejected.set(account, (rejected.get(account) ?? 0) + 1)));
  };
  const asked: PendingQuestion<Usage>[] = [];
  // Three accounts with more than a third of the queue each, then one with a single job.
  for (const account of [1, 2, 3]) {
    for (let index = 0; index < 1_100; index++) {
      const one = count(account, 100_000);
      asked.push(one);
      note(account, one);
    }
  }
  const single = count(4, 1);
  note(4, single);
  await eventually('the queue is full', () => (pool.waiting >= 2_040 ? true : undefined));
  for (const one of [...asked, ...blockers]) one.withdraw(GONE);
  await Promise.all([...all, ...blockers.map(refusalOf)]);
  t.equal((await single.reply).promptTokens, 0, 'the single one was served');
  t.notOk(rejected.has(4));
  t.equal((await parse(1, 0, 1).reply).promptTokens, 1);
});
