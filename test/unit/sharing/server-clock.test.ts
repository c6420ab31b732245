/** The estimate of the server's clock, whatever the age of the reading and the drift. */
import t from 'tap';
import { ServerClock } from '#src/sharing/server-clock.js';

const readingAt = (serverMs: number, sentMs: number, roundTripMs: number) => ({
  serverMs,
  sentMs,
  receivedMs: sentMs + roundTripMs,
});

void t.test('a clock that only drifts was not set forward, one that steps was', (t) => {
  for (const roundTripMs of [1, 20, 100])
    for (const gapMs of [250, 10_000, 120_000, 599_000])
      for (const rate of [0.999, 1, 1.001]) {
        const clock = new ServerClock();
        clock.record(readingAt(1_000_000, 5_000, roundTripMs));
        const sentMs = 5_000 + roundTripMs + gapMs;
        // The server read its clock as late as it can, so that most time seems to have passed.
        const serverMs = 1_000_000 + (gapMs + 2 * roundTripMs) * rate;
        const what = `${gapMs} ms later, rate ${rate}, round trips of ${roundTripMs} ms`;
        t.ok(
          clock.leastAt(sentMs) <= 1_000_000 + (gapMs + roundTripMs) * rate,
          `no more than it shows, ${what}`,
        );
        t.notOk(clock.wasSetForward(readingAt(serverMs, sentMs, roundTripMs)), what);
        const stepMs = 110 + 4 * roundTripMs + 0.004 * gapMs;
        t.ok(clock.wasSetForward(readingAt(serverMs + stepMs, sentMs, roundTripMs)), `a step, ${what}`);
      }
  t.end();
});

void t.test('without a reading, or with one that is too old, nothing is known', (t) => {
  const clock = new ServerClock();
  t.equal(clock.leastAt(1_000), 0);
  t.notOk(clock.wasSetForward(readingAt(9_000_000, 1_000, 1)));
  clock.record(readingAt(1_000_000, 1_000, 1));
  t.equal(clock.leastAt(1_001 + 600_000), 0);
  t.notOk(clock.wasSetForward(readingAt(9_000_000, 1_001 + 600_000, 1)));
  t.ok(clock.wasSetForward(readingAt(9_000_000, 1_001 + 599_000, 1)));
  clock.forget();
  t.equal(clock.leastAt(1_002), 0);
  t.end();
});
