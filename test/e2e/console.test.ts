/**
 * The console in a real browser: what an operator does with it, in order, on a gateway with a mock upstream.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { shareBed, startBed } from '../support/bed.js';
import { goTo, HAS_BROWSER, seriousFaults, shoot, signIn, startBrowser } from '../support/browser.js';
import { TEST_MODEL, eventually, knownEverywhere, type Gateway } from '../support/gateway.js';
import { steered } from '../support/mock.js';
import { openStream } from '../support/sse.js';

const SKIP = HAS_BROWSER ? {} : { skip: 'Chromium is not installed' };

/** The aim is a second; browser, gateway and mock start beside each other here. */
const PAINT_MS_MAX = 60_000;

const WIDE = { width: 1440, height: 900 };
const PHONE = { width: 390, height: 844 };

const sharedBed = shareBed(t);

const at = (gateway: Gateway, place = ''): string => `http://127.0.0.1:${gateway.admin.port}/${place}`;

void t.test('an operator’s way through it', SKIP, async (t) => {
  const { gateway } = await startBed(t);
  const { page, faults } = await (await startBrowser(t)).open({ viewport: WIDE });
  page.on('dialog', (dialog) => t.fail(`a dialog: ${dialog.message()}`));

  await page.goto(at(gateway));
  await page.getByLabel('Admin token').waitFor();
  const paintMs = await page.evaluate<number>(
    `performance.getEntriesByName('first-contentful-paint')[0].startTime`,
  );
  t.comment(`first paint after ${paintMs.toFixed(0)} ms`);
  t.ok(paintMs < PAINT_MS_MAX, `painted after ${paintMs} ms`);
  await page.getByLabel('Admin token').fill('not-the-token-of-this');
  await page.getByRole('button', { name: 'Sign in' }).click();
  t.match(await page.getByRole('alert').textContent(), 'not the admin token');
  t.match(faults.splice(0), [/401/], 'the browser tells of the refusal, and of nothing else');
  await signIn(page, gateway);
  const [cookie] = await page.context().cookies();
  t.match(cookie, { httpOnly: true, sameSite: 'Strict', path: '/', secure: false });
  t.equal(cookie?.value.length, 43, '256 random bits');

  await goTo(page, 'Accounts');
  await page.getByRole('button', { name: 'New account' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('acme');
  await dialog.getByLabel('Opening balance').fill('ten');
  await dialog.getByRole('button', { name: 'Create account' }).click();
  t.match(await dialog.getByRole('alert').textContent(), 'credit must be a decimal amount', 'in words');
  t.match(faults.splice(0), [/400/]);
  await dialog.getByLabel('Opening balance').fill('10.00');
  await dialog.getByRole('button', { name: 'Create account' }).click();
  const panel = page.getByRole('region', { name: 'Account', exact: true });
  await panel.getByRole('heading', { name: 'acme' }).waitFor();

  await panel.getByRole('button', { name: 'Add credit' }).click();
  await dialog.getByLabel('Amount').fill('2.50');
  await dialog.getByLabel('Note').fill('a gift');
  await dialog.getByRole('button', { name: 'Book it' }).click();
  await panel.getByText('of 12.50 credited').waitFor();

  await panel.getByRole('button', { name: 'New key' }).click();
  await dialog.waitFor();
  // As quickly as keys can be pressed: closed, opened by the button that has the keyboard again, and so on.
  for (const key of ['Escape', 'Enter', 'Escape', 'Enter', 'Escape', 'Enter']) await page.keyboard.press(key);
  // Visible only if the keyboard is at the button as soon as the dialog is closed.
  await dialog.waitFor();
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  t.match(
    await page.evaluate('document.activeElement.textContent'),
    'New key',
    'the keyboard is back where it was',
  );
  await page.keyboard.press('Enter');
  await dialog.getByLabel('Name').fill('laptop');
  await dialog.getByRole('button', { name: 'Make key' }).click();
  const key = (await dialog.getByTestId('new-key').textContent()) ?? '';
  t.match(key, /^sk-[\w-]{43}$/, 'shown this once');
  await dialog.getByRole('button', { name: 'I have it' }).click();
  await panel.getByRole('rowheader', { name: 'laptop' }).waitFor();
  t.match(await page.evaluate('document.activeElement.textContent'), 'New key', 'after a second dialog too');
  t.notMatch(await page.content(), key, 'and never again');

  await goTo(page, 'Playground');
  await page.getByLabel('Model').selectOption(TEST_MODEL);
  await page.getByLabel('API key').fill(key);
  await page.getByLabel('Message', { exact: true }).fill(steered('chunks=5&completion_tokens=5'));
  await page.keyboard.press('Enter');
  const taken = page.getByText('Whole');
  await taken.waitFor();
  await page.locator('.taken').getByText('Cost').waitFor();
  // The page may look for the record of the call before it is written; it then looks again.
  t.ok(faults.splice(0).every((fault) => fault.includes('404')));
  t.match(await page.locator('.taken').textContent(), /Status 200.*5 out.*Cost 0\.0000.*First token/);
  await taken.click();
  await page.getByText('x-request-id').waitFor();
  for (const [language, part] of [
    ['TypeScript', "import OpenAI from 'openai'"],
    ['Python', 'from openai import OpenAI'],
    ['curl', `curl http://127.0.0.1:${gateway.port}/v1/chat/completions`],
  ] as const) {
    await page.getByRole('button', { name: language }).click();
    const code = await page.getByRole('region', { name: `Request in ${language}` }).textContent();
    t.match(code, part);
    t.notMatch(code, key, 'the key is not in the code');
  }

  await goTo(page, 'Accounts');
  await page.getByRole('link', { name: 'acme' }).click();
  await panel.getByRole('button', { name: 'Disable key laptop' }).click();
  await dialog.getByRole('button', { name: 'Disable' }).click();
  await panel.getByRole('cell', { name: 'Disabled' }).waitFor();
  t.equal((await gateway.chat(key, 'Hello')).status, 403, 'and it is refused');

  // The page looks once, and the store may have the call later than the call log.
  await eventually('the usage of the call', async () => {
    const { body } = await gateway.admin.send('GET', '/admin/v1/usage?by=account');
    return body.includes('"acme"') ? true : undefined;
  });
  await goTo(page, 'Usage');
  await page.getByLabel('Lines by').selectOption('account');
  await page.getByRole('region', { name: 'Usage' }).getByRole('link', { name: 'acme' }).waitFor();
  const [csv] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('link', { name: 'Download CSV' }).click(),
  ]);
  t.match(readFileSync(await csv.path(), 'utf8'), /^account,calls,/);

  await goTo(page, 'Overview');
  const called = page.getByRole('region', { name: 'Models' }).getByRole('row', { name: TEST_MODEL });
  // One call, come by the stream.
  await called.filter({ hasText: new RegExp(`^${TEST_MODEL}1`) }).waitFor();
  await page.getByRole('img', { name: /^Refusals.*key disabled/ }).waitFor();
  await page.getByRole('button', { name: '24 hours' }).click();
  await page.getByRole('img', { name: /^Requests, per second: now answered/ }).waitFor();

  await page.getByRole('button', { name: '5 min' }).click();
  const busiest = page.getByRole('region', { name: 'Busiest accounts' });
  await busiest.getByRole('link', { name: 'acme' }).click();
  const course = panel.getByRole('region', { name: 'Course' });
  await course.getByRole('img', { name: /^Calls, per second: now calls/ }).waitFor();
  await course.getByRole('img', { name: /^Spend/ }).waitFor();
  await course.getByRole('button', { name: '1 hour' }).click();
  await course.getByRole('button', { name: '1 hour', pressed: true }).waitFor();
  await course.getByRole('img', { name: /^Tokens, per second/ }).waitFor();

  await goTo(page, 'Upstreams');
  await page.getByRole('cell', { name: 'Healthy' }).first().waitFor();
  await page.getByRole('button', { name: 'Call all again now' }).click();
  await page.getByText('Done: called again.').waitFor();

  await goTo(page, 'Settings');
  const file = join(gateway.folder, 'tollgate.yaml');
  const settings = JSON.parse(readFileSync(file, 'utf8')) as { low_balance?: string };
  writeFileSync(file, JSON.stringify({ ...settings, watch: false, low_balance: 'clamp' }));
  await page.getByRole('button', { name: 'Show what would change' }).click();
  const changes = page.getByRole('region', { name: 'Reload' });
  await changes.getByText('low_balance').waitFor();
  t.match(await changes.getByRole('listitem').textContent(), /^low_balancerefuse → clamp$/);
  const apply = changes.getByRole('button', { name: /^Apply/ });
  await apply.waitFor();
  await page.route('**/admin/v1/reload', (route) => route.abort());
  await page.getByRole('button', { name: 'Show what would change' }).click();
  await changes.getByText('The gateway cannot be reached.').waitFor();
  t.equal(await apply.count(), 0, 'what the failed dry run would have shown cannot be applied');
  await page.unroute('**/admin/v1/reload');
  t.match(faults.splice(0), [/ERR_FAILED/]);
  await page.getByRole('button', { name: 'Show what would change' }).click();
  await apply.click();
  await changes.getByText('Taken into effect').waitFor();
  // The table is fetched again after that. It has the place that the setting came from.
  const row = page.getByRole('row', { name: /low_balance/ });
  await row.filter({ hasText: /clamp.*tollgate\.yaml:1/ }).waitFor();

  // The gateway is away: whoever is still signed in must not be told otherwise.
  await page.route('**/admin/session', (route) => route.abort());
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByText('You may be still signed in. The gateway cannot be reached.').waitFor();
  await page.getByRole('heading', { name: 'Settings' }).waitFor();
  t.equal(await page.getByLabel('Admin token').count(), 0);
  await page.unroute('**/admin/session');
  t.match(faults.splice(0), [/ERR_FAILED/, /ERR_FAILED/]);
  // A proxy, or the gateway itself, refuses it.
  await page.route('**/admin/session', (route) =>
    route.request().method() === 'DELETE'
      ? route.fulfill({ status: 400, json: { error: { message: 'Not from there.' } } })
      : route.continue(),
  );
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByText('You are still signed in. Not from there.').waitFor();
  await page.unroute('**/admin/session');
  t.match(faults.splice(0), [/status of 400/]);
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByLabel('Admin token').waitFor();
  const stale = await page.context().request.get(at(gateway, 'admin/v1/accounts'), {
    headers: { cookie: `${cookie?.name}=${cookie?.value}` },
  });
  t.equal(stale.status(), 401, 'the former cookie opens nothing');
  t.same(faults, [], 'the browser has nothing to complain about');
});

void t.test('operators have tokens, and see what their roles may do', SKIP, async (t) => {
  const { gateway } = await sharedBed();
  const customer = await gateway.admin.customer();
  const browser = await startBrowser(t);
  const { page, faults } = await browser.open({ viewport: WIDE });
  await signIn(page, gateway);
  await page.getByText('bootstrap').waitFor();
  await goTo(page, 'Operators');
  const dialog = page.getByRole('dialog');
  const make = async (name: string, role: string): Promise<string> => {
    await page.getByRole('button', { name: 'New operator' }).click();
    await dialog.getByLabel('Name').fill(name);
    await dialog.getByLabel('Role').selectOption(role);
    await dialog.getByRole('button', { name: 'Make operator' }).click();
    const token = (await dialog.getByTestId('new-token').textContent()) ?? '';
    await dialog.getByRole('button', { name: 'I have it' }).click();
    await page.getByRole('rowheader', { name }).waitFor();
    return token;
  };
  const tokens = { viewer: await make('vera', 'viewer'), support: await make('sam', 'support') };
  t.match(tokens.viewer, /^tgop_[\w-]{43}$/);
  t.notMatch(await page.content(), tokens.viewer, 'shown once');

  for (const [role, buttons] of [
    ['viewer', []],
    ['support', ['New key', 'Rotate', 'Disable', 'Delete']],
  ] as const) {
    const other = await browser.open({ viewport: WIDE });
    await other.page.goto(at(gateway, `#/accounts/${customer.accountId}`));
    await other.page.getByLabel('Admin token').fill(tokens[role]);
    await other.page.getByRole('button', { name: 'Sign in' }).click();
    const panel = other.page.getByRole('region', { name: 'Account', exact: true });
    await panel.getByRole('rowheader', { name: 'test' }).waitFor();
    t.equal(await other.page.locator('.who .badge').textContent(), role);
    const shown = await panel.locator('.panel-head button, .keys button, .head button').allTextContents();
    const ranges = ['Copy', '5 min', '1 hour', '6 hours', '24 hours'];
    t.same(
      shown.map((text) => text.trim()).filter((text) => !ranges.includes(text)),
      buttons,
      role,
    );
    t.equal(await other.page.getByRole('link', { name: 'Operators' }).count(), 0);
    await goTo(other.page, 'Upstreams');
    await other.page.getByRole('cell', { name: 'Healthy' }).first().waitFor();
    const reset = other.page.getByRole('button', { name: 'Call all again now' });
    t.equal(await reset.count(), role === 'support' ? 1 : 0);
    t.same(other.faults, []);
    if (role !== 'viewer') continue;
    await page.getByRole('button', { name: 'Disable operator vera' }).click();
    await dialog.getByRole('button', { name: 'Disable' }).click();
    await page.getByRole('cell', { name: 'Disabled' }).waitFor();
    // By the address: the end of the stream may have signed out the page before, and with it the links.
    await other.page.goto(at(gateway, '#/settings'));
    await other.page.getByLabel('Admin token').waitFor();
    t.ok(
      other.faults.every((fault) => fault.includes('401')),
      'signed out at once',
    );
  }
  await page.getByRole('button', { name: 'Delete operator sam' }).click();
  await dialog.getByRole('button', { name: 'Delete for good' }).click();
  await page.getByRole('rowheader', { name: 'sam' }).waitFor({ state: 'detached' });
  t.same(faults, []);
});

void t.test('an account can be made once there are plans to choose from', SKIP, async (t) => {
  const { gateway } = await sharedBed();
  const { page, faults } = await (await startBrowser(t)).open({ viewport: WIDE });
  await signIn(page, gateway);
  let release = (): void => undefined;
  const released = new Promise<void>((resolve) => (release = resolve));
  await page.route('**/admin/v1/plans', async (route) => {
    await released;
    await route.continue();
  });
  await goTo(page, 'Accounts');
  const opener = page.getByRole('button', { name: 'New account' });
  t.ok(await opener.isDisabled(), 'not yet');
  release();
  await opener.click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('early');
  await dialog.getByRole('button', { name: 'Create account' }).click();
  await page.getByRole('heading', { name: 'early' }).waitFor();

  await goTo(page, 'Usage');
  await page.unroute('**/admin/v1/plans');
  await page.route('**/admin/v1/plans', (route) => route.abort());
  await goTo(page, 'Accounts');
  t.match(await page.getByRole('alert').textContent(), 'The gateway cannot be reached', 'why there are none');
  t.ok(await opener.isDisabled());
  t.match(faults, [/ERR_FAILED/]);
});

void t.test('an account that processes share: what they were granted in advance', SKIP, async (t) => {
  const { gateway } = await startBed(t, { processes: 2 });
  const { accountId, key } = await gateway.admin.customer();
  await knownEverywhere(gateway, key);
  const call = await openStream(gateway.port, key, {
    model: TEST_MODEL,
    messages: [{ role: 'user', content: steered('chunks=10000&chunk_ms=20') }],
    stream: true,
  });
  const { page, faults } = await (await startBrowser(t)).open({ viewport: WIDE });
  await signIn(page, gateway);
  await page.goto(at(gateway, `#/accounts/${accountId}`));
  const counters = page.getByLabel('Counters');
  await counters.getByText('1 call in flight', { exact: true }).waitFor();
  await counters.getByText(/^of the balance, and \d+ calls? in flight: granted in advance$/).waitFor();
  t.ok(await counters.getByText('Leased', { exact: true }).isVisible());
  call.outgoing.destroy();
  await counters.getByText('0 calls in flight', { exact: true }).waitFor();
  t.same(faults, []);
});

void t.test('hostile names are text, in every field', SKIP, async (t) => {
  const { gateway } = await sharedBed();
  const { page, faults } = await (await startBrowser(t)).open({ viewport: WIDE });
  page.on('dialog', (dialog) => t.fail(`a script ran: ${dialog.message()}`));
  const names = [
    '<script>alert(1)</script>',
    '<img src=x onerror=alert(1)>',
    'שלום <b>עולם</b>',
    `"'><svg onload=alert(1)>`,
    '=1+1',
    'x'.repeat(100),
  ];
  await signIn(page, gateway);
  for (const name of names) {
    const made = await gateway.admin.send('POST', '/admin/v1/accounts', {
      name,
      plan: 'ample',
      credit: '1.00',
    });
    const { id } = made.json() as { id: string };
    await gateway.admin.send('POST', '/admin/v1/keys', { account: id, name });
    await gateway.admin.send('POST', `/admin/v1/accounts/${id}/credit`, { amount: '1.00', note: name });
    await page.goto(at(gateway, `#/accounts/${id}`));
    await page.getByRole('heading', { name }).waitFor();
    await page.getByRole('rowheader', { name, exact: true }).waitFor();
    t.equal(await page.locator('.panel bdi').first().textContent(), name);
  }
  await page.getByLabel('Search').fill('<script>');
  await page.getByText('1 account', { exact: true }).waitFor();
  // Ten kilobytes are refused, in words that do not repeat them all.
  await page.getByRole('button', { name: 'New account' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('<b>'.repeat(3_500));
  await dialog.getByRole('button', { name: 'Create account' }).click();
  t.match(await dialog.getByRole('alert').textContent(), 'name must have 1 to 100 characters');
  t.match(faults.splice(0), [/400/]);
  t.equal(await page.locator('#app script, #app img, #app b:not(.tile b, .legend b)').count(), 0);
  t.same(faults, []);
});

void t.test('every page: no serious fault for assistive tools, no sideways scrolling', SKIP, async (t) => {
  const { gateway } = await startBed(t);
  const customer = await gateway.admin.customer();
  for (let count = 0; count < 5; count++) await gateway.chat(customer.key, 'Hello');
  await gateway.chat('sk-wrong', 'Hello');
  await gateway.admin.send('POST', '/admin/v1/operators', { name: 'vera', role: 'viewer' });
  const browser = await startBrowser(t);
  for (const viewport of [WIDE, PHONE]) {
    for (const colorScheme of ['light', 'dark'] as const) {
      const { page, faults } = await browser.open({ viewport, colorScheme });
      const name = `${viewport.width}-${colorScheme}`;
      await page.goto(at(gateway));
      await page.getByLabel('Admin token').waitFor();
      // Contrast is the theme's matter and room the width's: two of the four meet all of it.
      const judged = (viewport === WIDE) === (colorScheme === 'light');
      if (judged) t.same(await seriousFaults(page), [], `signing in, ${name}`);
      await signIn(page, gateway);
      // Each with what is there once it has been filled.
      for (const [place, filled] of [
        ['overview', page.getByRole('cell', { name: 'Healthy' })],
        ['accounts', page.getByRole('link', { name: 'customer-1' })],
        [`accounts/${customer.accountId}`, page.getByRole('rowheader', { name: 'test' })],
        ['usage', page.getByRole('rowheader', { name: 'Sum' })],
        ['playground', page.getByRole('log')],
        ['upstreams', page.getByRole('cell', { name: 'Healthy' })],
        ['settings', page.getByRole('rowheader', { name: 'listen.port' })],
        ['operators', page.getByRole('rowheader', { name: 'vera' })],
      ] as const) {
        await page.goto(at(gateway, `#/${place}`));
        await filled.first().waitFor();
        if (judged) t.same(await seriousFaults(page), [], `${place}, ${name}`);
        const tables = await page.locator('.table').count();
        const files = await page.locator('.table').getByText('Download CSV').count();
        t.equal(files, tables, `${place}, ${name}: each table can be had as CSV`);
        const beyond = await page.evaluate('document.documentElement.scrollWidth - innerWidth');
        t.ok((beyond as number) <= 0, `${place} fits ${name}, ${beyond as number} px beyond`);
        const top = await page.evaluate<number>(
          `document.querySelector('header').getBoundingClientRect().height`,
        );
        if (viewport === PHONE) t.ok(top < 80, `${place}: the bar of ${name} is ${top} px high`);
        await shoot(page, `${place.split('/').length > 1 ? 'account' : place}-${name}`);
      }
      t.same(faults, []);
    }
  }
});
