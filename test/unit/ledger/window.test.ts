import t from 'tap';
import type { Clock } from '#src/core/clock.js';
import { asMonotonicMs, asWallMs } from '#src/core/units.js';
import { Ledger } from '#src/ledger/ledger.js';
import { TICK_MS } from '#src/ledger/window.js';
import { ACCOUNT, createLedgerWorld, FakeClock, interruptAt } from '../../fixtures/ledger-world.js';
import { newSeed, randomBelow } from '../../support/random.js';

const MINUTE_MS = 60_000;
const TICKS = 50;

/** The window as it is meant: all permits listed, ticks counted whole. */
class WindowModel {
  readonly permits: { tick: number; ms: number }[] = [];

  used(nowMs: number): number {
    const tick = Math.floor(nowMs / TICK_MS);
    return this.permits.filter((permit) => permit.tick + TICKS >= tick).length;
  }

  take(nowMs: number, limit: number): boolean {
    if (this.used(nowMs) >= limit) return false;
    this.permits.push({ tick: Math.floor(nowMs / TICK_MS), ms: nowMs });
    return true;
  }
}

/** The most permits in any span of a minute, `times` ascending; the span's end is not in it. */
function mostInAMinute(times: readonly number[]): number {
  let most = 0;
  let first = 0;
  times.forEach((time, last) => {
    while (time - times[first]! >= MINUTE_MS) first++;
    most = Math.max(most, last - first + 1);
  });
  return most;
}

void t.test('admits the limit and no more; a refusal takes nothing', (t) => {
  const { ledger } = createLedgerWorld();
  for (let n = 0; n < 5; n++) {
    const take = ledger.minute.take(ACCOUNT, 5);
    t.ok(take.admitted);
    t.equal(take.remaining, 4 - n);
  }
  for (let n = 0; n < 3; n++) {
    const take = ledger.minute.take(ACCOUNT, 5);
    t.notOk(take.admitted);
    t.equal(take.remaining, 0);
  }
  t.equal(ledger.snapshot(ACCOUNT).minuteUsed, 5);
  t.match(ledger.minute.check(ACCOUNT, 6), { admitted: true, remaining: 1 }, 'a look says what there is');
  t.match(ledger.minute.check(ACCOUNT, 5), { admitted: false, remaining: 0 });
  t.equal(ledger.snapshot(ACCOUNT).minuteUsed, 5, 'and takes nothing');
  t.ok(ledger.minute.take(ACCOUNT, 6).admitted, 'a raised limit counts at once, what was used stays used');
  t.equal(ledger.minute.take(ACCOUNT, 3).remaining, 0, 'a lowered one leaves nothing, not less');
  t.notOk(ledger.minute.take(ACCOUNT, 6).admitted);
  t.end();
});

void t.test(
  'a permit given anywhere in a tick weighs until the 51st tick after its start, to the edge',
  (t) => {
    for (let tick = 0; tick < 120; tick++) {
      for (const offset of [0, 1 / 64, TICK_MS / 2, TICK_MS - 1 / 64]) {
        const { clock, ledger } = createLedgerWorld();
        clock.monotonic = (1_000 + tick) * TICK_MS + offset;
        const given = clock.monotonic;
        if (!ledger.minute.take(ACCOUNT, 1).admitted) t.fail('the first is admitted');
        // Looks in between, so that the window rolls by various steps; each is refused.
        for (let look = 0; look < tick % 7; look++) {
          clock.pass(TICK_MS * 7);
          if (ledger.minute.take(ACCOUNT, 1).admitted) t.fail(`refused ${clock.monotonic - given} ms later`);
        }
        clock.monotonic = (1_000 + tick + TICKS + 1) * TICK_MS - 1 / 64;
        if (ledger.minute.take(ACCOUNT, 1).admitted) t.fail('refused at the end of the 50th tick');
        clock.monotonic += 1 / 64;
        if (clock.monotonic - given < MINUTE_MS) t.fail('a whole minute has passed');
        if (!ledger.minute.take(ACCOUNT, 1).admitted) t.fail('admitted with the 51st tick');
      }
    }
    t.pass('480 edges');
    t.end();
  },
);

void t.test('who waits until Reset is admitted, who comes 2 ms before is not', (t) => {
  const random = randomBelow(7);
  for (let world = 0; world < 300; world++) {
    const { clock, ledger } = createLedgerWorld();
    clock.monotonic += random(1_000_000) / 7;
    clock.wall += random(1_000) / 7;
    const limit = 1 + random(6);
    let take = ledger.minute.take(ACCOUNT, limit);
    while (take.admitted) {
      clock.pass(random(20_000) / 3);
      take = ledger.minute.take(ACCOUNT, limit);
    }
    // Also where the limit was lowered meanwhile.
    const lowered = 1 + random(limit);
    take = ledger.minute.take(ACCOUNT, lowered);
    if (take.admitted) continue;
    const waitMs = take.resetWallMs - clock.wall;
    clock.pass(waitMs - 2);
    if (ledger.minute.take(ACCOUNT, lowered).admitted) t.fail(`world ${world}: admitted before Reset`);
    clock.pass(2);
    if (!ledger.minute.take(ACCOUNT, lowered).admitted) t.fail(`world ${world}: refused at Reset`);
  }
  const { clock, ledger } = createLedgerWorld();
  const { resetWallMs } = ledger.minute.take(ACCOUNT, 3);
  clock.pass(resetWallMs - clock.wall);
  t.equal(
    ledger.snapshot(ACCOUNT).minuteUsed,
    0,
    'after an admission Reset is when the limit is whole again',
  );
  t.end();
});

void t.test('idle gaps of any length leave nothing behind and bring nothing back', (t) => {
  for (const ticks of [
    49,
    50,
    51,
    52,
    101,
    102,
    4_096 * 51,
    4_096 * 51 - 1,
    2_048 * 51,
    72_000 * 30,
    2 ** 31,
  ]) {
    const { clock, ledger } = createLedgerWorld();
    const model = new WindowModel();
    const random = randomBelow(ticks);
    for (let burst = 0; burst < 4; burst++) {
      for (let n = 0; n < 150; n++) {
        const admitted = ledger.minute.take(ACCOUNT, 20).admitted;
        if (admitted !== model.take(clock.monotonic, 20))
          t.fail(`gap of ${ticks} ticks, burst ${burst}, call ${n}`);
        clock.pass(random(3) * TICK_MS);
      }
      clock.pass(ticks * TICK_MS);
      if (ledger.snapshot(ACCOUNT).minuteUsed !== model.used(clock.monotonic))
        t.fail(`used after ${ticks} ticks`);
    }
  }
  t.pass('11 gaps');
  t.end();
});

void t.test('the count wraps, the window does not notice', (t) => {
  const { clock, ledger } = createLedgerWorld();
  const limit = 300_000;
  let total = 0;
  // Never idle, so the count runs on: five minutes of 300,000 pass 2^20.
  for (let minute = 0; minute < 5; minute++) {
    let admitted = 0;
    for (let part = 0; part < 2; part++) {
      while (admitted < (part + 1) * (limit / 2) && ledger.minute.take(ACCOUNT, limit).admitted) admitted++;
      clock.pass(TICK_MS * 25.5);
    }
    total += admitted;
    t.equal(ledger.snapshot(ACCOUNT).minuteUsed <= limit, true);
  }
  t.ok(total > 1 << 20, `${total} permits`);
  let rest = 0;
  while (ledger.minute.take(ACCOUNT, limit).admitted) rest++;
  t.ok(rest <= limit);
  t.notOk(ledger.minute.take(ACCOUNT, limit).admitted);
  t.end();
});

void t.test('under full pressure at least 98 % of what the limit allows', (t) => {
  for (const limit of [1, 7, 1_000]) {
    const { clock, ledger } = createLedgerWorld();
    const minutes = 600;
    const end = clock.monotonic + minutes * MINUTE_MS;
    let admitted = 0;
    while (clock.monotonic < end) {
      while (ledger.minute.take(ACCOUNT, limit).admitted) admitted++;
      clock.pass(40);
    }
    const share = admitted / (minutes * limit);
    t.ok(share >= 0.98, `limit ${limit}: ${(share * 100).toFixed(2)} %`);
  }
  t.end();
});

void t.test('a small world, exhaustively: every sequence of 7 waits and calls at limits 1 to 3', (t) => {
  const waits = [0, 0.5, 1, 25, 50, 51];
  let sequences = 0;
  const { clock, ledger } = createLedgerWorld();
  for (let limit = 1; limit <= 3; limit++) {
    for (let code = 0; code < waits.length ** 6; code++) {
      // Every sequence starts an hour after the last: an idle gap, and old marks underneath.
      clock.monotonic = Math.ceil(clock.monotonic / TICK_MS + 3_000) * TICK_MS;
      const model = new WindowModel();
      for (let step = 0, rest = code; step < 7; step++, rest = Math.floor(rest / waits.length)) {
        const admitted = ledger.minute.take(ACCOUNT, limit).admitted;
        if (admitted !== model.take(clock.monotonic, limit))
          t.fail(`limit ${limit}, sequence ${code}, step ${step}`);
        clock.monotonic += waits[rest % waits.length]! * TICK_MS;
      }
      if (mostInAMinute(model.permits.map((permit) => permit.ms)) > limit)
        t.fail('the model itself is wrong');
      sequences++;
    }
  }
  t.equal(sequences, 3 * 6 ** 6);
  t.end();
});

/** What another thread may do while one stands still, as waits in ticks before each of its calls. */
const INTRUSIONS = [
  [0],
  [0, 0, 0],
  [1],
  [1, 0, 0],
  [1, 1, 1],
  [25, 25, 1],
  [50],
  [50, 1],
  [51],
  [51, 0, 0],
  [102, 1],
];
/** What has happened before, likewise. */
const HISTORIES = [[], [0], [0, 0], [0, 1, 1], [0, 49], [0, 1, 24, 24], [0, 50], [0, 20, 20, 9], [0, 51, 1]];

void t.test(
  'a thread stopped at any atomic step while another goes on: never one too many, nothing lost for long',
  (t) => {
    let cases = 0;
    for (const limit of [1, 2, 3]) {
      for (const history of HISTORIES) {
        for (const lateTicks of [0, 1, 5, 50, 51]) {
          for (const intrusion of INTRUSIONS) {
            for (let step = 0, reached = true; reached; step++) {
              const { clock, ledger, buffers } = createLedgerWorld();
              const other = new Ledger(buffers, clock);
              const times: number[] = [];
              const take = (by: Ledger): void => {
                if (by.minute.take(ACCOUNT, limit).admitted) times.push(clock.monotonic);
              };
              for (const wait of history) {
                clock.pass(wait * TICK_MS);
                take(ledger);
              }
              clock.pass(lateTicks * TICK_MS);
              reached = interruptAt(
                step,
                () => take(ledger),
                () => {
                  for (const wait of intrusion) {
                    clock.pass(wait * TICK_MS);
                    take(other);
                  }
                },
              );
              for (let n = 0; n < 3; n++) {
                for (let call = 0; call < limit; call++) take(n === 1 ? other : ledger);
                clock.pass(24.5 * TICK_MS);
              }
              const seen = mostInAMinute(times);
              if (seen > limit)
                t.fail(
                  `limit ${limit} [${history.join()}] +${lateTicks} step ${step} [${intrusion.join()}]: ${seen}`,
                );
              clock.pass(51 * TICK_MS);
              times.length = 0;
              for (let call = 0; call <= limit; call++) take(other);
              if (times.length !== limit) t.fail(`the whole limit is back: ${times.length} of ${limit}`);
              cases++;
            }
          }
        }
      }
    }
    t.ok(cases > 10_000, `${cases} cases`);
    t.end();
  },
);

void t.test('threads stopped inside each other: two levels, random steps', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const random = randomBelow(seed);
  for (let world = 0; world < 4_000; world++) {
    const { clock, buffers } = createLedgerWorld();
    const limit = 1 + random(3);
    const times: number[] = [];
    const ledgers = [0, 1, 2].map(() => new Ledger(buffers, clock));
    const act = (depth: number): void => {
      clock.pass([0, 0, 0.5, 1, 2, 10, 49, 50, 51][random(9)]! * TICK_MS);
      const take = (): void => {
        if (ledgers[depth]!.minute.take(ACCOUNT, limit).admitted) times.push(clock.monotonic);
      };
      interruptAt(depth === 2 ? Infinity : random(14), take, () => {
        for (let n = random(5); n >= 0; n--) act(depth + 1);
      });
    };
    for (let n = 0; n < 8; n++) act(0);
    const seen = mostInAMinute(times);
    if (seen > limit) t.fail(`seed ${seed}, world ${world}: ${seen} admitted at limit ${limit}`);
  }
  t.end();
});

void t.test('a permit recorded too late is not used: the clock is read again', (t) => {
  const { buffers } = createLedgerWorld();
  // The first reading is just before the edge of a tick, all later ones are half a minute after.
  const readings = [10_000 * TICK_MS - 1, 10_025 * TICK_MS];
  let reading = 0;
  const clock: Clock = {
    monotonicMs: () => asMonotonicMs(readings[Math.min(reading++, 1)]!),
    wallMs: () => asWallMs(0),
  };
  const before = new FakeClock();
  before.monotonic = readings[0]!;
  new Ledger(buffers, before).minute.take(ACCOUNT, 10);
  t.ok(new Ledger(buffers, clock).minute.take(ACCOUNT, 10).admitted);
  const after = new FakeClock();
  after.monotonic = 10_025 * TICK_MS;
  t.equal(new Ledger(buffers, after).snapshot(ACCOUNT).minuteUsed, 3, 'one each, and the one abandoned');
  after.monotonic = 10_051 * TICK_MS;
  t.equal(
    new Ledger(buffers, after).snapshot(ACCOUNT).minuteUsed,
    1,
    'the one used weighs from when it was used',
  );
  t.end();
});

void t.test('a thread whose clock lags never turns the window back', (t) => {
  const { buffers, clock, ledger } = createLedgerWorld();
  const lagging = new FakeClock();
  lagging.monotonic = clock.monotonic - TICK_MS;
  const behind = new Ledger(buffers, lagging);
  t.ok(ledger.minute.take(ACCOUNT, 2).admitted);
  t.ok(behind.minute.take(ACCOUNT, 2).admitted);
  t.notOk(ledger.minute.take(ACCOUNT, 2).admitted);
  clock.pass(50 * TICK_MS);
  t.notOk(ledger.minute.take(ACCOUNT, 2).admitted, 'both weigh as long as the later of the two');
  t.end();
});
