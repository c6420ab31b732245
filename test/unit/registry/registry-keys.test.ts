/** Keys: shown once, known by their digest alone, in force on the shared table the moment a call returns. */
import t from 'tap';
import { NO_QUOTAS } from '#src/core/quotas.js';
import { asPicoUnits } from '#src/core/units.js';
import { digestOf, generateKey } from '#src/registry/key-digest.js';
import { StoreOnly } from '#src/registry/registry-context.js';
import { Registry } from '#src/registry/registry.js';
import { recover } from '#src/store/recovery.js';
import { Store } from '#src/store/store.js';
import {
  ACCOUNTS_MAX,
  CATALOG,
  KEYS_MAX,
  ListLog,
  StoppedClock,
  offlineRegistry,
  openHouse,
  type House,
  GROUPS_MAX,
} from '../store/support.js';

function peopledHouse(path: string): House {
  const house = openHouse(path);
  for (const name of ['acme', 'other']) {
    house.registry.accounts.create({ name, planId: 'free', credit: asPicoUnits(0n) });
  }
  return house;
}

/** Its store alone, which has room for any number. */
function withoutGateway(
  path: string,
  accounts: readonly string[],
): Pick<House, 'registry' | 'store' | 'clock'> {
  const store = new Store(path);
  const clock = new StoppedClock();
  const registry = new Registry({
    store,
    catalog: CATALOG,
    clock,
    accountsMax: 1_000,
    groupsMax: 1_000,
    keysMax: 1_000,
    live: new StoreOnly(store),
  });
  for (const name of accounts) registry.accounts.create({ name, planId: 'free', credit: asPicoUnits(0n) });
  return { registry, store, clock };
}

/** How the data plane sees a key. */
function standingOf({ keyTable }: House, key: string): readonly [number, string] | undefined {
  const found = keyTable.find(digestOf(key));
  return found === undefined ? undefined : [keyTable.accountOf(found), keyTable.stateOf(found)];
}

void t.test('a key is in force from its making to its deletion', async (t) => {
  const house = peopledHouse(t.testdir());
  const { registry, store, clock } = house;
  const { record, key } = registry.keys.create({ account: 'other', name: 'laptop' });
  t.match(record, { name: 'laptop', accountId: registry.accounts.find('other').record.id, active: true });
  t.match(record.id, /^key_.{16}$/);
  t.equal(record.createdMs, clock.nowMs);
  t.same(standingOf(house, key), [1, 'active']);
  t.same(store.keys.find(record.id), record);
  t.notOk(JSON.stringify(record).includes(key.slice(8)), 'the record does not have the key');

  t.equal(registry.keys.setActive('laptop', false).record.active, false);
  t.same(standingOf(house, key), [1, 'disabled']);
  t.equal(store.keys.find(record.id)?.active, false);
  t.equal(registry.keys.setActive(record.id, true).record.active, true);
  t.same(standingOf(house, key), [1, 'active']);
  t.equal(registry.keys.delete('laptop').id, record.id);
  t.equal(standingOf(house, key), undefined);
  t.throws(() => registry.keys.delete('laptop'), { code: 'not_found', message: /^there is no key laptop/ });
  t.throws(() => registry.keys.setActive(record.id, true), { code: 'not_found' });
  await store.close();
});

void t.test('a name is had once in an account, by the key that is not replaced', async (t) => {
  const { registry, store } = withoutGateway(t.testdir(), ['acme', 'other']);
  const create = (name: string, account = 'acme') => registry.keys.create({ account, name }).record;
  const taken = (id: string) => ({
    code: 'invalid_parameters',
    message: `name must be unique in the account, and ${id} is named ci already: rotate it, delete it, or take another name`,
  });
  const first = create('ci');
  t.throws(() => create('ci'), taken(first.id));
  for (const name of ['CI', 'c i', 'c', 'cii']) t.ok(create(name), `${name} is another`);
  t.ok(create('ci', 'other'), 'as it is in another account');
  const second = registry.keys.rotate(first.id, 60).record;
  t.throws(() => create('ci'), taken(second.id), 'the one in its place has it');
  registry.keys.setActive(second.id, false);
  t.throws(() => create('ci'), taken(second.id), 'also a disabled one');
  registry.keys.delete(second.id);
  const third = create('ci');
  t.throws(() => create('ci'), taken(third.id));
  const bulk = (...names: string[]) =>
    registry.createInBulk([
      { name: 'bulk', planId: 'free', credit: asPicoUnits(0n), keys: names.map((name) => ({ name })) },
    ]);
  t.throws(() => bulk('x', 'y', 'x'), { message: /^accounts\[0\]\.keys\[2\]: name must be unique/ });
  t.equal(bulk('x', 'y')[0]!.keys.length, 2, 'the refused one left nothing');
  await store.close();
});

void t.test('where many accounts have a key of one name', async (t) => {
  const { registry, store } = withoutGateway(t.testdir(), ['last']);
  const names = Array.from({ length: 60 }, (_, at) => `a${at}`);
  const keys = [{ name: 'laptop' }, { name: 'phone' }];
  for (const name of names) {
    registry.createInBulk([{ name, planId: 'free', credit: asPicoUnits(0n), keys }]);
    // With few that have the name, and with many.
    t.throws(() => registry.keys.create({ account: name, name: 'laptop' }), { message: /unique/ }, name);
    t.throws(() => registry.keys.create({ account: 'a0', name: 'phone' }), { message: /unique/ }, name);
  }
  const last = registry.accounts.find('last').record.index;
  t.same(store.keys.findOfAccount(last, 'laptop'), []);
  const made = registry.keys.create({ account: 'last', name: 'laptop' }).record;
  t.same(store.keys.findOfAccount(last, 'laptop'), [made]);
  await store.close();
});

void t.test('a key of older books keeps a name that no new key gets', async (t) => {
  const { registry, store } = withoutGateway(t.testdir(), ['acme']);
  const name = ' ci ';
  t.throws(() => registry.keys.create({ account: 'acme', name }), { message: /^name must not begin or end/ });
  const { record } = registry.keys.create({ account: 'acme', name: 'ci' });
  store.commit(() => store.keys.put({ ...record, name }));
  t.equal(registry.keys.setActive(name, false).record.active, false);
  registry.keys.setActive(name, true);
  const successor = registry.keys.rotate(name, 0).record;
  t.equal(successor.name, name);
  t.equal(registry.keys.delete(name).id, successor.id);
  await store.close();
});

void t.test('books with several keys of one name in an account go on', async (t) => {
  const path = t.testdir();
  const before = peopledHouse(path);
  const { record, key } = before.registry.keys.create({ account: 'acme', name: 'ci' });
  const otherKey = generateKey();
  const other = before.store.commit(() => {
    const index = before.registry.keys.takeSlots(1)[0]!;
    const put = { ...record, id: 'key_0000000000000000', index, digest: digestOf(otherKey) };
    before.store.keys.put(put);
    return put;
  });
  await before.store.close();

  const house = openHouse(path);
  const { registry, store } = house;
  recover({
    ...house,
    catalog: CATALOG,
    accountsMax: ACCOUNTS_MAX,
    keysMax: KEYS_MAX,
    groupsMax: GROUPS_MAX,
    log: new ListLog(),
  });
  t.same(
    [standingOf(house, key), standingOf(house, otherKey)],
    [
      [0, 'active'],
      [0, 'active'],
    ],
  );
  t.throws(() => registry.keys.find('ci'), { message: /^several keys are named ci/ });
  t.throws(() => registry.keys.create({ account: 'acme', name: 'ci' }), { message: /unique/ });
  const rotated = registry.keys.rotate(other.id, 0);
  t.same(standingOf(house, rotated.key), [0, 'active'], 'each can be rotated');
  registry.keys.delete(record.id);
  t.equal(registry.keys.find('ci').record.id, rotated.record.id);
  await store.close();
});

void t.test(
  'a key that was rotated often is found by its name, unless another account has the name',
  async (t) => {
    const { registry, store } = withoutGateway(t.testdir(), ['acme', 'other']);
    registry.keys.create({ account: 'acme', name: 'ci' });
    let current = '';
    for (let at = 0; at < 250; at++) current = registry.keys.rotate('ci', 0).record.id;
    t.equal(registry.keys.find('ci').record.id, current);
    // Several, because a bounded search would refuse or not by chance: ids are random.
    for (let at = 0; at < 10; at++) {
      const { id } = registry.keys.create({ account: 'other', name: 'ci' }).record;
      t.throws(() => registry.keys.setActive('ci', false), { message: /^several keys are named ci/ });
      t.throws(() => registry.keys.delete('ci'), { message: /^several keys are named ci/ });
      registry.keys.delete(id);
    }
    t.equal(registry.keys.find('ci').record.id, current);
    await store.close();
  },
);

void t.test('names of keys may repeat, and then only an id will do', async (t) => {
  const house = peopledHouse(t.testdir());
  const { registry, store } = house;
  const first = registry.keys.create({ account: 'acme', name: 'ci' });
  const second = registry.keys.create({ account: 'other', name: 'ci' });
  const several = { code: 'invalid_parameters', message: /^several keys are named ci: give the id of one$/ };
  t.throws(() => registry.keys.setActive('ci', false), several);
  t.throws(() => registry.keys.delete('ci'), several);
  registry.keys.setActive(first.record.id, false);
  t.same(standingOf(house, first.key), [0, 'disabled']);
  t.same(standingOf(house, second.key), [1, 'active']);
  registry.keys.delete(first.record.id);
  t.equal(registry.keys.delete('ci').id, second.record.id, 'now it is unique');
  await store.close();
});

void t.test('keys are listed by account and altogether, page by page', async (t) => {
  const { registry, store } = peopledHouse(t.testdir());
  for (const [account, name] of [
    ['acme', 'a'],
    ['other', 'b'],
    ['acme', 'c'],
    ['acme', 'd'],
  ] as const) {
    registry.keys.create({ account, name });
  }
  const names = (account: string | undefined, limit: number): string[] => {
    const found: string[] = [];
    let from: number | undefined = 0;
    while (from !== undefined) {
      const page: ReturnType<typeof registry.keys.list> = registry.keys.list(account, from, limit);
      found.push(...page.items.map(({ record }) => record.name));
      from = page.next;
    }
    return found;
  };
  for (let limit = 1; limit <= 5; limit++) {
    t.same(names(undefined, limit), ['a', 'b', 'c', 'd']);
    t.same(names('acme', limit), ['a', 'c', 'd']);
    t.same(names(registry.accounts.find('other').record.id, limit), ['b']);
  }
  t.throws(() => registry.keys.list('nobody', 0, 1), { code: 'not_found' });
  await store.close();
});

void t.test('what cannot be a key leaves no trace', async (t) => {
  const { registry, store } = peopledHouse(t.testdir());
  t.throws(() => registry.keys.create({ account: 'nobody', name: 'x' }), { code: 'not_found' });
  t.throws(() => registry.keys.create({ account: 'acme', name: '' }), {
    code: 'invalid_parameters',
    message: /^name must have/,
  });
  const first = registry.keys.create({ account: 'acme', name: 'x' });
  t.equal(first.record.index, 0, 'no slot was lost');
  const itself = { code: 'invalid_parameters', message: /^(?!.*sk-).*API key/ };
  t.throws(() => registry.keys.create({ account: 'acme', name: first.key }), itself, 'a key is no name');
  t.throws(() => registry.keys.setActive(first.key, false), itself, 'nor an id');
  t.throws(() => registry.accounts.find(first.key), itself);
  await store.close();
});

void t.test(
  'as many keys as the table has slots; a deleted one’s slot is had again after its rest',
  async (t) => {
    const house = peopledHouse(t.testdir());
    const { registry, store, clock } = house;
    let names = 0;
    const make = () => registry.keys.create({ account: 'acme', name: `k${names++}` });
    const made = Array.from({ length: KEYS_MAX }, make);
    const full = { code: 'invalid_parameters', message: /limits\.keys/ };
    t.throws(make, full);
    registry.keys.delete(made[1]!.record.id);
    t.throws(make, full, 'not at once');
    clock.nowMs += 24 * 3_600_000;
    t.throws(make, full, 'nor on the edge');
    clock.nowMs += 1;
    const next = make();
    t.equal(next.record.index, 1);
    t.same(standingOf(house, next.key), [0, 'active']);
    t.equal(standingOf(house, made[1]!.key), undefined);
    t.same(standingOf(house, made[2]!.key), [0, 'active']);
    t.throws(make, full, 'and full again');
    await store.close();
  },
);

void t.test(
  'a key that memory has still, and the disk no more, gives its slot to the next one',
  async (t) => {
    const house = peopledHouse(t.testdir());
    const { registry, store, clock, keyTable } = house;
    const former = registry.keys.create({ account: 'acme', name: 'former' });
    // As if the commit of its deletion had thrown, and the store could not be read then.
    store.commit(() => store.keys.remove(former.record, clock.wallMs()));
    t.ok(standingOf(house, former.key));
    clock.nowMs += 24 * 3_600_000 + 1;
    const next = registry.keys.create({ account: 'other', name: 'next', limits: { callsPerDay: 5 } });
    t.equal(next.record.index, former.record.index);
    t.equal(standingOf(house, former.key), undefined);
    t.same(standingOf(house, next.key), [1, 'active']);
    t.ok(keyTable.isLimited(next.record.index));
    await store.close();
  },
);

void t.test('a wall clock that jumps a day gives no slot that calls in flight may name', async (t) => {
  const { registry, store, clock } = peopledHouse(t.testdir());
  const make = (name: string) => registry.keys.create({ account: 'acme', name }).record.index;
  const group = registry.groups.create({ name: 'g' }).record.index;
  const first = make('first');
  clock.nowMs += 1_000;
  registry.keys.delete('first');
  registry.groups.delete('g');
  const jump = (ms: number): void => {
    clock.nowMs += ms;
    clock.setMs += ms;
  };
  jump(30 * 24 * 3_600_000);
  t.not(make('second'), first);
  t.not(registry.groups.create({ name: 'h' }).record.index, group);
  clock.nowMs += 24 * 3_600_000 + 1;
  t.equal(make('third'), first, 'it has rested for a day by the clock that cannot be set');
  t.equal(registry.groups.create({ name: 'i' }).record.index, group);
  registry.keys.delete('third');
  clock.nowMs += 1_000;
  // Another process of the host, which begins after the deletion, while calls of this one may name the key.
  const other = offlineRegistry(store, clock);
  jump(30 * 24 * 3_600_000);
  t.not(other.keys.create({ account: 'acme', name: 'of the other' }).record.index, first);
  // After a restart no call of this process names it.
  jump(24 * 3_600_000 + 1);
  const next = offlineRegistry(store, clock);
  t.equal(next.keys.create({ account: 'acme', name: 'fourth' }).record.index, first);
  await store.close();
});

const NOW = Math.floor(Date.UTC(2025, 0, 31, 12) / 1_000);

void t.test('a key with an expiry and limits of its own has them on disk and in the buffers', async (t) => {
  const house = peopledHouse(t.testdir());
  const { registry, store, ledger, keyTable } = house;
  const { record, key } = registry.keys.create({
    account: 'acme',
    name: 'ci',
    expiresInSeconds: 60,
    limits: { requestsPerMinute: 5 },
  });
  const traits = { expiresSeconds: NOW + 60, limits: { ...NO_QUOTAS, requestsPerMinute: 5 } };
  t.match(record, traits);
  t.same(store.keys.find(record.id), record);
  const index = keyTable.find(digestOf(key))!;
  t.same([keyTable.isExpired(index, NOW + 59), keyTable.isExpired(index, NOW + 60)], [false, true]);
  t.ok(keyTable.isLimited(index));
  t.match(ledger.keys.limitsOf(index), { requestsPerMinute: 5, callsPerDay: undefined });
  t.match(registry.keys.find('ci'), { record: traits, expired: false, lastUsedSeconds: undefined });
  keyTable.recordUse(index, NOW - 3);
  house.clock.nowMs += 60_000;
  t.match(registry.keys.find('ci'), { expired: true, lastUsedSeconds: NOW - 3 });

  const plain = registry.keys.create({ account: 'acme', name: 'plain' });
  t.notOk(keyTable.isLimited(keyTable.find(digestOf(plain.key))!));
  const late = { expiresSeconds: 2 ** 32 - 1 };
  t.match(registry.keys.create({ account: 'acme', name: 'late', ...late }).record, late);
  for (const wrong of [
    { expiresSeconds: NOW + 60 },
    { expiresSeconds: 0 },
    { expiresSeconds: 2 ** 32 },
    { expiresInSeconds: 2 ** 32 },
    { expiresSeconds: NOW + 99, expiresInSeconds: 5 },
  ]) {
    const create = () => registry.keys.create({ account: 'acme', name: 'x', ...wrong });
    t.throws(create, { code: 'invalid_parameters', message: /^expires / }, JSON.stringify(wrong));
  }
  await store.close();
});

void t.test('rotation: a new key at once, the old one until its grace is over', async (t) => {
  const house = peopledHouse(t.testdir());
  const { registry, store, clock, keyTable, ledger } = house;
  clock.nowMs += 400;
  const limits = { requestsPerMinute: 5, callsPerDay: 7 };
  const old = registry.keys.create({ account: 'acme', name: 'ci', expiresSeconds: NOW + 1_000, limits });
  const oldIndex = keyTable.find(digestOf(old.key))!;
  ledger.keys.minute.take(oldIndex, 5);
  ledger.keys.takeDay(oldIndex, 7);
  keyTable.recordUse(oldIndex, NOW);

  const made = registry.keys.rotate('ci', 60);
  t.not(made.key, old.key);
  t.match(made.record, {
    name: 'ci',
    accountIndex: 0,
    expiresSeconds: NOW + 1_000,
    replacedById: undefined,
    limits,
  });
  // Not earlier than a minute from now, in whole seconds.
  const replaced = { ...old.record, expiresSeconds: NOW + 61, replacedById: made.record.id };
  const { quotas, ...rest } = made.replaced;
  t.same(rest, { record: replaced, accountName: 'acme', expired: false, lastUsedSeconds: NOW });
  t.same(
    quotas.map(({ quota, limit }) => [quota, limit]),
    [
      ['requests_per_minute', 5n],
      ['calls_per_day', 7n],
    ],
  );
  t.same(store.keys.find(old.record.id), replaced);
  t.same(store.keys.find(made.record.id), made.record);
  t.same([keyTable.isExpired(oldIndex, NOW + 60), keyTable.isExpired(oldIndex, NOW + 61)], [false, true]);
  t.same(standingOf(house, made.key), [0, 'active']);
  const counts = ledger.keys.countsOf(keyTable.find(digestOf(made.key))!);
  t.match(counts, { minuteUsed: 1, dayCalls: 1 }, 'rotation renews no limit');
  t.equal(registry.keys.find(made.record.id).lastUsedSeconds, undefined);

  t.equal(registry.keys.find('ci').record.id, made.record.id, 'the name is the new one’s');
  t.throws(() => registry.keys.rotate(old.record.id, 60), { message: /rotated already: key_/ });
  registry.keys.delete(made.record.id);
  t.equal(registry.keys.find('ci').record.id, old.record.id, 'and the old one’s again');

  registry.keys.setActive('ci', false);
  t.throws(() => registry.keys.rotate('ci', 60), { code: 'conflict', message: /rotated already/ });
  await store.close();
});

void t.test(
  'slots of deleted keys beyond a limit that was lowered keep no key from being made',
  async (t) => {
    const path = t.testdir();
    const { registry, store, clock } = withoutGateway(path, ['acme']);
    const names = Array.from({ length: KEYS_MAX + 3 }, (_, at) => `key ${at}`);
    for (const name of names) registry.keys.create({ account: 'acme', name });
    // The highest first: those slots have rested longest.
    for (const name of names.toReversed()) {
      registry.keys.delete(name);
      clock.nowMs += 1;
    }
    await store.close();
    const house = openHouse(path);
    house.clock.nowMs += 25 * 3_600_000;
    const { keys } = house.registry;
    const made = keys.create({ account: 'acme', name: 'laptop' });
    t.ok(made.record.index < KEYS_MAX);
    t.ok(keys.rotate('laptop', 0).record.index < KEYS_MAX);
    for (let at = 2; at < KEYS_MAX; at++) keys.create({ account: 'acme', name: `other ${at}` });
    t.throws(() => keys.create({ account: 'acme', name: 'more' }), /^limits.keys allows 4 keys/);
    await house.store.close();
  },
);

void t.test(
  'rotation without grace, beyond the old key’s own end, and where there is nothing to rotate',
  async (t) => {
    const house = peopledHouse(t.testdir());
    const { registry, store, clock, keyTable } = house;
    const first = registry.keys.create({ account: 'acme', name: 'a' });
    registry.keys.rotate('a', 0);
    t.ok(keyTable.isExpired(keyTable.find(digestOf(first.key))!, NOW), 'at once');
    t.equal(standingOf(house, first.key)?.[1], 'disabled', 'also by a clock that is set back');

    const short = registry.keys.create({ account: 'acme', name: 'b', expiresSeconds: NOW + 5 });
    const { replaced } = registry.keys.rotate('b', 60);
    t.equal(replaced.record.expiresSeconds, NOW + 5, 'a grace does not prolong a key');
    t.equal(registry.keys.find('b').record.expiresSeconds, NOW + 5, 'nor does rotation');
    clock.nowMs += 5_000;
    t.throws(() => registry.keys.rotate('b', 60), { code: 'invalid_parameters', message: /has expired/ });
    registry.keys.delete(short.record.id);
    registry.keys.setActive('a', false);
    t.throws(() => registry.keys.rotate('a', 60), { code: 'invalid_parameters', message: /is disabled/ });
    t.throws(() => registry.keys.rotate('nobody', 60), { code: 'not_found' });
    t.throws(() => registry.keys.rotate(first.key, 60), { message: /^(?!.*sk-).*API key/ });
    await store.close();
  },
);
