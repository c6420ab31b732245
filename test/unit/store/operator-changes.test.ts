/** Operators' changes: what a row says, and that whatever is done to the rows on disk is found and named. */
import { hash } from 'node:crypto';
import t, { type Test } from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { type FieldValue, HASHED_CHANGE, type OperatorChange } from '#src/registry/operator-change.js';
import { ownRegistryService, type RegistryService } from '#src/registry/registry.js';
import { OperatorChanges } from '#src/store/operator-changes.js';
import { Store } from '#src/store/store.js';
import { openTables, type Tables } from '#src/store/tables.js';
import { audit } from '#src/store/audit.js';
import { offlineRegistry, StoppedClock, TESTER } from './support.js';

const none = asPicoUnits(0n);
const one = asPicoUnits(1_000_000_000_000n);

interface Row {
  format: number;
  text: string;
  hash: string;
}

function serviceOf(store: Store, told: OperatorChange[] = []): RegistryService {
  return ownRegistryService(offlineRegistry(store, new StoppedClock()), (change) => told.push(change));
}

/** A data directory whose chain has six rows. */
async function sixChanges(t: Test): Promise<string> {
  const path = t.testdir();
  const store = new Store(path);
  const service = serviceOf(store);
  await service.change(TESTER, ({ accounts }) =>
    accounts.create({ name: 'a', planId: 'free', credit: none }),
  );
  for (let at = 0; at < 5; at++)
    await service.change(TESTER, ({ credits }) => credits.add('a', one, `${at}`));
  await store.close();
  return path;
}

/** What the check says after `tamper` had the tables. */
async function problemsAfter(
  t: Test,
  tamper: (tables: Tables, rows: Row[]) => void,
): Promise<[number, string][]> {
  const path = await sixChanges(t);
  const tables = openTables(path);
  const rows = Array.from(tables.operatorChanges.getRange(), ({ value }) => ({ ...(value as Row) }));
  t.equal(rows.length, 6);
  tables.environment.write(() => tables.recorder.record(() => tamper(tables, rows)));
  await tables.environment.close();
  const store = new Store(path);
  const { problems } = await store.operatorChanges.verify();
  await store.close();
  const { differences } = await audit(path, { accountsMax: 10, keysMax: 10, groupsMax: 10 });
  const ofChain = differences.filter(({ location }) => location.includes('operator_changes'));
  t.equal(ofChain.length, problems.length, 'the audit says the same');
  return problems.map(({ number, problem }) => [number, problem]);
}

void t.test('a row says who changed what, from what to what', async (t) => {
  const path = t.testdir();
  const store = new Store(path);
  const told: OperatorChange[] = [];
  const service = serviceOf(store, told);
  const created = await service.change(TESTER, ({ groups, accounts, keys, operators }) => {
    t.ok(groups);
    t.ok(operators);
    t.ok(keys);
    return accounts.create({ name: 'a', planId: 'free', credit: one });
  });
  await service.change(TESTER, ({ accounts }) => accounts.setPlan('a', 'paid'));
  await service.change(TESTER, ({ groups }) => groups.create({ name: 'g', limits: { tokensPerDay: 5 } }));
  await service.change(TESTER, ({ accounts }) => accounts.setGroup('a', 'g'));
  const key = await service.change(TESTER, ({ keys }) => keys.create({ account: 'a', name: 'k' }));
  const rotated = await service.change(TESTER, ({ keys }) => keys.rotate(key.record.id, 60));
  await service.change(TESTER, ({ credits }) => credits.add('a', one, 'thanks'));
  const ann = await service.change(TESTER, ({ operators }) =>
    operators.create({ name: 'ann', role: 'viewer' }),
  );
  const again = await service.change(TESTER, ({ operators }) => operators.rotate('ann', {}));
  await service.change(TESTER, ({ operators }) => operators.delete('ann'));
  await service.change(TESTER, ({ accounts }) => accounts.find('a'));
  await t.rejects(async () => service.change(TESTER, ({ accounts }) => accounts.setPlan('a', 'none')));

  const { items, next } = store.operatorChanges.page({}, undefined, 100);
  t.equal(next, undefined);
  t.same([...items].reverse(), told, 'what was read and what was refused made none');
  t.same(
    told.map(({ number }) => number),
    Array.from({ length: 10 }, (_, at) => at + 1),
  );
  const [account, plan, group, moved, made, turned, credit, hired, token, gone] = told;
  t.match(account, {
    who: 'tester',
    role: 'admin',
    from: 'test',
    action: 'test.change',
    at_ms: new StoppedClock().nowMs,
    target: { type: 'account', id: created.record.id, name: 'a' },
  });
  t.same(account?.changes, [
    { field: 'name', before: null, after: 'a' },
    { field: 'plan', before: null, after: 'free' },
    { field: 'status', before: null, after: 'active' },
    { field: 'credited', before: null, after: '1.00' },
    { field: 'amount', before: null, after: '1.00' },
    { field: 'note', before: null, after: account?.changes.at(-1)?.after },
  ]);
  t.same(plan?.changes, [{ field: 'plan', before: 'free', after: 'paid' }]);
  t.same(group?.changes, [
    { field: 'name', before: null, after: 'g' },
    { field: 'tokens_per_day', before: null, after: 5 },
  ]);
  t.same(moved?.changes, [{ field: 'group', before: null, after: 'g' }]);
  const fingerprint = hash('sha256', key.key).slice(0, 8);
  t.ok(made?.changes.some(({ field, after }) => field === 'fingerprint' && after === fingerprint));
  t.equal(turned?.target.id, key.record.id, 'of a rotation the former key');
  t.ok(turned?.changes.some(({ field, after }) => field === 'replaced_by' && after === rotated.record.id));
  t.ok(turned?.changes.some(({ field }) => field === `${rotated.record.id}.name`));
  t.same(credit?.changes, [
    { field: 'credited', before: '1.00', after: '2.00' },
    { field: 'amount', before: null, after: '1.00' },
    { field: 'note', before: null, after: 'thanks' },
  ]);
  t.equal(hired?.target.name, 'ann');
  t.same(token?.changes, [
    {
      field: 'fingerprint',
      before: hash('sha256', ann.token).slice(0, 8),
      after: hash('sha256', again.token).slice(0, 8),
    },
  ]);
  t.ok(gone?.changes.every(({ after }) => after === null));
  const all = JSON.stringify(told);
  for (const secret of [key.key, rotated.key, ann.token, again.token]) {
    t.notOk(all.includes(secret));
    t.notOk(all.includes(hash('sha256', secret)), 'nor the whole digest');
  }

  const keysOf = (filter: Parameters<typeof store.operatorChanges.page>[0]): number[] =>
    store.operatorChanges.page(filter, undefined, 100).items.map(({ number }) => number);
  t.same(keysOf({ target: 'a' }), [7, 4, 2, 1]);
  t.same(keysOf({ target: key.record.id }), [6, 5]);
  t.same(keysOf({ action: 'test' }).length, 10);
  t.same(keysOf({ action: 'test.change' }).length, 10);
  t.same(keysOf({ action: 'tes' }), []);
  t.same(keysOf({ who: 'ann' }), []);
  t.same(keysOf({ fromMs: new StoppedClock().nowMs + 1 }), []);
  t.same(keysOf({ toMs: new StoppedClock().nowMs - 1 }), []);
  const page = store.operatorChanges.page({}, undefined, 4);
  t.same([page.items.map(({ number }) => number), page.next], [[10, 9, 8, 7], 7]);
  t.same(
    store.operatorChanges.page({}, page.next, 100).items.map(({ number }) => number),
    [6, 5, 4, 3, 2, 1],
  );
  t.same(store.operatorChanges.page({}, 1, 100).items, []);
  await store.close();
});

void t.test('the hash is that of the hash before and the JSON of the row', async (t) => {
  const store = new Store(await sixChanges(t));
  let before = '';
  for (const { hash: own, ...row } of [...store.operatorChanges.page({}, undefined, 10).items].reverse()) {
    t.equal(own, hash('sha256', before + JSON.stringify(row)), 'of what the interface shows');
    t.same(Object.keys(row), Object.keys(HASHED_CHANGE), 'in the order that is documented');
    before = own;
  }
  t.same(await store.operatorChanges.verify(), {
    rows: 6,
    before: { number: 0, hash: '' },
    head: { number: 6, hash: before },
    problems: [],
  });
  await store.close();
});

void t.test('many records in one change make one row of bounded size', async (t) => {
  const store = new Store(t.testdir());
  const told: OperatorChange[] = [];
  const service = serviceOf(store, told);
  const items = Array.from({ length: 4 }, (_, at) => ({
    name: `a${at}`,
    planId: 'free',
    credit: none,
    keys: at < 3 ? [] : [{ name: 'k' }],
  }));
  await service.change(TESTER, (registry) => registry.createInBulk(items));
  t.equal(told.length, 1);
  const changes = Array.from({ length: 1_000 }, (_, at) => ({
    field: `f${at}`,
    before: null,
    after: 'x'.repeat(10_000),
  }));
  const target = { type: 'settings', id: null, name: null };
  await service.change(TESTER, (registry) => registry.record({ target, changes }));
  t.equal(told.length, 2);
  t.equal(told[1]?.changes.length, 201);
  t.same(told[1]?.changes.at(-1), { field: 'further fields', before: null, after: 800 });
  t.ok(JSON.stringify(told[1]).length < 100_000);
  t.same((await store.operatorChanges.verify()).problems, []);
  await store.close();
});

void t.test('any field of any row that is altered is found, and the row is named', async (t) => {
  for (const at of [0, 2, 5]) {
    const fields = ['number', 'at_ms', 'who', 'role', 'from', 'action', 'target', 'changes'];
    for (const field of fields) {
      const problems = await problemsAfter(t, ({ operatorChanges }, rows) => {
        const row = rows[at]!;
        const json = JSON.parse(row.text) as Record<string, unknown>;
        const other: Record<string, unknown> = {
          number: 9,
          at_ms: 1,
          role: 'viewer',
          target: { type: 'key', id: null, name: null },
          changes: [],
        };
        json[field] = other[field] ?? 'somebody';
        operatorChanges.putSync(at + 1, { ...row, text: JSON.stringify(json) });
      });
      t.match(problems, [[at + 1, /^it was altered/]], `${field} of row ${at + 1}`);
      t.equal(problems.length, 1);
    }
    const withSpace = await problemsAfter(t, ({ operatorChanges }, rows) =>
      operatorChanges.putSync(at + 1, { ...rows[at]!, text: `${rows[at]!.text} ` }),
    );
    t.match(withSpace, [[at + 1, /^it was altered/]], 'a space');
    const garbage = await problemsAfter(t, ({ operatorChanges }) =>
      operatorChanges.putSync(at + 1, 'garbage'),
    );
    t.equal(garbage[0]?.[0], at + 1);
    const hashed = await problemsAfter(t, ({ operatorChanges }, rows) =>
      operatorChanges.putSync(at + 1, { ...rows[at]!, hash: hash('sha256', 'other') }),
    );
    t.equal(hashed[0]?.[0], at + 1, 'its hash alone');
  }
});

void t.test('a row that is rewritten with a fitting hash breaks the one after it', async (t) => {
  const problems = await problemsAfter(t, ({ operatorChanges }, rows) => {
    const text = rows[2]!.text.replace('tester', 'nobody');
    operatorChanges.putSync(3, { ...rows[2]!, text, hash: hash('sha256', rows[1]!.hash + text) });
  });
  t.match(problems, [[4, /^it was altered/]]);
});

void t.test('rows that are removed, put in or swapped, and a tail that is cut', async (t) => {
  for (const number of [1, 3]) {
    t.same(await problemsAfter(t, ({ operatorChanges }) => operatorChanges.removeSync(number)), [
      [number, 'it was removed'],
    ]);
  }
  t.same(
    await problemsAfter(t, ({ operatorChanges }) => {
      operatorChanges.removeSync(5);
      operatorChanges.removeSync(6);
    }),
    [[5, 'it and those up to 6 were removed']],
  );
  const swapped = await problemsAfter(t, ({ operatorChanges }, rows) => {
    operatorChanges.putSync(3, rows[3]);
    operatorChanges.putSync(4, rows[2]);
  });
  t.same(
    swapped.map(([number]) => number),
    [3, 4, 5].slice(0, swapped.length),
  );
  t.ok(swapped.length >= 2);
  const inserted = await problemsAfter(t, ({ operatorChanges }, rows) => {
    const text = rows[5]!.text.replace('"number":6', '"number":7');
    operatorChanges.putSync(7, { ...rows[5]!, text, hash: hash('sha256', rows[5]!.hash + text) });
  });
  t.same(inserted, [[7, 'it was put behind the newest row, which is 6']]);
  const planted = await problemsAfter(t, ({ operatorChanges }, rows) => {
    operatorChanges.putSync(0, rows[0]);
    operatorChanges.putSync(1, { ...rows[0]!, text: `${rows[0]!.text} ` });
  });
  t.same(planted[0], [0, 'it was put before the oldest row that is kept']);
  t.match(planted.slice(1), [[1, /^it was altered/]], 'the oldest row is checked all the same');
  t.equal(planted.length, 2);
  const headless = await problemsAfter(t, ({ meta }) => meta.removeSync('operator_changes_head'));
  t.equal(headless[0]?.[0], 6);
  const emptied = await problemsAfter(t, ({ operatorChanges }) => {
    for (let number = 1; number <= 6; number++) operatorChanges.removeSync(number);
  });
  t.same(emptied, [[1, 'it and those up to 6 were removed']]);
});

void t.test('the oldest rows go, and the hash of the last of them is kept', async (t) => {
  const tables = openTables(t.testdir());
  const changes = new OperatorChanges(tables, (id) => id, 3);
  const write = (work: () => void): void => void tables.environment.write(() => tables.recorder.record(work));
  const add = (): void =>
    void changes.runAs({ ...TESTER, atMs: new StoppedClock().wallMs() }, () =>
      write(() => changes.record({ target: { type: 'log', id: null, name: null }, changes: [] })),
    );
  for (let at = 0; at < 3; at++) add();
  const { hash: second } = changes.page({}, undefined, 10).items[1]!;
  add();
  add();
  const report = await changes.verify();
  t.same(report.problems, []);
  t.equal(report.rows, 3);
  t.same(report.before, { number: 2, hash: second });
  write(() => tables.operatorChanges.removeSync(3));
  add();
  add();
  add();
  t.same((await changes.verify()).problems, [], 'what was removed is out of the range');
  write(() => tables.operatorChanges.removeSync(6));
  t.match((await changes.verify()).problems, [{ number: 6, problem: 'it was removed' }]);
  await t.rejects(changes.verify(AbortSignal.abort()), { code: 'internal_error' }, 'nobody waits for it');
  await tables.environment.close();
});

void t.test('a change whose row could not be read again is not made', async (t) => {
  const store = new Store(t.testdir());
  const service = serviceOf(store);
  const target = { type: 'log', id: null, name: null };
  for (const wrong of [undefined, {}, [1]] as unknown as FieldValue[])
    await t.rejects(
      async () =>
        service.change(TESTER, (registry) =>
          registry.record({ target, changes: [{ field: 'level', before: null, after: wrong }] }),
        ),
      /a row of test.change can be read again/,
    );
  await t.rejects(
    async () =>
      service.change(TESTER, (registry) =>
        registry.record({ target: { ...target, more: 1 } as typeof target, changes: [] }),
      ),
    /a row of test.change can be read again/,
  );
  t.same(store.operatorChanges.head(), { number: 0, hash: '' });
  await service.change(TESTER, (registry) => registry.record({ target, changes: [] }));
  t.match(await store.operatorChanges.verify(), { rows: 1, problems: [] });
  await store.close();
});

void t.test('work that returns a promise is refused, and not taken for done', async (t) => {
  const store = new Store(t.testdir());
  const registry = offlineRegistry(store, new StoppedClock());
  t.throws(() => registry.runAs(TESTER, async () => Promise.resolve()), /synchronous/);
  t.doesNotThrow(() => registry.runAs(TESTER, () => 0), 'and the next change is made');
  await store.close();
});

void t.test('an end of the chain that is none removes no row', async (t) => {
  const store = new Store(await sixChanges(t));
  for (const name of ['operator_changes_head', 'operator_changes_before'] as const) {
    const wrongEnds = [undefined, null, 5, {}, { number: -1, hash: '' }, { number: 2, hash: 'x' }];
    for (const value of wrongEnds)
      t.throws(() => store.commit(() => store.operatorChanges.applyLink(name, value)), { code: 'damaged' });
  }
  t.match(await store.operatorChanges.verify(), { rows: 6, problems: [] });
  await store.close();
});
