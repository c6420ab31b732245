/**
 * What operators see of a scope whose record at the server has what this version does not know; and what must
 * stay as it is, because servers have it on record and hosts of other versions go by it.
 */
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import {
  coordinatorKeys,
  decodeView,
  moneyOf,
  moneyPair,
  partitionOf,
  type RawView,
  registryKeys,
  STOCK_CODES,
} from '#src/sharing/valkey-codec.js';
import { useOf } from '#src/sharing/sharing-stats.js';

void t.test('a stock of a newer version is left out, and the others are read', (t) => {
  const used = [
    ['zz', 7],
    ['dt', 3],
  ] as const;
  const view: RawView = {
    minute: { weighing: 5, unexpired: 2 },
    processes: [{ slot: 0, minute: { weighing: 5, unexpired: 2, number: 1 }, used }],
    stocks: [
      ['zz', 20_000, 7, 1],
      ['dt', 20_000, 9, 4],
    ],
    outstanding: [0, 0],
    spent: [0, 0],
    reported: [0, 0],
  };
  const decoded = decodeView('a1', view, undefined);
  t.strictSame(Object.keys(decoded.stocks), ['tokens_per_day', 'balance']);
  t.strictSame(decoded.processes[0]!.used, { tokens_per_day: 3n });
  t.strictSame([...useOf(decoded).quotas.keys()], ['requests_per_minute', 'tokens_per_day']);
  t.end();
});

void t.test('codes, keys and partitions are those that servers have on record', (t) => {
  t.strictSame(STOCK_CODES, {
    calls_in_flight: 'f',
    tokens_per_minute: 'w',
    calls_per_day: 'dc',
    tokens_per_day: 'dt',
    spend_per_day: 'ds',
    calls_per_month: 'mc',
    tokens_per_month: 'mt',
    spend_per_month: 'ms',
  });
  // Of all 32 bits of the hash: the values that FNV-1a has by its authors.
  const hashes = ['', 'a', 'foobar'].map((scope) => partitionOf(scope, 2 ** 32));
  t.strictSame(hashes, [0x811c9dc5, 0xe40c292c, 0xbf9cf968]);
  t.equal(partitionOf('acct_1', 1), 0);
  const { of, heldBy, ...keys } = coordinatorKeys('ns', 3);
  t.strictSame(keys, { meta: '{ns:3}:meta', nodes: '{ns:3}:nodes', awaited: '{ns:3}:awaited' });
  t.strictSame([...of('a/b'), heldBy('h:0')], ['{ns:3}:s:a/b', '{ns:3}:m:a/b', '{ns:3}:held:h:0']);
  const { logOf, rowsOf, ...ofRegistry } = registryKeys('ns');
  t.strictSame(ofRegistry, {
    state: '{ns:0}:registry',
    candidates: '{ns:0}:registry:claims',
    seeder: '{ns:0}:registry:seeder',
  });
  t.strictSame([logOf('e'), rowsOf('e')], ['{ns:0}:registry:log:e', '{ns:0}:registry:rows:e']);
  t.end();
});

void t.test('an amount of money is the same after it was taken apart', (t) => {
  const base = 1_000_000_000n;
  for (const around of [0n, base, -base, 9n * 10n ** 18n, -9n * 10n ** 18n])
    for (const amount of [around - 1n, around, around + 1n]) {
      const [high, low] = moneyPair(amount);
      t.ok(low >= 0 && low < Number(base), `${amount}`);
      t.equal(moneyOf(high, low), asPicoUnits(amount));
    }
  t.end();
});
