/**
 * Origins of `listen.cors`: what a browser can send is taken, what it never sends is refused and not silently
 * without effect.
 */
import t from 'tap';
import { SOUND_YAML, worldOf } from './support.js';

const yamlOf = (cors: object): string => `${SOUND_YAML}listen: { cors: ${JSON.stringify(cors)} }\n`;

void t.test('origins', (t) => {
  for (const origin of [
    '*',
    'https://app.example.com',
    'http://localhost:3000',
    'http://127.0.0.1:8080',
    'http://[::1]:3000',
    'https://xn--bcher-kva.example',
    'capacitor://localhost',
    'chrome-extension://abcdefghijklmnop',
  ]) {
    const { listen } = worldOf(t, { 'tollgate.yaml': yamlOf({ origins: [origin] }) }).load().settings;
    t.same(listen.cors, { origins: [origin], max_age_seconds: 600 }, origin);
  }
  for (const origin of [
    '',
    'null',
    'app.example.com',
    'https://',
    'https://App.example.com',
    'https://app.example.com/',
    'https://app.example.com/chat',
    'https://*.example.com',
    'https://app.example.com:443',
    'http://localhost:80',
    'http://localhost:99999',
    'https://user@app.example.com',
    'https://app.example.com, https://b.example.com',
    'https://bücher.example',
    'https://a.example\r\nset-cookie: a=b',
  ])
    t.match(
      worldOf(t, { 'tollgate.yaml': yamlOf({ origins: [origin] }) }).faults(),
      [/listen\.cors\.origins\[0\]: got .*want an origin as browsers send it/],
      origin,
    );
  t.end();
});

void t.test('the list and the time', (t) => {
  const faults = (cors: object): readonly string[] => worldOf(t, { 'tollgate.yaml': yamlOf(cors) }).faults();
  t.match(faults({}), [/listen\.cors\.origins/]);
  t.match(faults({ origins: [] }), [/listen\.cors\.origins: .*at least one origin/]);
  t.match(faults({ origins: ['*'], max_age_seconds: 86_401 }), [/max_age_seconds: .*0 to 86400/]);
  t.match(faults({ origins: ['*'], orign: 1 }), [/listen\.cors\.orign/]);
  const { listen } = worldOf(t, {}).load().settings;
  t.equal(listen.cors, undefined, 'off');
  t.end();
});
