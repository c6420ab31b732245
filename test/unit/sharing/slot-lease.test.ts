/** A lease of call slots follows its limit, whatever calls hold and whenever the limit is lowered. */
import t from 'tap';
import { SystemClock } from '#src/core/clock.js';
import { asAccountIndex } from '#src/core/units.js';
import { createLedgerBuffers, flightAt, openLedgerViews } from '#src/ledger/layout.js';
import { flightLeases, LeasedStocks } from '#src/ledger/leased-stocks.js';
import { Leases } from '#src/ledger/leases.js';
import { SlotLease } from '#src/sharing/slot-lease.js';
import { slotsOf } from '../../fixtures/day-leases.js';

const ACCOUNT = asAccountIndex(0);
const STOCK = flightAt(ACCOUNT);

/** A lease with `granted` slots under a limit of as many. */
function leaseOf(granted: number) {
  const buffers = createLedgerBuffers({ accountsMax: 1, callsInFlightMax: 100, shared: true });
  const clock = new SystemClock();
  const words = slotsOf(new Leases(buffers, clock), ACCOUNT);
  const views = openLedgerViews(buffers);
  const table = flightLeases(views.accounts.records64);
  const calls = new LeasedStocks(views.accountExtras64, clock, table);
  const lease = new SlotLease(words, 0);
  const exchange = (limit: number, most = 0): void => {
    const needs = Array.from({ length: most }, () => 1n);
    if (lease.ask({ needs, all: true }, BigInt(limit), 0, 0) === undefined) throw new Error('it asks');
    const reply = { granted: BigInt(most), remaining: 0n, heldByOthers: false, period: 0, freeInMs: 0 };
    lease.applyGrant(reply, 0, 0);
  };
  exchange(granted, granted);
  return {
    lease,
    words,
    exchange,
    /** Begins calls until none gets a slot; returns how many began. */
    begin: (): number => {
      let begun = 0;
      while (calls.take(STOCK, 0, 1) !== undefined) begun += 1;
      return begun;
    },
    end: (count: number): void => {
      for (let ended = 0; ended < count; ended++) calls.settle(STOCK, 0, 1, 0);
    },
  };
}

void t.test('a limit that is lowered is followed, whenever it is', (t) => {
  const lower: Record<string, (world: ReturnType<typeof leaseOf>) => void> = {
    'before the first sweep': ({ lease }) => lease.followLimit(5n),
    'after a sweep': ({ lease }) => {
      lease.followLimit(10n);
      lease.followLimit(5n);
    },
    'by an ask': ({ exchange }) => exchange(5),
    'in two steps': ({ lease }) => {
      lease.followLimit(8n);
      lease.followLimit(5n);
    },
    'while slots are withheld': ({ lease }) => {
      lease.setWithheld(true);
      lease.followLimit(5n);
      lease.setWithheld(false);
    },
    'before slots are withheld': ({ lease }) => {
      lease.followLimit(5n);
      lease.setWithheld(true);
      lease.setWithheld(false);
    },
    'while slots are withheld, and raised and lowered before': ({ lease }) => {
      lease.followLimit(20n);
      lease.followLimit(10n);
      lease.setWithheld(true);
      lease.followLimit(10n);
      lease.setWithheld(false);
    },
  };
  for (const [name, act] of Object.entries(lower)) {
    const world = leaseOf(10);
    t.equal(world.begin(), 10);
    act(world);
    t.equal(world.begin(), 0, `no call begins while ten run: ${name}`);
    world.end(10);
    t.ok(world.begin() <= 5, `as many as the limit run afterwards: ${name}`);
  }
  t.end();
});

void t.test('while slots are withheld no call begins, and those that run are reported', (t) => {
  const { lease, words, begin, end } = leaseOf(10);
  t.equal(begin(), 10);
  end(4);
  lease.setWithheld(true);
  lease.setWithheld(true);
  t.equal(begin(), 0);
  t.match(lease.ask({}, 10n, 0, 0), { unused: 6n, least: 0n, most: 0n }, 'each exchange has an ask');
  t.equal(lease.idleMs(60_000), 0, 'calls hold some');
  t.notOk(lease.isEmpty);
  end(1);
  lease.applyGrant({ granted: 5n, remaining: 0n, heldByOthers: false, period: 0, freeInMs: 0 }, 0, 0);
  t.equal(begin(), 0, 'also if some are granted');
  lease.setWithheld(false);
  t.match(words.read(), { granted: 5n, available: 0n }, 'afterwards the lease has what calls hold');
  end(2);
  t.equal(begin(), 2);
  t.end();
});

void t.test('a limit of 0 is no limit: what no call holds goes back', (t) => {
  const { lease, words, begin, end } = leaseOf(10);
  t.equal(begin(), 10);
  end(3);
  lease.giveBack();
  t.match(lease.ask({}, 0n, 0, 0), { unused: 7n });
  t.match(words.read(), { granted: 7n, available: 0n }, 'running calls keep theirs');
  t.end();
});
