/** The audit reads each table of its snapshot, so damage in none of them stays unseen. */
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { audit } from '#src/store/audit.js';
import { AUDITED_TABLES, StoreSnapshot } from '#src/store/audit-run.js';
import { Environment } from '#src/store/environment.js';
import { OPTIONS, storePath } from '#src/store/store-file.js';
import { ACCOUNTS_MAX, GROUPS_MAX, KEYS_MAX, openHouse } from './support.js';

/** Can be made again, or nothing refers to them. */
const LEFT_OUT = ['cached', 'cached_ages', 'cached_model_ages', 'changes', 'history', 'notices'];

void t.test('each table of a store is audited or left out on purpose', async (t) => {
  const path = t.testdir();
  const { store } = openHouse(path);
  await store.close();
  const environment = new Environment(storePath(path), OPTIONS);
  t.teardown(() => environment.close());
  const names = environment.openTables((root) => [...root.getKeys()]);
  t.same(names.map(String).sort(), [...AUDITED_TABLES, ...LEFT_OUT].sort());
});

void t.test('each table of a snapshot is read by a check', async (t) => {
  const path = t.testdir();
  const { store, registry } = openHouse(path);
  registry.accounts.create({ name: 'acme', planId: 'free', credit: asPicoUnits(1n) });
  registry.keys.create({ account: 'acme', name: 'laptop' });
  await store.close();
  const { prototype } = StoreSnapshot;
  // oxlint-disable-next-line typescript/unbound-method -- `capture` calls them with the snapshot
  const calls = [t.capture(prototype, 'get', prototype.get), t.capture(prototype, 'rows', prototype.rows)];
  await audit(path, { accountsMax: ACCOUNTS_MAX, keysMax: KEYS_MAX, groupsMax: GROUPS_MAX });
  const read = new Set(calls.flatMap((results) => results().map(({ args }) => args[0])));
  t.same([...read].sort(), [...AUDITED_TABLES].sort());
});
