/** When the watch of a listener interrupts the main thread. */
import t from 'tap';
import { MainWatchdog } from '#src/telemetry/main-watchdog.js';
import {
  createMetrics,
  openStripe,
  THREAD_MEASUREMENTS,
  THREAD_STRIPE_WORDS,
} from '#src/telemetry/metrics-layout.js';

void t.test(
  'a main thread that looks is left alone, one that does not is interrupted again and again',
  (t) => {
    const buffers = createMetrics(1, 1);
    const main = openStripe(buffers.threads, 0, THREAD_STRIPE_WORDS);
    const interruptedMs: number[] = [];
    let nowMs = 0;
    const watchdog = new MainWatchdog(buffers, () => void interruptedMs.push(nowMs));
    for (; nowMs < 60_000; nowMs += 500) {
      if (nowMs % 1_000 === 0) main[THREAD_MEASUREMENTS]! += 1;
      watchdog.check(nowMs);
    }
    t.same(interruptedMs, []);
    for (; nowMs < 67_500; nowMs += 500) watchdog.check(nowMs);
    t.same(interruptedMs, [61_500, 64_000, 66_500], 'the last look was at 59,000 ms');
    main[THREAD_MEASUREMENTS]! += 1;
    interruptedMs.length = 0;
    for (const endMs = nowMs + 2_500; nowMs < endMs; nowMs += 500) watchdog.check(nowMs);
    t.same(interruptedMs, [], 'it looks again');
    t.end();
  },
);
