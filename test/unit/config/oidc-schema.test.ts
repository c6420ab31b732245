/** The section `admin.oidc`: what it may hold, and what an operator is told whose settings are wrong. */
import t, { type Test } from 'tap';
import { isIssuer, isRedirectUrl } from '#src/config/oidc-schema.js';
import { SOUND_YAML, worldOf } from './support.js';

const CALLBACK = 'https://tollgate.example/admin/session/oidc/callback';
const NEEDED = {
  issuer: 'https://login.example/realms/a',
  client_id: 'tollgate',
  redirect_url: CALLBACK,
  roles: { 'tollgate-admins': 'admin', 'Größe "L"': 'viewer' },
};

// JSON is YAML.
const yamlOf = (oidc: object): string => `${SOUND_YAML}admin: ${JSON.stringify({ oidc })}\n`;

const faultsOf = (t: Test, oidc: object): readonly string[] =>
  worldOf(t, { 'tollgate.yaml': yamlOf(oidc), 'bad.txt': 'two words' }).faults({}, { SECRET: 'secret-0123' });

void t.test('what is read', (t) => {
  t.equal(worldOf(t, { 'tollgate.yaml': SOUND_YAML }).load().settings.admin.oidc, undefined);
  const world = worldOf(t, { 'tollgate.yaml': yamlOf({ ...NEEDED, client_secret: '${SECRET}' }) });
  const { settings, inForce } = world.load({}, { SECRET: 'secret-0123' });
  t.same(settings.admin.oidc, {
    ...NEEDED,
    client_secret: 'secret-0123',
    scopes: ['profile', 'email'],
    role_claim: 'groups',
    name_claim: 'email',
    clock_tolerance_seconds: 30,
    timeout_seconds: 10,
  });
  const told = inForce.filter(({ setting }) => setting.startsWith('admin.oidc'));
  t.match(
    told.find(({ setting }) => setting === 'admin.oidc.client_secret'),
    { value: '(secret)', live: true },
  );
  t.match(
    told.find(({ setting }) => setting === 'admin.oidc.roles.tollgate-admins'),
    { value: 'admin', live: true },
    'a role is no secret',
  );
  t.notMatch(JSON.stringify(told), 'secret-0123');
  t.end();
});

void t.test('the secret may be in a file, and left out', (t) => {
  const files = {
    'tollgate.yaml': yamlOf({ ...NEEDED, client_secret_file: 'oidc.txt' }),
    'oidc.txt': 'secret-0123\n',
  };
  const world = worldOf(t, files);
  t.equal(world.load().settings.admin.oidc?.client_secret, 'secret-0123');
  t.equal(
    world.load({ secrets: false }).settings.admin.oidc?.client_secret,
    undefined,
    'commands do without',
  );
  const open = worldOf(t, { 'tollgate.yaml': yamlOf(NEEDED) });
  t.equal(open.load().settings.admin.oidc?.client_secret, undefined, 'a public client');
  t.end();
});

void t.test('what is refused', (t) => {
  const cases: readonly [object, readonly RegExp[]][] = [
    [
      {},
      [
        /admin\.oidc\.issuer: missing, want an https:\/\/ address/,
        /admin\.oidc\.client_id: missing, want the client id that the provider gave/,
        /admin\.oidc\.redirect_url: missing, want https:\/\/HOST\/admin\/session\/oidc\/callback/,
        /admin\.oidc\.roles: names no value, want at least one, or default_role/,
      ],
    ],
    [{ issuer: 'http://login.example' }, [/issuer: got "http:\/\/login\.example", want an https/]],
    [{ redirect_url: 'https://tollgate.example/' }, [/redirect_url: got .*, want https:\/\/HOST/]],
    [{ roles: { a: 'owner' } }, [/roles\.a: got "owner", want one of viewer, support, finance, admin/]],
    [{ roles: ['a'] }, [/roles: got .*, want a map from values of role_claim to roles/]],
    [{ roles: { '': 'admin' } }, [/a name that cannot be set here/]],
    [{ default_role: 'root' }, [/default_role: got "root", want one of viewer/]],
    [{ client_secret: 'inline' }, [/client_secret: got a secret written inline, want a reference such as/]],
    [{ client_secret_file: 'bad.txt' }, [/client_secret_file: the file holds no secret/]],
    [{ client_secret_file: 'none.txt' }, [/client_secret_file: cannot be read/]],
    [
      { client_secret: '${SECRET}', client_secret_file: 'none.txt' },
      [/client_secret_file: given besides client_secret, want one of the two/, /cannot be read/],
    ],
    [{ scopes: ['a b'] }, [/scopes\[0\]: got "a b", want a scope such as groups/]],
    [{ clock_tolerance_seconds: 301 }, [/clock_tolerance_seconds: got 301, want .* 0 to 300/]],
    [{ timeout_seconds: 0 }, [/timeout_seconds: got 0, want .* 1 to 60/]],
    [{ role_claims: 'x' }, [/unknown setting, the nearest known one is admin\.oidc\.role_claim/]],
  ];
  for (const [more, expected] of cases) {
    const oidc = Object.keys(more).length === 0 ? {} : { ...NEEDED, ...more };
    const faults = faultsOf(t, oidc);
    t.match(faults, expected, JSON.stringify(more));
    t.equal(faults.length, expected.length, 'each mistake is told once');
  }
  t.end();
});

void t.test('addresses', (t) => {
  const right = [
    ['https://a.example', 'https://a.example/'],
    ['https://a.example/b/', 'http://localhost:8080/realms/a', 'http://127.0.0.1:1', 'http://[::1]:1'],
  ].flat();
  for (const issuer of right) t.ok(isIssuer(issuer), issuer);
  const wrong = [
    ['http://a.example', 'http://127.0.0.1.evil.example', 'http://localhost.evil.example', 'ftp://localhost'],
    [
      'https://u:p@a.example',
      'https://a.example?x',
      'https://a.example#',
      'https://a.example#x',
      'a.example',
      '',
    ],
    ['https://a.example/.well-known/openid-configuration', 'https:', 'javascript:alert(1)'],
  ].flat();
  for (const issuer of wrong) t.notOk(isIssuer(issuer), issuer);
  t.ok(isRedirectUrl(CALLBACK));
  t.ok(isRedirectUrl('http://localhost:8081/admin/session/oidc/callback'));
  for (const url of [
    'http://tollgate.example/admin/session/oidc/callback',
    `${CALLBACK}?x=1`,
    `${CALLBACK}/`,
    'https://tollgate.example/admin/session/oidc',
    'https://tollgate.example/prefix/admin/session/oidc/callback',
  ]) {
    t.notOk(isRedirectUrl(url), url);
  }
  t.end();
});
