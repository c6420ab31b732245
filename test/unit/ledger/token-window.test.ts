/**
 * Tokens per minute against a model that remembers every call: whatever threads and time do, the tokens of
 * calls in flight and of those that ended in any 60 seconds stay within the limit.
 */
import t from 'tap';
import { createLedgerBuffers, openLedgerViews } from '#src/ledger/layout.js';
import { TokenWindow } from '#src/ledger/token-window.js';
import { TICK_MS } from '#src/ledger/window.js';
import { FakeClock, interruptAt } from '../../fixtures/ledger-world.js';
import { newSeed, randomBelow } from '../../support/random.js';

const MINUTE_MS = 60_000;
const RECORD = 1;

function createWorld(): { clock: FakeClock; windows: TokenWindow[] } {
  const clock = new FakeClock();
  const { quotas } = openLedgerViews(createLedgerBuffers({ accountsMax: 2, callsInFlightMax: 1 }));
  return { clock, windows: [0, 1, 2].map(() => new TokenWindow(quotas, clock)) };
}

interface Call {
  readonly held: number;
  used: number;
  endMs: number;
}

/** What weighs now: what is in flight, and what ended in the last 60 seconds. */
function weightOf(calls: readonly Call[], nowMs: number): number {
  return calls.reduce((sum, { held, used, endMs }) => {
    if (endMs === Infinity) return sum + held;
    return endMs > nowMs - MINUTE_MS ? sum + used : sum;
  }, 0);
}

void t.test('a call weighs what it holds until it ends, and what it used for a minute after', (t) => {
  const { clock, windows } = createWorld();
  const [window] = windows;
  t.ok(window!.take(RECORD, 80, 100));
  clock.pass(5 * MINUTE_MS);
  t.notOk(window!.take(RECORD, 21, 100), 'a long call holds all the time');
  t.same(window!.read(RECORD), { taken: 80, held: 80 });
  window!.settle(RECORD, 80, 30);
  t.same(window!.read(RECORD), { taken: 30, held: 0 });
  t.ok(window!.take(RECORD, 70, 100));
  t.notOk(window!.take(RECORD, 1, 100));
  window!.settle(RECORD, 70, 0);
  clock.pass(MINUTE_MS);
  t.notOk(window!.take(RECORD, 71, 100), 'not a millisecond early');
  clock.pass(2 * TICK_MS);
  t.ok(window!.take(RECORD, 100, 100), 'and no later than two ticks after the minute');
  t.end();
});

void t.test('five calls at once against 100 tokens: as many are admitted as fit', (t) => {
  const { windows } = createWorld();
  const admitted = Array.from({ length: 5 }, (_, n) => windows[n % 3]!.take(RECORD, 40, 100));
  t.same(admitted, [true, true, false, false, false]);
  t.end();
});

void t.test('what is taken without a hold is admitted while there is room', (t) => {
  const { windows } = createWorld();
  const [window] = windows;
  t.ok(window!.take(RECORD, 0, 100));
  t.ok(window!.take(RECORD, 0, 100));
  window!.settle(RECORD, 0, 90);
  t.ok(window!.take(RECORD, 0, 100));
  window!.settle(RECORD, 0, 90);
  t.notOk(window!.take(RECORD, 0, 100));
  t.equal(window!.read(RECORD).taken, 180);
  t.end();
});

void t.test('any order of takes, ends and time: never above the limit, never locked out', (t) => {
  const seed = newSeed();
  for (let run = 0; run < 60; run++) {
    const random = randomBelow(seed + run);
    const { clock, windows } = createWorld();
    const limit = 1 + random(300);
    const calls: Call[] = [];
    for (let step = 0; step < 400; step++) {
      const window = windows[random(3)]!;
      const open = calls.filter(({ endMs }) => endMs === Infinity);
      const kind = random(10);
      if (kind < 2) {
        const ticks = [random(3), 49, 50, 51, 52, 60][random(6)]!;
        clock.pass(random(2) === 0 ? random(3_000) : ticks * TICK_MS - (clock.monotonic % TICK_MS));
      } else if (kind < 7 || open.length === 0) {
        const held = random(limit) + 1;
        if (window.take(RECORD, held, limit)) calls.push({ held, used: 0, endMs: Infinity });
        else if (weightOf(calls, clock.monotonic - 2 * TICK_MS) + held <= limit) {
          const recent = calls.filter(({ endMs }) => endMs > clock.monotonic - MINUTE_MS - 2 * TICK_MS);
          if (
            recent.reduce((sum, { endMs, held, used }) => sum + (endMs === Infinity ? held : used), 0) +
              held <=
            limit
          ) {
            t.fail(`seed ${seed + run}, step ${step}: refused though it fits`);
          }
        }
      } else {
        const call = open[random(open.length)]!;
        call.used = random(call.held + 1);
        call.endMs = clock.monotonic;
        window.settle(RECORD, call.held, call.used);
      }
      const weight = weightOf(calls, clock.monotonic);
      if (weight > limit) t.fail(`seed ${seed + run}, step ${step}: ${weight} of ${limit}`);
      if (window.read(RECORD).taken < weight) t.fail(`seed ${seed + run}, step ${step}: forgot a call`);
    }
    for (const call of calls) if (call.endMs === Infinity) windows[0]!.settle(RECORD, call.held, call.held);
    clock.pass(windows[0]!.msUntil(RECORD, limit, limit));
    if (!windows[0]!.take(RECORD, limit, limit))
      t.fail(`seed ${seed + run}: refused when it was told to come`);
  }
  t.pass(`seed ${seed}`);
  t.end();
});

void t.test('at whatever step another thread takes, ends or passes a tick, no token is forgotten', (t) => {
  const end = (window: TokenWindow) => (window.settle(RECORD, 20, 15), -5);
  const intruders: readonly [string, (window: TokenWindow, clock: FakeClock) => number][] = [
    ['take', (window) => (window.take(RECORD, 30, 100) ? 30 : 0)],
    ['end', end],
    ['tick, then end', (window, clock) => (clock.pass(TICK_MS), end(window))],
    ['a minute, then end', (window, clock) => (clock.pass(51 * TICK_MS), end(window))],
  ];
  const operations: readonly [string, (window: TokenWindow) => number][] = [
    ['take', (window) => (window.take(RECORD, 60, 100) ? 60 : 0)],
    ['end', (window) => (window.settle(RECORD, 40, 25), -15)],
  ];
  for (const [name, operate] of operations) {
    for (const [other, intrude] of intruders) {
      for (let step = 0; ; step++) {
        const { clock, windows } = createWorld();
        const [one, two] = windows;
        one!.take(RECORD, 40, 100);
        one!.take(RECORD, 20, 100);
        const changes: number[] = [];
        const reached = interruptAt(
          step,
          () => changes.push(operate(one!)),
          () => changes.push(intrude(two!, clock)),
        );
        if (!reached) break;
        const expected = changes.reduce((sum, change) => sum + change, 60);
        const { taken } = two!.read(RECORD);
        // A minute passed: what ended before it weighs no more.
        if (!other.startsWith('a minute') && taken < expected)
          t.fail(`${name} and ${other}, step ${step}: ${taken} of ${expected}`);
        if (expected > 100) t.fail(`${name} and ${other}, step ${step}: ${expected} were admitted`);
        clock.pass(52 * TICK_MS);
        const held = (name === 'end' ? 0 : 40) + (other === 'take' ? 20 : 0);
        if (two!.read(RECORD).taken < held)
          t.fail(`${name} and ${other}, step ${step}: a hold was forgotten`);
      }
    }
  }
  t.pass('all steps');
  t.end();
});

void t.test('what was used before a restart weighs for the rest of its minute', (t) => {
  const { clock, windows } = createWorld();
  const [window] = windows;
  window!.set(RECORD, 70, 30_000);
  t.notOk(window!.take(RECORD, 31, 100));
  t.ok(window!.take(RECORD, 30, 100));
  window!.settle(RECORD, 30, 0);
  clock.pass(30_000 + 2 * TICK_MS);
  t.ok(window!.take(RECORD, 100, 100));
  window!.set(RECORD, 70, 90_000);
  t.ok(window!.take(RECORD, 100, 100), 'long ago');
  t.end();
});
