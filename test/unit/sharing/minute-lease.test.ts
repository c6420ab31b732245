/** Which permits a lease names when it gives some back. What leases do in all: lease-laws.test.ts. */
import t from 'tap';
import { asUpstreamScopeIndex } from '#src/core/units.js';
import { createUpstreamBuffers, UpstreamLeases } from '#src/ledger/upstream-counters.js';
import { MinuteLease } from '#src/sharing/minute-lease.js';
import { ManualClock } from '../../fixtures/manual-clock.js';

const LIMIT = 1_000;
const NOW_MS = 1_000;
const SCOPE = asUpstreamScopeIndex(0);

/** `grant` asks for 10 permits more than are left, which are granted until `tick`. */
function leaseOf() {
  const buffers = createUpstreamBuffers(1, { isShared: true });
  const { minute } = new UpstreamLeases(buffers, new ManualClock());
  const lease = new MinuteLease(minute, 0, NOW_MS);
  let number = 0;
  const ask = (waiting: number) =>
    lease.ask({ waiting, limit: LIMIT, isLow: false, nowMs: NOW_MS, number: ++number });
  const grant = (tick: number, validMs: number): void => {
    t.ok(ask(lease.left(NOW_MS) + 10));
    const reply = { granted: 10, remaining: 100, heldByOthers: false, tick, validMs, freeInMs: 0 };
    lease.applyGrant(reply, NOW_MS, NOW_MS);
  };
  return { minute, lease, ask, grant };
}

void t.test('permits go back as those of the grants that weigh longest, however late these came', (t) => {
  for (const ticks of [
    [30, 20],
    [20, 30],
  ] as const) {
    const { minute, lease, ask, grant } = leaseOf();
    for (const tick of ticks) grant(tick, tick * 500);
    t.equal(lease.left(NOW_MS), 20);
    // Calls use 5.
    minute.takeBackMinute(SCOPE);
    minute.addMinute(SCOPE, NOW_MS + 10_000, 15, 0, NOW_MS);
    lease.giveBack(NOW_MS);
    t.same(
      ask(0)?.returned,
      [
        { tick: 30, count: 10 },
        { tick: 20, count: 5 },
      ],
      `granted until ${ticks.join(', then ')}`,
    );
    lease.giveBack(NOW_MS);
    t.equal(lease.unused, 15, 'each goes back once');
  }
  t.end();
});

void t.test('a reply is applied once', (t) => {
  const { lease, ask, grant } = leaseOf();
  grant(30, 15_000);
  const reply = { granted: 10, remaining: 100, heldByOthers: false, tick: 30, validMs: 15_000, freeInMs: 0 };
  t.equal(lease.heardNumber, 1);
  t.ok(ask(20));
  lease.applyGrant(reply, NOW_MS, NOW_MS);
  t.throws(() => lease.applyGrant(reply, NOW_MS, NOW_MS), /a reply is applied once/u);
  t.equal(lease.heardNumber, 2);
  t.end();
});
