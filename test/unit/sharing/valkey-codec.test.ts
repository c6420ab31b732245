/** What operators see of a scope whose record at the server has what this version does not know. */
import t from 'tap';
import { decodeView, type RawView } from '#src/sharing/valkey-codec.js';
import { useOf } from '#src/sharing/sharing-stats.js';

void t.test('a stock of a newer version is left out, and the others are read', (t) => {
  const view: RawView = [
    ...[5, 2],
    [
      [
        0,
        5,
        2,
        1,
        [
          ['zz', 7],
          ['dt', 3],
        ],
      ],
    ],
    [
      ['zz', 20_000, 7, 1],
      ['dt', 20_000, 9, 4],
    ],
    ...[0, 0, 0, 0, 0, 0],
  ] as unknown as RawView;
  const decoded = decodeView('a1', view, undefined);
  t.strictSame(Object.keys(decoded.stocks), ['tokens_per_day', 'balance']);
  t.strictSame(decoded.processes[0]!.used, { tokens_per_day: 3n });
  t.strictSame([...useOf(decoded).quotas.keys()], ['requests_per_minute', 'tokens_per_day']);
  t.end();
});
