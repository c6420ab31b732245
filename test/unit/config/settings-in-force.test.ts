/** What an operator is shown as the settings: every one, with its origin, and no secret. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { loadSettings } from '#src/config/load.js';
import { adoptInForce, type SettingInForce } from '#src/config/settings-in-force.js';

const FILE = `models:
  - id: m-1
    price: { input: "1", output: "2" }
    max_output_tokens: 10
    upstreams:
      - url: https://one.example/v1
        key: \${PROVIDER_KEY}
        headers:
          x-team: blue
          x-api-key: \${PROVIDER_KEY}
plans:
  - { id: free, requests_per_minute: 5, calls_per_day: 6, models: ["m-1", "m-*"] }
limits:
  accounts: 100
`;

function load(
  folder: string,
  environment: Readonly<Record<string, string>> = {},
  text = FILE,
): Map<string, SettingInForce> {
  writeFileSync(join(folder, 'tollgate.yaml'), text);
  const { inForce } = loadSettings(
    { port: 9_000 },
    { environment: { PROVIDER_KEY: 'sk-very-secret', ...environment }, workingDirectory: folder },
  );
  const entries = new Map(inForce.map((entry) => [entry.setting, entry]));
  t.equal(entries.size, inForce.length, 'each setting once');
  return entries;
}

void t.test('values and where they came from', (t) => {
  const entries = load(t.testdir(), { TOLLGATE_ADMIN_PORT: '9001' });
  const expected: readonly [string, string, string, boolean][] = [
    ['listen.port', '9000', '--port', false],
    ['admin.port', '9001', 'TOLLGATE_ADMIN_PORT', false],
    ['admin.host', '127.0.0.1', 'default', false],
    ['limits.accounts', '100', 'tollgate.yaml:14', false],
    ['limits.body_bytes', '10485760', 'default', true],
    ['models.m-1.price.input', '1', 'tollgate.yaml:3', true],
    ['models.m-1.upstreams[0].url', 'https://one.example/v1', 'tollgate.yaml:6', true],
    ['models.m-1.upstreams[0].weight', '1', 'default', true],
    ['models.m-1.upstreams[0].headers.x-team', '(secret)', 'tollgate.yaml:9', true],
    ['plans.free.models', 'm-1, m-*', 'tollgate.yaml:12', true],
  ];
  for (const [setting, value, origin, live] of expected) {
    t.same(entries.get(setting), { setting, value, origin, live }, setting);
  }
  t.end();
});

void t.test('secrets are named and not shown', (t) => {
  const entries = load(t.testdir());
  t.match(entries.get('models.m-1.upstreams[0].key'), { value: '(secret)', origin: 'tollgate.yaml:7' });
  t.match(entries.get('models.m-1.upstreams[0].headers.x-api-key'), { value: '(secret)' });
  t.notMatch(JSON.stringify([...entries.values()]), 'very-secret');
  const named = FILE.replace('headers:', 'member_names: { seed: random_seed }\n        headers:');
  const names = load(t.testdir(), {}, named);
  t.match(names.get('models.m-1.upstreams[0].member_names.seed'), { value: 'random_seed' });
  t.end();
});

void t.test('without a file everything is the demo’s or a default', (t) => {
  const { inForce } = loadSettings({}, { environment: {}, workingDirectory: t.testdir() });
  t.same([...new Set(inForce.map(({ origin }) => origin))].sort(), ['default', 'demo']);
  t.end();
});

void t.test('a reload takes over what it can change', (t) => {
  const entry = (setting: string, value: string, live: boolean): SettingInForce => ({
    setting,
    value,
    origin: 'x',
    live,
  });
  const before = [entry('listen.port', '1', false), entry('models.a.price', '1', true)];
  const after = [entry('listen.port', '2', false), entry('models.b.price', '2', true)];
  t.same(adoptInForce(before, after, 'reload'), [before[0], after[1]]);
  const newer = entry('limits.newer', '1', true);
  t.same(adoptInForce(before, [...after, newer], 'reload'), [before[0], after[1]], 'of a newer version');
  t.same(adoptInForce(before, [...after, newer], 'replacement'), [...before, newer]);
  t.end();
});
