/**
 * Data that are not to be trusted stop the start: `tollgate serve` names the file, the place and what to do,
 * ends with 1, and leaves everything on disk as it was.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { open, type Key } from 'lmdb';
import t, { type Test } from 'tap';
import { asAccountIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { storePath } from '#src/store/store-file.js';
import { Store } from '#src/store/store.js';
import { temporaryFolder } from '../support/gateway.js';
import { offlineRegistry, StoppedClock } from '../unit/store/support.js';

/** A start takes a second; a busy machine gets more. */
const REFUSAL_TIMEOUT_MS = 120_000;
const PAGE_BYTES = 4_096;

/** Books of some pages: accounts with a key and a charge each, deep enough for branch pages. */
async function books(dataPath: string): Promise<string> {
  const store = new Store(dataPath);
  const registry = offlineRegistry(store, new StoppedClock());
  for (const name of ['acme', 'other', 'third', 'last']) {
    const { record } = registry.accounts.create({ name, planId: 'demo', credit: asPicoUnits(1_000n) });
    registry.keys.create({ account: name, name: 'laptop' });
    for (let credits = 0; credits < 40; credits++)
      registry.credits.add(name, asPicoUnits(1n), 'n'.repeat(100));
    const totals = {
      spent: asPicoUnits(0n),
      uncovered: asPicoUnits(0n),
      dayNumber: 1,
      dayCalls: 1,
      minuteUsed: 0,
    };
    const spendings = new Map([[asAccountIndex(record.index), { ...totals, takenMs: asWallMs(1) }]]);
    store.commit(() => store.putAccounting({ spendings, usages: [] }));
  }
  await store.close();
  return storePath(dataPath);
}

/** Names and contents of all files but locks, gates and the hold, which hold no data. */
function contentsOf(dataPath: string): string[] {
  return readdirSync(dataPath)
    .filter((name) => !/-(lock|gate)$/.test(name) && name !== 'hold.lmdb')
    .sort()
    .map(
      (name) =>
        `${name} ${createHash('sha256')
          .update(readFileSync(join(dataPath, name)))
          .digest('hex')}`,
    );
}

/** Runs the command on the data and expects it to refuse with each of `told`. */
function expectRefusal(t: Test, what: string, dataPath: string, told: readonly (string | RegExp)[]): void {
  const before = contentsOf(dataPath);
  const main = new URL(import.meta.resolve('#src/cli/main.js')).pathname;
  const end = spawnSync(process.execPath, [main, 'serve', '--port', '0', '--admin-port', '0'], {
    cwd: dataPath,
    env: { ...process.env, TOLLGATE_CONFIG: '', TOLLGATE_DATA: dataPath },
    encoding: 'utf8',
    timeout: REFUSAL_TIMEOUT_MS,
  });
  t.same([end.status, end.signal], [1, null], `${what}: ends with 1\n${end.stderr}`);
  for (const text of [storePath(dataPath), ...told]) t.match(end.stderr, text, what);
  t.match(end.stderr, /backup|another folder/, `${what}: says what to do`);
  t.notMatch(end.stderr, /\n\s+at /, `${what}: without a stack`);
  t.notMatch(end.stdout, /Serving/, `${what}: nothing was served`);
  t.same(contentsOf(dataPath), before, `${what}: nothing was changed`);
}

void t.test('a half-written file, cut at many lengths', async (t) => {
  const whole = join(temporaryFolder(t), 'whole');
  const bytes = readFileSync(await books(whole));
  const lengths = new Set<number>([1, 51, 100, PAGE_BYTES, PAGE_BYTES + 60, 2 * PAGE_BYTES]);
  // The last pages may be free: without them nothing is missing, and page-walk.test.ts tells the one from the
  // other.
  for (let cut = 1; cut <= 9; cut += 2) lengths.add(Math.floor((bytes.length * cut) / 12));
  for (const length of lengths) {
    const path = join(temporaryFolder(t), 'data');
    mkdirSync(path);
    writeFileSync(storePath(path), bytes.subarray(0, length));
    const place =
      length < PAGE_BYTES + 52 ? 'is not a store of Tollgate' : /damaged at page \d+ \(byte \d+\)/;
    expectRefusal(t, `${length} of ${bytes.length} bytes`, path, [place]);
  }
});

void t.test('a page of garbage in the middle', async (t) => {
  const path = join(temporaryFolder(t), 'data');
  const file = await books(path);
  const bytes = readFileSync(file);
  // The root of the main tree is in use, wherever it is.
  const metas = [0, PAGE_BYTES].sort((a, b) =>
    Number(bytes.readBigUInt64LE(b + 152) - bytes.readBigUInt64LE(a + 152)),
  );
  const root = Number(bytes.readBigUInt64LE(metas[0]! + 136));
  bytes.fill(0xa5, root * PAGE_BYTES, (root + 1) * PAGE_BYTES);
  writeFileSync(file, bytes);
  expectRefusal(t, 'garbage', path, [`damaged at page ${root} (byte ${root * PAGE_BYTES})`]);
});

void t.test('a file that is not ours under the store’s name', async (t) => {
  for (const [what, content] of [
    ['text', Buffer.from('some notes\n')],
    ['zeros', Buffer.alloc(40_000)],
    ['another database', Buffer.concat([Buffer.from('SQLite format 3\0'), Buffer.alloc(8_176, 1)])],
  ] as const) {
    const path = temporaryFolder(t);
    writeFileSync(storePath(path), content);
    expectRefusal(t, what, path, ['is not a store of Tollgate']);
  }
  const path = temporaryFolder(t);
  const root = open(storePath(path), { noSubdir: true, overlappingSync: false });
  root.openDB('recipes', {}).putSync('cake', 1);
  await root.close();
  expectRefusal(t, 'another program’s LMDB', path, ['another program has written it']);
});

/** Puts a row as no run of the program would. */
async function put(dataPath: string, table: string, key: Key, value: unknown, binary = false): Promise<void> {
  const root = open(storePath(dataPath), { noSubdir: true, maxDbs: 16, overlappingSync: false });
  root.openDB(table, binary ? { encoding: 'binary' } : {}).putSync(key, value);
  await root.close();
}

void t.test('a file of another format', async (t) => {
  for (const [format, told] of [
    [6, 'has format 6, this Tollgate reads up to 5. Run the newer Tollgate'],
    [0, 'its format is none of ours'],
    ['1', 'its format is none of ours'],
  ] as const) {
    const path = temporaryFolder(t);
    await books(path);
    await put(path, 'meta', 'format', format);
    expectRefusal(t, `format ${JSON.stringify(format)}`, path, [told]);
  }
});

void t.test('a row that is damaged, and books that cannot be', async (t) => {
  const row = {
    format: 1,
    spentPicoUnits: '0',
    uncoveredPicoUnits: '0',
    dayNumber: 1,
    dayCalls: 1,
    minuteUsed: 0,
    takenMs: 1,
  };
  const garbage = Buffer.from([0xc1, 0x00]);
  const cases: readonly [string, string, Key, unknown, RegExp][] = [
    ['an account of garbage', 'accounts', 'acct_x', garbage, /record acct_x of table accounts is damaged/],
    [
      'an account of half a row',
      'accounts',
      'acct_x',
      { format: 1 },
      /record acct_x of table accounts is damaged/,
    ],
    ['a key of garbage', 'keys', 'key_x', garbage, /record key_x of table keys is damaged/],
    ['a charge of garbage', 'spending', 2, garbage, /record 2 of table spending is damaged/],
    ['negative calls', 'spending', 2, { ...row, dayCalls: -1 }, /record 2 of table spending is damaged/],
    [
      'too much spent',
      'spending',
      2,
      { ...row, spentPicoUnits: '1041' },
      /\(third\).*more was spent than credited/,
    ],
    ['less than nothing spent', 'spending', 2, { ...row, spentPicoUnits: '-1' }, /\(third\).*negative/],
    [
      'less than nothing uncovered',
      'spending',
      2,
      { ...row, uncoveredPicoUnits: '-1' },
      /\(third\).*negative/,
    ],
  ];
  for (const [what, table, key, value, told] of cases) {
    const path = temporaryFolder(t);
    await books(path);
    await put(path, table, key, value, Buffer.isBuffer(value));
    expectRefusal(t, what, path, [told]);
  }
});

void t.test('an empty file is no new store: its books were cut off', async (t) => {
  const path = temporaryFolder(t);
  await books(path);
  truncateSync(storePath(path), 0);
  expectRefusal(t, 'emptied', path, [/tollgate\.lmdb is empty: the books that it held are gone/]);
  t.equal(statSync(storePath(path)).size, 0, 'and is left as it is');
});

/** Of no user: root may open every file, so a program that is to be refused one runs as this. */
const NOBODY = 65_534;

void t.test('a file of another user is named, be it only a lock', async (t) => {
  const isRoot = process.geteuid!() === 0;
  const whole = temporaryFolder(t);
  await books(whole);
  const main = new URL(import.meta.resolve('#src/cli/main.js')).pathname;
  const run = (path: string, ...args: string[]) =>
    spawnSync(process.execPath, [main, ...args], {
      cwd: path,
      env: { ...process.env, TOLLGATE_CONFIG: '', TOLLGATE_DATA: path },
      encoding: 'utf8',
      timeout: REFUSAL_TIMEOUT_MS,
      ...(isRoot && { uid: NOBODY, gid: NOBODY }),
    });
  const ownedByNobody = (path: string): void => {
    if (isRoot) chownSync(path, NOBODY, NOBODY);
  };
  ownedByNobody(whole);
  for (const name of readdirSync(whole)) ownedByNobody(join(whole, name));
  t.equal(run(whole, 'accounts', 'list').status, 0, 'its own user reads it');
  const names = readdirSync(whole).filter((name) => name.includes('.lmdb'));
  t.ok(names.includes('hold.lmdb-gate-lock'));
  for (const name of names) {
    const path = join(whole, name);
    chmodSync(path, 0o000);
    // A start takes a second, so it is tried without one of the files.
    const commands =
      name === 'tollgate.lmdb-lock' ? [['accounts', 'list'], ['serve']] : [['accounts', 'list']];
    for (const args of commands) {
      const { status, signal, stderr } = run(whole, ...args);
      t.same([status, signal], [1, null], `${args[0]} without ${name}`);
      t.match(stderr, new RegExp(`permission denied.*'${path}'`));
    }
    const audit = run(whole, 'audit');
    t.equal(audit.signal, null, `audit without ${name}: ${audit.stderr}`);
    chmodSync(path, 0o600);
  }
});
