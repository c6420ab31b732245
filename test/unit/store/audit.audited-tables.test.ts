/** The audit reads each table of its snapshot, so damage in none of them stays unseen. */
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { audit } from '#src/store/audit.js';
import { AUDITED_TABLES, StoreSnapshot } from '#src/store/audit-run.js';
import { ACCOUNTS_MAX, GROUPS_MAX, KEYS_MAX, openHouse } from './support.js';

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
