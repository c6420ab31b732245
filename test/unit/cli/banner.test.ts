/** What an operator sees first: addresses that can be called, the key once, lines that can be pasted. */
import { execFileSync } from 'node:child_process';
import t from 'tap';
import { bannerOf, commandOf, type BannerFacts } from '#src/cli/banner.js';
import { loadSettings } from '#src/config/load.js';

const { settings } = loadSettings({}, { environment: {}, workingDirectory: '/srv' });
const FACTS: BannerFacts = {
  version: '1.2.3',
  settings,
  source: undefined,
  ready: { kind: 'ready', port: 18080, adminPort: 18081, demoAccountId: 'acct_1', demoKey: 'sk-demo' },
  command: 'node dist/cli/main.js',
};

void t.test('the first start shows the key and two curl lines', (t) => {
  const text = bannerOf(FACTS);
  t.match(text, /^Tollgate 1\.2\.3\n/);
  t.match(text, 'Serving   http://127.0.0.1:18080/v1\n');
  t.match(text, 'Admin     http://127.0.0.1:18081\n');
  t.match(text, 'Models    echo\n');
  t.match(text, 'Data      /srv/data\n');
  t.match(text, /^ {2}sk-demo$/m);
  const lines = text.split('\n').filter((line) => line.startsWith('  curl'));
  t.equal(lines.length, 2);
  // The shell says what curl would get.
  const wordsOf = (line: string): string[] =>
    execFileSync('sh', ['-c', `curl() { printf '%s\\n' "$@"; }; ${line}`], { encoding: 'utf8' })
      .trimEnd()
      .split('\n');
  const whole = wordsOf(lines[0] ?? '');
  t.equal(whole[0], 'http://127.0.0.1:18080/v1/chat/completions');
  t.ok(whole.includes('Authorization: Bearer sk-demo'));
  t.same(JSON.parse(whole.at(-1) ?? ''), {
    model: 'echo',
    messages: [{ role: 'user', content: 'Hello, Tollgate!' }],
  });
  const streamed = wordsOf(lines[1] ?? '');
  t.equal(streamed[0], '-N');
  t.match(JSON.parse(streamed.at(-1) ?? ''), { stream: true });
  t.end();
});

void t.test('later starts say how to make another key', (t) => {
  const text = bannerOf({ ...FACTS, ready: { ...FACTS.ready, demoKey: undefined } });
  t.match(text, 'node dist/cli/main.js keys create --account acct_1 --name another --data /srv/data\n');
  t.notMatch(text, /curl/);
  t.end();
});

void t.test('without a demo there is nothing about keys', (t) => {
  const ready = { ...FACTS.ready, demoKey: undefined, demoAccountId: undefined };
  const text = bannerOf({ ...FACTS, source: '/etc/tollgate.yaml', ready });
  t.match(text, 'Settings  /etc/tollgate.yaml\n');
  t.notMatch(text, /key|curl/);
  t.end();
});

void t.test('addresses can be called from this machine', (t) => {
  const servingOn = (host: string): string =>
    /Serving {3}(\S+)/.exec(
      bannerOf({ ...FACTS, settings: { ...settings, listen: { ...settings.listen, host } } }),
    )![1]!;
  t.equal(servingOn('0.0.0.0'), 'http://127.0.0.1:18080/v1');
  t.equal(servingOn('::'), 'http://[::1]:18080/v1');
  t.equal(servingOn('fe80::1'), 'http://[fe80::1]:18080/v1');
  t.equal(servingOn('gate.example'), 'http://gate.example:18080/v1');
  t.end();
});

void t.test('many models are cut', (t) => {
  const models = Array.from({ length: 20 }, (_, index) => ({ ...settings.models[0]!, id: `m${index}` }));
  t.match(
    bannerOf({ ...FACTS, settings: { ...settings, models } }),
    'm0, m1, m2, m3, m4, m5, m6, m7 and 12 more\n',
  );
  t.end();
});

void t.test('the command as it would be typed', (t) => {
  t.equal(commandOf('/repo/dist/cli/main.js', '/repo'), 'node dist/cli/main.js');
  t.equal(commandOf('/repo/dist/cli/main.js', '/elsewhere'), 'node /repo/dist/cli/main.js');
  t.equal(commandOf("/it's/main.js", '/elsewhere'), `node '/it'\\''s/main.js'`);
  t.equal(commandOf('/p/node_modules/.bin/tollgate', '/p'), 'npx tollgate');
  t.equal(commandOf('/usr/local/bin/tollgate', '/p'), 'tollgate');
  t.end();
});
