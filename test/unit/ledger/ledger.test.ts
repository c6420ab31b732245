import t from 'tap';
import { asAccountIndex, asCallSlot, asKeyIndex, asPicoUnits, type PicoUnits } from '#src/core/units.js';
import { resetOfDay } from '#src/ledger/day.js';
import { Ledger, type AccountSnapshot } from '#src/ledger/ledger.js';
import {
  admitTo,
  ACCOUNT,
  createLedgerWorld,
  interruptAt,
  SLOT,
  stateOf,
} from '../../fixtures/ledger-world.js';
import { newSeed, randomBelow } from '../../support/random.js';

const pico = (amount: bigint): PicoUnits => asPicoUnits(amount);
const DAY_MS = 86_400_000;

void t.test('admit takes a call of the day and a hold, or nothing at all', (t) => {
  const { ledger } = createLedgerWorld();
  t.equal(admitTo(ledger, SLOT, ACCOUNT, 2, pico(1_001n)), 'insufficient_quota');
  t.match(ledger.snapshot(ACCOUNT), { dayCalls: 0, available: 1_000n, held: 0n });
  t.equal(admitTo(ledger, SLOT, ACCOUNT, 2, pico(600n)), 'admitted');
  t.match(ledger.snapshot(ACCOUNT), { dayCalls: 1, available: 400n, held: 600n });
  t.throws(() => admitTo(ledger, SLOT, ACCOUNT, 2, pico(1n)), /slot 0 is free/);
  t.match(ledger.snapshot(ACCOUNT), { dayCalls: 1, available: 400n }, 'a wrong slot takes nothing');
  t.equal(admitTo(ledger, asCallSlot(1), ACCOUNT, 2, pico(400n)), 'admitted');
  t.equal(
    admitTo(ledger, asCallSlot(2), ACCOUNT, 2, pico(9_999n)),
    'daily_limit_exceeded',
    'the day comes first',
  );
  t.match(ledger.snapshot(ACCOUNT), { dayCalls: 2, available: 0n, held: 1_000n });
  t.equal(ledger.balance.available(ACCOUNT), 0n);
  t.end();
});

void t.test('a call is settled or released once', (t) => {
  const { ledger } = createLedgerWorld();
  t.equal(ledger.settle(SLOT, pico(1n)), undefined);
  t.notOk(ledger.release(SLOT));
  admitTo(ledger, SLOT, ACCOUNT, 9, pico(100n));
  t.same({ ...ledger.settle(SLOT, pico(70n)) }, { charged: 70n, uncovered: 0n });
  t.equal(ledger.settle(SLOT, pico(70n)), undefined);
  t.notOk(ledger.release(SLOT));
  t.match(ledger.snapshot(ACCOUNT), { available: 930n, held: 0n, spent: 70n, dayCalls: 1 });
  admitTo(ledger, SLOT, ACCOUNT, 9, pico(930n));
  t.ok(ledger.release(SLOT));
  t.notOk(ledger.release(SLOT));
  t.equal(ledger.settle(SLOT, pico(5n)), undefined);
  t.match(ledger.snapshot(ACCOUNT), { available: 930n, held: 0n, spent: 70n, dayCalls: 1 });
  admitTo(ledger, SLOT, ACCOUNT, 9, pico(900n));
  t.same({ ...ledger.settle(SLOT, pico(950n)) }, { charged: 930n, uncovered: 20n });
  t.match(ledger.snapshot(ACCOUNT), { available: 0n, held: 0n, spent: 1_000n, uncovered: 20n });
  t.end();
});

void t.test('a release gives the call back to its own day', (t) => {
  const { clock, ledger } = createLedgerWorld();
  admitTo(ledger, SLOT, ACCOUNT, 9, pico(1n));
  clock.pass(DAY_MS);
  admitTo(ledger, asCallSlot(1), ACCOUNT, 9, pico(1n));
  t.ok(ledger.release(SLOT));
  t.match(ledger.snapshot(ACCOUNT), { dayCalls: 1, available: 999n });
  t.ok(ledger.release(asCallSlot(1)));
  t.match(ledger.snapshot(ACCOUNT), { dayCalls: 0, available: 1_000n });
  t.end();
});

void t.test(
  'who settles and who releases the slots of a dead listener: one of them, at whatever step',
  (t) => {
    const acts: ((ledger: Ledger) => number)[] = [
      (ledger) => (ledger.settle(SLOT, pico(30n)) === undefined ? 0 : 1),
      (ledger) => (ledger.release(SLOT) ? 1 : 0),
      (ledger) => ledger.releaseSlots(SLOT, 1),
    ];
    for (const first of acts) {
      for (const second of acts) {
        for (let step = 0, reached = true; reached; step++) {
          const { ledger, buffers, clock } = createLedgerWorld();
          const other = new Ledger(buffers, clock);
          admitTo(ledger, SLOT, ACCOUNT, 9, pico(100n));
          const counts: number[] = [];
          reached = interruptAt(
            step,
            () => counts.push(first(ledger)),
            () => counts.push(second(other)),
          );
          const { held, spent, dayCalls } = ledger.snapshot(ACCOUNT);
          t.equal(
            counts.reduce((sum, count) => sum + count),
            1,
          );
          t.equal(held, 0n);
          t.ok((spent === 30n && dayCalls === 1) || (spent === 0n && dayCalls === 0));
          t.equal(admitTo(ledger, SLOT, ACCOUNT, 9, pico(1n)), 'admitted', 'the slot is free again');
        }
      }
    }
    t.end();
  },
);

/** Runs `operation` up to its atomic step `step`, where its thread ends; false if it has fewer steps. */
function diesAt(step: number, operation: () => unknown): boolean {
  const death = new Error('the thread has ended');
  try {
    return interruptAt(step, operation, () => {
      throw death;
    });
  } catch (error) {
    if (error === death) return true;
    throw error;
  }
}

void t.test('a listener that dies at any step of a settle or release leaves a slot to its successor', (t) => {
  const key = asKeyIndex(2);
  // The last number: what the listener may have taken and not given back.
  const deaths: [string, (ledger: Ledger) => unknown, bigint][] = [
    ['settles for less than the hold', (ledger) => ledger.settle(SLOT, pico(30n)), 100n],
    ['settles for more than the hold', (ledger) => ledger.settle(SLOT, pico(150n)), 150n],
    ['settles for more than there is', (ledger) => ledger.settle(SLOT, pico(5_000n)), 800n],
    ['releases', (ledger) => ledger.release(SLOT), 100n],
  ];
  for (const [how, end, mostTaken] of deaths) {
    let freed = 0;
    let reached = true;
    for (let step = 0; reached; step++) {
      const { ledger, buffers, clock } = createLedgerWorld();
      const main = new Ledger(buffers, clock);
      const name = `${how}, and dies at step ${step}`;
      const keyDay = { key, callsPerDay: 9 };
      admitTo(ledger, SLOT, ACCOUNT, 9, pico(100n), 3, keyDay);
      admitTo(ledger, asCallSlot(1), ACCOUNT, 9, pico(200n), 3, keyDay);
      reached = diesAt(step, () => end(ledger));
      const released = main.releaseSlots(SLOT, 1);
      const freedNow = main.freeClaimedSlots(SLOT, 1);
      freed += freedNow;
      t.ok(released + freedNow <= 1, name);
      t.equal(main.releaseSlots(SLOT, 1) + main.freeClaimedSlots(SLOT, 1), 0, 'once');

      const { held, callsInFlight, dayCalls } = main.snapshot(ACCOUNT);
      t.ok(held >= 200n && held <= 200n + mostTaken, `${name}: ${held} are held`);
      if (released + freedNow === 1) t.equal(callsInFlight, 1, `${name}: its call in flight is given back`);
      t.ok(callsInFlight >= 1 && dayCalls >= 1, `${name}: what the other call took is left to it`);

      const successor = new Ledger(buffers, clock);
      t.equal(admitTo(successor, SLOT, ACCOUNT, 9, pico(0n), 3, keyDay), 'admitted', name);
      t.ok(successor.settle(SLOT, pico(0n)), 'the slot is used as any');
      t.equal(main.freeClaimedSlots(SLOT, 1), 0);
      t.ok(ledger.release(asCallSlot(1)));
      t.equal(main.snapshot(ACCOUNT).held, held - 200n, 'no hold is given back twice');
    }
    t.ok(freed > 0, how);
  }
  t.end();
});

void t.test('releaseSlots releases what is held in its range, no other', (t) => {
  const { ledger } = createLedgerWorld();
  for (const slot of [1, 2, 4, 6]) admitTo(ledger, asCallSlot(slot), ACCOUNT, 9, pico(100n));
  t.equal(ledger.releaseSlots(asCallSlot(2), 4), 2);
  t.match(ledger.snapshot(ACCOUNT), { held: 200n, dayCalls: 2 });
  t.equal(ledger.releaseSlots(asCallSlot(0), 8), 2);
  t.equal(ledger.releaseSlots(asCallSlot(0), 8), 0);
  t.end();
});

void t.test('standing: plan and activity change each without the other', (t) => {
  const { ledger, buffers, clock } = createLedgerWorld();
  const other = new Ledger(buffers, clock);
  ledger.openAccount(ACCOUNT, stateOf({ planIndex: 3, active: false }));
  t.equal(other.planIndexOf(ACCOUNT), 3);
  t.notOk(other.isActive(ACCOUNT));
  ledger.setActive(ACCOUNT, true);
  ledger.setPlan(ACCOUNT, 1_000_000);
  t.equal(other.planIndexOf(ACCOUNT), 1_000_000);
  t.ok(other.isActive(ACCOUNT));
  ledger.setActive(ACCOUNT, false);
  t.equal(other.planIndexOf(ACCOUNT), 1_000_000);
  t.throws(() => ledger.openAccount(asAccountIndex(4), stateOf()), /within the ledger/);
  t.end();
});

void t.test('an account is opened with what the store knows of it, and starts a minute afresh', (t) => {
  const { ledger } = createLedgerWorld();
  ledger.minute.take(ACCOUNT, 1);
  const books = {
    credited: pico(500n),
    spent: pico(200n),
    uncovered: pico(7n),
    dayNumber: 20_500,
    dayCalls: 12,
  };
  ledger.openAccount(ACCOUNT, { ...books, planIndex: 0, active: true });
  t.same(ledger.snapshot(ACCOUNT), { ...books, available: 300n, held: 0n, minuteUsed: 0, callsInFlight: 0 });
  t.equal(admitTo(ledger, SLOT, ACCOUNT, 12, pico(1n)), 'daily_limit_exceeded');
  t.end();
});

void t.test('the drain visits accounts whose money or day changed, with what they have now', (t) => {
  const { ledger } = createLedgerWorld();
  const drained = (): Map<number, AccountSnapshot> => {
    const seen = new Map<number, AccountSnapshot>();
    ledger.dirty.drain((account) => seen.set(account, ledger.snapshot(account)), 32);
    return seen;
  };
  t.equal(drained().size, 0, 'opening an account is no change');
  t.notOk(ledger.credit(ACCOUNT, pico(-2_000n)));
  t.equal(drained().size, 0, 'a debit that was refused is no change');
  admitTo(ledger, SLOT, ACCOUNT, 0, pico(1n));
  t.equal(drained().size, 0, 'nor is a call that took nothing');
  admitTo(ledger, SLOT, ACCOUNT, 9, pico(2_000n));
  t.equal(
    drained().size,
    1,
    'one that took a call of the day and gave it back may have been flushed meanwhile',
  );
  const changes: [string, () => unknown][] = [
    ['take of the minute', () => ledger.minute.take(ACCOUNT, 9)],
    ['admit', () => admitTo(ledger, SLOT, ACCOUNT, 9, pico(10n))],
    ['settle', () => ledger.settle(SLOT, pico(10n))],
    ['admit', () => admitTo(ledger, SLOT, ACCOUNT, 9, pico(10n))],
    ['release', () => ledger.release(SLOT)],
    ['credit', () => ledger.credit(ACCOUNT, pico(10n))],
  ];
  for (const [name, change] of changes) {
    change();
    t.same([...drained()], [[ACCOUNT, ledger.snapshot(ACCOUNT)]], name);
  }
  t.end();
});

void t.test('the next reset of the day is 00:00 UTC+8', (t) => {
  const { clock, ledger } = createLedgerWorld();
  t.equal(resetOfDay(ledger.day.read(ACCOUNT).dayNumber, clock.wallMs()), Date.UTC(2026, 0, 1, 16));
  clock.pass(16 * 3_600_000 - 1);
  t.equal(resetOfDay(ledger.day.read(ACCOUNT).dayNumber, clock.wallMs()), Date.UTC(2026, 0, 1, 16));
  clock.pass(1);
  t.equal(resetOfDay(ledger.day.read(ACCOUNT).dayNumber, clock.wallMs()), Date.UTC(2026, 0, 2, 16));
  t.end();
});

/** The books as they are meant: no words, no sharing. */
class LedgerModel {
  credited = 1_000n;
  spent = 0n;
  uncovered = 0n;
  day = 0;
  dayCalls = 0;
  readonly open = new Map<number, { hold: bigint; day: number }>();

  get held(): bigint {
    return [...this.open.values()].reduce((sum, { hold }) => sum + hold, 0n);
  }

  get available(): bigint {
    return this.credited - this.spent - this.held;
  }

  admit(slot: number, day: number, callsPerDay: number, hold: bigint): string {
    const calls = day > this.day ? 0 : this.dayCalls;
    if (calls >= callsPerDay) return 'daily_limit_exceeded';
    // A call that the balance refuses was taken and given back, so it opens the new day all the same.
    this.day = day;
    this.dayCalls = calls;
    if (hold > this.available) return 'insufficient_quota';
    this.dayCalls++;
    this.open.set(slot, { hold, day });
    return 'admitted';
  }

  settle(slot: number, cost: bigint): { charged: bigint; uncovered: bigint } | undefined {
    const call = this.open.get(slot);
    if (call === undefined) return undefined;
    const most = call.hold + this.available;
    const charged = cost < most ? cost : most;
    this.open.delete(slot);
    this.spent += charged;
    this.uncovered += cost - charged;
    return { charged, uncovered: cost - charged };
  }

  release(slot: number): boolean {
    const call = this.open.get(slot);
    if (call === undefined) return false;
    this.open.delete(slot);
    if (call.day === this.day && this.dayCalls > 0) this.dayCalls--;
    return true;
  }

  credit(amount: bigint): boolean {
    if (this.available + amount < 0n) return false;
    this.credited += amount;
    return true;
  }
}

/** One step on ledger and model alike; complains where they differ, in the response or in any word. */
function stepBoth(
  world: ReturnType<typeof createLedgerWorld>,
  model: LedgerModel,
  kind: number,
  of: number,
): string {
  const { ledger, clock } = world;
  const slot = of % 3;
  const day = Math.floor((clock.wall + 8 * 3_600_000) / DAY_MS);
  const amount = [0n, 1n, 300n, 700n, 1_000n, 2_500n][of % 6]!;
  let answers: [unknown, unknown];
  if (kind === 0 && model.open.has(slot)) return '';
  if (kind === 0) {
    answers = [
      admitTo(ledger, asCallSlot(slot), ACCOUNT, 4, pico(amount)),
      model.admit(slot, day, 4, amount),
    ];
  } else if (kind === 1) {
    const settlement = ledger.settle(asCallSlot(slot), pico(amount));
    const plain = settlement && `${settlement.charged} ${settlement.uncovered}`;
    const expected = model.settle(slot, amount);
    answers = [plain, expected && `${expected.charged} ${expected.uncovered}`];
  } else if (kind === 2) {
    answers = [ledger.release(asCallSlot(slot)), model.release(slot)];
  } else if (kind === 3) {
    const change = of % 2 === 0 ? amount : 0n - amount;
    answers = [ledger.credit(ACCOUNT, pico(change)), model.credit(change)];
  } else {
    clock.pass(DAY_MS);
    return '';
  }
  if (answers[0] !== answers[1]) return `answered ${String(answers[0])} for ${String(answers[1])}`;
  const seen = ledger.snapshot(ACCOUNT);
  const { credited, available, held, spent, uncovered, dayCalls } = model;
  const equal =
    seen.credited === credited &&
    seen.available === available &&
    seen.held === held &&
    seen.spent === spent &&
    seen.uncovered === uncovered &&
    seen.dayCalls === dayCalls &&
    seen.credited === seen.available + seen.held + seen.spent &&
    seen.available >= 0n;
  return equal ? '' : `words differ: ${Object.values(seen).join(' ')}`;
}

void t.test('a small world, exhaustively: every sequence of 4 operations, against a model', (t) => {
  // Two slots, small and large amounts, and midnight.
  const steps: [number, number][] = [
    [0, 2],
    [0, 3],
    [0, 4],
    [1, 2],
    [1, 5],
    [1, 3],
    [2, 2],
    [2, 3],
    [3, 4],
    [3, 3],
    [4, 0],
  ];
  for (let code = 0; code < steps.length ** 4; code++) {
    const world = createLedgerWorld();
    const model = new LedgerModel();
    for (let n = 0, rest = code; n < 4; n++, rest = Math.floor(rest / steps.length)) {
      const [kind, of] = steps[rest % steps.length]!;
      const fault = stepBoth(world, model, kind, of);
      if (fault !== '') t.fail(`sequence ${code}, step ${n}: ${fault}`);
    }
  }
  t.end();
});

void t.test('a long life, at random, against a model', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const random = randomBelow(seed);
  for (let life = 0; life < 40; life++) {
    const world = createLedgerWorld();
    const model = new LedgerModel();
    for (let n = 0; n < 1_000; n++) {
      const kind = random(100) === 0 ? 4 : random(4);
      const fault = stepBoth(world, model, kind, random(600));
      if (fault !== '') {
        t.fail(`seed ${seed}, life ${life}, step ${n}: ${fault}`);
        break;
      }
    }
  }
  t.end();
});
