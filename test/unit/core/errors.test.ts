import t from 'tap';
import { ERROR_KINDS, ProxyError, errorBody, invariant, statusOf } from '#src/core/errors.js';

/** The specification's error table and what docs/errors.md adds, written out once more by hand. */
const TABLE = {
  missing_api_key: [401, 'authentication_error'],
  invalid_api_key: [401, 'authentication_error'],
  key_disabled: [403, 'permission_error'],
  insufficient_quota: [403, 'permission_error'],
  rate_limit_exceeded: [429, 'rate_limit_error'],
  daily_limit_exceeded: [429, 'rate_limit_error'],
  budget_exceeded: [429, 'rate_limit_error'],
  model_not_found: [400, 'invalid_request_error'],
  invalid_parameters: [400, 'invalid_request_error'],
  not_found: [404, 'invalid_request_error'],
  request_in_progress: [409, 'invalid_request_error'],
  conflict: [409, 'invalid_request_error'],
  method_not_allowed: [405, 'invalid_request_error'],
  request_timeout: [408, 'invalid_request_error'],
  request_too_large: [413, 'invalid_request_error'],
  unsupported_media_type: [415, 'invalid_request_error'],
  internal_error: [500, 'server_error'],
  provider_unavailable: [502, 'provider_error'],
  overloaded: [503, 'server_error'],
  insufficient_role: [403, 'permission_error'],
};

void t.test('the catalogue is the table', (t) => {
  t.same(
    Object.fromEntries(Object.entries(ERROR_KINDS).map(([code, { status, type }]) => [code, [status, type]])),
    TABLE,
  );
  t.end();
});

void t.test('a body has the three strings and nothing else', (t) => {
  t.equal(
    errorBody({ code: 'overloaded', message: 'a "quoted" one', retryAfterSeconds: 1 }),
    '{"error":{"message":"a \\"quoted\\" one","type":"server_error","code":"overloaded"}}',
  );
  t.end();
});

void t.test('a record may have a status of its own', (t) => {
  t.equal(statusOf({ code: 'model_not_found', message: '' }), 400);
  t.equal(statusOf({ code: 'model_not_found', message: '', status: 404 }), 404);
  t.end();
});

void t.test('errors keep what they are told', (t) => {
  const error = new ProxyError('rate_limit_exceeded', 'downstream', 'slow down', 7);
  t.match(error, {
    code: 'rate_limit_exceeded',
    source: 'downstream',
    message: 'slow down',
    retryAfterSeconds: 7,
  });
  t.throws(() => invariant(false, 'what holds'), { message: 'invariant broken: what holds' });
  t.doesNotThrow(() => invariant(true, 'what holds'));
  t.end();
});
