/** Which scopes wait for a check of their quotas, and in what order they are taken. */
import t from 'tap';
import { asAccountIndex, asKeyIndex } from '#src/core/units.js';
import { ChangedScopes } from '#src/gateway/changed-scopes.js';

void t.test('what has changed is bounded, and taken oldest first', (t) => {
  const changed = new ChangedScopes(() => true);
  changed.add([3, 1, 3, 2].map(asAccountIndex), [asKeyIndex(7)]);
  t.same(changed.take(2, 0), { accounts: [3, 1], keys: [7] });
  t.same(changed.take(2, 0), { accounts: [2], keys: [] });
  changed.add(
    Array.from({ length: 100_001 }, (_, index) => asAccountIndex(index)),
    [],
  );
  t.equal(changed.take(200_000, 0).accounts.length, 100_000);
  t.end();
});

void t.test(
  'what is added again comes twenty seconds later, together with what came within a second',
  (t) => {
    const changed = new ChangedScopes(() => true);
    const scopes = (account: number) => ({ accounts: [asAccountIndex(account)], keys: [asKeyIndex(9)] });
    changed.addAgain(scopes(1), 0);
    changed.addAgain(scopes(2), 1_000);
    changed.addAgain(scopes(3), 1_001);
    t.same(changed.take(10, 19_999), { accounts: [], keys: [] });
    t.same(changed.take(10, 20_000), { accounts: [1, 2], keys: [9] });
    t.same(changed.take(10, 21_000), { accounts: [], keys: [] });
    t.same(changed.take(10, 21_001), { accounts: [3], keys: [9] });
    t.same(changed.take(10, 90_000), { accounts: [], keys: [] }, 'once');
    t.end();
  },
);

void t.test('nothing is added while no notices are wanted', (t) => {
  let isWatched = false;
  const changed = new ChangedScopes(() => isWatched);
  changed.add([asAccountIndex(1)], []);
  changed.addAgain({ accounts: [asAccountIndex(2)], keys: [] }, 0);
  t.same(changed.take(10, 20_000), { accounts: [], keys: [] });
  isWatched = true;
  t.same(changed.take(10, 20_000), { accounts: [], keys: [] });
  t.end();
});
