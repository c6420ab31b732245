/** The longest call by the settings: what the retry plan and the fallbacks of a model allow. */
import t from 'tap';
import { longestCallMs } from '#src/config/longest-call.js';
import type { Settings } from '#src/config/schema.js';

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
  t.equal(longest(model('a', [600], [], 5)), 605, 'one upstream, after a wait for room');
  t.equal(longest(model('a', [600, 100, 700])), 1_300, 'a last try begins within the time of one before it');
  const [a, b] = [model('a', [600], ['b', 'c']), model('b', [10, 20])];
  t.equal(longest(a, b, model('c', [3])), 633, 'each fallback has its own time');
  t.end();
});
