/** The values of a change, before and after; secrets are not among them. */
import t, { type Test } from 'tap';
import { settingsDeclaration, type Settings } from '#src/config/schema.js';
import { changesOf, differenceOf, type SettingChange } from '#src/config/settings-in-force.js';
import { worldOf } from './support.js';

const FILE = `
models:
  - id: gpt-4.1
    price: { input: "1", output: "2" }
    upstreams:
      - { url: "echo:" }
      - { url: "http://h/v1", key: "\${KEY}", headers: { x-a: "1", authorization: "\${KEY}" } }
plans:
  - { id: p1, requests_per_minute: 60, calls_per_day: 1000, models: [gpt-4.1] }
workers: 1
`;
const HOOK = `whsec_${Buffer.alloc(32, 1).toString('base64')}`;
const ENVIRONMENT = { KEY: 'sk-one', OTHER: 'sk-two', HOOK };

const settingsOf = (t: Test, text: string): Settings =>
  worldOf(t, { 'tollgate.yaml': text }).load({ data: '/d' }, ENVIRONMENT).settings;

/** What is told of the file with changes to its text. */
function told(t: Test, ...changes: [string, string][]): SettingChange[] {
  const text = changes.reduce((before, [from, to]) => {
    t.ok(before.includes(from), `the file has ${from}`);
    return before.replace(from, to);
  }, FILE);
  const [current, next] = [settingsOf(t, FILE), settingsOf(t, text)];
  const { applied, restartNeeded } = differenceOf(current, next);
  const all = changesOf(settingsDeclaration, current, next, [...applied, ...restartNeeded]);
  t.notMatch(JSON.stringify(all), /sk-/, 'no secret');
  return all;
}

void t.test('single values', (t) => {
  t.same(told(t, ['minute: 60', 'minute: 61'], ['workers: 1', 'workers: 2']), [
    { setting: 'plans.p1.requests_per_minute', before: '60', after: '61' },
    { setting: 'workers', before: '1', after: '2' },
  ]);
  t.end();
});

void t.test('maps and lists, as one text', (t) => {
  const [price, ...others] = told(t, ['input: "1"', 'input: "1.5"']);
  t.same(others, []);
  t.match(price, {
    setting: 'models.gpt-4.1.price',
    before: /^input: 1, .*output: 2/,
    after: /^input: 1\.5, .*output: 2/,
  });
  t.same(told(t, ['models: [gpt-4.1]', 'models: ["*"]']), [
    { setting: 'plans.p1.models', before: 'gpt-4.1', after: '*' },
  ]);
  const [upstreams] = told(t, ['      - { url: "echo:" }\n', '']);
  t.match(upstreams, { setting: 'models.gpt-4.1.upstreams', before: /\[0\]\.url: echo:/ });
  t.ok(upstreams!.before!.length <= 301, 'a long text is cut');
  t.end();
});

void t.test('of a secret: that it has changed', (t) => {
  t.same(told(t, ['key: "${KEY}"', 'key: "${OTHER}"']), [
    { setting: 'models.gpt-4.1.upstreams[1].key', before: '(secret)', after: '(secret) (changed)' },
  ]);
  const [headers] = told(t, ['authorization: "${KEY}"', 'authorization: "${OTHER}"']);
  t.same(headers, {
    setting: 'models.gpt-4.1.upstreams[1].headers',
    before: 'x-a: (secret), authorization: (secret)',
    after: 'x-a: (secret), authorization: (secret) (changed)',
  });
  t.end();
});

void t.test('of an address: nothing of its query, and of a webhook nothing but the host', (t) => {
  const keyed = 'http://h/v1?api_key=${KEY}';
  t.same(told(t, ['http://h/v1', keyed]), [
    { setting: 'models.gpt-4.1.upstreams[1].url', before: 'http://h/v1', after: 'http://h/v1?(secret)' },
  ]);
  const urlOf = (text: string): SettingChange[] => {
    const [current, next] = [settingsOf(t, FILE.replace('http://h/v1', keyed)), settingsOf(t, text)];
    return changesOf(settingsDeclaration, current, next, differenceOf(current, next).applied);
  };
  t.match(urlOf(FILE.replace('http://h/v1', keyed.replace('KEY', 'OTHER'))), [
    { before: 'http://h/v1?(secret)', after: 'http://h/v1?(secret) (changed)' },
  ]);
  const notify = 'workers: 1\nnotify: { url: "https://hooks.example/T/${KEY}", secret: "${HOOK}" }';
  const [change] = told(t, ['workers: 1', notify]);
  t.match(change, {
    setting: 'notify',
    after: /^url: https:\/\/hooks\.example\/\(secret\), secret: \(secret\), /,
  });
  t.end();
});

void t.test('an empty list and an empty text', (t) => {
  t.same(told(t, ['id: gpt-4.1', 'id: gpt-4.1\n    aliases: [fast]']), [
    { setting: 'models.gpt-4.1.aliases', before: '(empty)', after: 'fast' },
  ]);
  t.same(told(t, ['url: "http://h/v1"', 'url: "http://h/v1", member_names: { seed: "" }']), [
    { setting: 'models.gpt-4.1.upstreams[1].member_names', before: null, after: 'seed: (empty)' },
  ]);
  t.end();
});

void t.test('what was not there, and what comes or goes as a whole', (t) => {
  const [log] = told(t, ['workers: 1', 'workers: 1\nusage_log: { path: u }']);
  t.match(log, { setting: 'usage_log', before: null, after: /^path: .*u, / });
  t.same(told(t, ['id: p1', 'id: p2']), [
    { setting: 'plans.p1 (removed)', before: null, after: null },
    { setting: 'plans.p2 (added)', before: null, after: null },
  ]);
  t.end();
});
