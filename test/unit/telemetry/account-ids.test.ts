/** Batches of spans until their accounts have ids. */
import t from 'tap';
import { asAccountIndex } from '#src/core/units.js';
import { AccountIds } from '#src/telemetry/account-ids.js';
import { numberedSpan as record } from '../../support/numbered-spans.js';

void t.test('batches wait for the ids of their accounts, in order', async (t) => {
  const asked: number[][] = [];
  const ready: number[] = [];
  const ids = new AccountIds(
    (accounts) => asked.push([...accounts]),
    (records) => ready.push(records.length),
  );
  ids.add([record(0), record(1)]);
  ids.add([record(0)]);
  ids.add([record(2), record(2), record(2)]);
  t.same([asked, ready], [[[0, 1]], []]);
  ids.onIds([
    [asAccountIndex(0), 'acct_0'],
    [asAccountIndex(1), null],
  ]);
  t.same(
    [asked, ready],
    [
      [[0, 1], [2]],
      [2, 1],
    ],
  );
  t.same([ids.idOf(asAccountIndex(0)), ids.idOf(asAccountIndex(1))], ['acct_0', undefined]);
  ids.onIds([[asAccountIndex(2), 'acct_2']]);
  t.same(ready, [2, 1, 3]);
  ids.forget();
  ids.add([record(0)]);
  t.same(asked.at(-1), [0], 'what was forgotten is asked again');
  await ids.releaseAll(1);
  t.same(ready, [2, 1, 3, 1], 'at the end they go without');
});
