/** Pauses between starts, with the clock held. */
import t from 'tap';
import { RestartPolicy } from '#src/core/restart-policy.js';
import { asMonotonicMs, asWallMs } from '#src/core/units.js';

const PAUSES = { firstMs: 100, longestMs: 10_000, healthyMs: 60_000 };

class HeldClock {
  nowMs = 0;
  monotonicMs = () => asMonotonicMs(this.nowMs);
  wallMs = () => asWallMs(this.nowMs);
}

void t.test('pauses double up to the longest', (t) => {
  const policy = new RestartPolicy(new HeldClock(), PAUSES);
  const pauses = Array.from({ length: 10 }, () => policy.pauseAfterExitMs());
  t.same(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000]);
  t.end();
});

void t.test('a healthy life begins them anew, a shorter one does not', (t) => {
  const clock = new HeldClock();
  const policy = new RestartPolicy(clock, PAUSES);
  const liveFor = (ms: number): number => {
    policy.onReady();
    clock.nowMs += ms;
    return policy.pauseAfterExitMs();
  };
  t.equal(liveFor(10), 100);
  t.equal(liveFor(59_999), 200);
  t.equal(liveFor(60_000), 100);
  t.equal(liveFor(10), 200);
  clock.nowMs += 3_600_000;
  t.equal(policy.pauseAfterExitMs(), 400, 'time in which nothing served does not count');
  t.end();
});
