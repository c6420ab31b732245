/** Lines of calls in a file: whole, in order, rotated by size, and never in the way of anything else. */
import { execFileSync } from 'node:child_process';
import fs, {
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { LineFile, type LineFileOptions } from '#src/telemetry/line-file.js';

const noted: string[] = [];
const log = {
  error: (message: string, fields?: object) => void noted.push(`error ${message} ${JSON.stringify(fields)}`),
  warn: (message: string) => void noted.push(`warn ${message}`),
  info: (message: string) => void noted.push(`info ${message}`),
  record: () => undefined,
};
t.beforeEach(() => noted.splice(0));

function open(path: string, more: Partial<LineFileOptions> = {}): LineFile {
  return new LineFile({ name: 'usage log', path, rotateBytes: 1_000_000, keep: 3, log, ...more });
}

const linesOf = (path: string): string[] => readFileSync(path, 'utf8').split('\n').slice(0, -1);
const numbered = (from: number, count: number): string[] =>
  Array.from({ length: count }, (_, at) => `{"call":${from + at}}`);

void t.test('lines are appended, for the owner alone, and after those of an earlier run', (t) => {
  const path = join(t.testdir(), 'usage.ndjson');
  const first = open(path);
  t.notOk(existsSync(path), 'nothing is made before there is a line');
  first.append([]);
  t.notOk(existsSync(path));
  first.append(['{"call":0}', '{"call":1}']);
  first.append(['{"call":2}']);
  first.close();
  const second = open(path);
  second.append(['{"call":3}']);
  second.close();
  t.same(linesOf(path), numbered(0, 4));
  t.equal(statSync(path).mode & 0o777, 0o600);
  t.same(noted, []);
  t.end();
});

void t.test('no file grows beyond its size, and the oldest goes first', (t) => {
  // 12 bytes a line with the newline, of calls 10 to 99.
  for (const rotateBytes of [1, 11, 12, 13, 24, 35, 36, 100, 120]) {
    for (const batch of [1, 2, 7, 60]) {
      const folder = t.testdir();
      const path = join(folder, 'usage');
      const usageLog = open(path, { rotateBytes, keep: 3 });
      for (let from = 0; from < 60; from += batch) {
        usageLog.append(numbered(10 + from, Math.min(batch, 60 - from)));
      }
      usageLog.close();
      const files = ['usage.3', 'usage.2', 'usage.1', 'usage'].filter((name) =>
        existsSync(join(folder, name)),
      );
      t.same(readdirSync(folder).sort(), [...files].sort(), 'and no file besides');
      const kept = files.flatMap((name) => linesOf(join(folder, name)));
      const perFile = Math.max(1, Math.floor(rotateBytes / 12));
      const full = Math.floor((60 - 1) / perFile);
      const expected = 60 - full * perFile + Math.min(3, full) * perFile;
      t.same(kept, numbered(10 + 60 - expected, expected), `${rotateBytes} bytes, ${batch} lines at a time`);
      for (const name of files) {
        t.ok(statSync(join(folder, name)).size <= Math.max(rotateBytes, 12), `${name} is within its size`);
      }
    }
  }
  t.end();
});

void t.test('files beyond a lowered bound go with the next rotation, others stay', (t) => {
  const folder = t.testdir();
  const path = join(folder, 'usage');
  const before = open(path, { rotateBytes: 12, keep: 5 });
  before.append(numbered(10, 6));
  before.close();
  writeFileSync(join(folder, 'usage.20250131'), "an operator's copy");
  t.equal(readdirSync(folder).length, 7);
  const after = open(path, { rotateBytes: 12, keep: 2 });
  after.append(numbered(16, 1));
  after.close();
  t.same(readdirSync(folder).sort(), ['usage', 'usage.1', 'usage.2', 'usage.20250131']);
  t.same(
    ['usage.2', 'usage.1', 'usage'].flatMap((name) => linesOf(join(folder, name))),
    numbered(14, 3),
  );
  t.end();
});

void t.test('a file that was moved, removed or emptied by a collector is begun anew', (t) => {
  const folder = t.testdir();
  const path = join(folder, 'usage');
  const usageLog = open(path, { rotateBytes: 36 });
  usageLog.append(numbered(10, 2));
  renameSync(path, join(folder, 'collected'));
  usageLog.append(numbered(12, 2));
  t.same(linesOf(join(folder, 'collected')), numbered(10, 2));
  t.same(linesOf(path), numbered(12, 2));
  rmSync(path);
  usageLog.append(numbered(14, 3));
  t.same(linesOf(path), numbered(14, 3));
  truncateSync(path, 0);
  usageLog.append(numbered(17, 3));
  t.same(linesOf(path), numbered(17, 3), 'not rotated: it is not as long as it was');
  t.notOk(existsSync(`${path}.1`));
  usageLog.close();
  t.end();
});

void t.test('a line that a crash cut is ended, so that the next is whole', (t) => {
  const path = join(t.testdir(), 'usage');
  writeFileSync(path, '{"call":10}\n{"ca');
  const usageLog = open(path);
  usageLog.append(numbered(11, 1));
  usageLog.close();
  t.same(linesOf(path), ['{"call":10}', '{"ca', '{"call":11}']);
  t.end();
});

void t.test('what cannot be written waits, within a bound, and is told', (t) => {
  const folder = join(t.testdir(), 'later');
  const path = join(folder, 'usage');
  const usageLog = open(path, { waitingBytesMax: 36 });
  usageLog.append(numbered(10, 2));
  t.match(noted, [/^warn the usage log cannot be written; its lines wait/]);
  usageLog.append(numbered(12, 1));
  t.equal(noted.length, 1, 'told once');
  usageLog.append(numbered(13, 2));
  t.match(
    noted[1],
    /^error lines of the usage log were dropped.*"dropped":2,"droppedSinceStart":2/,
    'three of 12 bytes are within the bound',
  );
  usageLog.append(numbered(15, 1));
  t.match(noted[2], /"dropped":1,"droppedSinceStart":3/);

  mkdirSync(folder);
  usageLog.append([]);
  t.same(linesOf(path), numbered(13, 3), 'the youngest, also without a new line');
  t.match(noted[3], /^warn the usage log is written again/);
  usageLog.append(numbered(16, 1));
  usageLog.close();
  t.same(linesOf(path), numbered(13, 4));
  t.equal(noted.length, 4);
  t.end();
});

void t.test('a full device throws nothing', { skip: !existsSync('/dev/full') }, (t) => {
  const usageLog = open('/dev/full', { waitingBytesMax: 24 });
  usageLog.append(numbered(10, 5));
  t.match(noted[1], /"droppedSinceStart":3.*ENOSPC/);
  usageLog.close();
  t.end();
});

void t.test('what its end cannot write is counted and told', (t) => {
  const path = join(t.testdir(), 'later', 'usage');
  const usageLog = open(path);
  usageLog.append(numbered(10, 2));
  usageLog.append(numbered(12, 1));
  t.equal(noted.length, 1);
  usageLog.close();
  t.equal(noted.length, 2);
  t.match(noted[1], /^error lines of the usage log were dropped.*"dropped":3,"droppedSinceStart":3.*ENOENT/);
  t.end();
});

void t.test('a file that cannot be closed throws nothing, and its number is not used again', (t) => {
  const path = join(t.testdir(), 'usage.ndjson');
  const file = open(path);
  file.append(['{"call":0}']);
  const { closeSync } = fs;
  fs.closeSync = (descriptor) => {
    closeSync(descriptor);
    throw new Error('EDQUOT: disk quota exceeded, close');
  };
  syncBuiltinESMExports();
  try {
    file.close();
  } finally {
    fs.closeSync = closeSync;
    syncBuiltinESMExports();
  }
  t.match(noted, [/^error the last lines of the usage log may be missing.*EDQUOT/]);
  file.append(['{"call":1}']);
  file.close();
  t.same(linesOf(path), numbered(0, 2));
  t.equal(noted.length, 1);
  t.end();
});

void t.test('what was written of a batch when no more would fit is cut off again', (t) => {
  const path = join(t.testdir(), 'usage');
  const writer = fileURLToPath(new URL('../../fixtures/line-file-writer.js', import.meta.url));
  // 1 KiB: two lines fit, and a part of the other eighteen.
  const run = (limit: string): string =>
    execFileSync('sh', ['-c', `ulimit -f ${limit}; exec "$0" "$@"`, process.execPath, writer, path, '20'], {
      encoding: 'utf8',
    });
  t.equal(run('2'), '1', 'the second batch fails');
  const kept = linesOf(path);
  t.same(
    kept.map((line) => (JSON.parse(line) as { at: number }).at),
    [0, 1],
    'lines of the first batch, whole',
  );
  t.ok(readFileSync(path, 'utf8').endsWith('\n'));
  t.equal(run('unlimited'), '0');
  t.equal(linesOf(path).length, 22);
  t.end();
});

void t.test('a cut line is ended later, if no byte more would fit at first', (t) => {
  const path = join(t.testdir(), 'usage');
  const cut = `{"at":-1,"text":"${'x'.repeat(2_000)}`;
  writeFileSync(path, cut.slice(0, 1_024));
  const writer = fileURLToPath(new URL('../../fixtures/line-file-writer.js', import.meta.url));
  // 1 KiB: not even the newline fits, until somebody makes room.
  const args = ['-c', 'ulimit -f 2; exec "$0" "$@"', process.execPath, writer, path, '3', '512'];
  t.equal(execFileSync('sh', args, { encoding: 'utf8' }), '1', 'the first batch fails');
  const [first, ...others] = linesOf(path);
  t.equal(first, cut.slice(0, 512));
  t.same(
    others.map((line) => (JSON.parse(line) as { at: number }).at),
    [0, 1, 2],
    'each line by itself',
  );
  t.end();
});

void t.test('a pipe is named as what it is, and holds up nothing; the null device takes all', (t) => {
  const pipe = join(t.testdir(), 'pipe');
  execFileSync('mkfifo', [pipe]);
  const texts: string[] = [];
  for (const path of [pipe, '/dev/null']) {
    const file = open(path, { log: { ...log, warn: (_, fields) => void texts.push(String(fields?.error)) } });
    file.append(numbered(0, 1));
    file.append(numbered(1, 1));
    file.close();
  }
  t.equal(texts.length, 1, 'once');
  t.match(texts[0], /must be that of a file/);
  t.end();
});

void t.test('a device is never renamed, however many lines it takes', (t) => {
  const folder = t.testdir();
  const path = join(folder, 'usage');
  // A link, because a test must not risk the device itself.
  symlinkSync('/dev/null', path);
  const file = open(path, { rotateBytes: 100 });
  for (let append = 0; append < 3; append++) file.append(numbered(0, 50));
  file.close();
  t.same(readdirSync(folder), ['usage']);
  t.ok(lstatSync(path).isSymbolicLink());
  t.same(noted, []);
  t.end();
});
