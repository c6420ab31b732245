/**
 * Signing in to the console at a provider, in a real browser: from the form to the page, by way of another
 * site. The provider is at localhost and the gateway at 127.0.0.1, which browsers take for two sites.
 */
import t from 'tap';
import { startBed } from '../support/bed.js';
import { HAS_BROWSER, seriousFaults, shoot, startBrowser } from '../support/browser.js';
import { freePort } from '../support/free-port.js';
import { OIDC_ENV, oidcSettings, startProvider } from '../support/oidc-world.js';

const SKIP = HAS_BROWSER ? {} : { skip: 'Chromium is not installed' };

void t.test('an operator’s way by another site', SKIP, async (t) => {
  // The provider must know the address before the gateway has it.
  const port = await freePort();
  const origin = `http://127.0.0.1:${port}`;
  const redirectUrl = `${origin}/admin/session/oidc/callback`;
  const issuer = await startProvider(t, {
    people: {
      ann: { email: 'ann@example.com', groups: ['tollgate-admins'] },
      dot: { email: 'dot@example.com', groups: ['everybody'] },
    },
    redirectUrls: [redirectUrl],
  });
  const oidc = oidcSettings(issuer, redirectUrl);
  const env = { ...OIDC_ENV, TOLLGATE_ADMIN_PORT: String(port) };
  const { gateway } = await startBed(t, { admin: { oidc } }, { env });
  t.equal(gateway.admin.port, port);
  const browser = await startBrowser(t);

  const { page, faults } = await browser.open({ viewport: { width: 1440, height: 900 } });
  await page.goto(`${origin}/#/groups`);
  const button = page.getByRole('button', { name: `Sign in with ${new URL(issuer).host}` });
  await button.waitFor();
  t.same(await seriousFaults(page), []);
  await shoot(page, 'sign-in-oidc');
  await page.emulateMedia({ colorScheme: 'dark' });
  await page.setViewportSize({ width: 390, height: 844 });
  await shoot(page, 'sign-in-oidc-dark-phone');

  await button.click();
  await page.getByPlaceholder('Enter any login').fill('ann');
  await page.getByPlaceholder('and password').fill('any');
  await page.getByRole('button', { name: 'Sign-in' }).click();
  await page.getByRole('button', { name: 'Continue' }).click();
  await page.getByRole('heading', { name: 'Groups' }).waitFor();
  t.equal(page.url(), `${origin}/#/groups`, 'the page that was open, and no code in the address');
  const cookies = await page.context().cookies(origin);
  t.match(cookies, [{ name: `tollgate-session-${port}`, sameSite: 'Strict', httpOnly: true }]);
  t.equal(cookies.length, 1, 'the cookie of the way is gone');
  await page.reload();
  await page.getByRole('heading', { name: 'Groups' }).waitFor();
  await page.goBack();
  t.notOk(page.url().includes('code='), 'going back brings no code either');

  await page.goto(`${origin}/#/groups`);
  await page.getByRole('heading', { name: 'Groups' }).waitFor();
  await page.getByRole('button', { name: 'Sign out' }).click();
  const leave = page.getByRole('link', { name: `Sign out of ${new URL(issuer).host} too` });
  await leave.waitFor();
  t.same(await seriousFaults(page), []);
  await shoot(page, 'sign-out-oidc-dark-phone');
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize({ width: 1440, height: 900 });
  await shoot(page, 'sign-out-oidc');
  await leave.click();
  await page.getByRole('button', { name: 'Yes, sign me out' }).click();
  await page.getByLabel('Admin token').waitFor();
  t.equal(new URL(page.url()).origin, origin, 'the provider sends the browser back');
  t.equal(await leave.count(), 0);
  await page.goto(`${origin}/#/groups`);
  await button.click();
  await page.getByPlaceholder('Enter any login').waitFor();
  await page.goto(`${origin}/#/groups`);
  await page.getByLabel('Admin token').fill(gateway.admin.token);
  await page.getByRole('button', { name: 'Sign in with the token' }).click();
  await page.getByRole('heading', { name: 'Groups' }).waitFor();
  // The provider's own pages want fonts of the net.
  t.same(
    faults.filter((fault) => !fault.startsWith('Failed to load resource')),
    [],
  );

  const { page: other } = await browser.open({ viewport: { width: 900, height: 600 } });
  await other.goto(`${origin}/admin/session/oidc`);
  await other.getByPlaceholder('Enter any login').fill('dot');
  await other.getByPlaceholder('and password').fill('any');
  await other.getByRole('button', { name: 'Sign-in' }).click();
  await other.getByRole('button', { name: 'Continue' }).click();
  await other.getByRole('heading', { name: 'You are not signed in' }).waitFor();
  await other.getByText('dot@example.com has groups everybody').waitFor();
  t.same(await seriousFaults(other), []);
  await shoot(other, 'sign-in-oidc-refused');
  await other.getByRole('link', { name: 'go to the console' }).click();
  await other.getByLabel('Admin token').waitFor();
  await gateway.stop();
});

void t.test('the provider is offered as soon as the gateway is there again', SKIP, async (t) => {
  const issuer = 'https://login.example.com';
  const oidc = oidcSettings(issuer, 'https://tollgate.example.com/admin/session/oidc/callback');
  const { gateway } = await startBed(t, { admin: { oidc } }, { env: OIDC_ENV });
  const { page } = await (await startBrowser(t)).open();
  let isAway = true;
  await page.route('**/admin/session', (route) =>
    isAway ? route.fulfill({ status: 502, contentType: 'text/html', body: '<p>Later' }) : route.continue(),
  );
  await page.goto(`http://127.0.0.1:${gateway.admin.port}/`);
  await page.getByRole('button', { name: 'Sign in', exact: true }).waitFor();
  isAway = false;
  await page.getByRole('button', { name: 'Sign in with login.example.com' }).waitFor();
  await gateway.stop();
});
