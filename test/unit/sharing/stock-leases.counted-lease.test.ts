/** What a process leases of a day: what it reports, and what becomes of yesterday's calls. */
import t from 'tap';
import { SystemClock } from '#src/core/clock.js';
import { asAccountIndex } from '#src/core/units.js';
import { dayNumberOf } from '#src/ledger/day.js';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { Leases } from '#src/ledger/leases.js';
import { Ledger } from '#src/ledger/ledger.js';
import { CountedLease } from '#src/sharing/stock-leases.js';

const ACCOUNT = asAccountIndex(0);

const granted = (amount: bigint, remaining = 0n) => ({
  granted: amount,
  remaining,
  heldByOthers: false,
  period: 0,
  freeInMs: 0,
});

void t.test('what was used of a day is reported soon after it was, though nothing is given back', (t) => {
  const TODAY = 20_000;
  let [given, used] = [0n, 0n];
  const lease = new CountedLease(
    'calls_per_day',
    {
      read: () => ({ period: TODAY, granted: given, used, available: given - used }),
      add: (_, amount) => void (given += amount),
      takeBack: () => 0n,
      publish: () => undefined,
      held: () => 0n,
      moveBack: () => undefined,
    },
    0,
  );
  const first = lease.ask({ needs: [1n] }, 9_999n, TODAY, 0)!;
  lease.applyGrant({ ...granted(first.most, 9_000n), period: TODAY }, 0, 0);
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
      const lease = new CountedLease(
        'calls_per_day',
        new Leases(buffers, new SystemClock()).accounts.dayOf(ACCOUNT),
        0,
      );
      const some = { ...granted(BigInt(left), 1_000n), period: YESTERDAY };
      const ask = (calls: number, day: number) =>
        lease.ask({ needs: Array.from({ length: calls }, () => 1n) }, 9_999n, day, 1);
      t.ok(ask(left, YESTERDAY));
      lease.applyGrant(some, 0, 0);
      t.equal(ask(waiting, YESTERDAY), undefined, `${left} are left for ${waiting}`);
      t.equal(lease.availableIn(YESTERDAY + 1), 0n);
      const asked = ask(waiting, YESTERDAY + 1)!;
      t.match(asked, { period: YESTERDAY + 1, unused: 0n, least: 1n }, 'nothing of today is here');
      t.ok(asked.most >= waiting);
      lease.applyGrant({ ...some, granted: BigInt(waiting), period: YESTERDAY + 1 }, 1, 1);
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
    const lease = new CountedLease('calls_per_day', new Leases(buffers, clock).accounts.dayOf(ACCOUNT), 0);
    const ledger = new Ledger(buffers, clock);
    const today = dayNumberOf(clock.wallMs());
    const reply = (calls: bigint, day: number) => {
      t.ok(lease.ask({ needs: [1n] }, 9n, today, 0));
      lease.applyGrant({ ...granted(calls), period: day }, 0, 0);
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
