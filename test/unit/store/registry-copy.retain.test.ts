/** A copy that is downloaded anew: its deleted records take nothing from those that have their places now. */
import { join } from 'node:path';
import { asBinary, open } from 'lmdb';
import t from 'tap';
import { asPicoUnits, asWallMs } from '#src/core/units.js';
import type { QuotaUseRecord } from '#src/registry/quota-use.js';
import { audit } from '#src/store/audit.js';
import { FORMAT } from '#src/store/record-codec.js';
import { deletableRow, type RegistryRow } from '#src/store/registry-copy.js';
import { storePath } from '#src/store/store-file.js';
import { Store } from '#src/store/store.js';
import { ACCOUNTS_MAX, GROUPS_MAX, KEYS_MAX, offlineRegistry, StoppedClock, TESTER } from './support.js';

const CAPACITY = { accountsMax: ACCOUNTS_MAX, keysMax: KEYS_MAX, groupsMax: GROUPS_MAX };
const NOTHING_USED: QuotaUseRecord = {
  ...{ minuteRequests: 0, callDayNumber: 0, callsPerDay: 0, takenMs: asWallMs(0) },
  ...{ minuteTokens: 0, dayNumber: 0, monthNumber: 0, tokensPerDay: 0, callsPerMonth: 0 },
  ...{ tokensPerMonth: 0, spendPerDay: 0, spendPerMonth: 0 },
};
const REST_MS = 24 * 3_600_000;

/** As sharing/registry-reseed.ts does it: all rows first, then what is not among them goes. */
function download(from: Store, to: Store): void {
  const rows = JSON.parse(JSON.stringify([...from.copy.rows()])) as RegistryRow[];
  to.shared.commitAgreed(() => {
    for (const row of rows) to.copy.apply(row);
  });
  to.shared.commitAgreed(() => to.copy.retain(new Set(rows.flatMap((row) => deletableRow(row) ?? []))));
}

void t.test('who has the name or the slot of a deleted record has it in a stale copy too', async (t) => {
  const clock = new StoppedClock();
  const folder = t.testdir({ server: {}, stale: {} });
  const stalePath = join(folder, 'stale');
  const server = new Store(join(folder, 'server'));
  const stale = new Store(stalePath);
  const { accounts, groups, keys } = offlineRegistry(server, clock);
  const top = groups.create({ name: 'top' }).record;
  const old = groups.create({ name: 'team', parent: 'top' }).record;
  accounts.create({ name: 'acme', planId: 'free', credit: asPicoUnits(0n) });
  const oldKey = keys.create({ account: 'acme', name: 'k' }).record;
  download(server, stale);
  // What the stale host has counted.
  const scopes = [
    { kind: 'group', index: old.index } as const,
    { kind: 'key', index: oldKey.index } as const,
  ];
  const quotaUses = scopes.map((scope) => [scope, { ...NOTHING_USED, tokensPerMonth: 7 }] as const);
  stale.commit(() => stale.putAccounting({ spendings: new Map(), usages: [], quotaUses }));

  groups.delete('team');
  keys.delete('k');
  const sameName = groups.create({ name: 'team' }).record;
  clock.nowMs += REST_MS + 1;
  const sameSlot = groups.create({ name: 'crew', parent: 'top' }).record;
  const key = keys.create({ account: 'acme', name: 'k2' }).record;
  t.equal(sameSlot.index, old.index);
  t.equal(key.index, oldKey.index);
  download(server, stale);

  t.equal(stale.groups.find(old.id), undefined);
  t.equal(stale.groups.findByName('team')?.id, sameName.id);
  t.equal(stale.groups.findAt(sameSlot.index)?.id, sameSlot.id);
  t.same(
    stale.groups.childrenOf(top.id).map(({ id }) => id),
    [sameSlot.id],
  );
  t.equal(stale.keys.find(oldKey.id), undefined);
  t.equal(stale.keys.findAt(key.index)?.id, key.id);
  t.same(
    stale.keys.list(key.accountIndex, 0, 10).items.map(({ id }) => id),
    [key.id],
  );
  for (const scope of scopes) t.equal(stale.quotaUses.find(scope), undefined, `a new ${scope.kind}`);
  await server.close();
  await stale.close();
  t.same((await audit(stalePath, CAPACITY)).differences, []);
});

void t.test('a row that cannot be decoded is named, and not sent', async (t) => {
  const folder = t.testdir();
  const before = new Store(folder);
  const registry = offlineRegistry(before, new StoppedClock());
  const { id } = registry.accounts.create({ name: 'acme', planId: 'free', credit: asPicoUnits(0n) }).record;
  await before.close();
  const root = open(storePath(folder), { noSubdir: true, maxDbs: 32, overlappingSync: false });
  root.openDB('accounts', {}).putSync(id, asBinary(Buffer.from([0xdd, 0xff, 0xff, 0xff, 0xff])));
  await root.close();
  const store = new Store(folder);
  t.throws(() => [...store.copy.rows()], {
    code: 'damaged',
    message: new RegExp(`record ${id} of table accounts`),
  });
  await store.close();
});

void t.test('a row under the key of another, or under no key of its table, is refused', async (t) => {
  const folder = t.testdir({ one: {}, other: {} });
  const one = new Store(join(folder, 'one'));
  const { accounts, credits, groups, keys, operators } = offlineRegistry(one, new StoppedClock());
  const cause = { ...TESTER, atMs: asWallMs(1) };
  one.operatorChanges.runAs(cause, () => {
    accounts.create({ name: 'acme', planId: 'free', credit: asPicoUnits(5n) });
  });
  credits.addOnce({ account: 'acme', amount: asPicoUnits(1n), note: '', idempotencyKey: 'k' }, () => '{}');
  for (const name of ['team', 'gone']) groups.create({ name });
  for (const name of ['laptop', 'gone']) keys.create({ account: 'acme', name });
  groups.delete('gone');
  keys.delete('gone');
  operators.create({ name: 'ann', role: 'viewer' });
  const rows = JSON.parse(JSON.stringify([...one.copy.rows()])) as RegistryRow[];
  const tables = new Set(rows.map(({ table }) => table));
  t.equal(tables.size, 10, 'a row of each table');
  const other = new Store(join(folder, 'other'));
  const wrongKeys = [
    0.5,
    -1,
    '',
    'acct_0',
    '__proto__',
    [],
    [0],
    ['0', 0],
    [0, 0.5],
    [0, null],
    [0, 0, 0],
    {},
    null,
  ];
  for (const { table, key, value } of rows)
    for (const wrong of wrongKeys) {
      const row = { table, key: wrong, value } as unknown as RegistryRow;
      // The text of a credit's request may be any.
      if (table === 'credit_requests' && Array.isArray(wrong) && wrong[0] === 0 && wrong[1] === '') continue;
      t.throws(
        () => other.shared.commitAgreed(() => other.copy.apply(row)),
        { code: table === 'meta' ? 'newer' : 'damaged' },
        `${table} ${JSON.stringify(wrong)} in place of ${JSON.stringify(key)}`,
      );
    }
  for (const table of ['groups', 'keys', 'operators', 'operator_changes', 'key_slots_free'] as const)
    t.throws(
      () => other.shared.commitAgreed(() => other.copy.apply({ table, key: [0], value: null })),
      { code: 'damaged' },
      `removal from ${table}`,
    );
  t.same([...other.copy.rows()], []);
  download(one, other);
  t.same([...other.copy.rows()], [...one.copy.rows()], 'rows under their own keys are accepted');
  await one.close();
  await other.close();
});

void t.test('a row that only a newer Tollgate knows is refused, whatever its key', async (t) => {
  const store = new Store(t.testdir());
  const rows = [
    { table: 'shelves', key: 'key_slots_used', value: 7 },
    { table: 'shelves', key: 'any', value: null },
    { table: 'constructor', key: 'any', value: 1 },
    { table: 'meta', key: 'any', value: 1 },
    { table: 'accounts', key: 'acct_x', value: { format: FORMAT + 1, id: 'acct_x' } },
    { table: 'credits', key: [0, 0], value: { format: FORMAT + 1 } },
    { table: 'operator_changes', key: 1, value: { format: FORMAT + 1 } },
  ] as unknown as RegistryRow[];
  for (const row of rows)
    t.throws(() => store.shared.commitAgreed(() => store.copy.apply(row)), { code: 'newer' }, row.table);
  t.same([...store.copy.rows()], []);
  await store.close();
});
