/** Batches of spans until their accounts have ids. */
import t from 'tap';
import { asAccountIndex } from '#src/core/units.js';
import { AccountIds } from '#src/telemetry/account-ids.js';
import { numberedSpan as record } from '../../support/numbered-spans.js';

void t.test('batches wait for the ids of their accounts, in order', async (t) => {
  const asked: number[][] = [];
  const ready: number[] = [];
  const idsOf: (string | undefined)[][] = [];
  const ids = new AccountIds(
    (accounts) => asked.push([...accounts]),
    (records, idOf) => {
      ready.push(records.length);
      idsOf.push([0, 1, 2].map((account) => idOf(asAccountIndex(account))));
    },
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
  t.same(idsOf.at(-1), ['acct_0', undefined, undefined]);
  ids.onIds([[asAccountIndex(2), 'acct_2']]);
  t.same(ready, [2, 1, 3]);
  ids.forget();
  ids.add([record(0)]);
  t.same(asked.at(-1), [0], 'what was forgotten is asked again');
  await ids.releaseAll(1);
  t.same(ready, [2, 1, 3, 1], 'at the end they go without');
  t.same(idsOf.at(-1), [undefined, undefined, undefined]);
});

void t.test('an account that the reply lacks has no id, and is not asked for again at once', (t) => {
  let asked = 0;
  const given: (string | undefined)[] = [];
  const ids: AccountIds = new AccountIds(
    (accounts) => {
      asked++;
      t.ok(asked < 10, 'requests end');
      if (asked < 10)
        ids.onIds(
          accounts.slice(1).map((account) => [account, `acct_${account}`] as [typeof account, string]),
        );
    },
    (records, idOf) => {
      for (const span of records) given.push('account' in span ? idOf(span.account) : undefined);
    },
  );
  ids.add([record(0), record(1)]);
  t.same(given, [undefined, 'acct_1']);
  t.equal(asked, 1);
  ids.forget();
  ids.add([record(2), record(0)]);
  t.same(given.slice(2), [undefined, 'acct_0'], 'after `forget` it is asked for again');
  ids.onIds([[asAccountIndex(1), 'acct_1']]);
  ids.add([record(1)]);
  t.equal(asked, 3, 'a reply that was not asked for is ignored');
  t.end();
});
