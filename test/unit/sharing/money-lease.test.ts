/** What a process asks of an account's money, and what it remembers of what it was denied. */
import t from 'tap';
import { asAccountIndex, asPicoUnits } from '#src/core/units.js';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { Leases } from '#src/ledger/leases.js';
import { MoneyLease } from '#src/sharing/money-lease.js';

const ACCOUNT = asAccountIndex(0);
const pico = asPicoUnits;

function createLease(): MoneyLease {
  const leases = new Leases(createLedgerBuffers({ accountsMax: 1, callsInFlightMax: 1, shared: true }));
  return new MoneyLease(leases, ACCOUNT, { flushedOf: () => pico(0n) }, 0);
}

void t.test(
  'a small amount that is granted does not make a larger one denied that was not asked for',
  (t) => {
    const lease = createLease();
    const whole = lease.ask([pico(1_000n)], false, false)!;
    lease.take({ granted: pico(0n), remaining: pico(600n), elsewhere: false }, whole, 1, 2);
    t.match(lease, { denial: { sentMs: 1, elsewhere: false }, deniedPicoUnits: 1_000n });
    const least = lease.ask([pico(100n)], false, false)!;
    t.equal(least.least, 100n);
    lease.take({ granted: pico(150n), remaining: pico(450n), elsewhere: false }, least, 3, 4);
    t.match(lease, { denial: undefined, left: 150n });
    t.equal(lease.deniedPicoUnits, 1_000n, 'up to that amount it is worth asking');
    t.equal(lease.ask([pico(600n)], false, false)!.least, 450n);
    t.end();
  },
);
