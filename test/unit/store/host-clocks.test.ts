/** By how much the wall clock was set since the last flush. */
import t from 'tap';
import { hostClocks } from '#src/store/host-clocks.js';
import { Store } from '#src/store/store.js';
import { StoppedClock } from './support.js';

void t.test('after a boot, and of books that know no clocks, ages go by the calendar', async (t) => {
  const store = new Store(t.testdir());
  const clock = new StoppedClock();
  const now = hostClocks(clock, 'this boot');
  t.equal(store.steppedMs(now), 0, 'books of before');
  store.commit(() => store.putAccounting({ spendings: new Map(), usages: [], clocks: now }));
  clock.setMs = 5_000;
  clock.nowMs += 5_000;
  t.equal(store.steppedMs(hostClocks(clock, 'this boot')), 5_000);
  t.equal(store.steppedMs(hostClocks(clock, 'another')), 0);
  t.equal(store.steppedMs(undefined), 0);
  clock.setMs += 1;
  t.equal(store.steppedMs(hostClocks(clock, 'this boot')), 0, 'a monotonic clock that went back is another');
  t.match(hostClocks(clock)?.boot, /^[0-9a-f-]{36}$/);
  await store.close();
});
