import t from 'tap';
import { ADMIN_ONLY, ALL_ROLES, ROLE_MEANINGS, ROLES, rolesText } from '#src/core/roles.js';

void t.test('roles are named as one reads them', (t) => {
  t.equal(rolesText(ADMIN_ONLY), 'admin');
  t.equal(rolesText(['support', 'admin']), 'support or admin');
  t.equal(rolesText(ALL_ROLES), 'viewer, support, finance or admin');
  t.same(Object.keys(ROLE_MEANINGS), [...ROLES]);
  t.end();
});
