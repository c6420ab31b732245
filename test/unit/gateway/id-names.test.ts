/** Identifiers by slot: looked up once, anew after a while, and null where they cannot be read. */
import t from 'tap';
import { asAccountIndex, asKeyIndex } from '#src/core/units.js';
import { IdNames } from '#src/gateway/id-names.js';
import { StoppedClock } from '../store/support.js';

void t.test("a slot is looked up once an hour, for it may be another key's a day later", (t) => {
  const clock = new StoppedClock();
  const asked: string[] = [];
  let life = 1;
  const names = new IdNames(
    {
      findAccountId: (account) => {
        asked.push(`account ${account}`);
        return `acct_${account}`;
      },
      findKeyId: (key) => {
        asked.push(`key ${key}`);
        return `key_${key}_${life}`;
      },
    },
    clock,
  );
  for (let times = 0; times < 3; times++) {
    t.equal(names.accountIdOf(asAccountIndex(2)), 'acct_2');
    t.equal(names.keyIdOf(asKeyIndex(7)), 'key_7_1');
  }
  t.same(asked, ['account 2', 'key 7']);
  life = 2;
  clock.nowMs += 3_599_999;
  names.forgetOld();
  t.equal(names.keyIdOf(asKeyIndex(7)), 'key_7_1');
  clock.nowMs += 1;
  names.forgetOld();
  t.equal(names.keyIdOf(asKeyIndex(7)), 'key_7_2');
  t.end();
});

void t.test('what cannot be read, or is not there, is null and asked for again', (t) => {
  let broken = true;
  const names = new IdNames(
    {
      findAccountId: () => {
        if (broken) throw new Error('damaged');
        return 'acct_mended';
      },
      findKeyId: () => undefined,
    },
    new StoppedClock(),
  );
  t.equal(names.accountIdOf(asAccountIndex(1)), null);
  t.equal(names.keyIdOf(asKeyIndex(1)), null);
  broken = false;
  t.equal(names.accountIdOf(asAccountIndex(1)), 'acct_mended');
  t.end();
});
