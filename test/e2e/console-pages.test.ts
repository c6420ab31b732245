/** Pages of the console in a real browser: what they say if the gateway answers in part, late or with 401. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import type { Page, Route } from 'playwright-core';
import { shareBed, startBed, type Bed } from '../support/bed.js';
import { goTo, HAS_BROWSER, signIn, startBrowser, type WatchedPage } from '../support/browser.js';
import { eventually, TEST_MODEL, type Gateway } from '../support/gateway.js';
import { type Scope, steered } from '../support/mock.js';

const SKIP = HAS_BROWSER ? {} : { skip: 'Chromium is not installed' };
const WIDE = { width: 1440, height: 900 };

const sharedBed = shareBed(t);

async function startConsole(
  t: Scope,
  bed: Promise<Bed> = sharedBed(),
): Promise<WatchedPage & { gateway: Gateway }> {
  const { gateway } = await bed;
  const watched = await (await startBrowser(t)).open({ viewport: WIDE });
  await signIn(watched.page, gateway);
  return { ...watched, gateway };
}

async function ask(page: Page, key: string, message: string): Promise<void> {
  await goTo(page, 'Playground');
  await page.getByLabel('Model').selectOption(TEST_MODEL);
  await page.getByLabel('API key').fill(key);
  await page.getByLabel('Message', { exact: true }).fill(message);
  await page.keyboard.press('Enter');
}

void t.test('a wrong key in the playground is told, and ends no session', SKIP, async (t) => {
  const { page } = await startConsole(t);
  await ask(page, `sk-${'a'.repeat(43)}`, 'Hello');
  const alert = page.getByRole('log').getByRole('alert');
  t.match(await alert.textContent(), 'The API key is not known');
  const session = page.waitForResponse('**/admin/session');
  await page.getByRole('button', { name: 'Send' }).waitFor();
  await page.getByLabel('Message', { exact: true }).fill('Again');
  await page.keyboard.press('Enter');
  await (await session).finished();
  await sleep(200);
  t.ok(await page.getByRole('heading', { name: 'Playground' }).isVisible());
  t.equal(await page.getByLabel('Admin token').count(), 0);
});

void t.test('Enter sends nothing without a key, nor in a text that is being composed', SKIP, async (t) => {
  const { page } = await startConsole(t);
  await goTo(page, 'Playground');
  await page.getByLabel('Model').selectOption(TEST_MODEL);
  const message = page.getByLabel('Message', { exact: true });
  await message.fill('日本');
  await message.press('Enter');
  await sleep(200);
  t.equal(await page.locator('.turn').count(), 0);
  t.equal(await message.inputValue(), '日本', 'it stays until there is a key');
  await page.getByLabel('API key').fill(`sk-${'a'.repeat(43)}`);
  await message.dispatchEvent('keydown', { key: 'Enter', isComposing: true });
  await sleep(200);
  t.equal(await page.locator('.turn').count(), 0);
  t.equal(await message.inputValue(), '日本', 'it stays to be finished');
  await message.press('Enter');
  await page.locator('.turn').first().waitFor();
});

void t.test('a call of the playground ends with its page', SKIP, async (t) => {
  const { page, gateway } = await startConsole(t);
  const { accountId, key } = await gateway.admin.customer();
  await ask(page, key, steered('chunks=10000&chunk_ms=20'));
  await page.locator('.by-model', { hasText: /\w/ }).waitFor();
  await goTo(page, 'Overview');
  await eventually('the end of the call', async () => {
    const { body } = await gateway.admin.send('GET', `/admin/v1/calls?code=client_gone&account=${accountId}`);
    return (JSON.parse(body) as { data: object[] }).data[0];
  });
});

void t.test('a new key is shown until it is taken, also if the session ends', SKIP, async (t) => {
  const { page, gateway } = await startConsole(t);
  const { accountId } = await gateway.admin.customer();
  await page.goto(`http://127.0.0.1:${gateway.admin.port}/#/accounts/${accountId}`);
  await page.getByRole('button', { name: 'New key' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('laptop');
  await dialog.getByRole('button', { name: 'Make key' }).click();
  await dialog.getByTestId('new-key').waitFor();
  const refused = page.waitForResponse(
    (response) => response.status() === 401 && response.url().includes('/admin/v1/'),
  );
  const session = page.waitForResponse('**/admin/session');
  await page.context().clearCookies();
  await Promise.all([refused, session]);
  await sleep(500);
  t.match(await dialog.getByTestId('new-key').textContent(), /^sk-/);
  await dialog.getByRole('button', { name: 'I have it' }).click();
  await page.getByLabel('Admin token').waitFor();
});

void t.test(
  'a new key stays, and then the page, if the session ends and begins elsewhere',
  SKIP,
  async (t) => {
    const { page, gateway } = await startConsole(t);
    const { accountId } = await gateway.admin.customer();
    await page.goto(`http://127.0.0.1:${gateway.admin.port}/#/accounts/${accountId}`);
    await page.getByRole('button', { name: 'New key' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name').fill('laptop');
    await dialog.getByRole('button', { name: 'Make key' }).click();
    await dialog.getByTestId('new-key').waitFor();
    for (let times = 0; times < 3; times++) await page.keyboard.press('Escape');
    t.match(await dialog.getByTestId('new-key').textContent(), /^sk-/, 'Escape does not lose it');
    const { hash } = new URL(page.url());
    for (const leave of ['history.back()', "location.hash = '#/operators'"]) {
      await page.evaluate(leave);
      await sleep(300);
      t.match(await dialog.getByTestId('new-key').textContent(), /^sk-/, `${leave} does not lose it`);
      t.equal(new URL(page.url()).hash, hash);
    }
    const otherTab = await page.context().newPage();
    await otherTab.goto(`http://127.0.0.1:${gateway.admin.port}/`);
    const asked = page.waitForResponse('**/admin/session');
    await otherTab.getByRole('button', { name: 'Sign out' }).click();
    await (await asked).finished();
    await page.getByText('Connecting…').waitFor();
    await signIn(otherTab, gateway);
    await dialog.getByRole('button', { name: 'I have it' }).click();
    await dialog.waitFor({ state: 'detached' });
    await page.getByText('Serving').waitFor();
    await page.getByRole('region', { name: 'Account', exact: true }).waitFor();
    t.equal(await page.getByLabel('Admin token').count(), 0);
  },
);

void t.test('the gateway is not said to serve before its status has come', SKIP, async (t) => {
  const { page } = await startConsole(t);
  await page.addInitScript(`window.EventSource = class extends EventTarget {
    constructor() {
      super();
      const data = '{"seconds":2,"spans":[]}';
      setTimeout(() => {
        this.dispatchEvent(new MessageEvent('history', { data }));
        window.hasHistory = true;
      });
    }
    close() {}
  }`);
  await page.reload();
  // By the debugger, which the page’s policy does not bind.
  await eventually(
    'the history',
    async () => (await page.evaluate<boolean>('window.hasHistory')) || undefined,
  );
  await sleep(200);
  t.equal(await page.locator('.health').textContent(), 'Connecting…');
});

void t.test('a question stays until its action has ended', SKIP, async (t) => {
  const { page, gateway } = await startConsole(t);
  const { accountId } = await gateway.admin.customer();
  await page.goto(`http://127.0.0.1:${gateway.admin.port}/#/accounts/${accountId}`);
  let held: Route | undefined;
  await page.route('**/admin/v1/keys', (route) => void (held = route));
  const dialog = page.getByRole('dialog');
  const make = async (): Promise<void> => {
    held = undefined;
    await dialog.getByRole('button', { name: 'Make key' }).click();
    await eventually('the request', () => held);
    // Twice, because Chromium heeds a page's veto once.
    for (let times = 0; times < 3; times++) await page.keyboard.press('Escape');
  };
  await page.getByRole('button', { name: 'New key' }).click();
  await dialog.getByLabel('Name').fill('laptop');
  await make();
  t.ok(await dialog.getByLabel('Name').isVisible(), 'it would seem to be cancelled');
  t.ok(await dialog.getByRole('button', { name: 'Cancel' }).isDisabled());
  await held!.fulfill({ status: 503, json: { error: { message: 'not now' } } });
  await dialog.getByText('not now').waitFor();
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'New key' }).click();
  await dialog.getByLabel('Name').fill('laptop');
  await make();
  await held!.continue();
  t.match(await dialog.getByTestId('new-key').textContent(), /^sk-/);
});

void t.test('a code sample runs as it stands, whatever is typed', SKIP, async (t) => {
  const { page } = await startConsole(t);
  await goTo(page, 'Playground');
  await page.getByLabel('Model').selectOption(TEST_MODEL);
  const text = 'it\'s $HOME `id` "!" \\n';
  await page.getByLabel('Message', { exact: true }).fill(text);
  await page.getByLabel('Base address').fill(' http://127.0.0.1:1/v1?a=b&c=$HOME/ ');
  const code = (await page.getByRole('region', { name: 'Request in curl' }).textContent()) ?? '';
  const shown = spawnSync('sh', ['-c', `curl() { printf '%s\\0' "$@"; }; ${code}`], { encoding: 'utf8' });
  const words = shown.stdout.split('\0');
  t.equal(words[0], 'http://127.0.0.1:1/v1?a=b&c=$HOME/chat/completions');
  const { messages } = JSON.parse(words.at(-2) ?? '') as { messages: { content: string }[] };
  t.equal(messages.at(-1)?.content, text);
});

void t.test('a token that has expired is rotated with a new end', SKIP, async (t) => {
  const { page, gateway } = await startConsole(t);
  const ann = { name: 'ann', role: 'viewer', expires_in: 1 };
  t.equal((await gateway.admin.send('POST', '/admin/v1/operators', ann)).status, 200);
  await goTo(page, 'Operators');
  await page.getByRole('cell', { name: 'Expired' }).waitFor();
  const dialog = page.getByRole('dialog');
  const rotate = async (choice?: string): Promise<{ expires: number | null; expired: boolean }> => {
    await page.getByRole('button', { name: 'Rotate operator ann' }).click();
    if (choice !== undefined) await dialog.getByLabel('The new token lasts').selectOption(choice);
    await dialog.getByRole('button', { name: 'Make the new token' }).click();
    t.match(await dialog.getByTestId('new-token').textContent(), /^tgop_/);
    await dialog.getByRole('button', { name: 'I have it' }).click();
    const answer = await gateway.admin.send('GET', '/admin/v1/operators/ann');
    return answer.json() as { expires: number | null; expired: boolean };
  };
  const { expires, expired } = await rotate();
  t.equal(expired, false);
  await page.getByRole('cell', { name: 'Until' }).waitFor();
  t.equal((await rotate()).expires, expires, 'as the former one');
  t.ok((await rotate('1 year')).expires! > expires!);
});

void t.test('changes: a page without rows is no end, and what came late is dropped', SKIP, async (t) => {
  const { page } = await startConsole(t);
  const row = (number: number, who: string): object => ({
    ...{ number, at_ms: 1_763_950_000_000, who, role: 'admin', from: '127.0.0.1', action: 'keys.rotate' },
    ...{ target: { type: 'key', id: null, name: 'laptop' }, changes: [], hash: 'ab'.repeat(32) },
  });
  const reload = {
    target: { type: 'settings', id: null, name: null },
    changes: [
      { field: 'plans.my_own (added)', before: null, after: null },
      { field: 'limits.body_bytes', before: '1', after: null },
    ],
  };
  let isEndless = false;
  let held: Route | undefined;
  await page.route('**/admin/v1/changes?*', async (route) => {
    const query = new URL(route.request().url()).searchParams;
    const cursor = query.get('cursor');
    const who = query.get('who');
    if (who === 'slow') held = route;
    else if (who === 'sam')
      await route.fulfill({ json: { data: [{ ...row(5, 'sam'), ...reload }], next: null } });
    else if (isEndless || (who === 'ann' && cursor === null))
      await route.fulfill({ json: { data: [], next: '5' } });
    else await route.fulfill({ json: { data: [row(4, who ?? 'bob')], next: who === 'old' ? '3' : null } });
  });
  const rows = page.getByRole('region', { name: 'Changes' });
  await goTo(page, 'Changes');
  await rows.getByText('bob').waitFor();
  const who = page.getByLabel('Who');
  await who.fill('ann');
  await rows.getByText('ann').waitFor();
  await who.fill('old');
  await rows.getByText('old').waitFor();
  const older = page.getByRole('button', { name: 'Show older changes' });
  t.ok(await older.isEnabled());
  await who.fill('slow');
  t.notOk(await older.isEnabled(), 'not those of the new filter below those of the former one');
  await eventually('the slow request', () => held);
  await who.fill('eve');
  await rows.getByText('eve').waitFor();
  await held!.fulfill({ json: { data: [row(9, 'slow')], next: null } });
  await sleep(500);
  t.equal(await rows.getByText('slow').count(), 0);
  await who.fill('sam');
  await rows.getByText('sam').waitFor();
  t.same(
    await rows.locator('.values').allTextContents(),
    ['plans.my_own (added)', 'limits.body_bytes 1 → none'],
    'an entry that came has no values, and paths stay as they are',
  );
  const saved = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Download CSV: Changes' }).click();
  t.match(
    readFileSync(await (await saved).path(), 'utf8'),
    'plans.my_own (added); limits.body_bytes: 1 → none',
    'in the CSV too',
  );
  isEndless = true;
  await who.fill('ann');
  await page.getByText('No such changes were found yet.').waitFor();
  await page.getByRole('button', { name: 'Show older changes' }).waitFor();
  t.equal(await page.getByText('No such changes are on record.').count(), 0);

  await page.getByRole('button', { name: 'Verify' }).click();
  await page.getByText('none was altered or removed').waitFor();
  t.equal(await page.getByRole('alert').count(), 0, 'nothing is wrong');
  await page.route('**/admin/v1/changes/verify', (route) => route.fulfill({ status: 500, json: {} }));
  await page.getByRole('button', { name: 'Verify' }).click();
  await page.getByRole('alert').waitFor();
  t.equal(await page.getByText('none was altered or removed').count(), 0, 'of this check nothing is known');
});

void t.test('long names leave the changes their room, and the page its width', SKIP, async (t) => {
  const { page, gateway } = await startConsole(t);
  const name = 'Aktiengesellschaft-'.repeat(5);
  await gateway.admin.send('POST', '/admin/v1/operators', { name: name.slice(0, 60), role: 'viewer' });
  await gateway.admin.group({ name });
  await page.setViewportSize({ width: 1_280, height: 800 });
  await goTo(page, 'Changes');
  const table = page.getByRole('region', { name: 'Changes' });
  const changes = table.locator('td.value').first();
  await changes.waitFor();
  const { width } = (await changes.boundingBox())!;
  t.ok(width >= 200, `${width} px`);
  const hidden = await page.evaluate<number>(
    "(({ clientWidth, scrollWidth }) => scrollWidth - clientWidth)(document.querySelector('.table-box'))",
  );
  t.equal(hidden, 0, 'nothing of it is beyond the edge');
});

void t.test('the year of a moment can be typed', SKIP, async (t) => {
  const { page, gateway } = await startConsole(t);
  await page.goto(`http://127.0.0.1:${gateway.admin.port}/#/changes?from=1763950000`);
  const from = page.getByLabel('From');
  const before = await from.inputValue();
  await from.focus();
  // Month and day are left as they are.
  for (const key of ['Tab', 'Tab', '2', '0', '2', '4']) {
    await page.keyboard.press(key);
    await sleep(300);
  }
  t.equal(await from.inputValue(), before.replace(/^\d{4}/, '2024'));
  await eventually('the address', () => (/from=17\d{8}$/.test(page.url()) ? true : undefined));
  const address = page.url();
  await from.blur();
  await from.focus();
  for (const key of ['Tab', 'Tab', '1', '2', '0', '2', '4']) await page.keyboard.press(key);
  await sleep(500);
  t.equal(await from.inputValue(), before.replace(/^\d{4}/, '12024'), 'a digit too many can be seen');
  t.equal(page.url(), address, 'and is no moment');
});

void t.test('an account that the filter finds no longer leaves the list', SKIP, async (t) => {
  // All accounts of a gateway are counted.
  const { page, gateway } = await startConsole(t, startBed(t));
  for (const name of ['ann', 'bob', 'eve'])
    await gateway.admin.send('POST', '/admin/v1/accounts', { name, plan: 'ample' });
  await goTo(page, 'Accounts');
  await page.getByLabel('State').selectOption({ label: 'Active' });
  const list = page.getByRole('list', { name: 'Accounts' });
  await page.getByText('3 accounts', { exact: true }).waitFor();
  const turn = async (verb: string): Promise<void> => {
    await page.getByRole('button', { name: verb, exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: verb }).click();
  };
  for (const [name, left] of [
    ['bob', 2],
    ['ann', 1],
    ['eve', 0],
  ] as const) {
    await list.getByRole('link', { name }).click();
    await page.getByRole('heading', { name }).waitFor();
    await turn('Disable');
    await page.getByText(`${left} account${left === 1 ? '' : 's'}`, { exact: true }).waitFor();
    t.equal(await list.getByRole('link').count(), left);
  }
  await turn('Enable');
  await page.getByText('1 account', { exact: true }).waitFor();
  t.same(await list.locator('.name').allTextContents(), ['eve']);
});

void t.test('the sums of a part of the usage say so', SKIP, async (t) => {
  const { page } = await startConsole(t);
  let fails = true;
  await page.route('**/admin/v1/usage?*', (route) => {
    const isFirst = !new URL(route.request().url()).searchParams.has('cursor');
    if (!isFirst && fails) return route.fulfill({ status: 503, json: { error: { message: 'not now' } } });
    const counts = { calls: 2, failed_calls: 0, prompt_tokens: 1, cached_tokens: 0, cache_write_tokens: 0 };
    const row = { ...counts, completion_tokens: 1, reasoning_tokens: 0, cost: '1.00', uncovered: '0.00' };
    const day = isFirst ? '2025-11-23' : '2025-11-24';
    return route.fulfill({ json: { data: [{ day, ...row }], next: isFirst ? '1' : null } });
  });
  await goTo(page, 'Usage');
  const table = page.getByRole('region', { name: 'Usage' });
  await table.getByText('Sum of these 1', { exact: true }).waitFor();
  await page.getByText('These are the first 1 lines').waitFor();
  const more = page.getByRole('button', { name: 'Show more' });
  await more.click();
  await page.getByText('not now').waitFor();
  t.ok(await table.getByText('Sum of these 1', { exact: true }).isVisible(), 'the lines stay');
  fails = false;
  await more.click();
  await table.getByText('Sum', { exact: true }).waitFor();
  t.equal(await page.getByText('not now').count(), 0);
  t.equal(await page.getByText('These are the first').count(), 0);
});

void t.test('a page of accounts without rows is no end', SKIP, async (t) => {
  const { page, gateway } = await startConsole(t);
  const group = await gateway.admin.group({});
  const { accountId } = await gateway.admin.customer({ group });
  const { name } = await gateway.admin.account(accountId);
  await page.route('**/admin/v1/accounts?*', async (route) => {
    const query = new URL(route.request().url()).searchParams;
    if ((query.get('cursor') ?? '0') !== '0') await route.continue();
    // As of the first half of a million accounts, in which the filter finds none.
    else await route.fulfill({ json: { data: [], next: '0000' } });
  });
  const to = (place: string) => page.goto(`http://127.0.0.1:${gateway.admin.port}/#/${place}`);
  await to(`groups/${group}`);
  const panel = page.getByRole('region', { name: 'Group', exact: true });
  await panel.getByRole('link', { name, exact: true }).waitFor();
  t.equal(await panel.getByText('No accounts are in this group.').count(), 0);
  await to('accounts');
  await page.getByLabel('State').selectOption({ label: 'Active' });
  await page.getByRole('button', { name: 'Balance' }).click();
  const list = page.getByRole('list', { name: 'Accounts' });
  await list.locator(`a[href$="${accountId}"]`).waitFor();
  t.equal(await page.getByText('Sorted are').count(), 0, 'all of them');
});

void t.test('accounts of a filter come once the gateway answers again', SKIP, async (t) => {
  const { page, gateway } = await startConsole(t);
  const { accountId } = await gateway.admin.customer();
  let requests = 0;
  await page.route('**/admin/v1/accounts?*active=true*', async (route) => {
    if (++requests > 1) await route.continue();
    else await route.fulfill({ status: 503, json: { error: { message: 'The gateway stops.' } } });
  });
  await goTo(page, 'Accounts');
  await page.getByLabel('State').selectOption({ label: 'Active' });
  // Before the first request the list still has all accounts.
  await eventually('the second request', () => (requests > 1 ? true : undefined));
  await page.getByRole('list', { name: 'Accounts' }).locator(`a[href$="${accountId}"]`).waitFor();
  await page.getByText('The gateway stops.').waitFor({ state: 'detached' });
});

void t.test('more accounts than the list can have are told', SKIP, async (t) => {
  const { page, gateway } = await startConsole(t);
  await page.route('**/admin/v1/live*', async (route) => {
    const status = (await gateway.admin.send('GET', '/admin/v1/status')).json() as object;
    const now = { ...status, accounts: 600_000 };
    const history = { range: '5m', seconds: 2, spans: [] };
    const body = Object.entries({ history, now })
      .map(([name, data]) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`)
      .join('');
    await route.fulfill({ contentType: 'text/event-stream', body });
  });
  await page.reload();
  await goTo(page, 'Accounts');
  await page.getByText('600,000 accounts: the first 300,000 are listed, search for the others').waitFor();
});

void t.test('what a page asks for once is asked for again after a proxy answered', SKIP, async (t) => {
  const { page, gateway } = await startConsole(t);
  const { accountId } = await gateway.admin.customer({ credit: '7.25' });
  let isAway = true;
  let refused = 0;
  const answer = async (route: Route): Promise<void> => {
    if (isAway) refused += 1;
    await (isAway
      ? route.fulfill({ status: 200, contentType: 'text/html', body: '<p>Later' })
      : route.continue());
  };
  for (const path of ['playground', 'v1/accounts/*/credits?*']) await page.route(`**/admin/${path}`, answer);
  const back = async (): Promise<void> => {
    await page.getByText('Not the gateway answered').first().waitFor();
    t.ok(refused > 0);
    isAway = false;
  };
  await goTo(page, 'Playground');
  await back();
  const base = page.getByLabel('Base address');
  await eventually('the base address', async () => ((await base.inputValue()) === '' ? undefined : true));
  isAway = true;
  await page.goto(`${new URL(page.url()).origin}/#/accounts/${accountId}`);
  await back();
  await page.getByRole('region', { name: 'Credits' }).getByText('7.25').waitFor();
});
