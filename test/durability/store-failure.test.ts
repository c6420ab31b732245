/**
 * A disk that is full: the gateway says so, goes on from memory or refuses as the settings say, loses nothing
 * that was acknowledged, and recovers by itself when space returns. The disk is a tmpfs of its own, so this
 * needs root.
 */
import t, { type Test } from 'tap';
import { decimalOf, picoUnitsOf } from '#src/core/money.js';
import type { Customer } from '../support/admin-client.js';
import {
  HIDDEN_MODEL,
  TEST_MODEL,
  TEST_PRICE,
  eventually,
  startGateway,
  testSettings,
  type Gateway,
} from '../support/gateway.js';
import type { Answer } from '../support/http.js';
import { startMock, steered } from '../support/mock.js';
import { empty, fill, mountDisk, reasonToSkip } from '../support/small-disk.js';

/** Enough that their rows do not fit into pages which the store has free. */
const CUSTOMERS = 150;
const DISK = '16m';
/** More than fit into pages which the store has free. */
const ACCOUNTS_TRIED_MAX = 5_000;

const PROMPT = steered('prompt_tokens=10&cached_tokens=0&completion_tokens=10');
const COST = (10n * (picoUnitsOf(TEST_PRICE.input)! + picoUnitsOf(TEST_PRICE.output)!)) / 1_000_000n;

const skip = reasonToSkip();

interface StoreStatus {
  readonly ok: boolean;
  readonly last_error: string | null;
  readonly unflushed_accounts: number;
}

async function storeStatus(gateway: Gateway): Promise<StoreStatus> {
  return ((await gateway.admin.send('GET', '/admin/v1/status')).json() as { store: StoreStatus }).store;
}

const recovered = (gateway: Gateway): Promise<true> =>
  eventually('the store takes rows again', async () => {
    const { ok, unflushed_accounts: unflushed } = await storeStatus(gateway);
    return ok && unflushed === 0 ? true : undefined;
  });

interface Scene {
  readonly gateway: Gateway;
  readonly folder: string;
  readonly config: object;
  readonly customers: readonly Customer[];
  /** One call of each customer, all at once. */
  readonly callAll: () => Promise<readonly Answer[]>;
}

async function openScene(t: Test, folder: string, settings: Record<string, unknown>): Promise<Scene> {
  const mock = await startMock(t);
  const config = testSettings(mock.url, { flush_interval_ms: 50, ...settings });
  const gateway = await startGateway(t, { folder, config });
  const customers: Customer[] = [];
  for (let n = 0; n < CUSTOMERS; n++) customers.push(await gateway.admin.customer());
  let calls = 0;
  return {
    gateway,
    folder,
    config,
    customers,
    callAll: () => {
      // Another model each time, so that there are new rows to be written.
      const model = calls++ % 2 === 0 ? TEST_MODEL : HIDDEN_MODEL;
      return Promise.all(customers.map(({ key }) => gateway.chat(key, PROMPT, { model, stream: true })));
    },
  };
}

async function usageOnDisk(gateway: Gateway): Promise<bigint> {
  const answer = await gateway.admin.send('GET', '/admin/v1/usage?by=model');
  const { data } = answer.json() as { data: { cost: string }[] };
  return data.reduce((sum, { cost }) => sum + picoUnitsOf(cost)!, 0n);
}

/** What the books say after kill -9 and a restart: every account's spending, and the usage of all. */
async function booksAfterKill(t: Test, { gateway, folder, config, customers }: Scene) {
  const pid = gateway.pid();
  gateway.child.signal('SIGKILL');
  process.kill(pid, 'SIGKILL');
  await gateway.child.stop('SIGKILL', 60_000);
  const next = await startGateway(t, { folder, config });
  const spent: bigint[] = [];
  for (const { accountId } of customers)
    spent.push(picoUnitsOf((await next.admin.account(accountId)).spent)!);
  return { next, spent, usage: await usageOnDisk(next) };
}

const isServed = ({ status, body }: Answer): boolean => status === 200 && body.endsWith('data: [DONE]\n\n');

void t.test(
  'serve: calls go on from memory, and everything is written when space returns',
  { skip },
  async (t) => {
    const folder = mountDisk(t, DISK);
    const scene = await openScene(t, folder, { on_store_error: 'serve' });
    const { gateway, callAll } = scene;
    fill(folder);
    for (let round = 0; round < 4; round++)
      t.ok((await callAll()).every(isServed), `round ${round}: all are served`);
    const status = await eventually('the failure is shown', async () => {
      const now = await storeStatus(gateway);
      return now.ok ? undefined : now;
    });
    t.ok(status.unflushed_accounts > 0, `${status.unflushed_accounts} accounts wait: ${status.last_error}`);
    t.equal((await gateway.admin.account(scene.customers[0]!.accountId)).spent, decimalOf(4n * COST));
    const told = await eventually('the failure is logged', () => {
      const lines = gateway.log().filter((line) => line.includes('the books cannot be written'));
      return lines.length > 0 ? lines : undefined;
    });
    t.ok(told.length <= 2, `told ${told.length} times`);

    // An account that was acknowledged is kept, whether or not there was a page for it. Pages that the store
    // has free serve for some.
    const made: string[] = [];
    let refused = 0;
    for (let n = 0; n < ACCOUNTS_TRIED_MAX && refused < 10; n++) {
      const name = `late-${n}`;
      const answer = await gateway.admin.send('POST', '/admin/v1/accounts', { name, plan: 'ample' });
      if (answer.status === 200) {
        made.push(name);
        continue;
      }
      refused += 1;
      t.equal(answer.status, 503);
      t.match(answer.json(), {
        error: { code: 'overloaded', message: /look at the disk .* Nothing was changed/ },
      });
      t.match(answer.headers, { 'retry-after': /^[1-9]/ });
    }
    t.equal(refused, 10, `after ${made.length} there was no page`);
    const { accountId } = scene.customers[0]!;
    const before = await gateway.admin.account(accountId);
    let credited = 0;
    for (let n = 0; n < 20; n++) {
      const answer = await gateway.admin.send('POST', `/admin/v1/accounts/${accountId}/credit`, {
        amount: '1',
        note: 'n'.repeat(200),
      });
      if (answer.status === 200) credited += 1;
      else t.equal(answer.status, 503);
    }
    t.equal(
      Number((await gateway.admin.account(accountId)).balance),
      Number(before.balance) + credited,
      'what was refused was not credited',
    );
    for (const line of gateway.log()) t.doesNotThrow(() => void JSON.parse(line), line);

    empty(folder);
    await recovered(gateway);
    const { next, spent, usage } = await booksAfterKill(t, scene);
    t.ok(
      spent.every((amount) => amount === 4n * COST),
      'nothing was lost',
    );
    t.equal(usage, BigInt(4 * CUSTOMERS) * COST);
    for (const name of made)
      t.equal((await next.admin.send('GET', `/admin/v1/accounts/${name}`)).status, 200);
    t.equal(await next.stop(), 0);
  },
);

void t.test('a stop while the disk is full ends with 1, because charges are lost', { skip }, async (t) => {
  const { gateway, callAll, folder } = await openScene(t, mountDisk(t, DISK), { on_store_error: 'serve' });
  fill(folder);
  await eventually('charges wait for the disk', async () => {
    t.ok((await callAll()).every(isServed));
    const { ok, unflushed_accounts: unflushed } = await storeStatus(gateway);
    return !ok && unflushed > 0 ? true : undefined;
  });
  t.equal(await gateway.stop(), 1);
  t.ok(gateway.log().some((line) => line.includes('charges were lost')));
});

void t.test('refuse: new calls are told 503 until space returns', { skip }, async (t) => {
  const folder = mountDisk(t, DISK);
  const scene = await openScene(t, folder, { on_store_error: 'refuse' });
  const { gateway, callAll, customers } = scene;
  fill(folder);
  let served = (await callAll()).filter(isServed).length;
  const refusal = await eventually('calls are refused', async () => {
    const answers = await callAll();
    served += answers.filter(isServed).length;
    return answers.find(({ status }) => status === 503);
  });
  t.match(refusal.json(), { error: { code: 'overloaded', message: /cannot write its books/ } });
  t.match(refusal.headers, { 'retry-after': /^\d+$/ });
  empty(folder);
  await recovered(gateway);
  t.ok(isServed(await gateway.chat(customers[0]!.key, PROMPT, { stream: true })));
  served += 1;
  await eventually('the last charge is on disk', async () =>
    (await usageOnDisk(gateway)) === BigInt(served) * COST ? true : undefined,
  );
  const { next, spent, usage } = await booksAfterKill(t, scene);
  t.equal(
    spent.reduce((sum, amount) => sum + amount, 0n),
    BigInt(served) * COST,
    `${served} were served`,
  );
  t.equal(usage, BigInt(served) * COST);
  t.equal(await next.stop(), 0);
});

void t.test(
  'commit: an answer whose charge cannot be written is an error, and costs nothing',
  { skip },
  async (t) => {
    const folder = mountDisk(t, DISK);
    const scene = await openScene(t, folder, { durability: 'commit' });
    const { gateway, callAll, customers } = scene;
    fill(folder);
    const served = customers.map(() => 0);
    let failed = 0;
    const count = (answers: readonly Answer[]): boolean => {
      answers.forEach((answer, n) => {
        if (isServed(answer)) served[n]! += 1;
        else if (answer.status === 200) {
          failed += 1;
          t.match(answer.body, /"code":"internal_error"/);
        } else t.equal(answer.status, 503);
      });
      return answers.some(({ status }) => status === 503);
    };
    await eventually('the disk is full and calls are refused', async () =>
      count(await callAll()) ? true : undefined,
    );
    t.ok(failed > 0, `${failed} answers were withheld`);
    t.equal(
      served.reduce((sum, n) => sum + n, 0),
      (await Promise.all(customers.map(({ accountId }) => gateway.admin.account(accountId)))).reduce(
        (sum, view) => sum + view.calls_today,
        0,
      ),
      'the calls of the day were given back',
    );
    empty(folder);
    await recovered(gateway);
    count(await callAll());
    const { next, spent, usage } = await booksAfterKill(t, scene);
    t.same(
      spent,
      served.map((calls) => BigInt(calls) * COST),
      'each paid for the answers that it got to their ends',
    );
    t.equal(usage, BigInt(served.reduce((sum, n) => sum + n, 0)) * COST);
    t.equal(await next.stop(), 0);
  },
);

void t.test(
  'answers of an Idempotency-Key: charges come first, and none is charged twice',
  { skip },
  async (t) => {
    for (const durability of ['interval', 'commit'] as const) {
      const folder = mountDisk(t, DISK);
      const mock = await startMock(t);
      const gateway = await startGateway(t, {
        folder,
        config: testSettings(mock.url, { durability, flush_interval_ms: 50 }),
      });
      const { key, accountId } = await gateway.admin.customer();
      // It needs pages that are new, and leaves in one piece, so that it can be withheld.
      const prompt = `${PROMPT.split('\n')[0]}&bytes=50000\nHello`;
      const call = (idempotencyKey: string): Promise<Answer> =>
        gateway.request(key, {
          headers: { 'idempotency-key': idempotencyKey },
          body: { model: TEST_MODEL, messages: [{ role: 'user', content: prompt }] },
        });
      t.equal((await call('before')).status, 200);
      await eventually('it is on disk', async () =>
        (await usageOnDisk(gateway)) === COST ? true : undefined,
      );
      fill(folder);
      const full = await call('full');
      // Until a flush has failed, the repeat gets the response from memory, or is told that the first still
      // runs.
      const again = await eventually('the repeat gets no answer', async () => {
        const answer = await call('full');
        return answer.status === 200 || answer.status === 409 ? undefined : answer;
      });
      if (durability === 'interval') {
        t.equal(full.status, 200, 'served from memory');
        t.equal(again.status, 400);
        t.match(again.body, /was answered and charged, and its answer could not be kept/);
      } else {
        t.ok([500, 503].includes(full.status), `withheld or refused: ${full.status}`);
        t.ok([500, 503].includes(again.status), `the repeat is a new call, and fails too: ${again.status}`);
      }
      empty(folder);
      await recovered(gateway);
      const after = await call('full');
      t.equal(after.status, durability === 'interval' ? 400 : 200);
      t.equal((await call('before')).headers['idempotent-replayed'], 'true');
      t.match(await gateway.admin.account(accountId), {
        spent: decimalOf(2n * COST),
        calls_today: 2,
        held: '0.00',
      });
      t.equal(await gateway.stop(), 0);
    }
  },
);
