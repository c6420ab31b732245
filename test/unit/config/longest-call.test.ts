/** The longest call by the settings: what the retry plan and the fallbacks of a model allow. */
import t from 'tap';
import { longestCallMs } from '#src/config/longest-call.js';
import type { Settings } from '#src/config/schema.js';
import { asAccountIndex } from '#src/core/units.js';
import type { Balancer } from '#src/upstream/balancer.js';
import { connectionFailure } from '#src/upstream/error-mapping.js';
import { RetryPlan } from '#src/upstream/retry-plan.js';
import type { TakenTarget } from '#src/upstream/target-state.js';
import { ManualClock } from '../../fixtures/manual-clock.js';

const model = (
  id: string,
  timeoutsMs: readonly number[],
  fallbacks: readonly string[] = [],
  queueMs = 0,
): object => ({
  id,
  fallbacks,
  upstreams: timeoutsMs.map((total_timeout_ms) => ({ total_timeout_ms, queue_ms: queueMs })),
});
const longest = (...models: readonly object[]): number => longestCallMs(models as Settings['models']);

void t.test('the longest call', (t) => {
  t.equal(longest(), 0);
  t.equal(longest(model('a', [600], [], 5)), 1_805, 'one upstream, after a wait for room, and repeated');
  t.equal(longest(model('a', [600, 100, 700])), 2_500, 'a last try begins within the time of one before it');
  const [a, b] = [model('a', [600], ['b', 'c']), model('b', [10, 20])];
  t.equal(longest(a, b, model('c', [3])), 633 + 3 * 1_200, 'each fallback has its own time');
  t.end();
});

void t.test('an upstream that is tried again fits into the longest call', (t) => {
  const timeoutMs = 60_000;
  const taken = { index: 0, target: { totalTimeoutMs: timeoutMs } } as TakenTarget;
  const alone = { take: () => taken, isAnyLeft: () => false, noRoom: () => undefined } as unknown as Balancer;
  const failure = connectionFailure({ code: 'ECONNREFUSED', message: '', repeatable: true });
  let longestMs = 0;
  for (let round = 0; round < 1_000; round++)
    // When the first two attempts fail, in milliseconds since each began.
    for (const failsAfterMs of [
      [0, 999],
      [500, 400],
      [999, 999],
    ] as const) {
      const clock = new ManualClock();
      const plan = new RetryPlan(alone, asAccountIndex(0), clock);
      for (const ms of [...failsAfterMs, timeoutMs]) {
        plan.take();
        clock.advance(ms);
        const pauseMs = plan.planPauseMs(taken, failure, false);
        if (pauseMs === undefined) break;
        clock.advance(pauseMs);
      }
      // The last attempt could have gone on for all of its time.
      longestMs = Math.max(longestMs, plan.attemptStartMs - 1_000_000_000 + timeoutMs);
    }
  t.ok(longestMs > timeoutMs + 1_000, `${longestMs} ms`);
  t.ok(longestMs <= longest(model('a', [timeoutMs])), `${longestMs} ms`);
  t.end();
});
