/**
 * Two processes on one port lease from one coordinator: the minute, the day, the balance and the calls in
 * flight are those of one gateway, to the last request and the last pico-unit.
 */
import t from 'tap';
import { decimalOf, picoUnitsOf } from '#src/core/money.js';
import { asPicoUnits } from '#src/core/units.js';
import { audit } from '#src/store/audit.js';
import type { AccountView } from '../support/admin-client.js';
import { startBed } from '../support/bed.js';
import { runCommand } from '../support/command.js';
import { checkError } from '../support/error-answer.js';
import { eventually, knownEverywhere } from '../support/gateway.js';
import type { Answer } from '../support/http.js';
import { steered } from '../support/mock.js';
import { openStream } from '../support/sse.js';

/** Pico-units a token, see test/support/gateway.ts. */
const INPUT = 1_500_000n;
const OUTPUT = 2_250_000n;

const BODY = { model: 'mock-model', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 5 };

interface StatementView {
  readonly balance: string;
  readonly held: string;
  readonly spent: string;
  readonly calls_today: number;
}

void t.test('limits over two processes', async (t) => {
  const { gateway } = await startBed(t, {
    processes: 2,
    plans: [
      { id: 'low', requests_per_minute: 5, calls_per_day: 1_000_000 },
      { id: 'wide', requests_per_minute: 100_000, calls_per_day: 1_000_000 },
      { id: 'day', requests_per_minute: 100_000, calls_per_day: 30 },
    ],
  });
  const customer = async (plan: string, credit?: string): Promise<{ key: string; accountId: string }> => {
    const made = await gateway.admin.customer({ plan, ...(credit === undefined ? {} : { credit }) });
    await knownEverywhere(gateway, made.key);
    return made;
  };
  // Each call has a connection of its own, so that both processes get some.
  const calls = async (key: string, count: number): Promise<Answer[]> => {
    const answers: Answer[] = [];
    for (let sent = 0; sent < count; sent += 20) {
      const wave = Array.from({ length: Math.min(20, count - sent) }, () =>
        gateway.request(key, { body: BODY }),
      );
      answers.push(...(await Promise.all(wave)));
    }
    return answers;
  };
  const count = (answers: readonly Answer[], status: number): number =>
    answers.filter((answer) => answer.status === status).length;

  await t.test('the minute', async (t) => {
    const { key } = await customer('low');
    const answers = await calls(key, 40);
    t.equal(count(answers, 200), 5, 'exactly the limit');
    const refused = answers.find(({ status }) => status === 429)!;
    t.equal(count(answers, 429), 35);
    checkError(t, refused, 'rate_limit_exceeded', 'the minute');
    t.match(refused.headers, { 'x-ratelimit-limit': '5', 'x-ratelimit-remaining': '0' });
    const wait = Number(refused.headers['retry-after']);
    t.ok(wait >= 1 && wait <= 62, `retry after ${wait}`);
  });

  await t.test('order of refusals: the minute before the body', async (t) => {
    const { key } = await customer('low');
    const wrong = await Promise.all(
      Array.from({ length: 12 }, () => gateway.request(key, { body: { model: 'mock-model' } })),
    );
    t.equal(count(wrong, 400), 5);
    t.equal(count(wrong, 429), 7);
  });

  await t.test('the day', async (t) => {
    const { key, accountId } = await customer('day');
    const answers = await calls(key, 60);
    t.equal(count(answers, 200), 30, 'exactly the limit');
    checkError(
      t,
      answers.find(({ status }) => status === 429)!,
      'daily_limit_exceeded',
      'the day',
    );
    t.equal((await gateway.admin.account(accountId)).calls_today, 30);
  });

  await t.test('the balance', async (t) => {
    const { key, accountId } = await customer('wide', '0.01');
    let answers: Answer[] = [];
    for (let round = 0; round < 30 && count(answers, 403) < 20; round++) {
      answers = [...answers, ...(await calls(key, 100))];
    }
    t.ok(count(answers, 200) > 10, `${count(answers, 200)} served`);
    t.ok(count(answers, 403) >= 20, `${count(answers, 403)} refused`);
    const view = await eventually('all holds are given back', async () => {
      const account = (await gateway.admin.account(accountId)) as unknown as StatementView;
      return Number(account.held) === 0 ? account : undefined;
    });
    t.equal((Number(view.balance) + Number(view.spent)).toFixed(12), '0.010000000000', 'the law');
    t.ok(Number(view.balance) >= 0);
    t.comment(view);
  });

  await t.test('usage beyond the hold and the lease is charged from the balance', async (t) => {
    const { key, accountId } = await customer('wide', '100.00');
    // A provider may put words of its own before a prompt; the hold knows the body alone.
    const answer = await gateway.chat(key, steered('prompt_tokens=4000&completion_tokens=1'), {
      max_tokens: 1,
    });
    t.equal(answer.status, 200, answer.body);
    const view = await eventually('all of it is charged', async () => {
      const account = await gateway.admin.account(accountId);
      return Number(account.spent) > 0 && account.uncovered === '0.00' ? account : undefined;
    });
    const cost = 4_000n * INPUT + OUTPUT;
    t.equal(picoUnitsOf(view.spent), cost);
    const sum = picoUnitsOf(view.balance)! + picoUnitsOf(view.held)! + cost;
    t.equal(sum, picoUnitsOf('100.00'), 'the law');
  });

  await t.test('what calls use is shown, and what is leased in advance apart', async (t) => {
    const credit = '5.00';
    const { key, accountId } = await customer('wide', credit);
    const answers = await calls(key, 40);
    t.equal(count(answers, 200), 40);
    const checkLaw = ({ balance, held, spent }: AccountView, name: string): void => {
      const sum = picoUnitsOf(balance)! + picoUnitsOf(held)! + picoUnitsOf(spent)!;
      t.equal(sum, picoUnitsOf(credit), `${name}: credited = balance + held + spent`);
    };
    // Idle leases are given back after some seconds: the account is to be seen at rest before that. A busy
    // machine looks too late, and calls again.
    const LEASED = ['balance', 'calls_in_flight', 'calls_today', 'requests_this_minute'] as const;
    let called = 40;
    const atRest = await eventually('the calls have ended, and leases remain', async () => {
      const view = await gateway.admin.account(accountId);
      if (view.held !== '0.00') return undefined;
      const { leased } = view;
      if (leased !== undefined && LEASED.every((name) => Number(leased[name]) > 0)) return view;
      called += 10;
      t.equal(count(await calls(key, 10), 200), 10);
      return undefined;
    });
    t.match(atRest, { calls_in_flight: 0, calls_today: called, requests_this_minute: called });
    t.ok(picoUnitsOf(atRest.spent)! > 0n);
    checkLaw(atRest, 'at rest');
    const { leased } = atRest;
    const leasedMoney = picoUnitsOf(leased!.balance)!;
    t.ok(leasedMoney <= picoUnitsOf(atRest.balance)!, `${leased!.balance} leased`);

    const body = {
      model: 'mock-model',
      messages: [{ role: 'user', content: steered('chunks=10000&chunk_ms=20') }],
      stream: true,
      max_tokens: 500,
    };
    const running = [await openStream(gateway.port, key, body)];
    const one = await gateway.admin.account(accountId);
    t.equal(one.calls_in_flight, 1);
    const hold = picoUnitsOf(one.held)!;
    t.ok(hold >= 500n * OUTPUT && hold < 600n * OUTPUT, `held ${one.held}`);
    checkLaw(one, 'one call');
    // Each by a connection of its own, so that both processes have some.
    running.push(
      ...(await Promise.all(Array.from({ length: 19 }, () => openStream(gateway.port, key, body)))),
    );
    const twenty = await gateway.admin.account(accountId);
    t.match(twenty, { calls_in_flight: 20, calls_today: called + 20 });
    t.equal(picoUnitsOf(twenty.held), 20n * hold);
    t.equal(twenty.spent, atRest.spent);
    checkLaw(twenty, 'twenty calls');
    const { stdout } = await runCommand(gateway.folder, ['accounts', 'show', accountId]);
    t.match(stdout, new RegExp(`^held +${twenty.held}$`, 'm'));
    t.match(stdout, /^calls in flight +20$/m);
    t.match(
      stdout,
      /^leased in advance +0\.\d+ of the balance, \d+ calls today, \d+ requests this minute, \d+ calls in flight$/m,
    );

    // All but a part of what calls hold.
    const debit = decimalOf(asPicoUnits(picoUnitsOf(twenty.balance)! + 1n));
    const refused = await gateway.admin.send('POST', `/admin/v1/accounts/${accountId}/credit`, {
      amount: `-${debit}`,
    });
    t.equal(refused.status, 400);
    t.match(
      refused.json(),
      {
        error: {
          code: 'invalid_parameters',
          message:
            /^amount must not take more than the balance of \S+: the rest is held by calls in flight and by processes that serve the account, which give back what lies idle within 24 s; try again then$/,
        },
      },
      refused.body,
    );
    await gateway.admin.credit(accountId, '1.00');
    const credited = await gateway.admin.account(accountId);
    t.match(credited, { calls_in_flight: 20, held: twenty.held, credited: '6.00' });
    for (const { outgoing } of running) outgoing.destroy();
    const after = await eventually('the calls have been cut', async () => {
      const view = await gateway.admin.account(accountId);
      return view.calls_in_flight === 0 && view.held === '0.00' ? view : undefined;
    });
    t.ok(picoUnitsOf(after.spent)! > picoUnitsOf(atRest.spent)!);
  });

  await t.test('a wide limit costs no refusal', async (t) => {
    const { key } = await customer('wide');
    const answers = await calls(key, 400);
    const refused = answers
      .filter(({ status }) => status !== 200)
      .map(({ status, body }) => `${status} ${body}`);
    t.same(refused, []);
  });

  await t.test('and the books balance', async (t) => {
    t.equal(await gateway.stop(), 0);
    const { differences } = await audit(gateway.dataFolder, {
      accountsMax: 1_000_000,
      keysMax: 1_000_000,
      groupsMax: 8,
    });
    t.same(differences, []);
  });
});
