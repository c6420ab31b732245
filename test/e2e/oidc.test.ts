/**
 * Signing in at a provider through a whole gateway: the settings come and go with reloads, a role may do what
 * it may and no more, the secret is told nowhere, and a provider that is down stops nothing.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { startGateway, testSettings } from '../support/gateway.js';
import { type Answer, request } from '../support/http.js';
import { startMock } from '../support/mock.js';
import { CLIENT_ID, CLIENT_SECRET, signInAt, startProvider } from '../support/oidc-world.js';
import { Visitor } from '../support/visitor.js';

const OWN = { 'x-tollgate-console': '1' };

void t.test('by a reload, with a role, and without the provider', async (t) => {
  const mock = await startMock(t);
  const gateway = await startGateway(t, { config: testSettings(mock.url) });
  const origin = `http://127.0.0.1:${gateway.admin.port}`;
  const redirectUrl = `${origin}/admin/session/oidc/callback`;
  const people = { cem: { email: 'cem@example.com', groups: ['support'] } };
  const issuer = await startProvider(t, { people, redirectUrls: [redirectUrl] });
  const session = async (visitor: Visitor): Promise<unknown> =>
    (await visitor.ask(`${origin}/admin/session`)).json();
  const reload = async (oidc: object | undefined): Promise<string> => {
    const admin = oidc === undefined ? {} : { oidc };
    const file = join(gateway.folder, 'tollgate.yaml');
    writeFileSync(file, JSON.stringify(testSettings(mock.url, { admin })));
    const { status, body } = await gateway.admin.send('POST', '/admin/v1/reload');
    t.equal(status, 200, body);
    return body;
  };
  writeFileSync(join(gateway.folder, 'oidc-secret'), CLIENT_SECRET);
  const oidc = {
    issuer,
    client_id: CLIENT_ID,
    client_secret_file: 'oidc-secret',
    redirect_url: redirectUrl,
    roles: { support: 'support' },
  };

  const visitor = new Visitor();
  t.notMatch(await session(visitor), { oidc: {} });
  const said = [await reload(oidc)];
  t.match(await session(visitor), { signed_in: false, oidc: { issuer: new URL(issuer).host } });
  const done = await visitor.ask(await signInAt(visitor, `${origin}/admin/session/oidc`, 'cem'));
  t.equal(done.status, 303, done.body);
  t.match(await session(visitor), { who: 'oidc:cem@example.com', role: 'support' });

  const { accountId } = await gateway.admin.customer();
  const asCem = (method: string, path: string, body?: object): Promise<Answer> =>
    request({
      port: gateway.admin.port,
      method,
      path,
      body,
      headers: { ...OWN, cookie: visitor.cookiesFor(new URL(origin)) },
    });
  t.equal((await asCem('POST', '/admin/v1/keys', { account: accountId, name: 'k' })).status, 200, 'a key');
  const credit = await asCem('POST', `/admin/v1/accounts/${accountId}/credit`, { amount: '5.00' });
  t.match(credit, { status: 403, body: /insufficient_role/ }, 'but no money');

  for (const path of ['/admin/v1/settings', '/admin/v1/status']) {
    said.push((await gateway.admin.send('GET', path)).body);
  }
  t.match(said.join(' '), 'admin.oidc.roles.support');
  t.notOk(
    [...said, ...gateway.log()].some((text) => text.includes(CLIENT_SECRET)),
    'the secret is not told',
  );
  t.ok(gateway.log().some((line) => line.includes('oidc:cem@example.com') && line.includes('"sub":"cem"')));

  await reload({ ...oidc, roles: { support: 'viewer' } });
  t.match(await session(visitor), { role: 'viewer' }, 'at once');
  await reload(undefined);
  t.match(await session(visitor), { signed_in: false }, 'out at once');

  await reload({ ...oidc, issuer: 'http://127.0.0.1:1' });
  const failed = await visitor.ask(`${origin}/admin/session/oidc`);
  t.match(failed, { status: 502, body: /cannot reach the provider/ });
  await gateway.stop();

  const again = await startGateway(t, {
    folder: gateway.folder,
    args: ['--config', join(gateway.folder, 'tollgate.yaml')],
  });
  t.equal((await again.admin.send('GET', '/admin/v1/plans')).status, 200, 'a start without the provider');
  await again.stop();
});
