/**
 * Several threads on one account, and on several, while the time moves: never one permit too many. The test
 * itself moves the time, between calls of its own, so it never waits for a clock.
 */
import t from 'tap';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { Ledger } from '#src/ledger/ledger.js';
import { TICK_MS } from '#src/ledger/window.js';
import { asAccountIndex, asMonotonicMs, asWallMs } from '#src/core/units.js';
import { createHammers } from '../fixtures/ledger-hammers.js';
import { TIME, type AdmittedCount } from '../fixtures/ledger-hammer.js';
import { stateOf } from '../fixtures/ledger-world.js';
import { newSeed, randomBelow } from '../support/random.js';

/** A permit weighs in its own tick and the 50 after it: that span is longer than a minute. */
const SPAN_TICKS = 51;
const MOVES = 120;
const CALLS_PER_MOVE = 400;

/** The most that was surely admitted to an account within one span. */
function mostInASpan(admitted: readonly AdmittedCount[], account: number): number {
  const own = admitted.filter(([of]) => of === account);
  const ends = new Set(own.map(([, , after]) => after));
  let most = 0;
  for (const end of ends) {
    const inside = own.filter(([, before, after]) => before > end - SPAN_TICKS && after <= end);
    most = Math.max(
      most,
      inside.reduce((sum, [, , , count]) => sum + count, 0),
    );
  }
  return most;
}

for (const { limit, accounts } of [
  { limit: 1, accounts: 1 },
  { limit: 10, accounts: 1 },
  { limit: 1_000, accounts: 1 },
  { limit: 100_000, accounts: 1 },
  { limit: 3, accounts: 5 },
  { limit: 500, accounts: 5 },
]) {
  void t.test(`limit ${limit}, ${accounts} accounts, 3 threads and the test's own`, async (t) => {
    const seed = newSeed();
    t.comment(`seed ${seed}`);
    const random = randomBelow(seed);
    const buffers = createLedgerBuffers({ accountsMax: accounts, callsInFlightMax: 1 });
    const hammers = await createHammers(
      { buffers, tickMs: TICK_MS, accounts, work: 'minute', limit, seed },
      3,
    );
    const { steering } = hammers;
    const ledger = new Ledger(buffers, {
      monotonicMs: () => asMonotonicMs((Atomics.load(steering, TIME) + 0.5) * TICK_MS),
      wallMs: () => asWallMs(1_000_000_000_000),
    });
    for (let account = 0; account < accounts; account++)
      ledger.openAccount(asAccountIndex(account), stateOf());
    Atomics.store(steering, TIME, 1_000);
    hammers.go();
    const admitted: AdmittedCount[] = [];
    for (let move = 0; move < MOVES; move++) {
      for (let call = 0; call < CALLS_PER_MOVE; call++) {
        const account = random(accounts);
        const tick = Atomics.load(steering, TIME);
        if (ledger.minute.take(asAccountIndex(account), limit).admitted)
          admitted.push([account, tick, tick, 1]);
      }
      Atomics.add(steering, TIME, [1, 1, 2, 7, 50, 51][random(6)]!);
    }
    hammers.stop();
    for (const report of await hammers.reports) admitted.push(...report.admitted);
    for (let account = 0; account < accounts; account++) {
      const most = mostInASpan(admitted, account);
      t.ok(most > 0 && most <= limit, `account ${account}: at most ${most} of ${limit}`);
    }
  });
}

void t.test('the time stands still: exactly the limit, all threads together', async (t) => {
  const limit = 50_000;
  const buffers = createLedgerBuffers({ accountsMax: 1, callsInFlightMax: 1 });
  const hammers = await createHammers(
    { buffers, tickMs: TICK_MS, accounts: 1, work: 'minute', limit, seed: 1 },
    4,
  );
  hammers.go();
  const ledger = new Ledger(buffers, {
    monotonicMs: () => asMonotonicMs(0.5 * TICK_MS),
    wallMs: () => asWallMs(0),
  });
  let own = 0;
  while (ledger.minute.take(asAccountIndex(0), limit).admitted) own++;
  hammers.stop();
  let sum = own;
  for (const report of await hammers.reports) {
    for (const [, , , count] of report.admitted) sum += count;
  }
  t.equal(sum, limit);
});
