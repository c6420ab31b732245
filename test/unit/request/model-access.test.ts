import t from 'tap';
import { ModelAccess } from '#src/request/model-access.js';
import { CATALOG } from './support.js';

void t.test('a plan sees its models, and of the others not that they exist', (t) => {
  const access = new ModelAccess(CATALOG);
  t.equal(access.indexOf('priced', 0), 0);
  t.equal(access.indexOf('free', 0), 1);
  t.equal(access.indexOf('also-free', 0), 1, 'an alias is its model');
  t.equal(access.indexOf('hidden', 0), undefined);
  t.equal(access.indexOf('also-hidden', 0), undefined);
  t.equal(access.indexOf('__proto__', 0), undefined);
  t.equal(access.indexOf('', 0), undefined);
  t.same(
    access.modelsOf(0).map(({ id }) => id),
    ['priced', 'free'],
  );
  t.end();
});
