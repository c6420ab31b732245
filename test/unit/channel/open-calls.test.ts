/** Ids of calls: exact for ever. Calls by slot. */
import t from 'tap';
import { asCallId, OpenCalls, slotOfCall } from '#src/channel/open-calls.js';
import { asCallSlot } from '#src/core/units.js';

const SLOTS = 8;
const LAST_GENERATION = 2 ** 33 - 1;

void t.test('after its last generation a slot begins anew: each id is exact and names its slot', (t) => {
  const calls = new OpenCalls<string>(0, SLOTS);
  for (let at = 0; at < SLOTS; at++) {
    const slot = asCallSlot(at);
    let id = asCallId((LAST_GENERATION - 1) * 2 ** 20 + slot);
    for (let call = 0; call < 4; call++) {
      calls.add(id, 'call');
      calls.remove(id);
      const next = calls.nextId(slot);
      t.ok(Number.isSafeInteger(next) && next > 0 && next !== id, `${next} after ${id}`);
      t.equal(slotOfCall(next), slot);
      id = next;
    }
  }
  t.end();
});

void t.test('a call of a slot that is not of this side is a bug that shows', (t) => {
  const calls = new OpenCalls<string>(SLOTS, SLOTS);
  for (const slot of [0, SLOTS - 1, 2 * SLOTS]) {
    t.throws(
      () => calls.add(asCallId(2 ** 20 + slot), 'call'),
      { message: /belongs to this side/ },
      String(slot),
    );
  }
  for (const slot of [SLOTS, 2 * SLOTS - 1]) {
    calls.add(asCallId(2 ** 20 + slot), 'call');
    t.equal(calls.get(asCallId(2 ** 20 + slot)), 'call');
  }
  t.end();
});
