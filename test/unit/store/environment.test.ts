/**
 * Files that processes open while others write them: nothing that was committed is lost, by whomever it ends.
 */
import { fork, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import {
  assertDisposableFile,
  assertMapsFiles,
  Environment,
  FUSE,
  makeEnvironmentFile,
  unloadableStore,
} from '#src/store/environment.js';
import { findPageError } from '#src/store/page-walk.js';
import { OPTIONS } from '#src/store/store-file.js';

const LOAD_MS = 2_000;
const KILLS = 8;

class User {
  readonly child: ChildProcess;
  readonly #closed: Promise<unknown>;
  #text = '';

  constructor(t: Test, path: string, what: 'write' | 'open' | 'read') {
    const entry = new URL('../../fixtures/environment-user.js', import.meta.url);
    this.child = fork(entry, [path, what], {
      stdio: ['pipe', 'pipe', 'inherit', 'ipc'],
    });
    t.teardown(() => this.child.kill('SIGKILL'));
    this.#closed = once(this.child, 'close');
    this.child.stdout!.setEncoding('utf8').on('data', (text: string) => (this.#text += text));
  }

  async underWay(): Promise<void> {
    while (!this.#text.includes('under way')) {
      if (this.child.exitCode !== null) throw new Error('it ended before it was under way');
      await sleep(5);
    }
  }

  async kill(): Promise<void> {
    this.child.kill('SIGKILL');
    await this.#closed;
  }

  async end(): Promise<Record<string, number>> {
    this.child.stdin!.end();
    await this.#closed;
    return JSON.parse(this.#text.split('\n').at(-2)!) as Record<string, number>;
  }
}

void t.test(
  'opened and killed beside writers: every transaction is there',
  { timeout: 120_000 },
  async (t) => {
    const path = join(t.testdir(), 'rows.lmdb');
    const writers = [new User(t, path, 'write'), new User(t, path, 'write')];
    await Promise.all(writers.map((writer) => writer.underWay()));
    const openers = [new User(t, path, 'open'), new User(t, path, 'read')];
    await Promise.all(openers.map((opener) => opener.underWay()));
    const killed: User[] = [];
    for (let kill = 0; kill < KILLS; kill++) {
      const user = new User(t, path, kill % 2 === 0 ? 'write' : 'open');
      await user.underWay();
      await sleep(LOAD_MS / KILLS);
      await user.kill();
      killed.push(user);
    }
    for (const opener of openers) {
      const { opened } = await opener.end();
      t.ok(opened! > 20, `opened ${opened} times`);
    }
    const ends = await Promise.all(writers.map((writer) => writer.end()));
    const environment = new Environment(path, OPTIONS);
    const table = environment.openTables((root) => root.openDB<number, string>('rows', {}));
    for (const [index, { written, lost }] of ends.entries()) {
      t.equal(lost, 0, `none of ${written} lost`);
      t.equal(table.get(String(writers[index]!.child.pid)), written);
    }
    await environment.close();
    t.equal(findPageError(path), undefined);
  },
);

void t.test('a transaction may hold another, and a throw undoes it', async (t) => {
  const environment = new Environment(join(t.testdir(), 'rows.lmdb'), OPTIONS);
  const table = environment.openTables((root) => root.openDB<number, string>('rows', {}));
  const result = environment.write(() => {
    table.putSync('outer', 1);
    return environment.write(() => {
      table.putSync('inner', 2);
      return 'both';
    });
  });
  t.equal(result, 'both');
  const fault = new Error('undone');
  t.throws(
    () =>
      environment.write(() => {
        table.putSync('outer', 3);
        throw fault;
      }),
    fault,
  );
  environment.write(() => table.putSync('after', 4));
  t.same(
    Array.from(table.getRange(), ({ key, value }) => [key, value]),
    [
      ['after', 4],
      ['inner', 2],
      ['outer', 1],
    ],
  );
  await environment.close();
});

void t.test('a reader is known until it has ended, and forgotten by who writes', async (t) => {
  const folder = t.testdir();
  const reader = fork(new URL('../../fixtures/store-holder.js', import.meta.url), [folder]);
  t.teardown(() => reader.kill('SIGKILL'));
  await once(reader, 'message');
  const environment = new Environment(join(folder, 'hold.lmdb'), { ...OPTIONS, mapSize: 1024 * 1024 });
  t.equal(environment.hasReaders(), true);
  reader.kill('SIGKILL');
  await once(reader, 'exit');
  environment.write(() => undefined);
  t.equal(environment.hasReaders(), true, 'nobody has looked since');
  const nowMs = performance.now();
  t.intercept(performance, 'now', { value: () => nowMs + 61_000 });
  environment.write(() => undefined);
  t.equal(environment.hasReaders(), false);
  await environment.close();
});

void t.test('a gate that is none is named, and may be removed', (t) => {
  const path = join(t.testdir(), 'rows.lmdb');
  writeFileSync(`${path}-gate`, 'notes');
  t.throws(() => new Environment(path, OPTIONS), {
    code: 'foreign',
    message: `${path}-gate cannot be read. It holds no data: end what works on this folder, and remove the file.`,
  });
  mkdirSync(`${path}2-gate`);
  t.throws(() => new Environment(`${path}2`, OPTIONS));
  t.end();
});

void t.test('a file that LMDB would end the process for is not opened', (t) => {
  const path = join(t.testdir(), 'rows.lmdb');
  writeFileSync(path, Buffer.alloc(16_384, 'notes'));
  for (const options of [OPTIONS, { ...OPTIONS, readOnly: true }])
    t.throws(() => new Environment(path, options), { code: 'foreign', message: path });
  t.throws(() => new Environment(path, OPTIONS, assertDisposableFile), { message: /holds no data/ });
  t.same(readdirSync(t.testdirName), ['rows.lmdb'], 'nothing is made beside it');
  t.end();
});

void t.test('too few addresses for a file: an error that says so, and no end by a signal', (t) => {
  const script = `
    import { Environment } from ${JSON.stringify(import.meta.resolve('#src/store/environment.js'))};
    import { OPTIONS } from ${JSON.stringify(import.meta.resolve('#src/store/store-file.js'))};
    try { new Environment(process.argv[1], OPTIONS); } catch (error) { console.log(error.code, error.message); }`;
  const limited = 'ulimit -v 12000000; exec "$0" --input-type=module -e "$1" "$2"';
  const path = join(t.testdir(), 'rows.lmdb');
  const result = spawnSync('sh', ['-c', limited, process.execPath, script, path], { encoding: 'utf8' });
  t.equal(result.signal ?? result.status, 0, result.stderr);
  t.match(
    result.stdout,
    /^unreadable .*rows\.lmdb cannot be opened: it wants 16\.0 GiB of addresses, .* leaves \d+\.\d GiB\. .*ulimit -v unlimited/,
  );
  t.end();
});

void t.test('a new file comes under its name when it is whole', (t) => {
  const folder = t.testdir();
  const path = join(folder, 'new.lmdb');
  makeEnvironmentFile(path, OPTIONS);
  const { size, ino } = statSync(path);
  t.ok(size >= 2 * OPTIONS.pageSize, `${size} bytes, of which two pages are meta data`);
  makeEnvironmentFile(path, OPTIONS);
  t.equal(statSync(path).ino, ino, 'a file that is there stays');
  t.same(readdirSync(folder), ['new.lmdb'], 'nothing is left of its making');
  t.end();
});

void t.test('a start that a power cut ended leaves nothing that a later one opens', async (t) => {
  const path = join(t.testdir(), 'new.lmdb');
  writeFileSync(`${path}-new-${process.pid}`, Buffer.alloc(4 * OPTIONS.pageSize));
  makeEnvironmentFile(path, OPTIONS);
  const environment = new Environment(path, OPTIONS);
  environment.write(() => {
    environment.root.putSync('a', 1);
  });
  t.equal(environment.root.get('a'), 1);
  await environment.close();
});

void t.test('which errors are those of the native package of the books', (t) => {
  const loading = (message: string): Error =>
    Object.assign(new Error(message), { code: 'ERR_DLOPEN_FAILED' });
  const error = unloadableStore(
    loading("/x/node_modules/@lmdb/lmdb-linux-x64/node.napi.glibc.node: version `GLIBC_2.99' not found"),
  );
  t.match(error, { code: 'unloadable', message: /^Tollgate cannot open its books/ });
  for (const other of [loading('/x/other.node: invalid ELF header'), new Error('this is a bug')])
    t.equal(unloadableStore(other), undefined, other.message);
  t.end();
});

void t.test('a disk that may not map files is tried by another process, which leaves nothing behind', (t) => {
  const path = join(t.testdir({ mapping: {}, failing: {} }), 'failing', 'rows.lmdb');
  // More than there are addresses: no system maps it, as a disk that maps no files maps nothing.
  const options = { ...OPTIONS, mapSize: 2 ** 48 };
  t.throws(() => assertMapsFiles(path, options, FUSE), {
    code: 'unreadable',
    message: /The disk of .*failing maps no files to memory\. Wanted is a folder .*map them to memory/,
  });
  t.throws(() => assertMapsFiles(path, options, FUSE), { code: 'unreadable' });
  assertMapsFiles(path, OPTIONS, FUSE);
  t.doesNotThrow(
    () => assertMapsFiles(path, options, FUSE),
    'what was found to map files is not tried again',
  );
  t.doesNotThrow(
    () => assertMapsFiles(join(t.testdirName, 'mapping', 'x'), options),
    'the disk of this test',
  );
  t.same(
    [...readdirSync(join(t.testdirName, 'failing')), ...readdirSync(join(t.testdirName, 'mapping'))],
    [],
  );
  t.end();
});
