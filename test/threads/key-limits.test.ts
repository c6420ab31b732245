/**
 * Four threads on keys with limits of their own: never one request too many for a key, never one too many for
 * their account. The test moves the time, so nothing waits for a clock.
 */
import t from 'tap';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { Ledger } from '#src/ledger/ledger.js';
import { TICK_MS } from '#src/ledger/window.js';
import { asAccountIndex, asKeyIndex, asMonotonicMs, asPicoUnits, asWallMs } from '#src/core/units.js';
import { takePermits } from '#src/request/rate-limit.js';
import { createHammers } from '../fixtures/ledger-hammers.js';
import { TIME, type AdmittedCount } from '../fixtures/ledger-hammer.js';
import { stateOf } from '../fixtures/ledger-world.js';
import { newSeed, randomBelow } from '../support/random.js';

/** A permit weighs in its own tick and the 50 after it. */
const SPAN_TICKS = 51;
const MOVES = 120;
const CALLS_PER_MOVE = 400;
const ACCOUNT = asAccountIndex(0);
const KEYS = 3;

/** Limits of three keys of one account; no clock is read but the test's. */
function keyedLedger(
  time: () => number,
  limit: { requestsPerMinute: number | undefined; callsPerDay: number | undefined },
) {
  const buffers = createLedgerBuffers({ accountsMax: 1, callsInFlightMax: 8, keysMax: KEYS });
  const ledger = new Ledger(buffers, {
    monotonicMs: () => asMonotonicMs((time() + 0.5) * TICK_MS),
    wallMs: () => asWallMs(1_000_000_000_000),
  });
  ledger.openAccount(ACCOUNT, stateOf({ credited: asPicoUnits(0n) }));
  for (let key = 0; key < KEYS; key++) ledger.keys.open(asKeyIndex(key), limit);
  return { buffers, ledger };
}

/** The most that was surely admitted within one span. */
function mostInASpan(admitted: readonly AdmittedCount[]): number {
  const ends = new Set(admitted.map(([, , after]) => after));
  let most = 0;
  for (const end of ends) {
    const inside = admitted.filter(([, before, after]) => before > end - SPAN_TICKS && after <= end);
    most = Math.max(
      most,
      inside.reduce((sum, [, , , count]) => sum + count, 0),
    );
  }
  return most;
}

const scopesOf = (key: number, ofKey: number, ofPlan: number) =>
  [
    { kind: 'key', index: key, limit: ofKey },
    { kind: 'account', index: ACCOUNT, limit: ofPlan },
  ] as const;

for (const { ofKey, ofPlan } of [
  { ofKey: 1, ofPlan: 2 },
  { ofKey: 10, ofPlan: 1_000 },
  { ofKey: 400, ofPlan: 1_000 },
  { ofKey: 1_000, ofPlan: 400 },
  { ofKey: 50_000, ofPlan: 60_000 },
]) {
  void t.test(`${ofKey} a key, ${ofPlan} the account, while the time moves`, async (t) => {
    const seed = newSeed();
    t.comment(`seed ${seed}`);
    const random = randomBelow(seed);
    let time = () => 0;
    const limit = { requestsPerMinute: ofKey, callsPerDay: undefined };
    const { buffers, ledger } = keyedLedger(() => time(), limit);
    const hammers = await createHammers(
      { buffers, tickMs: TICK_MS, accounts: KEYS, work: 'keys', limit: ofKey, otherLimit: ofPlan, seed },
      3,
    );
    const { steering } = hammers;
    time = () => Atomics.load(steering, TIME);
    Atomics.store(steering, TIME, 1_000);
    hammers.go();
    const admitted: AdmittedCount[] = [];
    for (let move = 0; move < MOVES; move++) {
      for (let call = 0; call < CALLS_PER_MOVE; call++) {
        const key = random(KEYS);
        const tick = time();
        if (takePermits(scopesOf(key, ofKey, ofPlan), ledger).admitted) admitted.push([key, tick, tick, 1]);
      }
      Atomics.add(steering, TIME, [1, 1, 2, 7, 50, 51][random(6)]!);
    }
    hammers.stop();
    for (const report of await hammers.reports) admitted.push(...report.admitted);
    for (let key = 0; key < KEYS; key++) {
      const most = mostInASpan(admitted.filter(([of]) => of === key));
      t.ok(most > 0 && most <= ofKey, `key ${key}: at most ${most} of ${ofKey}`);
    }
    const most = mostInASpan(admitted);
    t.ok(most > 0 && most <= ofPlan, `account: at most ${most} of ${ofPlan}`);
  });
}

for (const { ofKey, ofPlan, exactly } of [
  { ofKey: 20_000, ofPlan: 1_000_000, exactly: 60_000 },
  { ofKey: 30_000, ofPlan: 40_000, exactly: 40_000 },
]) {
  void t.test(`the time stands still: ${ofKey} a key, ${ofPlan} the account`, async (t) => {
    const limit = { requestsPerMinute: ofKey, callsPerDay: undefined };
    const { buffers, ledger } = keyedLedger(() => 0, limit);
    const hammers = await createHammers(
      { buffers, tickMs: TICK_MS, accounts: KEYS, work: 'keys', limit: ofKey, otherLimit: ofPlan, seed: 1 },
      4,
    );
    hammers.go();
    const sums = [0, 0, 0];
    for (let key = 0; key < KEYS; key++) {
      const take = () => takePermits(scopesOf(key, ofKey, ofPlan), ledger).admitted;
      while (take()) sums[key]!++;
    }
    hammers.stop();
    for (const report of await hammers.reports) {
      for (const [key, , , count] of report.admitted) sums[key]! += count;
    }
    t.ok(
      sums.every((sum) => sum <= ofKey),
      `of the keys ${sums.join(', ')}`,
    );
    const sum = sums[0]! + sums[1]! + sums[2]!;
    t.equal(sum, exactly, 'nothing of the tighter limit is lost');
    t.equal(ledger.minute.usedOf(ACCOUNT), sum);
  });
}

void t.test('days of keys, taken and given back by four threads', async (t) => {
  const calls = 20_000;
  const callsPerDay = 9_000;
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const { buffers, ledger } = keyedLedger(() => 0, { requestsPerMinute: undefined, callsPerDay });
  const hammers = await createHammers(
    {
      buffers,
      tickMs: TICK_MS,
      accounts: KEYS,
      work: 'days',
      limit: calls,
      otherLimit: callsPerDay,
      seed,
    },
    4,
  );
  hammers.go();
  const reports = await hammers.reports;
  const settled = reports.reduce((sum, report) => sum + report.settled, 0);
  const counts = [0, 1, 2].map((key) => ledger.keys.countsOf(asKeyIndex(key)).dayCalls);
  t.same(counts, [callsPerDay, callsPerDay, callsPerDay], 'each key has used its day up, and no more');
  t.equal(settled, KEYS * callsPerDay, 'and every call that counts was served');
  t.equal(ledger.day.read(ACCOUNT).dayCalls, settled, 'the account has the same calls');
  t.ok(reports.every(({ released }) => released > 0));
});
