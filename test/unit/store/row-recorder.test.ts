/** Rows of the registry that a transaction without a record would keep from other processes and hosts. */
import t from 'tap';
import { CHANGES_HEAD, openTables } from '#src/store/tables.js';

void t.test('a row of the registry is written only while it is recorded', async (t) => {
  const { environment, recorder, meta, keys, spending } = openTables(t.testdir());
  const unrecorded = {
    message: 'invariant broken: rows of the registry are written while they are recorded',
  };
  const writes: Readonly<Record<string, () => unknown>> = {
    put: () => keys.putSync('key_0', 1),
    remove: () => keys.removeSync('key_0'),
    'put to meta': () => meta.putSync(CHANGES_HEAD, 1),
  };
  for (const [name, write] of Object.entries(writes))
    t.throws(() => environment.write(write), unrecorded, name);
  environment.write(() => {
    spending.putSync(0, 1);
    meta.putSync('of this host', 1);
  });
  t.equal(spending.get(0), 1, 'what calls write is of this host');
  const { rows } = environment.write(() =>
    recorder.record(() => Object.values(writes).forEach((write) => write())),
  );
  t.same(
    rows.map(({ table, value, former }) => [table, value, former]),
    [
      ['keys', 1, undefined],
      ['keys', undefined, 1],
      ['meta', 1, undefined],
    ],
  );
  t.throws(() => environment.write(writes.put!), unrecorded, 'after a record');
  await environment.close();
});
