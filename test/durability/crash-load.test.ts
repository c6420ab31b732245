/**
 * kill -9 under load: after each restart the books balance, no call is charged twice, and no more is missing
 * than one flush interval's calls; nothing with `durability: commit`.
 *
 * 10 rounds in `npm test`, half of them with each durability; 200 with TOLLGATE_CRASH_FULL=1 (`npm run
 * test:crash`). TOLLGATE_TEST_SEED=… has a run's moments again.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { picoUnitsOf } from '#src/core/money.js';
import type { Customer } from '../support/admin-client.js';
import { booksOf, CrashingGateway, KILLS, type Books, type Kill, type Serving } from '../support/crash.js';
import { CALL_COST, Caller } from '../support/crash-load.js';
import { eventually, temporaryFolder, testSettings } from '../support/gateway.js';
import { MachineLag } from '../support/machine-lag.js';
import { startMock } from '../support/mock.js';
import { newSeed, randomBelow } from '../support/random.js';

const FULL = process.env.TOLLGATE_CRASH_FULL === '1';
const ROUNDS = FULL ? 100 : 5;
const SEED = newSeed();
const USAGE_LOG = 'usage.ndjson';
const CUSTOMERS = 3;
const CONNECTIONS = 4;
const FLUSH_INTERVAL_MS = 200;
/** What a flush may be late by where the machine is not: the timer's turn, and the writing itself. */
const FLUSH_LATE_MS = 300;
/**
 * A flush needs the machine several times over: its timer, what the threads pass on, the write and its sync.
 */
const LAGS = 4;
/** Load runs for a random time up to this before the kill: some flushes, at any point between two. */
const LOAD_MS = { least: 30, most: 900 };

interface Worst {
  /**
   * Calls whose answer was read and that are not in the books, and how long before the kill the first of them
   * ended.
   */
  missing: number;
  missingMs: number;
  /** Calls in the books whose answer was not read to its end. */
  unread: number;
  inFlight: number;
}

/** Of all calls in the usage log, but for lines that a kill has cut. */
function loggedIds(path: string): string[] {
  return readFileSync(path, 'utf8')
    .split('\n')
    .flatMap((line) => {
      try {
        return [(JSON.parse(line) as { request_id: string }).request_id];
      } catch {
        return [];
      }
    });
}

/** One kill under load, which begins with a response for each; returns what is in the books after it. */
async function crash(
  gateway: CrashingGateway,
  serving: Serving,
  customers: readonly Customer[],
  loadMs: number,
  kill: Kill,
  folder: string,
): Promise<{ serving: Serving; callers: Caller[]; killedMs: number; inFlight: number[]; lagMs: number }> {
  const lag = new MachineLag(folder);
  const callers = customers.map(
    ({ key }) => new Caller({ port: serving.port, key, connections: CONNECTIONS }),
  );
  await eventually('the first answers', () =>
    callers.every(({ answeredMs }) => answeredMs.length > 0) ? true : undefined,
  );
  await sleep(loadMs);
  const inFlight = callers.map((caller) => caller.inFlight);
  const killedMs = performance.now();
  const restart = gateway.kill(kill);
  for (const caller of callers) caller.stop();
  const lagMs = await lag.end();
  const next = await restart();
  await Promise.all(callers.map((caller) => caller.done));
  return { serving: next, callers, killedMs, inFlight, lagMs };
}

for (const durability of ['interval', 'commit'] as const) {
  void t.test(`durability ${durability}, ${ROUNDS} rounds`, { timeout: 900_000 }, async (t) => {
    t.comment(`seed ${SEED}`);
    const random = randomBelow(SEED);
    const mock = await startMock(t);
    const config = testSettings(mock.url, {
      durability,
      flush_interval_ms: FLUSH_INTERVAL_MS,
      usage_log: { path: USAGE_LOG },
    });
    const folder = temporaryFolder(t);
    const gateway = new CrashingGateway(t, folder, config);
    let serving = await gateway.start();
    const customers: Customer[] = [];
    for (let n = 0; n < CUSTOMERS; n++) customers.push(await serving.admin.customer());
    const before: Books[] = [];
    for (const { accountId } of customers) before.push(await booksOf(serving.admin, accountId));
    const worst: Worst = { missing: 0, missingMs: 0, unread: 0, inFlight: 0 };
    const ids = new Set<string>();
    let answers = 0;

    for (let round = 0; round < ROUNDS; round++) {
      const kill = KILLS[random(KILLS.length)]!;
      const loadMs = LOAD_MS.least + random(LOAD_MS.most - LOAD_MS.least);
      const end = await crash(gateway, serving, customers, loadMs, kill, folder);
      serving = end.serving;
      const audit = await gateway.audit();
      const name = `round ${round} (${loadMs} ms, ${kill})`;
      t.equal(audit.status, 0, `${name}: the audit holds\n${audit.output}`);

      for (const [n, { accountId }] of customers.entries()) {
        const caller = end.callers[n]!;
        const books = await booksOf(serving.admin, accountId);
        const { account } = books;
        const [credited, balance, held, spent] = [
          account.credited,
          account.balance,
          account.held,
          account.spent,
        ].map((text) => picoUnitsOf(text)!);
        t.equal(credited, balance! + held! + spent!, `${name}: the law`);
        t.equal(held, 0n, `${name}: nothing is held for calls that are gone`);
        t.equal(spent, books.cost, `${name}: account and usage agree`);
        t.equal(spent, BigInt(books.calls) * CALL_COST, `${name}: each call is charged once and whole`);
        t.same([...caller.refused.keys()], [], `${name}: no answer but 200`);

        const answered = caller.answeredMs.length;
        const booked = books.calls - before[n]!.calls;
        const missing = answered - booked;
        t.ok(booked <= answered + end.inFlight[n]!, `${name}: ${booked} booked, ${answered} answered`);
        t.ok(booked <= answered + caller.broken, `${name}: no more booked than were sent`);
        if (durability === 'commit') t.ok(missing <= 0, `${name}: ${missing} answered and not booked`);
        if (missing > 0) {
          const missingMs = end.killedMs - caller.answeredMs[answered - missing]!;
          t.ok(
            missingMs <= FLUSH_INTERVAL_MS + FLUSH_LATE_MS + LAGS * end.lagMs,
            `${name}: ${missing} of the last ${missingMs} ms, on a machine late by ${end.lagMs} ms`,
          );
          worst.missingMs = Math.max(worst.missingMs, missingMs);
        }
        worst.missing = Math.max(worst.missing, missing);
        worst.unread = Math.max(worst.unread, -missing);
        worst.inFlight = Math.max(worst.inFlight, end.inFlight[n]!);
        for (const id of caller.requestIds) ids.add(id);
        answers += answered;
        before[n] = books;
      }
    }
    t.equal(ids.size, answers, 'no two answers have the same request id, also after restarts');
    // A life that ends in order logs all its calls.
    const quiet = customers.map(
      ({ key }) => new Caller({ port: serving.port, key, connections: CONNECTIONS }),
    );
    await eventually('more answers', () =>
      quiet.every(({ answeredMs }) => answeredMs.length > 0) ? true : undefined,
    );
    for (const caller of quiet) caller.stop();
    await Promise.all(quiet.map(({ done }) => done));
    t.equal(await gateway.stop(), 0);
    const logged = loggedIds(join(folder, USAGE_LOG));
    const calm = quiet.flatMap(({ requestIds }) => requestIds);
    t.same(
      calm.filter((id) => !logged.includes(id)),
      [],
      `all ${calm.length} calls before an orderly end are in the usage log`,
    );
    const booked = before.reduce((sum, { calls }) => sum + calls, calm.length);
    t.equal(new Set(logged).size, logged.length, 'no request id is twice in the usage log');
    t.ok(logged.length <= booked, `${logged.length} calls logged of ${booked} in the books`);
    t.comment(
      `${durability}: ${answers} answers in ${ROUNDS} rounds; worst of one account and round: ` +
        `${worst.missing} missing (C - B), the first of them ended ${worst.missingMs.toFixed(0)} ms before the kill ` +
        `(interval ${FLUSH_INTERVAL_MS} ms); ${worst.unread} booked and not read (B - C), ${worst.inFlight} in flight`,
    );
  });
}
