import t from 'tap';
import { BODY_MEMORY_FACTOR } from '#src/core/limits.js';
import { asAccountIndex } from '#src/core/units.js';
import { BodyBudget, bodyBytesInWork, createBodyBudget, type BodyBounds } from '#src/request/body-budget.js';
import { newSeed, randomOf } from '../../support/random.js';

const KIB = 1_024;
const LISTENERS = 3;
const ACCOUNTS = 4;
const STEPS = 20_000;

const A = asAccountIndex(0);
const B = asAccountIndex(1);
const C = asAccountIndex(3);

const memoryOfBody = (bytes: number): number => Math.ceil((bytes * BODY_MEMORY_FACTOR) / KIB) * KIB;

const bounds = (over: Partial<BodyBounds> = {}): BodyBounds => ({
  bytesMax: 80 * KIB,
  bodyBytesMax: 10 * KIB,
  parseInlineBytesMax: 5 * KIB,
  ...over,
});

void t.test('no account has more than its share, and large bodies leave a rest to the others', (t) => {
  const budget = new BodyBudget(createBodyBudget(1, ACCOUNTS), 0);
  t.equal(budget.take(A, 0, 10 * KIB, bounds()), 'taken', '20 KiB of memory');
  t.equal(budget.take(A, 0, 10 * KIB, bounds()), 'taken', 'half of 80');
  t.equal(budget.take(A, 0, 1, bounds()), 'account_full');
  t.equal(budget.take(B, 0, 10 * KIB, bounds()), 'taken', 'three quarters of 80');
  t.equal(budget.take(C, 0, 6 * KIB, bounds()), 'full', 'for a large one');
  t.equal(budget.take(C, 0, 5 * KIB, bounds()), 'taken', 'not for one that a listener parses');
  t.equal(budget.take(C, 0, 5 * KIB, bounds()), 'taken');
  t.equal(budget.take(C, 0, 1, bounds()), 'full', 'all of it is taken');
  t.end();
});

void t.test('the longest body is had by whoever is alone, however small the budget is', (t) => {
  const budget = new BodyBudget(createBodyBudget(1, ACCOUNTS), 0);
  const tiny = bounds({ bytesMax: KIB });
  t.equal(budget.take(A, 0, 10 * KIB, tiny), 'taken');
  t.equal(budget.take(B, 0, KIB, tiny), 'full');
  budget.giveBack(A, 10 * KIB);
  t.equal(budget.take(B, 0, KIB, tiny), 'taken');
  t.end();
});

void t.test('what a listener that died had taken is free for the one in its place', (t) => {
  const buffer = createBodyBudget(2, ACCOUNTS);
  const other = new BodyBudget(buffer, 0);
  t.equal(other.take(B, 0, 10 * KIB, bounds()), 'taken');
  t.equal(new BodyBudget(buffer, 1).take(A, 0, 10 * KIB, bounds()), 'taken');
  new BodyBudget(buffer, 1);
  t.equal(bodyBytesInWork(buffer), memoryOfBody(10 * KIB), 'the other has what it had');
  t.end();
});

void t.test('a listener may die between the two sums', (t) => {
  for (const isRejected of [false, true]) {
    const buffer = createBodyBudget(1, ACCOUNTS);
    const dying = new BodyBudget(buffer, 0);
    const limits = isRejected ? bounds({ bytesMax: 0, bodyBytesMax: 0 }) : bounds();
    const sub = Atomics.sub.bind(Atomics);
    let calls = 0;
    const stop = t.intercept(Atomics, 'sub', {
      value: (words: Int32Array, at: number, by: number) => {
        if (++calls === 2) throw new Error('terminated');
        return sub(words, at, by);
      },
    });
    t.throws(() => {
      dying.take(A, 0, 10 * KIB, limits);
      dying.giveBack(A, 10 * KIB);
    }, /terminated/);
    stop.restore();
    const next = new BodyBudget(buffer, 0);
    for (let body = 0; body < 2; body++) t.equal(next.take(A, 0, 10 * KIB, bounds()), 'taken');
  }
  t.end();
});

void t.test('over any steps of several listeners no bound is passed, and all comes back', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const next = randomOf(seed);
  const below = (limit: number): number => Math.floor(next() * limit);
  const buffer = createBodyBudget(LISTENERS, ACCOUNTS);
  const budgets = Array.from({ length: LISTENERS }, (_, index) => new BodyBudget(buffer, index));
  const held: { budget: BodyBudget; account: number; bytes: number }[] = [];
  const memoryOf = (account?: number): number =>
    held
      .filter((body) => account === undefined || body.account === account)
      .reduce((sum, { bytes }) => sum + memoryOfBody(bytes), 0);
  const limits = bounds();
  let refusals = 0;
  for (let step = 0; step < STEPS; step++) {
    const body = held[below(held.length)];
    const kind = below(3);
    if (kind === 0 && body !== undefined) {
      held.splice(held.indexOf(body), 1);
      body.budget.giveBack(asAccountIndex(body.account), body.bytes);
    } else if (kind === 1 && body !== undefined) {
      const bytes = Math.min(limits.bodyBytesMax, body.bytes + below(3 * KIB));
      if (body.budget.take(asAccountIndex(body.account), body.bytes, bytes, limits) === 'taken')
        body.bytes = bytes;
      else refusals++;
    } else {
      const budget = budgets[below(LISTENERS)]!;
      const [account, bytes] = [below(ACCOUNTS), 1 + below(limits.bodyBytesMax)];
      if (budget.take(asAccountIndex(account), 0, bytes, limits) === 'taken')
        held.push({ budget, account, bytes });
      else refusals++;
    }
    const most = Math.max(...Array.from({ length: ACCOUNTS }, (_, account) => memoryOf(account)));
    if (
      memoryOf() > limits.bytesMax ||
      most > limits.bytesMax / 2 ||
      bodyBytesInWork(buffer) !== memoryOf()
    ) {
      t.fail(`step ${step}: ${memoryOf()} bytes, ${most} of one account`);
      break;
    }
  }
  t.ok(refusals > STEPS / 100, `${refusals} of ${STEPS} steps were refused`);
  for (const { budget, account, bytes } of held) budget.giveBack(asAccountIndex(account), bytes);
  t.equal(bodyBytesInWork(buffer), 0);
  t.end();
});
