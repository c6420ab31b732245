/**
 * Limits after kill -9: a gateway that starts again within the same minute knows what the last minute and the
 * day had used, but for what was admitted since the last flush. So no limit is passed by more than one flush
 * interval's calls.
 *
 * The counting is the client's: responses with 200 over both lives of the gateway.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import type { Customer } from '../support/admin-client.js';
import { booksOf, CrashingGateway, KILLS, type Serving } from '../support/crash.js';
import { Caller } from '../support/crash-load.js';
import { eventually, temporaryFolder, testSettings } from '../support/gateway.js';
import { MachineLag } from '../support/machine-lag.js';
import { startMock } from '../support/mock.js';
import { newSeed, randomBelow } from '../support/random.js';

const FULL = process.env.TOLLGATE_CRASH_FULL === '1';
const ROUNDS = FULL ? 20 : 2;
const SEED = newSeed();
const CONNECTIONS = 4;
const FLUSH_INTERVAL_MS = 200;
/** What a flush may be late by where the machine is not: the timer's turn, and the writing itself. */
const FLUSH_LATE_MS = 300;
/**
 * A flush needs the machine several times over: its timer, what the threads pass on, the write and its sync.
 */
const LAGS = 4;
const LOAD_MS = { least: 250, most: 600 };
/** With four connections at most 400 calls a second, so that a life of 600 ms does not come to the limit. */
const UPSTREAM_MS = 10;
/** More than is admitted before the kill, so that it is the second life that meets it. */
const LIMIT = 400;
/** Calls before the kill at the most, however long its conditions take. */
const CALLS_BEFORE_KILL_MAX = LIMIT / 2;
const ANSWERS_TIMEOUT_MS = 50_000;

const PLANS = [
  { id: 'minute', requests_per_minute: LIMIT, calls_per_day: 1_000_000 },
  { id: 'day', requests_per_minute: 1_000_000, calls_per_day: LIMIT },
] as const;

const callerOf = ({ port }: Serving, { key }: Customer): Caller =>
  new Caller({ port, key, connections: CONNECTIONS, upstreamMs: UPSTREAM_MS });

for (const { id: plan } of PLANS) {
  void t.test(`${LIMIT} calls a ${plan}, ${ROUNDS} rounds`, { timeout: 900_000 }, async (t) => {
    t.comment(`seed ${SEED}`);
    const random = randomBelow(SEED);
    const mock = await startMock(t);
    const config = testSettings(mock.url, { plans: PLANS, flush_interval_ms: FLUSH_INTERVAL_MS });
    const folder = temporaryFolder(t);
    const gateway = new CrashingGateway(t, folder, config);
    let serving = await gateway.start();
    let [worst, worstMs] = [-Infinity, 0];
    const customers: Customer[] = [];
    for (let n = 0; n < ROUNDS; n++) customers.push(await serving.admin.customer({ plan }));
    for (const customer of customers) {
      const startMs = performance.now();
      const lag = new MachineLag(folder);
      const first = callerOf(serving, customer);
      await sleep(LOAD_MS.least + random(LOAD_MS.most - LOAD_MS.least));
      // The usage shown is that of the last flush.
      const shown = serving.admin;
      await eventually('a flush', async () =>
        (await booksOf(shown, customer.accountId)).calls > 0 ||
        first.answeredMs.length >= CALLS_BEFORE_KILL_MAX
          ? true
          : undefined,
      );
      const [killedMs, inFlight] = [performance.now(), first.inFlight];
      const restart = gateway.kill(KILLS[random(KILLS.length)]!);
      first.stop();
      const lagMs = await lag.end();
      serving = await restart();
      await first.done;
      t.ok(
        [...first.refused.keys()].every((status) => status === 429),
        'nothing but the limit refuses',
      );
      const account = await serving.admin.account(customer.accountId);
      const known = plan === 'minute' ? account.requests_this_minute : account.calls_today;

      const second = callerOf(serving, customer);
      while (!second.refused.has(429) && performance.now() - startMs < ANSWERS_TIMEOUT_MS) await sleep(5);
      second.stop();
      await second.done;
      const tookMs = performance.now() - startMs;
      t.ok(tookMs < ANSWERS_TIMEOUT_MS, `refused after ${tookMs.toFixed(0)} ms, within the same minute`);
      t.same([...second.refused.keys()], [429]);

      const answered = first.answeredMs.length + second.answeredMs.length;
      const over = answered - LIMIT;
      // Those that are over were admitted before the kill, last of all, and forgotten.
      const forgottenMs = over > 0 ? killedMs - (first.answeredMs.at(-over) ?? -Infinity) : 0;
      t.ok(
        forgottenMs <= FLUSH_INTERVAL_MS + FLUSH_LATE_MS + LAGS * lagMs,
        `${over} over the limit, from the last ${forgottenMs.toFixed(0)} ms before the kill, on a machine late by ${lagMs.toFixed(0)} ms`,
      );
      t.ok(known > 0, `${known} of ${first.answeredMs.length} known after the restart`);
      t.ok(known <= first.answeredMs.length + first.broken, 'none that was never sent');
      // What was in flight was admitted, and may have ended with nobody to answer.
      t.ok(answered + inFlight >= LIMIT * 0.95, 'and no permit is lost that was not used');
      if (over > worst) [worst, worstMs] = [over, forgottenMs];
    }
    t.equal(await gateway.stop(), 0);
    t.comment(
      `${plan}: worst seen ${worst} calls beyond ${LIMIT}, all of the last ${worstMs.toFixed(0)} ms before the kill ` +
        `(flush interval ${FLUSH_INTERVAL_MS} ms)`,
    );
  });
}
