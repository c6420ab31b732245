import t from 'tap';
import { generateKey } from '#src/registry/key-digest.js';
import { prefixOf } from '#src/registry/key-record.js';

void t.test('what is shown of a key is its beginning and no more', (t) => {
  const key = generateKey();
  t.match(prefixOf(key), /^sk-.{4}$/);
  t.ok(key.startsWith(prefixOf(key)));
  t.end();
});
