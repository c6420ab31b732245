/** Errors of Anthropic as failures. */
import t from 'tap';
import { readAnthropicError } from '#src/providers/anthropic/errors.js';

const read = (status: number, body: string, headers: Record<string, string> = {}): object =>
  readAnthropicError(status, (name) => headers[name], body);
const error = (type: string, message = 'm', details: unknown = null): string =>
  JSON.stringify({ type: 'error', error: { type, message, details }, request_id: 'req_1' });

void t.test('types', (t) => {
  for (const [status, type, expected] of [
    [400, 'invalid_request_error', 400],
    [401, 'authentication_error', 401],
    [402, 'billing_error', 402],
    [403, 'permission_error', 403],
    [404, 'not_found_error', 404],
    [413, 'request_too_large', 413],
    [429, 'rate_limit_error', 429],
    [500, 'api_error', 500],
    [504, 'timeout_error', 500],
    [529, 'overloaded_error', 503],
    [422, 'of_the_future', 400],
    [418, 'of_the_future', 418],
    [530, 'of_the_future', 500],
    [500, 'constructor', 500],
  ] as const)
    t.strictSame(read(status, error(type)), { status: expected, message: 'm' }, type);
  t.end();
});

void t.test('bodies that are none', (t) => {
  for (const body of ['', '<html>', '{', '3', '{"error":"x"}', '{"error":{}}'])
    for (const [status, expected] of [
      [400, 400],
      [404, 404],
      [502, 500],
      [503, 503],
      [529, 503],
    ] as const)
      t.match(read(status, body), { status: expected, message: String }, `${status} ${body}`);
  t.end();
});

void t.test('codes', (t) => {
  const code = (message: string, status = 400, type = 'invalid_request_error'): unknown =>
    (read(status, error(type, message)) as { code?: string }).code;
  t.equal(code('prompt is too long: 210000 tokens > 200000 maximum'), 'context_length_exceeded');
  t.equal(
    code('input length and `max_tokens` exceed context limit: 199000 + 8000 > 200000'),
    'context_length_exceeded',
  );
  t.equal(code('messages: at least one message is required'), undefined);
  t.equal(code('model: claude-9', 404, 'not_found_error'), 'model_not_found');
  t.equal(code('Not Found', 404, 'not_found_error'), undefined);
  t.end();
});

void t.test('what is said with status 400 about our account', (t) => {
  for (const [message, details] of [
    ['Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing.', null],
    ['This organization has been disabled.', null],
    ['You have reached your specified API usage limits. You will regain access on 2026-12-01.', null],
    ['On hold', { error_code: 'organization_on_hold' }],
  ] as const)
    t.match(read(400, error('invalid_request_error', message, details)), { status: 402 }, message);
  t.end();
});

void t.test('no names of ours', (t) => {
  const message =
    'No access for org_01ABCdef23 (0fa1b2c3-1111-2222-3333-0123456789ab), wrkspc_011CZkZaBF1, key.';
  t.match(read(400, error('invalid_request_error', message)), { message: 'No access for … (…), …, key.' });
  t.match(read(400, error('invalid_request_error', 'metadata.user_id: too long')), {
    message: 'metadata.user_id: too long',
  });
  t.end();
});

void t.test('types and messages that are no texts', (t) => {
  const values: unknown[] = [{ toString: 1, valueOf: 1 }, { toString: null }, [], 3, null, true];
  for (const type of values)
    for (const message of values)
      t.strictSame(
        read(400, JSON.stringify({ error: { type, message } })),
        { status: 400, message: 'the provider gave no reason' },
        JSON.stringify({ type, message }),
      );
  t.match(read(400, '{"error":{"type":"odd"}}'), { status: 400, message: 'odd' });
  t.end();
});
