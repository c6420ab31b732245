import t from 'tap';
import { asAccountIndex, asCallSlot, asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import type { ResponseRecord } from '#src/registry/stored-response.js';
import type { FlushStore, LedgerFlush } from '#src/store/flush.js';
import { StoredResponses } from '#src/store/stored-responses.js';
import { ListLog, flushOf, openHouse, type House } from './support.js';
import { admitTo } from '../../fixtures/ledger-world.js';

const ACCOUNT = asAccountIndex(0);
const HOUR_MS = 3_600_000;
const COST = asPicoUnits(7n);

interface Shop extends House {
  readonly answers: StoredResponses;
  readonly flush: LedgerFlush;
  readonly books: FlushStore & { broken: boolean };
}

function openShop(path: string): Shop {
  const house = openHouse(path);
  house.registry.accounts.create({ name: 'a', planId: 'free', credit: asPicoUnits(1_000n) });
  house.registry.keys.create({ account: 'a', name: 'key' });
  const { store } = house;
  const answers = new StoredResponses({
    store,
    keepHours: 24,
    storeBytesMax: 1_000_000,
    isDrained: ({ position }) => house.journalReader.hasDrained(position),
    isCharged: ({ position }) => house.journalReader.hasAppended(position),
    clock: house.clock,
  });
  const books = {
    broken: false,
    commit: <Result>(work: () => Result) => store.commit(work),
    findKeyId: (index: Parameters<FlushStore['findKeyId']>[0]) => store.findKeyId(index),
    findUsage: (key: Parameters<FlushStore['findUsage']>[0]) => store.findUsage(key),
    putAccounting: (rows: Parameters<FlushStore['putAccounting']>[0]) => {
      if (books.broken) throw new Error('no space left on device');
      store.putAccounting(rows);
    },
  };
  return {
    ...house,
    answers,
    books,
    flush: flushOf(house, new ListLog(), books, { storedResponses: answers }),
  };
}

const recordOf = (shop: Shop, key: string, bytes: Uint8Array = new Uint8Array([1, 2])): ResponseRecord => ({
  account: ACCOUNT,
  key,
  bodyDigest: '00'.repeat(32),
  endedMs: asWallMs(shop.clock.nowMs),
  stream: false,
  bytes,
});

/** Appends the charge of a call. */
function charge(shop: Shop, charged = COST): void {
  if (charged > 0n) {
    const slot = asCallSlot(0);
    admitTo(shop.ledger, slot, ACCOUNT, 1_000, charged, 16);
    shop.ledger.settle(slot, charged);
  }
  shop.journal.append({
    request: 1,
    endedMs: asWallMs(shop.clock.nowMs),
    promptTokens: 1,
    cachedTokens: 0,
    cacheWriteTokens: 0,
    cacheWrite1hTokens: 0,
    reasoningTokens: 0,
    completionTokens: 0,
    charged,
    uncovered: asPicoUnits(0n),
    account: ACCOUNT,
    key: asKeyIndex(0),
    model: 0,
    requested: 0,
    outcome: charged > 0n ? 'served' : 'reversed',
    source: 0,
    durationMs: 1,
  });
}

function keep(shop: Shop, key: string, bytes?: Uint8Array): ResponseRecord {
  const record = recordOf(shop, key, bytes);
  shop.answers.keep(record, { listener: 0, position: shop.journal.nextPosition });
  return record;
}

const spentOf = (shop: Shop) => shop.store.findSpending(ACCOUNT)?.spent ?? 0n;

void t.test('an answer gets to disk in the transaction of its charge', async (t) => {
  const shop = openShop(t.testdir({}));
  const early = keep(shop, 'a');
  t.same(shop.answers.find(early), { record: early, isUnwritten: true }, 'known at once');
  t.ok(shop.flush.run());
  t.equal(shop.store.answers.find(early), undefined, 'not written before its charge was appended');
  charge(shop);
  const late = keep(shop, 'b');
  t.ok(shop.flush.run());
  t.same(shop.store.answers.find(early), early);
  t.equal(spentOf(shop), COST);
  t.equal(shop.store.answers.find(late), undefined, 'the next one waits for its own');
  t.same(shop.answers.find(early), { record: early, isUnwritten: false });
  charge(shop);
  t.ok(shop.flush.commit());
  t.same(shop.store.answers.find(late), late);
  t.equal(spentOf(shop), 2n * COST);
  await shop.store.close();
});

void t.test(
  'where the disk takes nothing, charges come first: answers are known and have no bytes',
  async (t) => {
    const shop = openShop(t.testdir({}));
    const record = keep(shop, 'a');
    charge(shop);
    shop.books.broken = true;
    t.notOk(shop.flush.run());
    t.same(shop.answers.find(record), { record: { ...record, bytes: undefined }, isUnwritten: true });
    t.equal(shop.store.answers.find(record), undefined);
    shop.books.broken = false;
    t.ok(shop.flush.run());
    t.same(shop.store.answers.find(record), { ...record, bytes: undefined });
    t.equal(spentOf(shop), COST);
    await shop.store.close();
  },
);

void t.test('a commit that failed is on disk all the same: its answers stay whole', async (t) => {
  const shop = openShop(t.testdir({}));
  const commit = shop.books.commit.bind(shop.books);
  const record = keep(shop, 'a');
  charge(shop);
  shop.books.commit = (work) => {
    commit(work);
    throw new Error('input/output error');
  };
  t.notOk(shop.flush.run());
  shop.books.commit = commit;
  t.ok(shop.flush.run());
  t.same(shop.answers.find(record), { record, isUnwritten: false });
  t.equal(spentOf(shop), COST);
  t.equal(shop.store.answers.bytes, 512 + record.bytes!.length);
  await shop.store.close();
});

void t.test('an answer whose charge is taken back is forgotten, in memory and on disk', async (t) => {
  const shop = openShop(t.testdir({}));
  for (const written of [false, true]) {
    const record = keep(shop, 'a');
    charge(shop);
    if (written) t.ok(shop.flush.run());
    t.equal(shop.store.answers.find(record) !== undefined, written);
    shop.answers.forget(record, { listener: 0, position: shop.journal.nextPosition });
    t.equal(shop.answers.find(record), undefined);
    charge(shop, asPicoUnits(0n - COST));
    t.ok(shop.flush.run());
    t.equal(shop.store.answers.find(record), undefined);
    t.equal(spentOf(shop), 0n);
  }
  await shop.store.close();
});

void t.test('what a dead listener has not charged is dropped, the rest is not', async (t) => {
  const shop = openShop(t.testdir({}));
  const charged = keep(shop, 'a');
  charge(shop);
  const uncharged = keep(shop, 'b');
  const others = recordOf(shop, 'c');
  shop.answers.keep(others, { listener: 1, position: 99 });
  t.ok(shop.flush.drain());
  shop.answers.dropUncharged(0);
  t.ok(shop.answers.find(charged));
  t.equal(shop.answers.find(uncharged), undefined);
  t.ok(shop.answers.find(others));
  await shop.store.close();
});

void t.test(
  'what a dead listener has charged stays, even if its journal cannot be drained now',
  async (t) => {
    const shop = openShop(t.testdir({}));
    const findUsage = shop.books.findUsage.bind(shop.books);
    const charged = keep(shop, 'a');
    charge(shop);
    const uncharged = keep(shop, 'b');
    shop.books.findUsage = () => {
      throw new Error('input/output error');
    };
    t.notOk(shop.flush.drain());
    shop.answers.dropUncharged(0);
    t.ok(shop.answers.find(charged), 'or a repeat would be charged too');
    t.equal(shop.answers.find(uncharged), undefined);
    shop.books.findUsage = findUsage;
    t.ok(shop.flush.run());
    t.same(shop.store.answers.find(charged), charged);
    t.equal(spentOf(shop), COST);
    await shop.store.close();
  },
);

void t.test('an answer is known for 24 hours, and then removed', async (t) => {
  const shop = openShop(t.testdir({}));
  const record = keep(shop, 'a');
  charge(shop);
  t.ok(shop.flush.run());
  shop.clock.nowMs += 24 * HOUR_MS - 1;
  shop.answers.expire();
  t.ok(shop.answers.find(record));
  shop.clock.nowMs += 1;
  t.equal(shop.answers.find(record), undefined);
  t.ok(shop.store.answers.find(record), 'until somebody looks it is on disk');
  shop.answers.expire();
  t.equal(shop.store.answers.find(record), undefined);
  t.equal(shop.store.answers.bytes, 0);
  await shop.store.close();
});

void t.test('of more than one transaction may remove, the next removes the rest', async (t) => {
  const shop = openShop(t.testdir({}));
  const kept = Array.from({ length: 2_500 }, (_, n) => recordOf(shop, `k${n}`));
  const bounds = { expiredMs: 0, bytesMax: Infinity };
  shop.store.commit(() => shop.store.answers.apply({ kept, forgotten: [], bounds }));
  t.notOk(shop.answers.expire(), 'none has expired');
  shop.clock.nowMs += 24 * HOUR_MS;
  const removes = [1, 2, 3, 4].map(() => shop.answers.expire());
  t.same(removes, [true, true, true, false]);
  t.equal(shop.store.answers.oldestMs(), undefined);
  await shop.store.close();
});

void t.test('an oldest row that cannot be removed does not keep the gateway removing', async (t) => {
  const shop = openShop(t.testdir({}));
  const bounds = { expiredMs: 0, bytesMax: Infinity };
  const kept = [recordOf(shop, 'a')];
  shop.store.commit(() => shop.store.answers.apply({ kept, forgotten: [], bounds }));
  shop.clock.nowMs += 24 * HOUR_MS;
  // As of a damaged row, whose key is not the one that it is read as.
  shop.store.answers.apply = () => undefined;
  t.notOk(shop.answers.expire());
  await shop.store.close();
});

void t.test('a clock that is a day ahead for minutes costs no answer', async (t) => {
  const shop = openShop(t.testdir({}));
  const record = keep(shop, 'a');
  charge(shop);
  t.ok(shop.flush.run());
  shop.clock.nowMs += HOUR_MS;
  shop.answers.expire();
  const step = (ms: number): void => {
    shop.clock.nowMs += ms;
    shop.clock.setMs += ms;
  };
  step(25 * HOUR_MS);
  shop.answers.expire();
  t.equal(shop.answers.find(record), undefined, 'by that clock it is too old');
  step(-25 * HOUR_MS);
  t.ok(shop.answers.find(record));
  await shop.store.close();
});

void t.test('a disk that has no room for answers gets them without bytes', async (t) => {
  const shop = openShop(t.testdir({}));
  const record = keep(shop, 'a');
  charge(shop);
  const free = shop.store.freeBytes();
  t.ok(free > 0);
  t.ok(shop.flush.drain());
  shop.store.freeBytes = () => 1024 * 1024 + 2 * record.bytes!.length - 1;
  t.same(shop.answers.due()?.kept, [{ ...record, bytes: undefined }]);
  const next = keep(shop, 'b');
  charge(shop);
  shop.store.freeBytes = () => 1024 * 1024 + 2 * next.bytes!.length;
  t.ok(shop.flush.run());
  t.same(shop.store.answers.find(next), next);
  const last = keep(shop, 'c');
  charge(shop);
  shop.store.freeBytes = () => {
    throw new Error('EIO: i/o error, statfs');
  };
  t.ok(shop.flush.run(), 'the charge is written');
  t.same(shop.store.answers.find(last), { ...last, bytes: undefined });
  await shop.store.close();
});

void t.test('bytes that wait for the disk are bounded', async (t) => {
  const shop = openShop(t.testdir({}));
  const bytes = new Uint8Array(48 * 1024 * 1024);
  const keys = ['a', 'b', 'c'];
  for (const key of keys) keep(shop, key, bytes);
  const kept = () =>
    keys.map((key) => shop.answers.find({ account: ACCOUNT, key })?.record.bytes?.length ?? 0);
  t.same(kept(), [bytes.length, bytes.length, 0], '128 MiB hold two of 48');
  const dropped = shop.answers.dropUncharged(0);
  t.strictSame(
    dropped,
    keys.map((key) => ({ account: ACCOUNT, key })),
    'no key holds the bytes of its response',
  );
  keep(shop, 'c', bytes);
  t.same(kept(), [0, 0, bytes.length], 'and what is dropped makes room');
  await shop.store.close();
});
