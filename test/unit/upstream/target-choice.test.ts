/** Priority first, then the least load for the weight. */
import t from 'tap';
import { TargetChoice } from '#src/upstream/target-choice.js';
import { targetOf } from '../../fixtures/upstream-server.js';

const target = (name: string, priority: number, weight: number) =>
  targetOf('http://x', { name, priority, weight });

void t.test('the better priority takes all, the others are for failover', (t) => {
  const choice = new TargetChoice([target('a', 1, 1), target('b', 2, 9)]);
  for (let count = 0; count < 5; count++) t.equal(choice.take(new Set())?.target.name, 'a');
  t.equal(choice.take(new Set([0]))?.target.name, 'b');
  t.equal(choice.take(new Set([0, 1])), undefined);
  t.end();
});

void t.test('inside of a priority calls in flight follow the weights', (t) => {
  const choice = new TargetChoice([target('a', 1, 1), target('b', 1, 3), target('c', 2, 100)]);
  for (let count = 0; count < 40; count++) choice.take(new Set());
  t.strictSame(
    [0, 1, 2].map((index) => choice.inFlight(index)),
    [10, 30, 0],
  );
  t.end();
});

void t.test('a place is given back once', (t) => {
  const choice = new TargetChoice([target('a', 1, 1), target('b', 1, 1)]);
  const first = choice.take(new Set())!;
  t.equal(first.target.name, 'a');
  t.equal(choice.take(new Set())?.target.name, 'b');
  first.release();
  first.release();
  t.equal(choice.inFlight(0), 0);
  t.equal(choice.take(new Set())?.target.name, 'a');
  t.end();
});

void t.test('a model without an upstream is a bug', (t) => {
  t.throws(() => new TargetChoice([]), /has an upstream/);
  t.end();
});
