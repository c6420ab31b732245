/** The section `notify`: what it may hold, and that its secret is one. */
import t, { type Test } from 'tap';
import { webhookKeyOf } from '#src/config/notify-schema.js';
import { SOUND_YAML, worldOf } from './support.js';

const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
const ENVIRONMENT = { HOOK_SECRET: SECRET };

const notifyYaml = (lines: string): string => `${SOUND_YAML}notify:\n${lines}`;

const faultsOf = (t: Test, lines: string): readonly string[] =>
  worldOf(t, { 'tollgate.yaml': notifyYaml(lines), 'bad.txt': 'secret' }).faults({}, ENVIRONMENT);

void t.test('what is read', (t) => {
  t.equal(worldOf(t, { 'tollgate.yaml': SOUND_YAML }).load().settings.notify, undefined, 'nobody is told');
  const log = worldOf(t, { 'tollgate.yaml': `${SOUND_YAML}notify: {}\n` }).load().settings.notify;
  t.same(log, { at: [80, 100], timeout_ms: 10_000 }, 'a line in the log');
  const lines =
    '  url: https://ops.example/hook?x=1\n  secret: ${HOOK_SECRET}\n  at: [50]\n  low_balance: "5.00"\n';
  const world = worldOf(t, { 'tollgate.yaml': notifyYaml(lines) });
  const { settings, inForce } = world.load({}, ENVIRONMENT);
  t.match(settings.notify, {
    url: 'https://ops.example/hook?x=1',
    secret: SECRET,
    at: [50],
    low_balance: '5.00',
  });
  t.match(
    inForce.filter(({ setting }) => setting.startsWith('notify')),
    [
      { setting: 'notify.url', live: true },
      { setting: 'notify.secret', value: '(secret)', live: true },
      { setting: 'notify.at', value: '50' },
      { setting: 'notify.low_balance', value: '5.00' },
      { setting: 'notify.timeout_ms' },
    ],
  );
  t.end();
});

void t.test('the secret may be in a file', (t) => {
  const yaml = notifyYaml('  url: http://127.0.0.1:9/\n  secret_file: hook.txt\n');
  const world = worldOf(t, { 'tollgate.yaml': yaml, 'hook.txt': `${SECRET}\n` });
  t.equal(world.load().settings.notify?.secret, SECRET);
  t.equal(world.load({ secrets: false }).settings.notify?.secret, undefined, 'commands do without');
  t.end();
});

void t.test('what is refused', (t) => {
  const url = '  url: https://ops.example/hook\n';
  t.match(faultsOf(t, url), [/tollgate\.yaml:8: notify\.url: needs secret or secret_file: whsec_/]);
  t.match(faultsOf(t, `${url}  secret: ${SECRET}\n`), [/notify\.secret: got a secret written inline/]);
  t.match(faultsOf(t, `${url}  secret_file: bad.txt\n`), [/notify\.secret_file: the file holds no secret/]);
  t.match(faultsOf(t, `${url}  secret: \${HOOK_SECRET}\n  secret_file: bad.txt\n`), [
    /notify\.secret_file: given besides secret/,
    /notify\.secret_file: the file holds no secret/,
  ]);
  for (const wrong of ['ftp://ops.example/', 'https://me:secret@ops.example/', 'hook', 'https://a/#b'])
    t.match(faultsOf(t, `  url: ${wrong}\n  secret: \${HOOK_SECRET}\n`), [
      /notify\.url: got .*, want an http/,
    ]);
  for (const wrong of ['[]', '[0]', '[101]', '[80.5]', '80'])
    t.match(faultsOf(t, `  at: ${wrong}\n`), [/notify\.at/], wrong);
  for (const wrong of ['5', '"0.00"', '"-1.00"', '"five"'])
    t.match(faultsOf(t, `  low_balance: ${wrong}\n`), [/notify\.low_balance: got .*, want a decimal/], wrong);
  t.end();
});

void t.test('which secrets are secrets', (t) => {
  const of = (bytes: number): string => `whsec_${Buffer.alloc(bytes, 1).toString('base64')}`;
  t.equal(webhookKeyOf(of(24))?.length, 24);
  t.equal(webhookKeyOf(of(64))?.length, 64);
  t.equal(webhookKeyOf(of(32).replace(/=+$/, ''))?.length, 32, 'padding is nobody’s secret');
  for (const wrong of [of(23), of(65), of(32).slice(6), `${of(32)}!`, 'whsec_', ''])
    t.equal(webhookKeyOf(wrong), undefined, wrong);
  t.end();
});
