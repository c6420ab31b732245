/** Owners have their turns, nothing is lost, and no bound is passed: all short histories of a small world. */
import t from 'tap';
import { FairQueue } from '#src/core/fair-queue.js';

const WEIGHT_MAX = 5;
const OWNER_WEIGHT_MAX = 3;
const HISTORY = process.env.TOLLGATE_HOSTILE_FULL === undefined ? 5 : 6;

interface Value {
  readonly owner: number;
  readonly weight: number;
}

/** Everything that can happen next; the last three take no new value. */
const OFFERS = [0, 1, 2].flatMap((owner) => [1, 2].map((weight) => ({ owner, weight })));
const OPERATIONS = OFFERS.length + 3;

/** A queue and what is known of it. Throws where it does what it must not. */
class World {
  readonly queue = new FairQueue<number, Value>({ weightMax: WEIGHT_MAX, ownerWeightMax: OWNER_WEIGHT_MAX });
  /** Each owner's, in their order. */
  readonly lanes = new Map<number, Value[]>();
  /** Owners in the order of their turns. */
  turns: number[] = [];
  taken: Value | undefined;

  step(operation: number): void {
    const offer = OFFERS[operation];
    if (offer !== undefined) this.offer({ ...offer });
    else if (operation === OFFERS.length) this.take();
    else if (operation === OFFERS.length + 1) this.putBack();
    else this.removeLast();
    this.check();
  }

  offer(value: Value): void {
    const before = this.weight();
    const own = this.weightOf(value.owner);
    const away = this.queue.offer(value.owner, value, value.weight);
    if (!away.includes(value)) this.push(value, false);
    for (const one of away) {
      if (one === value) {
        must(away.length === 1, 'who is turned away moves nobody');
        const fits = own + value.weight <= OWNER_WEIGHT_MAX && before + value.weight <= WEIGHT_MAX;
        must(!fits, 'who fits is taken');
        continue;
      }
      const lane = this.lanes.get(one.owner)!;
      must(lane.pop() === one, 'the latest of a lane goes');
      if (lane.length === 0) this.drop(one.owner);
    }
    const movers = away.filter((one) => one !== value);
    must(before + value.weight > WEIGHT_MAX || movers.length === 0, 'nobody goes while there is room');
    for (const { owner } of movers) must(owner !== value.owner, 'nobody moves himself');
    must(this.weight() <= Math.max(before, WEIGHT_MAX), 'the bound holds');
    must(this.weightOf(value.owner) <= Math.max(own, OWNER_WEIGHT_MAX), "the owner's bound holds");
  }

  take(): void {
    const value = this.queue.take();
    const owner = this.turns.shift();
    must(value?.owner === owner, 'the first in turn is served');
    if (value === undefined || owner === undefined) return;
    const lane = this.lanes.get(owner)!;
    must(lane.shift() === value, 'in the order of the owner');
    if (lane.length === 0) this.lanes.delete(owner);
    else this.turns.push(owner);
    this.taken = value;
  }

  putBack(): void {
    if (this.taken === undefined) return;
    this.queue.putBack(this.taken.owner, this.taken, this.taken.weight);
    this.push(this.taken, true);
    this.taken = undefined;
  }

  removeLast(): void {
    const value = this.lanes.get(this.turns.at(-1) ?? -1)?.at(-1);
    if (value === undefined) return;
    must(this.queue.remove(value.owner, value), 'what waits can be taken out');
    must(!this.queue.remove(value.owner, value), 'once');
    this.lanes.get(value.owner)!.pop();
    if (this.lanes.get(value.owner)!.length === 0) this.drop(value.owner);
  }

  push(value: Value, first: boolean): void {
    const lane = this.lanes.get(value.owner);
    if (lane === undefined) {
      this.lanes.set(value.owner, [value]);
      this.turns.push(value.owner);
    } else if (first) {
      lane.unshift(value);
      this.turns = [...this.turns.filter((owner) => owner !== value.owner), value.owner];
    } else lane.push(value);
  }

  drop(owner: number): void {
    this.lanes.delete(owner);
    this.turns = this.turns.filter((other) => other !== owner);
  }

  weightOf(owner: number): number {
    return (this.lanes.get(owner) ?? []).reduce((sum, { weight }) => sum + weight, 0);
  }

  weight(): number {
    return [...this.lanes.keys()].reduce((sum, owner) => sum + this.weightOf(owner), 0);
  }

  check(): void {
    must(this.queue.weight === this.weight(), 'the weight is that of what waits');
    must(this.queue.size === [...this.lanes.values()].flat().length, 'and so is the size');
    const inTurn = [...this.queue.inTurn()];
    const wanted = this.inTurn();
    must(inTurn.length === wanted.length, 'each value is visited once');
    must(
      inTurn.every(([owner, value], at) => value === wanted[at] && owner === value.owner),
      'in the order of their turns',
    );
  }

  inTurn(): Value[] {
    const longest = Math.max(0, ...[...this.lanes.values()].map(({ length }) => length));
    const rounds = Array.from({ length: longest }, (_, round) => round);
    return rounds.flatMap((round) => this.turns.flatMap((owner) => this.lanes.get(owner)![round] ?? []));
  }
}

function must(holds: boolean, what: string): asserts holds {
  if (!holds) throw new Error(what);
}

void t.test(`all histories of ${HISTORY} operations`, (t) => {
  let histories = 0;
  const failures: string[] = [];
  for (let code = 0; code < OPERATIONS ** HISTORY && failures.length < 5; code++) {
    const world = new World();
    const operations = Array.from(
      { length: HISTORY },
      (_, place) => Math.floor(code / OPERATIONS ** place) % OPERATIONS,
    );
    try {
      for (const operation of operations) world.step(operation);
      while (world.queue.size > 0) world.take();
    } catch (error) {
      failures.push(`${operations.join(' ')}: ${String(error)}`);
    }
    histories += 1;
  }
  t.same(failures, []);
  t.equal(histories, OPERATIONS ** HISTORY);
  t.end();
});

void t.test('one value waits for one turn of each other owner, however many they have', (t) => {
  const queue = new FairQueue<string, string>({ weightMax: 1_000, ownerWeightMax: 500 });
  for (let count = 0; count < 60; count++) for (const owner of ['a', 'b', 'c']) queue.offer(owner, owner, 1);
  queue.offer('d', 'd', 1);
  t.equal([1, 2, 3, 4].map(() => queue.take()).join(''), 'abcd');
  t.end();
});

void t.test('a visit to all values looks at each lane as often as it has values', (t) => {
  const queue = new FairQueue<object, number>({ weightMax: 10_000, ownerWeightMax: 10_000 });
  const much = {};
  for (let count = 0; count < 500; count++) queue.offer(much, count, 1);
  for (let count = 0; count < 500; count++) queue.offer({}, count, 1);
  let visits = 0;
  const iteration = Object.getPrototypeOf(new Map()[Symbol.iterator]()) as {
    next: (this: unknown) => unknown;
  };
  const { next } = iteration;
  iteration.next = function (this: unknown) {
    visits += 1;
    return next.call(this);
  };
  const inTurn = [...queue.inTurn()];
  iteration.next = next;
  t.equal(inTurn.length, 1_000);
  t.ok(visits <= 502, 'lanes with one value are not visited again');
  t.end();
});
