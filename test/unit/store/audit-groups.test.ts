/** The audit of groups and of what was used of quotas: each thing that can differ is named. */
import { open, type Database, type Key } from 'lmdb';
import t from 'tap';
import { asGroupIndex, asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { audit } from '#src/store/audit.js';
import { storePath } from '#src/store/store-file.js';
import { Store } from '#src/store/store.js';
import { offlineRegistry, StoppedClock } from './support.js';

const BOUNDS = { accountsMax: 4, keysMax: 4, groupsMax: 4 };

const USE = {
  minuteRequests: 1,
  callDayNumber: 20_000,
  callsPerDay: 2,
  minuteTokens: 3,
  takenMs: asWallMs(4),
  dayNumber: 20_000,
  monthNumber: 660,
  tokensPerDay: 5,
  callsPerMonth: 6,
  tokensPerMonth: 7,
  spendPerDay: 8,
  spendPerMonth: 2 ** 52,
};

interface World {
  readonly path: string;
  readonly top: string;
  readonly below: string;
  readonly account: string;
}

/** Two groups, one in the other, and one that was deleted; an account in the lower one; uses of both. */
async function sound(path: string): Promise<World> {
  const store = new Store(path);
  const { groups, accounts } = offlineRegistry(store, new StoppedClock());
  const top = groups.create({ name: 'top', limits: { tokensPerDay: 9 } }).record.id;
  const below = groups.create({ name: 'below', parent: 'top' }).record.id;
  groups.create({ name: 'gone' });
  groups.delete('gone');
  const made = accounts.create({ name: 'acme', planId: 'free', credit: asPicoUnits(0n), group: 'below' });
  const { index } = made.record;
  const scopes = [
    { kind: 'account', index },
    { kind: 'group', index: asGroupIndex(1) },
    { kind: 'model', index, modelId: 'small' },
  ] as const;
  store.commit(() =>
    store.putAccounting({ spendings: new Map(), usages: [], quotaUses: scopes.map((scope) => [scope, USE]) }),
  );
  for (const scope of scopes) t.same(store.quotaUses.find(scope), USE, 'what is packed is read again');
  t.same(
    Array.from(store.quotaUses.all(), ([scope]) => scope),
    scopes,
  );
  t.equal(store.quotaUses.find({ kind: 'key', index: asKeyIndex(0) }), undefined);
  await store.close();
  return { path, top, below, account: made.record.id };
}

interface Damage {
  readonly table: string;
  readonly row: (world: World) => Key;
  readonly change: (old: Record<string, unknown>, world: World) => unknown;
  readonly told: readonly string[];
}

const DAMAGES: readonly Damage[] = [
  {
    table: 'groups',
    row: ({ top }) => top,
    change: () => undefined,
    told: [
      'null: the group that it is in: TOP, not a group: record BELOW of table groups',
      'null: the slot of group TOP: nothing, not 0: record 0 of table group_slots',
      'null: the name of group TOP: nothing, not top: record top of table group_names',
    ],
  },
  {
    table: 'groups',
    row: ({ below }) => below,
    change: () => undefined,
    told: [
      'ACCOUNT: the group: BELOW, not a group',
      'null: the slot of group BELOW',
      'null: the name of group BELOW',
      'null: the group of this group: nothing, not TOP: record TOP/0/1 of table group_members',
    ],
  },
  {
    table: 'groups',
    row: ({ top }) => top,
    change: (old, { below }) => ({ ...old, parentId: below }),
    told: [
      'null: its depth: more, or a circle, not at most 4: record BELOW of table groups',
      'null: its depth: more, or a circle, not at most 4: record TOP of table groups',
      'null: the group in the list of BELOW: nothing, not TOP',
    ],
  },
  {
    table: 'groups',
    row: ({ top }) => top,
    change: (old) => ({ ...old, index: 5 }),
    told: [
      'null: the slot: 5, not below limits.groups, 4',
      'null: the slot: 5, not below the number of slots used, 3',
      'null: the owner of slot 5: nothing, not TOP',
      'null: the slot of group TOP: 5, not 0',
    ],
  },
  {
    table: 'groups',
    row: ({ top }) => top,
    change: (old) => ({ ...old, tokensPerDay: 0 }),
    told: [
      'null: the row: damaged',
      'null: the group that it is in: TOP',
      'null: the slot',
      'null: the name',
    ],
  },
  {
    table: 'group_members',
    row: ({ below }) => [below, 1, 0],
    change: () => undefined,
    told: [
      'ACCOUNT: the account in the list of BELOW: nothing, not ACCOUNT: record ACCOUNT of table accounts',
    ],
  },
  {
    table: 'group_members',
    row: ({ top }) => [top, 1, 0],
    change: () => true,
    told: ['null: the group of this account: BELOW, not TOP: record TOP/1/0 of table group_members'],
  },
  {
    table: 'group_slots_free',
    row: () => [1, 0],
    change: () => true,
    told: ['null: the owner of slot 0, which is free: TOP, not nothing'],
  },
  {
    table: 'quota_uses',
    row: () => ['group', 1, ''],
    change: (old) => ({ ...old, spendPerMonth: -1 }),
    told: ['null: the row: damaged, not a row of this format: record group/1/ of table quota_uses'],
  },
  ...(['account', 'model', 'key', 'group', 'other'] as const).map((kind) => ({
    table: 'quota_uses',
    row: () => [kind, 3, ''],
    change: () => ({ format: 4, ...USE }),
    told: [
      `null: the owner of slot 3: nothing, not ${kind === 'model' || kind === 'account' ? 'an account' : `a ${kind}`}: `,
    ],
  })),
];

void t.test('sound groups, and each thing that differs', async (t) => {
  const world = await sound(t.testdir());
  const texts = async (): Promise<string[]> => {
    const { differences } = await audit(world.path, BOUNDS);
    return differences.map(({ account, location, what, is, shouldBe }) =>
      `${account}: ${what}: ${is}, not ${shouldBe}: ${location}`
        .replaceAll(world.top, 'TOP')
        .replaceAll(world.below, 'BELOW')
        .replaceAll(world.account, 'ACCOUNT'),
    );
  };
  const write = async (name: string, key: Key, value: unknown): Promise<unknown> => {
    const root = open(storePath(world.path), { noSubdir: true, maxDbs: 32, overlappingSync: false });
    const table: Database<unknown> = root.openDB(name, {});
    const old: unknown = table.get(key);
    const next = typeof value === 'function' ? (value as (old: unknown) => unknown)(old) : value;
    if (next === undefined) table.removeSync(key);
    else table.putSync(key, next);
    await root.close();
    return old;
  };
  t.match(await audit(world.path, BOUNDS), { groups: 2, differences: [] });
  for (const { table, row, change, told } of DAMAGES) {
    const key = row(world);
    const old = await write(table, key, (was: Record<string, unknown>) => change(was, world));
    const found = await texts();
    t.equal(found.length, told.length, `${table} ${String(key)}: ${found.join('; ')}`);
    for (const line of told)
      t.ok(
        found.some((text) => text.startsWith(line)),
        line,
      );
    await write(table, key, old);
  }
  t.same(await texts(), []);
});
