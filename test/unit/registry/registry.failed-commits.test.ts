/** A commit that throws is on disk or is not. Memory follows the disk, whichever change it was. */
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { digestOf } from '#src/registry/key-digest.js';
import { type House, openHouse } from '../store/support.js';

const GONE = { message: 'the disk is gone' };
function fail(): never {
  throw new Error(GONE.message);
}

interface Case {
  readonly change: (house: House) => unknown;
  /** What the threads of the gateway know. */
  readonly seen: (house: House) => unknown;
  readonly before: unknown;
  readonly after: unknown;
}

const account = (name: string, group?: string) => ({
  name,
  planId: 'free',
  credit: asPicoUnits(700n),
  group,
});
const accountSeen =
  (index: number) =>
  ({ ledger }: House): unknown => [
    ledger.isActive(index as never),
    ledger.balance.available(index as never),
    ledger.groupOf(index as never),
  ];
const keySeen =
  (index: number) =>
  ({ keyTable }: House): unknown =>
    keyTable.has(index as never) ? keyTable.stateOf(index as never) : undefined;
const both =
  (...views: readonly ((house: House) => unknown)[]) =>
  (house: House): unknown =>
    views.map((view) => view(house));

/** Each begins with the account `acme`, its key `laptop` and the empty group `g`, each in slot 0. */
const CASES: Readonly<Record<string, Case>> = {
  'accounts.create': {
    change: ({ registry }) => registry.accounts.create(account('new', 'g')),
    seen: accountSeen(1),
    before: [false, 0n, undefined],
    after: [true, 700n, 0],
  },
  'accounts.setActive': {
    change: ({ registry }) => registry.accounts.setActive('acme', false),
    seen: accountSeen(0),
    before: [true, 700n, undefined],
    after: [false, 700n, undefined],
  },
  'accounts.setGroup': {
    change: ({ registry }) => registry.accounts.setGroup('acme', 'g'),
    seen: accountSeen(0),
    before: [true, 700n, undefined],
    after: [true, 700n, 0],
  },
  'accounts.setPlan': {
    change: ({ registry }) => registry.accounts.setPlan('acme', 'paid'),
    seen: ({ ledger }) => ledger.planIndexOf(0 as never),
    before: 0,
    after: 1,
  },
  createInBulk: {
    change: ({ registry }) =>
      registry.createInBulk([
        { ...account('one'), keys: [{ name: 'k1' }, { name: 'k2' }] },
        { ...account('two'), keys: [] },
      ]),
    seen: both(accountSeen(1), accountSeen(2), keySeen(1), keySeen(2)),
    before: [[false, 0n, undefined], [false, 0n, undefined], undefined, undefined],
    after: [[true, 700n, undefined], [true, 700n, undefined], 'active', 'active'],
  },
  'credits.add': {
    change: ({ registry }) => registry.credits.add('acme', asPicoUnits(50n), ''),
    seen: accountSeen(0),
    before: [true, 700n, undefined],
    after: [true, 750n, undefined],
  },
  'keys.create': {
    change: ({ registry }) => registry.keys.create({ account: 'acme', name: 'new' }),
    seen: keySeen(1),
    before: undefined,
    after: 'active',
  },
  'keys.setActive': {
    change: ({ registry }) => registry.keys.setActive('laptop', false),
    seen: keySeen(0),
    before: 'active',
    after: 'disabled',
  },
  'keys.setLimits': {
    change: ({ registry }) => registry.keys.setLimits('laptop', { callsPerDay: 7 }),
    seen: ({ ledger, keyTable }) =>
      keyTable.isLimited(0 as never) && ledger.keys.limitsOf(0 as never).callsPerDay,
    before: 9,
    after: 7,
  },
  'keys.setPrivate': {
    change: ({ registry }) => registry.keys.setPrivate('laptop', true),
    seen: ({ keyTable }) => keyTable.isPrivate(0 as never),
    before: false,
    after: true,
  },
  'keys.rotate': {
    change: ({ registry }) => registry.keys.rotate('laptop', 0),
    seen: both(({ keyTable, clock }) => keyTable.isExpired(0 as never, clock.nowMs / 1_000), keySeen(1)),
    before: [false, undefined],
    after: [true, 'active'],
  },
  'keys.delete': {
    change: ({ registry }) => registry.keys.delete('laptop'),
    seen: keySeen(0),
    before: 'active',
    after: undefined,
  },
  'groups.create': {
    change: ({ registry }) => registry.groups.create({ name: 'new', parent: 'g' }),
    seen: ({ groupNames }) => groupNames.nameOf(1 as never),
    before: '',
    after: 'new',
  },
  'groups.setLimits': {
    change: ({ registry }) => registry.groups.setLimits('g', { callsPerDay: 7 }),
    seen: ({ ledger }) => ledger.groups.limitsOf(0 as never).callsPerDay,
    before: undefined,
    after: 7,
  },
  'groups.delete': {
    change: ({ registry }) => registry.groups.delete('g'),
    seen: ({ groupNames }) => groupNames.nameOf(0 as never),
    before: 'g',
    after: '',
  },
};

for (const [name, { change, seen, before, after }] of Object.entries(CASES)) {
  void t.test(name, async (t) => {
    const house = openHouse(t.testdir());
    const { registry, store } = house;
    registry.accounts.create(account('acme'));
    registry.keys.create({ account: 'acme', name: 'laptop', limits: { callsPerDay: 9 } });
    registry.groups.create({ name: 'g' });
    const commit = store.commit.bind(store);
    store.commit = (work) => commit(() => (work(), fail()));
    t.throws(() => change(house), GONE);
    t.same(seen(house), before, 'the transaction was undone');
    store.commit = (work) => (commit(work), fail());
    t.throws(() => change(house), GONE);
    t.same(seen(house), after, 'the disk has the change');
    await store.close();
  });
}

void t.test('nothing is applied if the disk cannot be read again', async (t) => {
  const house = openHouse(t.testdir());
  const { registry, store, keyTable } = house;
  registry.accounts.create(account('acme'));
  const { key } = registry.keys.create({ account: 'acme', name: 'laptop' });
  const commit = store.commit.bind(store);
  store.commit = (work) => (commit(work), fail());
  store.refresh = fail;
  t.throws(() => registry.keys.delete('laptop'), GONE);
  t.ok(keyTable.find(digestOf(key)) !== undefined);
  await store.close();
});
