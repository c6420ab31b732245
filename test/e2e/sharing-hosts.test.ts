/**
 * Four gateways as four hosts on one Redis, one of them with a calendar that is 30 s ahead: limits and money
 * are those of all together, whatever ends or is cut off. `npm run test:sharing` hammers for three minutes,
 * up to 100,000 a minute, and waits for quarantines to end.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { decimalOf, picoUnitsOf } from '#src/core/money.js';
import { asPicoUnits } from '#src/core/units.js';
import type { SharingStatus } from '#src/telemetry/status-document.js';
import { QUARANTINE_MS } from '#src/sharing/valkey-lua.js';
import type { Customer } from '../support/admin-client.js';
import { CALL_COST } from '../support/crash-load.js';
import { mostSurelyWithin } from '../support/call-span.js';
import { Crowd } from '../support/crowd.js';
import { checkError } from '../support/error-answer.js';
import { eventually } from '../support/gateway.js';
import { startHosts, type Host, type Hosts } from '../support/hosts.js';
import { LIMITED, LIMITED_PLANS } from '../support/limited-plans.js';
import { NO_REDIS } from '../support/redis-server.js';

const FULL = process.env.TOLLGATE_SHARING_FULL !== undefined;
const HOSTS = 4;
const AHEAD_MS = 30_000;
/** What the poor account can pay for. The last calls are refused while they might cost more than is left. */
const CALLS_PAID = 600n;
/** What one host changes all know within it; a second where the machine does nothing else. */
const KNOWN_MS = FULL ? 1_000 : 15_000;
const MINUTE_MS = 60_000;
const MINUTES = FULL ? 3 : 1;
const HAMMER_MS = FULL ? MINUTES * MINUTE_MS + 5_000 : 0;
const CUT_MS = FULL ? 10_000 : 3_000;
/** As many as a limit of 100,000 wants, and a busy machine needs. */
const WIDE_CONNECTIONS = 12;
/** For as long as a host is cut off: some fifty calls a second at each host, without end. */
const SPENDER_PACE_MS = 20;

const FULL_SIZE = { plan: 'sixthousand', perMinute: 6_000, perDay: 1_000_000, limit: 6_000, share: 0.95 };
const USED_UP = [...LIMITED, ...(FULL ? [FULL_SIZE] : [])];
const WIDE = { plan: 'wide', perMinute: 100_000, share: 0.95 };

const SETTINGS = {
  flush_interval_ms: 200,
  plans: [
    ...LIMITED_PLANS,
    ...[FULL_SIZE, WIDE].map(({ plan: id, perMinute }) => ({
      id,
      requests_per_minute: perMinute,
      calls_per_day: 1_000_000,
    })),
  ],
};

/** What became of calls while something was not as it should be; printed at the end. */
const table: string[] = [];

/** All hosts know the key. */
async function known({ hosts }: Hosts, { key }: Customer): Promise<void> {
  await eventually('the key at all hosts', async () => {
    const path = '/v1/models';
    const answers = await Promise.all(
      hosts.map(({ gateway }) => gateway.request(key, { method: 'GET', path })),
    );
    return answers.every(({ status }) => status === 200) ? true : undefined;
  });
}

async function sharingOf({ gateway }: Host): Promise<SharingStatus> {
  const status = await gateway.admin.send('GET', '/admin/v1/status');
  return (status.json() as { readonly sharing: SharingStatus }).sharing;
}

async function limits(t: Test, world: Hosts): Promise<void> {
  const [{ gateway }] = world.hosts as [Host];
  const limited = [];
  for (const limit of USED_UP)
    limited.push({ ...limit, customer: await gateway.admin.customer({ plan: limit.plan }) });
  // One call's worth less a pico-unit is left when no more calls can be made.
  const credit = decimalOf(asPicoUnits(CALL_COST * (CALLS_PAID + 1n) - 1n));
  const poor = await gateway.admin.customer({ credit });
  await known(world, poor);

  const crowds = limited.map(({ customer }) => new Crowd(world.hosts, customer));
  const spenders = new Crowd(world.hosts, poor);
  const tasks = limited.map(({ plan }, at) => crowds[at]!.useUp(plan === 'day' ? 0 : HAMMER_MS));
  await Promise.all([...tasks, spenders.useUp(0)]);
  limited.forEach(({ plan, limit, share }, at) => {
    const crowd = crowds[at]!;
    const most = plan === 'day' ? crowd.answered : mostSurelyWithin(crowd.calls, MINUTE_MS);
    t.comment(`${plan}: ${crowd.answered} admitted of ${crowd.asked}, ${most} in a minute at the most`);
    t.ok(most <= limit, `${plan}: ${most} of ${limit}`);
    // A busy machine may not ask for so much.
    const due = Math.min(limit * (plan === 'day' ? 1 : MINUTES), crowd.asked) * share;
    t.ok(crowd.answered >= due, `${plan}: ${crowd.answered}, at least ${share} of it`);
    t.equal(crowd.broken, 0);
    t.same(crowd.refusals, [429], `${plan}: refused as it should be`);
  });
  t.same(spenders.refusals, [403]);
  const cost = BigInt(spenders.answered) * CALL_COST;
  const account = await eventually('all is told, and what lies idle given back', async () => {
    const { admin } = world.hosts[1]!.gateway;
    const view = await admin.account(poor.accountId);
    return picoUnitsOf(view.spent) === cost && view.leased?.balance === '0.00' ? view : undefined;
  });
  t.equal(picoUnitsOf(account.balance)! + cost, picoUnitsOf(credit), 'to the last pico-unit');
  const left = picoUnitsOf(account.balance)! / CALL_COST;
  t.comment(`money: ${spenders.answered} of ${CALLS_PAID} calls, ${left} left`);
  t.ok(left <= CALLS_PAID / 20n, 'at least 0.95 of it');
}

/** Resets are told by the coordinator's calendar, also where the host's own is ahead. */
async function calendar(t: Test, world: Hosts): Promise<void> {
  const customer = await world.hosts[0]!.gateway.admin.customer({ plan: 'five' });
  await known(world, customer);
  const ahead = world.hosts.at(-1)!.gateway;
  const refused = await eventually('a refusal by the host that is ahead', async () => {
    const answer = await ahead.chat(customer.key, 'Hello');
    return answer.status === 429 ? answer : undefined;
  });
  const { 'x-ratelimit-reset': reset, 'retry-after': retryAfter } = refused.headers;
  const aheadSeconds = Number(reset) - Number(retryAfter) - Date.now() / 1_000;
  t.ok(Math.abs(aheadSeconds) < 5, `${aheadSeconds.toFixed(1)} s ahead`);
}

async function disabledKey(t: Test, world: Hosts): Promise<void> {
  const customer = await world.hosts[0]!.gateway.admin.customer();
  await known(world, customer);
  const beganMs = performance.now();
  await world.hosts[2]!.gateway.admin.disableKey(customer.keyId);
  const tookMs = await Promise.all(
    world.hosts.map(({ gateway }) =>
      eventually('a refusal', async () => {
        const { status } = await gateway.chat(customer.key, 'Hello');
        return status === 403 ? performance.now() - beganMs : undefined;
      }),
    ),
  );
  t.comment(`refused everywhere after ${Math.max(...tookMs).toFixed(0)} ms`);
  t.ok(Math.max(...tookMs) < KNOWN_MS);
}

/** More than a busy machine can ask for in a minute is not refused; what is asked for beyond the limit is. */
async function wideLimit(t: Test, world: Hosts): Promise<void> {
  const customer = await world.hosts[0]!.gateway.admin.customer({ plan: WIDE.plan });
  await known(world, customer);
  const crowd = new Crowd(world.hosts, customer, WIDE_CONNECTIONS);
  await sleep(HAMMER_MS);
  await crowd.stop();
  const most = mostSurelyWithin(crowd.calls, MINUTE_MS);
  t.comment(`wide: ${crowd.answered} admitted of ${crowd.asked}, ${most} in a minute at the most`);
  t.ok(most <= WIDE.perMinute, `${most} of ${WIDE.perMinute} a minute`);
  const due = Math.min(crowd.asked, WIDE.perMinute * MINUTES) * WIDE.share;
  t.ok(crowd.answered >= due, `${crowd.answered}, at least ${WIDE.share} of what was asked for and allowed`);
  t.equal(crowd.broken, 0);
}

/** `cut` breaks connections at once; `held` is a network that carries nothing, and at last what it kept. */
async function cutHost(t: Test, world: Hosts, state: 'cut' | 'held'): Promise<void> {
  const [first, cut] = world.hosts as [Host, Host];
  const customer = await first.gateway.admin.customer({ plan: 'sixhundred' });
  const rich = await first.gateway.admin.customer();
  await known(world, rich);
  const crowd = new Crowd(world.hosts, customer);
  const spenders = new Crowd(world.hosts, rich, 1, SPENDER_PACE_MS);
  await sleep(300);
  cut.wire.set(state);
  const cutMs = performance.now();
  await sleep(CUT_MS);
  const refused = await eventually('the host that is cut off has used up what it had', async () => {
    const answer = await cut.gateway.chat(customer.key, 'Hello');
    return answer.status === 200 ? undefined : answer;
  });
  checkError(t, refused, 'overloaded', 'it lends itself nothing');
  const change = await cut.gateway.admin.send('POST', `/admin/v1/keys/${customer.keyId}/disable`, {});
  t.equal(change.status, 503, change.body);
  t.match(await sharingOf(cut), { state: 'lost', registry: { state: 'lost' } });
  const others = world.hosts.filter((host) => host !== cut);
  const other = await others[0]!.gateway.admin.customer();
  t.equal((await others[0]!.gateway.chat(other.key, 'Hello')).status, 200, 'the others go on');
  const tookMs = performance.now() - cutMs;
  const during = `${state} for ${(tookMs / 1_000).toFixed(1)} s`;
  table.push(...crowd.lines(`${during}, 600 a minute`), ...spenders.lines(`${during}, a million a minute`));
  cut.wire.set('open');
  await eventually('a call at the host that was cut off, of an account that is new to it', async () => {
    const { status } = await cut.gateway.chat(other.key, 'Hello');
    return status === 200 ? true : undefined;
  });
  t.match(await sharingOf(cut), { with: 'hosts', state: 'connected', reason: null, lost_seconds: 0 });
  t.comment(`served again ${(performance.now() - cutMs - tookMs).toFixed(0)} ms after the cut`);
  await Promise.all([crowd.stop(), spenders.stop()]);
  const most = mostSurelyWithin(crowd.calls, MINUTE_MS);
  t.ok(most <= 600, `${most} of 600 a minute`);
  t.equal(crowd.broken + spenders.broken, 0);
  const spent = BigInt(spenders.answered) * CALL_COST;
  await eventually('every call is charged once', async () => {
    const account = await first.gateway.admin.account(rich.accountId);
    return picoUnitsOf(account.spent) === spent ? true : undefined;
  });
}

/** A host of one process has no limits of its own, so another process can take its place. */
async function replacedGateway(t: Test, { hosts }: Hosts): Promise<void> {
  const { gateway } = hosts[0]!;
  const { key } = await gateway.admin.customer();
  const before = gateway.pid();
  const reload = await gateway.admin.send('POST', '/admin/v1/reload', { restart: true });
  t.equal(reload.status, 200, reload.body);
  let calls = 0;
  await eventually('another process has the admin interface', async () => {
    const { status, body } = await gateway.chat(key, 'Hello');
    calls += 1;
    if (status !== 200) t.fail(`call ${calls}: ${status} ${body}`);
    return gateway.pid() === before ? undefined : true;
  });
  t.comment(`${calls} calls meanwhile`);
}

/** What it held is free when it has come back; nothing is charged twice. */
async function killedHost(t: Test, world: Hosts): Promise<Hosts> {
  const [first, , killed] = world.hosts as [Host, Host, Host];
  const customer = await first.gateway.admin.customer({ plan: 'sixhundred', credit: '1.00' });
  await known(world, customer);
  const crowd = new Crowd(world.hosts, customer);
  await eventually('calls at all hosts', () =>
    crowd.callers.every(({ answeredMs }) => answeredMs.length > 3) ? true : undefined,
  );
  await killed.kill();
  const back = await killed.restart();
  await crowd.stop();
  table.push(...crowd.lines('host 3 killed and started'));
  const hosts = world.hosts.map((host) => (host === killed ? back : host));
  const after = new Crowd(hosts, customer);
  await after.useUp(0);
  const answered = crowd.answered + after.answered;
  const most = mostSurelyWithin([...crowd.calls, ...after.calls], MINUTE_MS);
  t.ok(most <= 600, `${most} of 600 a minute`);
  const account = await eventually('nothing is held', async () => {
    const view = await first.gateway.admin.account(customer.accountId);
    return view.held === '0.00' && view.leased?.balance === '0.00' ? view : undefined;
  });
  const spent = picoUnitsOf(account.spent)!;
  t.equal(picoUnitsOf(account.balance)! + spent, picoUnitsOf('1.00'), 'the law');
  t.ok(
    spent <= BigInt(answered + crowd.broken) * CALL_COST,
    `${spent / CALL_COST} charged of ${answered} answered and ${crowd.broken} cut`,
  );
  t.equal(spent % CALL_COST, 0n);
  return { ...world, hosts };
}

/** One that never comes back is awaited until an operator says so. */
async function lostHost(t: Test, { hosts }: Hosts): Promise<void> {
  await sleep(QUARANTINE_MS);
  const { state, reason } = await sharingOf(hosts[0]!);
  t.equal(state, 'quarantine', 'the host that is gone is awaited');
  const [, host] = /([0-9a-f-]{36}):0/.exec(reason ?? '') ?? [];
  const answer = await hosts[0]!.gateway.admin.send('DELETE', `/admin/v1/hosts/${host}`);
  t.equal(answer.status, 200, `${reason}: ${answer.body}`);
}

async function killedServer(t: Test, world: Hosts): Promise<void> {
  const [first, second] = world.hosts as [Host, Host];
  const customer = await first.gateway.admin.customer({ plan: 'five' });
  const fresh = await first.gateway.admin.customer();
  await known(world, fresh);
  const crowd = new Crowd(world.hosts.slice(0, 3), customer);
  await sleep(200);
  if (FULL) await world.hosts[3]!.kill();
  await world.redis.kill();
  await sleep(300);
  await world.redis.restart();
  // It knows nothing any more: the newest copy of accounts and keys is put there again.
  await eventually(
    'a change at another host',
    async () => {
      await second.gateway.admin.credit(customer.accountId, '1.00');
      return true;
    },
    2 * MINUTE_MS,
  );
  const answer = await second.gateway.chat(fresh.key, 'Hello');
  checkError(t, answer, 'overloaded', 'nothing is lent until what was lent before has expired');
  t.match(await sharingOf(second), { state: 'quarantine', registry: { state: 'following' } });
  if (FULL) {
    await lostHost(t, world);
    await eventually(
      'calls after the quarantine',
      async () => ((await second.gateway.chat(fresh.key, 'Hello')).status === 200 ? true : undefined),
      3 * MINUTE_MS,
    );
  }
  await crowd.stop();
  table.push(...crowd.lines('server killed, five a minute'));
  const most = mostSurelyWithin(crowd.calls, MINUTE_MS);
  t.ok(most <= 5, `${most} of 5 a minute`);
}

void t.test('four hosts', { ...NO_REDIS, timeout: 1_500_000 }, async (t) => {
  const world = await startHosts(t, { count: HOSTS, settings: SETTINGS, lastAheadMs: AHEAD_MS });
  await t.test('limits and money', (t) => limits(t, world));
  if (FULL) await t.test('a limit of 100,000', (t) => wideLimit(t, world));
  await t.test('the calendar of a host is off', (t) => calendar(t, world));
  await t.test('a key is disabled', (t) => disabledKey(t, world));
  await t.test('a gateway is replaced', (t) => replacedGateway(t, world));
  await t.test('a host is cut off from the server', (t) => cutHost(t, world, 'cut'));
  if (FULL) await t.test('nothing comes through to a host', (t) => cutHost(t, world, 'held'));
  let hosts = world;
  await t.test('a host is killed', async (t) => {
    hosts = await killedHost(t, world);
  });
  await t.test('the server is killed and comes back empty', (t) => killedServer(t, hosts));
  for (const line of table) t.comment(line);
});
