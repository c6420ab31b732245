/** Which of the bugs are logged. */
import t from 'tap';
import { CoordinatorLost } from '#src/sharing/coordinator.js';
import { UnexpectedErrors } from '#src/sharing/coordinator-errors.js';
import { ListLog } from '../store/support.js';

function world() {
  const log = new ListLog();
  const unexpected = new UnexpectedErrors(log);
  const meet = (message: string): CoordinatorLost => unexpected.asLost(new TypeError(message));
  return { log, unexpected, meet };
}

void t.test('kinds that alternate are logged once each', (t) => {
  const { log, meet } = world();
  for (let exchange = 0; exchange < 100; exchange++) {
    t.match(meet('one is undefined'), { reason: 'failing', message: /one is undefined/ });
    meet(`no number at ${exchange}`);
  }
  t.match(log.fields, [
    { error: 'one is undefined', stack: /TypeError: one is undefined\n/ },
    { error: 'no number at 0' },
  ]);
  t.equal(log.lines.length, 2);
  t.end();
});

void t.test('a new kind is logged however many came before, and one that goes on is not again', (t) => {
  const { log, meet } = world();
  for (let kind = 0; kind < 1_000; kind++) {
    meet('of every exchange');
    meet('x'.repeat(kind));
  }
  t.equal(log.lines.length, 1_001);
  t.end();
});

void t.test('a loss is returned as it is', (t) => {
  const { log, unexpected } = world();
  const loss = new CoordinatorLost('failing', 'gone');
  t.equal(unexpected.asLost(loss), loss);
  t.same(log.lines, []);
  t.end();
});
