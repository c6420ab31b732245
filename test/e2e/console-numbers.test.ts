/**
 * Numbers of the console in a real browser: what a call cost, what a quota counts, what upstreams did, and
 * that they go on after an error response.
 */
import t from 'tap';
import type { QuotaUseView } from '#src/admin/views.js';
import type { CallView } from '#src/admin/call-routes.js';
import type { StatusDocument } from '#src/telemetry/status-document.js';
import { shareBed, startBed } from '../support/bed.js';
import { goTo, HAS_BROWSER, shoot, signIn, startBrowser } from '../support/browser.js';
import { eventually, type Gateway, TEST_MODEL } from '../support/gateway.js';
import { steered } from '../support/mock.js';

const SKIP = HAS_BROWSER ? {} : { skip: 'Chromium is not installed' };
const WIDE = { width: 1440, height: 900 };
const PHONE = { width: 390, height: 844 };

const sharedBed = shareBed(t, { flush_interval_ms: 50 });

const at = (gateway: Gateway, place: string): string => `http://127.0.0.1:${gateway.admin.port}/#/${place}`;

/** A whole answer with this usage, and no other. */
const answering = (usage: object): string => {
  const message = { role: 'assistant', content: 'Hi' };
  const choices = [{ index: 0, message, finish_reason: 'stop' }];
  const body = { id: 'c', object: 'chat.completion', created: 1, model: 'm', choices, usage };
  return steered(`body=${encodeURIComponent(JSON.stringify(body))}`);
};

void t.test('the playground shows what was charged, however the upstream reports it', SKIP, async (t) => {
  const { gateway } = await sharedBed();
  const { key } = await gateway.admin.customer();
  const { page, faults } = await (await startBrowser(t)).open({ viewport: WIDE });
  await signIn(page, gateway);
  await goTo(page, 'Playground');
  await page.getByLabel('Model').selectOption(TEST_MODEL);
  await page.getByLabel('API key').fill(key);
  await page.getByLabel('Stream the answer').uncheck();
  const usages: readonly (readonly [string, object, string])[] = [
    // xAI's own example: the reasoning is not in the completion.
    [
      'reasoning beside the completion',
      {
        ...{ prompt_tokens: 32, completion_tokens: 9, total_tokens: 1_135 },
        completion_tokens_details: { reasoning_tokens: 1_094 },
      },
      '32 in, 1,103 out',
    ],
    ['no completion', { prompt_tokens: 7, total_tokens: 12 }, '7 in, 5 out'],
  ];
  for (const [name, usage, tokens] of usages) {
    await page.getByLabel('Message', { exact: true }).fill(answering(usage));
    await page.keyboard.press('Enter');
    const shown = page.locator('.turn').last().locator('.taken');
    // The tokens come first: the last turn may still be the former one, which has a cost already.
    await shown.getByText(tokens).waitFor();
    await shown.getByText('Cost').waitFor();
    await shown.locator('summary').click();
    const id = await shown.locator('dt', { hasText: 'x-request-id' }).locator('xpath=../dd').textContent();
    const call = (await gateway.admin.send('GET', `/admin/v1/calls/${id!}`)).json() as CallView;
    t.match(await shown.locator('summary').textContent(), `Cost ${call.cost!.slice(0, 6)}`, name);
    t.ok(Number(call.cost) > 0);
  }
  for (const viewport of [WIDE, PHONE]) {
    await page.setViewportSize(viewport);
    await shoot(page, `playground-talk-${viewport.width}`);
  }
  t.same(faults, []);
});

void t.test('the stream of numbers goes on after an error response', SKIP, async (t) => {
  const { gateway } = await sharedBed();
  const { page, faults } = await (await startBrowser(t)).open({ viewport: WIDE });
  let rejections = 0;
  await page.route('**/admin/v1/live*', async (route) => {
    if (++rejections > 2) await route.continue();
    else await route.fulfill({ status: 502, body: 'Bad gateway' });
  });
  await page.goto(at(gateway, 'settings'));
  await page.getByLabel('Admin token').fill(gateway.admin.token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByText('Connecting…').waitFor();
  await page.getByText('Serving').waitFor();
  t.equal(rejections, 3);
  t.ok(faults.every((fault) => fault.includes('502')));
});

void t.test('what is used of a quota leads to the calls of its day or month', SKIP, async (t) => {
  // Clocks change on 2026-03-29 and 2026-10-25.
  const { gateway } = await startBed(t, { quota_timezone: 'Europe/Berlin' });
  const { accountId } = await gateway.admin.customer();
  const { page, faults } = await (await startBrowser(t)).open({ viewport: WIDE });
  const use = (resetsAt: string): QuotaUseView => ({
    ...{ limit: 100, used: 7, held: 0, left: 93 },
    resets_at: Date.parse(resetsAt) / 1_000,
  });
  const quotas = {
    calls_per_day: use('2026-10-25T16:00Z'),
    tokens_per_day: use('2026-10-25T23:00Z'),
    calls_per_month: use('2026-10-31T23:00Z'),
    spend_per_month: { ...use('2026-03-31T22:00Z'), limit: '9.00', used: '1.00', held: '0.00' },
  };
  await page.route(`**/admin/v1/accounts/${accountId}`, async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...((await response.json()) as object), quotas } });
  });
  await signIn(page, gateway);
  await page.goto(at(gateway, `accounts/${accountId}`));
  const lines = page.getByLabel('Quotas of the account').locator('li');
  const wanted = {
    'Calls a day': '2026-10-24T16:00Z',
    'Tokens a day': '2026-10-24T22:00Z',
    'Calls a month': '2026-09-30T22:00Z',
    'Spend a month': '2026-02-28T23:00Z',
  };
  for (const [quota, from] of Object.entries(wanted)) {
    const link = lines.filter({ hasText: quota }).getByRole('link');
    const address = new URLSearchParams((await link.getAttribute('href'))!.split('?')[1]);
    t.equal(new Date(Number(address.get('from')) * 1_000).toISOString(), new Date(from).toISOString(), quota);
  }
  t.same(faults, []);
});

void t.test('upstreams are compared with themselves after a reload, and after a restart', SKIP, async (t) => {
  const { gateway } = await sharedBed();
  const status = (await gateway.admin.send('GET', '/admin/v1/status')).json() as StatusDocument;
  const [upstream] = status.upstreams;
  const of = (model: string, attempts: number, failures: number) => ({
    ...{ ...upstream!, model, attempts, failures, ...errorsOf[model] },
  });
  const error = (at: number, kind: string) => ({
    ...{ at, kind, status: null, error: null, request_id: `req_${kind}` },
  });
  const failure = { last_failure: { at: 1_000, kind: 'timeout' } };
  const errorsOf: Readonly<Record<string, object>> = {
    // The call that timed out may still run, at another upstream: its error is listed when it ends.
    small: { ...failure, last_errors: [error(900, 'timeout')] },
    big: { ...failure, last_errors: [error(1_001, 'status'), error(1_001, 'timeout')] },
  };
  const events = [
    { history: { range: '5m', seconds: 2, spans: [] } },
    { now: { ...status, upstreams: [of('big', 9_000, 4_000), of('small', 100, 1), of('anew', 500, 9)] } },
    { now: { ...status, upstreams: [of('new', 7, 3), of('small', 100, 1), of('big', 9_000, 4_000)] } },
    { now: { ...status, upstreams: [of('small', 100, 1), of('big', 9_001, 4_000), of('anew', 4, 3)] } },
  ].flatMap((event) => Object.entries(event));
  const body = events.map(([name, data]) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`).join('');
  const { page } = await (await startBrowser(t)).open({ viewport: WIDE });
  await page.route('**/admin/v1/live*', (route) => route.fulfill({ contentType: 'text/event-stream', body }));
  await signIn(page, gateway);
  await goTo(page, 'Upstreams');
  const states = page.getByRole('region', { name: 'Upstreams' }).getByRole('row');
  const stateOf = (model: string): Promise<string | null> => states.filter({ hasText: model }).textContent();
  await states.filter({ hasText: 'small' }).waitFor();
  t.match(await stateOf('small'), /Healthy/);
  t.match(await stateOf('big'), /Healthy/);
  t.match(await stateOf('anew'), /3 of 4 failed/);
  t.equal(await states.filter({ hasText: 'small' }).getByRole('link', { name: 'timeout' }).count(), 0);
  const link = states.filter({ hasText: 'big' }).getByRole('link', { name: 'timeout' });
  t.match(await link.getAttribute('href'), /req_timeout$/, 'the call that failed last');
  for (const viewport of [WIDE, PHONE]) {
    await page.setViewportSize(viewport);
    await shoot(page, `upstreams-compared-${viewport.width}`);
  }
});

void t.test('failed calls lead to those too that broke after their status', SKIP, async (t) => {
  // All calls of a gateway are counted.
  const { gateway } = await startBed(t);
  const { key } = await gateway.admin.customer();
  const { port } = gateway;
  const sent = async (prompt: string, stream: boolean): Promise<void> => {
    const response = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: TEST_MODEL, stream, messages: [{ role: 'user', content: prompt }] }),
    });
    await response.text().catch(() => '');
  };
  const { page, faults } = await (await startBrowser(t)).open({ viewport: WIDE });
  await signIn(page, gateway);
  // Calls before the first reading of the numbers are in no chart.
  await page.getByRole('region', { name: 'Threads' }).getByRole('row').nth(1).waitFor();
  await sent('Hello', false);
  await sent(steered('fault=reset-mid&chunks=5'), true);
  await sent(steered('status=400'), false);
  await sent(steered('status=500'), false);
  const rows = page.getByRole('region', { name: 'Calls' }).locator('tbody tr');
  const models = page.getByRole('region', { name: 'Models' });
  const counts = models.getByRole('row', { name: TEST_MODEL }).getByRole('link');
  // All four calls, lest two that have ended so far be taken for two that failed.
  await counts
    .and(page.getByRole('link', { name: '4', exact: true }))
    .first()
    .waitFor();
  await counts.and(page.getByRole('link', { name: '2', exact: true })).click();
  await page.getByText('2 calls shown').waitFor();
  t.match(await rows.allTextContents(), [/502/, /200/]);
  for (const viewport of [WIDE, PHONE]) {
    await page.setViewportSize(viewport);
    await shoot(page, `calls-failed-${viewport.width}`);
  }
  await page.goto(at(gateway, 'overview'));
  const tile = page.locator('.tile').filter({ hasText: 'Failed' }).getByRole('link');
  await tile.click();
  await page.getByText('2 calls shown').waitFor();
  t.same(faults, []);
});

void t.test('what nobody pays is shown, where there is any', SKIP, async (t) => {
  const { gateway } = await sharedBed();
  const { accountId, key } = await gateway.admin.customer({ credit: '0.001' });
  const other = await gateway.admin.customer();
  const { page, faults } = await (await startBrowser(t)).open({ viewport: WIDE });
  await signIn(page, gateway);
  const tile = page.locator('.tile').filter({ hasText: 'Uncovered' });
  const head = page.getByRole('columnheader', { name: 'Uncovered' });
  await gateway.chat(other.key, 'Hello');
  await page.goto(at(gateway, `accounts/${other.accountId}`));
  await page.locator('.tile').filter({ hasText: 'Spent' }).waitFor();
  t.equal(await tile.count(), 0);
  await page.goto(at(gateway, 'usage'));
  await page.getByRole('columnheader', { name: 'Cost', exact: true }).waitFor();
  t.equal(await head.count(), 0);

  await gateway.chat(key, steered('prompt_tokens=3000&completion_tokens=1'), { max_tokens: 1 });
  const { uncovered } = await gateway.admin.account(accountId);
  await eventually('the flush', async () => {
    const { body } = await gateway.admin.send('GET', '/admin/v1/usage?by=day');
    return body.includes(`"uncovered":"${uncovered}"`) ? true : undefined;
  });
  await page.goto(at(gateway, `accounts/${accountId}`));
  t.match(await tile.textContent(), uncovered.slice(0, 6));
  for (const viewport of [WIDE, PHONE]) {
    await page.setViewportSize(viewport);
    await shoot(page, `account-uncovered-${viewport.width}`);
  }
  await page.setViewportSize(WIDE);
  await page.goto(at(gateway, 'usage'));
  await head.waitFor();
  t.match(
    await page.getByRole('region', { name: 'Usage' }).locator('tfoot').textContent(),
    uncovered.slice(0, 6),
  );
  for (const viewport of [WIDE, PHONE]) {
    await page.setViewportSize(viewport);
    await shoot(page, `usage-uncovered-${viewport.width}`);
  }
  t.same(faults, []);
});
