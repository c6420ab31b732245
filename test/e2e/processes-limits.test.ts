/**
 * Four processes on one port: the limits and the money of accounts are those of all together, also while each
 * process in turn is killed.
 */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { decimalOf, picoUnitsOf } from '#src/core/money.js';
import { asPicoUnits } from '#src/core/units.js';
import { audit } from '#src/store/audit.js';
import type { Customer } from '../support/admin-client.js';
import { startBed } from '../support/bed.js';
import { mostSurelyWithin } from '../support/call-span.js';
import { CALL_COST, Caller, callsOf, rejectionsOf } from '../support/crash-load.js';
import { booksOf } from '../support/crash.js';
import { eventually, knownEverywhere, type Gateway } from '../support/gateway.js';
import { LIMITED, LIMITED_PLANS } from '../support/limited-plans.js';
import { MachineLag } from '../support/machine-lag.js';

const PROCESSES = 4;
const CONNECTIONS = 12;
const FLUSH_INTERVAL_MS = 200;
/** While processes start beside the load: some hundred calls a second, so that each always has some. */
const PACE_MS = 20;
/** An account has used up what it may when it was refused so often, by whichever process. */
const REFUSED_ENOUGH = 50;
/** A flush needs the machine several times over, see crash-load.test.ts. */
const LAGS = 4;
const MINUTE_MS = 60_000;
/** Of the limit of the minute, that are hammered: more of them by `npm run test:sharing`. */
const WINDOWS = process.env.TOLLGATE_SHARING_FULL === undefined ? 1 : 3;

const SETTINGS = {
  processes: PROCESSES,
  flush_interval_ms: FLUSH_INTERVAL_MS,
  plans: LIMITED_PLANS,
};

/** `paceMs`: what each call takes, answered or refused; none by default. */
const callerOf = (gateway: Gateway, { key }: Customer, paceMs = 0): Caller =>
  new Caller({
    port: gateway.port,
    key,
    connections: CONNECTIONS,
    upstreamMs: paceMs,
    refusedPauseMs: paceMs,
  });

/** The gateway processes that run. */
function pidsOf({ child: { pid } }: Gateway): number[] {
  const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'latin1').trim();
  return text === '' ? [] : text.split(' ').map(Number);
}

const serving = (gateway: Gateway, processes: number): Promise<true> =>
  eventually(`${processes} processes serve`, () =>
    gateway.log().filter((line) => line.includes('"gateway serves"')).length >= processes ? true : undefined,
  );

async function usedUp(caller: Caller): Promise<void> {
  await eventually('what is left is refused', () =>
    rejectionsOf([caller]).some((status) => caller.refused.get(status)! >= REFUSED_ENOUGH) ? true : undefined,
  );
  caller.stop();
  await caller.done;
}

void t.test('limits and money are those of all processes', { timeout: 600_000 }, async (t) => {
  const { gateway } = await startBed(t, SETTINGS);
  await serving(gateway, PROCESSES);
  t.equal(pidsOf(gateway).length, PROCESSES);
  const limited = await Promise.all(
    LIMITED.map(async (limit) => ({
      ...limit,
      customer: await gateway.admin.customer({ plan: limit.plan }),
    })),
  );
  // One call's worth less a pico-unit is left when no more calls can be made.
  const affordable = 300n;
  const credit = decimalOf(asPicoUnits(CALL_COST * (affordable + 1n) - 1n));
  const poor = await gateway.admin.customer({ credit });

  await knownEverywhere(gateway, poor.key);
  const callers = limited.map(({ customer }) => callerOf(gateway, customer));
  const spender = callerOf(gateway, poor);
  if (WINDOWS > 1) await sleep(WINDOWS * MINUTE_MS);
  await Promise.all([...callers, spender].map((caller) => usedUp(caller)));

  limited.forEach(({ plan, limit, share }, index) => {
    const { answeredMs, broken } = callers[index]!;
    const admitted = answeredMs.length;
    const most = plan === 'day' ? admitted : mostSurelyWithin(callsOf([callers[index]!]), MINUTE_MS);
    t.ok(most <= limit, `${plan}: ${most} of ${limit}`);
    const allowed = plan === 'day' ? limit : limit * WINDOWS;
    t.ok(admitted >= allowed * share, `${plan}: ${admitted}, at least ${share} of ${allowed}`);
    t.equal(broken, 0);
    t.same(rejectionsOf([callers[index]!]), [429], `${plan}: refused as it should be`);
  });

  const { calls, cost, account } = await eventually(
    'all is flushed, and what lies idle given back',
    async () => {
      const books = await booksOf(gateway.admin, poor.accountId);
      const { held, leased } = books.account;
      const isIdle = held === '0.00' && leased?.balance === '0.00';
      return books.calls === spender.answeredMs.length && isIdle ? books : undefined;
    },
  );
  t.equal(cost, BigInt(calls) * CALL_COST);
  t.equal(picoUnitsOf(account.spent), cost);
  t.equal(picoUnitsOf(account.balance)! + cost, picoUnitsOf(credit), 'to the last pico-unit');
  t.equal(spender.broken, 0);
  t.same(rejectionsOf([spender]), [403]);
  t.equal(await gateway.stop(), 0);
  t.match(await audit(gateway.dataFolder, { accountsMax: 1_000_000, keysMax: 1_000_000, groupsMax: 8 }), {
    differences: [],
  });
});

void t.test('each process killed in turn', { timeout: 600_000 }, async (t) => {
  const { gateway } = await startBed(t, SETTINGS);
  await serving(gateway, PROCESSES);
  const customer = await gateway.admin.customer({ plan: 'sixhundred' });
  const rich = await gateway.admin.customer();
  await knownEverywhere(gateway, rich.key);
  const callers: Caller[] = [];
  const spenders: Caller[] = [];
  let missable = 0;
  for (const [at, pid] of pidsOf(gateway).entries()) {
    callers.push(callerOf(gateway, customer, PACE_MS));
    const spender = callerOf(gateway, rich, PACE_MS);
    spenders.push(spender);
    const lag = new MachineLag(gateway.folder);
    await sleep(500);
    const killedMs = performance.now();
    process.kill(pid, 'SIGKILL');
    const missableMs = 2 * FLUSH_INTERVAL_MS + LAGS * (await lag.end());
    await serving(gateway, PROCESSES + at + 1);
    for (const caller of [callers.at(-1)!, spender]) caller.stop();
    await Promise.all([callers.at(-1)!.done, spender.done]);
    missable += spender.answeredMs.filter((ms) => ms < killedMs && ms > killedMs - missableMs).length;
  }
  const admitted = callers.reduce((sum, { answeredMs }) => sum + answeredMs.length, 0);
  const most = mostSurelyWithin(callsOf(callers), MINUTE_MS);
  t.ok(most <= 600, `${most} of 600 a minute`);

  t.equal(await gateway.stop(), 0);
  const books = await audit(gateway.dataFolder, { accountsMax: 1_000_000, keysMax: 1_000_000, groupsMax: 8 });
  t.match(books, { differences: [] });
  const answered = spenders.reduce((sum, { answeredMs }) => sum + answeredMs.length, 0) + admitted;
  const broken = [...spenders, ...callers].reduce((sum, caller) => sum + caller.broken, 0);
  const booked = Number(books.spent / CALL_COST);
  t.equal(BigInt(booked) * CALL_COST, books.spent);
  t.ok(booked <= answered + broken, `${booked} booked, ${answered} answered and ${broken} cut`);
  t.ok(
    booked >= answered - missable - admitted,
    `${booked} booked of ${answered}: one flush interval each is missing`,
  );
});
