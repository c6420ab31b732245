/** The settings of hosts that share: forms of the address, secrets, and what must hold between them. */
import t from 'tap';
import { DEMO_SETTINGS } from '#src/config/examples.js';
import { settingsDeclaration, type SettingsDraft } from '#src/config/schema.js';
import { SettingsReader } from '#src/config/settings-reader.js';
import { parseSharingUrl } from '#src/config/sharing-schema.js';
import { SOUND_YAML, worldOf } from './support.js';

const PASSWORD = { VALKEY_PASSWORD: 's3cret' };

void t.test('three forms of address', (t) => {
  t.same(parseSharingUrl('redis://valkey'), {
    kind: 'server',
    tls: false,
    servers: [{ host: 'valkey', port: 6379 }],
    database: 0,
    master: '',
  });
  t.match(parseSharingUrl('rediss://[::1]:7000/3'), {
    tls: true,
    servers: [{ host: '::1', port: 7000 }],
    database: 3,
  });
  t.match(parseSharingUrl('rediss-sentinel://a,b:7001/2#main'), {
    kind: 'sentinel',
    tls: true,
    servers: [
      { host: 'a', port: 26_379 },
      { host: 'b', port: 7001 },
    ],
    database: 2,
    master: 'main',
  });
  t.match(parseSharingUrl('redis-cluster://a:1,b:2'), { kind: 'cluster', servers: { length: 2 } });
  for (const wrong of [
    'http://valkey',
    'redis://',
    'redis://a:0',
    'redis://a:65536',
    'redis://a,b',
    'redis://a/x',
    'redis://a#main',
    'redis://user:word@a',
    'redis://[1:2:3]',
    'redis://[....]:6379',
    'redis://[::1%eth0]',
    'redis-cluster://a,[::g]',
    'redis-sentinel://a',
    'redis-cluster://a/1',
    'redis-cluster://a,,b',
    `redis-cluster://${'a,'.repeat(16)}a`,
  ])
    t.equal(parseSharingUrl(wrong), undefined, wrong);
  t.end();
});

void t.test('sharing is read', (t) => {
  t.equal(worldOf(t, { 'tollgate.yaml': SOUND_YAML }).load().settings.sharing, undefined);
  const sharing = {
    url: 'redis://valkey:6379/0',
    username: 'tollgate',
    password: '${VALKEY_PASSWORD}',
  };
  const faults: string[] = [];
  const reader = new SettingsReader(settingsDeclaration, {
    environment: PASSWORD,
    optionOverrides: new Map(),
    secrets: true,
    report: (path, text) => faults.push(`${path.join('.')}: ${text}`),
  });
  const read = reader.read({ ...DEMO_SETTINGS, sharing }) as SettingsDraft;
  t.same(faults, []);
  t.same(read.sharing, {
    ...sharing,
    password: 's3cret',
    namespace: 'tollgate',
    node_expiry_seconds: 900,
    partitions: 1,
  });
  t.end();
});

void t.test('faults are named', (t) => {
  const faultsOf = (lines: string): readonly string[] =>
    worldOf(t, { 'tollgate.yaml': `${SOUND_YAML}sharing:\n${lines}` }).faults({}, PASSWORD);
  t.match(faultsOf('  url: redis://user:word@valkey\n'), [
    /^tollgate\.yaml:8: sharing\.url: got .*, want redis:\/\/host:port\/database.* without user and password$/,
  ]);
  t.match(faultsOf('  url: redis://valkey\n  password: s3cret\n'), [
    /sharing\.password: got a secret written inline/,
  ]);
  t.match(faultsOf('  url: redis://valkey\n  on_authority_loss: equal_share\n'), [
    /sharing\.hosts: missing, want the number of hosts/,
  ]);
  t.match(faultsOf('  url: redis://valkey\n  node_expiry_seconds: 60\n'), [
    /sharing\.node_expiry_seconds: got 60, want at least 600, the longest total_timeout_ms/,
  ]);
  t.match(faultsOf('  url: redis://valkey\n  node_expiry_seconds: 86401\n'), [
    /sharing\.node_expiry_seconds: got 86401/,
  ]);
  for (const namespace of ['a{b', 'a}b', 'a:b', 'a b', 'é', '', 'n'.repeat(65)])
    t.match(faultsOf(`  url: redis://valkey\n  namespace: '${namespace}'\n`), [
      /sharing\.namespace: got .*, want a name/,
    ]);
  for (const word of ['é', 'a b', 'u'.repeat(257)])
    t.match(faultsOf(`  url: redis://valkey\n  username: '${word}'\n`), [
      /sharing\.username: got .*, want a name/,
    ]);
  for (const partitions of [0, 65, 1.5])
    t.match(faultsOf(`  url: redis://valkey\n  partitions: ${partitions}\n`), [/sharing\.partitions: got/]);
  t.match(faultsOf('  hosts: 4\n'), [/sharing\.url: missing/]);
  t.end();
});
