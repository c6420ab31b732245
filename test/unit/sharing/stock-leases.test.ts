/** What all leases of stocks ask for, give back and were denied, by the example of an account's money. */
import t from 'tap';
import { SystemClock } from '#src/core/clock.js';
import { asAccountIndex, asPicoUnits } from '#src/core/units.js';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { Leases } from '#src/ledger/leases.js';
import { GIVEN_BACK_MS_MAX, IDLE_MS_PLENTIFUL } from '#src/sharing/lease-terms.js';
import { MoneyLease } from '#src/sharing/money-lease.js';
import { NOTHING_FLUSHED } from '../../fixtures/day-leases.js';

const ACCOUNT = asAccountIndex(0);
const pico = asPicoUnits;

/** How often the lease manager looks. */
const LOOK_MS = 250;
const granted = (amount: bigint, remaining = 0n) => ({
  granted: amount,
  remaining,
  heldByOthers: false,
  period: 0,
  freeInMs: 0,
});
const GRANTED = granted(1_000n);

function createLease(): { readonly lease: MoneyLease; readonly leases: Leases } {
  const leases = new Leases(
    createLedgerBuffers({ accountsMax: 1, callsInFlightMax: 1, shared: true }),
    new SystemClock(),
  );
  const words = leases.balanceOf(ACCOUNT, NOTHING_FLUSHED);
  return { lease: new MoneyLease(words, 0), leases };
}

void t.test(
  'a small amount that is granted does not make a larger one denied that was not asked for',
  (t) => {
    const { lease } = createLease();
    t.ok(lease.ask({ needs: [1_000n] }, 0n, 0, 0));
    lease.applyGrant(granted(0n, 600n), 1, 2);
    const lacks = (sinceMs: number) => [999n, 1_000n].map((needed) => lease.lackOf(needed, 0n, sinceMs, 5));
    t.same(lacks(1), ['unasked', 'used_up']);
    t.same(lacks(2), ['unasked', 'unasked'], 'to whoever came after the ask it says nothing');
    t.equal(lease.lackOf(1_000n, 1n, 1, 5), 'unasked', 'under another limit');
    const least = lease.ask({ needs: [100n] }, 0n, 0, 0)!;
    t.equal(least.least, 100n);
    lease.applyGrant(granted(150n, 450n), 3, 4);
    t.same(lacks(1), ['unasked', 'unasked']);
    t.equal(lease.availableIn(0), 150n);
    t.equal(lease.ask({ needs: [600n] }, 0n, 0, 0)!.least, 450n);
    lease.reject(4, 250);
    t.same(lacks(3), ['unasked', 'used_up'], 'below that amount it is worth asking');
    t.end();
  },
);

void t.test('what was held when somebody looked is given back well within the wait of a request', (t) => {
  for (let phaseMs = 0; phaseMs < LOOK_MS; phaseMs += 10) {
    const { lease, leases } = createLease();
    t.ok(lease.ask({ needs: [1_000n] }, 0n, 0, 0));
    lease.applyGrant(GRANTED, 0, 0);
    let nowMs = phaseMs;
    // In use whenever somebody looks, and free in between.
    for (; nowMs < 5_000; nowMs += LOOK_MS) {
      leases.takeBackMoney(ACCOUNT, pico(1_000n));
      lease.sweep(nowMs);
      leases.addMoney(ACCOUNT, pico(1_000n), pico(0n));
      t.equal(lease.availableIn(0), 1_000n, 'kept');
    }
    const freeMs = nowMs - LOOK_MS;
    while (lease.availableIn(0) > 0n) {
      lease.sweep(nowMs);
      nowMs += LOOK_MS;
    }
    const idleMs = nowMs - LOOK_MS - freeMs;
    t.ok(idleMs >= 500 && idleMs <= 750, `given back after ${idleMs} ms`);
  }
  t.end();
});

void t.test(
  'where plenty is left, what calls gave back goes back within the time that operators are told',
  (t) => {
    let longestMs = 0;
    for (let phaseMs = 0; phaseMs < IDLE_MS_PLENTIFUL; phaseMs += LOOK_MS) {
      const { lease, leases } = createLease();
      t.ok(lease.ask({ needs: [1_000n] }, 0n, 0, 0));
      lease.applyGrant(granted(1_000n, 1_000_000n), 0, 0);
      // A call holds all of it, and then costs nothing: so there is nothing to report.
      leases.takeBackMoney(ACCOUNT, pico(1_000n));
      let nowMs = 0;
      for (; nowMs < 2 * IDLE_MS_PLENTIFUL + phaseMs; nowMs += LOOK_MS) lease.sweep(nowMs);
      leases.addMoney(ACCOUNT, pico(1_000n), pico(0n));
      const freeMs = nowMs;
      for (; lease.availableIn(0) > 0n && nowMs < 10 * IDLE_MS_PLENTIFUL; nowMs += LOOK_MS)
        lease.sweep(nowMs);
      longestMs = Math.max(longestMs, nowMs - LOOK_MS - freeMs);
    }
    t.ok(longestMs > IDLE_MS_PLENTIFUL, `${longestMs} ms`);
    t.ok(longestMs <= GIVEN_BACK_MS_MAX, `${longestMs} ms`);
    t.end();
  },
);

void t.test('what nobody holds is given back although the rest of it moves', (t) => {
  const { lease, leases } = createLease();
  t.ok(lease.ask({ needs: [1_000n] }, 0n, 0, 0));
  lease.applyGrant(GRANTED, 0, 0);
  for (let nowMs = LOOK_MS; nowMs <= 4 * LOOK_MS; nowMs += LOOK_MS) {
    leases.takeBackMoney(ACCOUNT, pico(400n));
    lease.sweep(nowMs);
    leases.addMoney(ACCOUNT, pico(400n), pico(0n));
  }
  t.equal(lease.availableIn(0), 400n, 'six tenths were never held');
  t.end();
});

void t.test('one large hold does not enlarge the asks for smaller ones that come later', (t) => {
  const { lease, leases } = createLease();
  const large = lease.ask({ needs: [1_000_000n] }, 0n, 0, 0)!;
  t.equal(large.most, 4_000_000n, 'some holds of its size ahead');
  lease.applyGrant(granted(1_000_000n, 0n), 0, 0);
  leases.takeBackMoney(ACCOUNT, pico(1_000_000n));
  t.equal(lease.ask({ needs: [10n] }, 0n, 0, 0)!.most, 40n);
  t.equal(lease.ask({ low: true }, 0n, 0, 0)!.most, 40n, 'nobody waits: as for the last that did');
  t.end();
});

void t.test('an empty lease at a coordinator that has nothing does not hoard what comes', (t) => {
  const { lease, leases } = createLease();
  t.ok(lease.ask({ needs: [1_000n] }, 0n, 0, 0));
  lease.applyGrant(granted(100_000n, 0n), 0, 0);
  for (let nowMs = 100; nowMs <= 5_000; nowMs += 100) {
    leases.takeBackMoney(ACCOUNT, pico(1_000n));
    lease.ask({}, 0n, 0, nowMs);
  }
  leases.takeBackMoney(ACCOUNT, pico(lease.availableIn(0)));
  t.ok(lease.ask({ needs: [1_000n] }, 0n, 0, 5_001));
  lease.applyGrant(granted(0n, 0n), 5_001, 5_001);
  const { most } = lease.ask({ needs: [1_000n] }, 0n, 0, 5_002)!;
  t.ok(most > 10_000n && most <= 20_000n, `it wants the use of two seconds, not of twenty: ${most}`);
  t.end();
});

void t.test('a reply is applied once, and only to an ask', (t) => {
  const { lease } = createLease();
  t.throws(() => lease.applyGrant(GRANTED, 0, 0), /a reply is applied once/u, 'before the first ask');
  t.ok(lease.ask({ needs: [1_000n] }, 0n, 0, 0));
  lease.applyGrant(GRANTED, 0, 0);
  t.throws(() => lease.applyGrant(GRANTED, 0, 0), /a reply is applied once/u, 'twice');
  t.ok(lease.ask({ needs: [2_000n] }, 0n, 0, 0));
  t.equal(lease.ask({}, 0n, 0, 0), undefined, 'nothing is wanted any more');
  t.throws(() => lease.applyGrant(GRANTED, 0, 0), /a reply is applied once/u, 'the reply of a lost exchange');
  t.equal(lease.availableIn(0), 1_000n);
  t.end();
});
