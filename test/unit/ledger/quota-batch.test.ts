/**
 * What is taken and settled of all quotas at once leaves the same words as one by one: three ledgers get the
 * same calls, and two of them have no batch. Further test: quotas.test.ts, in which each ledger has one.
 */
import { isDeepStrictEqual } from 'node:util';
import t from 'tap';
import { NO_QUOTAS } from '#src/core/quotas.js';
import { asAccountIndex, asCallSlot, asGroupIndex, asKeyIndex, asPicoUnits } from '#src/core/units.js';
import { createLedgerBuffers, openLedgerViews, SCRATCH_AREAS, SCRATCH_USED } from '#src/ledger/layout.js';
import { Ledger } from '#src/ledger/ledger.js';
import { QuotaBatch } from '#src/ledger/quota-batch.js';
import { FakeClock } from '../../fixtures/ledger-world.js';
import { newSeed, randomBelow } from '../../support/random.js';

const SLOTS = 8;
const ACCOUNT = asAccountIndex(0);

type Batch = 'batch' | 'no scratch area' | 'no memory of WebAssembly';

function openWorld(batch: Batch) {
  const clock = new FakeClock();
  const created = createLedgerBuffers({ accountsMax: 1, callsInFlightMax: SLOTS, keysMax: 1, groupsMax: 2 });
  const plain = { buffer: new SharedArrayBuffer(created.quotas.buffer.byteLength) };
  const buffers = batch === 'no memory of WebAssembly' ? { ...created, quotas: plain } : created;
  const views = openLedgerViews(buffers);
  if (batch === 'no scratch area') views.quotas.used[SCRATCH_USED] = SCRATCH_AREAS;
  const ledger = new Ledger(buffers, clock);
  const [spent, uncovered] = [asPicoUnits(0n), asPicoUnits(0n)];
  const credited = asPicoUnits(10n ** 18n);
  const account = { credited, spent, uncovered, dayNumber: 0, dayCalls: 0, planIndex: 0, active: true };
  ledger.openAccount(ACCOUNT, account);
  ledger.keys.open(asKeyIndex(0), { callsInFlight: 7, tokensPerMinute: 600, tokensPerMonth: 40_000 });
  const limits = { tokensPerDay: 3_000, spendPerMonth: asPicoUnits(10n ** 17n), callsPerMonth: 600 };
  ledger.groups.open(asGroupIndex(1), limits);
  ledger.groups.open(asGroupIndex(0), { tokensPerMinute: 4_000 }, { parent: asGroupIndex(1) });
  ledger.setGroup(ACCOUNT, asGroupIndex(0));
  return { clock, ledger, words: views.quotas.words64 };
}

void t.test('at random: the same words, the same results', (t) => {
  const below = randomBelow(newSeed());
  const worlds = (['batch', 'no scratch area', 'no memory of WebAssembly'] as const).map(openWorld);
  const quotas = { ...NO_QUOTAS, tokensPerDay: 12_000, spendPerDay: asPicoUnits(9n * 10n ** 16n) };
  const plan = { callsPerDay: 100_000, callsInFlightMax: SLOTS, quotas };
  const scopes = { account: ACCOUNT, plan, key: asKeyIndex(0), model: undefined };
  const counts = { admitted: 0, rejected: 0, settled: 0, takenAtOnce: 0 };
  const prototype = QuotaBatch.prototype as unknown as { take: (...args: unknown[]) => boolean };
  const { take } = prototype;
  t.teardown(() => (prototype.take = take));
  prototype.take = function (...args) {
    const isTaken = take.apply(this, args);
    if (isTaken) counts.takenAtOnce++;
    return isTaken;
  };
  const held: (number | undefined)[] = Array.from({ length: SLOTS });
  for (let step = 0; step < 20_000; step++) {
    const slot = below(SLOTS);
    // Round numbers, so that limits are reached exactly.
    const tokens = 50 * below(8);
    const passedMs = below(40) === 0 ? below(40) * 3_600_000 : below(2) * below(1_500);
    const setBack = below(300) === 0 ? below(3) * -86_400_000 : 0;
    const used = below(10) === 0 ? tokens + 50 : below(2) === 0 ? tokens : below(tokens + 1);
    // The amounts of money fill a word while calls are in flight.
    const [hold, cost] = [asPicoUnits(BigInt(tokens) * 10n ** 14n), asPicoUnits(BigInt(used) * 1_500n)];
    const isReleased = below(5) === 0;
    const results = worlds.map(({ clock, ledger }) => {
      clock.pass(passedMs);
      // First the minute refuses most calls, then the day.
      if (step === 10_000) ledger.keys.setLimits(asKeyIndex(0), { callsInFlight: 7, tokensPerMonth: 40_000 });
      clock.wall += setBack;
      if (held[slot] !== undefined)
        return isReleased ? ledger.release(asCallSlot(slot)) : ledger.settle(asCallSlot(slot), cost, used);
      const rejection = ledger.admit(asCallSlot(slot), scopes, { hold, tokens });
      return rejection ?? [ledger.quotasLeft(ACCOUNT, 1), ledger.tokenMinuteLeft()];
    });
    for (const result of results.slice(1))
      if (!isDeepStrictEqual(result, results[0])) t.same(result, results[0], `step ${step}`);
    const isAdmitted = Array.isArray(results[0]);
    counts[isAdmitted ? 'admitted' : held[slot] === undefined ? 'rejected' : 'settled']++;
    held[slot] = isAdmitted ? tokens : undefined;
    const [first, ...others] = worlds.map(({ words }) => words);
    const different = first!.findIndex((word, index) => others.some((words) => words[index] !== word));
    if (different !== -1) t.fail(`step ${step}: word ${different} is another one`);
  }
  t.ok(Math.min(...Object.values(counts)) > 300, `all happened: ${JSON.stringify(counts)}`);
  t.end();
});
