/**
 * Calls in the console, in a real browser: a support case from a failed call's id to the call that is good
 * again, the live tail and its filters, and where numbers lead.
 */
import t, { type Test } from 'tap';
import type { Page } from 'playwright-core';
import { startBed } from '../support/bed.js';
import { goTo, HAS_BROWSER, seriousFaults, shoot, signIn, startBrowser } from '../support/browser.js';
import { eventually, type Gateway, TEST_MODEL } from '../support/gateway.js';
import { steered } from '../support/mock.js';

const SKIP = HAS_BROWSER ? {} : { skip: 'Chromium is not installed' };
const WIDE = { width: 1440, height: 900 };
const PHONE = { width: 390, height: 844 };

const at = (gateway: Gateway, place: string): string => `http://127.0.0.1:${gateway.admin.port}/#/${place}`;

/** Sends a call and waits until the admin interface shows it; a call is on disk a second after its end. */
async function callOf(
  gateway: Gateway,
  key: string,
  prompt: string,
): Promise<{ id: string; status: number }> {
  const { status, headers } = await gateway.chat(key, prompt);
  const id = String(headers['x-request-id']);
  await eventually(`the call ${id} is kept`, async () => {
    const shown = await gateway.admin.send('GET', `/admin/v1/calls/${id}`);
    return shown.status === 200 ? true : undefined;
  });
  return { id, status };
}

const rowsOf = (page: Page): Promise<string[]> =>
  page.getByRole('region', { name: 'Calls' }).locator('tbody tr').allTextContents();

const countIs = (page: Page, count: number): Promise<true> =>
  eventually(`${count} rows`, async () => ((await rowsOf(page)).length === count ? true : undefined));

void t.test('a support case: from the id of a failed call to a good one', SKIP, async (t) => {
  const { gateway } = await startBed(t, { upstream: { park_max_ms: 60_000 } });
  const { key } = await gateway.admin.customer();
  await gateway.chat(key, 'Hello');
  // The upstream asks for a pause that outlasts its trouble.
  const first = await callOf(gateway, key, steered('status=429&retry_after=60'));
  const second = await callOf(gateway, key, 'Hello');
  t.not(first.status, 200);
  t.not(second.status, 200, 'the upstream is well again, but is not called');

  const { page, faults } = await (await startBrowser(t)).open({ viewport: WIDE });
  await signIn(page, gateway);
  await goTo(page, 'Calls');
  await page.getByLabel('Request id').fill(first.id);
  await page.getByRole('button', { name: 'Show', exact: true }).click();
  await page.getByRole('region', { name: 'Error' }).waitFor();
  const steps = await page.locator('.timeline > li').allTextContents();
  t.match(steps[0], /Arrived/);
  t.match(steps[1], /Admitted.*left of balance, the account.*left of requests per minute/s);
  const attempt = steps.find((step) => step.includes('Attempt on'));
  t.match(attempt, /status 429/, 'the cause');
  t.match(steps.at(-1), /End/);
  t.equal(await page.getByRole('link', { name: 'customer-1' }).count(), 1);
  await shoot(page, 'call-failed-1440');

  await page.goto(at(gateway, 'upstreams'));
  const errors = page.getByRole('region', { name: 'Last errors' });
  await errors.getByRole('cell', { name: '429', exact: true }).waitFor();
  await shoot(page, 'upstream-errors-1440');
  await errors.getByRole('link', { name: first.id }).click();
  await page.getByRole('button', { name: 'Call again now' }).click();
  await page.getByText('Done: called again.').waitFor();
  const third = await callOf(gateway, key, 'Hello');
  t.equal(third.status, 200, 'the call again is good');
  await page.goto(at(gateway, `calls/${third.id}`));
  await page.getByText('First token').first().waitFor();
  t.equal(await page.getByRole('region', { name: 'Error' }).count(), 0);
  await page.goto(at(gateway, 'calls/req_none-1'));
  t.match(await page.getByRole('alert').textContent(), /there is no call/);
  t.match(faults.splice(0), [/404/]);
});

void t.test('the tail is live, filters stand in the address, numbers lead to calls', SKIP, async (t) => {
  const { gateway } = await startBed(t);
  const one = await gateway.admin.customer();
  const other = await gateway.admin.customer();
  await callOf(gateway, one.key, 'Hello');
  await callOf(gateway, one.key, steered('status=400'));
  await callOf(gateway, other.key, 'Hello');
  const { page, faults } = await (await startBrowser(t)).open({ viewport: WIDE });
  await signIn(page, gateway);
  await goTo(page, 'Calls');
  await countIs(page, 3);

  await gateway.chat(other.key, 'Hello');
  await countIs(page, 4);
  await page.getByRole('button', { name: 'Pause' }).click();
  await callOf(gateway, other.key, 'Hello');
  await page.waitForTimeout(2_500);
  t.equal((await rowsOf(page)).length, 4, 'paused');
  await page.getByRole('button', { name: 'Go on live' }).click();
  await countIs(page, 5);

  await page.getByLabel('Account').fill('customer-1');
  await countIs(page, 2);
  await page.getByLabel('Outcome').selectOption('Failed');
  await countIs(page, 1);
  t.match(page.url(), /#\/calls\?account=customer-1&failed=true$/);
  await page.reload();
  await countIs(page, 1);
  t.equal(await page.getByLabel('Account').inputValue(), 'customer-1', 'after a reload too');
  await page.getByLabel('Account').fill('nobody');
  await page.getByRole('alert').waitFor();
  t.match(faults.splice(0), [/404/]);

  await leads(t, page, gateway, one.accountId);
  t.same(faults, []);
});

void t.test('older calls follow without a gap after the tail has cut the list', SKIP, async (t) => {
  const { gateway } = await startBed(t);
  const { key } = await gateway.admin.customer();
  await callOf(gateway, key, 'Hello');
  const { page, faults } = await (await startBrowser(t)).open({ viewport: WIDE });
  await signIn(page, gateway);
  await goTo(page, 'Calls');
  await countIs(page, 1);
  // More than the page keeps of a live list, but fewer at a time than make the tail begin anew.
  for (let calls = 1; calls < 500; calls += 80) {
    await Promise.all(Array.from({ length: 80 }, () => gateway.chat(key, 'Hello')));
    await countIs(page, Math.min(500, calls + 80));
  }
  await page.getByRole('button', { name: 'Show older calls' }).click();
  await countIs(page, 561);
  t.equal(await page.getByRole('button', { name: 'Show older calls' }).count(), 0, 'these are all');
  t.same(faults, []);
});

void t.test('a search that takes several pages goes on by itself', SKIP, async (t) => {
  const { gateway } = await startBed(t);
  const { key } = await gateway.admin.customer();
  await callOf(gateway, key, 'Hello');
  const { page, faults } = await (await startBrowser(t)).open({ viewport: WIDE });
  const cursors: string[] = [];
  // The first two pages come back empty, as of a search whose time was over.
  await page.route('**/admin/v1/calls?*', async (route) => {
    const asked = new URL(route.request().url());
    const cursor = asked.searchParams.get('cursor');
    if (asked.searchParams.has('after')) return route.continue();
    if (cursor !== null) cursors.push(cursor);
    if (cursor === 'page-2') {
      asked.searchParams.delete('cursor');
      return route.continue({ url: asked.href });
    }
    const next = cursor === null ? 'page-1' : 'page-2';
    const searched = { data: [], next, searched_to: '2026-01-31T12:00:00.000Z', newest: '0' };
    return route.fulfill({ json: searched });
  });
  await signIn(page, gateway);
  await goTo(page, 'Calls');
  await countIs(page, 1);
  t.same(cursors, ['page-1', 'page-2'], 'nobody had to ask for more');
  t.equal(await page.getByRole('button', { name: 'Show older calls' }).count(), 0);
  t.same(faults, []);
});

/** Each number leads to the calls that it counts. */
async function leads(t: Test, page: Page, gateway: Gateway, account: string): Promise<void> {
  const follow = async (place: string, region: string, row: string, number: string, rows: number) => {
    await page.goto(at(gateway, place));
    const link = page.getByRole('region', { name: region }).getByRole('row', { name: row });
    await link.getByRole('link', { name: number, exact: true }).first().click();
    await page.getByRole('heading', { name: 'Calls' }).waitFor();
    await countIs(page, rows);
    t.pass(`${place}: ${number}`);
  };
  await page.goto(at(gateway, `accounts/${account}`));
  await page.getByRole('link', { name: 'Failed calls' }).click();
  await countIs(page, 1);
  for (const tile of ['Spent', 'This minute', 'Today']) {
    await page.goto(at(gateway, `accounts/${account}`));
    const counters = page.locator('.tile').filter({ hasText: tile });
    await counters.getByRole('link').click();
    await countIs(page, 2);
    t.pass(`an account: ${tile}`);
  }
  await follow('upstreams', 'Upstreams', TEST_MODEL, '1', 1);
  await follow('usage', 'Usage', '20', '1', 1);
  await eachNumberLeads(t, page, gateway);
  await page.goto(at(gateway, 'usage'));
  await page.getByLabel('Lines by').selectOption('account');
  await page.getByRole('row', { name: 'customer-2' }).getByRole('link', { name: '3', exact: true }).click();
  await countIs(page, 3);
}

/** In tables of what calls have used, each number that is not 0 is a link to calls. */
async function eachNumberLeads(t: Test, page: Page, gateway: Gateway): Promise<void> {
  for (const [place, region] of [
    ['overview', 'Models'],
    ['overview', 'Busiest accounts'],
    ['usage', 'Usage'],
  ] as const) {
    await page.goto(at(gateway, place));
    const table = page.getByRole('region', { name: region });
    await table.locator('tbody td.figure').first().waitFor();
    const numbers = await table.locator('tbody td.figure').all();
    for (const number of numbers) {
      const text = (await number.textContent())!;
      if (Number(text) === 0) continue;
      const link = await number.getByRole('link').getAttribute('href');
      t.match(link, /^#\/calls\?/, `${region}: ${text}`);
    }
    t.ok(numbers.length >= 3, `${region} has ${numbers.length} numbers`);
  }
  const foot = page.getByRole('region', { name: 'Usage' }).locator('tfoot');
  t.equal(await foot.getByRole('link').count(), 8, 'each sum');
  await foot.getByRole('link', { name: '5', exact: true }).first().click();
  await countIs(page, 5);
  await page.goto(at(gateway, 'overview'));
  for (const tile of ['Latency', 'First token']) {
    const link = page.locator('.tile').filter({ hasText: tile }).getByRole('link');
    t.match(await link.getAttribute('href'), /^#\/calls\?failed=false/, tile);
  }
}

void t.test('calls at every width, light and dark', SKIP, async (t) => {
  const { gateway } = await startBed(t);
  const { key } = await gateway.admin.customer();
  await callOf(gateway, key, 'Hello');
  const failed = await callOf(gateway, key, steered('status=500'));
  await gateway.chat('sk-wrong', 'Hello');
  const browser = await startBrowser(t);
  for (const viewport of [WIDE, PHONE]) {
    for (const colorScheme of ['light', 'dark'] as const) {
      const { page, faults } = await browser.open({ viewport, colorScheme });
      const name = `${viewport.width}-${colorScheme}`;
      await signIn(page, gateway);
      for (const [place, filled] of [
        ['calls', page.getByRole('cell', { name: '401' })],
        [`calls/${failed.id}`, page.getByText('Attempt on').first()],
        ['changes', page.getByRole('cell', { name: 'accounts.create' })],
      ] as const) {
        await page.goto(at(gateway, place));
        await filled.first().waitFor();
        t.same(await seriousFaults(page), [], `${place}, ${name}`);
        const beyond = await page.evaluate<number>('document.documentElement.scrollWidth - innerWidth');
        t.ok(beyond <= 0, `${place} fits ${name}, ${beyond} px beyond`);
        await shoot(page, `${place.startsWith('calls/') ? 'call' : place}-${name}`);
      }
      await page.getByRole('button', { name: 'Verify' }).click();
      await page.getByText('none was altered or removed').waitFor();
      t.same(faults, []);
    }
  }
});

void t.test('contents and private keys, at every width, light and dark', SKIP, async (t) => {
  const { gateway } = await startBed(t, { call_log: { contents: 'all' } });
  const { key, accountId } = await gateway.admin.customer();
  const call = await callOf(gateway, key, `Hello ${'long '.repeat(200)}`);
  // The page looks once, and contents are on disk later than their call or before it.
  await eventually('the contents of the call', async () => {
    const { status } = await gateway.admin.send('GET', `/admin/v1/calls/${call.id}/contents`);
    return status === 200 ? true : undefined;
  });
  const browser = await startBrowser(t);
  for (const viewport of [WIDE, PHONE]) {
    for (const colorScheme of ['light', 'dark'] as const) {
      const { page, faults } = await browser.open({ viewport, colorScheme });
      const name = `${viewport.width}-${colorScheme}`;
      const looksWell = async (what: string): Promise<void> => {
        t.same(await seriousFaults(page), [], `${what}, ${name}`);
        const beyond = await page.evaluate<number>('document.documentElement.scrollWidth - innerWidth');
        t.ok(beyond <= 0, `${what} fits ${name}, ${beyond} px beyond`);
        await shoot(page, `${what}-${name}`);
      };
      await signIn(page, gateway);
      await page.goto(at(gateway, `calls/${call.id}`));
      await page.getByRole('button', { name: 'Show request and response' }).click();
      const request = page.getByLabel('Request', { exact: true });
      await request.waitFor();
      t.match(await request.textContent(), /Hello long/);
      t.match(await page.getByLabel('Response', { exact: true }).textContent(), /chat.completion/);
      await request.scrollIntoViewIfNeeded();
      await looksWell('contents');

      await page.goto(at(gateway, `accounts/${accountId}`));
      await page.getByRole('button', { name: 'New key' }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByLabel('Name').fill(`secret ${name}`);
      await dialog.getByLabel('Private').check();
      await looksWell('private-new');
      await dialog.getByRole('button', { name: 'Make key' }).click();
      await dialog.getByRole('button', { name: 'I have it' }).click();
      const row = page.getByRole('row', { name: `secret ${name}` });
      await row.scrollIntoViewIfNeeded();
      const badge = await row.getByText('Private', { exact: true }).first().boundingBox();
      const actions = await row.getByRole('button', { name: 'Rotate' }).boundingBox();
      const isBeside = badge!.x + badge!.width <= actions!.x;
      t.ok(isBeside || badge!.y + badge!.height <= actions!.y, `the badge is not covered, ${name}`);
      await looksWell('private-key');
      await row.getByRole('button', { name: 'Not private' }).click();
      await page.getByRole('dialog', { name: 'Key not private' }).waitFor();
      await looksWell('private-not');
      t.same(faults, []);
      await page.close();
    }
  }
});
