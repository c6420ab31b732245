/** Where settings come from: file, environment, command line, defaults; and paths. */
import { createPrivateKey } from 'node:crypto';
import { join } from 'node:path';
import { rootCertificates } from 'node:tls';
import t from 'tap';
import type { Declaration } from '#src/config/annotations.js';
import { settingsDeclaration } from '#src/config/schema.js';
import { selfSigned } from '../../fixtures/upstream-certificate.js';
import { SOUND_YAML, worldOf } from './support.js';

void t.test('no file: the demo, with every default', (t) => {
  const world = worldOf(t, {});
  const { settings, source, demo } = world.load();
  t.equal(source, undefined);
  t.equal(demo, true);
  t.strictSame(settings, {
    listen: { host: '127.0.0.1', port: 8080, listeners: 1 },
    admin: { host: '127.0.0.1', port: 8081, hosts: [] },
    workers: 1,
    workers_from_load_percent: 50,
    processes: 1,
    data: join(world.folder, 'data'),
    models: [
      {
        id: 'echo',
        aliases: [],
        owned_by: 'tollgate',
        created: 0,
        price: { input: '0.15', output: '0.60' },
        max_output_tokens: 16384,
        media_part_tokens: 0,
        fallbacks: [],
        fallback_on: ['unavailable'],
        pass_members: [],
        serves: ['chat'],
        tokenizer: 'o200k_base',
        upstreams: [
          {
            provider: 'openai',
            url: 'echo:',
            speaks: [],
            thoughts_back: false,
            drop_unsupported: false,
            weight: 1,
            priority: 1,
            headers: {},
            connect_timeout_ms: 5000,
            first_byte_timeout_ms: 60000,
            idle_timeout_ms: 60000,
            total_timeout_ms: 600000,
            connections_max: 10000,
            breaker_failures: 10,
            park_max_ms: 5000,
            when_client_leaves: 'abort',
            quota_scope: 'key',
            queue_ms: 5000,
          },
        ],
      },
    ],
    plans: [
      {
        id: 'demo',
        requests_per_minute: 1_000_000,
        calls_per_day: 1_440_000_000,
        models: ['*'],
        models_limits: [],
      },
    ],
    limits: {
      body_bytes: 10485760,
      calls_in_flight: 20000,
      calls_in_flight_per_account: 20000,
      parse_inline_bytes: 65536,
      parse_wait_ms: 5000,
      stream_buffer_bytes: 262144,
      client_idle_timeout_ms: 120000,
      accounts: 1000000,
      keys: 2000000,
      groups: 10000,
    },
    token_quota: 'reserve',
    quota_cached_input: 'count',
    quota_timezone: '+08:00',
    low_balance: 'refuse',
    cache: { ttl_seconds: 0, scope: 'account', memory_bytes: 67_108_864, bytes: 268_435_456 },
    durability: 'interval',
    on_store_error: 'serve',
    flush_interval_ms: 1000,
    idempotency: { keep_hours: 24, store_bytes: 268435456, answer_bytes: 4194304 },
    watch: false,
    metrics: { account_labels: false },
    log: { level: 'info' },
    access_log: { enabled: false, sample_percent: 100, rotate_bytes: 104857600, keep: 10 },
    call_log: {
      enabled: true,
      keep_hours: 72,
      keep_bytes: 1_073_741_824,
      contents: 'none',
      contents_keep_hours: 24,
      contents_keep_bytes: 268_435_456,
      contents_body_bytes: 65_536,
    },
    drain_timeout_ms: 30000,
  });
  t.end();
});

void t.test('the settings are frozen to the bottom', (t) => {
  const { settings } = worldOf(t, {}).load();
  const walk = (value: unknown): boolean =>
    typeof value !== 'object' ||
    value === null ||
    (Object.isFrozen(value) && Object.values(value).every(walk));
  t.ok(walk(settings));
  t.end();
});

void t.test('a file in the working directory is found', (t) => {
  const world = worldOf(t, { 'tollgate.yaml': SOUND_YAML });
  const { settings, source, demo } = world.load();
  t.equal(source, join(world.folder, 'tollgate.yaml'));
  t.equal(demo, false);
  t.strictSame(settings.plans, [
    { id: 'p1', requests_per_minute: 60, calls_per_day: 1000, models: ['*'], models_limits: [] },
  ]);
  t.end();
});

void t.test('a price left out is zero', (t) => {
  const world = worldOf(t, { 'tollgate.yaml': SOUND_YAML.replace(/ {4}price.*\n/, '') });
  t.strictSame(world.load().settings.models[0]?.price, { input: '0', output: '0' });
  t.end();
});

void t.test('command line before environment before file before default', (t) => {
  const names = [
    ['TOLLGATE_HOST', '10.0.0.2', 'listen', 'host'],
    ['TOLLGATE_PORT', '1002', 'listen', 'port'],
    ['TOLLGATE_ADMIN_HOST', '10.0.0.3', 'admin', 'host'],
    ['TOLLGATE_ADMIN_PORT', '1003', 'admin', 'port'],
  ] as const;
  const file = 'listen: { host: 10.0.0.1, port: 1001 }\nadmin: { host: 10.0.0.4, port: 1004 }\n';
  const world = worldOf(t, { 'tollgate.yaml': `${SOUND_YAML}${file}` });
  t.same(world.load().settings.listen, { host: '10.0.0.1', port: 1001, listeners: 1 });
  t.same(world.load().settings.admin, { host: '10.0.0.4', port: 1004, hosts: [] });
  for (const [name, value, section, setting] of names) {
    const { settings } = world.load({}, { [name]: value });
    t.equal(String((settings[section] as Record<string, unknown>)[setting]), value, name);
    const empty = world.load({}, { [name]: '' }).settings;
    t.same(empty, world.load().settings, `${name} empty counts as not set`);
  }
  const environment = Object.fromEntries(names.map(([name, value]) => [name, value]));
  const { settings } = world.load({ host: '::1', port: 0, adminPort: 9 }, environment);
  t.same(settings.listen, { host: '::1', port: 0, listeners: 1 });
  t.same(settings.admin, { host: '10.0.0.3', port: 9, hosts: [] });
  t.end();
});

void t.test('each variable alone sets its setting, also in a section that the file leaves out', (t) => {
  const values: Record<string, string> = {
    TOLLGATE_HOST: '10.0.0.2',
    TOLLGATE_PORT: '1002',
    TOLLGATE_ADMIN_HOST: '10.0.0.3',
    TOLLGATE_ADMIN_PORT: '1003',
    TOLLGATE_ADMIN_HOSTS: 'console.example',
    TOLLGATE_DATA: '/books',
    TOLLGATE_SHARING_URL: 'redis://valkey:6379/0',
  };
  const pathsOf = (declaration: Declaration, path: string[]): [string, string[]][] => [
    ...(declaration['x-environment'] === undefined
      ? []
      : [[declaration['x-environment'], path] satisfies [string, string[]]]),
    ...Object.entries(declaration.properties ?? {}).flatMap(([name, inner]) =>
      pathsOf(inner, [...path, name]),
    ),
  ];
  const paths = pathsOf(settingsDeclaration, []);
  t.same(paths.map(([name]) => name).sort(), Object.keys(values).sort(), 'all variables of the schema');
  for (const files of [{ 'tollgate.yaml': SOUND_YAML }, {}]) {
    const world = worldOf(t, files);
    for (const [name, path] of paths) {
      const { settings, inForce } = world.load({}, { [name]: values[name]! });
      const found = path.reduce<unknown>((at, part) => (at as Record<string, unknown>)[part], settings);
      t.equal(String(found), values[name], name);
      t.equal(inForce.find(({ setting }) => setting === path.join('.'))?.origin, name);
    }
  }
  const wrong = worldOf(t, { 'tollgate.yaml': SOUND_YAML }).faults(
    {},
    {
      TOLLGATE_SHARING_URL: 'redis://me:sesame@valkey:6379/0',
    },
  );
  t.match(
    wrong,
    [/^TOLLGATE_SHARING_URL: sharing\.url: got "redis:\/\/\(secret\)@valkey/],
    'without the password',
  );
  t.end();
});

void t.test('a list from the environment: words between commas', (t) => {
  const file = 'admin: { hosts: [one.example, "*.two.example", "[fd00::1]", "*"] }\n';
  const world = worldOf(t, { 'tollgate.yaml': `${SOUND_YAML}${file}` });
  const hostsUnder = (text: string) => world.load({}, { TOLLGATE_ADMIN_HOSTS: text }).settings.admin.hosts;
  t.same(hostsUnder(''), ['one.example', '*.two.example', '[fd00::1]', '*']);
  t.same(hostsUnder('gateway'), ['gateway']);
  t.same(hostsUnder(' gateway ,, *.svc.local,10.0.0.1, '), ['gateway', '*.svc.local', '10.0.0.1']);
  t.same(hostsUnder(','), []);
  const want = 'want a host name or address without scheme and port, such as gateway.example or [fd00::1]';
  const faulty = ['http://a', 'a:8081', 'a b', 'a*', '*a', '*.', 'fd00::1', 'a/b', 'a@b'];
  t.same(
    world.faults({}, { TOLLGATE_ADMIN_HOSTS: `ok,${faulty.join(',')}` }),
    faulty.map((name, at) => `TOLLGATE_ADMIN_HOSTS: admin.hosts[${at + 1}]: got "${name}", ${want}`),
  );
  t.same(world.faults({}, { TOLLGATE_ADMIN_HOSTS: Array(101).fill('a').join(',') }), [
    'TOLLGATE_ADMIN_HOSTS: admin.hosts: got 101 entries, want at most 100',
  ]);
  t.end();
});

void t.test('a fault in an override names the override', (t) => {
  const world = worldOf(t, { 'tollgate.yaml': SOUND_YAML });
  t.same(world.faults({ host: 'a b' }, { TOLLGATE_PORT: '-1', TOLLGATE_ADMIN_PORT: '70000' }), [
    '--host: listen.host: got "a b", want an address or a host name such as 127.0.0.1, 0.0.0.0 or :: (without brackets)',
    'TOLLGATE_PORT: listen.port: got "-1" (a string), want a whole number from 0 to 65535',
    'TOLLGATE_ADMIN_PORT: admin.port: got 70000, want a whole number from 0 to 65535',
  ]);
  t.end();
});

void t.test('data: relative to the file, elsewhere to the working directory', (t) => {
  const world = worldOf(t, { 'tollgate.yaml': `${SOUND_YAML}data: books\n` });
  const elsewhere = worldOf(t, {});
  const config = join(world.folder, 'tollgate.yaml');
  t.equal(elsewhere.load({ config }).settings.data, join(world.folder, 'books'));
  t.equal(elsewhere.load({}, { TOLLGATE_CONFIG: config }).settings.data, join(world.folder, 'books'));
  t.equal(elsewhere.load({ config, data: 'here' }).settings.data, join(elsewhere.folder, 'here'));
  t.equal(
    elsewhere.load({ config }, { TOLLGATE_DATA: 'there' }).settings.data,
    join(elsewhere.folder, 'there'),
  );
  t.equal(elsewhere.load({ config, data: '/abs' }).settings.data, '/abs');
  t.end();
});

void t.test('a file that was named must be there', (t) => {
  const world = worldOf(t, { 'tollgate.yaml': SOUND_YAML });
  const place = join(world.folder, 'other.yaml');
  const fault = `other.yaml: cannot be read: ENOENT: no such file or directory, open '${place}'`;
  t.same(world.faults({ config: 'other.yaml' }), [fault]);
  t.same(world.faults({}, { TOLLGATE_CONFIG: 'other.yaml' }), [fault]);
  t.equal(world.load({}, { TOLLGATE_CONFIG: '' }).demo, false);
  t.end();
});

void t.test('keys: from a variable or a file, into key', (t) => {
  const yaml = SOUND_YAML.replace('url: "echo:"', 'url: "http://h/v1", KEY');
  const world = worldOf(t, {
    'variable.yaml': yaml.replace('KEY', 'key: "${SECRET}"'),
    'file.yaml': yaml.replace('KEY', 'key_file: k.txt'),
    'k.txt': 'sk-from-file\n',
  });
  const upstreamOf = (config: string, environment = {}) =>
    world.load({ config }, environment).settings.models[0]?.upstreams[0];
  t.equal(upstreamOf('variable.yaml', { SECRET: 'sk-from-variable' })?.key, 'sk-from-variable');
  t.equal(upstreamOf('file.yaml')?.key, 'sk-from-file');
  t.equal(upstreamOf('file.yaml')?.key_file, join(world.folder, 'k.txt'));
  t.end();
});

void t.test('certificates: as they are or from a file, into ca', (t) => {
  const [certificate = ''] = rootCertificates;
  const yaml = SOUND_YAML.replace('url: "echo:"', 'url: "https://h/v1", CA');
  const world = worldOf(t, {
    'inline.yaml': yaml.replace('CA', `ca: ${JSON.stringify(certificate)}`),
    'file.yaml': yaml.replace('CA', 'ca_file: ca.pem'),
    'both.yaml': yaml.replace('CA', `ca_file: ca.pem, ca: ${JSON.stringify(certificate)}`),
    'none.yaml': yaml.replace('CA', 'ca_file: none.pem'),
    'ca.pem': `${certificate}\n`,
  });
  const upstreamOf = (config: string) => world.load({ config }).settings.models[0]?.upstreams[0];
  t.equal(upstreamOf('inline.yaml')?.ca, certificate);
  t.match(upstreamOf('file.yaml'), { ca: `${certificate}\n`, ca_file: join(world.folder, 'ca.pem') });
  t.match(world.faults({ config: 'both.yaml' }), [/ca_file: given besides ca, want one of the two$/]);
  t.match(world.faults({ config: 'none.yaml' }), [/ca_file: cannot be read: ENOENT/]);
  t.end();
});

void t.test('a command that needs no secrets loads without them', (t) => {
  const upstreams = `[{ url: "http://h/v1", key: "\${NO}", headers: { X-Api-Key: "\${NO}", X-Team: a } },
      { url: "http://h/v1", key_file: none.txt }]`;
  const world = worldOf(t, { 'tollgate.yaml': SOUND_YAML.replace('[{ url: "echo:" }]', upstreams) });
  const [first, second] = world.load({ secrets: false }).settings.models[0]?.upstreams ?? [];
  t.equal(first?.key, undefined);
  t.strictSame(first?.headers, { 'X-Team': 'a' });
  t.equal(second?.key, undefined);
  t.equal(world.faults().length, 3);
  t.end();
});

void t.test('variables go into any text', (t) => {
  const yaml = `${SOUND_YAML}data: "\${BASE}/$\${x}"\ndurability: "\${HOW}"\n`;
  const { settings } = worldOf(t, { 'tollgate.yaml': yaml }).load({}, { BASE: '/srv', HOW: 'interval' });
  t.equal(settings.data, '/srv/${x}');
  t.equal(settings.durability, 'interval');
  t.end();
});

void t.test('an alias shares a block', (t) => {
  const yaml = SOUND_YAML.replace('{ input', '&price { input').replace(
    'plans:',
    '  - { id: m2, price: *price, upstreams: [{ url: "echo:" }] }\nplans:',
  );
  const { settings } = worldOf(t, { 'tollgate.yaml': yaml }).load();
  t.same(settings.models[1]?.price, { input: '1', output: '2' });
  t.end();
});

const pair = selfSigned();
const VARIABLES = { PASSPHRASE: 'pw', SECRET: 'client', FIRST_KEY: 'sk-1', SECOND_KEY: 'sk-2' };
const limited = (key: string, more: object): object => ({
  url: 'http://h/v1',
  key: `\${${key}}`,
  requests_per_minute: 5,
  ...more,
});

/** Settings of which many are checked against others. */
const RELATED = {
  listen: {
    port: 8080,
    listeners: 2,
    tls: { cert_file: 'cert.pem', key_file: 'key.pem', passphrase: '${PASSPHRASE}' },
  },
  admin: {
    port: 8081,
    oidc: {
      issuer: 'https://login.example',
      client_id: 'tollgate',
      client_secret: '${SECRET}',
      redirect_url: 'https://tollgate.example/admin/session/oidc/callback',
      roles: { admins: 'admin' },
    },
  },
  sharing: { url: 'redis://v', on_authority_loss: 'equal_share', hosts: 2, node_expiry_seconds: 900 },
  models: [
    {
      id: 'a',
      aliases: ['x', 'y'],
      price: { input: '1', output: '2', long: [5, 9].map((above) => ({ above, input: '1', output: '2' })) },
      serves: ['chat', 'embeddings'],
      fallbacks: ['b'],
      upstreams: [
        limited('FIRST_KEY', { speaks: ['messages'], headers: { 'x-key': '${FIRST_KEY}' } }),
        limited('SECOND_KEY', { requests_per_minute: 6, quota_scope: 'model', total_timeout_ms: 800_000 }),
        { provider: 'azure', url: 'https://a.example', key: '${SECOND_KEY}', api_version: 'v1' },
      ],
    },
    {
      id: 'b',
      serves: ['chat', 'embeddings'],
      upstreams: [limited('SECOND_KEY', { requests_per_minute: 7, quota_scope: 'model', model: 'z' })],
    },
    {
      id: 'c',
      upstreams: [
        { provider: 'vertex', region: 'us', project: 'p', betas: ['a'] },
        { provider: 'bedrock', region: 'us-east-1', profile: 'x' },
        { provider: 'anthropic', key: '${FIRST_KEY}', headers: { 'x-b': 'c' }, drop_unsupported: true },
        { url: 'echo:' },
      ],
    },
  ],
  plans: [
    {
      id: 'p',
      requests_per_minute: 1,
      calls_per_day: 1,
      models: ['a', 'c*'],
      models_limits: [{ model: 'a', calls_per_day: 1 }],
    },
  ],
  limits: { calls_in_flight: 2 },
  notify: { url: 'https://h/x', secret_file: 'secret', at: [80] },
  usage_log: { path: 'usage' },
  access_log: { path: 'access' },
};

void t.test('no further error follows from one', { skip: pair === undefined && 'no openssl' }, (t) => {
  const key = createPrivateKey(pair!.key);
  const encrypted = { type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'pw' } as const;
  const world = worldOf(t, {
    'cert.pem': pair!.certificate,
    'key.pem': key.export(encrypted),
    secret: `whsec_${Buffer.alloc(32, 7).toString('base64')}`,
  });
  const settings = structuredClone(RELATED);
  const faults = (environment: Record<string, string>): readonly string[] =>
    world.faults({ config: 'tollgate.yaml', text: JSON.stringify(settings) }, environment);
  t.throws(() => faults(VARIABLES), /was not refused/, 'sound');
  const visit = (values: Record<string, unknown>, path: string): void => {
    for (const [name, sound] of Object.entries(values)) {
      const childPath = Array.isArray(values) ? `${path}[${name}]` : path === '' ? name : `${path}.${name}`;
      for (const wrong of [-0.5, [null]]) {
        values[name] = wrong;
        const lines = faults(VARIABLES);
        const isThere = (line: string): boolean => line.startsWith(`tollgate.yaml:1: ${childPath}`);
        t.ok(lines.length === 1 && isThere(lines[0]!), `${childPath}: ${lines.join('; ')}`);
        values[name] = sound;
      }
      if (typeof sound === 'object') visit(sound as Record<string, unknown>, childPath);
    }
  };
  visit(settings, '');
  for (const odd of [{}, { FIRST_KEY: 'a b', SECOND_KEY: 'a c', SECRET: 'a b', PASSPHRASE: 'pw' }])
    for (const line of faults(odd))
      t.match(line, /: the environment variable [A-Z_]+ is not set$|: got a value from the environment /);
  t.end();
});
