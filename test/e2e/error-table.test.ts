/**
 * Every row of the specification's error table, and the rows that docs/errors.md adds, by real requests; and
 * the order in which refusals come. `internal_error` alone is missing: no request that a client can send
 * provokes it.
 */
import t from 'tap';
import type { Test } from 'tap';
import { startBed } from '../support/bed.js';
import { checkError } from '../support/error-answer.js';
import { HIDDEN_MODEL, eventually, type Gateway } from '../support/gateway.js';
import { request, type Answer } from '../support/http.js';
import { steered } from '../support/mock.js';
import { openStream } from '../support/sse.js';

const BODY_BYTES = 100_000;
const CALLS_IN_FLIGHT = 4;
const UNKNOWN_KEY = `sk-${'A'.repeat(43)}`;
const PATH = '/v1/chat/completions';
const GOOD_BODY = { model: 'mock-model', messages: [{ role: 'user', content: 'Hello' }] };

const plain = (gateway: Gateway, headers: Record<string, string>): Promise<Answer> =>
  request({ port: gateway.port, path: PATH, body: GOOD_BODY, headers });

/** Both 429s say when to come back, twice and the same. */
function checkRetryAfter(t: Test, answer: Answer, message: string): number {
  const text = answer.headers['retry-after'] ?? '';
  t.match(text, /^[1-9]\d*$/, 'Retry-After is whole seconds');
  t.match(message, new RegExp(`\\b${text}\\b`), 'the message names the same number');
  return Number(text);
}

void t.test('errors', async (t) => {
  const { gateway, mock } = await startBed(t, {
    limits: { body_bytes: BODY_BYTES, calls_in_flight: CALLS_IN_FLIGHT },
    // Row after row of failures on one model, which no breaker is to hide.
    upstream: { first_byte_timeout_ms: 1_000, idle_timeout_ms: 1_000, breaker_failures: 0 },
    plans: [
      { id: 'two-a-minute', requests_per_minute: 2, calls_per_day: 1_000 },
      { id: 'two-a-day', requests_per_minute: 1_000, calls_per_day: 2 },
      { id: 'narrow', requests_per_minute: 1_000, calls_per_day: 1_000, models: ['mock-*'] },
    ],
  });
  const { admin } = gateway;
  const { key } = await admin.customer();

  await t.test('a good call has its headers', async (t) => {
    const answer = await gateway.chat(key, 'Hello');
    t.equal(answer.status, 200, answer.body);
    t.match(answer.headers, {
      'x-request-id': /./,
      'x-ratelimit-limit': '1000000',
      'x-ratelimit-remaining': '999999',
      'x-ratelimit-reset': /^\d{10}$/,
    });
  });

  await t.test('missing_api_key', async (t) => {
    checkError(t, await plain(gateway, {}), 'missing_api_key', 'no header');
    checkError(t, await plain(gateway, { authorization: 'Bearer ' }), 'missing_api_key', 'empty token');
    checkError(t, await plain(gateway, { authorization: '' }), 'missing_api_key', 'empty header');
    const models = await request({ port: gateway.port, path: '/v1/models' });
    checkError(t, models, 'missing_api_key', 'models');
    t.match(models.headers['x-request-id'], /./);
  });

  await t.test('invalid_api_key', async (t) => {
    for (const wrong of [
      UNKNOWN_KEY,
      'sk-short',
      'pk-x',
      `${key}x`,
      key.slice(0, -1),
      'sk-'.padEnd(3_000, 'a'),
    ]) {
      checkError(
        t,
        await plain(gateway, { authorization: `Bearer ${wrong}` }),
        'invalid_api_key',
        wrong.slice(0, 60),
      );
    }
  });

  await t.test('key_disabled', async (t) => {
    const customer = await admin.customer();
    t.equal((await gateway.chat(customer.key, 'Hello')).status, 200);
    await admin.disableKey(customer.keyId);
    checkError(t, await gateway.chat(customer.key, 'Hello'), 'key_disabled', 'call');
    checkError(t, await gateway.request(customer.key, { path: '/v1/models' }), 'key_disabled', 'models');
  });

  await t.test('insufficient_quota', async (t) => {
    const customer = await admin.customer({ credit: '0.000001' });
    checkError(t, await gateway.chat(customer.key, 'Hello'), 'insufficient_quota', 'call');
    t.equal((await gateway.request(customer.key, { path: '/v1/models' })).status, 200, 'models cost nothing');
    await admin.credit(customer.accountId, '1.00');
    t.equal((await gateway.chat(customer.key, 'Hello')).status, 200, 'after topping up');
  });

  await t.test('rate_limit_exceeded', async (t) => {
    const customer = await admin.customer({ plan: 'two-a-minute' });
    t.match((await gateway.chat(customer.key, 'Hello')).headers, { 'x-ratelimit-remaining': '1' });
    t.match((await gateway.chat(customer.key, 'Hello')).headers, { 'x-ratelimit-remaining': '0' });
    const answer = await gateway.chat(customer.key, 'Hello');
    const message = checkError(t, answer, 'rate_limit_exceeded', 'third');
    const seconds = checkRetryAfter(t, answer, message);
    t.ok(seconds <= 62, `${seconds} s`);
    t.match(answer.headers, { 'x-ratelimit-limit': '2', 'x-ratelimit-remaining': '0' });
    const aheadSeconds = Number(answer.headers['x-ratelimit-reset']) - Date.now() / 1_000;
    t.ok(
      Math.abs(aheadSeconds - seconds) <= 10,
      `Reset is ${aheadSeconds} s ahead, Retry-After ${seconds} s`,
    );
  });

  await t.test('daily_limit_exceeded', async (t) => {
    const customer = await admin.customer({ plan: 'two-a-day' });
    t.equal((await gateway.chat(customer.key, steered('status=500'))).status, 502, 'given back');
    for (const turn of [1, 2])
      t.equal((await gateway.chat(customer.key, 'Hello')).status, 200, `call ${turn}`);
    const answer = await gateway.chat(customer.key, 'Hello');
    const message = checkError(t, answer, 'daily_limit_exceeded', 'third');
    const seconds = checkRetryAfter(t, answer, message);
    const dayMs = 86_400_000;
    const untilMidnightSeconds = (dayMs - ((Date.now() + dayMs / 3) % dayMs)) / 1_000;
    t.ok(Math.abs(seconds - untilMidnightSeconds) <= 10, `${seconds} s to 00:00 UTC+8`);
    t.match(answer.headers, { 'x-ratelimit-limit': '1000' });
  });

  await t.test('model_not_found', async (t) => {
    const customer = await admin.customer({ plan: 'narrow' });
    const unknown = await gateway.chat(customer.key, 'Hello', { model: 'no-such-model' });
    t.match(checkError(t, unknown, 'model_not_found', 'unknown'), /no-such-model/);
    const hidden = await gateway.chat(customer.key, 'Hello', { model: HIDDEN_MODEL });
    checkError(t, hidden, 'model_not_found', 'not on the plan');
    for (const id of [HIDDEN_MODEL, 'no-such-model']) {
      const answer = await gateway.request(customer.key, { path: `/v1/models/${id}` });
      checkError(t, answer, 'model_not_found', `GET ${id}`, 404);
    }
    t.equal((await gateway.chat(key, 'Hello', { model: HIDDEN_MODEL })).status, 200, 'other plans have it');
  });

  await t.test('invalid_parameters', async (t) => {
    const message = checkError(
      t,
      await gateway.chat(key, 'Hello', { temperature: 3 }),
      'invalid_parameters',
      'range',
    );
    t.equal(message, 'temperature must be between 0 and 2, got 3');
    const upstream = await gateway.chat(
      key,
      steered('status=400&body={"error":{"message":"the provider says no"}}'),
    );
    t.match(checkError(t, upstream, 'invalid_parameters', "the upstream's 400"), /the provider says no/);
  });

  await t.test('provider_unavailable', async (t) => {
    for (const query of [
      'status=500',
      'status=429',
      'status=503',
      'fault=reset-before',
      'fault=reset-headers',
      'fault=reset-mid',
      'fault=stall-before',
      'fault=stall-mid',
      'fault=broken-json',
      'fault=empty',
      'fault=wrong-type',
    ]) {
      checkError(t, await gateway.chat(key, steered(query)), 'provider_unavailable', query);
    }
    for (const query of ['status=500', 'fault=reset-before', 'fault=wrong-type', 'fault=empty']) {
      const answer = await gateway.chat(key, steered(query), { stream: true });
      checkError(t, answer, 'provider_unavailable', `${query}, streamed`);
    }
    t.equal((await gateway.chat(key, 'Hello')).status, 200, 'then it serves');
  });

  await t.test('not_found, method_not_allowed', async (t) => {
    for (const path of [
      '/',
      '/v1',
      '/v1/nothing',
      '/v1/chat/completions/x',
      '/admin/v1/accounts',
      '/healthz',
    ]) {
      checkError(t, await gateway.request(key, { path }), 'not_found', path);
    }
    for (const method of ['GET', 'PUT', 'DELETE', 'PATCH']) {
      checkError(t, await gateway.request(key, { method }), 'method_not_allowed', method);
    }
    const models = await gateway.request(key, { method: 'POST', path: '/v1/models' });
    t.match(checkError(t, models, 'method_not_allowed', 'models'), /The method POST is not allowed/);
  });

  await t.test('each path has the form of errors that clients of its door know', async (t) => {
    // A body in chunks is refused before its path is looked at.
    const chunked = { 'transfer-encoding': 'chunked' };
    const asks: [method: string, path: string, status: number, headers?: Record<string, string>][] = [
      ['GET', '/v1/messages', 405],
      ['GET', '/v1/messages/count_tokens', 405],
      ['POST', '/v1/messages/batches', 404],
      ['POST', '/v1/messages/batches', 400, chunked],
      ['GET', '/v1/responses/resp_1', 404],
    ];
    for (const [method, path, status, headers] of asks) {
      const answer = await gateway.request(key, { method, path, ...(headers && { headers }) });
      const body = JSON.parse(answer.body) as Record<string, unknown>;
      const isMessages = path.startsWith('/v1/messages');
      t.equal(answer.status, status, `${method} ${path}`);
      t.equal(body.type, isMessages ? 'error' : undefined, path);
      t.equal(answer.headers['request-id'] !== undefined, isMessages, path);
      t.match(body, { error: { message: /./ } });
    }
  });

  await t.test('request_too_large', async (t) => {
    const answer = await gateway.chat(key, 'x'.repeat(BODY_BYTES));
    t.match(checkError(t, answer, 'request_too_large', 'over'), /100000|100,000/);
  });

  await t.test('unsupported_media_type', async (t) => {
    const send = (coding: string): Promise<Answer> =>
      gateway.request(key, { body: GOOD_BODY, headers: { 'content-encoding': coding } });
    for (const coding of ['gzip', 'br', 'zstd', 'deflate', 'GZIP', 'gzip, identity', 'x'.repeat(1_000)]) {
      const message = checkError(t, await send(coding), 'unsupported_media_type', coding);
      t.match(message, 'Content-Encoding');
    }
    for (const coding of ['identity', 'Identity', '']) t.equal((await send(coding)).status, 200, coding);
  });

  await t.test('overloaded', async (t) => {
    await mock.resetStats();
    const streams = await Promise.all(
      Array.from({ length: CALLS_IN_FLIGHT }, () =>
        openStream(gateway.port, key, {
          ...GOOD_BODY,
          stream: true,
          messages: [{ role: 'user', content: steered('chunk_ms=100&chunks=1000') }],
        }),
      ),
    );
    const answer = await gateway.chat(key, 'Hello');
    checkError(t, answer, 'overloaded', 'one more');
    t.match(answer.headers['retry-after'], /^[1-9]\d*$/);
    for (const { outgoing } of streams) outgoing.destroy();
    await eventually('room', async () =>
      (await gateway.chat(key, 'Hello')).status === 200 ? true : undefined,
    );
  });

  await t.test('the order of refusals', async (t) => {
    const bad = { temperature: 3, model: 'no-such-model' };
    const limited = await admin.customer({ plan: 'two-a-minute', credit: '0' });
    for (const turn of [1, 2]) {
      checkError(
        t,
        await gateway.chat(limited.key, 'Hello', bad),
        'invalid_parameters',
        `body, turn ${turn}`,
      );
    }
    checkError(t, await gateway.chat(limited.key, 'Hello', bad), 'rate_limit_exceeded', 'rate before body');
    const truncated = await gateway.request(limited.key, { body: '{' });
    checkError(t, truncated, 'rate_limit_exceeded', 'rate before parsing');
    await admin.disableKey(limited.keyId);
    checkError(t, await gateway.chat(limited.key, 'Hello'), 'key_disabled', 'key before rate');

    const daily = await admin.customer({ plan: 'two-a-day', credit: '0.01' });
    for (const turn of [1, 2]) t.equal((await gateway.chat(daily.key, 'Hello')).status, 200, `turn ${turn}`);
    const unknown = await gateway.chat(daily.key, 'Hello', { model: 'no-such-model' });
    checkError(t, unknown, 'model_not_found', 'model before day');
    const poor = await admin.customer({ plan: 'two-a-day', credit: '0' });
    for (const turn of [1, 2, 3]) {
      checkError(
        t,
        await gateway.chat(poor.key, 'Hello'),
        'insufficient_quota',
        `no call was taken, turn ${turn}`,
      );
    }
    const huge = { max_tokens: 1_000 };
    checkError(
      t,
      await gateway.chat(daily.key, 'x'.repeat(50_000), huge),
      'daily_limit_exceeded',
      'day before balance',
    );
  });

  t.equal(await gateway.stop(), 0);
});
