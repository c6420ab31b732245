/**
 * Containers on one volume: of two gateways one serves, and a command does not work beside a gateway that it
 * cannot see. Each process here has a PID namespace of its own, as by `docker run -v data:/var/lib/tollgate`.
 */
import { hostname } from 'node:os';
import t, { type Test } from 'tap';
import type { AccountView } from '../support/admin-client.js';
import {
  CONTAINER,
  CONTAINER_APART,
  NO_CONTAINERS,
  runInContainer,
  stopContained,
} from '../support/containers.js';
import { startGateway, testSettings } from '../support/gateway.js';
import { startMock } from '../support/mock.js';

const credit = (account: string): string[] => ['accounts', 'credit', account, '2.50', '--json'];
const show = (account: string): string[] => ['accounts', 'show', account, '--json'];

async function gatewayWithAccount(t: Test, launcher: readonly string[]) {
  const mock = await startMock(t);
  const config = testSettings(mock.url, { durability: 'commit' });
  const gateway = await startGateway(t, { config, launcher });
  return { gateway, config, ...(await gateway.admin.customer({ credit: '10' })) };
}

void t.test('beside a gateway of another container', NO_CONTAINERS, async (t) => {
  const { gateway, accountId, key, config } = await gatewayWithAccount(t, CONTAINER);
  const { folder } = gateway;
  for (const prompt of ['one', 'two', 'three']) {
    t.equal((await gateway.chat(key, prompt)).status, 200);
  }
  const before = await gateway.admin.account(accountId);

  const near = await runInContainer(CONTAINER, folder, credit(accountId));
  t.equal(near.code, 0, near.stderr);
  t.equal(
    Number((await gateway.admin.account(accountId)).balance),
    Number(before.balance) + 2.5,
    'by the admin interface',
  );

  const apart = await runInContainer(CONTAINER_APART, folder, credit(accountId));
  t.equal(apart.code, 1, apart.stdout);
  t.match(
    apart.stderr,
    /A gateway in another container \(process \d+ of [^ ]+, since \d{4}-[^ ]+Z\) works on/,
  );
  t.match(apart.stderr, /Its admin interface cannot be reached from here: nothing was changed\./);
  t.match(apart.stderr, `docker exec ${hostname()} tollgate`);
  t.match(apart.stderr, '--admin-url');
  const shownApart = await runInContainer(CONTAINER_APART, folder, show(accountId));
  t.equal(shownApart.code, 1, 'what is on disk is older than what the gateway knows');

  await t.rejects(
    startGateway(t, { folder, config, launcher: CONTAINER_APART }),
    /Another gateway in another container \(process \d+ of .*\) works on .*\. Stop it, or give this one a folder/,
  );
  t.equal(
    Number((await gateway.admin.account(accountId)).balance),
    Number(before.balance) + 2.5,
    'nothing else was changed',
  );
  t.equal((await gateway.chat(key, 'four')).status, 200, 'it serves as before');
});

void t.test('after the gateway of another container was killed', NO_CONTAINERS, async (t) => {
  const { gateway, accountId, key, config } = await gatewayWithAccount(t, CONTAINER);
  const { folder } = gateway;
  t.equal((await gateway.chat(key, 'one')).status, 200);
  const { balance, spent } = await gateway.admin.account(accountId);
  t.not(Number(spent), 0);

  await gateway.child.stop('SIGKILL', 10_000);
  const credited = await runInContainer(CONTAINER_APART, folder, credit(accountId));
  t.equal(credited.code, 0, `the hold ended with its process: ${credited.stderr}`);
  const account = (await runInContainer(CONTAINER_APART, folder, show(accountId))).json() as AccountView;
  t.match(account, { spent, held: '0' }, 'every charge is there');
  t.equal(Number(account.balance), Number(balance) + 2.5);

  const next = await startGateway(t, { folder, config, launcher: CONTAINER });
  t.match(
    await next.admin.account(accountId),
    { balance: account.balance, spent },
    'for the next gateway too',
  );
  await stopContained(next);
  t.match((await runInContainer(CONTAINER_APART, folder, ['audit'])).stdout, /The books balance\./);
});

void t.test('a command of one container, and a gateway that starts in another', NO_CONTAINERS, async (t) => {
  const { gateway, accountId } = await gatewayWithAccount(t, CONTAINER);
  const { folder } = gateway;
  await stopContained(gateway);
  const [first, second] = await Promise.all([
    runInContainer(CONTAINER_APART, folder, credit(accountId)),
    runInContainer(CONTAINER_APART, folder, credit(accountId)),
  ]);
  t.same([first.code, second.code], [0, 0], `${first.stderr}${second.stderr}`);
  const { balance } = (await runInContainer(CONTAINER_APART, folder, show(accountId))).json() as AccountView;
  t.equal(Number(balance), 15, 'one after the other');
});
