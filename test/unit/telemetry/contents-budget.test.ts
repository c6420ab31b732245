/** The memory budget for contents that are not written yet. */
import t from 'tap';
import { ContentsBudget, createContentsBudget } from '#src/telemetry/contents-budget.js';

const MIB = 1024 * 1024;

void t.test('what is refused takes nothing, and what is given back can be taken again', (t) => {
  const budget = new ContentsBudget(createContentsBudget());
  t.ok(budget.take(31 * MIB));
  for (let tries = 0; tries < 100; tries++) t.notOk(budget.take(2 * MIB), 'more than is left');
  t.ok(budget.take(MIB), 'all that is left');
  t.notOk(budget.take(1));
  budget.giveBack(MIB);
  t.ok(budget.take(MIB));
  t.equal(budget.dropped, 0, 'the listener counts what it drops');
  t.end();
});

void t.test('a successor has the whole budget, and goes on counting', (t) => {
  const buffer = createContentsBudget();
  const [listener, main] = [new ContentsBudget(buffer), new ContentsBudget(buffer)];
  t.ok(listener.take(32 * MIB));
  listener.countDropped();
  main.giveBackAll();
  t.ok(new ContentsBudget(buffer).take(32 * MIB));
  listener.countDropped();
  t.equal(main.dropped, 2);
  t.end();
});
