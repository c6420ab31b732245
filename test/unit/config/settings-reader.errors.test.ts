/** Every kind of fault with its exact message; all of them at once; and that no message shows a secret. */
import t from 'tap';
import { SettingsReader } from '#src/config/settings-reader.js';
import { SOUND_YAML, worldOf, type World } from './support.js';
import type { Test } from 'tap';

const fileOf = (t: Test, yaml: string): World => worldOf(t, { 'tollgate.yaml': yaml });
const PRICE_WANT =
  'want a decimal string such as "0.15" (at most six decimals, up to 10000, and in quotes: YAML would round a bare number)';
const KEY_WANT =
  'want a reference to an environment variable such as "${OPENAI_API_KEY}" (visible characters, no spaces), or key_file';
const NAME_WANT = 'want a name of 1 to 128 visible ASCII characters without *';
const HOST_HINT = '(no host name may end with a dot and a number, such as v1.5)';
const URL_WANT = `want an http:// or https:// address without user and password, or echo: ${HOST_HINT}`;

/** [what is replaced in the sound file, by what, the one line that is told] */
const REPLACEMENTS: readonly (readonly [string, string, string])[] = [
  // Types.
  ['input: "1"', 'input: 0.15', `3: models[0].price.input: got 0.15 (a number), ${PRICE_WANT}`],
  ['"echo:"', 'true', `4: models[0].upstreams[0].url: got true (a boolean), ${URL_WANT}`],
  ['id: m1', 'id:', `2: models[0].id: got nothing, ${NAME_WANT}`],
  ['id: m1', 'id: [a]', `2: models[0].id: got a list, ${NAME_WANT}`],
  [
    'per_minute: 60',
    'per_minute: "60"',
    '6: plans[0].requests_per_minute: got "60" (a string), want a whole number of requests from 1 to 1000000',
  ],
  [
    '{ input: "1", output: "2" }',
    '"1"',
    '3: models[0].price: got "1" (a string), want a map with input and output',
  ],
  ['[{ url: "echo:" }]', '{}', '4: models[0].upstreams: got a map, want a list of at least one upstream'],
  ['[{ url: "echo:" }]', '[null]', '4: models[0].upstreams[0]: got nothing, want a map of settings'],
  // Bounds, each on its outer side; the inner side is tested below.
  [
    'per_minute: 60',
    'per_minute: 0',
    '6: plans[0].requests_per_minute: got 0, want a whole number of requests from 1 to 1000000',
  ],
  [
    'per_minute: 60',
    'per_minute: 1000001',
    '6: plans[0].requests_per_minute: got 1000001, want a whole number of requests from 1 to 1000000',
  ],
  [
    'per_minute: 60',
    'per_minute: 1.5',
    '6: plans[0].requests_per_minute: got 1.5, want a whole number of requests from 1 to 1000000',
  ],
  [
    'per_minute: 60',
    'per_minute: .nan',
    '6: plans[0].requests_per_minute: got NaN, want a whole number of requests from 1 to 1000000',
  ],
  [
    'per_day: 1000',
    'per_day: 1440000001',
    '6: plans[0].calls_per_day: got 1440000001, want a whole number of calls from 1 to 1440000000',
  ],
  [
    '[{ url: "echo:" }]',
    '[]',
    '4: models[0].upstreams: got an empty list, want a list of at least one upstream',
  ],
  ['id: m1', `id: ${'m'.repeat(129)}`, `2: models[0].id: got "${'m'.repeat(80)}…", ${NAME_WANT}`],
  // Texts.
  ['id: m1', 'id: a b', `2: models[0].id: got "a b", ${NAME_WANT}`],
  ['id: m1', 'id: "*"', `2: models[0].id: got "*", ${NAME_WANT}`],
  ['"1"', '"1.0000001"', `3: models[0].price.input: got "1.0000001", ${PRICE_WANT}`],
  ['"1"', '"-1"', `3: models[0].price.input: got "-1", ${PRICE_WANT}`],
  ['"1"', '"10000.000001"', `3: models[0].price.input: got "10000.000001", ${PRICE_WANT}`],
  ['"1"', '""', `3: models[0].price.input: got "", ${PRICE_WANT}`],
  [
    'output: "2"',
    'output: "2", long: [{ above: 5, input: "1", output: "-2" }]',
    `3: models[0].price.long[0].output: got "-2", ${PRICE_WANT}`,
  ],
  [
    'output: "2"',
    'output: "2", long: [{ above: 5, input: "1" }]',
    `3: models[0].price.long[0].output: missing, ${PRICE_WANT}`,
  ],
  [
    'output: "2"',
    'output: "2", long: [{ input: "1", output: "2" }]',
    '3: models[0].price.long[0].above: missing, want a whole number of tokens from 1 to 10000000',
  ],
  [
    'output: "2"',
    'output: "2", long: [{ above: 5, input: "1", output: "2" }, { above: 5, input: "1", output: "2" }]',
    '3: models[0].price.long[1].above: got 5, want more than 5, which an entry before it has',
  ],
  [
    'output: "2"',
    `output: "2", long: [${'{ above: 5, input: "1", output: "2" },'.repeat(5)}]`,
    '3: models[0].price.long: got 5 entries, want at most 4',
  ],
  [
    'output: "2"',
    'output: "2", long: []',
    '3: models[0].price.long: got an empty list, want a list of one to four maps with above, input and output',
  ],
  ['"echo:"', '"ftp://h"', `4: models[0].upstreams[0].url: got "ftp://h", ${URL_WANT}`],
  ['"echo:"', '"api.openai.com/v1"', `4: models[0].upstreams[0].url: got "api.openai.com/v1", ${URL_WANT}`],
  ...['nomic-embed-v1.5', 'nomic-embed-v1.5:8080', 'h.0x1f', 'h.5.'].map(
    (host) =>
      [
        '"echo:"',
        `"http://${host}/v1"`,
        `4: models[0].upstreams[0].url: got "http://${host}/v1", ${URL_WANT}`,
      ] as const,
  ),
  // Missing and unknown.
  ['  - id: m1\n    price', '  - price', `2: models[0].id: missing, ${NAME_WANT}`],
  [', output: "2"', '', `3: models[0].price.output: missing, ${PRICE_WANT}`],
  [
    '    upstreams: [{ url: "echo:" }]\n',
    '',
    '2: models[0].upstreams: missing, want a list of at least one upstream',
  ],
  [
    ', calls_per_day: 1000',
    '',
    '6: plans[0].calls_per_day: missing, want a whole number of calls from 1 to 1440000000',
  ],
  ['price:', 'prise:', '3: models[0].prise: unknown setting, the nearest known one is models[0].price'],
  [
    ', output: "2"',
    ',50, output: "2"',
    '3: models[0].price.50: no setting has a number as its name; within { } a comma ends a value, so write a decimal with a point and in quotes, such as "1.50"',
  ],
  // A name that is known elsewhere: each place is told, and the top level by these words.
  [
    'plans:',
    'port: 8080\nplans:',
    '5: port: unknown setting, the nearest known ones are listen.port, admin.port',
  ],
  [
    ', calls_per_day: 1000',
    ', calls_per_day: 1000, low_balance: clamp',
    '6: plans[0].low_balance: unknown setting, the nearest known ones are low_balance at the top level, notify.low_balance',
  ],
  [
    ', calls_per_day: 1000',
    ', calls_per_day: 1000, durabilty: commit',
    '6: plans[0].durabilty: unknown setting, the nearest known one is durability at the top level',
  ],
  [
    'plans:',
    'base_url: "http://a"\nplans:',
    '5: base_url: unknown setting, the nearest known ones are sharing.url, models[].upstreams[].url, notify.url',
  ],
  ['plans:', '__proto__: { a: 1 }\nplans:', '5: __proto__: unknown setting, the nearest known one is notify'],
  // A name that is near nothing: one of its own section, and none of some other section.
  [
    'plans:',
    'idempotency: { lifetime: 60 }\nplans:',
    '5: idempotency.lifetime: unknown setting, the nearest known one is idempotency.store_bytes',
  ],
  // A name that another section has, whose meaning has another name in this one.
  [
    'plans:',
    'idempotency: { ttl_seconds: 60 }\nplans:',
    '5: idempotency.ttl_seconds: unknown setting, the nearest known one is idempotency.keep_hours',
  ],
  [
    '{ url:',
    '{ wieght: 2, url:',
    '4: models[0].upstreams[0].wieght: unknown setting, the nearest known one is models[0].upstreams[0].weight',
  ],
  ...[
    ['rpm: 60', 'requests_per_minute'],
    ['RPM: 60', 'requests_per_minute'],
    ['rpm_limit: 60', 'requests_per_minute'],
    ['requests-per-min: 60', 'requests_per_minute'],
    ['rpd: 60', 'calls_per_day'],
    ['requests_per_day: 60', 'calls_per_day'],
  ].map(
    ([written = '', meant]) =>
      [
        ', calls_per_day: 1000',
        `, calls_per_day: 1000, ${written}`,
        `6: plans[0].${written.split(':')[0]}: unknown setting, the nearest known one is plans[0].${meant}`,
      ] as const,
  ),
  // Variables.
  [
    '"echo:"',
    '"http://${HOST}/v1"',
    '4: models[0].upstreams[0].url: the environment variable HOST is not set',
  ],
  [
    '"echo:"',
    '"http://${a-b}/"',
    '4: models[0].upstreams[0].url: got "${a-b}", want the name of a variable in it, or $${ for a plain ${',
  ],
  [
    '"echo:"',
    '"${SECRET}"',
    `4: models[0].upstreams[0].url: got a value from the environment (not shown), ${URL_WANT}`,
  ],
  // Secrets.
  [
    '"echo:"',
    '"echo:", key: sk-inline',
    `4: models[0].upstreams[0].key: got a secret written inline, ${KEY_WANT}`,
  ],
  [
    '"echo:"',
    '"echo:", key: 123456',
    `4: models[0].upstreams[0].key: got a value that is not shown, ${KEY_WANT}`,
  ],
  [
    '"echo:"',
    '"echo:", key: "${SPACED}"',
    `4: models[0].upstreams[0].key: got a value from the environment (not shown), ${KEY_WANT}`,
  ],
  [
    '"echo:"',
    '"echo:", key: "${EMPTY}"',
    `4: models[0].upstreams[0].key: got a value from the environment (not shown), ${KEY_WANT}`,
  ],
  [
    '"echo:"',
    '"echo:", key: "${SECRET}", key_file: k.txt',
    '4: models[0].upstreams[0].key_file: given besides key, want one of the two',
  ],
  [
    '"echo:"',
    '"echo:", key_file: bad.txt',
    '4: models[0].upstreams[0].key_file: the file holds no key, want one line of visible characters',
  ],
  ['"echo:"', '"http://u:p4ss@h/"', `4: models[0].upstreams[0].url: got "http://(secret)@h/", ${URL_WANT}`],
  [
    '"echo:"',
    '"echo:", headers: { Authorization: Bearer x }',
    '4: models[0].upstreams[0].headers.Authorization: got a secret written inline, want a reference such as "${NAME}"',
  ],
  [
    '"echo:"',
    '"echo:", headers: { api-key: 12 }',
    '4: models[0].upstreams[0].headers.api-key: got a value that is not shown, want printable ASCII text',
  ],
  [
    '"echo:"',
    '"echo:", weight: 0',
    '4: models[0].upstreams[0].weight: got 0, want a whole number from 1 to 1000',
  ],
  [
    '"echo:"',
    '"echo:", connections_max: 0',
    '4: models[0].upstreams[0].connections_max: got 0, want a whole number of connections from 1 to 60000',
  ],
  [
    '"echo:"',
    '"echo:", breaker_failures: -1',
    '4: models[0].upstreams[0].breaker_failures: got -1, want a whole number of failures from 0 to 10000',
  ],
  // Certificates.
  [
    '"echo:"',
    '"echo:", ca: nonsense',
    '4: models[0].upstreams[0].ca: got "nonsense", want the text of one or more certificates in PEM form',
  ],
  [
    '"echo:"',
    '"echo:", ca_file: bad.txt',
    '4: models[0].upstreams[0].ca_file: the file holds no certificate, want one or more in PEM form',
  ],
  // Headers.
  [
    '"echo:"',
    '"echo:", headers: { "a b": x }',
    '4: models[0].upstreams[0].headers.a b: a name that cannot be set here',
  ],
  [
    '"echo:"',
    '"echo:", headers: { Content-Length: "3" }',
    '4: models[0].upstreams[0].headers.Content-Length: a name that cannot be set here',
  ],
  [
    '"echo:"',
    '"echo:", headers: { x: "a\\nb" }',
    '4: models[0].upstreams[0].headers.x: got "a\\nb", want printable ASCII text',
  ],
  [
    '"echo:"',
    '"echo:", headers: { x: 1 }',
    '4: models[0].upstreams[0].headers.x: got 1 (a number), want printable ASCII text',
  ],
  // Between settings.
  [
    'plans:',
    '  - { id: m1, upstreams: [{ url: "echo:" }] }\nplans:',
    '5: models[1].id: got "m1", which is already the id of models[0]',
  ],
  [
    'plans:',
    'plans:\n  - { id: p1, requests_per_minute: 1, calls_per_day: 1 }',
    '7: plans[1].id: got "p1", which is already the id of plans[0]',
  ],
  [
    'plans:',
    '  - { id: m2, aliases: [fast], fallbacks: [m1, m22], upstreams: [{ url: "echo:" }] }\nplans:',
    '5: models[1].fallbacks[1]: got "m22", which names no model, the nearest known one is m2',
  ],
  [
    'plans:',
    '  - { id: m2, fallbacks: [m2], upstreams: [{ url: "echo:" }] }\nplans:',
    '5: models[1].fallbacks[0]: got "m2", which is the model itself',
  ],
  [
    'plans:',
    '  - { id: m2, fallbacks: [m1, m1], upstreams: [{ url: "echo:" }] }\nplans:',
    '5: models[1].fallbacks[1]: got "m1", which is in the list already',
  ],
  [
    'per_day: 1000',
    'per_day: 1, models: [m2]',
    '6: plans[0].models[0]: got "m2", which names no model, the nearest known one is m1',
  ],
  [
    'per_day: 1000',
    'per_day: 1, models: [m1, "x*"]',
    '6: plans[0].models[1]: got "x*", which names no model, the nearest known one is m1',
  ],
  [
    'plans:',
    '  - { id: m2, aliases: [fast, fast], upstreams: [{ url: "echo:" }] }\nplans:',
    '5: models[1].aliases[1]: got "fast", which is already an alias of models[1]',
  ],
  [
    'plans:',
    '  - id: m2\n    upstreams: [{ url: "echo:" }]\n    aliases:\n      - m1\nplans:',
    '8: models[1].aliases[0]: got "m1", which is already the id of models[0]',
  ],
  [
    'plans:',
    '  - { id: m2, aliases: [a], upstreams: [{ url: "echo:" }] }\n  - { id: m3, aliases: [a], upstreams: [{ url: "echo:" }] }\nplans:',
    '6: models[2].aliases[0]: got "a", which is already an alias of models[1]',
  ],
  ['id: m1', 'id: m1\n    aliases: ["a b"]', `3: models[0].aliases[0]: got "a b", ${NAME_WANT}`],
  [
    'plans:\n  - { id: p1, requests_per_minute: 60, calls_per_day: 1000',
    '  - { id: m2, aliases: [fast], upstreams: [{ url: "echo:" }] }\nplans:\n  - { id: p1, requests_per_minute: 60, calls_per_day: 1000, models: [fast]',
    '7: plans[0].models[0]: got "fast", which is an alias, want the id of its model: m2',
  ],
  [
    'per_day: 1000',
    'per_day: 1000, max_tokens: 0',
    '6: plans[0].max_tokens: got 0, want a whole number of tokens from 1 to 10000000',
  ],
  [
    'per_day: 1000',
    'per_day: 1000, calls_in_flight: 0',
    '6: plans[0].calls_in_flight: got 0, want a whole number of calls from 1 to 1048576',
  ],
  [
    'per_day: 1000',
    'per_day: 1000, body_bytes: 1023',
    '6: plans[0].body_bytes: got 1023, want a whole number of bytes from 1024 to 268435456',
  ],
  [
    'per_day: 1000',
    'per_day: 1, models_limits: [{ model: m1, calls_per_day: 0 }]',
    '6: plans[0].models_limits[0].calls_per_day: got 0, want a whole number of calls from 1 to 1440000000',
  ],
  [
    'per_day: 1000',
    'per_day: 1, models_limits: [{ model: m1, call_per_day: 1 }]',
    '6: plans[0].models_limits[0].call_per_day: unknown setting, the nearest known one is plans[0].models_limits[0].calls_per_day',
  ],
  [
    'per_day: 1000',
    'per_day: 1, models_limits: [{ model: m1 }]',
    '6: plans[0].models_limits[0]: names no quota, want at least one besides model',
  ],
  [
    'plans:',
    'sharing: { url: "redis://v", on_authority_loss: equal_share, hosts: 0 }\nplans:',
    '5: sharing.hosts: got 0, want a whole number of hosts from 1 to 1000',
  ],
  [
    'per_day: 1000',
    'per_day: 1, models: []',
    '6: plans[0].models: got an empty list, want a list of at least one model',
  ],
  [
    'plans:',
    'notify: { url: "htps://hooks.example/T/B/secret" }\nplans:',
    '5: notify.url: got a value that is not shown, want an http:// or https:// address without user and password ' +
      HOST_HINT,
  ],
  [
    'plans:',
    'admin: { port: 8080 }\nplans:',
    '5: admin.port: got 8080, which is listen.port too, want another one',
  ],
  ['plans:', 'processes: 65\nplans:', '5: processes: got 65, want a whole number of processes from 1 to 64'],
  [
    'id: m1',
    'id: m1\n    ttl_seconds: 60',
    '3: models[0].ttl_seconds: unknown setting, the nearest known ones are models[].cache.ttl_seconds, cache.ttl_seconds',
  ],
  // Enumerations.
  ['plans:', 'low_balance: clmap\nplans:', '5: low_balance: got "clmap", want one of refuse, clamp'],
  ['plans:', 'durability: yes\nplans:', '5: durability: got "yes", want one of interval, commit'],
];

void t.test('each fault alone', (t) => {
  const environment = { SECRET: 'sk-very-secret', SPACED: 'sk-very secret', EMPTY: '' };
  for (const [from, to, line] of REPLACEMENTS) {
    t.ok(SOUND_YAML.includes(from), `${from} is in the sound file`);
    const yaml = SOUND_YAML.replace(from, () => to);
    const world = worldOf(t, { 'tollgate.yaml': yaml, 'bad.txt': 'two words', 'k.txt': 'sk-x' });
    const faults = world.faults({}, environment);
    t.strictSame(faults, [`tollgate.yaml:${line}`], `${from} → ${to}`);
    t.notMatch(faults.join(), /very|inline\b.*sk-|two words|123456/);
  }
  t.end();
});

void t.test('headers that frame the message or belong to one hop cannot be set', (t) => {
  const names = `Host Connection Content-Length Content-Type Content-Encoding Transfer-Encoding Keep-Alive Upgrade TE Trailer
    Expect Proxy-Connection Proxy-Authorization Proxy-Authenticate HTTP2-Settings Accept-Encoding X-Request-Id`;
  for (const name of names.split(/\s+/)) {
    const yaml = SOUND_YAML.replace('"echo:"', `"echo:", headers: { ${name}: x }`);
    t.same(fileOf(t, yaml).faults(), [
      `tollgate.yaml:4: models[0].upstreams[0].headers.${name}: a name that cannot be set here`,
    ]);
  }
  t.end();
});

void t.test('the inner sides of the bounds pass', (t) => {
  const sound: [string, string][] = [
    ['per_minute: 60', 'per_minute: 1'],
    ['per_minute: 60', 'per_minute: 1000000'],
    ['per_day: 1000', 'per_day: 1440000000'],
    ['"1"', '"10000"'],
    ['"1"', '"0.000001"'],
    ['id: m1', `id: ${'m'.repeat(128)}`],
    ['plans:', 'listen: { port: 65535 }\nadmin: { port: 65534 }\nplans:'],
    ['plans:', 'listen: { port: 0 }\nadmin: { port: 0 }\nplans:'],
    ['"echo:"', '"https://h:8443/base/v1?api-version=1"'],
    ['per_day: 1000', 'per_day: 1, models: [m1]'],
    ['"echo:"', '"echo:", breaker_failures: 0, connections_max: 1, weight: 1'],
    ['"echo:"', '"echo:", breaker_failures: 10000, connections_max: 60000, weight: 1000'],
  ];
  for (const [from, to] of sound) {
    t.doesNotThrow(
      () =>
        fileOf(
          t,
          SOUND_YAML.replace(from, () => to),
        ).load(),
      to,
    );
  }
  t.end();
});

void t.test('all faults are told at once, in the order of the file', (t) => {
  const yaml = `workers: none
models:
  - price: { input: 1, output: "2" }
    upstreams:
      - url: nowhere
        key: sk-inline
plans:
  - id: p1
    requests_per_minute: 0
limits:
  body_byte: 1
`;
  const faults = fileOf(t, yaml).faults({}, { TOLLGATE_PORT: 'x' });
  t.same(
    faults.map((line) => line.slice(0, line.indexOf(': ', line.indexOf(': ') + 2))),
    [
      'TOLLGATE_PORT: listen.port',
      'tollgate.yaml:1: workers',
      'tollgate.yaml:3: models[0].id',
      'tollgate.yaml:3: models[0].price.input',
      'tollgate.yaml:5: models[0].upstreams[0].url',
      'tollgate.yaml:6: models[0].upstreams[0].key',
      'tollgate.yaml:8: plans[0].calls_per_day',
      'tollgate.yaml:9: plans[0].requests_per_minute',
      'tollgate.yaml:11: limits.body_byte',
    ],
  );
  t.end();
});

void t.test('a file that says nothing names what it must say', (t) => {
  const wants = [
    'tollgate.yaml:1: models: missing, want a list of at least one model',
    'tollgate.yaml:1: plans: missing, want a list of at least one plan',
  ];
  t.same(fileOf(t, '').faults(), wants);
  t.same(fileOf(t, '# nothing\n').faults(), wants);
  t.same(fileOf(t, '- a\n').faults(), ['tollgate.yaml:1: settings: got a list, want a map of settings']);
  t.same(fileOf(t, 'text\n').faults(), [
    'tollgate.yaml:1: settings: got "text" (a string), want a map of settings',
  ]);
  t.end();
});

void t.test('more entries than a list or map may have', (t) => {
  const models = Array.from(
    { length: 1001 },
    (_, index) => `  - { id: m${index}, upstreams: [{ url: "echo:" }] }`,
  );
  const yaml = `models:\n${models.join('\n')}\n${SOUND_YAML.slice(SOUND_YAML.indexOf('plans:'))}`;
  t.same(fileOf(t, yaml).faults(), ['tollgate.yaml:1: models: got 1001 entries, want at most 1000']);
  t.doesNotThrow(() => fileOf(t, yaml.replace(/.*m1000,.*\n/, '')).load());
  const headers = Array.from({ length: 65 }, (_, index) => `h${index}: x`).join(', ');
  const many = SOUND_YAML.replace('"echo:"', `"echo:", headers: { ${headers} }`);
  t.same(fileOf(t, many).faults(), [
    'tollgate.yaml:4: models[0].upstreams[0].headers: got 65 entries, want at most 64',
  ]);
  t.end();
});

void t.test('a list of a variable has the bounds of a list of the file', (t) => {
  const names = {
    type: 'array',
    minItems: 1,
    maxItems: 2,
    items: { type: 'string' },
    'x-want': 'a name',
  } as const;
  const root = { type: 'object', properties: { names: { ...names, 'x-environment': 'NAMES' } } } as const;
  for (const [text, error] of [
    ['a,b', undefined],
    [',', 'NAMES names got an empty list, want a name'],
    ['a,b,c', 'NAMES names got 3 entries, want at most 2'],
  ] as const) {
    const errors: string[] = [];
    const reader = new SettingsReader(root, {
      environment: { NAMES: text },
      optionOverrides: new Map(),
      secrets: true,
      report: (path, message, origin) => errors.push(`${origin} ${path.join('.')} ${message}`),
    });
    reader.read({});
    t.same(errors, error === undefined ? [] : [error], text);
  }
  t.end();
});
