/**
 * Tables of the console at the widths that operators have: sorted, in full, and with every action within
 * reach.
 */
import { readFileSync } from 'node:fs';
import t from 'tap';
import type { Page } from 'playwright-core';
import { startBed } from '../support/bed.js';
import { goTo, HAS_BROWSER, shoot, signIn, startBrowser } from '../support/browser.js';
import { eventually } from '../support/gateway.js';

const SKIP = HAS_BROWSER ? {} : { skip: 'Chromium is not installed' };
const WIDTHS = [1440, 1024, 390] as const;
/** More than the rows in sight, and than a page of 100. */
const ACCOUNTS_MADE = 120;
const CREDITS = ['3.5', '0.123456789012', '1200', '20'] as const;
/** With twelve decimals and a whole part that leaves them no room. */
const LONG_CREDIT = '654321.123456789012';

/** Of a long name without a space. */
const NAME_LENGTH = 60;

/** Whether a click in the middle of what `selector` finds would reach it, after it was scrolled to. */
const reaches = (page: Page, selector: string): Promise<boolean> =>
  page.evaluate(`(() => {
    const element = document.querySelector(${JSON.stringify(selector)});
    element.scrollIntoView({ block: 'center', inline: 'nearest' });
    const { left, top, width, height } = element.getBoundingClientRect();
    const found = document.elementFromPoint(left + width / 2, top + height / 2);
    return left >= 0 && left + width <= innerWidth && (found === element || element.contains(found));
  })()`);

/** The texts of counters that take more than a line. */
const brokenTiles = (page: Page): Promise<string[]> =>
  page.evaluate(`[...document.querySelectorAll('.tiles.small .tile b')].flatMap((value) => {
    const { height } = value.getBoundingClientRect();
    return height > 2 * parseFloat(getComputedStyle(value).fontSize) ? [value.textContent] : [];
  })`);

/** Names that are wider than their cell, or than the panel. */
const tooWide = (page: Page): Promise<string[]> =>
  page.evaluate(`[...document.querySelectorAll('.panel .name')].flatMap((name) => {
    const place = name.closest('th, td, .panel-head');
    return name.getBoundingClientRect().right > place.getBoundingClientRect().right ? [name.textContent] : [];
  })`);

const namesOf = (page: Page): Promise<string[]> => page.locator('.rows .row-name .name').allTextContents();

void t.test('sorted, in full, within reach', SKIP, async (t) => {
  const { gateway } = await startBed(t);
  const { admin } = gateway;
  const ids: string[] = [];
  for (const credit of CREDITS) {
    const { accountId, key } = await admin.customer({ credit });
    ids.push(accountId);
    await Promise.all(ids.map(() => gateway.chat(key, 'Hello')));
  }
  const { page, faults } = await (await startBrowser(t)).open({ viewport: { width: 1440, height: 900 } });
  const open = (place: string): Promise<unknown> => page.goto(`http://127.0.0.1:${admin.port}/#/${place}`);
  await open('accounts');
  await page.getByLabel('Admin token').fill(admin.token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.locator('[data-row="3"]').waitFor();
  const created = await namesOf(page);

  const sortBy = async (name: string, expected: readonly string[]): Promise<void> => {
    await page.getByRole('button', { name }).click();
    await eventually(`${name}: ${expected.join(', ')}`, async () =>
      JSON.stringify(await namesOf(page)) === JSON.stringify(expected) ? true : undefined,
    );
    t.same(await namesOf(page), expected, name);
  };
  const [first, second, third, fourth] = created as [string, string, string, string];
  const byBalance = [third, fourth, first, second];
  await sortBy('Balance', byBalance);
  await sortBy('Balance, sorted downwards', byBalance.toReversed());
  await sortBy('Balance, sorted upwards', created);
  await sortBy('Today', created.toReversed());
  await sortBy('Name', created);
  await sortBy('Name, sorted upwards', created.toReversed());
  await page.getByLabel('Search').fill('customer-3');
  await sortBy('Name, sorted downwards', [third]);
  await page.getByLabel('Search').fill('');

  const balance = page.locator('.row', { hasText: second }).locator('.row-balance span[title]');
  await balance.waitFor();
  t.match(await balance.getAttribute('title'), /^0\.123\d{9}$/, 'money in full under the pointer');

  const { accountId: longId } = await admin.customer({ credit: LONG_CREDIT });
  const { body } = await admin.send('POST', '/admin/v1/groups', { name: 'g'.repeat(NAME_LENGTH) });
  const { id: group } = JSON.parse(body) as { id: string };
  await admin.send('POST', `/admin/v1/accounts/${longId}/set-group`, { group });
  await admin.send('POST', '/admin/v1/keys', { account: longId, name: 'k'.repeat(NAME_LENGTH) });
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 900 });
    await open(`accounts/${ids[1]!}`);
    for (const action of ['Rotate', 'Disable', 'Delete']) {
      const button = `button[aria-label^="${action} key"]`;
      await page.locator(button).waitFor();
      t.ok(await reaches(page, button), `${action} at ${width} px`);
    }
    await shoot(page, `keys-${width}`);
    await open(`accounts/${longId}`);
    await page
      .locator('.tile')
      .filter({ hasText: 'Balance' })
      .getByText('654,321', { exact: true })
      .waitFor();
    t.same(await brokenTiles(page), [], `no counter takes two lines at ${width} px`);
    await page.locator('.marks a .name').waitFor();
    await page.locator('.keys .name', { hasText: 'kkk' }).waitFor();
    t.same(await tooWide(page), [], `no name leaves its place at ${width} px`);
    await shoot(page, `counters-${width}`);
    for (const place of ['usage', 'upstreams']) {
      await open(place);
      const last = '.table-box tbody tr:first-child > :last-child';
      await page.locator(last).first().waitFor();
      t.ok(await reaches(page, last), `the last column of ${place} at ${width} px`);
      await page.evaluate(`document.querySelector('.table-box').scrollLeft = 0`);
      await shoot(page, `${place}-${width}`);
    }
  }

  await page.setViewportSize({ width: 700, height: 900 });
  await open('overview');
  await page.locator('.chart canvas').first().waitFor();
  await shoot(page, 'overview-700');
  // What a chart draws is told by nothing but its picture.
  await open(`accounts/${ids[1]!}`);
  await page.setViewportSize({ width: 390, height: 900 });
  await page.locator('.chart canvas').first().waitFor();
  await page.evaluate(`document.querySelector('.chart').scrollIntoView()`);
  await shoot(page, 'chart-390');
  await open('nowhere');
  await page.getByRole('heading', { name: 'There is no page “nowhere”' }).waitFor();
  t.same(faults, []);
});

void t.test('every table is a CSV that no spreadsheet runs', SKIP, async (t) => {
  const { gateway } = await startBed(t);
  const { admin } = gateway;
  const made = await admin.send('POST', '/admin/v1/accounts', {
    name: '=1+1',
    plan: 'ample',
    credit: '3.50',
  });
  const { id } = made.json() as { id: string };
  for (const name of ['@SUM(A1)', 'plain', 'a,"b"']) {
    await admin.send('POST', '/admin/v1/keys', { account: id, name });
  }
  for (let count = 0; count < ACCOUNTS_MADE; count++) await admin.customer();
  const { page, faults } = await (await startBrowser(t)).open({ viewport: { width: 1440, height: 900 } });
  await page.goto(`http://127.0.0.1:${admin.port}/`);
  await page.getByLabel('Admin token').fill(admin.token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  const linesOf = async (place: string, label: string): Promise<string[]> => {
    await page.goto(`http://127.0.0.1:${admin.port}/#/${place}`);
    const button = page.getByRole('button', { name: `Download CSV: ${label}`, exact: true });
    const [file] = await Promise.all([page.waitForEvent('download'), button.click()]);
    t.equal(file.suggestedFilename(), `${label.toLowerCase()}.csv`);
    const text = readFileSync(await file.path(), 'utf8');
    t.ok(text.startsWith('\ufeff') && text.endsWith('\r\n'), `${label}: UTF-8, whole lines`);
    return text.slice(1, -2).split('\r\n');
  };
  const accounts = await linesOf('accounts', 'Accounts');
  t.equal(accounts.length, 1 + 1 + ACCOUNTS_MADE, 'all accounts, not only those in sight');
  t.match(accounts[0], /^Name,Id,Plan,.*,Balance,/);
  t.match(accounts[1], new RegExp(`^"'=1\\+1",${id},ample,,Active,0,0,3\\.50,`));
  const keys = await linesOf(`accounts/${id}`, 'Keys');
  t.equal(keys[0], 'Name,Begins with,State,Last used');
  t.match(keys[1], /^"'@SUM\(A1\)",sk-[\w-]+…,Active,$/);
  t.match(keys[3], /^"a,""b""",sk-/);
  const upstreams = await linesOf('upstreams', 'Upstreams');
  t.match(upstreams[0], /^Model,Upstream,State,In flight,Limits,/, 'without the heads of what is not shown');
  const settings = await linesOf('settings', 'Settings');
  t.ok(settings.some((line) => line.startsWith('listen.port,')));
  t.same(faults, []);
});

void t.test('values of settings have room beside the long name of a model', SKIP, async (t) => {
  const { gateway } = await startBed(t);
  const { page, faults } = await (await startBrowser(t)).open();
  await signIn(page, gateway);
  await page.route('**/admin/v1/settings', async (route) => {
    const response = await route.fetch();
    const text = await response.text();
    // Without the headers of `response`, of which one has the length of the former body.
    const body = text.replaceAll('"models.', `"models.${'long-'.repeat(25)}`);
    await route.fulfill({ contentType: 'application/json', body });
  });
  for (const width of [1440, 1024]) {
    await page.setViewportSize({ width, height: 900 });
    await goTo(page, 'Overview');
    await goTo(page, 'Settings');
    const names = page.locator('.settings tbody th', { hasText: 'long-long-' });
    await names.first().waitFor();
    const widths = await page.evaluate<number[]>(
      `[...document.querySelectorAll('.settings td.value')].map((cell) => cell.offsetWidth)`,
    );
    t.ok(Math.min(...widths) >= 200, `${width}: ${Math.min(...widths)} px`);
  }
  t.same(faults, []);
});

void t.test('who saves calls is told if the gateway cannot read all of them', SKIP, async (t) => {
  const { gateway } = await startBed(t);
  const { admin } = gateway;
  const { key } = await admin.customer({});
  await gateway.chat(key, 'Hello');
  const { page } = await (await startBrowser(t)).open();
  await page.goto(`http://127.0.0.1:${admin.port}/#/calls`);
  await page.getByLabel('Admin token').fill(admin.token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  const button = page.getByRole('button', { name: 'Download CSV: Calls', exact: true });
  await button.waitFor();
  // The list that is shown has 100 calls a page, the file 1,000.
  await page.route('**/admin/v1/calls?*limit=1000*', async (route) => {
    const response = await route.fetch();
    const view = (await response.json()) as object;
    await route.fulfill({ response, json: { ...view, unread: ['1.calls: EACCES'] } });
  });
  const [file] = await Promise.all([page.waitForEvent('download'), button.click()]);
  t.match(readFileSync(await file.path(), 'utf8'), /req_/);
  await page.getByText('Rows may be missing in the file: the gateway cannot read 1.calls: EACCES.').waitFor();
});
