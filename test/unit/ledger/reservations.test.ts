import t from 'tap';
import { asAccountIndex, asCallSlot, asKeyIndex, asPicoUnits } from '#src/core/units.js';
import { createLedgerBuffers, openLedgerViews } from '#src/ledger/layout.js';
import { createTaken, Reservations } from '#src/ledger/reservations.js';

void t.test('a reservation is open, claimed once and free again; neighbours keep theirs', (t) => {
  const views = openLedgerViews(createLedgerBuffers({ accountsMax: 9, callsInFlightMax: 3 }));
  const reservations = new Reservations(views);
  const other = new Reservations(views);
  const taken = createTaken();
  const slots = [0, 1, 2].map(asCallSlot);
  slots.forEach((slot) => {
    t.ok(reservations.isFree(slot));
    t.notOk(reservations.claim(slot), 'there is nothing to claim in a free slot');
    taken.account = asAccountIndex(slot + 5);
    taken.dayNumber = 20_000 + slot;
    taken.scopeCount = slot === 1 ? 0 : 2;
    taken.key = slot === 1 ? undefined : asKeyIndex(slot);
    reservations.open(slot, asPicoUnits(BigInt(slot) << 60n), taken);
  });
  slots.forEach((slot) => {
    t.notOk(other.isFree(slot));
    t.notOk(reservations.isClaimed(slot));
    t.ok(other.claim(slot));
    t.ok(reservations.isClaimed(slot));
    t.notOk(reservations.claim(slot));
    t.notOk(reservations.isFree(slot), 'not free while it is being settled');
    const expected = { account: slot + 5, dayNumber: 20_000 + slot, scopeCount: slot === 1 ? 0 : 2 };
    t.match(other.read(slot, createTaken()), expected);
    if (slot !== 1) t.equal(other.read(slot, createTaken()).key, slot, 'the first key too');
    t.equal(other.holdOf(slot), BigInt(slot) << 60n);
    other.close(slot);
    t.throws(() => other.close(slot), /closed once/);
    t.ok(reservations.isFree(slot));
    t.notOk(reservations.claim(slot));
  });
  t.end();
});
