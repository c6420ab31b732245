/** Buckets: what is on a bound belongs to it, what is above the last has a place of its own. */
import t from 'tap';
import {
  addHistogram,
  valueCountOf,
  emptyHistogram,
  histogramWords,
  observe,
} from '#src/telemetry/histogram.js';

const BOUNDS = [1, 10, 100];

void t.test('each value is in the bucket of the first bound that it does not exceed', (t) => {
  for (let value = 0; value <= 120; value += 0.5) {
    const words = new Float64Array(2 + histogramWords(BOUNDS));
    observe(words, 1, BOUNDS, value);
    const wanted = BOUNDS.findIndex((bound) => value <= bound);
    const counts = [0, 0, 0, 0];
    counts[wanted < 0 ? BOUNDS.length : wanted] = 1;
    t.same([...words], [0, ...counts, value, 0], `${value} touches its own words`);
  }
  t.end();
});

void t.test('stripes add up', (t) => {
  const one = new Float64Array(histogramWords(BOUNDS));
  const other = new Float64Array(histogramWords(BOUNDS));
  for (const value of [1, 2, 1_000]) observe(one, 0, BOUNDS, value);
  for (const value of [50, 100]) observe(other, 0, BOUNDS, value);
  const reading = emptyHistogram(BOUNDS);
  addHistogram(reading, one, 0);
  addHistogram(reading, other, 0);
  t.same(reading, { bounds: BOUNDS, counts: [1, 1, 2, 1], sum: 1_153 });
  t.equal(valueCountOf(reading), 5);
  t.end();
});
