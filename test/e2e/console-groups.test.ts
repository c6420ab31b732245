/**
 * Groups and quotas in the console, in a real browser: an operator makes a group, gives it limits, puts an
 * account in it, sees what its calls use, gives a key limits of its own, and takes all of it away again.
 */
import t from 'tap';
import type { Page } from 'playwright-core';
import type { GroupView } from '#src/admin/views.js';
import { startBed } from '../support/bed.js';
import { goTo, HAS_BROWSER, seriousFaults, shoot, startBrowser } from '../support/browser.js';
import { eventually, type Gateway } from '../support/gateway.js';

const SKIP = HAS_BROWSER ? {} : { skip: 'Chromium is not installed' };
const WIDE = { width: 1440, height: 900 };
const PHONE = { width: 390, height: 844 };

const at = (gateway: Gateway, place = ''): string => `http://127.0.0.1:${gateway.admin.port}/#/${place}`;

async function signIn(page: Page, gateway: Gateway): Promise<void> {
  await page.goto(at(gateway));
  await page.getByLabel('Admin token').fill(gateway.admin.token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
}

void t.test('an operator’s way with groups and quotas', SKIP, async (t) => {
  const { gateway } = await startBed(t, { flush_interval_ms: 100 });
  const { accountId, key } = await gateway.admin.customer();
  const { page, faults } = await (await startBrowser(t)).open({ viewport: WIDE });
  await signIn(page, gateway);
  await goTo(page, 'Groups');
  await page.getByText('No groups yet.').waitFor();
  await page.getByRole('region', { name: 'Plans' }).getByRole('rowheader', { name: 'ample' }).waitFor();

  await page.getByRole('button', { name: 'New group' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('research');
  await dialog.getByLabel('Calls a month').fill('10');
  await dialog.getByLabel('Spend a month').fill('a lot');
  await dialog.getByRole('button', { name: 'Create group' }).click();
  t.match(await dialog.getByRole('alert').textContent(), 'spend_per_month must be', 'in words');
  t.match(faults.splice(0), [/400/]);
  await dialog.getByLabel('Spend a month').fill('100.00');
  await dialog.getByRole('button', { name: 'Create group' }).click();
  const panel = page.getByRole('region', { name: 'Group', exact: true });
  await panel.getByRole('heading', { name: 'research' }).waitFor();
  const quotas = panel.getByLabel('Quotas of the group');
  t.same(await quotas.locator('.quota-name').allTextContents(), ['Calls a month', 'Spend a month']);

  await panel.getByRole('button', { name: 'Put an account here' }).click();
  await dialog.getByLabel('Account').fill('customer-1');
  await dialog.getByRole('button', { name: 'Put it here' }).click();
  await panel
    .getByRole('region', { name: 'Accounts of the group' })
    .getByRole('link', { name: 'customer-1' })
    .waitFor();
  // The group is fetched by itself, perhaps later than the list of its accounts.
  const isKept = (): Promise<boolean> => panel.getByRole('button', { name: 'Delete' }).isDisabled();
  await eventually('a group that is not empty is not deleted', async () => (await isKept()) || undefined);
  for (let calls = 0; calls < 9; calls++) await gateway.chat(key, 'Hello');
  await quotas.getByText('9 of 10').waitFor();
  t.equal(await quotas.getByRole('meter', { name: 'Calls a month' }).getAttribute('aria-valuenow'), '90');
  t.ok(await quotas.locator('.bar.warn').isVisible(), 'it is nearly used up');
  const tree = page.getByRole('list', { name: 'Groups' });
  await tree.getByText('90 %').waitFor();

  await panel.getByRole('button', { name: 'Change limits' }).click();
  t.equal(await dialog.getByLabel('Calls a month').inputValue(), '10');
  await dialog.getByLabel('Calls a month').fill('1000');
  await dialog.getByLabel('Spend a month').fill('');
  await dialog.getByRole('button', { name: 'Change limits' }).click();
  await quotas.getByText('9 of 1,000').waitFor();

  await quotas.getByRole('link', { name: '9', exact: true }).click();
  await page.getByText('9 calls shown').waitFor();
  t.match(
    await page.getByLabel('Group', { exact: true }).inputValue(),
    /^grp_/,
    'the calls behind the number',
  );
  await page.goBack();
  await quotas.getByText('9 of 1,000').waitFor();
  t.same(await quotas.locator('.quota-name').allTextContents(), ['Calls a month']);

  await panel.getByRole('button', { name: 'New group in it' }).click();
  await dialog.getByLabel('Name').fill('students');
  await dialog.getByRole('button', { name: 'Create group' }).click();
  await tree.getByRole('link', { name: /^students/ }).click();
  await panel.getByText('in research').waitFor();
  await panel.getByText('No quotas').waitFor();

  await page.goto(at(gateway, `accounts/${accountId}`));
  const account = page.getByRole('region', { name: 'Account', exact: true });
  await account.getByRole('link', { name: 'research' }).waitFor();
  await account.getByLabel('Quotas of the account').getByText('9 of 1,000,000,000').waitFor();
  await account.getByRole('button', { name: 'Limits key test' }).click();
  await dialog.getByLabel('Calls a day').fill('20');
  await dialog.getByRole('button', { name: 'Change limits' }).click();
  await account.getByRole('region', { name: 'Keys' }).getByText('Calls a day').waitFor();
  await account.getByRole('button', { name: 'Change group' }).click();
  await dialog.getByLabel('Group').selectOption({ label: 'research / students' });
  await dialog.getByRole('button', { name: 'Change group' }).click();
  await account.getByRole('link', { name: 'students' }).waitFor();
  const found = page.getByRole('list', { name: 'Accounts' }).getByRole('link');
  await page.getByRole('search').getByLabel('Group').selectOption({ label: 'research / students' });
  // The list without the filter names the group too, and is empty while the other one is fetched.
  await eventually('the accounts of a group, and the group of an account', async () =>
    (await found.allTextContents()).filter((text) => text.includes('students')).length === 1 &&
    (await found.count()) === 1
      ? true
      : undefined,
  );
  await account.getByRole('button', { name: 'Change group' }).click();
  await dialog.getByLabel('Group').selectOption({ label: 'None' });
  await dialog.getByRole('button', { name: 'Change group' }).click();
  await account.getByRole('link', { name: 'students' }).waitFor({ state: 'detached' });

  await page.goto(at(gateway, 'groups/students'));
  await panel.getByRole('button', { name: 'Delete' }).click();
  await dialog.getByRole('button', { name: 'Delete for good' }).click();
  await tree.getByRole('link', { name: /^students/ }).waitFor({ state: 'detached' });
  await panel.waitFor({ state: 'detached' });
  t.same(faults, []);
});

/** Made up, because no test waits for a month to be used. */
const use = (limit: number | string, used: number | string, held: number | string = 0): object => ({
  limit,
  used,
  held,
  left: 0,
  resets_at: Math.floor(Date.now() / 1_000) + 500_000,
});

void t.test('groups at every width and in both colours', SKIP, async (t) => {
  const { gateway } = await startBed(t);
  const { admin } = gateway;
  await admin.customer();
  for (const [name, parent] of [
    ['company', undefined],
    ['research', 'company'],
    ['students', 'research'],
    ['x'.repeat(100), 'students'],
  ] as const)
    await admin.send('POST', '/admin/v1/groups', { name, parent, tokens_per_month: 1_000_000 });
  await admin.send('POST', '/admin/v1/accounts/customer-1/set-group', { group: 'research' });
  const browser = await startBrowser(t);
  for (const viewport of [WIDE, PHONE]) {
    for (const colorScheme of ['light', 'dark'] as const) {
      const { page, faults } = await browser.open({ viewport, colorScheme });
      const name = `${viewport.width}-${colorScheme}`;
      await page.route('**/admin/v1/group*', async (route) => {
        const response = await route.fetch();
        const list = (await response.json()) as { data: GroupView[] };
        const quotas = [
          {
            tokens_per_month: use(1_000_000, 812_345, 40_000),
            spend_per_month: use('100.00', '12.345678', '0.00'),
          },
          { calls_per_day: use(500, 500), spend_per_day: use('5.00', '0.10', '0.02') },
          { tokens_per_day: use(100_000, 99_000, 800), spend_per_month: use('100.00', '0.000001') },
        ];
        const data = list.data.map((group, index) => ({ ...group, quotas: quotas[index] ?? group.quotas }));
        await route.fulfill({ response, json: { ...list, data } });
      });
      await signIn(page, gateway);
      for (const [place, filled] of [
        ['groups', page.getByRole('link', { name: /^research/ })],
        ['groups/research', page.getByRole('link', { name: 'customer-1' })],
      ] as const) {
        await page.goto(at(gateway, place));
        await filled.first().waitFor();
        if (place === 'groups') {
          const students = page.getByRole('link', { name: /^students/ });
          t.match(await students.textContent(), /Tokens a day99 %.*Spend a monthunder 1 %/, 'rounded down');
        }
        if ((viewport === WIDE) === (colorScheme === 'light'))
          t.same(await seriousFaults(page), [], `${place}, ${name}`);
        const beyond = await page.evaluate<number>('document.documentElement.scrollWidth - innerWidth');
        t.ok(beyond <= 0, `${place} fits ${name}, ${beyond} px beyond`);
        await shoot(page, `${place.replace('/', '-')}-${name}`);
      }
      await page.getByRole('button', { name: 'Change limits' }).click();
      await page.getByRole('dialog').getByLabel('Tokens a month').waitFor();
      await shoot(page, `group-limits-${name}`);
      t.same(faults, []);
    }
  }
});
