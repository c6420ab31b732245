/**
 * `/metrics` of a real gateway: known traffic gives exactly these counters, in both formats, and promtool
 * finds no fault.
 */
import t from 'tap';
import { shareBed, startBed } from '../support/bed.js';
import { HIDDEN_MODEL, TEST_MODEL, eventually, startGateway, testSettings } from '../support/gateway.js';
import { request } from '../support/http.js';
import { scrape, type Scrape } from '../support/metrics.js';
import { startMock, steered } from '../support/mock.js';
import { HAS_PROMTOOL, promtool } from '../support/prometheus.js';
import { openStream } from '../support/sse.js';

const CHAT = '/v1/chat/completions';

const requests = (page: Scrape, labels: Readonly<Record<string, string>>): number =>
  page.value('tollgate_requests_total', { route: CHAT, model: TEST_MODEL, ...labels });

void t.test('known traffic, exact counters', async (t) => {
  const { gateway, mock } = await startBed(t, {
    plans: [
      { id: 'narrow', requests_per_minute: 1_000, calls_per_day: 2, models: [TEST_MODEL] },
      { id: 'slow', requests_per_minute: 1, calls_per_day: 1_000 },
    ],
  });
  const upstream = mock.url.replace('http://', '').replace('/v1', '');
  const rich = await gateway.admin.customer();
  const narrow = await gateway.admin.customer({ plan: 'narrow' });
  const slow = await gateway.admin.customer({ plan: 'slow' });

  for (let count = 0; count < 3; count++) t.equal((await gateway.chat(rich.key, 'Hello')).status, 200);
  for (let count = 0; count < 2; count++) {
    t.equal((await gateway.chat(rich.key, 'Hello', { stream: true })).status, 200);
  }
  t.equal((await gateway.chat('sk-wrong', 'Hello')).status, 401);
  t.equal((await gateway.chat(rich.key, 'Hello', { temperature: 9 })).status, 400);
  t.equal((await gateway.chat(rich.key, 'Hello', { model: 'no-such-model' })).status, 400);
  t.equal((await gateway.chat(narrow.key, 'Hello', { model: HIDDEN_MODEL })).status, 400);
  t.equal((await gateway.chat(rich.key, steered('status=500'))).status, 502);
  t.equal((await gateway.chat(rich.key, steered('status=401'))).status, 502);
  t.equal((await gateway.chat(rich.key, steered('status=400'))).status, 400);
  const broken = await gateway.chat(rich.key, steered('chunks=10&chunk_ms=20&fault=reset-mid'), {
    stream: true,
  });
  t.equal(broken.status, 200);
  t.match(broken.body, /"error"/);
  for (let count = 0; count < 2; count++) t.equal((await gateway.chat(narrow.key, 'Hello')).status, 200);
  t.equal((await gateway.chat(narrow.key, 'Hello')).status, 429, 'the day is used up');
  t.equal((await gateway.chat(slow.key, 'Hello')).status, 200);
  t.equal((await gateway.chat(slow.key, 'Hello')).status, 429, 'the minute is used up');
  const models = (key: string, path = '') =>
    gateway.request(key, { method: 'GET', path: `/v1/models${path}` });
  t.equal((await models(rich.key)).status, 200);
  t.equal((await models(rich.key, `/${TEST_MODEL}`)).status, 200);
  t.equal((await models(rich.key, '/no-such-model')).status, 404);
  t.equal((await models('sk-wrong')).status, 401);
  t.equal((await request({ port: gateway.port, path: '/nowhere' })).status, 404);
  t.equal((await request({ port: gateway.port, path: CHAT })).status, 405);
  const left = await openStream(gateway.port, rich.key, {
    model: TEST_MODEL,
    stream: true,
    messages: [{ role: 'user', content: steered('chunks=100&chunk_ms=100') }],
  });

  const during = await scrape(gateway.admin.port);
  t.equal(during.value('tollgate_calls_in_flight', {}), 1);
  t.equal(during.value('tollgate_upstream_calls_in_flight', { model: TEST_MODEL, upstream }), 1);
  left.outgoing.destroy();
  const page = await eventually('the client that left', async () => {
    const seen = await scrape(gateway.admin.port);
    return requests(seen, { code: 'client_gone', status: 'none' }) === 1 ? seen : undefined;
  });

  t.equal(requests(page, { code: 'ok', status: '200' }), 8);
  t.equal(requests(page, { code: 'provider_unavailable', status: '502' }), 2);
  t.equal(requests(page, { code: 'provider_unavailable', status: '200' }), 1, 'after the stream had begun');
  t.equal(requests(page, { code: 'invalid_parameters', status: '400' }), 1, "the provider's refusal");
  t.equal(requests(page, { code: 'daily_limit_exceeded', status: '429' }), 1);
  t.equal(requests(page, { code: 'invalid_parameters', status: '400', model: '' }), 1, 'ours');
  t.equal(requests(page, { code: 'invalid_api_key', status: '401', model: '' }), 1);
  t.equal(requests(page, { code: 'rate_limit_exceeded', status: '429', model: '' }), 1);
  t.equal(requests(page, { code: 'method_not_allowed', status: '405', model: '' }), 1);
  t.equal(requests(page, { code: 'model_not_found', status: '400', model: 'unknown model' }), 2);
  const other = (route: string, code: string, status: string): number =>
    page.value('tollgate_requests_total', { route, code, status, model: '' });
  t.equal(other('/v1/models', 'ok', '200'), 1);
  t.equal(other('/v1/models', 'invalid_api_key', '401'), 1);
  t.equal(other('/v1/models/{id}', 'ok', '200'), 1);
  t.equal(other('/v1/models/{id}', 'model_not_found', '404'), 1);
  t.equal(other('other', 'not_found', '404'), 1);
  t.equal(page.sum('tollgate_requests_total'), 25, 'and there are no others');

  for (const [reason, count] of Object.entries({
    invalid_api_key: 1,
    invalid_parameters: 1,
    model_not_found: 2,
    daily_limit_exceeded: 1,
    rate_limit_exceeded: 1,
  })) {
    t.equal(page.value('tollgate_refusals_total', { reason }), count, reason);
  }
  t.equal(page.sum('tollgate_refusals_total'), 6);

  const at = { model: TEST_MODEL, upstream };
  t.equal(page.value('tollgate_upstream_attempts_total', at), 13);
  t.equal(page.value('tollgate_upstream_retries_total', at), 0);
  t.equal(page.value('tollgate_upstream_failures_total', { ...at, kind: 'status' }), 1);
  t.equal(page.value('tollgate_upstream_failures_total', { ...at, kind: 'credentials' }), 1);
  t.equal(page.value('tollgate_upstream_credentials_refused_total', at), 1);
  t.equal(page.value('tollgate_upstream_failures_total', { ...at, kind: 'rejected' }), 1);
  t.equal(page.value('tollgate_upstream_failures_total', { ...at, kind: 'connection_lost' }), 1);
  t.equal(
    page.value('tollgate_upstream_breaker_workers', { ...at, state: 'closed' }),
    2,
    'the worker and the listener',
  );
  t.equal(page.value('tollgate_upstream_calls_in_flight', at), 0);
  t.equal(page.value('tollgate_calls_in_flight', {}), 0);

  const genAi = {
    gen_ai_operation_name: 'chat',
    gen_ai_provider_name: 'mock',
    gen_ai_request_model: TEST_MODEL,
  };
  t.equal(page.value('gen_ai_server_request_duration_seconds_count', genAi), 8);
  t.equal(page.value('gen_ai_server_time_to_first_token_seconds_count', genAi), 2);
  t.equal(page.value('tollgate_overhead_seconds_count', { stream: 'false' }), 6);
  t.equal(page.value('tollgate_overhead_seconds_count', { stream: 'true' }), 2);
  const usage = (type: string, part: string): number =>
    page.value(`gen_ai_client_token_usage_${part}`, { ...genAi, gen_ai_token_type: type });
  t.equal(usage('input', 'count'), 9, 'the client that left is charged too');

  // The books are the judge of tokens and money.
  const spent = await Promise.all(
    [rich, narrow, slow].map(async ({ accountId }) => Number((await gateway.admin.account(accountId)).spent)),
  );
  const total = spent.reduce((sum, amount) => sum + amount, 0);
  t.ok(Math.abs(page.value('tollgate_cost_total', { model: TEST_MODEL }) - total) < 1e-9, `cost ${total}`);
  const book = await eventually('the flush', async () => {
    const { data } = (await gateway.admin.send('GET', '/admin/v1/usage?by=model')).json() as {
      data: { prompt_tokens: number; completion_tokens: number; cached_tokens: number; calls: number }[];
    };
    return data[0]?.prompt_tokens === usage('input', 'sum') ? data[0] : undefined;
  });
  t.equal(usage('output', 'sum'), book.completion_tokens);
  t.equal(page.value('tollgate_cached_input_tokens_total', { model: TEST_MODEL }), book.cached_tokens);

  const status = (await gateway.admin.send('GET', '/admin/v1/status')).json() as {
    readonly outcomes: Readonly<Record<string, number>>;
    readonly tokens: object;
    readonly cost: string;
    readonly duration_ms: { readonly bounds: number[]; readonly counts: number[] };
    readonly upstreams: readonly object[];
    readonly threads: readonly { readonly name: string; readonly heap_bytes: number }[];
  };
  t.match(status.outcomes, { ok: 8, client_gone: 1, provider_unavailable: 3, invalid_parameters: 2 });
  t.same(status.tokens, {
    prompt: book.prompt_tokens,
    cached: book.cached_tokens,
    completion: book.completion_tokens,
  });
  t.ok(Math.abs(Number(status.cost) - total) < 1e-9);
  t.equal(status.duration_ms.counts.length, status.duration_ms.bounds.length + 1);
  t.equal(
    status.duration_ms.counts.reduce((sum, count) => sum + count, 0),
    8,
  );
  t.match(status.upstreams, [
    {
      model: TEST_MODEL,
      name: upstream,
      priority: 1,
      weight: 1,
      breaker: 'closed',
      attempts: 13,
      failures: 4,
    },
    { model: HIDDEN_MODEL, name: upstream, attempts: 0, failures: 0 },
  ]);
  const threads = ['main', 'listener-0', 'worker-0', 'counter-0'];
  const names = status.threads.map(({ name }) => name);
  t.same(names.slice(0, threads.length), threads, 'streams that broke had their tokens counted');
  t.ok(status.threads.every(({ heap_bytes: heapBytes }) => heapBytes > 1e6));
  t.equal(await gateway.stop(), 0);
});

const sharedBed = shareBed(t);

void t.test('what a call costs beyond the balance is counted', async (t) => {
  const { gateway } = await sharedBed();
  const { accountId, key } = await gateway.admin.customer({ credit: '0.001' });
  // The report is of more tokens than the body, for which the call was held, has.
  const answer = await gateway.chat(key, steered('prompt_tokens=3000&completion_tokens=1'), {
    max_tokens: 1,
  });
  t.equal(answer.status, 200);
  const account = await gateway.admin.account(accountId);
  t.match(account, { balance: '0.00', spent: '0.001' });
  t.ok(Number(account.uncovered) > 0);
  const page = await eventually('the call to be counted', async () => {
    const seen = await scrape(gateway.admin.port);
    // A scrape may come between the two words of a call.
    const names = seen.names();
    return names.has('tollgate_uncovered_total') && names.has('tollgate_cost_total') ? seen : undefined;
  });
  const labels = { model: TEST_MODEL };
  t.equal(page.value('tollgate_uncovered_total', labels), Number(account.uncovered));
  t.equal(page.value('tollgate_cost_total', labels), 0.001, 'what nobody pays is no charge');
});

void t.test('both formats, without a token, and no fault in them', async (t) => {
  const { gateway } = await sharedBed();
  const { key } = await gateway.admin.customer();
  await gateway.chat(key, 'Hello');
  // A call is counted when it has ended, which its client may know before.
  const page = await eventually('the call to be counted', async () => {
    const seen = await scrape(gateway.admin.port);
    return seen.names().has('tollgate_requests_total') ? seen : undefined;
  });
  t.equal(page.contentType, 'text/plain; version=0.0.4; charset=utf-8');
  const open = await scrape(
    gateway.admin.port,
    'application/openmetrics-text;version=1.0.0,text/plain;q=0.5',
  );
  t.equal(open.contentType, 'application/openmetrics-text; version=1.0.0; charset=utf-8');
  t.match(open.text, /\n# TYPE tollgate_requests counter\n/);
  t.ok(open.text.endsWith('\n# EOF\n'));
  t.same([...open.names()].sort(), [...page.names()].sort(), 'the same samples');
  t.equal(page.sum('tollgate_account_balance'), 0, 'accounts are not told');
  const head = await request({ port: gateway.admin.port, method: 'HEAD', path: '/metrics' });
  t.match(head, { status: 200, body: '' });

  if (HAS_PROMTOOL) {
    const { status, said } = promtool(['check', 'metrics'], page.text);
    t.equal(status, 0, `promtool check metrics: ${said}`);
  } else {
    t.comment('skipped: promtool check metrics, promtool is not installed');
  }
  t.equal(await gateway.stop(), 0);
});

void t.test('account labels, where they are switched on', async (t) => {
  const mock = await startMock(t);
  const gateway = await startGateway(t, {
    config: testSettings(mock.url, { metrics: { account_labels: true } }),
  });
  const { accountId, key } = await gateway.admin.customer({ credit: '12.50' });
  await gateway.chat(key, 'Hello');
  const page = await scrape(gateway.admin.port);
  const labels = { account: accountId, account_name: 'customer-1' };
  const { balance } = await gateway.admin.account(accountId);
  t.equal(page.value('tollgate_account_balance', labels), Number(balance));
  t.equal(page.value('tollgate_account_calls_today', labels), 1);
  t.ok(page.value('tollgate_account_spent_total', labels) > 0);
  t.equal(await gateway.stop(), 0);
});
