/** What a process applies of the changes of others, and what it cannot. */
import t from 'tap';
import { NO_QUOTAS } from '#src/core/quotas.js';
import { asAccountIndex, asGroupIndex, asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { Ledger } from '#src/ledger/ledger.js';
import { AccountDirectory } from '#src/registry/account-directory.js';
import { ChangeApplier } from '#src/registry/change-applier.js';
import { createGroupNames, GroupNames } from '#src/registry/group-names.js';
import { digestOf } from '#src/registry/key-digest.js';
import { createKeyTableBuffers, KeyTable } from '#src/registry/key-table.js';
import { Store } from '#src/store/store.js';
import { CATALOG, ListLog, StoppedClock } from '../store/support.js';

const record = {
  index: asAccountIndex(3),
  id: 'acct_x',
  name: 'acme',
  planId: 'paid',
  active: true,
  createdMs: asWallMs(1),
  credited: asPicoUnits(70n),
};
const KEY = {
  index: asKeyIndex(0),
  id: 'key_x',
  name: 'laptop',
  prefix: 'sk-abcd',
  active: true,
  createdMs: asWallMs(1),
  expiresSeconds: undefined,
  limits: NO_QUOTAS,
  replacedById: undefined,
};

/** A ChangeApplier of a gateway with 4 accounts, 1 key and 3 groups. */
function smallApplier(store: Store) {
  const log = new ListLog();
  const capacity = { accountsMax: 4, keysMax: 1, groupsMax: 3 };
  const live = {
    ledger: new Ledger(createLedgerBuffers({ ...capacity, callsInFlightMax: 1 }), new StoppedClock()),
    keyTable: new KeyTable(createKeyTableBuffers(capacity)),
    groupNames: new GroupNames(createGroupNames(capacity.groupsMax)),
  };
  const directory = new AccountDirectory();
  const applier = new ChangeApplier({ store, live, directory, catalog: () => CATALOG, ...capacity, log });
  return { applier, live, directory, log };
}

/** The parents of groups by their slots. */
type Parents = ReadonlyMap<number, string | undefined>;

function putGroups(store: Store, parents: Parents): void {
  store.commit(() => {
    for (const [slot, parentId] of parents) {
      const group = { index: asGroupIndex(slot), id: `grp_${slot}`, name: `g${slot}`, parentId };
      store.groups.put({ ...group, createdMs: asWallMs(1), limits: NO_QUOTAS });
    }
  });
}

void t.test(
  'a group below one that other hosts have put beyond the limits is refused, and told once',
  async (t) => {
    const store = new Store(t.testdir());
    const { applier, log } = smallApplier(store);
    // Slot 7 has the parent of slot 0, which has the parent of slot 1. Slot 2 is at the top.
    const parents = new Map([
      [7, undefined],
      [0, 'grp_7'],
      [1, 'grp_0'],
      [2, undefined],
    ]);
    putGroups(store, parents);
    for (const slot of parents.keys())
      t.doesNotThrow(() => applier.applyGroup(asGroupIndex(slot)), `${slot}`);
    t.equal(log.lines.length, 1);
    await store.close();
  },
);

void t.test('a key of an account beyond the limits is in no table, so no listener asks for it', async (t) => {
  const store = new Store(t.testdir());
  const { applier, live, log } = smallApplier(store);
  const digest = digestOf('sk-one');
  const key = { ...KEY, digest };
  for (const [accountIndex, isKnown] of [
    [3, true],
    [4, false],
    [3, true],
    [2 ** 20, false],
  ] as const) {
    const id = `acct_${accountIndex}`;
    const account = { ...record, index: asAccountIndex(accountIndex), id, name: id };
    store.commit(() => {
      store.putAccount(account);
      store.keys.put({ ...key, accountIndex: account.index, accountId: id });
    });
    applier.applyAccount(account.index);
    applier.applyKey(key.index);
    t.equal(live.keyTable.find(digest), isKnown ? key.index : undefined, id);
    if (isKnown) live.keyTable.remove(key.index);
  }
  t.match(log.lines, [
    /^error the registry has more accounts than limits.accounts .* raise it to at least 5/,
  ]);
  await store.close();
});

void t.test('a group whose parents are not there, or form a circle, is not opened', async (t) => {
  for (const parents of [
    [[0, 'grp_9']],
    [[0, 'grp_0']],
    [
      [0, 'grp_1'],
      [1, 'grp_0'],
    ],
    [
      [0, 'grp_1'],
      [1, 'grp_2'],
      [2, 'grp_1'],
    ],
  ] as const) {
    const store = new Store(t.testdir());
    const { applier, live } = smallApplier(store);
    putGroups(store, new Map<number, string | undefined>(parents));
    t.throws(() => applier.applyGroup(asGroupIndex(0)), {
      message: /grp_\d .*missing, or they form a circle/,
    });
    for (const slot of [0, 1, 2]) t.equal(live.groupNames.nameOf(asGroupIndex(slot)), '', `${slot}`);
    store.commit(() => store.putAccount({ ...record, groupId: 'grp_0' }));
    applier.applyAccount(record.index);
    t.equal(live.ledger.isActive(record.index), false, 'its accounts are disabled');
    await store.close();
  }
});
