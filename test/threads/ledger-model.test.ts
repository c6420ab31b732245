/**
 * Threads do at random what the gateway does with a ledger, and a model that is obviously right must explain
 * it.
 *
 * In turns, one operation at a time, each by its own thread and Ledger over the same buffers: every response,
 * and all that is then seen of every account, equals the model's. At once: what every thread was told adds up
 * to what is seen when all stand still, whatever the order was; and who dies has each call ended once, though
 * all threads try to at the same time.
 *
 * The time is a shared word that the test moves. TOLLGATE_TEST_SEED, the seed of the first run, repeats it:
 * in turns step by step, at once as far as the threads fall into the same order.
 */
import { once } from 'node:events';
import { isDeepStrictEqual } from 'node:util';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { asAccountIndex, asCallSlot, asPicoUnits } from '#src/core/units.js';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { Ledger } from '#src/ledger/ledger.js';
import { START_WALL_MS, stateOf } from '../fixtures/ledger-world.js';
import {
  DAY_32NDS,
  meet,
  ModelLedger,
  see,
  SHARED_BYTES,
  SharedClock,
  SLOTS_PER_THREAD,
  SPAN_TICKS,
  takeTurns,
  TICK_32NDS,
  type Event,
  type Limits,
  type ModelCall,
  type ModelJob,
  type Operation,
  type RoundLog,
  type Step,
} from '../support/ledger-model.js';
import { newSeed, randomBelow } from '../support/random.js';

const WORKERS = 3;
/** The number of the main thread among the actors. */
const MAIN = WORKERS;
const SLOTS = WORKERS * SLOTS_PER_THREAD;
const ACCOUNTS = 5;
const START_32NDS = START_WALL_MS * 32;

const TURN_RUNS = 40;
const STEPS = 700;
/** Slots of one thread in turns: few, so that they are mostly in use. */
const SLOTS_IN_TURNS = 4;

/**
 * 69 hours, after which a mark of the minute carries the same turn again. Not while threads race: one that is
 * stopped for exactly so long may roll a tick early, as window.ts says.
 */
const SAME_TURN_32NDS = SPAN_TICKS * 4_096 * TICK_32NDS;

const RACE_RUNS = 40;
const ROUNDS = 6;
const LOOKS_PER_ROUND = 150;

type Random = ReturnType<typeof randomBelow>;
const pick = <Value>(random: Random, values: readonly Value[]): Value => values[random(values.length)]!;
const seed = newSeed();

const workers = Array.from(
  { length: WORKERS },
  () => new Worker(new URL('../fixtures/ledger-model.worker.js', import.meta.url)),
);
const ready = Promise.all(workers.map((worker) => once(worker, 'message')));
t.teardown(() => Promise.all(workers.map((worker) => worker.terminate())));

/** Hands the job to the workers, does the main thread's part meanwhile, and returns the workers' logs. */
async function runJob<Log>(job: Omit<ModelJob, 'actor'>, main: () => void): Promise<Log[]> {
  const logs = workers.map(async (worker, actor) => {
    const answer = once(worker, 'message');
    worker.postMessage({ ...job, actor } satisfies ModelJob);
    const [log] = (await answer) as [Log];
    return log;
  });
  main();
  return Promise.all(logs);
}

/** Moves both clocks, mostly to where something changes: the edge of a tick, of a span, of a day. */
function nextTime(random: Random, model: ModelLedger, ...further: number[]): Operation & { kind: 'time' } {
  const { monotonic, wall } = model;
  const toNextTick = (model.tick + 1) * TICK_32NDS - monotonic;
  const toNextDay = (model.today + 1) * DAY_32NDS - DAY_32NDS / 3 - wall;
  const passed = pick(random, [
    random(200),
    random(2 * TICK_32NDS),
    toNextTick,
    toNextTick - 1,
    ...[2, 7, 49, 50, 51, 52].map((ticks) => ticks * TICK_32NDS),
    random(4 * 60_000 * 32),
    ...further,
    toNextDay,
    toNextDay - 1,
  ]);
  // The calendar alone may step back, by hours or over midnight.
  const stepped = random(8) === 0 ? -random(30 * 3_600_000) * 32 : 0;
  return { kind: 'time', monotonic: monotonic + passed, wall: wall + passed + stepped };
}

/** Steps for all threads, with what the model answers to each and then sees. */
function createPlan(random: Random): { steps: Step[]; expected: unknown[] } {
  const model = new ModelLedger(ACCOUNTS);
  const [steps, expected]: [Step[], unknown[]] = [[], []];
  let opened = 0;
  const reversals: (Operation & { kind: 'reverse' })[] = [];
  const usualLimits = Array.from({ length: ACCOUNTS }, () => pick(random, [1, 2, 3, 5, 12, 1_000_000]));

  const amount = (below: number): bigint =>
    random(60) === 0 ? 10n ** BigInt(15 + random(6)) : BigInt(random(below));
  const account = (): number => random(opened);
  const open = (): Operation => {
    const credited = amount(900);
    const state = stateOf({
      credited: asPicoUnits(credited > 10n ** 18n ? 10n ** 18n : credited),
      spent: asPicoUnits(credited < 900n ? credited / 3n : 0n),
      uncovered: asPicoUnits(amount(50) % 10n ** 18n),
      dayNumber: model.today - random(2),
      dayCalls: random(4),
      planIndex: random(100),
      active: random(4) > 0,
    });
    const used = pick(random, [0, 1, usualLimits[opened]!, (1 << 20) - 1 - random(3)]);
    const ageMs = pick(random, [0, random(60_000), random(90_000)]);
    return { kind: 'open', account: asAccountIndex(opened++), state, used, ageMs };
  };
  const slotOf = (actor: number): number => actor * SLOTS_IN_TURNS + random(SLOTS_IN_TURNS);

  const mainOperation = (): Operation => {
    const own = asAccountIndex(account());
    const kinds: (() => Operation)[] = [
      () => nextTime(random, model, SAME_TURN_32NDS),
      () => nextTime(random, model, SAME_TURN_32NDS),
      () => ({ kind: 'credit', account: own, amount: asPicoUnits(amount(300)) }),
      () => ({ kind: 'credit', account: own, amount: asPicoUnits(-amount(200)) }),
      () => ({ kind: 'credit', account: own, amount: asPicoUnits(-model.availableOf(own)) }),
      () => ({ kind: 'setPlan', account: own, planIndex: random(1_000) }),
      () => ({ kind: 'setActive', account: own, active: random(2) === 0 }),
      () => ({ kind: 'drain' }),
      () => ({
        kind: 'releaseSlots',
        first: asCallSlot(random(WORKERS) * SLOTS_IN_TURNS),
        count: SLOTS_IN_TURNS,
      }),
      () => (opened < ACCOUNTS ? open() : { kind: 'drain' }),
    ];
    return pick(random, kinds)();
  };
  const workerOperation = (actor: number): Operation => {
    const own = account();
    if (random(3) === 0) {
      const limit = random(10) === 0 ? 1 + random(6) : usualLimits[own]!;
      return { kind: 'take', account: asAccountIndex(own), limit };
    }
    if (random(6) === 0 && reversals.length > 0) return reversals.splice(random(reversals.length), 1)[0]!;
    const mine = slotOf(actor);
    if (!model.calls.has(mine) && random(8) > 0) {
      const available = model.availableOf(own);
      const hold = pick(random, [amount(120), amount(120), available, available + 1n]);
      const callsPerDay = pick(random, [0, 3, 8, 1_000_000, 1_000_000]);
      return {
        kind: 'admit',
        account: asAccountIndex(own),
        slot: asCallSlot(mine),
        callsPerDay,
        hold: asPicoUnits(hold),
      };
    }
    // Now and then another thread's, and one that is free.
    const slot = asCallSlot(random(8) > 0 ? mine : slotOf(random(WORKERS)));
    if (random(3) === 0) return { kind: 'release', slot };
    const hold = model.calls.get(slot)?.hold ?? 0n;
    const cost = pick(random, [0n, hold, hold + 1n, hold + amount(200), amount(120)]);
    return { kind: 'settle', slot, cost: asPicoUnits(cost) };
  };

  while (steps.length < STEPS) {
    const actor = random(4) === 0 || opened < 2 ? MAIN : random(WORKERS);
    let operation: Operation;
    if (steps.length === 0) {
      const monotonic = random(2) === 0 ? random(60 * TICK_32NDS) : random(10 ** 6) * TICK_32NDS;
      operation = { kind: 'time', monotonic, wall: START_32NDS };
    } else if (opened < 2) operation = open();
    else operation = actor === MAIN ? mainOperation() : workerOperation(actor);
    const call = operation.kind === 'settle' ? model.calls.get(operation.slot) : undefined;
    const answer = model.apply(operation);
    if (call !== undefined) {
      const settlement = answer as Pick<typeof operation & { kind: 'reverse' }, 'charged' | 'uncovered'>;
      const { dayNumber } = call;
      reversals.push({ kind: 'reverse', account: asAccountIndex(call.account), dayNumber, ...settlement });
    }
    steps.push({ actor, operation });
    expected.push({ answer, seen: model.see() });
  }
  return { steps, expected };
}

/** What was done and how it went, for the counts. */
function nameOf({ kind }: Operation, answer: unknown): string {
  if (kind === 'take') return `${kind} ${(answer as { admitted: boolean }).admitted}`;
  if (typeof answer === 'boolean' || typeof answer === 'string') return `${kind} ${answer}`;
  return answer === undefined ? `${kind} nothing` : `${kind} done`;
}

void t.test(`in turns: ${TURN_RUNS} runs of ${STEPS} steps, each as the model says`, async (t) => {
  t.comment(`TOLLGATE_TEST_SEED=${seed}`);
  await ready;
  const kinds = new Map<string, number>();
  for (let run = 0; run < TURN_RUNS; run++) {
    const { steps, expected } = createPlan(randomBelow(seed + run));
    const buffers = createLedgerBuffers({ accountsMax: ACCOUNTS, callsInFlightMax: SLOTS });
    const shared = new SharedArrayBuffer(SHARED_BYTES);
    const job = { buffers, shared, accounts: ACCOUNTS, work: { kind: 'turns', steps } } as const;
    let own: unknown[] = [];
    const logs = await runJob<unknown[]>(job, () => {
      own = takeTurns({ ...job, actor: MAIN }, new Ledger(buffers, new SharedClock(shared)), steps);
    });
    logs.push(own);
    const outcomes = steps.map(({ actor }) => logs[actor]!.shift());
    const wrong = outcomes.findIndex((outcome, step) => !isDeepStrictEqual(outcome, expected[step]));
    if (wrong >= 0) {
      const step = steps[wrong]!;
      const name = `seed ${seed + run}, step ${wrong}`;
      t.same({ step, outcome: outcomes[wrong] }, { step, outcome: expected[wrong] }, name);
    }
    for (const [step, { operation }] of steps.entries()) {
      const name = nameOf(operation, (expected[step] as { answer: unknown }).answer);
      kinds.set(name, (kinds.get(name) ?? 0) + 1);
    }
    if (wrong >= 0) break;
  }
  t.comment([...kinds].map(([name, count]) => `${name}: ${count}`).join(', '));
  for (const name of [
    'take true',
    'take false',
    'admit done',
    'admit daily_limit_exceeded',
    'admit insufficient_quota',
    'settle done',
    'settle nothing',
    'release true',
    'release false',
    'reverse nothing',
    'credit true',
    'credit false',
  ])
    t.ok((kinds.get(name) ?? 0) >= TURN_RUNS, `${name}: often enough to say something`);
});

/** What the threads' logs add up to, for one account. */
interface Sums {
  credited: bigint;
  spent: bigint;
  uncovered: bigint;
  /** Calls of each day, less those given back. */
  readonly callsOf: Map<number, number>;
  readonly takes: (Event & { kind: 'take' })[];
}

/** Adds up logs, in any order that keeps each thread's own; `faults` are what cannot be explained. */
class Books {
  readonly sums: Sums[];
  readonly calls = new Map<number, ModelCall>();
  readonly faults: string[] = [];

  constructor(credited: bigint, accounts: number) {
    this.sums = Array.from({ length: accounts }, () => ({
      credited,
      spent: 0n,
      uncovered: 0n,
      callsOf: new Map(),
      takes: [],
    }));
  }

  check(fact: boolean, name: string): void {
    if (!fact) this.faults.push(name);
  }

  giveBack(account: number, dayNumber: number): void {
    this.#addCalls(account, dayNumber, -1);
  }

  /** Ends the call in `slot`, which must be in flight: nobody has ended it before. */
  end(slot: number): ModelCall | undefined {
    const call = this.calls.get(slot);
    this.check(call !== undefined, `slot ${slot} is ended once`);
    this.calls.delete(slot);
    return call;
  }

  add(event: Event): void {
    switch (event.kind) {
      case 'take':
        this.sums[event.account]!.takes.push(event);
        return;
      case 'admitted':
        this.check(!this.calls.has(event.slot), `slot ${event.slot} is free when it is admitted into`);
        this.calls.set(event.slot, event);
        this.#addCalls(event.account, event.dayNumber, 1);
        return;
      case 'settled': {
        const { cost, charged, uncovered } = event;
        const call = this.end(event.slot);
        if (call === undefined) return;
        this.check(charged + uncovered === cost, 'a cost is charged or uncovered');
        this.check(uncovered === 0n || charged >= call.hold, 'nothing is uncovered while the hold covers it');
        this.sums[call.account]!.spent += charged;
        this.sums[call.account]!.uncovered += uncovered;
        return;
      }
      case 'released': {
        const call = this.end(event.slot);
        if (call !== undefined) this.giveBack(call.account, call.dayNumber);
        return;
      }
      case 'lost':
        return;
      case 'reversed': {
        const sums = this.sums[event.account]!;
        sums.spent -= event.charged;
        sums.uncovered -= event.uncovered;
        this.giveBack(event.account, event.dayNumber);
      }
    }
  }

  #addCalls(account: number, dayNumber: number, calls: number): void {
    const { callsOf } = this.sums[account]!;
    callsOf.set(dayNumber, (callsOf.get(dayNumber) ?? 0) + calls);
  }
}

/** What the main thread saw of a round when all stood still. */
interface MainLog {
  readonly released: number;
  readonly credits: readonly { readonly account: number; readonly amount: bigint }[];
  /** The tick throughout the round, undefined where the time was moved. */
  readonly stillTick: number | undefined;
  readonly tick: number;
  readonly standing: readonly number[];
  readonly faults: number;
  readonly snapshots: readonly (ReturnType<Ledger['snapshot']> & { readonly planIndex: number })[];
  readonly seen: unknown;
}

function explain(
  books: Books,
  limits: readonly Limits[],
  main: MainLog,
  logs: readonly RoundLog[],
  dead: number,
): void {
  books.check(main.faults === 0, 'the law at every look');
  for (const { account, amount } of main.credits) books.sums[account]!.credited += amount;
  for (const log of logs) log.alone.forEach((event) => books.add(event));
  books.check(
    logs.every((log) => log.alone.every((event) => event.kind !== 'lost')),
    'nobody else ends the calls of a living thread',
  );

  const ofTheDead = [...books.calls.keys()].filter((slot) => Math.floor(slot / SLOTS_PER_THREAD) === dead);
  for (const log of logs) log.together.forEach((event) => books.add(event));
  const left = ofTheDead.filter((slot) => books.calls.has(slot));
  books.check(left.length === main.released, `${main.released} released, ${left.length} were left`);
  for (const slot of left) books.add({ kind: 'released', slot });

  for (const [index, snapshot] of main.snapshots.entries()) {
    const { credited, spent, uncovered, callsOf, takes } = books.sums[index]!;
    const { perMinute, perDay } = limits[index]!;
    const calls = [...books.calls.values()].filter(({ account }) => account === index);
    const held = calls.reduce((sum, { hold }) => sum + hold, 0n);
    const expect = (name: string, seen: unknown, told: unknown): void =>
      books.check(seen === told, `account ${index}: ${name} ${String(seen)}, told ${String(told)}`);
    expect('credited', snapshot.credited, credited);
    expect('spent', snapshot.spent, spent);
    expect('uncovered', snapshot.uncovered, uncovered);
    expect('held', snapshot.held, held);
    expect('available', snapshot.available, credited - spent - held);
    expect('calls of the day', snapshot.dayCalls, callsOf.get(snapshot.dayNumber) ?? 0);
    expect('plan', snapshot.planIndex, main.standing[index]);
    books.check(snapshot.available >= 0n, 'nobody goes below zero');
    books.check(snapshot.dayNumber >= Math.max(0, ...callsOf.keys()), 'the day is the last one');
    books.check(
      [...callsOf.values()].every((count) => count >= 0 && count <= perDay),
      'no day has too many',
    );

    const given = takes.filter((take) => take.admitted);
    for (const { after } of given) {
      const inside = given.filter((take) => take.before > after - SPAN_TICKS && take.after <= after).length;
      books.check(inside <= perMinute, `account ${index}: ${inside} of ${perMinute} in a span`);
    }
    const weighing = given.filter((take) => take.before > main.tick - SPAN_TICKS).length;
    books.check(
      snapshot.minuteUsed >= weighing && snapshot.minuteUsed <= perMinute,
      'all that weighs is counted',
    );
    if (main.stillTick === undefined) continue;
    // Nothing was moved over the edge of a tick: a refusal took nothing, and was one because all was taken.
    expect('permits', snapshot.minuteUsed, weighing);
    const refused = takes.some((take) => !take.admitted && take.before === main.stillTick);
    if (refused) expect('permits where one was refused', snapshot.minuteUsed, perMinute);
  }
  books.check(
    logs.every((log) => isDeepStrictEqual(log.seen, main.seen)),
    'all threads see the same when all stand still',
  );
}

void t.test(`at once: ${RACE_RUNS} runs, all that was told adds up`, async (t) => {
  t.comment(`TOLLGATE_TEST_SEED=${seed}`);
  await ready;
  const [byMain, byOthers] = [{ count: 0 }, { count: 0 }];
  for (let run = 0; run < RACE_RUNS; run++) {
    const random = randomBelow(seed + run);
    const accounts = pick(random, [1, 1, 2, ACCOUNTS]);
    const limits = Array.from({ length: accounts }, () => ({
      perMinute: pick(random, [1, 7, 60, 1_000_000]),
      perDay: pick(random, [20, 300, 1_000_000]),
    }));
    const buffers = createLedgerBuffers({ accountsMax: accounts, callsInFlightMax: SLOTS });
    const shared = new SharedArrayBuffer(SHARED_BYTES);
    const words = new Int32Array(shared);
    const clock = new SharedClock(shared);
    const ledger = new Ledger(buffers, clock);
    const model = new ModelLedger(0);
    model.apply({ kind: 'time', monotonic: random(10 ** 6) * TICK_32NDS, wall: START_32NDS });
    clock.set(model.monotonic, model.wall);
    const credited = pick(random, [1_000n, 50_000n, 1_000_000n]);
    const indices = limits.map((_, index) => asAccountIndex(index));
    for (const account of indices)
      ledger.openAccount(account, stateOf({ credited: asPicoUnits(credited), dayNumber: model.today }));

    let latestWall = model.wall;
    const standing = indices.map(() => 0);
    const drained = new Map<number, bigint>(indices.map((account) => [account, credited]));
    const drain = (): number =>
      ledger.dirty.drain((account) => drained.set(account, ledger.snapshot(account).available), 32);
    const playRound = (round: number): MainLog => {
      // The first round of each run, so that nothing abandoned is counted yet.
      const still = round === 0;
      const credits: { account: number; amount: bigint }[] = [];
      let faults = 0;
      const stillTick = still ? clock.tick() : undefined;
      meet(words, WORKERS + 1);
      for (let look = 0; look < LOOKS_PER_ROUND; look++) {
        const account = pick(random, indices);
        const amount = asPicoUnits(BigInt(random(100) - 50));
        if (random(2) === 0 && ledger.credit(account, amount)) credits.push({ account, amount });
        if (random(4) === 0) ledger.setPlan(account, (standing[account] = random(1_000)));
        if (random(4) === 0) drain();
        if (!still && random(10) === 0) {
          // Set back by more than a day, a day's count is no longer what was told of that day.
          const time = nextTime(random, model);
          latestWall = Math.max(latestWall, time.wall);
          model.apply({ ...time, wall: Math.max(time.wall, latestWall - DAY_32NDS) });
          clock.set(model.monotonic, model.wall);
        }
        const { available, held, spent, ...rest } = ledger.snapshot(account);
        if (available < 0n || held < 0n || spent < 0n || available + held + spent !== rest.credited) faults++;
      }
      meet(words, WORKERS + 1);
      const dead = round % WORKERS;
      const released = ledger.releaseSlots(asCallSlot(dead * SLOTS_PER_THREAD), SLOTS_PER_THREAD);
      meet(words, WORKERS + 1);
      drain();
      const snapshots = indices.map((account) => ({
        ...ledger.snapshot(account),
        planIndex: ledger.planIndexOf(account),
      }));
      for (const account of indices) if (drained.get(account) !== ledger.balance.available(account)) faults++;
      const seen = see(ledger, clock, accounts);
      meet(words, WORKERS + 1);
      return {
        ...{ released, credits, stillTick, faults, snapshots, seen },
        tick: clock.tick(),
        standing: [...standing],
      };
    };

    const mainLogs: MainLog[] = [];
    const work = { kind: 'race', seed: seed + run, rounds: ROUNDS, limits } as const;
    const logs = await runJob<RoundLog[]>({ buffers, shared, accounts, work }, () => {
      for (let round = 0; round < ROUNDS; round++) mainLogs.push(playRound(round));
    });
    const books = new Books(credited, accounts);
    for (const [round, main] of mainLogs.entries()) {
      const rounds = logs.map((log) => log[round]!);
      explain(books, limits, main, rounds, round % WORKERS);
      byMain.count += main.released;
      byOthers.count += rounds.flatMap((log) => log.together).filter(({ kind }) => kind !== 'lost').length;
    }
    if (books.faults.length > 0) {
      t.same(books.faults.slice(0, 10), [], `seed ${seed + run}`);
      break;
    }
  }
  t.comment(
    `calls of the dead: ${byMain.count} released by the main thread, ${byOthers.count} ended by others`,
  );
  t.ok(byMain.count + byOthers.count > 0, 'the dead had calls in flight');
});
