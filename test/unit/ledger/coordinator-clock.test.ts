import t from 'tap';
import { asWallMs } from '#src/core/units.js';
import { clockOf, CoordinatorClock } from '#src/ledger/coordinator-clock.js';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { FakeClock, START_WALL_MS } from '../../fixtures/ledger-world.js';

const CAPACITY = { accountsMax: 1, callsInFlightMax: 1 };

void t.test('each thread has the coordinator’s calendar and the host’s monotonic time', (t) => {
  const host = new FakeClock();
  const buffers = createLedgerBuffers({ ...CAPACITY, shared: true });
  const listener = clockOf(structuredClone(buffers), host);
  const main = new CoordinatorClock(host, buffers.coordinatorAheadMs!);
  t.equal(listener.wallMs(), START_WALL_MS, 'as the host’s, before the coordinator has replied');
  for (const aheadMs of [90_000, -90_000, 0.4]) {
    main.setDifference(asWallMs(host.wallMs() + aheadMs), host.wallMs());
    for (const clock of [main, listener]) {
      t.equal(clock.wallMs(), host.wallMs() + Math.round(aheadMs));
      t.equal(clock.monotonicMs(), host.monotonicMs());
    }
    host.pass(7);
  }
  t.end();
});

void t.test('without shared limits the clock is the host’s', (t) => {
  const host = new FakeClock();
  t.equal(clockOf(createLedgerBuffers(CAPACITY), host), host);
  t.end();
});
