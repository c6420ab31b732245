/** Lines of the usage log: what is in them, and that they are JSON whatever names hold. */
import t from 'tap';
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { usageLine } from '#src/gateway/usage-log.js';
import type { JournalRecord } from '#src/ledger/journal-layout.js';

const names = {
  ids: { accountIdOf: (index: number) => `acct_${index}`, keyIdOf: (index: number) => `key_${index}` },
  modelIdOf: () => 'a "quoted" m\u00f6del',
};

const SETTLED: JournalRecord = {
  request: 35,
  endedMs: asWallMs(Date.UTC(2025, 0, 31, 12)),
  promptTokens: 9,
  cachedTokens: 4,
  cacheWriteTokens: 3,
  cacheWrite1hTokens: 2,
  reasoningTokens: 5,
  completionTokens: 12,
  charged: asPicoUnits(8_550_000n),
  uncovered: asPicoUnits(0n),
  account: asAccountIndex(2),
  key: asKeyIndex(7),
  model: 0,
  requested: 0,
  outcome: 'served',
  source: 1,
  durationMs: 640,
};
const ROW = { keyId: 'key_a', modelId: 'small' };

const settledLine = (record: Partial<JournalRecord>): string =>
  usageLine(names, 'req_1-', { ...SETTLED, ...record }, ROW);

void t.test('a settled call is a line of the usage log with all that is known of it', (t) => {
  t.equal(
    settledLine({}),
    '{"time":"2025-01-31T12:00:00.000Z","request_id":"req_1-z","account":"acct_2","key":"key_a","model":"small",' +
      '"answered_model":"small",' +
      '"outcome":"served","prompt_tokens":9,"cached_tokens":4,"cache_write_tokens":3,' +
      '"cache_write_1h_tokens":2,"completion_tokens":12,"reasoning_tokens":5,"source":"counted","cost":"0.00000855","uncovered":"0.00","duration_ms":640}',
  );
  t.end();
});

void t.test('a call that another model answered names both', (t) => {
  t.match(JSON.parse(settledLine({ requested: 1 })), { model: names.modelIdOf(), answered_model: 'small' });
  t.end();
});

void t.test('failed and reversed calls', (t) => {
  const failed = settledLine({ outcome: 'provider_unavailable', charged: asPicoUnits(0n) });
  t.match(JSON.parse(failed), {
    answered_model: null,
    outcome: 'provider_unavailable',
    source: null,
    cost: '0.00',
  });
  const reversed = settledLine({ outcome: 'reversed', charged: asPicoUnits(-8_550_000n), source: 0 });
  t.match(JSON.parse(reversed), { outcome: 'reversed', source: 'reported', cost: '-0.00000855' });
  t.end();
});

void t.test('names beyond ASCII, and an account that cannot be read', (t) => {
  const row = { ...ROW, modelId: 'a "quoted" m\u00f6del' };
  const ids = { accountIdOf: () => null, keyIdOf: () => null };
  const line = usageLine({ ...names, ids }, 'req_0-', SETTLED, row);
  t.match(JSON.parse(line), { account: null, key: 'key_a', model: row.modelId });
  t.end();
});
