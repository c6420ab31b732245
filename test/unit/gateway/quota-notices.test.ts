/** Which thresholds are told, once, by one host, and what the log and the webhook say. */
import t, { type Test } from 'tap';
import type { Settings } from '#src/config/schema.js';
import { picoUnitsOf } from '#src/core/money.js';
import type { QuotaName } from '#src/core/quotas.js';
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { ChangedScopes } from '#src/gateway/changed-scopes.js';
import {
  noticesOf,
  QuotaNotices,
  type QuotaNoticesOptions,
  type ScopeUse,
} from '#src/gateway/quota-notices.js';
import type { QuotaUse } from '#src/registry/quota-use.js';
import { Store } from '#src/store/store.js';
import type { Log, LogFields } from '#src/telemetry/log.js';
import { StoppedClock } from '../store/support.js';

const MIDNIGHT = asWallMs(Date.UTC(2025, 0, 31, 16));
const NEXT_MIDNIGHT = asWallMs(MIDNIGHT + 86_400_000);
const NOTIFY: NonNullable<Settings['notify']> = { at: [100, 80], timeout_ms: 1_000 };
const HOOK = { ...NOTIFY, url: 'http://127.0.0.1:9/', secret: 'whsec_' };

const use = (
  used: bigint,
  limit = 100n,
  quota: QuotaName = 'calls_per_day',
  resetsMs = MIDNIGHT,
): QuotaUse => ({
  quota,
  used,
  held: 0n,
  limit,
  resetsMs,
});
const account = (quotas: readonly QuotaUse[], balance?: ScopeUse['balance']): ScopeUse => ({
  kind: 'account',
  id: 'acct_1',
  name: 'acme',
  quotas,
  ...(balance && { balance }),
});
const percentOf = (quota: QuotaUse): number | undefined => noticesOf(account([quota]), NOTIFY)[0]?.percent;

class FieldLog implements Log {
  readonly lines: (LogFields & { readonly message: string })[] = [];
  error = (message: string, fields: LogFields = {}): void => void this.lines.push({ message, ...fields });
  warn = this.error;
  info = this.error;
  record = this.error;
}

interface World {
  readonly store: Store;
  notify: Settings['notify'];
  scopes: readonly ScopeUse[];
  reads: number;
  readonly clock: StoppedClock;
  readonly log: FieldLog;
  /** An account and a key have changed, and a flush was made. */
  look(): Promise<void>;
  /** A flush was made, and nothing has changed. */
  rest(): Promise<void>;
}

function open(t: Test, more: Partial<QuotaNoticesOptions> = {}): World {
  const store = new Store(t.testdir({}));
  t.teardown(() => store.close());
  const changed: ChangedScopes = new ChangedScopes(() => world.notify !== undefined);
  const world: World = {
    store,
    notify: NOTIFY,
    scopes: [],
    reads: 0,
    clock: new StoppedClock(),
    log: new FieldLog(),
    look: () => {
      changed.add([asAccountIndex(0)], [asKeyIndex(0)]);
      return notices.check();
    },
    rest: () => notices.check(),
  };
  const notices = new QuotaNotices({
    settings: () => world.notify,
    changed,
    read: () => {
      world.reads += 1;
      return Promise.resolve([...world.scopes]);
    },
    rows: store.notices,
    claim: undefined,
    clock: world.clock,
    log: world.log,
    ...more,
  });
  return world;
}

void t.test('which threshold a quota has passed', (t) => {
  t.equal(percentOf(use(79n)), undefined);
  t.equal(percentOf(use(80n)), 80);
  t.equal(percentOf(use(99n)), 80);
  t.equal(percentOf(use(100n)), 100);
  t.equal(percentOf(use(250n)), 100, 'a limit that was lowered');
  t.equal(percentOf(use(7n, 9n)), undefined, '77.8 %');
  t.equal(percentOf(use(8n, 9n)), 80, 'exact: no rounding');
  t.equal(percentOf(use(100n, 100n, 'requests_per_minute')), undefined, 'a minute is over before one looks');
  t.equal(percentOf(use(100n, 100n, 'calls_in_flight')), undefined);
  t.equal(percentOf(use(10n ** 17n, 10n ** 17n, 'spend_per_month')), 100);
  t.end();
});

void t.test('a balance is low below its bound', (t) => {
  const settings = { ...NOTIFY, low_balance: '5.00' };
  const of = (left: string, notify = settings) =>
    noticesOf(account([], { left: picoUnitsOf(left)!, credited: asPicoUnits(9n) }), notify);
  t.same(of('5.00'), []);
  t.match(of('4.999999'), [{ quota: 'balance', period: '9', percent: 0 }]);
  t.same(noticesOf(account([], { left: asPicoUnits(0n), credited: asPicoUnits(0n) }), NOTIFY), []);
  t.end();
});

void t.test('a line for each threshold, once', async (t) => {
  const world = open(t);
  world.scopes = [account([use(85n)])];
  await world.look();
  await world.look();
  t.same(world.log.lines, [
    {
      message: '80 % of a quota is used',
      ...{ scope: 'account', id: 'acct_1', name: 'acme', quota: 'calls_per_day' },
      ...{ used: '85', limit: '100', resets: '2025-01-31T16:00:00.000Z' },
    },
  ]);
  world.scopes = [account([use(100n)])];
  await world.look();
  await world.look();
  t.match(world.log.lines.slice(1), [{ message: 'a quota is used up' }]);
  world.scopes = [account([use(90n, 100n, 'calls_per_day', NEXT_MIDNIGHT)])];
  await world.look();
  t.match(world.log.lines.slice(2), [{ message: '80 % of a quota is used', used: '90' }], 'the next day');
  t.same(world.store.notices.waiting(), [], 'no webhook without a receiver');
});

void t.test('what the webhook says', async (t) => {
  const world = open(t);
  world.notify = { ...HOOK, low_balance: '5.00' };
  const key: ScopeUse = {
    kind: 'key',
    id: 'key_1',
    name: 'prod',
    account: { id: 'acct_1', name: 'acme' },
    quotas: [use(picoUnitsOf('8.50')!, picoUnitsOf('10.00'), 'spend_per_month')],
  };
  world.scopes = [key, account([use(100n)], { left: picoUnitsOf('1.25')!, credited: picoUnitsOf('20.00')! })];
  await world.look();
  const waiting = world.store.notices.waiting();
  const bodies = waiting.map(({ body }) => JSON.parse(body) as { data: { quota?: string } });
  bodies.sort((left, right) => String(left.data.quota).localeCompare(String(right.data.quota)));
  const timestamp = '2025-01-31T12:00:00.000Z';
  const resets = '2025-01-31T16:00:00.000Z';
  t.same(bodies, [
    {
      type: 'quota.threshold_reached',
      timestamp,
      data: {
        ...{ scope: 'account', id: 'acct_1', name: 'acme', quota: 'calls_per_day', threshold_percent: 100 },
        ...{ used: 100, limit: 100, resets },
      },
    },
    {
      type: 'quota.threshold_reached',
      timestamp,
      data: {
        ...{ scope: 'key', id: 'key_1', name: 'prod', account: { id: 'acct_1', name: 'acme' } },
        ...{ quota: 'spend_per_month', threshold_percent: 80, used: '8.50', limit: '10.00', resets },
      },
    },
    {
      type: 'balance.low',
      timestamp,
      data: { scope: 'account', id: 'acct_1', name: 'acme', balance: '1.25', low_balance: '5.00' },
    },
  ]);
  for (const { id } of waiting) t.match(id, /^msg_[\w-]{27}$/, 'no full stop: the id is signed');
  t.equal(new Set(waiting.map(({ id }) => id)).size, 3);
  const other = open(t);
  other.notify = world.notify;
  other.clock.nowMs += 5_000;
  other.scopes = world.scopes;
  await other.look();
  t.same(
    other.store.notices
      .waiting()
      .map(({ id }) => id)
      .sort(),
    waiting.map(({ id }) => id).sort(),
    'as another host names them',
  );
});

void t.test('what other hosts have not reported yet is looked at again', async (t) => {
  const world = open(t, { claim: () => Promise.resolve(true) });
  world.scopes = [account([{ ...use(45n), leased: 40n }])];
  await world.look();
  t.same(world.log.lines, [], 'granted is not used');
  await world.rest();
  world.clock.nowMs += 19_999;
  await world.rest();
  t.equal(world.reads, 1);
  world.scopes = [account([{ ...use(80n), leased: 5n }])];
  world.clock.nowMs += 1;
  await world.rest();
  t.match(world.log.lines, [{ quota: 'calls_per_day', used: '80' }]);
  world.clock.nowMs += 60_000;
  await world.rest();
  t.equal(world.reads, 2, 'and not for ever');
});

void t.test('a host that has not claimed a notice keeps silent', async (t) => {
  const claims: [string, number][] = [];
  let mine = false;
  const claim = (id: string, forMs: number): Promise<boolean> => {
    claims.push([id, forMs]);
    return Promise.resolve(mine);
  };
  const world = open(t, { claim });
  world.notify = HOOK;
  world.scopes = [account([use(85n)])];
  await world.look();
  await world.look();
  t.same(world.log.lines, []);
  t.same(world.store.notices.waiting(), []);
  t.equal(claims.length, 1, 'it asks once');
  t.equal(claims[0]![1], 5 * 3_600_000, 'to the end of the day and an hour more');
  mine = true;
  world.scopes = [account([use(100n)])];
  await world.look();
  t.equal(world.log.lines.length, 1);
  t.equal(world.store.notices.waiting().length, 1);
});

void t.test('a reload begins and ends it', async (t) => {
  const world = open(t);
  world.notify = undefined;
  world.scopes = [account([use(85n)])];
  await world.look();
  t.equal(world.reads, 0);
  world.notify = NOTIFY;
  await world.look();
  t.equal(world.log.lines.length, 1);
  world.notify = { ...NOTIFY, at: [82, 90] };
  await world.look();
  t.equal(world.log.lines.length, 2, 'a threshold that is new and higher');
});

void t.test('a read that fails is told, and the next look goes on', async (t) => {
  let broken = true;
  const scopes = [account([use(85n)])];
  const world = open(t, {
    read: () => (broken ? Promise.reject(new Error('the store is gone')) : Promise.resolve(scopes)),
  });
  const BEGUN = { message: /^quotas were not looked at/, error: /the store is gone/ };
  const OVER = { message: 'quotas are looked at again' };
  for (let flushes = 0; flushes < 5; flushes++) await world.look();
  t.match(world.log.lines, [BEGUN]);
  t.equal(world.log.lines.length, 1, 'once, however many flushes fail');
  broken = false;
  for (let flushes = 0; flushes < 3; flushes++) await world.look();
  t.match(world.log.lines.slice(1), [{ message: '80 % of a quota is used' }, OVER]);
  t.equal(world.log.lines.length, 3);
  broken = true;
  for (let flushes = 0; flushes < 3; flushes++) await world.look();
  t.match(world.log.lines.slice(3), [BEGUN]);
  t.equal(world.log.lines.length, 4, 'another episode');
});

void t.test('what could not be looked at is looked at again, though nothing calls any more', async (t) => {
  let broken = true;
  const scopes: ScopeUse[] = [account([use(100n)])];
  const world = open(t, {
    read: () => (broken ? Promise.reject(new Error('the supervisor is late')) : Promise.resolve(scopes)),
  });
  await world.look();
  // A quota that is used up: its calls are refused, so no flush names the account again.
  for (let tries = 0; tries < 3; tries++) {
    world.clock.nowMs += 20_000;
    await world.rest();
  }
  broken = false;
  await world.rest();
  world.clock.nowMs += 20_000;
  await world.rest();
  t.match(
    world.log.lines.map(({ message }) => message),
    [/^quotas were not looked at/, 'a quota is used up', 'quotas are looked at again'],
  );
});

void t.test('what can never be looked at is left alone after a day', async (t) => {
  let reads = 0;
  const world = open(t, {
    read: () => {
      reads += 1;
      return Promise.reject(new Error('a record is damaged'));
    },
  });
  await world.look();
  const minute = 60_000;
  for (let minutes = 0; minutes < 2 * 24 * 60; minutes++) {
    world.clock.nowMs += minute;
    await world.rest();
  }
  t.equal(reads, 1 + 24 * 60, 'once, and in each minute of a day');
});
