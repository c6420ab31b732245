/**
 * An operator's path with quotas: a group with a month's budget for two accounts, a webhook before it is used
 * up, a call that is refused, and more budget. By commands with one gateway process, by the admin interface
 * with two, and by the console in a real browser.
 */
import { createHmac } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import type { AccountView, CreatedKeyView, GroupView } from '#src/admin/views.js';
import { HAS_BROWSER, shoot, signIn, startBrowser } from '../support/browser.js';
import { runCommand } from '../support/command.js';
import { checkError } from '../support/error-answer.js';
import {
  eventually,
  type Gateway,
  knownEverywhere,
  startGateway,
  temporaryFolder,
  testSettings,
} from '../support/gateway.js';
import { startMock, steered } from '../support/mock.js';

const SECRET = Buffer.alloc(32, 7);
const COMPLETION_TOKENS = 1_000;
/** 2 × 1.5 and 1,000 × 2.25 per million. Before it is sent a call holds some 300 × 1.5 instead of 2 × 1.5. */
const CALL_COST = 0.002253;
/** For two calls, which use four fifths of it. The rest is less than a call holds. */
const BUDGET = '0.0055';
const MORE_BUDGET = '0.02';

interface Webhook {
  readonly type: string;
  readonly data: Readonly<Record<string, unknown>>;
}

/** A server that takes webhooks; those that are not signed with SECRET fail the test. */
async function startReceiver(t: Test): Promise<{ url: string; received: readonly Webhook[] }> {
  const received: Webhook[] = [];
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      const body = Buffer.concat(parts).toString();
      const {
        'webhook-id': id,
        'webhook-timestamp': seconds,
        'webhook-signature': signature,
      } = request.headers;
      const signed = `${String(id)}.${String(seconds)}.${body}`;
      t.equal(signature, `v1,${createHmac('sha256', SECRET).update(signed).digest('base64')}`);
      received.push(JSON.parse(body) as Webhook);
      response.end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`, received };
}

/** What an operator does here, whichever way. */
interface Operator {
  createGroup(name: string, spendPerMonth: string): Promise<GroupView>;
  createAccount(name: string, group: string): Promise<AccountView>;
  createKey(account: string): Promise<CreatedKeyView>;
  showGroup(name: string): Promise<GroupView>;
  setBudget(name: string, spendPerMonth: string): Promise<GroupView>;
  /** Adds to the account's balance, or takes from it if the amount begins with a minus. */
  credit(account: string, amount: string): Promise<AccountView>;
  /** What an operator who looks for the refused call is shown of it. */
  showRefused?(code: string): Promise<string>;
}

function byCommands(_t: Test, { folder }: Gateway): Operator {
  const done = async <View>(...args: string[]): Promise<View> => {
    const end = await runCommand(folder, [...args, '--json']);
    if (end.code !== 0) throw new Error(`${args.join(' ')} ${end.stderr}`);
    return end.json() as View;
  };
  return {
    createGroup: (name, budget) => done('groups', 'create', name, '--spend-per-month', budget),
    createAccount: (name, group) =>
      done('accounts', 'create', name, '--plan', 'ample', '--credit', '10.00', '--group', group),
    createKey: (account) => done('keys', 'create', '--account', account, '--name', 'laptop'),
    showGroup: (name) => done('groups', 'show', name),
    setBudget: (name, budget) => done('groups', 'set-limits', name, '--spend-per-month', budget),
    credit: (account, amount) =>
      amount.startsWith('-')
        ? done('accounts', 'debit', account, amount.slice(1))
        : done('accounts', 'credit', account, amount),
  };
}

async function sent<View>({ admin }: Gateway, method: string, path: string, body?: object): Promise<View> {
  const answer = await admin.send(method, `/admin/v1${path}`, body);
  if (answer.status !== 200) throw new Error(`${method} ${path} ${answer.body}`);
  return answer.json() as View;
}

function byInterface(_t: Test, gateway: Gateway): Operator {
  const done = <View>(method: string, path: string, body?: object): Promise<View> =>
    sent<View>(gateway, method, path, body);
  return {
    createGroup: (name, spend_per_month) => done('POST', '/groups', { name, spend_per_month }),
    createAccount: (name, group) =>
      done('POST', '/accounts', { name, plan: 'ample', credit: '10.00', group }),
    createKey: (account) => done('POST', '/keys', { account, name: 'laptop' }),
    showGroup: (name) => done('GET', `/groups/${name}`),
    setBudget: (name, spend_per_month) => done('POST', `/groups/${name}/set-limits`, { spend_per_month }),
    credit: (account, amount) => done('POST', `/accounts/${account}/credit`, { amount }),
  };
}

/** Does all by the pages. What it returns is read at the interface, when the page shows that it is done. */
async function byConsole(t: Test, gateway: Gateway): Promise<Operator> {
  const { page, faults } = await (await startBrowser(t)).open({ viewport: { width: 1440, height: 900 } });
  const at = (place: string) => page.goto(`http://127.0.0.1:${gateway.admin.port}/#/${place}`);
  const button = (name: string) => page.getByRole('button', { name, exact: true });
  const dialog = page.getByRole('dialog');
  const act = async (opens: string, fields: Readonly<Record<string, string>>, verb: string) => {
    await button(opens).click();
    for (const [label, text] of Object.entries(fields)) await dialog.getByLabel(label).fill(text);
    await dialog.getByRole('button', { name: verb, exact: true }).click();
  };
  const region = (name: string) => page.getByRole('region', { name, exact: true });
  const groupOf = (name: string) => sent<GroupView>(gateway, 'GET', `/groups/${name}`);
  await signIn(page, gateway);
  return {
    createGroup: async (name, budget) => {
      await at('groups');
      await act('New group', { Name: name, 'Spend a month': budget }, 'Create group');
      await region('Group').getByRole('heading', { name }).waitFor();
      return groupOf(name);
    },
    createAccount: async (name, group) => {
      await at('accounts');
      await button('New account').click();
      await dialog.getByLabel('Name').fill(name);
      await dialog.getByLabel('Plan').selectOption('ample');
      await dialog.getByLabel('Opening balance').fill('10.00');
      await dialog.getByRole('button', { name: 'Create account' }).click();
      await region('Account').getByRole('heading', { name }).waitFor();
      await at(`groups/${group}`);
      await act('Put an account here', { Account: name }, 'Put it here');
      await region('Accounts of the group').getByRole('link', { name }).waitFor();
      return sent<AccountView>(gateway, 'GET', `/accounts/${name}`);
    },
    createKey: async (account) => {
      await at(`accounts/${account}`);
      await act('New key', { Name: 'laptop' }, 'Make key');
      const key = (await dialog.getByTestId('new-key').textContent())!;
      await button('I have it').click();
      await region('Account').getByRole('rowheader', { name: 'laptop' }).waitFor();
      return { key } as CreatedKeyView;
    },
    showGroup: async (name) => {
      await at(`groups/${name}`);
      const quotas = region('Group').getByLabel('Quotas of the group');
      await quotas.getByText('Spend a month').waitFor();
      return groupOf(name);
    },
    setBudget: async (name, budget) => {
      await at(`groups/${name}`);
      await act('Change limits', { 'Spend a month': budget }, 'Change limits');
      await dialog.waitFor({ state: 'detached' });
      return groupOf(name);
    },
    credit: async (account, amount) => {
      await at(`accounts/${account}`);
      await act('Add credit', { Amount: amount }, 'Book it');
      await dialog.waitFor({ state: 'detached' });
      return sent<AccountView>(gateway, 'GET', `/accounts/${account}`);
    },
    showRefused: async (code) => {
      await at(`calls?code=${code}`);
      await region('Calls').locator('tbody a').first().click();
      const text = await page.getByRole('region', { name: 'Error' }).textContent();
      await shoot(page, 'quota-path-refused');
      t.same(faults, []);
      return text ?? '';
    },
  };
}

for (const { by, processes, operatorOf, skip } of [
  { by: 'commands', processes: 1, operatorOf: byCommands, skip: false },
  { by: 'the admin interface', processes: 2, operatorOf: byInterface, skip: false },
  {
    by: 'the console',
    processes: 1,
    operatorOf: byConsole,
    skip: !HAS_BROWSER && 'Chromium is not installed',
  },
]) {
  void t.test(`by ${by}, with ${processes} processes`, { skip }, async (t) => {
    const mock = await startMock(t);
    const receiver = await startReceiver(t);
    const gateway = await startGateway(t, {
      folder: temporaryFolder(t),
      config: testSettings(mock.url, {
        processes,
        notify: { url: receiver.url, secret: '${WEBHOOK_SECRET}' },
      }),
      env: { WEBHOOK_SECRET: `whsec_${SECRET.toString('base64')}` },
    });
    const operator = await operatorOf(t, gateway);

    const { id } = await operator.createGroup('research', BUDGET);
    t.match(await operator.createAccount('ann', 'research'), { group: id, group_name: 'research' });
    await operator.createAccount('bob', 'research');
    const ann = await operator.createKey('ann');
    const bob = await operator.createKey('bob');
    await knownEverywhere(gateway, bob.key);

    const prompt = steered(`prompt_tokens=2&completion_tokens=${COMPLETION_TOKENS}`);
    const call = (key: string) => gateway.chat(key, prompt, { max_tokens: COMPLETION_TOKENS });
    for (const key of [ann.key, bob.key]) t.equal((await call(key)).status, 200);
    const budgetOf = async () => (await operator.showGroup('research')).quotas.spend_per_month!;
    const spent = await eventually('both calls in the group', async () => {
      const budget = await budgetOf();
      return Number(budget.used) > 1.5 * CALL_COST && Number(budget.held) === 0 ? budget : undefined;
    });
    t.match(spent, { limit: BUDGET, held: '0.00' });
    // With several processes the use is rounded up to a millionth.
    t.ok(Math.abs(Number(spent.used) - 2 * CALL_COST) <= 2e-6, `used ${spent.used}`);

    const message = checkError(t, await call(ann.key), 'budget_exceeded', 'beyond the budget');
    t.match(message, /group research/);
    t.match(message, /0\.0055 per month/);
    if (operator.showRefused !== undefined)
      t.match(await operator.showRefused('budget_exceeded'), /group research.*0\.0055 per month/s);
    const told = await eventually('the webhook', () =>
      receiver.received.find(({ data }) => data.name === 'research'),
    );
    t.match(told, {
      type: 'quota.threshold_reached',
      data: { scope: 'group', id, quota: 'spend_per_month', threshold_percent: 80, limit: BUDGET },
    });

    t.match(await operator.setBudget('research', MORE_BUDGET), {
      quotas: { spend_per_month: { limit: '0.02' } },
    });
    for (const { key } of [ann, bob]) t.equal((await call(key)).status, 200, 'with more budget');
    await eventually('the later calls in the group', async () =>
      Number((await budgetOf()).used) > 3.5 * CALL_COST ? true : undefined,
    );
    t.equal(receiver.received.length, 1, 'told once');

    // Another process may hold some of it for a while yet.
    const debit = () => operator.credit('ann', '-9.995').catch(() => undefined);
    await eventually('the debit', debit, 40_000);
    checkError(t, await call(ann.key), 'insufficient_quota', 'beyond the balance');
    t.match(await operator.credit('ann', '1.00'), { credited: '1.005' });
    // A process that was denied money asks for some again after a quarter of a second.
    await eventually('a call after the top-up', async () =>
      (await call(ann.key)).status === 200 ? true : undefined,
    );
    t.equal(await gateway.stop(), 0);
    const audit = await runCommand(gateway.folder, ['audit']);
    t.match(audit, { code: 0, stdout: /The books balance\./ });
  });
}
