/** Usage rows and stored responses as they lie on disk: what is new is written only if it is there. */
import t from 'tap';
import { asAccountIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { NO_USAGE } from '#src/registry/usage-report.js';
import { packResponse, packUsage, readResponse, readUsage } from '#src/store/record-codec.js';

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

void t.test('a stored response names the model that answered, if it was another', (t) => {
  const record = {
    ...{ account: asAccountIndex(1), key: 'k', bodyDigest: 'a'.repeat(64), endedMs: asWallMs(5) },
    ...{ stream: false, bytes: new Uint8Array([1]) },
  };
  t.notOk('fallback' in packResponse(record));
  t.equal(readResponse(packResponse(record), record, 'it').fallback, undefined);
  const other = packResponse({ ...record, fallback: 'small' });
  t.equal(readResponse(other, record, 'it').fallback, 'small');
  t.end();
});

void t.test('a stored response without its digest is one of a former format, or damaged', (t) => {
  const record = {
    ...{ account: asAccountIndex(1), key: 'k', bodyDigest: 'a'.repeat(64), endedMs: asWallMs(5) },
    ...{ stream: false, fallback: undefined, bytes: new Uint8Array([1]) },
  };
  const { digest, ...former } = packResponse(record);
  t.match(digest, /^[0-9a-f]{64}$/);
  t.same(readResponse({ ...former, format: 4 }, record, 'it'), record, 'formats before 5 had none');
  const damaged = { code: 'damaged' };
  t.throws(() => readResponse(former, record, 'it'), damaged);
  t.throws(() => readResponse({ ...former, format: 4 }, record, 'it', 0), damaged, 'the cache wants one');
  t.throws(() => readResponse(packResponse(record), { ...record, key: 'other' }, 'it'), damaged);
  for (const change of [{ stream: true }, { endedMs: 6 }, { fallback: 'm' }, { bytes: null }])
    t.throws(() => readResponse({ ...packResponse(record), ...change }, record, 'it'), damaged);
  t.end();
});
