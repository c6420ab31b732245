/**
 * Signing in to the console at a provider, behind a proxy that ends TLS, in a real browser: addresses are
 * those of redirect_url, cookies are Secure, the gateway answers under no other name, and it says what a
 * proxy must tell.
 */
import t from 'tap';
import { selfSigned } from '../fixtures/upstream-certificate.js';
import { HAS_BROWSER, startBrowser } from '../support/browser.js';
import { startGateway, testSettings } from '../support/gateway.js';
import { startMock } from '../support/mock.js';
import { OIDC_ENV, oidcSettings, startProvider } from '../support/oidc-world.js';
import { startTlsProxy } from '../support/tls-proxy.js';

const made = selfSigned();
const SKIP = HAS_BROWSER && made !== undefined ? {} : { skip: 'Chromium or openssl is not installed' };
/** Browsers take such names for this machine; the gateway knows this one by redirect_url alone. */
const NAME = 'console.localhost';

void t.test('from HTTPS to HTTPS', SKIP, async (t) => {
  const proxy = await startTlsProxy(t, made!);
  const origin = `https://${NAME}:${proxy.port}`;
  const redirectUrl = `${origin}/admin/session/oidc/callback`;
  const people = { ann: { email: 'ann@example.com', groups: ['tollgate-admins'] } };
  const issuer = await startProvider(t, { people, redirectUrls: [redirectUrl] });
  const mock = await startMock(t);
  const config = testSettings(mock.url, { admin: { oidc: oidcSettings(issuer, redirectUrl) } });
  const gateway = await startGateway(t, { config, env: OIDC_ENV });
  proxy.target = gateway.admin.port;
  const browser = await startBrowser(t);
  const { page } = await browser.open({ ignoreHTTPSErrors: true });
  const refused = await page.goto(`https://other.localhost:${proxy.port}/admin/session`);
  t.equal(refused?.status(), 400, 'under a name that no setting has');

  await page.goto(`${origin}/#/groups`);
  const button = page.getByRole('button', { name: `Sign in with ${new URL(issuer).host}` });
  const begun = page.waitForRequest((request) => request.url().startsWith(`${issuer}/auth?`));
  await button.click();
  t.equal(new URL((await begun).url()).searchParams.get('redirect_uri'), redirectUrl);
  await page.getByPlaceholder('Enter any login').fill('ann');
  await page.getByPlaceholder('and password').fill('any');
  await page.getByRole('button', { name: 'Sign-in' }).click();
  await page.getByRole('button', { name: 'Continue' }).click();
  await page.getByRole('heading', { name: 'Groups' }).waitFor();
  t.equal(page.url(), `${origin}/#/groups`);
  const name = `__Host-tollgate-session-${gateway.admin.port}`;
  t.match(await page.context().cookies(origin), [{ name, secure: true, httpOnly: true, sameSite: 'Strict' }]);
  t.equal(proxy.cookies.length, 3, 'of the way, of the session, and the end of the first');
  for (const cookie of proxy.cookies) t.match(cookie, /; Secure$/);

  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('link', { name: /^Sign out of / }).click();
  await page.getByRole('button', { name: 'Yes, sign me out' }).click();
  await page.getByLabel('Admin token').fill(gateway.admin.token);
  t.equal(page.url(), `${origin}/`, 'the provider sends the browser back to the proxy');
  await page.getByRole('button', { name: 'Sign in with the token' }).click();
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  t.match(proxy.cookies.at(-1), /; SameSite=Strict; Secure$/, 'a session by token too, as the proxy tells');

  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByLabel('Admin token').fill(gateway.admin.token);
  // Only now, when the form shows that the request to sign out has been answered: it would be refused too.
  proxy.tells = false;
  await page.getByRole('button', { name: 'Sign in with the token' }).click();
  await page.getByText('a proxy in front must pass on the Host').waitFor();
  await gateway.stop();
});
