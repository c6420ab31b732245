/**
 * kill -9 during calls by each door at once: after each restart the books balance, no call is charged twice,
 * and no more is missing than one flush interval's calls; nothing with `durability: commit`.
 *
 * 2 rounds with each durability; 40 with TOLLGATE_CRASH_FULL=1. TOLLGATE_TEST_SEED=… has a run's moments
 * again.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { picoUnitsOf } from '#src/core/money.js';
import { booksOf, CrashingGateway, KILLS, type Books } from '../support/crash.js';
import { Caller, type CallForm } from '../support/crash-load.js';
import {
  callOf,
  costOf,
  DOOR_ENV,
  hasStreams,
  isWholeStream,
  modelsOf,
  pathOf,
  startDoorMocks,
  steeringOf,
  WAYS,
  wayName,
  type Way,
} from '../support/doors.js';
import { eventually, temporaryFolder } from '../support/gateway.js';
import { MachineLag } from '../support/machine-lag.js';
import { newSeed, randomBelow } from '../support/random.js';

const ROUNDS = process.env.TOLLGATE_CRASH_FULL === '1' ? 40 : 2;
const SEED = newSeed();
const FLUSH_INTERVAL_MS = 200;
/** As in crash-load.test.ts. */
const FLUSH_LATE_MS = 300;
const LAGS = 4;
const LOAD_MS = { least: 100, most: 700 };
const CONNECTIONS = 2;

const formOf = (way: Way): CallForm => ({
  path: pathOf(way),
  body: (stream) => callOf(way, steeringOf(), { stream, outputTokensMax: 20 }),
  isWholeStream: (body) => isWholeStream(way, body),
  hasStreams: hasStreams(way),
});

for (const durability of ['interval', 'commit'] as const) {
  void t.test(`durability ${durability}, ${ROUNDS} rounds`, { timeout: 900_000 }, async (t) => {
    t.comment(`seed ${SEED}`);
    const random = randomBelow(SEED);
    const { originOf } = await startDoorMocks(t);
    const folder = temporaryFolder(t);
    const config = {
      models: modelsOf(originOf),
      plans: [{ id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000 }],
      durability,
      flush_interval_ms: FLUSH_INTERVAL_MS,
    };
    const gateway = new CrashingGateway(t, folder, config, DOOR_ENV);
    let serving = await gateway.start();
    const customers = await Promise.all(
      WAYS.map(async (way) => ({ way, ...(await serving.admin.customer()) })),
    );
    const before = new Map<string, number>();
    let answers = 0;

    for (let round = 0; round < ROUNDS; round++) {
      const kill = KILLS[random(KILLS.length)]!;
      const loadMs = LOAD_MS.least + random(LOAD_MS.most - LOAD_MS.least);
      const lag = new MachineLag(folder);
      const callers = customers.map(({ way, key }) => ({
        way,
        caller: new Caller({ port: serving.port, key, connections: CONNECTIONS, form: formOf(way) }),
      }));
      await eventually('the first answers', () =>
        callers.every(({ caller }) => caller.answeredMs.length > 0) ? true : undefined,
      );
      await sleep(loadMs);
      const inFlight = callers.map(({ caller }) => caller.inFlight);
      const killedMs = performance.now();
      const restart = gateway.kill(kill);
      for (const { caller } of callers) caller.stop();
      const lagMs = await lag.end();
      serving = await restart();
      await Promise.all(callers.map(({ caller }) => caller.done));
      const audit = await gateway.audit();
      t.equal(audit.status, 0, `round ${round}, ${kill}: the audit holds\n${audit.output}`);

      for (const [place, { way, accountId }] of customers.entries()) {
        const { caller } = callers[place]!;
        const name = `round ${round} (${loadMs} ms, ${kill}), ${wayName(way)}`;
        const books: Books = await booksOf(serving.admin, accountId);
        const { credited, balance, held, spent } = books.account;
        const money = (text: string): bigint => picoUnitsOf(text)!;
        t.equal(money(credited), money(balance) + money(held) + money(spent), `${name}: the law`);
        t.equal(money(held), 0n, `${name}: nothing is held for calls that are gone`);
        t.equal(money(spent), books.cost, `${name}: account and usage agree`);
        t.equal(
          books.cost,
          BigInt(books.calls) * costOf(way),
          `${name}: each call is charged once and whole`,
        );
        t.same([...caller.refused.keys()], [], `${name}: no answer but 200`);
        const answered = caller.answeredMs.length;
        const booked = books.calls - (before.get(wayName(way)) ?? 0);
        const missing = answered - booked;
        t.ok(booked <= answered + inFlight[place]!, `${name}: ${booked} booked, ${answered} answered`);
        if (durability === 'commit') t.ok(missing <= 0, `${name}: ${missing} answered and not booked`);
        if (missing > 0) {
          const missingMs = killedMs - caller.answeredMs[answered - missing]!;
          t.ok(
            missingMs <= FLUSH_INTERVAL_MS + FLUSH_LATE_MS + LAGS * lagMs,
            `${name}: ${missing} of the last ${missingMs} ms, on a machine late by ${lagMs} ms`,
          );
        }
        before.set(wayName(way), books.calls);
        answers += answered;
      }
    }
    t.equal(await gateway.stop(), 0);
    t.comment(`${durability}: ${answers} answers by ${WAYS.length} ways in ${ROUNDS} rounds`);
  });
}
