/** What a denial says to whom: to no request that came after the ask, and to none once some was granted. */
import t from 'tap';
import { decisiveLack, Denials, type Lack } from '#src/sharing/denials.js';

void t.test('a denial concerns the requests that came before its ask was sent', (t) => {
  const denials = new Denials();
  t.equal(denials.lackOf(0, 1), 'unasked');
  for (const heldByOthers of [true, false]) {
    denials.record({ sentMs: 100, heldByOthers });
    const lack = heldByOthers ? 'held_by_others' : 'used_up';
    t.same(
      [99, 100, 101].map((sinceMs) => denials.lackOf(sinceMs, 150)),
      [lack, lack, 'unasked'],
    );
  }
  denials.record(undefined);
  t.equal(denials.lackOf(99, 150), 'unasked', 'some was granted since');
  t.end();
});

void t.test('for some time all are rejected, and that time is not prolonged', (t) => {
  const denials = new Denials();
  t.equal(denials.rejectsUntilMs, 0);
  t.ok(denials.reject(1_000, 250));
  denials.record(undefined);
  t.equal(denials.lackOf(1_200, 1_249), 'used_up', 'although some was granted, and the request is new');
  t.notOk(denials.reject(1_249, 250));
  t.equal(denials.rejectsUntilMs, 1_250);
  t.equal(denials.lackOf(1_200, 1_250), 'unasked');
  t.ok(denials.reject(1_250, 250));
  t.end();
});

void t.test('a request waits for an ask before all, and for others only if nothing is used up', (t) => {
  const decisive = (...lacks: Lack[]): Lack | undefined => decisiveLack(lacks.map((lack) => ({ lack })));
  t.equal(decisive(), undefined);
  t.equal(decisive('held_by_others'), 'held_by_others');
  t.equal(decisive('used_up', 'held_by_others'), 'used_up');
  t.equal(decisive('used_up', 'unasked', 'held_by_others'), 'unasked');
  t.end();
});
