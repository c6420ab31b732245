/**
 * Three threads use what the main thread lends and takes back meanwhile: every permit, call and pico-unit is
 * where it was lent to, used once, or taken back once.
 */
import t from 'tap';
import {
  asAccountIndex,
  asKeyIndex,
  asMonotonicMs,
  asPicoUnits,
  asWallMs,
  type AccountIndex,
} from '#src/core/units.js';
import { dayNumberOf } from '#src/ledger/day.js';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { Leases } from '#src/ledger/leases.js';
import { Ledger } from '#src/ledger/ledger.js';
import { createHammers } from '../fixtures/ledger-hammers.js';
import { SLOTS_PER_THREAD, TIME } from '../fixtures/ledger-hammer.js';
import { stateOf } from '../fixtures/ledger-world.js';
import { addDay, addSlots, dayHeld, takeBackDay } from '../fixtures/day-leases.js';
import { newSeed, randomBelow } from '../support/random.js';

const THREADS = 3;
const ACCOUNTS = 2;
const KEYS = 3;
const ROUNDS = 20_000;
/** The hammers' calendar stands still here. */
const WALL_MS = asWallMs(1_000_000_000_000);
const TODAY = dayNumberOf(WALL_MS);
const TICK_MS = 1_000;
const pico = asPicoUnits;

function createWorld(time: () => number) {
  const buffers = createLedgerBuffers({
    accountsMax: ACCOUNTS,
    callsInFlightMax: THREADS * SLOTS_PER_THREAD,
    keysMax: KEYS,
    shared: true,
  });
  const clock = {
    monotonicMs: () => asMonotonicMs((time() + 0.5) * TICK_MS),
    wallMs: () => WALL_MS,
  };
  const ledger = new Ledger(buffers, clock);
  for (let account = 0; account < ACCOUNTS; account++) ledger.openAccount(asAccountIndex(account), stateOf());
  return { buffers, ledger, leases: new Leases(buffers, clock) };
}

/**
 * Lets the main thread `act` until the threads have made their calls; hands the turn on, so that they can say
 * so.
 */
async function actUntil<Result>(end: Promise<Result>, act: () => void): Promise<Result> {
  const turn = { isLast: false };
  const done = end.finally(() => (turn.isLast = true));
  while (!turn.isLast) {
    for (let acts = 0; acts < 100; acts++) act();
    await new Promise(setImmediate);
  }
  return done;
}

const accountsOf = (): AccountIndex[] => Array.from({ length: ACCOUNTS }, (_, n) => asAccountIndex(n));

void t.test('money', async (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const random = randomBelow(seed);
  const { buffers, ledger, leases } = createWorld(() => 0);
  for (const account of accountsOf()) {
    addDay(leases.accounts, account, TODAY, THREADS * ROUNDS, 0);
    addSlots(leases, account, THREADS * SLOTS_PER_THREAD);
  }
  const hammers = await createHammers(
    { buffers, tickMs: TICK_MS, accounts: ACCOUNTS, work: 'money', limit: ROUNDS, seed },
    THREADS,
  );
  hammers.go();
  let lent = 0n;
  const reports = await actUntil(hammers.reports, () => {
    const account = asAccountIndex(random(ACCOUNTS));
    const amount = pico(BigInt(random(500)));
    if (random(2) === 0) {
      leases.addMoney(account, amount, pico(0n));
      lent += amount;
    } else {
      lent -= leases.takeBackMoney(account, amount);
    }
  });
  const charged = reports.reduce((sum, report) => sum + report.charged, 0n);
  const settled = reports.reduce((sum, report) => sum + report.settled, 0);
  t.ok(settled > 0 && charged > 0n, `${settled} settled`);
  const sums = { credited: 0n, available: 0n, held: 0n, spent: 0n };
  for (const account of accountsOf()) {
    const funds = ledger.snapshot(account);
    t.ok(funds.available >= 0n);
    for (const name of ['credited', 'available', 'held', 'spent'] as const) sums[name] += funds[name];
  }
  t.same(sums, { credited: lent, available: lent - charged, held: 0n, spent: charged });
});

void t.test('calls of the day, of keys and their account', async (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const random = randomBelow(seed);
  const { buffers, ledger, leases } = createWorld(() => 0);
  const account = asAccountIndex(0);
  const keys = Array.from({ length: KEYS }, (_, n) => asKeyIndex(n));
  for (const key of keys) ledger.keys.open(key, { requestsPerMinute: undefined, callsPerDay: 10 });
  addSlots(leases, account, THREADS);
  const hammers = await createHammers(
    { buffers, tickMs: TICK_MS, accounts: KEYS, work: 'days', limit: ROUNDS, otherLimit: 10, seed },
    THREADS,
  );
  hammers.go();
  let lent = 0;
  const lentOfKeys = [0, 0, 0];
  const reports = await actUntil(hammers.reports, () => {
    const key = random(KEYS);
    const calls = random(4);
    switch (random(4)) {
      case 0:
        lent -= takeBackDay(leases.accounts, account);
        break;
      case 1:
        lentOfKeys[key]! -= takeBackDay(leases.keys, asKeyIndex(key));
        break;
      case 2:
        addDay(leases.accounts, account, TODAY, calls, 0);
        lent += calls;
        break;
      default:
        addDay(leases.keys, asKeyIndex(key), TODAY, calls, 0);
        lentOfKeys[key]! += calls;
    }
  });
  const settled = reports.reduce((sum, report) => sum + report.settled, 0);
  t.ok(settled > 0, `${settled} settled`);
  const ofAccount = dayHeld(leases.accounts, account);
  t.equal(ofAccount.used, settled, 'the account has used what was served');
  t.equal(ofAccount.used + ofAccount.unused, lent);
  let usedByKeys = 0;
  for (const key of keys) {
    const { used, unused } = dayHeld(leases.keys, key);
    t.equal(used + unused, lentOfKeys[key], `key ${key}`);
    usedByKeys += used;
  }
  t.equal(usedByKeys, settled);
  t.equal(ledger.snapshot(account).callsInFlight, 0);
});

void t.test('permits of the minute', async (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const random = randomBelow(seed);
  let time = () => 0;
  const { buffers, leases } = createWorld(() => time());
  const hammers = await createHammers(
    { buffers, tickMs: TICK_MS, accounts: ACCOUNTS, work: 'minute', limit: 1, seed },
    THREADS,
  );
  time = () => Atomics.load(hammers.steering, TIME);
  hammers.go();
  let [lent, back] = [0, 0];
  for (let round = 0; round < ROUNDS; round++) {
    const account = asAccountIndex(random(ACCOUNTS));
    const nowMs = (time() + 0.5) * TICK_MS;
    if (random(3) === 0) {
      back += leases.accounts.takeBackMinute(account);
    } else {
      const permits = 1 + random(4);
      lent += permits;
      const put = leases.accounts.addMinute(account, nowMs + 1_000_000, permits, 0, nowMs);
      if (put !== 'joined') back += put;
    }
    if (round % 100 === 0) await new Promise(setImmediate);
  }
  hammers.stop();
  const reports = await hammers.reports;
  const admitted = reports
    .flatMap((report) => report.admitted)
    .reduce((sum, [, , , count]) => sum + count, 0);
  for (const account of accountsOf()) back += leases.accounts.takeBackMinute(account);
  t.ok(admitted > 0, `${admitted} admitted`);
  t.equal(admitted + back, lent, 'each was used once, or taken back once');
});
