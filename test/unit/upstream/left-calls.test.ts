/** How many calls without a client the workers of a process let finish together. */
import t from 'tap';
import { LEFT_CALLS_OF_ACCOUNT_MAX } from '#src/core/limits.js';
import { asAccountIndex } from '#src/core/units.js';
import { LeftCalls } from '#src/upstream/left-calls.js';
import { createBudget, releaseBudget, WorkerBudget } from '#src/upstream/worker-budget.js';
import { targetOf } from '../../fixtures/upstream-server.js';

const TARGET = targetOf('http://127.0.0.1:1', { whenClientLeaves: 'finish' });

void t.test('workers share the bound; what ends, or dies with its worker, makes room', (t) => {
  const record = createBudget(2, 3);
  const ends: string[] = [];
  const metrics = { countLeft: (_slot: number, end: string) => ends.push(end) };
  const [first, second] = [0, 1].map((worker) => new LeftCalls(metrics, new WorkerBudget(record, worker)));
  const leave = (worker = first, account = 1) => worker!.begin(TARGET, asAccountIndex(account), false);
  const one = leave();
  t.ok(one && leave(first, 2) && leave(second));
  t.equal(leave(), undefined, 'the bound is reached');
  t.equal(leave(second), undefined, 'for the other worker too');
  one!.end('finished');
  one!.end('finished');
  t.ok(leave(second), 'one has ended');
  t.equal(leave(second), undefined);
  releaseBudget(record, 1);
  t.ok(leave() && leave(), 'what the second worker had is given back');
  t.equal(leave(), undefined);
  t.strictSame(ends, ['aborted', 'aborted', 'finished', 'aborted', 'aborted']);
  t.end();
});

void t.test('an account has a share of each worker', (t) => {
  const record = createBudget(1, 2 * LEFT_CALLS_OF_ACCOUNT_MAX);
  const calls = new LeftCalls({ countLeft: () => undefined }, new WorkerBudget(record, 0));
  const leave = (account: number) => calls.begin(TARGET, asAccountIndex(account), false);
  const left = Array.from({ length: LEFT_CALLS_OF_ACCOUNT_MAX }, () => leave(1));
  t.ok(left.every((call) => call !== undefined));
  t.equal(leave(1), undefined);
  t.ok(leave(2));
  left[0]!.end('finished');
  t.ok(leave(1));
  t.end();
});
