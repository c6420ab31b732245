/**
 * What calls cost: exact to the pico-unit, nothing for failures, never below zero; credited = balance + held
 * + spent.
 */
import t from 'tap';
import type { Test } from 'tap';
import { decimalOf, picoUnitsOf } from '#src/core/money.js';
import type { AccountView, Customer } from '../support/admin-client.js';
import { startBed } from '../support/bed.js';
import { TEST_MODEL, eventually } from '../support/gateway.js';
import { keepAliveAgent } from '../support/http.js';
import { steered } from '../support/mock.js';
import { openStream } from '../support/sse.js';

/** Pico-units a token: TEST_PRICE per million tokens. */
const INPUT = 1_500_000n;
const CACHED = 750_000n;
const OUTPUT = 2_250_000n;
const CREDIT = '100.00';

function checkLaw(t: Test, account: AccountView, name: string): void {
  const [credited, balance, held, spent] = [
    account.credited,
    account.balance,
    account.held,
    account.spent,
  ].map((text) => picoUnitsOf(text));
  t.ok(
    balance !== undefined && held !== undefined && spent !== undefined,
    `${name}: no amount is below zero`,
  );
  t.equal(credited, balance! + held! + spent!, `${name}: credited = balance + held + spent`);
}

void t.test('money', async (t) => {
  const { gateway } = await startBed(t, { low_balance: 'refuse' });
  const { admin } = gateway;
  /** The account once nothing is held: settling may follow the last byte by a moment. */
  const settled = (customer: Customer): Promise<AccountView> =>
    eventually('nothing held', async () => {
      const account = await admin.account(customer.accountId);
      return account.held === '0.00' ? account : undefined;
    });

  await t.test('reported usage costs exactly its tokens, whole and streamed', async (t) => {
    const customer = await admin.customer({ credit: CREDIT });
    let spent = 0n;
    const usages: [bigint, bigint, bigint][] = [
      [1n, 0n, 1n],
      [7n, 3n, 9n],
      [1n, 0n, 1n],
      [13n, 13n, 99n],
    ];
    for (const [prompt, cached, completion] of usages) {
      for (const stream of [false, true]) {
        const query = `prompt_tokens=${prompt}&cached_tokens=${cached}&completion_tokens=${completion}`;
        t.equal((await gateway.chat(customer.key, steered(query), { stream })).status, 200);
        spent += (prompt - cached) * INPUT + cached * CACHED + completion * OUTPUT;
        const account = await settled(customer);
        t.equal(account.spent, decimalOf(spent), `${query}, stream ${stream}`);
        t.equal(account.balance, decimalOf(picoUnitsOf(CREDIT)! - spent));
        checkLaw(t, account, query);
      }
    }
  });

  await t.test('missing and mad usage is counted or bounded', async (t) => {
    for (const usage of ['missing', 'late', 'absurd', 'negative']) {
      const customer = await admin.customer({ credit: CREDIT });
      for (const stream of [false, true]) {
        const answer = await gateway.chat(customer.key, steered(`usage=${usage}`), { stream });
        t.ok(answer.status === 200 || answer.status === 502, `${usage}: ${answer.status}`);
      }
      checkLaw(t, await settled(customer), usage);
      if (usage === 'missing') t.not((await settled(customer)).spent, '0.00', 'tokens were counted here');
    }
  });

  await t.test('500 and 502 cost nothing, also after the stream began', async (t) => {
    const customer = await admin.customer({ credit: CREDIT });
    for (const query of ['status=500', 'fault=reset-before', 'fault=broken-json', 'fault=wrong-type']) {
      t.equal((await gateway.chat(customer.key, steered(query))).status, 502, query);
    }
    for (const query of ['fault=reset-mid&chunk_ms=20', 'fault=error-event&chunk_ms=20']) {
      t.equal((await gateway.chat(customer.key, steered(query), { stream: true })).status, 200, query);
    }
    t.equal((await gateway.chat(customer.key, 'x', { temperature: 3 })).status, 400);
    t.match(await settled(customer), { spent: '0.00', balance: CREDIT, calls_today: 0 });
  });

  await t.test('a hold stands while the call runs; who leaves pays what came', async (t) => {
    const customer = await admin.customer({ credit: CREDIT });
    const { incoming, outgoing } = await openStream(gateway.port, customer.key, {
      model: TEST_MODEL,
      messages: [{ role: 'user', content: steered('chunks=1000&chunk_ms=20&bytes=9000') }],
      stream: true,
      max_tokens: 500,
    });
    const running = await admin.account(customer.accountId);
    t.ok(picoUnitsOf(running.held)! >= 500n * OUTPUT, `held ${running.held}`);
    checkLaw(t, running, 'running');
    await new Promise((resolve) => incoming.once('data', resolve));
    outgoing.destroy();
    const after = await settled(customer);
    checkLaw(t, after, 'after');
    const spent = picoUnitsOf(after.spent)!;
    t.ok(spent > 0n, 'the prompt and what was relayed');
    t.ok(spent < picoUnitsOf(running.held)!, 'less than the hold');
  });

  await t.test(
    'usage beyond what the model can give is counted here and charged within the hold',
    async (t) => {
      const customer = await admin.customer({ credit: '0.01' });
      const query = steered('prompt_tokens=10&completion_tokens=1000000');
      t.equal((await gateway.chat(customer.key, query, { max_tokens: 10 })).status, 200);
      const account = await settled(customer);
      const spent = picoUnitsOf(account.spent)!;
      t.ok(spent > 0n && spent <= 1_000n * INPUT + 10n * OUTPUT, account.spent);
      t.equal(picoUnitsOf(account.uncovered)!, 0n);
      checkLaw(t, account, 'absurd usage');
    },
  );

  await t.test('200 calls at once on a balance for a few', async (t) => {
    const customer = await admin.customer({ credit: '0.002' });
    const agent = keepAliveAgent(50);
    t.teardown(() => agent.destroy());
    const body = {
      model: TEST_MODEL,
      messages: [
        { role: 'user', content: steered('prompt_tokens=20&completion_tokens=50&first_byte_ms=20') },
      ],
      max_tokens: 50,
    };
    const answers = await Promise.all(
      Array.from({ length: 200 }, () => gateway.request(customer.key, { body, agent })),
    );
    const paid = answers.filter(({ status }) => status === 200).length;
    t.equal(answers.filter(({ status }) => status === 403).length, 200 - paid, 'all others refused');
    t.ok(paid > 0 && paid < 200, `${paid} were paid for`);
    const account = await settled(customer);
    t.equal(account.spent, decimalOf(BigInt(paid) * (20n * INPUT + 50n * OUTPUT)));
    t.equal(account.uncovered, '0.00');
    checkLaw(t, account, 'after');
  });

  t.equal(await gateway.stop(), 0);
});
