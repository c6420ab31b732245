/** Counter threads come and go, and none writes where another does. */
import t from 'tap';
import { giveBackCounterStripe, takeCounterStripe } from '#src/telemetry/counter-stripes.js';
import { createMetrics, threadNames } from '#src/telemetry/metrics-layout.js';
import { MetricsReader } from '#src/telemetry/metrics-reader.js';
import { ThreadHealth } from '#src/telemetry/thread-health.js';

const names = threadNames(2, 3);

void t.test('each thread has a stripe of its own until it has ended', (t) => {
  const buffers = createMetrics(2, 3);
  const nameOf = (stripe: number | undefined) => stripe !== undefined && names[stripe];
  t.equal(nameOf(takeCounterStripe(buffers, 11)), 'counter-0');
  t.equal(nameOf(takeCounterStripe(buffers, 12)), 'counter-1');
  t.equal(takeCounterStripe(buffers, 13), undefined, 'the ones before it have not ended');
  giveBackCounterStripe(buffers, 13);
  t.equal(takeCounterStripe(buffers, 13), undefined, 'one without a stripe gives none back');
  giveBackCounterStripe(buffers, 11);
  t.equal(nameOf(takeCounterStripe(buffers, 13)), 'counter-0');
  t.equal(takeCounterStripe(buffers, 14), undefined);
  t.end();
});

void t.test('only threads that run are read', (t) => {
  const buffers = createMetrics(2, 3);
  const reader = new MetricsReader(buffers);
  t.same(reader.threads(), []);
  const stripe = takeCounterStripe(buffers, 11)!;
  new ThreadHealth(buffers, stripe).stop();
  t.match(reader.threads(), [{ thread: stripe, delayP99Ms: 0, delayMaxMs: 0 }]);
  giveBackCounterStripe(buffers, 11);
  t.same(reader.threads(), []);
  t.end();
});
