import t from 'tap';
import { WaitQueue, type Waiter } from '#src/http1/pool.js';
import { grownBytes } from '../../support/collections.js';
import { randomOf } from '../../support/random.js';

class Call implements Waiter<Call> {
  isWaiting = false;
  previous: Call | undefined;
  next: Call | undefined;
  bytes: string[] = [];
}

void t.test('a call that waits is not queued again, or it would be sent twice', (t) => {
  const queue = new WaitQueue<Call>();
  const call = new Call();
  queue.add(call);
  t.throws(() => queue.add(call), /waits once/);
  t.equal(queue.takeFirst(), call);
  t.equal(queue.size, 0);
  queue.add(call);
  t.equal(queue.size, 1, 'after it has left it may');
  t.end();
});

void t.test('first come, first served, whoever leaves between', (t) => {
  const random = randomOf(2);
  const queue = new WaitQueue<Call>();
  let expected: Call[] = [];
  for (let count = 0; count < 20_000; count++) {
    const dice = random();
    if (dice < 0.5) {
      const call = new Call();
      queue.add(call);
      expected.push(call);
    } else if (dice < 0.75) {
      if (queue.takeFirst() !== expected.shift()) t.fail('another one was first');
    } else {
      const call = expected[Math.floor(random() * expected.length)];
      if (call === undefined) continue;
      queue.remove(call);
      queue.remove(call);
      expected = expected.filter((other) => other !== call);
    }
    if (queue.size !== expected.length) t.fail(`${queue.size} wait, not ${expected.length}`);
  }
  for (const call of expected) {
    t.equal(call.isWaiting, true);
    t.equal(queue.takeFirst(), call);
    t.match(call, { isWaiting: false, previous: undefined, next: undefined });
  }
  t.equal(queue.takeFirst(), undefined);
  t.equal(queue.size, 0);
  t.end();
});

void t.test('what has left is gone with the next small collection', (t) => {
  const queue = new WaitQueue<Call>();
  const come = (): void => {
    const call = new Call();
    call.bytes = new Array<string>(500).fill('x');
    queue.add(call);
    if (queue.size > 64) queue.takeFirst();
  };
  const bytes = grownBytes(come);
  t.ok(bytes < 4e6, `the heap grew by ${bytes} bytes`);
  t.end();
});
