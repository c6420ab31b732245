import { inspect } from 'node:util';
import t from 'tap';
import { asAccountIndex, asWallMs } from '#src/core/units.js';
import type { ResponseRecord } from '#src/registry/stored-response.js';
import { packResponse, readResponse, type ResponseChanges } from '#src/store/response-table.js';
import { storePath } from '#src/store/store-file.js';
import { Store } from '#src/store/store.js';
import { asBinary, open } from 'lmdb';

interface Table {
  putSync: (key: unknown, value: unknown) => unknown;
}

/** An array of msgpack that ends before its items. */
const UNDECODABLE = Buffer.from([0xdd, 0xff, 0xff, 0xff, 0xff]);
const FIRST = asAccountIndex(0);
const SECOND = asAccountIndex(1);
const NO_BOUNDS = { expiredMs: 0, bytesMax: Infinity };
/** What each row counts for besides its bytes. */
const ROW_BYTES = 512;

const answer = (key: string, endedMs: number, more: Partial<ResponseRecord> = {}): ResponseRecord => ({
  account: FIRST,
  key,
  bodyDigest: 'ab'.repeat(32),
  endedMs: asWallMs(endedMs),
  stream: false,
  bytes: new Uint8Array([1, 2, 3]),
  ...more,
});

function apply(store: Store, changes: Partial<ResponseChanges>): void {
  store.commit(() => store.answers.apply({ kept: [], forgotten: [], bounds: NO_BOUNDS, ...changes }));
}

void t.test('answers come back as they were put, also after the store was opened again', async (t) => {
  const path = t.testdir({});
  let store = new Store(path);
  const long = answer('long', 7, { stream: true, bytes: new Uint8Array(3_000_000).fill(9) });
  const kept = [
    answer('a', 5),
    long,
    answer('', 5, { bytes: undefined }),
    answer('~'.repeat(255), 5, { account: SECOND }),
  ];
  apply(store, { kept });
  await store.close();
  store = new Store(path);
  for (const record of kept) t.same(store.answers.find(record), record);
  t.equal(
    store.answers.find({ account: SECOND, key: 'a' }),
    undefined,
    "another account's key is another key",
  );
  t.equal(store.answers.oldestMs(), 5);
  t.equal(store.answers.bytes, 3_000_006 + 4 * ROW_BYTES);

  const found = store.answers.find(long)!;
  store.answers.find(answer('a', 5));
  t.same(found, long, 'what was found is a copy that a later reading leaves alone');
  await store.close();
});

void t.test('a key has one answer, and a forgotten one none', async (t) => {
  const store = new Store(t.testdir({}));
  apply(store, { kept: [answer('a', 5), answer('b', 6)] });
  const later = answer('a', 9, { bytes: new Uint8Array(10) });
  apply(store, { kept: [later] });
  t.same(store.answers.find(later), later);
  t.equal(store.answers.bytes, 13 + 2 * ROW_BYTES);
  t.equal(store.answers.oldestMs(), 6);
  apply(store, { forgotten: [answer('b', 0), answer('never', 0)] });
  t.equal(store.answers.find(answer('b', 0)), undefined);
  t.equal(store.answers.bytes, 10 + ROW_BYTES);
  apply(store, { forgotten: [later] });
  t.equal(store.answers.bytes, 0);
  t.equal(store.answers.oldestMs(), undefined);
  await store.close();
});

void t.test('the oldest go first where they are too many bytes', async (t) => {
  const store = new Store(t.testdir({}));
  const bounds = { expiredMs: 0, bytesMax: 3 * ROW_BYTES + 3_000 };
  const bytes = new Uint8Array(1_000);
  // Put in another order than that of their ends.
  for (const endedMs of [30, 10, 20])
    apply(store, { kept: [answer(`k${endedMs}`, endedMs, { bytes })], bounds });
  t.equal(store.answers.bytes, bounds.bytesMax, 'at the bound all stay');
  apply(store, { kept: [answer('k40', 40, { bytes: new Uint8Array(1) })], bounds });
  const left = [10, 20, 30, 40].filter((endedMs) => store.answers.find(answer(`k${endedMs}`, 0)));
  t.same(left, [20, 30, 40]);
  t.equal(store.answers.bytes, 2_001 + 3 * ROW_BYTES);
  // One that fills the store by itself.
  apply(store, { kept: [answer('big', 50, { bytes: new Uint8Array(4_000) })], bounds });
  t.same(
    [20, 30, 40].filter((endedMs) => store.answers.find(answer(`k${endedMs}`, 0))),
    [],
  );
  t.ok(store.answers.find(answer('big', 0)));
  await store.close();
});

void t.test('without bytes an answer takes the place of those of other calls alone', async (t) => {
  const store = new Store(t.testdir({}));
  const whole = answer('a', 5);
  apply(store, { kept: [whole] });
  apply(store, { kept: [{ ...whole, bytes: undefined }] });
  t.same(store.answers.find(whole), whole);
  t.equal(store.answers.bytes, 3 + ROW_BYTES);
  const others = [{ endedMs: asWallMs(6) }, { endedMs: asWallMs(6), bodyDigest: 'cd'.repeat(32) }];
  for (const other of others) {
    apply(store, { kept: [{ ...whole, ...other, bytes: undefined }] });
    t.same(store.answers.find(whole), { ...whole, ...other, bytes: undefined });
    t.equal(store.answers.bytes, ROW_BYTES);
  }
  await store.close();
});

void t.test('what is too old goes, a thousand rows a transaction', async (t) => {
  const store = new Store(t.testdir({}));
  const kept = Array.from({ length: 1_500 }, (_, n) => answer(`k${n}`, n + 1));
  apply(store, { kept });
  const expire = () => apply(store, { bounds: { expiredMs: 1_200, bytesMax: Infinity } });
  expire();
  t.equal(store.answers.oldestMs(), 1_001);
  expire();
  t.equal(store.answers.oldestMs(), 1_201, 'what ended at the bound is too old, what ended later is not');
  t.equal(store.answers.bytes, 300 * (3 + ROW_BYTES));
  await store.close();
});

void t.test('a damaged answer is named', async (t) => {
  const path = t.testdir({});
  let store = new Store(path);
  apply(store, { kept: [answer('a', 5)] });
  await store.close();
  const root = open(storePath(path), { noSubdir: true, maxDbs: 16, overlappingSync: false });
  root.openDB('answers', {}).putSync([0, 'a'], { format: 1, bodyDigest: 'x' });
  await root.close();
  store = new Store(path);
  t.throws(() => store.answers.find(answer('a', 5)), {
    code: 'damaged',
    message: /record 0\/a of table answers/,
  });
  await store.close();
});

void t.test('a damaged sum or row stops no flush, and the sum is true again', async (t) => {
  const damages: [string, (write: Record<'meta' | 'answers' | 'answer_ages', Table>) => void][] = [
    ...[null, 'many', NaN, -1, 1.5, Infinity, {}, [1]].map(
      (sum) =>
        [`sum ${inspect(sum)}`, ({ meta }) => meta.putSync('answer_bytes', sum)] as (typeof damages)[0],
    ),
    ['a sum that does not decode', ({ meta }) => meta.putSync('answer_bytes', asBinary(UNDECODABLE))],
    ['a record', ({ answers }) => answers.putSync([0, 'a'], { format: 1 })],
    ['a record that does not decode', ({ answers }) => answers.putSync([0, 'a'], asBinary(UNDECODABLE))],
    ['an age', ({ answer_ages }) => answer_ages.putSync([5, 0, 'a'], 'x')],
    ['a negative age', ({ answer_ages }) => answer_ages.putSync([5, 0, 'a'], -1e12)],
    ...[[1], ['x', 2], [0, -1, 'a'], 1, 'x', true].map(
      (key) =>
        [
          `the key ${inspect(key)} of an age`,
          ({ answer_ages }) => answer_ages.putSync(key, 600),
        ] as (typeof damages)[0],
    ),
    ['a sum far too large', ({ meta }) => meta.putSync('answer_bytes', 1e12)],
  ];
  for (const [name, damage] of damages) {
    const path = t.testdir({});
    let store = new Store(path);
    apply(store, { kept: [answer('a', 5), answer('b', 6)] });
    await store.close();
    const root = open(storePath(path), { noSubdir: true, maxDbs: 32, overlappingSync: false });
    const table = (of: string): Table => root.openDB(of, {}) as Table;
    damage({ meta: table('meta'), answers: table('answers'), answer_ages: table('answer_ages') });
    await root.close();
    store = new Store(path);
    t.type(store.answers.oldestMs(), 'number', `${name}: what may be removed is looked for`);
    apply(store, { kept: [answer('c', 7), answer('a', 8)] });
    t.ok(store.answers.find(answer('a', 8)), `${name}: a later answer is kept`);
    apply(store, { kept: [answer('d', 9)], bounds: { expiredMs: 8, bytesMax: 1_000_000 } });
    t.ok(store.answers.find(answer('d', 9)), name);
    apply(store, { bounds: { expiredMs: 9, bytesMax: 1_000_000 } });
    t.equal(store.answers.bytes, 0, `${name}: the sum of nothing is nothing`);
    t.equal(store.answers.oldestMs(), undefined);
    await store.close();
  }
});

void t.test('a damaged row of the ages of a model goes as any other, and stops nothing', async (t) => {
  const path = t.testdir();
  const put = (store: Store, key: string, endedMs: number, modelBytesMax: Map<string, number>): void => {
    const kept = [answer(key, endedMs, { bytes: new Uint8Array(1_000) })];
    store.commit(() => store.cached.apply({ kept, forgotten: [], bounds: { ...NO_BOUNDS, modelBytesMax } }));
  };
  const before = new Store(path);
  put(before, 'small/a', 5, new Map());
  await before.close();
  const root = open({ path: storePath(path), noSubdir: true, pageSize: 4096, maxDbs: 48 });
  const ages = root.openDB('cached_model_ages', { useVersions: false });
  ages.removeSync(['small', 5, FIRST, 'small/a']);
  // The response in it is not one of its model's.
  ages.putSync(['small', 5, FIRST, 'smell/a'], 1_512);
  await root.close();
  const store = new Store(path);
  // Its bytes alone are more than the bound of its model.
  put(store, 'small/b', 6, new Map([['small', 1_000]]));
  const keys = store.cached.keys(undefined, 10).map(({ key }) => key);
  t.same(keys, ['small/a'], 'the response whose age is lost stays until the bound of all removes it');
  put(store, 'small/c', 7, new Map([['small', 2_000]]));
  t.ok(store.cached.find(answer('small/c', 7)));
  await store.close();
});

void t.test('what is put in place of a damaged response lives as long as any other', async (t) => {
  const path = t.testdir();
  const first = new Store(path);
  apply(first, { kept: [answer('other', 4), answer('k', 5), answer('k~', 5)] });
  await first.close();
  const root = open({ path: storePath(path), noSubdir: true, pageSize: 4096, maxDbs: 48 });
  root.openDB('answers', { useVersions: false }).putSync([FIRST, 'k'], 'garbage');
  await root.close();
  const store = new Store(path);
  apply(store, { kept: [answer('k', 9)] });
  t.equal(store.answers.bytes, 3 * (ROW_BYTES + 3), 'the damaged one counts no more');
  apply(store, { bounds: { ...NO_BOUNDS, expiredMs: 5 } });
  t.same(store.answers.find(answer('k', 9)), answer('k', 9), 'its age is its own');
  t.equal(store.answers.find(answer('k~', 5)), undefined);
  t.equal(store.answers.bytes, ROW_BYTES + 3);
  t.equal(store.answers.oldestMs(), 9);
  await store.close();
});

void t.test('a stored response names the model that answered, if it was another', (t) => {
  const record = {
    ...{ account: asAccountIndex(1), key: 'k', bodyDigest: 'a'.repeat(64), endedMs: asWallMs(5) },
    ...{ stream: false, bytes: new Uint8Array([1]) },
  };
  t.notOk('fallback' in packResponse(record));
  t.equal(readResponse(packResponse(record), record, 'it').fallback, undefined);
  const other = packResponse({ ...record, fallback: 'small' });
  t.equal(readResponse(other, record, 'it').fallback, 'small');
  t.end();
});

void t.test('a stored response without its digest is one of a former format, or damaged', (t) => {
  const record = {
    ...{ account: asAccountIndex(1), key: 'k', bodyDigest: 'a'.repeat(64), endedMs: asWallMs(5) },
    ...{ stream: false, fallback: undefined, bytes: new Uint8Array([1]) },
  };
  const { digest, ...former } = packResponse(record);
  t.match(digest, /^[0-9a-f]{64}$/);
  t.same(readResponse({ ...former, format: 4 }, record, 'it'), record, 'formats before 5 had none');
  const damaged = { code: 'damaged' };
  t.throws(() => readResponse(former, record, 'it'), damaged);
  t.throws(() => readResponse({ ...former, format: 4 }, record, 'it', 0), damaged, 'the cache wants one');
  t.throws(() => readResponse(packResponse(record), { ...record, key: 'other' }, 'it'), damaged);
  for (const change of [{ stream: true }, { endedMs: 6 }, { fallback: 'm' }, { bytes: null }])
    t.throws(() => readResponse({ ...packResponse(record), ...change }, record, 'it'), damaged);
  t.end();
});
