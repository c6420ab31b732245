/**
 * Pages of the store's file: sound ones pass, also those of a short file; what is missing or wrong is named.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { open } from 'lmdb';
import t from 'tap';
import { findPageError } from '#src/store/page-walk.js';

const PAGE_BYTES = 4_096;
const OPTIONS = { noSubdir: true, pageSize: PAGE_BYTES, overlappingSync: false };

/** Numbers from 0 to below `limit`, the same for the same seed. */
function randomFrom(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fff_ffff;
    return state % limit;
  };
}

/**
 * Values of some bytes to some pages, put and removed in the same transactions; `after` sees the file after
 * each.
 */
async function write(
  path: string,
  seed: number,
  commits: number,
  after = (): void => undefined,
): Promise<void> {
  const random = randomFrom(seed);
  const root = open(path, OPTIONS);
  const tables = ['one', 'two'].map((name) => root.openDB<string, number>(name, {}));
  for (let commit = 0; commit < commits; commit++) {
    root.transactionSync(() => {
      const first = commit * 1_000;
      const put = 20 + random(100);
      const kept = random(put + 1);
      for (let key = first; key < first + put; key++) {
        tables[key % 2]!.putSync(key, 'v'.repeat(random(20) === 0 ? 9_000 : random(3_000)));
      }
      for (let key = first + kept; key < first + put; key++) tables[key % 2]!.removeSync(key);
    });
    after();
  }
  await root.close();
}

/**
 * All that a reader of LMDB finds; only ever called on files without a fault, for others can end the process.
 */
async function contentOf(path: string): Promise<unknown[]> {
  const root = open(path, { ...OPTIONS, readOnly: true });
  const content = ['one', 'two'].map((name) => Array.from(root.openDB<string, number>(name, {}).getRange()));
  await root.close();
  return content;
}

const lastPageOf = (file: Buffer): number =>
  Math.max(...[0, PAGE_BYTES].map((meta) => Number(file.readBigUInt64LE(meta + 144))));

void t.test('sound files pass, those too that are shorter than their last page', async (t) => {
  let short = 0;
  for (let seed = 1; seed <= 10; seed++) {
    const path = join(t.testdir(), 'data');
    await write(path, seed, 10, () => {
      const fault = findPageError(path);
      if (fault !== undefined) t.fail(`seed ${seed}: ${JSON.stringify(fault)}`);
      const file = readFileSync(path);
      if (file.length < (lastPageOf(file) + 1) * PAGE_BYTES) short++;
    });
  }
  t.ok(short > 0, `${short} of 100 files were short`);
});

void t.test('a file cut at any length is refused, or nothing of it is missing', async (t) => {
  const folder = t.testdir();
  const path = join(folder, 'data');
  await write(path, 1, 10);
  const whole = readFileSync(path);
  const content = await contentOf(path);
  const cut = join(folder, 'cut');
  let refused = 0;
  const last = Math.floor(whole.length / PAGE_BYTES);
  for (let page = 2; page <= last; page++) {
    for (const bytes of [0, 1, PAGE_BYTES / 2, PAGE_BYTES - 1]) {
      const length = page * PAGE_BYTES + bytes;
      if (length >= whole.length) continue;
      writeFileSync(cut, whole.subarray(0, length));
      const fault = findPageError(cut);
      if (fault === undefined) t.same(await contentOf(cut), content, `cut at ${length}`);
      else refused++;
    }
  }
  t.ok(refused > last, `${refused} of ${(last - 1) * 4} lengths refused`);
});

void t.test('a page of zeros or of garbage is named, where it is in use', async (t) => {
  const folder = t.testdir();
  const path = join(folder, 'data');
  await write(path, 2, 10);
  const whole = readFileSync(path);
  const content = await contentOf(path);
  const broken = join(folder, 'broken');
  let named = 0;
  for (let page = 2; page < whole.length / PAGE_BYTES; page++) {
    for (const fill of [0, 0xff]) {
      const copy = Buffer.from(whole);
      copy.fill(fill, page * PAGE_BYTES, (page + 1) * PAGE_BYTES);
      writeFileSync(broken, copy);
      const fault = findPageError(broken);
      if (fault === undefined) {
        t.same(await contentOf(broken), content, `page ${page} is free, or within a long value`);
        continue;
      }
      named++;
      t.same([fault.page, fault.byte], [page, page * PAGE_BYTES]);
    }
  }
  t.ok(named > 20, `${named} pages named`);
});

void t.test('each thing that a page can be wrong about', async (t) => {
  const folder = t.testdir();
  const path = join(folder, 'data');
  await write(path, 3, 10);
  const whole = readFileSync(path);
  const broken = join(folder, 'broken');
  const reasons = new Set<string>();
  const offsets = [0, 8, 18, 20, 22, 24];
  for (let page = 2; page < whole.length / PAGE_BYTES; page++) {
    for (const offset of offsets) {
      const copy = Buffer.from(whole);
      copy.writeUInt16LE(0x0fff, page * PAGE_BYTES + offset);
      writeFileSync(broken, copy);
      const fault = findPageError(broken);
      if (fault !== undefined) reasons.add(fault.reason);
    }
  }
  for (const expected of [
    'it does not bear its number',
    'it is newer than the file says, as in a copy of a file that was being written',
    'its table of entries is impossible',
    'an entry of it does not begin within it',
  ]) {
    t.ok(reasons.has(expected), expected);
  }
});

void t.test('a store that another process writes meanwhile is never called damaged', async (t) => {
  const path = join(t.testdir(), 'data');
  const writer = fileURLToPath(new URL('../../fixtures/page-writer.js', import.meta.url));
  const child = spawn(process.execPath, [writer, path], { stdio: ['pipe', 'pipe', 'inherit'] });
  t.teardown(() => child.kill('SIGKILL'));
  await once(child.stdout, 'data');
  const transactionOf = (): bigint => {
    const file = readFileSync(path).subarray(0, 2 * PAGE_BYTES);
    const [first, second] = [file.readBigUInt64LE(152), file.readBigUInt64LE(PAGE_BYTES + 152)];
    return first > second ? first : second;
  };
  const before = transactionOf();
  for (let walk = 0; walk < 200; walk++) t.equal(findPageError(path), undefined);
  const commits = transactionOf() - before;
  t.ok(commits > 20n, `${commits} commits during 200 walks`);
  const closed = once(child, 'close');
  child.stdin.end();
  await closed;
});
