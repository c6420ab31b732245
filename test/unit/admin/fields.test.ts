import t from 'tap';
import { listOf } from '#src/admin/fields.js';

void t.test('lists', (t) => {
  t.same(listOf(['a'], undefined), { data: ['a'], next: null });
  t.same(listOf([], 0), { data: [], next: '0' });
  t.end();
});
