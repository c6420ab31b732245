/** Keys as they lie on disk, and a store that an earlier Tollgate has left. */
import { open } from 'lmdb';
import t from 'tap';
import { NO_QUOTAS } from '#src/core/quotas.js';
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { digestOf } from '#src/registry/key-digest.js';
import type { KeyRecord } from '#src/registry/key-record.js';
import { packKey, packKeyUse, readKey, readKeyUse } from '#src/store/key-rows.js';
import { FORMAT } from '#src/store/record-codec.js';
import { recover } from '#src/store/recovery.js';
import { OPTIONS, storePath } from '#src/store/store-file.js';
import { TABLE } from '#src/store/tables.js';
import { ACCOUNTS_MAX, CATALOG, KEYS_MAX, ListLog, openHouse, GROUPS_MAX } from './support.js';

const PLAIN: KeyRecord = {
  index: asKeyIndex(3),
  id: 'key_x',
  accountIndex: asAccountIndex(2),
  accountId: 'acct_x',
  name: 'laptop',
  digest: Buffer.alloc(32, 7),
  prefix: 'sk-abcd',
  active: true,
  createdMs: asWallMs(5),
  expiresSeconds: undefined,
  limits: NO_QUOTAS,
  replacedById: undefined,
};
const RICH: KeyRecord = {
  ...PLAIN,
  expiresSeconds: 2 ** 32 - 1,
  limits: {
    requestsPerMinute: 1,
    tokensPerMinute: 2,
    callsInFlight: 3,
    callsPerDay: 1_440_000_000,
    tokensPerDay: 10 ** 12,
    callsPerMonth: 44_640_000_000,
    tokensPerMonth: 5,
    spendPerDay: asPicoUnits(1n),
    spendPerMonth: asPicoUnits(3_000_000_000_000_000_000n),
  },
  replacedById: 'key_y',
  inherited: {
    minuteUsed: 3,
    dayNumber: 20_000,
    dayCalls: 7,
    takenMs: asWallMs(5),
    quotas: {
      minuteTokens: 1,
      dayNumber: 20_000,
      monthNumber: 660,
      tokensPerDay: 2,
      callsPerMonth: 3,
      tokensPerMonth: 4,
      spendPerDay: 5,
      spendPerMonth: 6,
    },
  },
};

const OLD_ACCOUNT = 'acct_0123456789abcdef';
const OLD_KEY = 'key_0123456789abcdef';

void t.test('what is packed is read again, and what is not set is not written', (t) => {
  for (const record of [PLAIN, RICH]) t.same(readKey(packKey(record), ''), record);
  t.notOk('expiresSeconds' in packKey(PLAIN));
  const use = { minuteUsed: 2, dayNumber: 20_000, dayCalls: 3, takenMs: asWallMs(9) };
  for (const lastUsedSeconds of [undefined, 1_700_000_000]) {
    t.same(readKeyUse(packKeyUse({ lastUsedSeconds, ...use }), ''), { lastUsedSeconds, ...use });
  }
  t.end();
});

void t.test('what is not of its format is damaged', (t) => {
  const good = packKey(RICH);
  for (const wrong of [
    { ...good, format: 0 },
    { ...good, expiresSeconds: -1 },
    { ...good, expiresSeconds: null },
    { ...good, requestsPerMinute: 0 },
    { ...good, spendPerDayPicoUnits: 1 },
    { ...good, more: 1 },
    undefined,
  ]) {
    t.throws(() => readKey(wrong, 'here'), { code: 'damaged', message: /^here is damaged/ });
  }
  t.throws(() => readKeyUse({ format: FORMAT }, 'here'), { code: 'damaged' });
  t.end();
});

void t.test(
  'a start that meets an expiry which no key can have names the key, the field and the way out',
  async (t) => {
    for (const expiresSeconds of [0, 2 ** 32]) {
      const house = openHouse(t.testdir());
      const account = house.registry.accounts.create({
        name: 'old',
        planId: 'free',
        credit: asPicoUnits(0n),
      });
      const { record } = house.registry.keys.create({ account: account.record.id, name: 'laptop' });
      house.store.commit(() => house.store.keys.put({ ...record, expiresSeconds }));
      const capacity = {
        accountsMax: ACCOUNTS_MAX,
        keysMax: KEYS_MAX,
        groupsMax: GROUPS_MAX,
        catalog: CATALOG,
      };
      t.throws(() => recover({ ...house, ...capacity, log: new ListLog() }), {
        code: 'damaged',
        message: new RegExp(
          `record ${record.id} of table keys is damaged: expiresSeconds of the key ${record.id} is ` +
            `${expiresSeconds}, want 1 to 4294967295, or none\\. Delete the key with the version that wrote it`,
        ),
      });
      await house.store.close();
    }
  },
);

void t.test('a store of format 1 opens, works, and is of this format from then on', async (t) => {
  const path = t.testdir();
  // As Tollgate wrote it before keys had expiry, limits and uses: word for word, by no code of today.
  const root = open(storePath(path), OPTIONS);
  const put = (table: string, key: string | number | (string | number)[], value: unknown) =>
    root.openDB(table, TABLE).putSync(key, value);
  const key = `sk-${'k'.repeat(43)}`;
  put('meta', 'format', 1);
  put('meta', 'key_slots_used', 1);
  put('accounts', OLD_ACCOUNT, {
    format: 1,
    index: 0,
    id: OLD_ACCOUNT,
    name: 'old',
    planId: 'free',
    active: true,
    createdMs: 1_700_000_000_000,
    creditedPicoUnits: '5',
  });
  put('account_slots', 0, OLD_ACCOUNT);
  put('account_names', 'old', OLD_ACCOUNT);
  put('credits', [0, 0], { format: 1, amountPicoUnits: '5', note: '', createdMs: 1 });
  put('keys', OLD_KEY, {
    format: 1,
    index: 0,
    id: OLD_KEY,
    accountIndex: 0,
    accountId: OLD_ACCOUNT,
    name: 'laptop',
    digest: digestOf(key).toString('hex'),
    prefix: 'sk-kkkk',
    active: true,
    createdMs: 1_700_000_000_000,
  });
  put('key_slots', 0, OLD_KEY);
  put('key_ids', 0, OLD_KEY);
  put('keys_of_account', [0, 0], OLD_KEY);
  put('key_names', ['laptop', OLD_KEY], true);
  await root.close();

  const house = openHouse(path);
  const capacity = { accountsMax: ACCOUNTS_MAX, keysMax: KEYS_MAX, groupsMax: GROUPS_MAX, catalog: CATALOG };
  recover({ ...house, ...capacity, log: new ListLog() });
  t.equal(house.keyTable.find(digestOf(key)), 0);
  t.match(house.registry.keys.find('laptop'), {
    record: { id: OLD_KEY, expiresSeconds: undefined, replacedById: undefined },
    expired: false,
    lastUsedSeconds: undefined,
  });
  const rotated = house.registry.keys.rotate('laptop', 60);
  t.equal(rotated.record.index, 1);
  await house.store.close();

  const again = open(storePath(path), OPTIONS);
  t.equal(again.openDB('meta', TABLE).get('format'), FORMAT, 'an older program is to refuse it');
  await again.close();
});
