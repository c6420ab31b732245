/** Durations by bucket; a run that failed counts as an error and does not end the lag. */
import t from 'tap';
import type { Clock } from '#src/core/clock.js';
import { asMonotonicMs, asWallMs } from '#src/core/units.js';
import { FLUSH_BOUNDS_MS, FlushMeter } from '#src/telemetry/flush-meter.js';

class HeldClock implements Clock {
  ms = 1_000;
  monotonicMs = () => asMonotonicMs(this.ms);
  wallMs = () => asWallMs(this.ms);
}

void t.test('durations, errors and lag', (t) => {
  const clock = new HeldClock();
  const meter = new FlushMeter(clock);
  const run = (durationMs: number, written: boolean) =>
    meter.measure(() => {
      clock.ms += durationMs;
      return written;
    });
  clock.ms += 500;
  t.equal(meter.read().lagMs, 500, 'from the start');
  t.equal(run(4, true), true);
  t.equal(meter.read().lagMs, 4, 'since the run began: what came during it is not in it');
  clock.ms += 1_000;
  t.equal(run(60_000, false), false, 'what it tells is passed on');
  const { durations, errors, lagMs } = meter.read();
  t.equal(lagMs, 61_004);
  t.equal(errors, 1);
  t.equal(durations.counts[FLUSH_BOUNDS_MS.indexOf(5)], 1);
  t.equal(durations.counts[FLUSH_BOUNDS_MS.length], 1);
  t.equal(durations.sum, 60_004);
  t.end();
});
