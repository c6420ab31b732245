/**
 * What is kept of a call: its attempts, what quotas had left, times, tokens, cost and the exact error, for
 * calls that went well and for those that did not. Read from the files, as the commands do without a gateway.
 */
import { join } from 'node:path';
import { existsSync, writeFileSync } from 'node:fs';
import t, { type Test } from 'tap';
import { CallReader } from '#src/call-log/call-reader.js';
import { callView, type CallView } from '#src/telemetry/call-record.js';
import { startBed } from '../support/bed.js';
import { eventually, startGateway, testSettings, TEST_MODEL, type Gateway } from '../support/gateway.js';
import type { Answer } from '../support/http.js';
import { startMock, steered } from '../support/mock.js';
import { SlowReader } from '../support/slow-reader.js';

const reader = ({ dataFolder }: Gateway): CallReader => new CallReader(join(dataFolder, 'calls'));

const found = (gateway: Gateway, requestId: string): Promise<CallView> =>
  eventually(`the record of ${requestId}`, async () => {
    const call = await reader(gateway).find(requestId);
    return call && callView(call);
  });

const recordOf = (gateway: Gateway, { headers }: Answer): Promise<CallView> =>
  found(gateway, String(headers['x-request-id']));

const messageOf = (answer: Answer): string => (answer.json() as { error: { message: string } }).error.message;

/** Times lie within the call, in their order. */
function checkTimes(t: Test, call: CallView): void {
  const { duration_ms: durationMs, admitted_ms: admittedMs, first_token_ms: firstTokenMs, attempts } = call;
  t.ok(admittedMs !== null && admittedMs >= 0 && admittedMs <= durationMs, `admitted after ${admittedMs} ms`);
  let endMs = admittedMs ?? 0;
  for (const { start_ms: startMs, duration_ms: attemptMs } of attempts) {
    // Clocks of threads differ by microseconds.
    t.ok(startMs >= endMs - 1, `an attempt after ${startMs} ms follows what ended after ${endMs}`);
    endMs = startMs + attemptMs;
    t.ok(endMs <= durationMs + 1, `it ends after ${endMs} of ${durationMs} ms`);
  }
  if (firstTokenMs !== null) t.ok(firstTokenMs <= durationMs && firstTokenMs >= attempts.at(-1)!.start_ms);
}

void t.test('a call that a second upstream answered, and what its quotas had left', async (t) => {
  const [bad, good] = await Promise.all([startMock(t, ['--status', '500']), startMock(t)]);
  const upstreams = [
    { url: 'http://127.0.0.1:9/v1', priority: 1 },
    { url: bad.url, priority: 2 },
    { url: good.url, priority: 3 },
  ];
  const config = testSettings(good.url, {
    model: { upstreams },
    plans: [{ id: 'small', requests_per_minute: 10, calls_per_day: 20, tokens_per_day: 100_000 }],
  });
  const gateway = await startGateway(t, { config });
  const customer = await gateway.admin.customer({
    plan: 'small',
    credit: '10.00',
    limits: { requests_per_minute: 5, spend_per_day: '2.00' },
  });
  const answer = await gateway.chat(customer.key, steered('prompt_tokens=7&completion_tokens=9'));
  t.equal(answer.status, 200);
  const call = await recordOf(gateway, answer);
  const common = { account: customer.accountId, key: customer.keyId, model: TEST_MODEL, code: null };
  t.match(call, {
    ...common,
    answered_model: TEST_MODEL,
    upstream: `127.0.0.1:${good.port}`,
    status: 200,
    stream: false,
    prompt_tokens: 7,
    completion_tokens: 9,
    cost: '0.00003075',
    error: null,
  });
  t.match(call.attempts, [
    { upstream: '127.0.0.1:9', model: TEST_MODEL, status: null, code: 'connect', error: /ECONNREFUSED/ },
    { upstream: `127.0.0.1:${bad.port}`, status: 500, code: 'status', error: 'status 500' },
    { upstream: `127.0.0.1:${good.port}`, status: 200, code: null, error: null },
  ]);
  t.equal(call.attempts.length, 3);
  checkTimes(t, call);
  const left = Object.fromEntries(
    call.quotas.map(({ scope, id, quota, left: amount }) => [`${scope} ${id} ${quota}`, amount]),
  );
  const { accountId, keyId } = customer;
  t.match(left, {
    [`account ${accountId} calls_per_day`]: 19,
    [`account ${accountId} requests_per_minute`]: 9,
    [`key ${keyId} requests_per_minute`]: 4,
  });
  const holdOf = (amount: number | string | undefined, from: number): number => from - Number(amount);
  const hold = holdOf(left[`account ${accountId} balance`], 10);
  t.ok(hold > 0 && hold < 0.01, `${hold} is held`);
  t.ok(
    Math.abs(holdOf(left[`key ${keyId} spend_per_day`], 2) - hold) < 1e-9,
    'of the budget as of the balance',
  );
  const tokens = holdOf(left[`account ${accountId} tokens_per_day`], 100_000);
  t.ok(tokens > 1_000 && tokens < 2_000, `${tokens} tokens are held`);
  await gateway.stop();
});

void t.test('what callers were told, word for word', async (t) => {
  const bed = await startBed(t, {
    plans: [{ id: 'slow', requests_per_minute: 1, calls_per_day: 10 }],
    upstream: { breaker_failures: 0 },
  });
  const { gateway } = bed;
  const upstream = `127.0.0.1:${bed.mock.port}`;
  const customer = await gateway.admin.customer();
  const limited = await gateway.admin.customer({ plan: 'slow' });
  const poor = await gateway.admin.customer({ credit: '0.00' });
  await gateway.chat(limited.key, 'hello');
  const told = [
    [await gateway.chat(limited.key, 'hello'), { status: 429, code: 'rate_limit_exceeded' }, 0],
    [
      await gateway.chat(poor.key, 'hello'),
      { status: 403, code: 'insufficient_quota', model: TEST_MODEL },
      0,
    ],
    [await gateway.chat('sk-nobody', 'hello'), { status: 401, code: 'invalid_api_key', account: null }, 0],
    [
      await gateway.chat(customer.key, 'hello', { model: 'no-such-model' }),
      { status: 400, code: 'model_not_found', model: null },
      0,
    ],
    [
      await gateway.chat(customer.key, steered('fault=broken-json')),
      { status: 502, code: 'provider_unavailable', upstream, cost: null },
      1,
    ],
  ] as const;
  for (const [answer, expected, attempts] of told) {
    const call = await recordOf(gateway, answer);
    t.match(call, { ...expected, error: messageOf(answer) });
    t.equal(call.status, answer.status);
    t.ok(call.attempts.length >= attempts, `${expected.code}: ${call.attempts.length} attempts`);
    t.equal(call.attempts.length > 0, attempts > 0);
    if (attempts === 0) t.same([call.admitted_ms, call.quotas], [null, []]);
    else t.match(call.attempts[0], { upstream, status: 200, code: 'invalid_answer' });
  }
  await gateway.stop();
});

void t.test('who asked for a stream, of calls with any end', async (t) => {
  const { gateway } = await startBed(t);
  const customer = await gateway.admin.customer();
  const poor = await gateway.admin.customer({ credit: '0.00' });
  const messages = [{ role: 'user', content: 'hello' }];
  // A large body is parsed by a counter thread.
  const long = [{ role: 'user', content: 'x'.repeat(100_000) }];
  for (const [stream, content] of [
    [true, messages],
    [true, long],
    [false, messages],
  ] as const) {
    const body = { model: TEST_MODEL, messages: content, stream };
    const keyed = { headers: { 'idempotency-key': `key-${stream}-${content === long}` }, body };
    const answers = {
      served: await gateway.request(customer.key, keyed),
      replayed: await gateway.request(customer.key, keyed),
      'another body': await gateway.request(customer.key, { ...keyed, body: { ...body, n: 1 } }),
      'no such model': await gateway.request(customer.key, { body: { ...body, model: 'none' } }),
      'no balance': await gateway.request(poor.key, { body: { ...body, messages } }),
    };
    t.equal(answers.replayed.headers['idempotent-replayed'], 'true');
    for (const [end, answer] of Object.entries(answers)) {
      const call = await recordOf(gateway, answer);
      t.equal(call.stream, stream, `${end}, ${answer.status}`);
      t.equal(call.first_token_ms !== null, stream && answer.status === 200, `${end}: the first token`);
    }
  }
  await gateway.stop();
});

void t.test('a stream that fails half-way, and a caller that leaves', async (t) => {
  const bed = await startBed(t, { upstream: { idle_timeout_ms: 2_000 } });
  const { gateway } = bed;
  const { key } = await gateway.admin.customer();
  const broken = await gateway.chat(key, steered('fault=reset-mid&chunks=10'), { stream: true });
  const failed = await recordOf(gateway, broken);
  t.match(failed, { status: 200, code: 'provider_unavailable', stream: true, cost: null });
  t.ok(broken.body.includes(JSON.stringify(failed.error)), 'the event that the caller got has these words');
  t.match(failed.attempts, [{ status: 200, code: 'connection_lost' }]);
  t.equal(failed.attempts.length, 1);
  checkTimes(t, failed);

  const messages = [{ role: 'user', content: steered('chunks=1000&chunk_ms=50') }];
  const leaver = new SlowReader(gateway.port, key, { model: TEST_MODEL, messages, stream: true }, 100_000);
  await eventually('the first bytes', () => (leaver.readBytes > 0 ? true : undefined));
  leaver.leave();
  const left = await eventually('the record of who left', async () => {
    const page = await reader(gateway).page({ code: 'client_gone' }, 10);
    return page?.calls[0] && callView(page.calls[0]);
  });
  t.match(left, { status: 200, code: 'client_gone', stream: true, error: null, source: 'estimated' });
  t.match(left.attempts, [{ status: 200, code: 'cancelled', error: null }]);
  t.ok(Number(left.cost) > 0, 'what was relayed is charged');
  checkTimes(t, left);
  await gateway.stop();
});

void t.test('off and on again while it serves; floods of rejections are not all kept', async (t) => {
  const bed = await startBed(t, { call_log: { enabled: false } });
  const { gateway, mock } = bed;
  const { key } = await gateway.admin.customer();
  const set = async (settings: object): Promise<void> => {
    writeFileSync(
      join(gateway.folder, 'tollgate.yaml'),
      JSON.stringify(testSettings(mock.url, { ...settings })),
    );
    t.match((await gateway.admin.send('POST', '/admin/v1/reload', {})).json(), { restart_needed: [] });
  };
  const unkept = await gateway.chat(key, 'hello');
  await set({});
  const kept = await gateway.chat(key, 'hello');
  await recordOf(gateway, kept);
  t.equal(await reader(gateway).find(String(unkept.headers['x-request-id'])), undefined);
  const flood = 1_000;
  await Promise.all(Array.from({ length: flood }, () => gateway.chat('sk-nobody', 'hello')));
  const last = await gateway.chat(key, 'hello');
  await recordOf(gateway, last);
  const page = await reader(gateway).page({ code: 'invalid_api_key' }, flood);
  const count = page!.calls.length;
  t.ok(count >= 100 && count < flood, `${count} of ${flood} rejections are kept`);
  await gateway.stop();
});

void t.test('the status tells the last errors of an upstream also if no log wants calls', async (t) => {
  const mock = await startMock(t);
  const config = testSettings(mock.url, { call_log: { enabled: false } });
  const gateway = await startGateway(t, { config });
  const { key } = await gateway.admin.customer();
  t.equal((await gateway.chat(key, 'Hello')).status, 200);
  const failed = await gateway.chat(key, steered('status=500'));
  t.equal(failed.status, 502);
  const errors = await eventually('the last errors', async () => {
    const status = (await gateway.admin.send('GET', '/admin/v1/status')).json() as {
      upstreams: readonly { last_errors: readonly object[] }[];
    };
    const found = status.upstreams.flatMap(({ last_errors: last }) => last);
    return found.length > 0 ? found : undefined;
  });
  t.match(errors[0], { kind: 'status', status: 500, request_id: failed.headers['x-request-id'] });
  t.equal(existsSync(join(gateway.dataFolder, 'calls')), false, 'nothing is kept');
});
