/** A host's memory of the server outlives its processes, which share it, and is never lost silently. */
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { CoordinatorMemory } from '#src/sharing/coordinator-memory.js';
import { temporaryFolder } from '../../support/gateway.js';

void t.test('what is set is there for the next life', (t) => {
  const folder = temporaryFolder(t);
  const memory = new CoordinatorMemory(folder, 'ns');
  t.same(memory.of(2), { epoch: '', places: [] });
  memory.set(2, { epoch: 'e', places: ['a:0', 'b:1'] });
  const next = new CoordinatorMemory(folder, 'ns');
  t.same(next.of(2), { epoch: 'e', places: ['a:0', 'b:1'] });
  t.same(next.of(0), { epoch: '', places: [] });
  t.same(readdirSync(folder), ['sharing.json'], 'no leftovers');
  t.end();
});

void t.test('another namespace and a damaged file are named', (t) => {
  const folder = temporaryFolder(t);
  new CoordinatorMemory(folder, 'ns').set(0, { epoch: 'e', places: [] });
  t.throws(
    () => new CoordinatorMemory(folder, 'other'),
    /sharing\.json: this host shared in the namespace "ns"/,
  );
  for (const text of ['', '{', '{"namespace":"ns","partitions":[{}]}']) {
    writeFileSync(join(folder, 'sharing.json'), text);
    t.throws(
      () => new CoordinatorMemory(folder, 'ns'),
      /sharing\.json: is not what a gateway has written/,
      text,
    );
  }
  t.end();
});
