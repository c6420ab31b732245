/**
 * Rules of the console's pages, in a real browser: what is sent once, what is asked for only by a click, what
 * is shown only to whom may use it, and that values of two ranges are never mixed.
 */
import t from 'tap';
import type { Page, Route } from 'playwright-core';
import { shareBed } from '../support/bed.js';
import { HAS_BROWSER, signIn, startBrowser } from '../support/browser.js';
import { eventually, type Gateway } from '../support/gateway.js';
import type { Scope } from '../support/mock.js';

const SKIP = HAS_BROWSER ? {} : { skip: 'Chromium is not installed' };
const sharedBed = shareBed(t, { call_log: { contents: 'all' } });

async function openConsole(t: Scope, token?: string): Promise<{ page: Page; gateway: Gateway }> {
  const { gateway } = await sharedBed();
  const { page } = await (await startBrowser(t)).open({ viewport: { width: 1440, height: 900 } });
  await signIn(page, gateway, token);
  return { page, gateway };
}

const at = (gateway: Gateway, place: string): string => `http://127.0.0.1:${gateway.admin.port}/#/${place}`;

void t.test('a credit whose response was lost is booked once', SKIP, async (t) => {
  const { page, gateway } = await openConsole(t);
  const { accountId } = await gateway.admin.customer({ credit: '1.00' });
  await page.goto(at(gateway, `accounts/${accountId}`));
  await page.getByRole('button', { name: 'Add credit' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Amount').fill('5.00');
  const keys: string[] = [];
  await page.route('**/credit', async (route) => {
    keys.push((route.request().postDataJSON() as { idempotency_key: string }).idempotency_key);
    if (keys.length > 1) return route.continue();
    await route.fetch();
    return route.abort();
  });
  await dialog.getByRole('button', { name: 'Book it' }).click();
  await dialog.getByRole('alert').waitFor();
  await dialog.getByRole('button', { name: 'Book it' }).click();
  await dialog.waitFor({ state: 'detached' });
  t.equal((await gateway.admin.account(accountId)).balance, '6.00');
  t.match(keys[0], /^console-[0-9a-f]{32}$/);

  await page.getByRole('button', { name: 'Add credit' }).click();
  await dialog.getByLabel('Amount').fill('5.00');
  await dialog.getByRole('button', { name: 'Book it' }).click();
  await dialog.waitFor({ state: 'detached' });
  t.equal((await gateway.admin.account(accountId)).balance, '11.00', 'another dialog is another credit');
  t.equal(new Set(keys).size, 2, keys.join());
});

void t.test('a question does what it asks, also if another operator was faster', SKIP, async (t) => {
  const { page, gateway } = await openConsole(t);
  const { accountId } = await gateway.admin.customer();
  await page.goto(at(gateway, `accounts/${accountId}`));
  await page.getByRole('button', { name: 'Disable', exact: true }).first().click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('From now on all keys').waitFor();
  await gateway.admin.send('POST', `/admin/v1/accounts/${accountId}/disable`, {});
  await page.locator('.panel').getByText('Disabled', { exact: true }).waitFor();
  t.equal(await dialog.getByRole('heading').textContent(), 'Disable account');
  await dialog.locator('button[type=submit]').click();
  await dialog.waitFor({ state: 'detached' });
  t.equal((await gateway.admin.account(accountId)).active, false, 'nobody has asked to enable it');
});

void t.test('contents of a call are asked for by a click alone', SKIP, async (t) => {
  const { page, gateway } = await openConsole(t);
  const { key } = await gateway.admin.customer();
  const calls: string[] = [];
  for (const prompt of ['one', 'two']) {
    const { headers } = await gateway.chat(key, prompt);
    const id = String(headers['x-request-id']);
    calls.push(id);
    // The page looks once. Call and contents are on disk up to a second after the response.
    await eventually(`the contents of ${id}`, async () => {
      const { status } = await gateway.admin.send('GET', `/admin/v1/calls/${id}/contents`);
      const call = await gateway.admin.send('GET', `/admin/v1/calls/${id}`);
      return status === 200 && call.status === 200 ? true : undefined;
    });
  }
  const asked: string[] = [];
  page.on('request', (request) => {
    if (request.url().endsWith('/contents')) asked.push(request.url());
  });
  const show = page.getByRole('button', { name: 'Show request and response' });
  await page.goto(at(gateway, `calls/${calls[0]}`));
  await show.waitFor();
  t.same(asked, []);
  await show.click();
  await page.getByLabel('Request', { exact: true }).waitFor();
  t.equal(asked.length, 1);
  await page.goto(at(gateway, `calls/${calls[1]}`));
  await show.waitFor();
  t.equal(asked.length, 1, 'nobody has asked for those of the next call');
});

void t.test(
  'a viewer sees groups, accounts and upstreams, and no button that changes them',
  SKIP,
  async (t) => {
    const { gateway } = await sharedBed();
    const made = await gateway.admin.send('POST', '/admin/v1/operators', { name: 'vera', role: 'viewer' });
    const group = await gateway.admin.group({ calls_per_day: 5 });
    const { accountId } = await gateway.admin.customer({ group });
    const { name } = await gateway.admin.account(accountId);
    const { page } = await openConsole(t, (made.json() as { token: string }).token);
    const buttonsAt = async (place: string, filled: string): Promise<string[]> => {
      await page.goto(at(gateway, place));
      await page.getByText(filled).first().waitFor();
      const texts = await page.locator('#content').getByRole('button').allTextContents();
      return texts.map((text) => text.trim());
    };
    const changing =
      /^New|account$|credit|Change|Disable|Enable|key|Rotate|Limits|Private|Delete|Reset|again/;
    for (const [place, filled] of [
      [`groups/${group}`, name],
      [`accounts/${accountId}`, 'Begins with'],
      ['upstreams', 'Healthy'],
    ] as const) {
      const texts = await buttonsAt(place, filled);
      t.ok(texts.includes('Download CSV'), `${place} is there: ${texts.join()}`);
      t.same(
        texts.filter((text) => changing.test(text)),
        [],
        place,
      );
    }
  },
);

void t.test('charts of another range wait for its values', SKIP, async (t) => {
  const { page, gateway } = await openConsole(t);
  const { accountId, key } = await gateway.admin.customer();
  await gateway.chat(key, 'Hello');
  let held: Route | undefined;
  await page.route('**/history?range=1h', (route) => {
    held ??= route;
  });
  await page.goto(at(gateway, `accounts/${accountId}`));
  const charts = page.getByRole('region', { name: 'Course' }).locator('.chart');
  await charts.first().waitFor();
  await page.getByRole('button', { name: '1 hour' }).click();
  const route = await eventually('the request of the other range', () => held);
  t.equal(await charts.count(), 0, 'those of five minutes are gone');
  await route.continue();
  await charts.first().waitFor();
});

void t.test('a choice shows its value, also if that is no option any more', SKIP, async (t) => {
  const { page, gateway } = await openConsole(t);
  await page.goto(at(gateway, 'calls?model=removed'));
  const model = page.getByLabel('Model');
  await page.getByText('No such calls are kept.').waitFor();
  t.equal(await model.inputValue(), 'removed');
  await model.selectOption('All');
  await eventually('all calls', () => (page.url().endsWith('#/calls') ? true : undefined));
  await model.locator('option').filter({ hasText: 'removed' }).waitFor({ state: 'detached' });

  const { accountId } = await gateway.admin.customer();
  const { plan } = (await gateway.admin.account(accountId)) as unknown as { plan: string };
  await page.route('**/admin/v1/plans', async (route) => {
    const response = await route.fetch();
    const { data } = (await response.json()) as { data: object[] };
    await route.fulfill({ json: { data: [{ ...data[0], id: 'new' }], next: null } });
  });
  await page.goto(at(gateway, `accounts/${accountId}`));
  await page.getByRole('button', { name: 'Change plan' }).click();
  const choice = page.getByRole('dialog').getByLabel('Plan');
  t.equal(await choice.inputValue(), plan, 'the plan that the settings lack');
  await choice.selectOption('new');
  t.equal(await choice.inputValue(), 'new');
});
