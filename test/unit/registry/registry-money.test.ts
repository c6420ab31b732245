/** Credits and debits: the law holds after each, on disk and in the words, also when the disk fails. */
import t from 'tap';
import type { Test } from 'tap';
import { BALANCE_PICO_UNITS_MAX, decimalOf } from '#src/core/money.js';
import { asCallSlot, asPicoUnits, type PicoUnits } from '#src/core/units.js';
import { CREDITED_PICO_UNITS_MAX } from '#src/ledger/balance.js';
import type { AccountStatement } from '#src/registry/account-statement.js';
import { ListLog, flushOf, offlineRegistry, openHouse, serve, type House } from '../store/support.js';
import { admitTo } from '../../fixtures/ledger-world.js';

const pico = asPicoUnits;
const refused = (message: RegExp) => ({ code: 'invalid_parameters', message });

function checkLaw(t: Test, { store, ledger }: House, statement: AccountStatement, name: string): void {
  const { record, available, held, spent } = statement;
  t.equal(record.credited, available + held + spent, `${name}: credited = available + held + spent`);
  t.equal(ledger.snapshot(record.index).credited, record.credited, `${name}: the words have it too`);
  t.same(store.findAccount(record.id), record, `${name}: and the disk`);
  const journal = store
    .listCredits(record.index, 0, 1_000)
    .items.reduce((sum, { amount }) => sum + amount, 0n);
  t.equal(journal, record.credited, `${name}: and the journal adds up`);
}

/** An account with 1,000 pico-units of which a call that ended cost 100 and one that runs holds 300. */
function busyHouse(path: string): House & { index: AccountStatement['record']['index'] } {
  const house = openHouse(path);
  const { index } = house.registry.accounts.create({
    name: 'acme',
    planId: 'free',
    credit: pico(1_000n),
  }).record;
  serve(house, index, 100n);
  admitTo(house.ledger, asCallSlot(1), index, 10, pico(300n));
  return { ...house, index };
}

void t.test('credits and debits of a running gateway', async (t) => {
  const house = busyHouse(t.testdir());
  const { registry, ledger, store, index } = house;
  checkLaw(t, house, registry.accounts.find('acme'), 'at first');
  const credited = registry.credits.add('acme', pico(50n), 'a present');
  t.match(credited, { available: 650n, held: 300n, spent: 100n });
  checkLaw(t, house, credited, 'credit');
  const debited = registry.credits.add('acme', pico(-649n), '');
  t.match(debited, { available: 1n, held: 300n, spent: 100n });
  checkLaw(t, house, debited, 'debit');
  t.throws(
    () => registry.credits.add('acme', pico(-2n), ''),
    refused(/^amount must not take more than the balance of 0\.000000000001$/),
    'what is held cannot be taken',
  );
  checkLaw(t, house, registry.credits.add('acme', pico(-1n), ''), 'the last');
  t.equal(ledger.balance.available(index), 0n);
  t.same(
    store.listCredits(index, 0, 1_000).items.map(({ amount, note }) => [amount, note]),
    [
      [1_000n, 'opening balance'],
      [50n, 'a present'],
      [-649n, ''],
      [-1n, ''],
    ],
  );
  await store.close();
});

void t.test('what cannot be credited changes nothing', async (t) => {
  const house = busyHouse(t.testdir());
  const { registry, store } = house;
  t.throws(() => registry.credits.add('acme', pico(0n), ''), refused(/^amount must not be zero$/));
  t.throws(() => registry.credits.add('nobody', pico(1n), ''), { code: 'not_found' });
  t.throws(() => registry.credits.add('nobody', pico(-1n), ''), { code: 'not_found' });
  const long = 'x'.repeat(501);
  for (const amount of [1n, -1n]) {
    t.throws(
      () => registry.credits.add('acme', pico(amount), long),
      refused(/^note must have at most 500 characters, got 501$/),
    );
  }
  registry.credits.add('acme', pico(1n), long.slice(1));
  registry.credits.add('acme', pico(-1n), '');
  t.match(registry.accounts.find('acme'), { available: 600n, held: 300n, spent: 100n });
  checkLaw(t, house, registry.accounts.find('acme'), 'after');
  await store.close();
});

void t.test('the sum of all credits has a bound', async (t) => {
  const house = openHouse(t.testdir());
  const { registry, store } = house;
  registry.accounts.create({ name: 'rich', planId: 'free', credit: BALANCE_PICO_UNITS_MAX });
  registry.credits.add('rich', BALANCE_PICO_UNITS_MAX, '');
  const room = pico(CREDITED_PICO_UNITS_MAX - 2n * BALANCE_PICO_UNITS_MAX);
  const tooMuch = pico(room + 1n);
  t.throws(
    () => registry.credits.add('rich', tooMuch, ''),
    refused(new RegExp(`at or below ${decimalOf(CREDITED_PICO_UNITS_MAX)}, and it is 6000000.00 already`)),
  );
  checkLaw(t, house, registry.accounts.find('rich'), 'refused');
  const full = registry.credits.add('rich', room, '');
  t.equal(full.available, CREDITED_PICO_UNITS_MAX);
  checkLaw(t, house, full, 'full');
  checkLaw(t, house, registry.credits.add('rich', pico(0n - CREDITED_PICO_UNITS_MAX), ''), 'emptied');
  await store.close();
});

void t.test('a disk that fails rolls the words back', async (t) => {
  const house = busyHouse(t.testdir());
  const { registry, store } = house;
  const before = registry.accounts.find('acme');
  const addCredit = store.addCredit.bind(store);
  const openCredits = store.openCredits.bind(store);
  store.addCredit = store.openCredits = () => {
    throw new Error('no space left');
  };
  for (const amount of [-600n, -1n, 1n]) {
    t.throws(
      () => registry.credits.add('acme', pico(amount), ''),
      { message: 'no space left' },
      String(amount),
    );
    t.same(registry.accounts.find('acme'), before, 'nothing has changed');
  }
  t.throws(() => registry.accounts.create({ name: 'b', planId: 'free', credit: pico(1n) }), {
    message: 'no space left',
  });
  t.throws(() => registry.accounts.find('b'), { code: 'not_found' });
  store.addCredit = addCredit;
  store.openCredits = openCredits;
  checkLaw(t, house, registry.credits.add('acme', pico(-600n), ''), 'again with a disk');
  await store.close();
});

void t.test('a debit whose commit fails is given back only if the disk does not have it', async (t) => {
  const house = busyHouse(t.testdir());
  const { registry, store, ledger, index } = house;
  const commit = store.commit.bind(store);
  const failing = { message: 'the disk is gone' };
  const fail = (): never => {
    throw new Error(failing.message);
  };

  store.commit = fail;
  t.throws(() => registry.credits.add('acme', pico(-100n), ''), failing);
  t.equal(ledger.balance.available(index), 600n, 'nothing was begun');

  store.commit = (work) =>
    commit(() => {
      work();
      return fail();
    });
  t.throws(() => registry.credits.add('acme', pico(-100n), ''), failing);
  t.equal(ledger.balance.available(index), 600n, 'the transaction was undone');

  store.commit = (work) => {
    commit(work);
    return fail();
  };
  t.throws(() => registry.credits.add('acme', pico(-100n), ''), failing);
  t.equal(ledger.balance.available(index), 500n, 'the disk has the debit');
  store.commit = commit;
  checkLaw(t, house, registry.accounts.find('acme'), 'as on disk');

  const findAccount = store.findAccount.bind(store);
  store.commit = (work) => {
    commit(work);
    store.findAccount = fail;
    return fail();
  };
  t.throws(() => registry.credits.add('acme', pico(-100n), ''), failing);
  t.equal(ledger.balance.available(index), 400n, 'nobody knows, so it stays taken');
  store.findAccount = findAccount;
  store.commit = commit;
  checkLaw(t, house, registry.accounts.find('acme'), 'as on disk');
  await store.close();
});

void t.test('a credit whose commit fails is in the words if the disk has it', async (t) => {
  const house = busyHouse(t.testdir());
  const { registry, store, ledger, index } = house;
  const commit = store.commit.bind(store);
  const fail = (): never => {
    throw new Error('the disk is gone');
  };
  store.commit = (work) =>
    commit(() => {
      work();
      return fail();
    });
  t.throws(() => registry.credits.add('acme', pico(50n), ''), { message: 'the disk is gone' });
  t.equal(ledger.balance.available(index), 600n, 'the transaction was undone');
  store.commit = (work) => {
    commit(work);
    return fail();
  };
  t.throws(() => registry.credits.add('acme', pico(50n), ''), { message: 'the disk is gone' });
  t.equal(ledger.balance.available(index), 650n, 'the disk has the credit');
  store.commit = commit;
  checkLaw(t, house, registry.accounts.find('acme'), 'as on disk');
  await store.close();
});

void t.test('without a gateway the flushed totals say what is there', async (t) => {
  const house = busyHouse(t.testdir());
  const { registry, store, clock } = house;
  flushOf(house, new ListLog()).run();
  const offline = offlineRegistry(store, clock);
  t.match(offline.accounts.find('acme'), { available: 900n, held: 0n, spent: 100n, callsToday: 2 });
  t.throws(
    () => offline.credits.add('acme', pico(-901n), ''),
    refused(/^amount must not take more than the balance of 0\.0000000009$/),
  );
  t.match(offline.credits.add('acme', pico(-900n), ''), { available: 0n, spent: 100n });
  const credited: PicoUnits = offline.credits.add('acme', pico(7n), 'back').record.credited;
  t.equal(credited, 107n);
  const sum = store
    .listCredits(registry.accounts.find('acme').record.index, 0, 1_000)
    .items.reduce((all, { amount }) => all + amount, 0n);
  t.equal(sum, 107n);
  await store.close();
});

void t.test('two commands at once cannot take the same money', async (t) => {
  const { store, clock, registry } = openHouse(t.testdir());
  registry.accounts.create({ name: 'acme', planId: 'free', credit: pico(10n) });
  const [first, second] = [offlineRegistry(store, clock), offlineRegistry(store, clock)];
  const commit = store.commit.bind(store);
  store.commit = (work) => {
    // The second command's transaction comes before the first's, as late as it can.
    store.commit = commit;
    t.equal(second.credits.add('acme', pico(-10n), '').available, 0n);
    return commit(work);
  };
  t.throws(() => first.credits.add('acme', pico(-1n), ''), refused(/the balance of 0\.00$/));
  t.equal(store.findAccountByName('acme')?.credited, 0n);
  await store.close();
});
