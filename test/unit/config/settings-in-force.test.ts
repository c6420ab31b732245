/** What an operator is shown as the settings: every one, with its origin, and no secret. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import type { Declaration } from '#src/config/annotations.js';
import { loadSettings } from '#src/config/load.js';
import { type Settings, settingsDeclaration } from '#src/config/schema.js';
import {
  adoptInForce,
  adoptLive,
  adoptReplaced,
  differenceOf,
  isReplaceable,
  type SettingInForce,
  withDefaults,
} from '#src/config/settings-in-force.js';

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

/** The settings of the file that have a default. */
const WRITTEN = new Set(['price', 'max_output_tokens', 'models', 'limits', 'accounts', 'headers']);

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

void t.test('settings of a version that was installed while the supervisor runs', (t) => {
  const { settings } = loadSettings({}, { environment: {}, workingDirectory: t.testdir() });
  const { limits } = settings;
  const newer = {
    ...settings,
    limits: { ...limits, groups: 7, body_bytes: 2_000, newer: 1 },
    newer_section: { a: 1 },
  } as Settings;
  const live = { ...settings, limits: { ...limits, body_bytes: 2_000 } };
  t.same(adoptLive(settings, newer), live, 'those that run do not know them');
  t.same(adoptReplaced(settings, newer), newer, 'those that replace them do');
  t.same(adoptLive(newer, settings), {
    ...newer,
    limits: { ...newer.limits, body_bytes: limits.body_bytes },
  });
  const { applied, restartNeeded } = differenceOf(settings, newer, isReplaceable);
  t.same([...applied].sort(), ['limits.body_bytes', 'limits.groups', 'limits.newer', 'newer_section']);
  t.same(restartNeeded, []);
  t.same(differenceOf(settings, newer).applied, ['limits.body_bytes'], 'a plain reload does not change them');

  const older = { ...settings, limits: undefined } as unknown as Settings;
  t.same(adoptReplaced(older, settings), settings, 'a section that was not there');
  t.match(adoptLive(older, settings), { limits: { body_bytes: limits.body_bytes } });
  t.same(adoptReplaced(settings, older).limits, {});
  t.match(adoptLive(settings, older), { limits: { accounts: limits.accounts } });
  const odd = { ...settings, limits: 5 } as unknown as Settings;
  t.same(adoptReplaced(odd, settings), settings, 'a section that was a number');
  t.end();
});

void t.test('each setting with a default is completed, as a load fills it in', (t) => {
  const load = (text: string): Settings => {
    const folder = t.testdir({ 'tollgate.yaml': text });
    return loadSettings({ data: '/d' }, { environment: { PROVIDER_KEY: 'k' }, workingDirectory: folder })
      .settings;
  };
  const settings = load(FILE);
  t.same(withDefaults(settingsDeclaration, settings), settings, 'complete settings stay as they are');
  let left = 0;
  const walk = (declared: Declaration, value: unknown, replace: (by: unknown) => unknown): void => {
    if (Array.isArray(value))
      value.forEach((one, at) => walk(declared.items ?? {}, one, (by) => replace(value.with(at, by))));
    else
      for (const [name, property] of Object.entries(declared.properties ?? {})) {
        const { [name]: own, ...others } = value as Record<string, unknown>;
        if (own === undefined) continue;
        walk(property, own, (by) => replace({ ...others, [name]: by }));
        if (property.default === undefined || name === 'data') continue;
        left += 1;
        const complete = withDefaults(settingsDeclaration, replace(others)) as Settings;
        const { applied, restartNeeded } = differenceOf(settings, complete);
        if (!WRITTEN.has(name)) t.same([applied, restartNeeded], [[], []], name);
      }
  };
  walk(settingsDeclaration, settings, (by) => by);
  t.ok(left > 50, `${left} settings`);
  t.match(withDefaults(settingsDeclaration, { ...settings, newer: 1 }), { newer: 1 });
  t.end();
});
