/** Usage of all accounts: read page by page, the hours that are asked for alone. */
import t, { type Test } from 'tap';
import { asAccountIndex, asPicoUnits } from '#src/core/units.js';
import type { Registry } from '#src/registry/registry.js';
import type { UsageRequest } from '#src/registry/usage-reader.js';
import { NO_USAGE, type UsageRecord } from '#src/registry/usage-report.js';
import { Store } from '#src/store/store.js';
import { openTables } from '#src/store/tables.js';
import { offlineRegistry, StoppedClock } from '../store/support.js';

const HOUR = 482_000;
/** A key that was deleted. */
const GONE = 'key_0123456789abcdef';
const NONE = { account: undefined, key: undefined, model: undefined };
const ALL = { ...NONE, fromHour: 0, toHour: HOUR * 2 };

/** Three accounts, of which the second has no calls. Each of `hours` has a row of either of the others. */
function openBooks(t: Test, hours: Iterable<number>): { registry: Registry; key: string } {
  const store = new Store(t.testdir());
  t.teardown(() => store.close());
  const registry = offlineRegistry(store, new StoppedClock());
  for (const name of ['a', 'b', 'c'])
    registry.accounts.create({ name, planId: 'free', credit: asPicoUnits(9n) });
  const key = registry.keys.create({ account: 'c', name: 'laptop' }).record.id;
  const usages: UsageRecord[] = [];
  for (const hour of hours) {
    const usage = { ...NO_USAGE, hour, modelId: 'small', cost: asPicoUnits(1n) };
    usages.push({ ...usage, account: asAccountIndex(0), keyId: GONE, calls: 1 });
    usages.push({ ...usage, account: asAccountIndex(2), keyId: key, calls: 10 });
  }
  store.commit(() => store.putAccounting({ spendings: new Map(), usages }));
  return { registry, key };
}

const callsOf = async (registry: Registry, request: UsageRequest): Promise<number[]> =>
  (await registry.usage.report(request)).map(({ calls }) => calls);

void t.test('the usage of all accounts is reported at any size of the store', async (t) => {
  const hours = 50_001;
  const { registry } = openBooks(
    t,
    Array.from({ length: hours }, (_, at) => HOUR - hours + 1 + at),
  );
  t.same(await callsOf(registry, { ...ALL, by: 'model', fromHour: HOUR }), [11], 'of one hour');
  let turns = 0;
  const timer = setInterval(() => turns++, 1);
  t.same(await callsOf(registry, { ...ALL, by: 'model' }), [hours * 11], 'of all hours');
  clearInterval(timer);
  t.ok(turns > 10, `${turns} turns of other work`);
});

void t.test('what cannot be read has no name, and hides no other', async (t) => {
  const path = t.testdir();
  const store = new Store(path);
  const made = offlineRegistry(store, new StoppedClock());
  made.accounts.create({ name: 'a', planId: 'free', credit: asPicoUnits(9n) });
  const lost = made.accounts.create({ name: 'b', planId: 'free', credit: asPicoUnits(9n) }).record.id;
  const keyOf = (account: string, name: string): string => made.keys.create({ account, name }).record.id;
  const [damaged, whole, orphan] = [keyOf('a', 'laptop'), keyOf('a', 'server'), keyOf('b', 'phone')];
  t.same(made.usage.namesOf(damaged), { account: 'a', key: 'laptop' });
  await store.close();
  const tables = openTables(path);
  tables.environment.write(() =>
    tables.recorder.record(() => {
      tables.keys.putSync(damaged, { format: 1 });
      tables.accounts.putSync(lost, { format: 1 });
    }),
  );
  await tables.environment.close();
  const again = new Store(path);
  t.teardown(() => again.close());
  const registry = offlineRegistry(again, new StoppedClock());
  t.throws(() => again.keys.find(damaged), { code: 'damaged' });
  t.same(registry.usage.namesOf(damaged), { account: undefined, key: undefined });
  t.same(registry.usage.namesOf(whole), { account: 'a', key: 'server' });
  t.same(registry.usage.namesOf(orphan), { account: undefined, key: 'phone' });
});

void t.test('usage by account, key and hours', async (t) => {
  const { registry, key } = openBooks(t, [HOUR - 25, HOUR - 1, HOUR]);
  const by = 'account';
  t.same((await callsOf(registry, { ...ALL, by })).sort(), [3, 30]);
  t.same((await callsOf(registry, { ...ALL, by, fromHour: HOUR - 1, toHour: HOUR - 1 })).sort(), [1, 10]);
  t.same(await callsOf(registry, { ...ALL, by, account: 'a', toHour: HOUR - 1 }), [2]);
  t.same(await callsOf(registry, { ...ALL, by, account: 'b' }), []);
  for (const named of [key, 'laptop'])
    t.same(await callsOf(registry, { ...ALL, by, key: named }), [30], named);
  t.same(await callsOf(registry, { ...ALL, by, key: GONE }), [3], 'a deleted key');
  t.same(await callsOf(registry, { ...ALL, by, account: 'a', key }), [], 'a key of another account');
  const laptop = { ...ALL, by, key: 'laptop' } as const;
  t.same(await callsOf(registry, { ...laptop, account: 'c' }), [30]);
  await t.rejects(registry.usage.report({ ...laptop, account: 'a' }), { code: 'not_found' });
  registry.keys.create({ account: 'a', name: 'laptop' });
  t.same(await callsOf(registry, { ...laptop, account: 'c' }), [30], 'a name is unique in its account');
  t.same(await callsOf(registry, { ...laptop, account: 'a' }), []);
  await t.rejects(registry.usage.report(laptop), { message: /several keys are named laptop/ });
  await t.rejects(registry.usage.report({ ...ALL, by, account: 'd' }), { code: 'not_found' });
  await t.rejects(registry.usage.report({ ...ALL, by, key: 'other' }), { code: 'not_found' });
  const ofAnother = registry.usage.report({ ...ALL, by, key: 'acct_0123456789abcdef' });
  await t.rejects(ofAnother, { code: 'not_found' }, 'an id of another kind');
});

void t.test('pages of rows go on where the one before ended', (t) => {
  const { registry } = openBooks(t, [HOUR - 1, HOUR]);
  const rows: [string, number][] = [];
  let from: { slot: number; hour: number } | undefined = { slot: 0, hour: 0 };
  let pages = 0;
  while (from !== undefined) {
    const page = registry.usage.rows({ fromHour: 0, toHour: HOUR }, from, 1);
    for (const { account, hour } of page.rows) rows.push([String(account), hour]);
    from = page.next;
    pages++;
  }
  t.equal(pages, 4);
  t.same(rows, [
    ['0', HOUR - 1],
    ['0', HOUR],
    ['2', HOUR - 1],
    ['2', HOUR],
  ]);
  t.end();
});

void t.test('an hour of more rows than a page is counted once', async (t) => {
  const store = new Store(t.testdir());
  t.teardown(() => store.close());
  const registry = offlineRegistry(store, new StoppedClock());
  registry.accounts.create({ name: 'a', planId: 'free', credit: asPicoUnits(9n) });
  const row = { ...NO_USAGE, account: asAccountIndex(0), hour: HOUR, calls: 1, cost: asPicoUnits(1n) };
  const usages = Array.from({ length: 1_234 }, (_, at) => ({
    ...row,
    keyId: `key_${String(at % 617).padStart(16, '0')}`,
    modelId: at < 617 ? 'small' : 'large',
  }));
  store.commit(() => store.putAccounting({ spendings: new Map(), usages }));
  t.same(await callsOf(registry, { ...ALL, by: 'account' }), [1_234]);
  t.same(await callsOf(registry, { ...ALL, by: 'model' }), [617, 617]);
});

void t.test('long reports take turns, and few may wait; short ones do not', async (t) => {
  const hours = 6_000;
  const { registry } = openBooks(
    t,
    Array.from({ length: hours }, (_, at) => HOUR - hours + 1 + at),
  );
  const long = Array.from({ length: 7 }, () => callsOf(registry, { ...ALL, by: 'model' }));
  const settled = Promise.allSettled(long);
  const short = Array.from({ length: 20 }, () => callsOf(registry, { ...ALL, by: 'model', fromHour: HOUR }));
  for (const calls of await Promise.all(short)) t.same(calls, [11]);
  const replies = (await settled).map((reply) =>
    reply.status === 'fulfilled' ? reply.value : (reply.reason as { code: string }).code,
  );
  t.same(replies, [...Array.from({ length: 5 }, () => [hours * 11]), 'overloaded', 'overloaded']);
  t.same(await callsOf(registry, { ...ALL, by: 'model' }), [hours * 11], 'later there is room');
});

void t.test(
  'a report ends soon if its asker has left, and so does one that waits for its turn',
  async (t) => {
    const hours = 25_000;
    const { registry } = openBooks(
      t,
      Array.from({ length: hours }, (_, at) => HOUR - hours + 1 + at),
    );
    const ask = (left?: AbortSignal): Promise<unknown> =>
      registry.usage.report({ ...ALL, by: 'model' }, left);
    const ends: string[] = [];
    const askers = Array.from({ length: 5 }, () => new AbortController());
    const asked = askers.map(({ signal }, at) =>
      ask(signal).then(
        () => ends.push(`${at} made`),
        () => ends.push(`${at} left`),
      ),
    );
    // All have read their first pages by now: the first goes on, the others wait.
    for (let turns = 0; turns < 30; turns++) await new Promise((resolve) => setImmediate(resolve));
    t.same(ends, []);
    await t.rejects(ask(), { code: 'overloaded' });
    for (const at of [2, 3, 4]) askers[at]!.abort();
    for (let turns = 0; turns < 3; turns++) await new Promise((resolve) => setImmediate(resolve));
    t.same(ends.sort(), ['2 left', '3 left', '4 left'], 'those that wait');
    const later = ask();
    askers[0]!.abort();
    for (let turns = 0; turns < 3; turns++) await new Promise((resolve) => setImmediate(resolve));
    t.same(ends.splice(3), ['0 left'], 'the one that runs');
    await Promise.all(asked);
    t.same(ends.splice(3), ['1 made'], 'the next one has its turn');
    t.match(await later, [{ calls: hours * 11 }]);
    await t.rejects(ask(AbortSignal.abort()), { code: 'internal_error' });
  },
);
