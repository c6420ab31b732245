/**
 * Under which names the admin port answers, and what each path tells under another: DNS rebinding reads
 * nothing.
 */
import t from 'tap';
import { AllowedHosts } from '#src/admin/allowed-hosts.js';
import { RawConnection } from '../../support/raw-connection.js';
import { startAdminHouse, TOKEN } from './support.js';

const LOOPBACK = [
  'localhost',
  'LocalHost',
  'localhost.',
  'localhost:8081',
  'LOCALHOST.:8081',
  '127.0.0.1',
  '127.0.0.1:1',
  '[::1]',
  '[::1]:65535',
  '[0:0:0:0:0:0:0:1]:8081',
];
const ADDRESSES = ['10.1.2.3', '10.1.2.3:8081', '[fd00::1]', '[FD00:0::1]:8081', '192.168.0.1'];
/** Refused wherever the port listens and whatever names are listed, but for `*`. */
const NEVER = [
  '',
  ' ',
  'evil.example',
  'evil.example:8081',
  'localhost.evil.example',
  'localhost.evil',
  'localhostevil',
  'evil-localhost',
  'evil.localhost',
  'localhost..',
  'localhost@evil.example',
  'evil.example@localhost',
  'user:password@localhost',
  'localhost/',
  'localhost/evil.example',
  'localhost?x',
  'localhost#x',
  'localhost\\evil',
  'localhost,evil.example',
  'localhost evil.example',
  'localhost:',
  'localhost:x',
  'localhost:8081:8081',
  'localhost:808180',
  'http://localhost',
  '127.0.0.1.evil.example',
  '127.0.0.1.nip.io',
  '127.1',
  '2130706433',
  '0x7f.0.0.1',
  '0177.0.0.1',
  '::1',
  '[::1',
  '::1]',
  '[::1]evil',
  '[::1].evil.example',
  '[::1%lo]',
  '[localhost]',
  '[127.0.0.1]',
  '*',
  '*.internal.example',
  'internal.example',
  'xinternal.example',
  'ı.localhost',
  'ｌocalhost',
];

void t.test('which Host is allowed, by where the port listens and what is listed', (t) => {
  const listed = ['Gateway.Example', 'prometheus-target', '*.internal.example', '[fd12::0:5]'];
  const named = [
    'gateway.example',
    'GATEWAY.EXAMPLE.:8081',
    'prometheus-target:8081',
    'a.internal.example',
    '[fd12::5]',
  ];
  for (const bound of [
    '127.0.0.1',
    '::1',
    'localhost',
    '127.0.0.2',
    '0.0.0.0',
    '::',
    '10.9.8.7',
    'gw.host',
  ]) {
    const loopback = /^(127\.|::1$|localhost$)/.test(bound);
    const hosts = new AllowedHosts(bound, listed);
    const bare = new AllowedHosts(bound, []);
    const any = new AllowedHosts(bound, ['*']);
    for (const host of LOOPBACK) t.ok(bare.allows(host), `${host} at ${bound}`);
    const own = bound.includes(':') ? `[${bound}]:8081` : `${bound}:8081`;
    t.ok(bare.allows(own), `its own address, ${own}`);
    for (const host of ADDRESSES) t.equal(bare.allows(host), !loopback, `${host} at ${bound}`);
    for (const host of named) {
      t.ok(hosts.allows(host), `${host}, which is listed`);
      if (!host.startsWith('[')) t.notOk(bare.allows(host), `${host}, which is not`);
    }
    for (const host of NEVER) {
      t.notOk(hosts.allows(host), `${JSON.stringify(host)} at ${bound}`);
      t.ok(any.allows(host), `${JSON.stringify(host)} where every Host is allowed`);
    }
  }
  t.end();
});

/** What anybody reads without a token, and what the token opens. */
const OPEN = ['/metrics', '/', '/admin/session'];
const KEPT = ['/admin/v1/status', '/admin/v1/live', '/admin/playground', '/nowhere'];
const HEALTH = ['/healthz', '/readyz'];

void t.test('a name that is not allowed reads nothing, but health and with the token', async (t) => {
  const house = await startAdminHouse(t, { allowedHosts: ['gateway.example'] });
  const head = async (method: string, path: string, host: string | undefined, more = '') => {
    const connection = await RawConnection.open(house.port);
    const line = host === undefined ? '' : `Host: ${host}\r\n`;
    connection.send(`${method} ${path} HTTP/1.1\r\n${line}${more}Connection: close\r\n\r\n`);
    try {
      return await connection.answer();
    } finally {
      connection.close();
    }
  };
  for (const host of [
    'localhost',
    'LOCALHOST.:99',
    '[::1]:1',
    `127.0.0.1:${house.port}`,
    'gateway.example',
  ]) {
    for (const path of [...OPEN, ...HEALTH])
      t.equal((await head('GET', path, host)).status, 200, `${path}, ${host}`);
  }
  for (const host of ['evil.example', 'localhost.evil.example:8081', 'x@localhost', '10.0.0.1', 'a"b<c>']) {
    for (const path of [...OPEN, ...KEPT]) {
      const refused = await head('GET', path, host);
      t.equal(refused.status, 400, `${path} under ${host}`);
      t.equal(refused.headers.get('content-type'), 'application/json');
      const { error } = JSON.parse(refused.body) as { error: { code: string; message: string } };
      t.equal(error.code, 'invalid_parameters');
      t.match(error.message, 'admin.hosts', 'the setting is named');
      t.ok(error.message.includes(JSON.stringify(host)), 'and the Host that came');
      const wrong = await head('GET', path, host, 'Authorization: Bearer wrong\r\n');
      t.equal(wrong.status, 400, `${path} under ${host} with a wrong token`);
    }
    for (const method of ['POST', 'DELETE']) {
      const body = 'Content-Length: 0\r\nX-Tollgate-Console: 1\r\n';
      t.equal((await head(method, '/admin/session', host, body)).status, 400, `${method} of a session`);
    }
    for (const path of HEALTH) t.equal((await head('GET', path, host)).status, 200, `${path} under ${host}`);
    for (const path of [...OPEN, '/admin/v1/status']) {
      const told = await head('GET', path, host, `Authorization: Bearer ${TOKEN}\r\n`);
      t.equal(told.status, 200, `${path} under ${host} with the token`);
    }
  }
  for (const path of OPEN) {
    t.equal((await head('GET', path, undefined)).status, 400, `${path} without a Host`);
    t.equal((await head('GET', path, '')).status, 400, `${path} with an empty one`);
  }
});

void t.test('a port that is open to a network answers by address, and by name only if listed', async (t) => {
  const house = await startAdminHouse(t, { host: '0.0.0.0', allowedHosts: ['*.svc.cluster.local'] });
  const statusUnder = async (host: string): Promise<number> =>
    (await house.send('GET', '/metrics', undefined, { headers: { host } })).status;
  for (const host of [
    '10.42.0.7:8081',
    '[fd00::7]:8081',
    'localhost',
    'gw-0.gw-admin.ns.svc.cluster.local:8081',
  ]) {
    t.equal(await statusUnder(host), 200, host);
  }
  for (const host of [
    'evil.example',
    'svc.cluster.local',
    'gw-admin:8081',
    'x.svc.cluster.local.evil.example',
  ]) {
    t.equal(await statusUnder(host), 400, host);
  }
});
