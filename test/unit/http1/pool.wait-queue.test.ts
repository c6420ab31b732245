import t from 'tap';
import { WaitingLine, type Waiter } from '#src/http1/pool.js';
import { grownBytes } from '../../support/collections.js';
import { randomOf } from '../../support/random.js';

class Call implements Waiter<Call> {
  isWaiting = false;
  ahead: Call | undefined;
  behind: Call | undefined;
  bytes: string[] = [];
}

void t.test('first come, first served, whoever leaves between', (t) => {
  const random = randomOf(2);
  const line = new WaitingLine<Call>();
  let expected: Call[] = [];
  for (let count = 0; count < 20_000; count++) {
    const dice = random();
    if (dice < 0.5) {
      const call = new Call();
      line.add(call);
      expected.push(call);
    } else if (dice < 0.75) {
      if (line.take() !== expected.shift()) t.fail('another one was first');
    } else {
      const call = expected[Math.floor(random() * expected.length)];
      if (call === undefined) continue;
      line.remove(call);
      line.remove(call);
      expected = expected.filter((other) => other !== call);
    }
    if (line.size !== expected.length) t.fail(`${line.size} wait, not ${expected.length}`);
  }
  for (const call of expected) {
    t.equal(call.isWaiting, true);
    t.equal(line.take(), call);
    t.match(call, { isWaiting: false, ahead: undefined, behind: undefined });
  }
  t.equal(line.take(), undefined);
  t.equal(line.size, 0);
  t.end();
});

void t.test('what has left is gone with the next small collection', (t) => {
  const line = new WaitingLine<Call>();
  const come = (): void => {
    const call = new Call();
    call.bytes = new Array<string>(500).fill('x');
    line.add(call);
    if (line.size > 64) line.take();
  };
  const bytes = grownBytes(come);
  t.ok(bytes < 4e6, `the heap grew by ${bytes} bytes`);
  t.end();
});
