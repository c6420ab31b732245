import t from 'tap';
import { asAccountIndex, asCallSlot, asKeyIndex, asPicoUnits } from '#src/core/units.js';
import { createLedgerBuffers, openLedgerViews } from '#src/ledger/layout.js';
import { Reservations } from '#src/ledger/calls.js';

void t.test('a reservation is open, claimed once and free again; neighbours keep theirs', (t) => {
  const views = openLedgerViews(createLedgerBuffers({ accountsMax: 9, callsInFlightMax: 3 }));
  const reservations = new Reservations(views);
  const other = new Reservations(views);
  const slots = [0, 1, 2].map(asCallSlot);
  slots.forEach((slot) => {
    t.ok(reservations.isFree(slot));
    t.notOk(reservations.claim(slot), 'there is nothing to claim in a free slot');
    const dayKey = slot === 1 ? undefined : asKeyIndex(slot);
    reservations.open(
      slot,
      asAccountIndex(slot + 5),
      20_000 + slot,
      asPicoUnits(BigInt(slot) << 60n),
      dayKey,
    );
  });
  slots.forEach((slot) => {
    t.notOk(other.isFree(slot));
    t.ok(other.claim(slot));
    t.notOk(reservations.claim(slot));
    t.notOk(reservations.isFree(slot), 'not free while it is being settled');
    t.equal(other.accountOf(slot), slot + 5);
    t.equal(other.dayNumberOf(slot), 20_000 + slot);
    t.equal(other.dayKeyOf(slot), slot === 1 ? undefined : slot, 'the first key too');
    t.equal(other.holdOf(slot), BigInt(slot) << 60n);
    other.close(slot);
    t.ok(reservations.isFree(slot));
    t.notOk(reservations.claim(slot));
  });
  t.end();
});
