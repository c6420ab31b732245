/**
 * Two hosts on one server take out of one account at once: calls at both, their flushes, and operators who
 * debit and credit at both. Nothing is paid twice and nothing is lost, to the pico-unit.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { decimalOf, picoUnitsOf } from '#src/core/money.js';
import { asPicoUnits } from '#src/core/units.js';
import { CALL_COST } from '../support/crash-load.js';
import { Crowd } from '../support/crowd.js';
import { eventually } from '../support/gateway.js';
import { startHosts, type Host } from '../support/hosts.js';
import { newSeed, randomBelow } from '../support/random.js';
import { NO_REDIS, startRedis } from '../support/redis-server.js';

const PLAN = { id: 'wide', requests_per_minute: 1_000_000, calls_per_day: 1_000_000 };
const SETTINGS = { flush_interval_ms: 100, plans: [PLAN] };
/** What the account has at first, beside an odd rest. */
const CALLS_PAID = 300n;
/** Of both operators together. */
const DEBITS_MIN = 20;
const REFUSED_DEBITS_MIN = 4;
const CALLS_MIN = 100;
const RACE_MS_MAX = 180_000;
/** 2 s, if the machine does nothing else; without a record of who was there 86 s at least. */
const LENDS_AGAIN_MS_MAX = 30_000;

interface Operator {
  readonly host: Host;
  /** Pico-units that this one has added, less those it took. */
  credited: bigint;
  debits: number;
  refused: number;
}

const text = (amount: bigint): string => decimalOf(asPicoUnits(amount));

void t.test('debits race calls and flushes of two hosts', { ...NO_REDIS, timeout: 400_000 }, async (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const below = randomBelow(seed);
  const { hosts } = await startHosts(t, { count: 2, settings: SETTINGS });
  const { admin } = hosts[0]!.gateway;
  const first = CALLS_PAID * CALL_COST + 123n;
  const customer = await admin.customer({ plan: PLAN.id, credit: text(first) });
  const path = `/admin/v1/accounts/${customer.accountId}/credit`;
  await eventually('the account at the other host', async () => {
    const answer = await hosts[1]!.gateway.admin.send('GET', `/admin/v1/accounts/${customer.accountId}`);
    return answer.status === 200 ? true : undefined;
  });

  const crowd = new Crowd(hosts, customer);
  const operators = hosts.map((host): Operator => ({ host, credited: 0n, debits: 0, refused: 0 }));
  const sum = (of: (operator: Operator) => number): number =>
    operators.reduce((total, operator) => total + of(operator), 0);
  const isEnough = (): boolean =>
    sum(({ debits }) => debits) >= DEBITS_MIN &&
    operators.every(({ refused }) => refused > 0) &&
    sum(({ refused }) => refused) >= REFUSED_DEBITS_MIN &&
    crowd.answered >= CALLS_MIN &&
    crowd.refusals.includes(403);
  const endMs = performance.now() + RACE_MS_MAX;
  /** Takes odd amounts of some calls' worth, and gives back half as many, so that calls go on. */
  const race = async (operator: Operator): Promise<void> => {
    while (!isEnough() && performance.now() < endMs) {
      const amount = BigInt(1 + below(30)) * CALL_COST + BigInt(below(1_000));
      const signed = below(3) === 0 ? amount : -amount;
      const { status, body } = await operator.host.gateway.admin.send('POST', path, { amount: text(signed) });
      if (status === 200) {
        operator.credited += signed;
        if (signed < 0n) operator.debits += 1;
      } else if (status === 400 && signed < 0n) operator.refused += 1;
      else throw new Error(`${text(signed)}: ${status} ${body}`);
      await sleep(below(20));
    }
  };
  await Promise.all(operators.map(race));
  await crowd.stop();
  for (const line of crowd.lines('calls')) t.comment(line);
  t.comment(operators.map(({ debits, refused }) => `${debits} debits, ${refused} refused`).join('; '));
  t.ok(isEnough(), 'debits, refusals and calls met each other');
  t.equal(crowd.broken, 0, 'each call has one answer');

  const credited = operators.reduce((total, operator) => total + operator.credited, first);
  const spent = BigInt(crowd.answered) * CALL_COST;
  for (const [at, { gateway }] of hosts.entries()) {
    const account = await eventually(`the books of host ${at + 1}`, async () => {
      const seen = await gateway.admin.account(customer.accountId);
      return seen.credited === text(credited) && seen.spent === text(spent) ? seen : undefined;
    });
    t.equal(account.balance, text(credited - spent), 'credited = available + held + spent');
  }

  const rest = credited - spent;
  t.ok(rest >= 0n, 'no debit and no call went below zero');
  const debit = (amount: bigint) => hosts[1]!.gateway.admin.send('POST', path, { amount: text(-amount) });
  const tooMuch = await debit(rest + 1n);
  t.equal(tooMuch.status, 400, 'a pico-unit more than there is');
  if (rest === 0n) return;
  // What a host still holds idle it gives back within seconds.
  const all = await eventually('a debit of all that is left', async () => {
    const answer = await debit(rest);
    return answer.status === 200 ? answer : undefined;
  });
  t.equal(picoUnitsOf((all.json() as { readonly balance: string }).balance), 0n, 'to the pico-unit');
});

void t.test('nobody waits for a host that has debited', { ...NO_REDIS, timeout: 300_000 }, async (t) => {
  const redis = await startRedis(t, ['--appendonly', 'yes', '--appendfsync', 'always']);
  const { hosts } = await startHosts(t, { count: 3, settings: SETTINGS, server: { redis } });
  const [stays, dies, leaves] = hosts as [Host, Host, Host];
  const { accountId } = await stays.gateway.admin.customer({ plan: PLAN.id, credit: '1.00' });
  const path = `/admin/v1/accounts/${accountId}/credit`;
  // Nothing of its account is leased before the restart.
  const { key } = await stays.gateway.admin.customer({ plan: PLAN.id, credit: '1.00' });
  for (const { gateway } of hosts)
    await eventually('a debit', async () => {
      const { status } = await gateway.admin.send('POST', path, { amount: '-0.01' });
      return status === 200 ? true : undefined;
    });
  // Servers below a certain age are not checked.
  await redis.command('HSET', '{tollgate:0}:meta', 'grown', '1');
  await leaves.gateway.stop();
  await dies.kill();
  const back = await dies.restart();
  await redis.restart();
  const restartedMs = performance.now();
  for (const { gateway } of [stays, back])
    await eventually('a call', async () => {
      const { status } = await gateway.chat(key, 'hello');
      return status === 200 ? true : undefined;
    });
  const ms = performance.now() - restartedMs;
  t.ok(ms < LENDS_AGAIN_MS_MAX, `lends again after ${ms.toFixed(0)} ms`);
  await eventually('a debit by the next life', async () => {
    const { status } = await back.gateway.admin.send('POST', path, { amount: '-0.01' });
    return status === 200 ? true : undefined;
  });
});
