/**
 * Limits after kill -9: a gateway that starts again within the same minute knows what the last minute and the day had
 * used, but for what was admitted since the last flush. So no limit is passed by more than one flush interval's calls.
 *
 * The counting is the client's: answers with 200 over both lives of the gateway.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { randomFrom } from '../fixtures/ledger-world.js';
import type { Customer } from '../support/admin-client.js';
import { CrashingGateway, KILLS } from '../support/crash.js';
import { Caller } from '../support/crash-load.js';
import { temporaryFolder, testSettings } from '../support/gateway.js';
import { startMock } from '../support/mock.js';

const FULL = process.env.TOLLGATE_CRASH_FULL === '1';
const ROUNDS = FULL ? 20 : 2;
const SEED = Number(process.env.TOLLGATE_CRASH_SEED ?? Date.now() % 1_000_000);
const CONNECTIONS = 4;
const FLUSH_INTERVAL_MS = 200;
/** What a flush may be late by on a busy machine: the timer's turn, and the writing itself. */
const FLUSH_LATE_MS = 300;
const LOAD_MS = { least: 250, most: 600 };
/** More than is admitted before the kill, so that it is the second life that meets it. */
const LIMIT = 2_000;
const ANSWERS_TIMEOUT_MS = 30_000;

const PLANS = [
  { id: 'minute', requests_per_minute: LIMIT, calls_per_day: 1_000_000 },
  { id: 'day', requests_per_minute: 1_000_000, calls_per_day: LIMIT },
] as const;

for (const { id: plan } of PLANS) {
  void t.test(`${LIMIT} calls a ${plan}, ${ROUNDS} rounds`, { timeout: 900_000 }, async (t) => {
    t.comment(`seed ${SEED}`);
    const random = randomFrom(SEED);
    const mock = await startMock(t);
    const config = testSettings(mock.url, { plans: PLANS, flush_interval_ms: FLUSH_INTERVAL_MS });
    const gateway = new CrashingGateway(t, temporaryFolder(t), config);
    let serving = await gateway.start();
    let [worst, worstMs] = [-Infinity, 0];
    const customers: Customer[] = [];
    for (let n = 0; n < ROUNDS; n++) customers.push(await serving.admin.customer({ plan }));
    for (const customer of customers) {
      const startMs = performance.now();
      const first = new Caller({ port: serving.port, key: customer.key, connections: CONNECTIONS });
      await sleep(LOAD_MS.least + random(LOAD_MS.most - LOAD_MS.least));
      const [killedMs, inFlight] = [performance.now(), first.inFlight];
      const restart = gateway.kill(KILLS[random(KILLS.length)]!);
      first.stop();
      serving = await restart();
      await first.done;
      t.ok(
        [...first.refused.keys()].every((status) => status === 429),
        'nothing but the limit refuses',
      );
      const account = await serving.admin.account(customer.accountId);
      const known = plan === 'minute' ? account.requests_this_minute : account.calls_today;

      const second = new Caller({ port: serving.port, key: customer.key, connections: CONNECTIONS });
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
        forgottenMs <= FLUSH_INTERVAL_MS + FLUSH_LATE_MS,
        `${over} over the limit, from the last ${forgottenMs.toFixed(0)} ms before the kill`,
      );
      t.ok(known > 0, `${known} of ${first.answeredMs.length} known after the restart`);
      t.ok(known <= first.answeredMs.length + first.broken, 'none that was never sent');
      // What was in flight was admitted, and may have ended with nobody to answer.
      t.ok(answered + inFlight >= LIMIT * 0.99, 'and no permit is lost that was not used');
      if (over > worst) [worst, worstMs] = [over, forgottenMs];
    }
    t.equal(await gateway.stop(), 0);
    t.comment(
      `${plan}: worst seen ${worst} calls beyond ${LIMIT}, all of the last ${worstMs.toFixed(0)} ms before the kill ` +
        `(flush interval ${FLUSH_INTERVAL_MS} ms)`,
    );
  });
}
