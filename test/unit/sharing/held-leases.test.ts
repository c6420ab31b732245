/** The most that a node can hold, after asks with a reply and asks without one. */
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import type { LeaseReply, LeaseAsk } from '#src/sharing/coordinator.js';
import { HeldLeases } from '#src/sharing/held-leases.js';

const LIMITS = { requestsPerMinute: 0, callsPerDay: 10, callsInFlight: 5 };
const pico = asPicoUnits;
const wanted = { least: 0, most: 9 };
const grant = { remaining: 4, heldByOthers: false };

function ask(dayNumber: number, used: number, slots: number, money: bigint): LeaseAsk {
  return {
    scope: 'a',
    limits: LIMITS,
    day: { dayNumber, used, unused: 0, ...wanted },
    slots: { outstanding: slots, ...wanted },
    money: { outstanding: pico(money), least: pico(0n), most: pico(9n) },
  };
}

function answer(dayNumber: number, day: number, slots: number, money: bigint): LeaseReply {
  return {
    day: { ...grant, granted: day, dayNumber, endsInMs: 1 },
    slots: { ...grant, granted: slots },
    money: { granted: pico(money), remaining: pico(0n), heldByOthers: false },
  };
}

void t.test('grants are added to what was said, and lost ones are not', (t) => {
  const held = new HeldLeases();
  held.record(ask(0, 0, 0, 0n), answer(7, 3, 2, 5n));
  const day = { dayNumber: 7, used: 0, unused: 3, seen: 6 };
  t.same(held.of('a'), { day, slots: 2, money: 5n });
  held.record(ask(7, 2, 1, 4n), undefined);
  t.same(held.of('a'), { day: { ...day, used: 2, unused: 0 }, slots: 1, money: 4n });
  held.record({ scope: 'a', limits: LIMITS }, {});
  t.same(held.of('a').slots, 1, 'what is not asked for stays');
  t.end();
});

void t.test('a new day ends what the old one counted, and what holds nothing goes', (t) => {
  const held = new HeldLeases();
  held.record(ask(0, 0, 0, 0n), answer(7, 3, 0, 0n));
  held.record({ ...ask(0, 0, 0, 0n), scope: 'b' }, answer(7, 1, 1, 0n));
  held.record({ ...ask(0, 0, 0, 0n), scope: 'c' }, answer(8, 1, 0, 0n));
  t.equal(held.of('a').day, undefined);
  t.same(held.of('b'), { day: undefined, slots: 1, money: 0n });
  t.same(
    [...held.entries()].map(([subject]) => subject),
    ['b', 'c'],
  );
  held.record({ scope: 'b', limits: LIMITS, slots: { outstanding: 0, least: 0, most: 0 } }, {});
  t.equal(held.size, 1);
  t.end();
});
