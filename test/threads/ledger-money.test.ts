/**
 * Several threads spend the money of a few accounts: nothing is made, nothing is lost, nobody goes below
 * zero.
 */
import t from 'tap';
import { SystemClock } from '#src/core/clock.js';
import { asAccountIndex, asPicoUnits } from '#src/core/units.js';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { Ledger, type AccountSnapshot } from '#src/ledger/ledger.js';
import { SLOTS_PER_THREAD } from '../fixtures/ledger-hammer.js';
import { createHammers } from '../fixtures/ledger-hammers.js';
import { stateOf } from '../fixtures/ledger-world.js';
import { newSeed } from '../support/random.js';

const THREADS = 3;
const CALLS = 60_000;
const CREDIT = 1_000_000n;

for (const accounts of [1, 40]) {
  void t.test(`${accounts} accounts, ${THREADS} threads, credits and drains meanwhile`, async (t) => {
    const seed = newSeed();
    t.comment(`seed ${seed}`);
    const buffers = createLedgerBuffers({
      accountsMax: accounts,
      callsInFlightMax: THREADS * SLOTS_PER_THREAD,
    });
    const hammers = await createHammers(
      { buffers, tickMs: 1, accounts, work: 'money', limit: CALLS, seed },
      THREADS,
    );
    const ledger = new Ledger(buffers, new SystemClock());
    const indices = Array.from({ length: accounts }, (_, account) => asAccountIndex(account));
    for (const account of indices) ledger.openAccount(account, stateOf({ credited: asPicoUnits(CREDIT) }));
    hammers.go();

    const drained = new Map<number, AccountSnapshot>();
    const drain = (): number =>
      ledger.dirty.drain((account) => drained.set(account, ledger.snapshot(account)), 64);
    const race = { done: false };
    let [credited, looks, faults] = [CREDIT * BigInt(accounts), 0, 0];
    const reports = hammers.reports.finally(() => (race.done = true));
    for (let n = 0; !race.done; n++) {
      const account = indices[n % accounts]!;
      const { available, held, spent, ...rest } = ledger.snapshot(account);
      if (available < 0n || held < 0n || available + held + spent !== rest.credited) faults++;
      if (n % 5 === 0 && ledger.credit(account, asPicoUnits(50n))) credited += 50n;
      if (n % 7 === 0 && ledger.credit(account, asPicoUnits(-30n))) credited -= 30n;
      if (n % 11 === 0) drain();
      looks++;
      // Lets the reports of the threads come in.
      if (n % 64 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    const all = await reports;
    drain();
    t.equal(faults, 0, `the law at each of ${looks} looks`);

    const sum = (of: (snapshot: AccountSnapshot) => bigint): bigint =>
      indices.reduce((total, account) => total + of(ledger.snapshot(account)), 0n);
    const calls = all.reduce((total, report) => total + report.settled, 0);
    t.equal(
      sum((account) => account.held),
      0n,
      'no call is open, nothing is held',
    );
    t.equal(
      sum((account) => account.credited),
      credited,
    );
    t.equal(
      sum((account) => account.spent),
      all.reduce((total, report) => total + report.charged, 0n),
      'spent is what was charged',
    );
    t.equal(
      sum((account) => account.uncovered),
      all.reduce((total, report) => total + report.uncovered, 0n),
    );
    t.equal(
      sum((account) => account.available),
      credited - sum((account) => account.spent),
    );
    t.equal(
      sum((account) => BigInt(account.dayCalls)),
      BigInt(calls),
      'released calls came back to the day',
    );
    t.ok(all.every((report) => report.settled > 0 && report.released > 0));
    for (const account of indices)
      t.same(drained.get(account), ledger.snapshot(account), 'no change was missed');
  });
}
