/** A host's memory of the server outlives its processes, which share it, and is never lost silently. */
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { SharingMemory } from '#src/sharing/sharing-memory.js';
import { temporaryFolder } from '../../support/gateway.js';

void t.test('what is set is there for the next life', (t) => {
  const folder = temporaryFolder(t);
  const memory = new SharingMemory(folder, 'ns');
  t.same(memory.of(2), { epoch: '', places: [] });
  memory.set(2, { epoch: 'e', places: ['a:0', 'b:1'] });
  const next = new SharingMemory(folder, 'ns');
  t.same(next.of(2), { epoch: 'e', places: ['a:0', 'b:1'] });
  t.same(next.of(0), { epoch: '', places: [] });
  t.same(readdirSync(folder), ['sharing.json'], 'no leftovers');
  t.end();
});

void t.test(
  'processes of a host keep what the others have set, and an older promise changes nothing',
  (t) => {
    const folder = temporaryFolder(t);
    const [one, other] = [new SharingMemory(folder, 'ns'), new SharingMemory(folder, 'ns')];
    one.set(0, { epoch: 'new', places: ['a:0'] });
    other.set(1, { epoch: 'e', places: [] });
    t.equal(new SharingMemory(folder, 'ns').of(0).epoch, 'new');

    const newer = { term: 5, server: 'second' };
    one.promiseTerm('a:0', 1, newer);
    one.promiseTerm('a:0', 1, { term: 4, server: 'first' });
    t.same(other.promisedBy('a:0', 1), newer);
    t.same(other.promisedBy('a:0', 0), { term: 0, server: '' });
    t.same(other.promisedBy('a:1', 1), { term: 0, server: '' }, 'each process has its own');
    t.end();
  },
);

void t.test('another namespace and a damaged file are named', (t) => {
  const folder = temporaryFolder(t);
  new SharingMemory(folder, 'ns').set(0, { epoch: 'e', places: [] });
  t.throws(() => new SharingMemory(folder, 'other'), /sharing\.json: this host shared in the namespace "ns"/);
  for (const text of ['', '{', '{"namespace":"ns","partitions":[{}]}']) {
    writeFileSync(join(folder, 'sharing.json'), text);
    t.throws(() => new SharingMemory(folder, 'ns'), /sharing\.json: is not what a gateway has written/, text);
  }
  t.end();
});
