/** How a process leases an account's money: what it asks for, what it gives back, what it was denied. */
import t from 'tap';
import { asAccountIndex, asPicoUnits } from '#src/core/units.js';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { Leases } from '#src/ledger/leases.js';
import { DayLease, MoneyLease } from '#src/sharing/stock-leases.js';

const ACCOUNT = asAccountIndex(0);
const pico = asPicoUnits;

/** How often the lease manager looks. */
const LOOK_MS = 250;
const GRANTED = { granted: pico(1_000n), remaining: pico(0n), heldByOthers: false };

function createLease(): { readonly lease: MoneyLease; readonly leases: Leases } {
  const leases = new Leases(createLedgerBuffers({ accountsMax: 1, callsInFlightMax: 1, shared: true }));
  return { lease: new MoneyLease(leases, ACCOUNT, { flushedOf: () => pico(0n) }, 0), leases };
}

void t.test(
  'a small amount that is granted does not make a larger one denied that was not asked for',
  (t) => {
    const { lease } = createLease();
    const whole = lease.ask([pico(1_000n)], false, false)!;
    lease.take({ granted: pico(0n), remaining: pico(600n), heldByOthers: false }, whole, 1, 2);
    t.match(lease, { denial: { sentMs: 1, heldByOthers: false }, deniedPicoUnits: 1_000n });
    const least = lease.ask([pico(100n)], false, false)!;
    t.equal(least.least, 100n);
    lease.take({ granted: pico(150n), remaining: pico(450n), heldByOthers: false }, least, 3, 4);
    t.match(lease, { denial: undefined, left: 150n });
    t.equal(lease.deniedPicoUnits, 1_000n, 'up to that amount it is worth asking');
    t.equal(lease.ask([pico(600n)], false, false)!.least, 450n);
    t.end();
  },
);

void t.test('what was held when somebody looked is given back well within the wait of a request', (t) => {
  for (let phaseMs = 0; phaseMs < LOOK_MS; phaseMs += 10) {
    const { lease, leases } = createLease();
    lease.take(GRANTED, lease.ask([pico(1_000n)], false, false)!, 0, 0);
    let nowMs = phaseMs;
    // In use whenever somebody looks, and free in between.
    for (; nowMs < 5_000; nowMs += LOOK_MS) {
      leases.takeBackMoney(ACCOUNT, pico(1_000n));
      lease.look(nowMs);
      leases.addMoney(ACCOUNT, pico(1_000n), pico(0n));
      t.equal(lease.left, 1_000n, 'kept');
    }
    const freeMs = nowMs - LOOK_MS;
    while (lease.left > 0n) {
      lease.look(nowMs);
      nowMs += LOOK_MS;
    }
    const idleMs = nowMs - LOOK_MS - freeMs;
    t.ok(idleMs >= 500 && idleMs <= 750, `given back after ${idleMs} ms`);
  }
  t.end();
});

void t.test('what nobody holds is given back although the rest of it moves', (t) => {
  const { lease, leases } = createLease();
  lease.take(GRANTED, lease.ask([pico(1_000n)], false, false)!, 0, 0);
  for (let nowMs = LOOK_MS; nowMs <= 4 * LOOK_MS; nowMs += LOOK_MS) {
    leases.takeBackMoney(ACCOUNT, pico(400n));
    lease.look(nowMs);
    leases.addMoney(ACCOUNT, pico(400n), pico(0n));
  }
  t.equal(lease.left, 400n, 'six tenths were never held');
  t.end();
});

void t.test('one large hold does not enlarge the asks for smaller ones that come later', (t) => {
  const { lease, leases } = createLease();
  const large = lease.ask([pico(1_000_000n)], false, false)!;
  t.equal(large.most, 4_000_000n, 'some holds of its size ahead');
  lease.take({ granted: pico(1_000_000n), remaining: pico(0n), heldByOthers: false }, large, 0, 0);
  leases.takeBackMoney(ACCOUNT, pico(1_000_000n));
  t.equal(lease.ask([pico(10n)], false, false)!.most, 40n);
  t.equal(lease.ask([], true, false)!.most, 40n, 'nobody waits: as for the last that did');
  t.end();
});

void t.test('calls left of yesterday keep nobody from asking for calls of today', (t) => {
  const YESTERDAY = 20_000;
  for (const left of [1, 5, 100]) {
    for (const waiting of [1, left]) {
      const buffers = createLedgerBuffers({ accountsMax: 1, callsInFlightMax: 1, shared: true });
      const lease = new DayLease(new Leases(buffers).accounts, ACCOUNT, 0);
      const granted = {
        granted: left,
        remaining: 1_000,
        dayNumber: YESTERDAY,
        endsInMs: 0,
        heldByOthers: false,
      };
      lease.take(granted, lease.ask(left, false, YESTERDAY, 0, false)!, 0, 0);
      t.equal(lease.ask(waiting, false, YESTERDAY, 1, false), undefined, `${left} are left for ${waiting}`);
      t.equal(lease.left(YESTERDAY + 1), 0);
      const ask = lease.ask(waiting, false, YESTERDAY + 1, 1, false)!;
      t.match(ask, { dayNumber: YESTERDAY, unused: left, least: 1 }, 'and reports what was left');
      t.ok(ask.most >= waiting);
      lease.take({ ...granted, granted: waiting, dayNumber: YESTERDAY + 1 }, ask, 1, 1);
      t.equal(lease.left(YESTERDAY + 1), waiting);
      t.equal(lease.unused.dayUnused, waiting, 'nothing of yesterday is on record for today');
    }
  }
  t.end();
});
