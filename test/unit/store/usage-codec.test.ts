/** Usage rows as they lie on disk: a count that earlier versions lacked is written only if it is not 0. */
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { NO_USAGE } from '#src/registry/usage-report.js';
import { packUsage, readUsage } from '#src/store/usage-codec.js';

const PLAIN = { ...NO_USAGE, calls: 2, promptTokens: 9, completionTokens: 3, cost: asPicoUnits(7n) };
const RICH = {
  ...PLAIN,
  fallbackCalls: 1,
  cacheWriteTokens: 5,
  cacheWrite1hTokens: 4,
  reasoningTokens: 2,
};

void t.test('a row without parts is that of a former Tollgate, and is read as such', (t) => {
  const stored = packUsage(PLAIN);
  t.same(Object.keys(stored).sort(), [
    'cachedTokens',
    'calls',
    'completionTokens',
    'costPicoUnits',
    'estimatedCalls',
    'failedCalls',
    'format',
    'promptTokens',
    'uncoveredPicoUnits',
  ]);
  t.same(readUsage(stored, 'it'), PLAIN);
  t.end();
});

void t.test('parts are kept, and a wrong one is damage', (t) => {
  t.same(readUsage(packUsage(RICH), 'it'), RICH);
  t.throws(() => readUsage({ ...packUsage(RICH), reasoningTokens: -1 }, 'it'), { code: 'damaged' });
  t.end();
});
