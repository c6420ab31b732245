import t from 'tap';
import { FRAME_BYTES_MAX } from '#src/core/limits.js';
import { asCallSlot, asMonotonicMs } from '#src/core/units.js';
import { CallTable, createCallTable } from '#src/channel/call-table.js';
import { asCallId } from '#src/channel/open-calls.js';
import { FALLBACKS_MAX } from '#src/config/catalog-schema.js';
import { UPSTREAM_SLOTS_MAX } from '#src/telemetry/metrics-layout.js';

/** Half of what is given: the other half is for the frame that overdraws. */
const WINDOW_BYTES = 8;
const SLOT = asCallSlot(3);
/** The ids of calls: that slot in two generations, and the slot beside it. */
const FIRST = asCallId(2 ** 20 * 2 ** 31 + 3);
const NEXT = asCallId(FIRST + 2 ** 20);
const NEIGHBOUR = asCallId(FIRST - 1);

void t.test('credits are spent to the last byte and overdrawn by one frame at most', (t) => {
  const table = new CallTable(createCallTable(8, 2 * WINDOW_BYTES));
  table.open(SLOT, 1);
  t.equal(table.spend(SLOT, 7), true);
  t.equal(table.spend(SLOT, 5), false, 'the frame that crosses the window is sent, and the worker pauses');
  t.equal(table.refund(SLOT, 7), false, 'less than half a window is back: no wake-up yet');
  t.equal(table.refund(SLOT, 1), true, 'half a window is back: the worker is owed its wake-up');
  t.equal(table.refund(SLOT, 4), false, 'which it is owed once');
  t.equal(table.spend(SLOT, 7), true);
  t.end();
});

void t.test('a frame behind the one that paused the worker leaves the wake-up to the listener', (t) => {
  const buffer = createCallTable(8, 2 * WINDOW_BYTES);
  const table = new CallTable(buffer);
  table.open(SLOT, 1);
  const words = new Int32Array(buffer.shared);
  const credit = words.indexOf(WINDOW_BYTES);
  t.equal(table.spend(SLOT, WINDOW_BYTES), false);
  // The first of the two steps of a refund falls between two steps of the worker, which sends a frame that
  // was on its way.
  const { sub } = Atomics;
  const restore = (): unknown => Object.assign(Atomics, { sub });
  t.teardown(restore);
  Object.assign(Atomics, {
    sub: (array: Int32Array, index: number, value: number): number => {
      const before = sub(array, index, value);
      Atomics.add(words, credit, 2 * WINDOW_BYTES);
      return before;
    },
  });
  t.equal(table.spend(SLOT, WINDOW_BYTES), false, 'it stays paused');
  restore();
  t.equal(table.refund(SLOT, 0), true, 'and is owed its wake-up');
  t.end();
});

void t.test('a slot that is opened again has a whole window and no memory of a cancel', (t) => {
  const table = new CallTable(createCallTable(8, 2 * WINDOW_BYTES));
  table.begin(FIRST);
  table.open(SLOT, 1);
  table.spend(SLOT, 100);
  table.begin(NEIGHBOUR);
  t.equal(table.isCancelled(FIRST), false);
  table.cancel(FIRST);
  t.equal(table.isCancelled(FIRST), true);
  t.equal(table.isCancelled(NEIGHBOUR), false, 'its neighbour is not touched');
  table.begin(NEXT);
  table.open(SLOT, 1);
  t.equal(table.isCancelled(NEXT), false);
  t.equal(table.isCancelled(FIRST), true, 'the call before has lost the slot');
  t.equal(table.refund(SLOT, 0), false, 'nobody waits');
  t.equal(table.spend(SLOT, WINDOW_BYTES - 1), true);
  t.end();
});

void t.test('a worker records nothing of a call that has lost its slot to another', (t) => {
  const table = new CallTable(createCallTable(8, 2 * WINDOW_BYTES));
  const recorded = (): unknown => [table.upstreamOf(SLOT), table.fallbackOf(SLOT), table.queuedMsOf(SLOT)];
  table.begin(FIRST);
  table.cancel(FIRST);
  table.recordUpstream(FIRST, 5, 1, asMonotonicMs(1));
  table.recordQueued(FIRST, 2.5);
  t.same(recorded(), [5, 1, 3], 'a call whose client has left still has it');
  table.begin(NEXT);
  table.recordUpstream(FIRST, 6, 2, asMonotonicMs(1));
  table.recordQueued(FIRST, 7);
  t.same(recorded(), [undefined, 0, 0]);
  table.recordUpstream(NEXT, 0, 0, asMonotonicMs(1));
  t.same(recorded(), [0, 0, 0]);
  t.end();
});

void t.test('the more calls are in flight, the smaller the window of a new one', (t) => {
  const wholeBytes = 192 * 1024;
  const table = new CallTable(createCallTable(8, wholeBytes + FRAME_BYTES_MAX));
  const windowBytes = (inFlight: number): number => {
    table.open(SLOT, inFlight);
    let spent = 1_024;
    while (table.spend(SLOT, 1_024)) spent += 1_024;
    const resumed = Math.ceil(spent / 2);
    t.equal(table.refund(SLOT, resumed - 1_024), false, 'nobody is woken for less than half a window');
    t.equal(table.refund(SLOT, 1_024), true, 'half a window is back');
    return spent;
  };
  t.equal(windowBytes(1), wholeBytes);
  t.equal(windowBytes(42), wholeBytes);
  t.equal(windowBytes(64), 128 * 1024);
  t.equal(windowBytes(256), 32 * 1024);
  t.equal(windowBytes(20_000), 32 * 1024, 'no less than that');
  t.end();
});

void t.test('every order of spending and refunding wakes a worker that waits', (t) => {
  // Small world: three frames of 4 bytes each against a window of 8, refunds of 4 in every possible place
  // between.
  const orders = (left: number, sent: number): string[] => {
    if (left === 0 && sent === 0) return [''];
    const next: string[] = [];
    if (left > 0) next.push(...orders(left - 1, sent + 1).map((rest) => `s${rest}`));
    if (sent > 0) next.push(...orders(left, sent - 1).map((rest) => `r${rest}`));
    return next;
  };
  for (const order of orders(5, 0)) {
    const table = new CallTable(createCallTable(8, 2 * WINDOW_BYTES));
    table.open(SLOT, 1);
    let waiting = false;
    let wakeUps = 0;
    let pauses = 0;
    for (const step of order) {
      if (step === 's') {
        // A worker that waits sends nothing; the step is taken all the same to see that a second pause is not
        // lost.
        waiting = !table.spend(SLOT, 4);
        if (waiting) pauses += 1;
      } else if (table.refund(SLOT, 4)) {
        wakeUps += 1;
        waiting = false;
      }
    }
    t.equal(waiting, false, `${order}: after all refunds nobody waits`);
    t.ok(wakeUps <= pauses, `${order}: no wake-up without a pause`);
  }
  t.end();
});

void t.test('the last of all upstreams and the last fallback are told apart', (t) => {
  const table = new CallTable(createCallTable(8, WINDOW_BYTES));
  table.begin(FIRST);
  table.recordUpstream(FIRST, UPSTREAM_SLOTS_MAX - 1, FALLBACKS_MAX, asMonotonicMs(0));
  t.equal(table.upstreamOf(SLOT), UPSTREAM_SLOTS_MAX - 1);
  t.equal(table.fallbackOf(SLOT), FALLBACKS_MAX);
  table.begin(NEXT);
  t.equal(table.upstreamOf(SLOT), undefined);
  t.equal(table.fallbackOf(SLOT), 0);
  t.end();
});

void t.test('when an upstream was tried, however long the host has been up', (t) => {
  const table = new CallTable(createCallTable(8, WINDOW_BYTES));
  table.begin(FIRST);
  for (const sinceMs of [0, 5, 21_474_836.47, 42_949_672.9, 1e9, 1e11 + 0.5]) {
    for (const afterMs of [0, 0.25, 1, 3_600_000, 42_000_000]) {
      table.recordUpstream(FIRST, 1, 0, asMonotonicMs(sinceMs + afterMs));
      const ms = table.triedMs(SLOT, asMonotonicMs(sinceMs));
      t.ok(Math.abs(ms - afterMs) < 0.02, `${sinceMs} and ${afterMs} later: ${ms}`);
    }
  }
  table.recordUpstream(FIRST, 1, 0, asMonotonicMs(99.9));
  t.equal(table.triedMs(SLOT, asMonotonicMs(100)), 0, 'the clock of another thread may be behind');
  t.end();
});
