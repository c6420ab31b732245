/** Every way in which people and machines change a file, on a real disk. */
import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { FileWatch } from '#src/supervisor/file-watch.js';
import { eventually } from '../../support/gateway.js';
import { ListLog } from '../store/support.js';

const PERIOD_MS = 10;
/** Many looks: what was not noticed by then is not noticed. */
const QUIET_MS = 150;

const log = new ListLog();

function watchOf(t: Test, files: string[], onChange = (): void => undefined) {
  let changes = 0;
  const count = (): void => {
    changes++;
    onChange();
  };
  const watch = new FileWatch({ files: () => [...files], onChange: count, periodMs: PERIOD_MS, log });
  watch.setOn(true);
  // Its own timer keeps no process alive.
  const alive = setInterval(() => undefined, 1_000);
  t.teardown(() => {
    watch.setOn(false);
    clearInterval(alive);
  });
  return {
    watch,
    changes: () => changes,
    noticed: async (count: number, what: string) => {
      await eventually(what, () => (changes >= count ? true : undefined));
      await sleep(QUIET_MS);
      t.equal(changes, count, what);
    },
  };
}

void t.test('written in place, replaced by a rename, removed and made anew', async (t) => {
  const folder = t.testdir({ 'a.yaml': 'one', 'other.txt': 'x' });
  const path = join(folder, 'a.yaml');
  const { noticed, changes } = watchOf(t, [path]);
  writeFileSync(join(folder, 'other.txt'), 'y');
  await sleep(QUIET_MS);
  t.equal(changes(), 0, 'another file of the folder is none of it');
  writeFileSync(path, 'two');
  await noticed(1, 'in place');
  writeFileSync(`${path}~`, 'six');
  renameSync(`${path}~`, path);
  await noticed(2, 'by a rename, of the same length');
  rmSync(path);
  await noticed(3, 'gone');
  writeFileSync(path, 'four');
  await noticed(4, 'there again');
});

void t.test('a config map: the link to the folder of its files is turned', async (t) => {
  const folder = t.testdir();
  for (const version of ['v1', 'v2']) {
    mkdirSync(join(folder, version));
    writeFileSync(join(folder, version, 'a.yaml'), version);
  }
  symlinkSync('v1', join(folder, '..data'));
  symlinkSync('..data/a.yaml', join(folder, 'a.yaml'));
  const { noticed } = watchOf(t, [join(folder, 'a.yaml')]);
  symlinkSync('v2', join(folder, '..data_tmp'));
  renameSync(join(folder, '..data_tmp'), join(folder, '..data'));
  await noticed(1, 'the link was turned');
});

void t.test('many writes are one change, when they have ended', async (t) => {
  const path = join(t.testdir({ a: '' }), 'a');
  const { noticed, changes } = watchOf(t, [path]);
  const endMs = performance.now() + 10 * PERIOD_MS;
  for (let text = 'x'; performance.now() < endMs; text += 'x') {
    writeFileSync(path, text);
    await sleep(1);
  }
  t.ok(changes() <= 1, 'not one a write');
  await eventually('the change', () => (changes() > 0 ? true : undefined));
  await noticed(changes(), 'and then it is quiet');
});

void t.test('off is off, and what happened meanwhile is not news', async (t) => {
  const path = join(t.testdir({ a: '1' }), 'a');
  const { watch, changes } = watchOf(t, [path]);
  watch.setOn(false);
  writeFileSync(path, '22');
  watch.setOn(true);
  await sleep(QUIET_MS);
  t.equal(changes(), 0);
});

void t.test('one that begins switched off: what changes until it is switched on is not news', async (t) => {
  const path = join(t.testdir({ a: '1' }), 'a');
  let changes = 0;
  const watch = new FileWatch({ files: () => [path], onChange: () => changes++, periodMs: PERIOD_MS, log });
  watch.setOn(false);
  // The change that switches it on is reloaded already.
  writeFileSync(path, '22');
  watch.setOn(true);
  const alive = setInterval(() => undefined, 1_000);
  t.teardown(() => {
    watch.setOn(false);
    clearInterval(alive);
  });
  await sleep(QUIET_MS);
  t.equal(changes, 0);
  writeFileSync(path, '333');
  await eventually('the change', () => (changes > 0 ? true : undefined));
});

void t.test('a change between the reading of the files and the first start is reported', async (t) => {
  const path = t.testdir({ a: '1' });
  let changes = 0;
  const watch = new FileWatch({
    files: () => [join(path, 'a')],
    onChange: () => changes++,
    periodMs: PERIOD_MS,
    log,
  });
  writeFileSync(join(path, 'a'), '22');
  watch.setOn(true);
  const alive = setInterval(() => undefined, 1_000);
  t.teardown(() => {
    watch.setOn(false);
    clearInterval(alive);
  });
  await eventually('the change', () => (changes > 0 ? true : undefined));
  await sleep(QUIET_MS);
  t.equal(changes, 1);
});

void t.test('files that are named from now on are no news, and their changes are', async (t) => {
  const folder = t.testdir({ 'a.yaml': 'one', key: 'k', more: 'm' });
  const [file, key, more] = ['a.yaml', 'key', 'more'].map((name) => join(folder, name));
  const files = [file!];
  // As the supervisor does: it reads the files that the changed one names.
  const onChange = (): void => {
    if (!files.includes(key!)) {
      watch.recordRead([key!]);
      files.push(key!);
    }
  };
  const { noticed, watch } = watchOf(t, files, onChange);
  writeFileSync(file!, 'two, with a key');
  await noticed(1, 'the file, and not once more for the key');
  writeFileSync(key!, 'another key');
  await noticed(2, 'the key');
  files.splice(files.indexOf(key!), 1);
  await sleep(QUIET_MS);
  await noticed(2, 'a file less');
  writeFileSync(key!, 'unwatched');
  watch.recordRead([more!, key!]);
  writeFileSync(more!, 'changed after it was read');
  files.push(more!, key!);
  await noticed(3, 'what changed between its reading and the first poll');
});

void t.test('what the gateways did not take is reported again, ever later, until they have', async (t) => {
  const path = join(t.testdir({ a: '1' }), 'a');
  const timesMs: number[] = [];
  const { watch, changes } = watchOf(t, [path], () => {
    timesMs.push(performance.now());
    watch.setApplied(timesMs.length === 4);
  });
  writeFileSync(path, '22');
  await eventually('three more tries', () => (changes() === 4 ? true : undefined));
  const pauses = timesMs.slice(1).map((timeMs, at) => timeMs - timesMs[at]!);
  // Polls are never early.
  for (const [at, pauseMs] of pauses.entries())
    t.ok(pauseMs >= 5 * 2 ** at * PERIOD_MS * 0.8, `${Math.round(pauseMs)} ms before try ${at + 1}`);
  await sleep(100 * PERIOD_MS);
  t.equal(changes(), 4, 'and then it is quiet');
  watch.setApplied(false);
  watch.setOn(false);
  watch.setOn(true);
  await sleep(QUIET_MS);
  t.equal(changes(), 4, 'what is switched off forgets it');
});

void t.test('files beyond the bound are not watched, and that is logged once', async (t) => {
  const folder = t.testdir({ watched: '1', other: '1' });
  const unread = Array.from({ length: 999 }, (_, n) => join(folder, `absent-${n}`));
  const files = [join(folder, 'watched'), ...unread, join(folder, 'other')];
  log.lines.length = 0;
  const { watch, noticed, changes } = watchOf(t, files);
  await sleep(QUIET_MS);
  const line = 'warn not all files of the settings are watched; reload when one of the others changes';
  t.same(log.lines, [line]);
  t.same(log.fields.at(-1), { watched: 1_000, others: 1 });
  writeFileSync(join(folder, 'other'), 'two');
  await sleep(QUIET_MS);
  t.equal(changes(), 0);
  writeFileSync(join(folder, 'watched'), 'two');
  await noticed(1, 'the first of them is watched');
  files.push('/one/more');
  await eventually('one more', () => (log.lines.length === 2 ? true : undefined));
  watch.setOn(false);
  watch.setOn(true);
  t.same(log.lines, [line, line, line], 'and again when it is switched on');
});
