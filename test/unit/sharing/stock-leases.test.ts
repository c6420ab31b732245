/** How a process leases an account's money: what it asks for, what it gives back, what it was denied. */
import t from 'tap';
import { SystemClock } from '#src/core/clock.js';
import { asAccountIndex, asPicoUnits } from '#src/core/units.js';
import { dayNumberOf } from '#src/ledger/day.js';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { Leases } from '#src/ledger/leases.js';
import { Ledger } from '#src/ledger/ledger.js';
import { StockLease } from '#src/sharing/stock-leases.js';
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

function createLease(): { readonly lease: StockLease; readonly leases: Leases } {
  const leases = new Leases(
    createLedgerBuffers({ accountsMax: 1, callsInFlightMax: 1, shared: true }),
    new SystemClock(),
  );
  const words = leases.balanceOf(ACCOUNT, NOTHING_FLUSHED);
  return { lease: new StockLease('balance', words, 0), leases };
}

void t.test(
  'a small amount that is granted does not make a larger one denied that was not asked for',
  (t) => {
    const { lease } = createLease();
    const whole = lease.ask({ needs: [1_000n] }, 0n, 0, 0)!;
    lease.applyGrant(granted(0n, 600n), whole, 1, 2);
    const lacks = (sinceMs: number) => [999n, 1_000n].map((needed) => lease.lackOf(needed, 0n, sinceMs, 5));
    t.same(lacks(1), ['unasked', 'used_up']);
    t.same(lacks(2), ['unasked', 'unasked'], 'to whoever came after the ask it says nothing');
    t.equal(lease.lackOf(1_000n, 1n, 1, 5), 'unasked', 'under another limit');
    const least = lease.ask({ needs: [100n] }, 0n, 0, 0)!;
    t.equal(least.least, 100n);
    lease.applyGrant(granted(150n, 450n), least, 3, 4);
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
    lease.applyGrant(GRANTED, lease.ask({ needs: [1_000n] }, 0n, 0, 0)!, 0, 0);
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

void t.test('what nobody holds is given back although the rest of it moves', (t) => {
  const { lease, leases } = createLease();
  lease.applyGrant(GRANTED, lease.ask({ needs: [1_000n] }, 0n, 0, 0)!, 0, 0);
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
  lease.applyGrant(granted(1_000_000n, 0n), large, 0, 0);
  leases.takeBackMoney(ACCOUNT, pico(1_000_000n));
  t.equal(lease.ask({ needs: [10n] }, 0n, 0, 0)!.most, 40n);
  t.equal(lease.ask({ low: true }, 0n, 0, 0)!.most, 40n, 'nobody waits: as for the last that did');
  t.end();
});

void t.test('an empty lease at a coordinator that has nothing does not hoard what comes', (t) => {
  const { lease, leases } = createLease();
  lease.applyGrant(granted(100_000n, 0n), lease.ask({ needs: [1_000n] }, 0n, 0, 0)!, 0, 0);
  for (let nowMs = 100; nowMs <= 5_000; nowMs += 100) {
    leases.takeBackMoney(ACCOUNT, pico(1_000n));
    lease.ask({}, 0n, 0, nowMs);
  }
  leases.takeBackMoney(ACCOUNT, pico(lease.availableIn(0)));
  const denied = lease.ask({ needs: [1_000n] }, 0n, 0, 5_001)!;
  lease.applyGrant(granted(0n, 0n), denied, 5_001, 5_001);
  const { most } = lease.ask({ needs: [1_000n] }, 0n, 0, 5_002)!;
  t.ok(most > 10_000n && most <= 20_000n, `it wants the use of two seconds, not of twenty: ${most}`);
  t.end();
});

void t.test('what was used of a day is reported soon after it was, though nothing is given back', (t) => {
  const TODAY = 20_000;
  let [given, used] = [0n, 0n];
  const lease = new StockLease(
    'calls_per_day',
    {
      read: () => ({ period: TODAY, granted: given, used, available: given - used }),
      add: (_, amount) => void (given += amount),
      takeBack: () => 0n,
      publish: () => undefined,
    },
    0,
  );
  const first = lease.ask({ needs: [1n] }, 9_999n, TODAY, 0)!;
  lease.applyGrant({ ...granted(first.most, 9_000n), period: TODAY }, first, 0, 0);
  used = first.most;
  t.notOk(lease.isEmpty, 'it has something to report');
  t.notOk(lease.sweep(15_999), 'not at once');
  t.ok(lease.sweep(16_000), 'but within the rest of a lease');
  t.match(lease.ask({}, 9_999n, TODAY, 16_000), { used: first.most, unused: 0n, most: 0n });
  t.end();
});

void t.test('calls left of yesterday keep nobody from asking for calls of today', (t) => {
  const YESTERDAY = 20_000;
  for (const left of [1, 5, 100]) {
    for (const waiting of [1, left]) {
      const buffers = createLedgerBuffers({ accountsMax: 1, callsInFlightMax: 1, shared: true });
      const lease = new StockLease(
        'calls_per_day',
        new Leases(buffers, new SystemClock()).accounts.dayOf(ACCOUNT),
        0,
      );
      const some = { ...granted(BigInt(left), 1_000n), period: YESTERDAY };
      const ask = (calls: number, day: number) =>
        lease.ask({ needs: Array.from({ length: calls }, () => 1n) }, 9_999n, day, 1);
      lease.applyGrant(some, ask(left, YESTERDAY)!, 0, 0);
      t.equal(ask(waiting, YESTERDAY), undefined, `${left} are left for ${waiting}`);
      t.equal(lease.availableIn(YESTERDAY + 1), 0n);
      const asked = ask(waiting, YESTERDAY + 1)!;
      t.match(asked, { period: YESTERDAY + 1, unused: 0n, least: 1n }, 'nothing of today is here');
      t.ok(asked.most >= waiting);
      lease.applyGrant({ ...some, granted: BigInt(waiting), period: YESTERDAY + 1 }, asked, 1, 1);
      t.equal(lease.availableIn(YESTERDAY + 1), BigInt(waiting));
    }
  }
  t.end();
});

void t.test(
  'a process that is refused calls of a day that others have begun tells when that day ends',
  (t) => {
    const clock = new SystemClock();
    const buffers = createLedgerBuffers({ accountsMax: 1, callsInFlightMax: 1, shared: true });
    const lease = new StockLease('calls_per_day', new Leases(buffers, clock).accounts.dayOf(ACCOUNT), 0);
    const ledger = new Ledger(buffers, clock);
    const today = dayNumberOf(clock.wallMs());
    const reply = (calls: bigint, day: number) => {
      const ask = lease.ask({ needs: [1n] }, 9n, today, 0)!;
      lease.applyGrant({ ...granted(calls), period: day }, ask, 0, 0);
      return ledger.day.read(ACCOUNT);
    };
    t.match(reply(0n, today), { dayCalls: 0 });
    // The clocks were set back over midnight.
    t.same(reply(0n, today + 1), { dayNumber: today + 1, dayCalls: 0 });
    reply(2n, today + 1);
    t.equal(lease.availableIn(today), 2n);
    t.equal(ledger.day.take(ACCOUNT, 9), today + 1);
    t.same(ledger.day.read(ACCOUNT), { dayNumber: today + 1, dayCalls: 1 });
    t.end();
  },
);
