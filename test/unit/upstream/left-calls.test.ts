/** How many calls without a client the workers of a process let finish together. */
import t from 'tap';
import { LEFT_CALLS_OF_ACCOUNT_MAX } from '#src/core/limits.js';
import { asAccountIndex } from '#src/core/units.js';
import { createLeftCallTable, LeftCalls, releaseLeftCalls } from '#src/upstream/left-calls.js';
import { targetOf } from '../../fixtures/upstream-server.js';

const TARGET = targetOf('http://127.0.0.1:1', { whenClientLeaves: 'finish' });

void t.test('workers share the bound; what ends, or dies with its worker, makes room', (t) => {
  const table = createLeftCallTable(3, 3);
  const ends: string[] = [];
  const metrics = { countLeft: (_slot: number, end: string) => ends.push(end) };
  const [first, second] = [0, 1].map((worker) => new LeftCalls(metrics, table, worker));
  const leave = (worker = first, account = 1) => worker!.begin(TARGET, asAccountIndex(account), false);
  const one = leave();
  t.ok(one && leave(first, 2) && leave(second));
  t.equal(leave(), undefined, 'the bound is reached');
  t.equal(leave(second), undefined, 'for the other worker too');
  one!.end('finished');
  one!.end('finished');
  t.ok(leave(second), 'one has ended');
  t.equal(leave(second), undefined);
  releaseLeftCalls(table, 1);
  t.ok(leave() && leave(), 'what the second worker had is given back');
  t.equal(leave(), undefined);
  t.strictSame(ends, ['aborted', 'aborted', 'finished', 'aborted', 'aborted']);
  t.end();
});

void t.test('an account has a share of all workers together', (t) => {
  const WORKERS = 3;
  const table = createLeftCallTable(2 * LEFT_CALLS_OF_ACCOUNT_MAX, LEFT_CALLS_OF_ACCOUNT_MAX);
  const workers = Array.from(
    { length: WORKERS },
    (_, worker) => new LeftCalls({ countLeft: () => undefined }, table, worker),
  );
  // The first account has the index 0.
  const leave = (account: number, worker: number) =>
    workers[worker % WORKERS]!.begin(TARGET, asAccountIndex(account), false);
  const left = Array.from({ length: LEFT_CALLS_OF_ACCOUNT_MAX }, (_, call) => leave(0, call));
  t.ok(left.every((call) => call !== undefined));
  for (let worker = 0; worker < WORKERS; worker++) t.equal(leave(0, worker), undefined, 'at no worker');
  t.ok(leave(1, 0), 'another account has its own share');
  left[0]!.end('finished');
  t.ok(leave(0, 1), 'at any worker');
  t.equal(leave(0, 0), undefined);
  releaseLeftCalls(table, 2);
  const again = Array.from({ length: LEFT_CALLS_OF_ACCOUNT_MAX }, (_, call) => leave(0, call)).filter(
    Boolean,
  );
  t.equal(again.length, Math.floor(LEFT_CALLS_OF_ACCOUNT_MAX / WORKERS), 'the share of a worker that died');
  t.end();
});

void t.test('what a worker had is given back once', (t) => {
  const table = createLeftCallTable(2, 2);
  const calls = new LeftCalls({ countLeft: () => undefined }, table, 0);
  const begin = () => calls.begin(TARGET, asAccountIndex(5), false);
  t.ok(begin() && begin());
  t.equal(begin(), undefined);
  releaseLeftCalls(table, 0);
  releaseLeftCalls(table, 0);
  t.ok(begin() && begin(), 'given back once');
  t.equal(begin(), undefined);
  t.end();
});
