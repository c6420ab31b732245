/** When each setting applies, and what a reload and a replacement take of the next settings. */
import t from 'tap';
import type { Declaration } from '#src/config/annotations.js';
import { loadSettings } from '#src/config/load.js';
import { type Settings, settingsDeclaration } from '#src/config/schema.js';
import {
  adoptLive,
  adoptReplaced,
  appliesAt,
  isReplaceable,
  withDefaults,
} from '#src/config/settings-adoption.js';
import { differenceOf } from '#src/config/settings-in-force.js';

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

void t.test('one declaration on the way to each setting says when it applies', (t) => {
  const found: Record<string, string[]> = { reload: [], replacement: [], restart: [] };
  const walk = (declared: Declaration, path: readonly string[], above: boolean): void => {
    const applies = declared['x-applies'];
    const name = path.join('.');
    if (applies !== undefined) {
      t.notOk(above, `${name}: said above it too`);
      t.equal(appliesAt(path), applies, name);
      found[applies]!.push(name);
    }
    const inner = Object.entries((declared.items ?? declared).properties ?? {});
    if (inner.length === 0) t.ok(above || applies !== undefined, `${name}: said nowhere`);
    for (const [member, property] of inner) walk(property, [...path, member], above || applies !== undefined);
  };
  walk(settingsDeclaration, [], false);
  t.same(found, {
    reload: [
      ...['listen.tls', 'listen.cors', 'admin.oidc', 'models', 'plans'],
      ...['body_bytes', 'bodies_in_work_bytes', 'parse_inline_bytes', 'parse_wait_ms'].map(limitName),
      ...['calls_in_flight_per_account', 'client_idle_timeout_ms'].map(limitName),
      ...[
        'token_quota',
        'quota_cached_input',
        'low_balance',
        'durability',
        'on_store_error',
        'flush_interval_ms',
        'cache',
      ],
      ...['log', 'access_log', 'call_log', 'notify', 'watch', 'drain_timeout_ms'],
    ],
    replacement: [
      ...['listen.listeners', 'workers', 'workers_from_load_percent'],
      ...['calls_in_flight', 'stream_buffer_bytes', 'accounts', 'keys', 'groups'].map(limitName),
      ...['quota_timezone', 'idempotency', 'usage_log', 'metrics'],
    ],
    restart: [
      ...['listen.host', 'listen.port', 'admin.host', 'admin.port', 'admin.hosts'],
      ...['sharing', 'processes', 'data'],
    ],
  });
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

function limitName(name: string): string {
  return `limits.${name}`;
}
