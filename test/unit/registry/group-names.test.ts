import t from 'tap';
import { asGroupIndex } from '#src/core/units.js';
import { createGroupNames, GroupNames } from '#src/registry/group-names.js';

void t.test('names are read as they were set, the longest too', (t) => {
  const buffer = createGroupNames(3);
  const names = new GroupNames(buffer);
  const [first, second, third] = [asGroupIndex(0), asGroupIndex(1), asGroupIndex(2)];
  t.equal(names.nameOf(first), '');
  names.set(first, 'research');
  names.set(second, '😀'.repeat(100));
  names.set(third, 'Größe');
  const elsewhere = new GroupNames(buffer);
  t.equal(elsewhere.nameOf(first), 'research');
  t.equal(elsewhere.nameOf(second), '😀'.repeat(100));
  t.equal(elsewhere.nameOf(third), 'Größe');
  names.set(first, 'x');
  t.equal(elsewhere.nameOf(first), 'x');
  names.set(first, '😀'.repeat(101));
  t.equal(elsewhere.nameOf(second), '😀'.repeat(100), 'a name that is too long changes no other');
  t.throws(() => names.set(asGroupIndex(3), 'y'), /invariant/);
  t.end();
});
