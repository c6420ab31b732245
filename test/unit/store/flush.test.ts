import t from 'tap';
import { asAccountIndex, asCallSlot, asPicoUnits, type AccountIndex } from '#src/core/units.js';
import type { SpendingRecord } from '#src/registry/account-record.js';
import { LedgerFlush, type SpendingStore } from '#src/store/flush.js';
import { ListLog, openHouse } from './support.js';

const FIRST = asAccountIndex(0);

void t.test('totals of changed accounts, and of those alone, are written; once', async (t) => {
  const { store, registry, ledger, clock } = openHouse(t.testdir());
  const written: ReadonlyMap<AccountIndex, SpendingRecord>[] = [];
  const counted: SpendingStore = {
    putBooks: (rows) => {
      written.push(new Map(rows.spendings));
      store.putBooks(rows);
    },
  };
  const flush = new LedgerFlush({ ledger, store: counted, clock, log: new ListLog() });
  for (const name of ['a', 'b'])
    registry.createAccount({ name, planId: 'free', credit: asPicoUnits(1_000n) });
  t.equal(flush.run(), true);
  t.equal(written.length, 0, 'nothing was spent');

  ledger.takeMinute(FIRST, 60);
  t.equal(ledger.admit(asCallSlot(0), FIRST, 10, asPicoUnits(300n)), 'admitted');
  ledger.settle(asCallSlot(0), asPicoUnits(250n));
  t.equal(flush.run(), true);
  t.equal(flush.run(), true);
  t.equal(written.length, 1);
  t.same([...written[0]!.keys()], [FIRST]);
  t.match(store.findSpending(FIRST), { spent: 250n, uncovered: 0n, dayCalls: 1, minuteUsed: 1 });

  store.putBooks({ spendings: written[0]!, usages: [] });
  t.match(store.findSpending(FIRST), { spent: 250n, dayCalls: 1 }, 'replay changes nothing');
  await store.close();
});

void t.test('a failed flush is told and loses nothing', async (t) => {
  const { store, registry, ledger, clock } = openHouse(t.testdir());
  const log = new ListLog();
  let broken = true;
  const flaky: SpendingStore = {
    putBooks: (rows) => {
      if (broken) throw new Error('no space left on device');
      store.putBooks(rows);
    },
  };
  const flush = new LedgerFlush({ ledger, store: flaky, clock, log });
  for (const name of ['a', 'b'])
    registry.createAccount({ name, planId: 'free', credit: asPicoUnits(1_000n) });
  const spend = (account: number, cost: bigint) => {
    ledger.admit(asCallSlot(0), asAccountIndex(account), 10, asPicoUnits(cost));
    ledger.settle(asCallSlot(0), asPicoUnits(cost));
  };
  spend(0, 10n);
  spend(1, 20n);
  t.equal(flush.run(), false);
  t.match(log.lines, [/^error charges could not be written/]);
  t.equal(store.findSpending(FIRST), undefined);

  spend(1, 5n);
  broken = false;
  t.equal(flush.run(), true);
  t.equal(store.findSpending(FIRST)?.spent, 10n, 'kept from the failed run');
  t.equal(store.findSpending(asAccountIndex(1))?.spent, 25n, 'replaced by the newer total');
  await store.close();
});
