/** What claims say of a person, also those that are not what they should be. */
import t from 'tap';
import { type Claims, claimAt, type OidcSettings, personOf, roleOf } from '#src/admin/oidc-claims.js';
import { ROLES } from '#src/core/roles.js';

const SETTINGS = {
  role_claim: 'groups',
  name_claim: 'email',
  roles: { a: 'viewer', b: 'support', c: 'finance', d: 'admin' },
} as unknown as OidcSettings;

void t.test('a path leads into maps, and names may have dots', (t) => {
  const claims: Claims = {
    groups: ['a'],
    resource_access: { tollgate: { roles: ['b'] }, 'my.client': { roles: ['c'] } },
    'https://acme.example/roles': ['d'],
    'a.b': 'whole',
    a: { b: 'nested' },
    empty: null,
    list: [{ name: 'x' }],
  };
  const cases: readonly [string, unknown][] = [
    ['groups', ['a']],
    ['resource_access.tollgate.roles', ['b']],
    ['resource_access.my.client.roles', ['c']],
    ['https://acme.example/roles', ['d']],
    ['a.b', 'whole'],
    ['empty', undefined],
    ['list.0.name', undefined],
    ['list.length', undefined],
    ['groups.0', undefined],
    ['constructor', undefined],
    ['__proto__', undefined],
    ['resource_access.__proto__', undefined],
    ['resource_access.constructor.name', undefined],
    ['.', undefined],
    ['', undefined],
    ['.'.repeat(256), undefined],
  ];
  for (const [path, found] of cases) t.same(claimAt(claims, path), found, path);
  t.end();
});

void t.test('the role with the most rights, whatever the order', (t) => {
  const names = ['a', 'b', 'c', 'd'];
  for (let chosen = 1; chosen < 16; chosen++) {
    const had = names.filter((_, at) => (chosen & (1 << at)) !== 0);
    const best = ROLES[names.indexOf(had.at(-1)!)];
    t.equal(roleOf(['everybody', ...had], SETTINGS), best, had.join());
    t.equal(roleOf([...had].reverse(), SETTINGS), best, had.join());
  }
  for (const values of [[], ['A'], ['a '], ['toString'], ['__proto__'], ['']]) {
    t.equal(roleOf(values, SETTINGS), undefined, values.join());
    t.equal(roleOf(values, { ...SETTINGS, default_role: 'viewer' }), 'viewer');
  }
  t.equal(roleOf(['d'], { ...SETTINGS, default_role: 'viewer' }), 'admin');
  t.end();
});

void t.test('values are texts, and not more than a session keeps', (t) => {
  const valuesOf = (groups: unknown): readonly string[] => personOf({ sub: 's', groups }, SETTINGS).values;
  t.same(valuesOf('a'), ['a']);
  t.same(valuesOf(['a', 7, null, ['d'], { d: 1 }, true, 'b', 'x'.repeat(257)]), ['a', 'b']);
  for (const odd of [undefined, null, 7, true, { d: 'admin' }])
    t.same(valuesOf(odd), [], JSON.stringify(odd));
  t.equal(valuesOf(Array.from({ length: 5_000 }, () => 'x')).length, 1_000);
  t.end();
});

void t.test('groups that the provider has left out are told of', (t) => {
  const claims = { sub: 's', _claim_names: { groups: 'src1' } };
  t.equal(personOf(claims, SETTINGS).hasOverage, true);
  t.equal(personOf(claims, { ...SETTINGS, role_claim: 'roles' }).hasOverage, false);
  t.equal(personOf({ ...claims, groups: [] }, SETTINGS).hasOverage, false);
  t.equal(personOf({ sub: 's', _claim_names: 'x' }, SETTINGS).hasOverage, false);
  const overflows = (name: string, role_claim: string): boolean =>
    personOf({ sub: 's', _claim_names: { [name]: 'src1' } }, { ...SETTINGS, role_claim }).hasOverage;
  t.equal(overflows('https://acme.example/groups', 'https://acme.example/groups'), true, 'dots in a name');
  t.equal(overflows('realm_access', 'realm_access.roles'), true, 'a claim that contains it');
  t.equal(overflows('realm', 'realm_access.roles'), false);
  t.equal(overflows('groups', 'constructor'), false);
  t.end();
});

void t.test('a name is one line, and nobody’s own choice', (t) => {
  const nameOf = (claims: Claims): string => personOf({ sub: 'sub-1', ...claims }, SETTINGS).name;
  t.equal(nameOf({ email: 'ann@example.com' }), 'ann@example.com');
  t.equal(nameOf({ email: 'ann@example.com', email_verified: true }), 'ann@example.com');
  t.equal(nameOf({ email: 'ann@example.com', email_verified: 'true' }), 'ann@example.com', 'as a text');
  for (const email_verified of [false, 'false', 'False', 0, 1, null, '', {}])
    t.equal(nameOf({ email: 'ann@example.com', email_verified }), 'sub-1');
  for (const email of [
    7,
    null,
    '',
    ['a'],
    'a\nb',
    'a\u2028b',
    'a\u202eb',
    'a\u0000',
    '\ud800',
    'x'.repeat(201),
  ]) {
    t.equal(nameOf({ email }), 'sub-1', encodeURI(JSON.stringify(email)));
  }
  t.equal(nameOf({ sub: 'a\r\nb\u202e' }), 'a??b?', 'a sub too');
  t.equal(nameOf({ sub: 'y'.repeat(300) }).length, 200);
  t.end();
});
