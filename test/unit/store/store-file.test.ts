import fs, { existsSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { dirname, join } from 'node:path';
import t from 'tap';
import { diskErrorOf, makeDataFolder, startErrorText, StoreError } from '#src/store/store-file.js';

void t.test('the folders above a data directory are made with it, for their owner alone', (t) => {
  const root = t.testdir();
  const path = join(root, 'made', 'also', 'data');
  makeDataFolder(path);
  makeDataFolder(path);
  for (const folder of [path, dirname(path), dirname(dirname(path))])
    t.equal(statSync(folder).mode & 0o777, 0o700, folder);
  t.end();
});

void t.test('other processes make one or all of the folders at the same moment', (t) => {
  const { mkdirSync } = fs;
  const root = t.testdir();
  const folders = ['1', '1/2', '1/2/3'].map((name) => join(root, name));
  t.teardown(() => {
    fs.mkdirSync = mkdirSync;
    syncBuiltinESMExports();
  });
  // Before each of the calls of `mkdir`, and after it, so many folders are made by somebody else.
  for (let seen = 0; seen < 6; seen++) {
    for (const others of folders.keys()) {
      for (const moment of ['before', 'after'] as const) {
        fs.rmSync(folders[0]!, { recursive: true, force: true });
        const race = (): void => {
          for (const folder of folders.slice(0, others + 1)) mkdirSync(folder, { recursive: true });
        };
        let calls = 0;
        fs.mkdirSync = (...given: Parameters<typeof mkdirSync>) => {
          const isMoment = calls++ === seen;
          if (isMoment && moment === 'before') race();
          try {
            return mkdirSync(...given);
          } finally {
            if (isMoment && moment === 'after') race();
          }
        };
        syncBuiltinESMExports();
        t.doesNotThrow(
          () => makeDataFolder(folders.at(-1)!),
          `${others + 1} made ${moment} the call number ${seen + 1}`,
        );
        t.ok(existsSync(folders.at(-1)!));
      }
    }
  }
  t.end();
});

void t.test('a folder that cannot be made is an error that names it, and no endless attempt', (t) => {
  const root = t.testdir();
  writeFileSync(join(root, 'file'), '');
  symlinkSync(join(root, 'nowhere'), join(root, 'link'));
  for (const path of [
    '/proc/no-such-folder/data',
    join(root, 'file'),
    join(root, 'file', 'data'),
    join(root, 'link'),
    join(root, 'link', 'data'),
  ]) {
    t.throws(() => makeDataFolder(path), StoreError, path);
    t.throws(() => makeDataFolder(path), {
      code: 'unreadable',
      message: `directory ${path} cannot be created`,
    });
  }
  t.end();
});

void t.test('why a disk takes no more, as LMDB and as Node tell it', (t) => {
  const failed = (code: unknown): Error => Object.assign(new Error('no'), { code });
  const reasons = [
    [5, 'EIO', /failed to write/],
    [28, 'ENOSPC', /is full/],
    [30, 'EROFS', /is read-only/],
    [122, 'EDQUOT', /quota of its owner is used up/],
    [-30792, undefined, /has its full size/],
  ] as const;
  for (const [lmdbCode, nodeCode, reason] of reasons) {
    t.match(diskErrorOf(failed(lmdbCode)), reason);
    for (const code of nodeCode === undefined ? [lmdbCode] : [lmdbCode, nodeCode])
      t.match(
        startErrorText('/data', failed(code)),
        new RegExp(`${reason.source}.*Look at the disk of /data`),
      );
  }
  for (const error of [failed(13), failed('EACCES'), failed(undefined), new Error('no'), 'no', undefined]) {
    t.equal(diskErrorOf(error), undefined);
    t.notMatch(startErrorText('/data', error), /Look at the disk/);
  }
  t.equal(startErrorText('/data', new StoreError('damaged', 'page 7')), 'page 7');
  t.end();
});
