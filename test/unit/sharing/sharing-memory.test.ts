/** A host's memory of the server outlives its processes, which share it, and is never lost silently. */
import { execFile } from 'node:child_process';
import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { SharingMemory } from '#src/sharing/sharing-memory.js';
import { temporaryFolder } from '../../support/gateway.js';

void t.test('what is set is there for the next life', (t) => {
  const folder = temporaryFolder(t);
  const memory = new SharingMemory(folder, 'ns', 3);
  t.same(memory.of(2), { epoch: '', places: [] });
  memory.set(2, { epoch: 'e', places: ['a:0', 'b:1'] });
  const next = new SharingMemory(folder, 'ns', 3);
  t.same(next.of(2), { epoch: 'e', places: ['a:0', 'b:1'] });
  t.same(next.of(0), { epoch: '', places: [] });
  t.same(readdirSync(folder), ['sharing-partition-2.json'], 'no leftovers');
  t.end();
});

void t.test(
  'processes of a host keep what the others have set, and an older promise changes nothing',
  (t) => {
    const folder = temporaryFolder(t);
    const [one, other] = [new SharingMemory(folder, 'ns', 3), new SharingMemory(folder, 'ns', 3)];
    one.set(0, { epoch: 'new', places: ['a:0'] });
    other.set(1, { epoch: 'e', places: [] });
    t.equal(new SharingMemory(folder, 'ns', 3).of(0).epoch, 'new');

    const newer = { term: 5, server: 'second' };
    t.same(one.promiseTerm('a:0', 1, newer), newer);
    t.same(one.promiseTerm('a:0', 1, { term: 4, server: 'first' }), newer, 'a former term is not promised');
    t.same(other.promisedBy('a:0', 1), newer);
    t.same(other.promisedBy('a:0', 0), { term: 0, server: '' });
    t.same(other.promisedBy('a:1', 1), { term: 0, server: '' }, 'each process has its own');
    t.end();
  },
);

void t.test('processes that set their partitions at once undo nothing of each other', async (t) => {
  const folder = temporaryFolder(t);
  const module = import.meta.resolve('#src/sharing/sharing-memory.js');
  const program = `
    import { SharingMemory } from ${JSON.stringify(module)};
    const memory = new SharingMemory(${JSON.stringify(folder)}, 'ns', 6);
    const first = Number(process.argv[1]);
    for (let round = 1; round <= 40; round++)
      for (const partition of [first, first + 1]) memory.set(partition, { epoch: String(round), places: [] });`;
  const run = promisify(execFile);
  await Promise.all(
    ['0', '2', '4'].map((first) =>
      run(process.execPath, ['--input-type=module', '-e', program, '--', first]),
    ),
  );
  const memory = new SharingMemory(folder, 'ns', 6);
  const epochs = [0, 1, 2, 3, 4, 5].map((partition) => memory.of(partition).epoch);
  t.same(
    epochs,
    Array.from(epochs, () => '40'),
  );
});

void t.test('who removes the damaged file of one partition loses the memory of that one alone', (t) => {
  const folder = temporaryFolder(t);
  const memory = new SharingMemory(folder, 'ns', 3);
  for (const partition of [0, 1, 2]) memory.set(partition, { epoch: `e${partition}`, places: ['a:0'] });
  memory.promiseTerm('a:0', 1, { term: 3, server: 's' });
  const damaged = join(folder, 'sharing-partition-1.json');
  writeFileSync(damaged, '{');
  t.throws(() => memory.of(1), {
    message: `${damaged}: is not what a gateway has written. Remove this file`,
  });
  rmSync(damaged);
  t.same(
    [0, 1, 2].map((partition) => memory.of(partition).epoch),
    ['e0', '', 'e2'],
  );
  t.same(memory.promisedBy('a:0', 1), { term: 3, server: 's' }, 'what it promised stays');
  writeFileSync(join(folder, 'sharing-0.json'), '{');
  t.throws(() => memory.promisedBy('a:0', 1), { message: /what a gateway has written$/ }, 'is never removed');
  t.end();
});

void t.test('a partition that is added is none of a new server', (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'sharing-partition-0.json');
  const before = { epoch: 'e', places: ['a:0', 'b:0'] };
  new SharingMemory(folder, 'ns', 2).set(0, before);
  t.same(new SharingMemory(folder, 'ns', 2).of(1), { epoch: '', places: [] }, 'not added, but never reached');
  t.match(new SharingMemory(folder, 'ns', 3).of(2), before);
  const memory = new SharingMemory(folder, 'ns', 3);
  memory.set(2, { epoch: 'f', places: ['a:0'] });
  t.match(memory.of(2), { epoch: 'f', places: ['a:0'] });
  writeFileSync(path, '{"namespace":"ns","epoch":"e","places":[]}');
  t.same(memory.of(1), { epoch: '', places: [] }, 'of a former version, which did not write the number');
  t.end();
});

void t.test('another namespace and a damaged file are named', (t) => {
  const folder = temporaryFolder(t);
  new SharingMemory(folder, 'ns', 3).set(0, { epoch: 'e', places: [] });
  t.throws(
    () => new SharingMemory(folder, 'other', 3).of(0),
    /sharing-partition-0\.json: this host shared in the namespace "ns"/,
  );
  const path = join(folder, 'sharing-partition-0.json');
  for (const text of ['', '{', '{"namespace":"ns","epoch":"e"}']) {
    writeFileSync(path, text);
    const message = `${path}: is not what a gateway has written`;
    t.throws(() => new SharingMemory(folder, 'ns', 3).of(0), { message }, text);
  }
  t.end();
});
