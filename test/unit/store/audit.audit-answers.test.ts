/** The audit of stored responses. */
import { asBinary, open, type Database } from 'lmdb';
import t from 'tap';
import { asAccountIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { audit } from '#src/store/audit.js';
import { storePath } from '#src/store/store-file.js';
import { Store } from '#src/store/store.js';
import { StoppedClock, offlineRegistry } from './support.js';

/** An array of msgpack that ends before its items. */
const UNDECODABLE = Buffer.from([0xdd, 0xff, 0xff, 0xff, 0xff]);
const BOUNDS = { accountsMax: 4, keysMax: 4, groupsMax: 4 };

/** An account with a short response that ended at 5 and a long one at 6. */
async function soundBooks(path: string): Promise<void> {
  const store = new Store(path);
  const registry = offlineRegistry(store, new StoppedClock());
  registry.accounts.create({ name: 'acme', planId: 'free', credit: asPicoUnits(1n) });
  const answer = { account: asAccountIndex(0), bodyDigest: 'ab'.repeat(32), stream: false };
  const kept = [
    { ...answer, key: 'short', endedMs: asWallMs(5), bytes: new Uint8Array(10) },
    { ...answer, key: 'long', endedMs: asWallMs(6), bytes: new Uint8Array(10_000) },
  ];
  store.commit(() =>
    store.answers.apply({ kept, forgotten: [], bounds: { expiredMs: 0, bytesMax: Infinity } }),
  );
  await store.close();
}

type Tables = (name: string) => Database<unknown>;

/** What the audit finds after rows were changed as no run of the program would. */
async function found(path: string, tamper: (table: Tables) => unknown): Promise<string[]> {
  const root = open(storePath(path), { noSubdir: true, maxDbs: 16, overlappingSync: false });
  tamper((name) => root.openDB(name, {}));
  await root.close();
  const { differences } = await audit(path, BOUNDS);
  return differences.map(({ what, is, shouldBe }) => `${what}: ${is}, not ${shouldBe}`);
}

void t.test('sound answers pass, and each thing that differs is named', async (t) => {
  const sound = t.testdir();
  await soundBooks(sound);
  t.same(await found(sound, () => undefined), []);

  const cases: [name: string, tamper: (table: Tables) => unknown, differences: string[]][] = [
    [
      'an age that is missing',
      (table) => table('answer_ages').removeSync([5, 0, 'short']),
      [
        'the bytes under its age: nothing, not 522',
        'the number of ages: 1, not 2',
        'the bytes of all answers: 11034, not 10512',
      ],
    ],
    [
      'an answer that is missing',
      (table) => table('answers').removeSync([0, 'long']),
      ['the answer of this age: nothing, not an answer', 'the number of ages: 2, not 1'],
    ],
    [
      'a sum that is another',
      (table) => table('meta').putSync('answer_bytes', 7),
      ['the bytes of all answers: 7, not 11034'],
    ],
    [
      'bytes of an age that are no value',
      (table) => table('answer_ages').putSync([5, 0, 'short'], asBinary(UNDECODABLE)),
      ['the bytes under its age: damaged, not 522', 'the bytes of all answers: 11034, not 10512'],
    ],
    [
      'bytes of a sum that are no value',
      (table) => table('meta').putSync('answer_bytes', asBinary(UNDECODABLE)),
      ['the bytes of all answers: damaged, not 11034'],
    ],
    [
      'a row that is none',
      (table) => table('answers').putSync([0, 'long'], { format: 1 }),
      ['the row: damaged, not a row of this format'],
    ],
  ];
  for (const [name, tamper, differences] of cases) {
    const path = t.testdir({});
    await soundBooks(path);
    t.same(await found(path, tamper), differences, name);
  }
});
