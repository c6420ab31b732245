/** `tollgate audit` as an operator runs it: text, JSON, exit codes, no repair. */
import { join } from 'node:path';
import { open } from 'lmdb';
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { storePath } from '#src/store/store-file.js';
import { Store } from '#src/store/store.js';
import { runCommand } from '../../support/command.js';
import { offlineRegistry, StoppedClock } from '../store/support.js';

const run = (folder: string, ...args: readonly string[]) =>
  runCommand(folder, ['audit', ...args], { TOLLGATE_DATA: join(folder, 'data') });

async function books(folder: string): Promise<string> {
  const store = new Store(join(folder, 'data'));
  const registry = offlineRegistry(store, new StoppedClock());
  const { record } = registry.accounts.create({
    name: 'acme',
    planId: 'demo',
    credit: asPicoUnits(2_500_000_000_000n),
  });
  registry.keys.create({ account: 'acme', name: 'laptop' });
  await store.close();
  return record.id;
}

void t.test('settings with an error leave only their limits unchecked', async (t) => {
  const folder = t.testdir({ 'tollgate.yaml': 'models: [\n' });
  await books(folder);
  const { code, stdout, stderr } = await run(folder);
  t.equal(code, 0, stderr);
  t.match(stdout, /^The books balance\.$/m);
  t.match(stderr, /^The books are not compared with the settings limits\.…, .*: tollgate\.yaml:\d+: /);
  const unnamed = await runCommand(folder, ['audit']);
  t.match(unnamed, { code: 1, stdout: '', stderr: /^tollgate\.yaml:/ });
});

void t.test('books that balance', async (t) => {
  const folder = t.testdir();
  await books(folder);
  const path = storePath(join(folder, 'data'));
  const shown = await run(folder);
  t.equal(shown.code, 0, shown.stderr);
  for (const line of [
    `books      ${path}, format 5`,
    'accounts   1',
    'keys       1',
    'groups     0',
    'credited   2.50',
    'available  2.50',
    'spent      0.00',
    'uncovered  0.00',
    'The books balance.',
  ]) {
    t.ok(shown.stdout.split('\n').includes(line), line);
  }
  const json = await run(folder, '--json');
  t.equal(json.code, 0);
  t.same(json.json(), {
    ok: true,
    path,
    format: 5,
    accounts: 1,
    keys: 1,
    groups: 0,
    credited: '2.50',
    available: '2.50',
    spent: '0.00',
    uncovered: '0.00',
    differences: [],
    differences_count: 0,
  });
});

void t.test('books that do not: each difference, and 1', async (t) => {
  const folder = t.testdir();
  const id = await books(folder);
  const root = open(storePath(join(folder, 'data')), { noSubdir: true, maxDbs: 16, overlappingSync: false });
  root.openDB('account_names', {}).removeSync('acme');
  await root.close();
  const shown = await run(folder);
  t.equal(shown.code, 1);
  t.match(shown.stdout, 'The books do not balance. What differs: 1\n');
  t.match(
    shown.stdout,
    `\n  ${id}: the owner of the name acme is nothing, should be ${id} (record ${id} of table accounts)\n`,
  );
  t.match(shown.stdout, 'restore the store from a backup');
  const json = await run(folder, '--json');
  t.equal(json.code, 1);
  t.match(json.json(), {
    ok: false,
    differences: [
      {
        account: id,
        place: `record ${id} of table accounts`,
        what: 'the owner of the name acme',
        is: 'nothing',
        should_be: id,
      },
    ],
    differences_count: 1,
  });
});

void t.test('no books, no repair, wrong usage', async (t) => {
  const folder = t.testdir();
  const none = await run(folder);
  t.equal(none.code, 1);
  t.match(none.stderr, `There are no books in ${join(folder, 'data')}`);
  t.equal((await run(folder, '--data', join(folder, 'elsewhere'))).code, 1);
  const repair = await run(folder, '--repair');
  t.equal(repair.code, 2);
  t.match(repair.stderr, /does not repair.*restore the store from a backup/);
  t.notMatch((await run(folder, '--help')).stdout, /repair/);
  t.equal((await run(folder, '--nope')).code, 2);
  t.equal((await run(folder, 'extra')).code, 2);
});
