/**
 * Two hosts that are cut off serve what was set aside for them, of the day and of money, and all together no
 * more than there is. One that is cut off for long lives on its equal share of the minute, and the other on
 * the rest: minutes, `npm run test:sharing`.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { decimalOf, picoUnitsOf } from '#src/core/money.js';
import { asPicoUnits } from '#src/core/units.js';
import { SHARE_BEGINS_MS } from '#src/sharing/equal-share.js';
import type { SharingStatus } from '#src/telemetry/status-document.js';
import type { Customer } from '../support/admin-client.js';
import { mostSurelyWithin } from '../support/call-span.js';
import { CALL_COST, callsOf } from '../support/crash-load.js';
import { Crowd } from '../support/crowd.js';
import { checkError } from '../support/error-answer.js';
import { eventually } from '../support/gateway.js';
import { startHosts, type Host, type Hosts } from '../support/hosts.js';
import { NO_REDIS } from '../support/redis-server.js';

const LIMIT = 60;
const SHARE = LIMIT / 2;
const DAY_LIMIT = 240;
/** What the poor account can pay for. */
const CALLS_PAID = 400n;
const CUT_MS = 4_000;
const MINUTE_MS = 60_000;
/** A window and a little more. */
const PHASE_MS = MINUTE_MS + 5_000;

const SETTINGS = {
  sharing: { on_authority_loss: 'equal_share', hosts: 2 },
  flush_interval_ms: 200,
  plans: [
    { id: 'sixty', requests_per_minute: LIMIT, calls_per_day: 1_000_000 },
    { id: 'daily', requests_per_minute: 6_000, calls_per_day: DAY_LIMIT },
    { id: 'paid', requests_per_minute: 6_000, calls_per_day: 1_000_000 },
  ],
};

const SKIPPED =
  process.env.TOLLGATE_SHARING_FULL === undefined ? { skip: 'minutes: npm run test:sharing' } : NO_REDIS;

async function stateOf({ gateway }: Host): Promise<string> {
  const status = await gateway.admin.send('GET', '/admin/v1/status');
  return (status.json() as { readonly sharing: SharingStatus }).sharing.state;
}

void t.test('a host on its equal share', { ...SKIPPED, timeout: 900_000 }, async (t) => {
  const { hosts } = await startHosts(t, { count: 2, settings: SETTINGS });
  const [kept, cut] = hosts as [Host, Host];
  const customer = await kept.gateway.admin.customer({ plan: 'sixty' });
  await eventually('the key at the other host', async () => {
    const { status } = await cut.gateway.request(customer.key, { method: 'GET', path: '/v1/models' });
    return status === 200 ? true : undefined;
  });
  const crowds: Crowd[] = [];
  /** Calls at both hosts until `end`. */
  const phase = async (what: string, end: () => Promise<unknown>): Promise<Crowd> => {
    const crowd = new Crowd(hosts, customer);
    crowds.push(crowd);
    await end();
    await crowd.stop();
    for (const line of crowd.lines(what)) t.comment(line);
    return crowd;
  };
  const answeredAt = (crowd: Crowd, host: number): number => crowd.callers[host]!.answeredMs.length;

  await phase('together', () => sleep(5_000));
  cut.wire.set('cut');
  await phase('cut off, before its share', async () => {
    await sleep(SHARE_BEGINS_MS / 2);
    checkError(t, await cut.gateway.chat(customer.key, 'Hello'), 'overloaded', 'without share or lease');
    await eventually(
      'its share',
      async () => ((await cut.gateway.chat(customer.key, 'Hello')).status === 200 ? true : undefined),
      2 * SHARE_BEGINS_MS,
    );
  });
  const alone = await phase('on its share', () => sleep(PHASE_MS));
  // The phase is longer than a window, so there is the begin of a second one in it.
  const mostAlone = mostSurelyWithin(
    crowds.slice(1).flatMap(({ callers }) => callsOf([callers[1]!])),
    MINUTE_MS,
  );
  t.ok(mostAlone <= SHARE, `${mostAlone} of ${SHARE} in a minute by the host that is alone`);
  for (const host of hosts.keys())
    t.ok(answeredAt(alone, host) >= 0.8 * SHARE, `${answeredAt(alone, host)} at host ${host + 1}`);
  cut.wire.set('open');
  const after = await phase('together again', async () => {
    await eventually('it is back', async () => ((await stateOf(cut)) === 'connected' ? true : undefined));
    await sleep(PHASE_MS);
  });
  // The server holds a share back until the host has been back for a window. Of what is left, one in twenty
  // may lie unused in a lease.
  t.ok(after.answered >= 0.95 * SHARE, `${after.answered} when it is back`);
  const most = mostSurelyWithin(
    crowds.flatMap(({ calls }) => calls),
    MINUTE_MS,
  );
  t.ok(most <= LIMIT, `${most} of ${LIMIT} in a minute at the most`);
  t.equal(
    crowds.reduce((sum, { broken }) => sum + broken, 0),
    0,
  );
});

interface Begun {
  readonly world: Hosts;
  readonly daily: Customer;
  readonly paid: Customer;
  /** Calls that were made here. */
  readonly dayBefore: number;
  readonly paidBefore: number;
}

/** Both accounts are served by both hosts, and something of them is set aside. */
async function begin(t: Test): Promise<Begun> {
  const world = await startHosts(t, { count: 2, settings: SETTINGS });
  const { admin } = world.hosts[0]!.gateway;
  const daily = await admin.customer({ plan: 'daily' });
  const paid = await admin.customer({ plan: 'paid', credit: decimalOf(asPicoUnits(CALL_COST * CALLS_PAID)) });
  const crowds = [daily, paid].map((customer) => new Crowd(world.hosts, customer, 1));
  await eventually('calls at both', () =>
    crowds.every(({ callers }) => callers.every(({ answeredMs }) => answeredMs.length > 2))
      ? true
      : undefined,
  );
  await Promise.all(crowds.map((crowd) => crowd.stop()));
  // Calls have given back what they were lent when they have rested for two seconds; what is set aside stays.
  await sleep(5_000);
  await eventually('something is set aside', async () => {
    const account = await admin.account(paid.accountId);
    return account.leased?.balance === '0.00' ? undefined : true;
  });
  const [dayBefore, paidBefore] = crowds.map(({ answered }) => answered) as [number, number];
  return { world, daily, paid, dayBefore, paidBefore };
}

void t.test(
  'a host that is cut off serves what was set aside',
  { ...NO_REDIS, timeout: 600_000 },
  async (t) => {
    const { world, daily, paid, dayBefore, paidBefore } = await begin(t);
    const [kept, cut] = world.hosts as [Host, Host];
    cut.wire.set('cut');
    const crowds = [new Crowd(world.hosts, daily), new Crowd(world.hosts, paid)];
    await sleep(CUT_MS);
    const [byDay, byMoney] = crowds.map(({ callers }) => callers[1]!.answeredMs.length) as [number, number];
    for (const [at, crowd] of crowds.entries())
      for (const line of crowd.lines(at === 0 ? 'by day' : 'by money')) t.comment(line);
    // Of two each has a third set aside, and a third is left for both: a busy machine has asked for less.
    t.ok(byDay >= 10 && byDay <= DAY_LIMIT / 2, `${byDay} of the day by the host that is cut off`);
    t.ok(byMoney >= 10 && byMoney <= CALLS_PAID / 2n, `${byMoney} paid by the host that is cut off`);
    cut.wire.set('open');
    await eventually('it is back', async () => ((await stateOf(cut)) === 'connected' ? true : undefined));
    await Promise.all(crowds.map((crowd) => crowd.useUp(0)));
    const [dayCrowd, paidCrowd] = crowds as [Crowd, Crowd];
    t.equal(dayCrowd.broken + paidCrowd.broken, 0);
    const ofDay = dayCrowd.answered + dayBefore;
    t.ok(ofDay <= DAY_LIMIT, `${ofDay} of ${DAY_LIMIT} a day`);
    t.ok(ofDay >= DAY_LIMIT * 0.95, `${ofDay} of ${DAY_LIMIT} a day`);
    const cost = BigInt(paidCrowd.answered + paidBefore) * CALL_COST;
    t.ok(cost <= CALL_COST * CALLS_PAID);
    await eventually('to the last pico-unit', async () => {
      const { spent, balance, held } = await kept.gateway.admin.account(paid.accountId);
      const sum = picoUnitsOf(balance)! + picoUnitsOf(held)! + cost;
      return picoUnitsOf(spent) === cost && sum === CALL_COST * CALLS_PAID ? true : undefined;
    });
  },
);

void t.test(
  'the server is gone: all serve what was set aside',
  { ...NO_REDIS, timeout: 600_000 },
  async (t) => {
    const { world, daily, paid, dayBefore, paidBefore } = await begin(t);
    await world.redis.kill();
    const crowds = [new Crowd(world.hosts, daily), new Crowd(world.hosts, paid)];
    await sleep(CUT_MS);
    await Promise.all(crowds.map((crowd) => crowd.stop()));
    for (const [at, crowd] of crowds.entries()) {
      for (const line of crowd.lines(at === 0 ? 'by day' : 'by money')) t.comment(line);
      for (const [host, { answeredMs }] of crowd.callers.entries())
        t.ok(answeredMs.length >= 10, `${answeredMs.length} by host ${host + 1}`);
      const all = crowd.answered + (at === 0 ? dayBefore : paidBefore);
      t.ok(all <= (at === 0 ? DAY_LIMIT : Number(CALLS_PAID)), `${all} by both`);
      t.same(crowd.refusals, [], 'what cannot be known is told as 503');
      t.equal(crowd.broken, 0);
    }
  },
);
