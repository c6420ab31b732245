import t from 'tap';
import { picoUnitsPerToken } from '#src/core/money.js';
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { listOf, viewOfAccount, viewOfCreatedKey, viewOfKey, viewOfModel } from '#src/admin/views.js';

void t.test('money is exact, seconds are whole', (t) => {
  const view = viewOfAccount({
    record: {
      index: asAccountIndex(0),
      id: 'acct_x',
      name: 'acme',
      planId: 'free',
      active: false,
      createdMs: asWallMs(1_999),
      credited: asPicoUnits(8_999_999_999_999_999_999n),
    },
    available: asPicoUnits(8_999_999_999_999_999_996n),
    held: asPicoUnits(2n),
    spent: asPicoUnits(1n),
    uncovered: asPicoUnits(10n),
    callsToday: 5,
    requestsThisMinute: 6,
  });
  t.same(view, {
    id: 'acct_x',
    name: 'acme',
    plan: 'free',
    active: false,
    balance: '8999999.999999999996',
    held: '0.000000000002',
    spent: '0.000000000001',
    credited: '8999999.999999999999',
    uncovered: '0.00000000001',
    calls_today: 5,
    requests_this_minute: 6,
    created: 1,
  });
  t.end();
});

void t.test('a key’s digest is never shown, the key where it is made', (t) => {
  const record = {
    index: asKeyIndex(0),
    id: 'key_x',
    accountIndex: asAccountIndex(0),
    accountId: 'acct_x',
    name: 'ci',
    digest: Buffer.alloc(32, 7),
    prefix: 'sk-abcd',
    active: true,
    createdMs: asWallMs(2_000),
  };
  const view = { id: 'key_x', account: 'acct_x', name: 'ci', prefix: 'sk-abcd…', active: true, created: 2 };
  t.same(viewOfKey(record), view);
  t.same(viewOfCreatedKey({ record, key: 'sk-abcdefg' }), { ...view, key: 'sk-abcdefg' });
  t.end();
});

void t.test('prices are shown as the settings give them', (t) => {
  const shown = ['0.15', '0.075', '0.000001', '10000.00'].map((price) => {
    const picoUnits = picoUnitsPerToken(price)!;
    const model = {
      id: 'm',
      ownedBy: 'x',
      createdSeconds: 1,
      price: { inputPicoUnits: picoUnits, cachedInputPicoUnits: picoUnits, outputPicoUnits: picoUnits },
      outputTokensMax: 1,
    };
    return (viewOfModel(model) as { price: { input: string } }).price.input;
  });
  t.same(shown, ['0.15', '0.075', '0.000001', '10000.00']);
  t.end();
});

void t.test('lists', (t) => {
  t.same(listOf(['a'], undefined), { data: ['a'], next: null });
  t.same(listOf([], 0), { data: [], next: '0' });
  t.end();
});
