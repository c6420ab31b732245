/** What the workers of a process may hold together: by worker, and by the response of a call. */
import t from 'tap';
import { createBudget, releaseBudget, ResponseBudget, WorkerBudget } from '#src/upstream/worker-budget.js';

void t.test('workers of a process share the room, and one that dies gives its part back', (t) => {
  const record = createBudget(2, 100);
  const [first, second] = [0, 1].map((worker) => new WorkerBudget(record, worker, 0));
  t.equal(first!.change(0, 60), true);
  t.equal(second!.change(0, 41), false);
  t.equal(second!.change(0, 40), true);
  t.equal(first!.change(60, 61), false);
  releaseBudget(record, 0);
  t.equal(first!.held, 0);
  t.equal(second!.change(40, 100), true);
  t.equal(second!.change(100, 101), false);
  releaseBudget(record, 0);
  t.equal(second!.change(100, 0), true, 'what is given back twice changes nothing');
  t.equal(first!.change(0, 100), true);
  t.end();
});

void t.test('short answers always find room; what is given back is what was taken', (t) => {
  const budget = new WorkerBudget(createBudget(1, 100), 0, 20);
  const full = new ResponseBudget(budget);
  t.equal(full.grow(100), true);
  const short = new ResponseBudget(budget);
  t.equal(short.grow(20), true, 'not counted');
  t.equal(short.grow(1), false, 'but no longer short');
  t.equal(budget.held, 100);
  full.clear();
  t.equal(short.grow(1), true);
  t.equal(budget.held, 21, 'counted from its first byte');
  t.equal(short.grow(79), true, 'to the last byte');
  t.equal(short.grow(1), false);
  short.clear();
  t.equal(budget.held, 0);
  t.end();
});
