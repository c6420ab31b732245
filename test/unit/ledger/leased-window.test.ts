/**
 * Permits of the minute that were granted: taken one by one until they are used up or have expired, and taken
 * back by the main thread.
 */
import t from 'tap';
import { createLedgerBuffers, openLedgerViews } from '#src/ledger/layout.js';
import { LeasedWindow, PERMITS_MAX } from '#src/ledger/leased-window.js';
import { Leases, type CountedLeases } from '#src/ledger/leases.js';
import type { AccountIndex } from '#src/core/units.js';
import { ACCOUNT, FakeClock, interruptAt } from '../../fixtures/ledger-world.js';

interface World {
  readonly clock: FakeClock;
  readonly window: LeasedWindow;
  readonly leases: CountedLeases<AccountIndex>;
  /** Accounts that ran low. */
  readonly low: AccountIndex[];
  /** Lends until `ms` from now. */
  readonly lend: (permits: number, ms: number, low?: number) => 'joined' | number;
}

function createWorld(): World {
  const clock = new FakeClock();
  const buffers = createLedgerBuffers({ accountsMax: 2, callsInFlightMax: 1, shared: true });
  const low: AccountIndex[] = [];
  const leases = new Leases(buffers, clock).accounts;
  return {
    clock,
    window: new LeasedWindow(openLedgerViews(buffers).accounts, clock, (account) => low.push(account)),
    leases,
    low,
    lend: (permits, ms, lowAt = 0) =>
      leases.addMinute(ACCOUNT, clock.monotonic + ms, permits, lowAt, clock.monotonic),
  };
}

void t.test('takes what was lent and no more, and asks for more', (t) => {
  const { window, lend } = createWorld();
  t.match(window.take(ACCOUNT), { admitted: false, mayAskForMore: true, remaining: 0 }, 'nothing was lent');
  t.equal(lend(2, 1_000), 0);
  t.match(window.check(ACCOUNT), { admitted: true, remaining: 2 }, 'a look takes nothing');
  t.match(window.take(ACCOUNT), { admitted: true, remaining: 1 });
  t.match(window.take(ACCOUNT), { admitted: true, remaining: 0 });
  t.match(window.take(ACCOUNT), { admitted: false, mayAskForMore: true });
  t.end();
});

void t.test('a grant is good until its expiry, to the millisecond', (t) => {
  const { clock, window, leases, lend } = createWorld();
  lend(2, 1_000);
  clock.pass(999);
  t.equal(window.take(ACCOUNT).admitted, true);
  t.equal(leases.minuteLeft(ACCOUNT, clock.monotonic), 1);
  clock.pass(1);
  t.equal(window.take(ACCOUNT).admitted, false);
  t.equal(leases.minuteLeft(ACCOUNT, clock.monotonic), 0);
  t.equal(leases.minuteUnused(ACCOUNT), 1, 'but it is known that it was not used');
  t.equal(leases.takeBackMinute(ACCOUNT), 1);
  t.equal(leases.takeBackMinute(ACCOUNT), 0);
  t.end();
});

void t.test('a permit of a thread that stalled after it took it is not used', (t) => {
  for (const [stallMs, left] of [
    [500, 1],
    [501, 0],
  ] as const) {
    const { clock, window, leases, lend } = createWorld();
    lend(2, 20_000);
    // The lease manager may have said meanwhile that it was used.
    const take = (): void => void t.equal(window.take(ACCOUNT).admitted, true);
    t.ok(interruptAt(1, take, () => clock.pass(stallMs)));
    t.equal(leases.minuteUnused(ACCOUNT), left, `stalled for ${stallMs} ms`);
  }
  t.end();
});

void t.test('a second grant joins the first, with the earlier expiry, or takes its place', (t) => {
  const { clock, window, leases, lend } = createWorld();
  lend(3, 1_000);
  t.equal(lend(2, 2_000), 'joined', 'half as long is long enough');
  t.equal(leases.minuteUnused(ACCOUNT), 5);
  clock.pass(1_000);
  t.equal(window.take(ACCOUNT).admitted, false, 'all of it ends with the first');
  t.equal(lend(4, 1_000), 5, 'what has expired is told, and given back');
  t.equal(leases.minuteUnused(ACCOUNT), 4);
  t.equal(lend(1, 2_001), 4, 'less than half as long would cost the new ones too much');
  t.equal(lend(PERMITS_MAX, 2_001), 1, 'more than the word can count takes the place as well');
  t.equal(leases.minuteUnused(ACCOUNT), PERMITS_MAX);
  t.end();
});

void t.test(
  'a grant of more permits than its word can count would be valid for longer: it is refused',
  (t) => {
    const { clock, window, leases, lend } = createWorld();
    lend(1, 1_000);
    for (const permits of [PERMITS_MAX + 1, 2 ** 32, -1, 1.5, NaN, Infinity])
      t.throws(() => lend(permits, 1_000), /the permits of a grant fit/, String(permits));
    t.throws(() => lend(1, NaN), RangeError);
    t.equal(leases.minuteUnused(ACCOUNT), 1, 'and nothing has changed');
    clock.pass(1_000);
    t.notOk(window.take(ACCOUNT).admitted);
    t.end();
  },
);

void t.test('who leaves few is the only one to say so', (t) => {
  const { window, lend, low } = createWorld();
  lend(4, 1_000, 2);
  for (let taken = 0; taken < 4; taken++) window.take(ACCOUNT);
  t.same(low, [ACCOUNT]);
  t.end();
});

void t.test('what was refused for good is not asked again before its time', (t) => {
  const { clock, window, leases } = createWorld();
  leases.publishMinute(ACCOUNT, 7, clock.monotonic + 30_000, clock.monotonic + 250, 0);
  const { admitted, mayAskForMore, resetWallMs } = window.take(ACCOUNT);
  t.same([admitted, mayAskForMore], [false, false]);
  t.equal(resetWallMs, clock.wallMs() + 30_001, 'whoever waits so long finds one free');
  t.equal(window.take(ACCOUNT, 60).mayAskForMore, true, 'of another limit it was not asked');
  clock.pass(250);
  t.equal(window.take(ACCOUNT).mayAskForMore, true);
  t.end();
});

void t.test('a thread that stands still before it has its permit takes it of what is lent by then', (t) => {
  for (let step = 0; step < 2; step++) {
    const { clock, window, leases, lend } = createWorld();
    lend(1, 1_000);
    let admitted = false;
    interruptAt(
      step,
      () => (admitted = window.take(ACCOUNT).admitted),
      () => {
        clock.pass(1_000);
        lend(5, 1_000);
      },
    );
    t.same([admitted, leases.minuteUnused(ACCOUNT)], [true, 4], `step ${step}`);
  }
  t.end();
});

void t.test('a thread that stands still after it has its permit loses it with the expiry', (t) => {
  const { clock, window, leases, lend } = createWorld();
  lend(2, 1_000);
  let readings = 0;
  const read = clock.monotonicMs.bind(clock);
  // Between the first reading and the second the grant is over.
  clock.monotonicMs = () => {
    if ((readings += 1) === 2) clock.pass(1_000);
    return read();
  };
  t.equal(window.take(ACCOUNT).admitted, false);
  t.equal(leases.minuteUnused(ACCOUNT), 1, 'and takes no second one');
  t.end();
});

void t.test('taken or taken back: each permit goes to one', (t) => {
  for (let step = 0; ; step++) {
    const { window, leases, lend } = createWorld();
    lend(1, 1_000);
    let admitted = false;
    let back = 0;
    const reached = interruptAt(
      step,
      () => (admitted = window.take(ACCOUNT).admitted),
      () => (back = leases.takeBackMinute(ACCOUNT)),
    );
    if (!reached) break;
    t.equal(Number(admitted) + back, 1, `step ${step}`);
  }
  t.end();
});

void t.test('an account that is opened holds nothing', (t) => {
  const { window, lend } = createWorld();
  lend(3, 1_000);
  window.clear(ACCOUNT);
  t.equal(window.take(ACCOUNT).admitted, false);
  t.equal(window.usedOf(), 0);
  t.end();
});
