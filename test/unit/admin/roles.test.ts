/** Which role may use which route: the declaration, written out once more by hand where it gives a right. */
import t from 'tap';
import { OTHER_ROUTES } from '#src/admin/other-routes.js';
import { defineRoute } from '#src/admin/route.js';
import * as Type from 'typebox';
import { ADMIN_ROUTES } from '#src/admin/routes.js';
import { ROLES } from '#src/core/roles.js';

/** What others than `admin` may change. */
const CHANGES = {
  'POST /keys': 'support admin',
  'POST /keys/{key}/rotate': 'support admin',
  'POST /keys/{key}/disable': 'support admin',
  'POST /keys/{key}/enable': 'support admin',
  'DELETE /keys/{key}': 'support admin',
  'POST /upstreams/reset': 'support admin',
  'POST /accounts/{account}/credit': 'finance admin',
  'POST /flush': 'viewer support finance admin',
};

void t.test('nobody but admin may change more than that', (t) => {
  const changing = ADMIN_ROUTES.filter(({ method, roles }) => method !== 'GET' && roles.length > 1);
  t.same(
    Object.fromEntries(changing.map(({ method, path, roles }) => [`${method} ${path}`, roles.join(' ')])),
    CHANGES,
  );
  t.end();
});

void t.test('each list has admin, last, and each role once', (t) => {
  for (const { method, path, roles } of [...ADMIN_ROUTES, ...OTHER_ROUTES]) {
    if (roles === 'anyone') continue;
    t.equal(roles.at(-1), 'admin', `${method} ${path}`);
    t.equal(new Set<string>(roles).size, roles.length);
    t.ok(roles.every((role) => ROLES.includes(role)));
  }
  t.end();
});

void t.test(
  'a route that changes something does not compile without roles, nor a list without admin',
  (t) => {
    const rest = { summary: '', responseSchema: Type.Object({}), respond: () => ({}) };
    // @ts-expect-error -- who may is not said
    defineRoute({ method: 'POST', path: '/x', ...rest });
    // @ts-expect-error -- admin may do everything
    defineRoute({ method: 'POST', path: '/x', roles: ['support'], ...rest });
    t.same(defineRoute({ method: 'GET', path: '/x', ...rest }).roles, [...ROLES]);
    t.same(defineRoute({ method: 'GET', path: '/x', roles: ['admin'], ...rest }).roles, ['admin']);
    t.end();
  },
);
