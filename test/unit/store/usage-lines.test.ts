/**
 * The lines of the usage log: what is in them, when they are handed over, and that they never stop the books.
 */
import t from 'tap';
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import type { JournalRecord } from '#src/ledger/journal-layout.js';
import { UsageLines } from '#src/store/usage-lines.js';

const RECORD: JournalRecord = {
  request: 35,
  endedMs: asWallMs(Date.UTC(2025, 0, 31, 12)),
  promptTokens: 9,
  cachedTokens: 4,
  completionTokens: 12,
  charged: asPicoUnits(8_550_000n),
  uncovered: asPicoUnits(0n),
  account: asAccountIndex(2),
  key: asKeyIndex(7),
  model: 0,
  outcome: 'served',
  source: 1,
  durationMs: 640,
};
const ROW = { keyId: 'key_a', modelId: 'small' };

interface World {
  readonly lines: UsageLines;
  readonly handed: string[][];
}

function world(accountIdOf: (account: number) => string | undefined = (account) => `acct_${account}`): World {
  const handed: string[][] = [];
  const lines = new UsageLines({
    append: (more) => void handed.push([...more]),
    names: {
      accountIdOf: (account) => accountIdOf(account) ?? null,
    },
    requestIdOf: (journal, request) => `req_${journal}-${request.toString(36)}`,
  });
  return { lines, handed };
}

void t.test('a call is one line with all that is known of it', (t) => {
  const { lines, handed } = world();
  lines.note(1, RECORD, ROW);
  t.same(handed, [], 'not before the flush has ended');
  lines.handOver();
  lines.handOver();
  t.same(handed, [
    [
      '{"time":"2025-01-31T12:00:00.000Z","request_id":"req_1-z","account":"acct_2","key":"key_a","model":"small",' +
        '"outcome":"served","prompt_tokens":9,"cached_tokens":4,"completion_tokens":12,"source":"counted",' +
        '"cost":"0.00000855","uncovered":"0.00","duration_ms":640}',
    ],
  ]);
  t.end();
});

void t.test('failed and reversed calls', (t) => {
  const { lines, handed } = world();
  lines.note(0, { ...RECORD, outcome: 'provider_unavailable', charged: asPicoUnits(0n) }, ROW);
  lines.note(0, { ...RECORD, outcome: 'reversed', charged: asPicoUnits(-8_550_000n), source: 0 }, ROW);
  lines.handOver();
  const [failed, reversed] = handed[0]!.map((line) => JSON.parse(line) as object);
  t.match(failed, { outcome: 'provider_unavailable', source: null, cost: '0.00' });
  t.match(reversed, { outcome: 'reversed', source: 'reported', cost: '-0.00000855' });
  t.end();
});

void t.test('an account that cannot be read is left out', (t) => {
  const { lines, handed } = world(() => undefined);
  lines.note(0, RECORD, ROW);
  lines.handOver();
  t.match(JSON.parse(handed[0]![0]!), { account: null });
  t.end();
});

void t.test('many lines do not wait for the flush', (t) => {
  const { lines, handed } = world();
  for (let calls = 0; calls < 20_001; calls++) lines.note(0, RECORD, ROW);
  t.same(
    handed.map(({ length }) => length),
    [20_000],
  );
  lines.handOver();
  t.equal(handed[1]?.length, 1);
  t.end();
});
