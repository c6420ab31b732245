/** What each failure of an upstream means. */
import t from 'tap';
import { asWallMs } from '#src/core/units.js';
import {
  connectionFailure,
  invalidResponseFailure,
  meaningOf,
  pageFailure,
  rejectionFailure,
  statusFailure,
  unavailableError,
} from '#src/upstream/error-mapping.js';
import { SecretFragments } from '#src/upstream/secret-fragments.js';
import { secretsOf } from '#src/upstream/target.js';
import { targetOf } from '../../fixtures/upstream-server.js';

const NOW = asWallMs(Date.UTC(2024, 0, 1));

void t.test('every status has one meaning', (t) => {
  const refusals = [400, 404, 409, 413, 422];
  for (let status = 200; status < 600; status++) {
    const wanted = status < 300 ? 'response' : refusals.includes(status) ? 'rejected' : 'unavailable';
    t.equal(meaningOf(status), wanted, `status ${status}`);
  }
  t.end();
});

void t.test('our key refused is told apart, and a wait is read where one is meant', (t) => {
  for (const status of [401, 402, 403]) t.equal(statusFailure(status, undefined, NOW).kind, 'credentials');
  for (const status of [500, 503, 302]) t.equal(statusFailure(status, undefined, NOW).kind, 'status');
  t.equal(statusFailure(429, undefined, NOW).kind, 'rate_limited');
  t.equal(statusFailure(429, '7', NOW).retryAfterSeconds, 7);
  t.equal(statusFailure(503, '7', NOW).retryAfterSeconds, 7);
  t.equal(statusFailure(500, '7', NOW).retryAfterSeconds, undefined);
  t.equal(statusFailure(429, '7', NOW).callerError, undefined);
  t.end();
});

void t.test("the upstream's message reaches the caller shortened and clean", (t) => {
  const messageOf = (body: string, ...secrets: string[]): string | undefined => {
    const { callerError } = rejectionFailure(400, undefined, body, new SecretFragments(secrets));
    t.equal(callerError?.code, 'invalid_parameters');
    return callerError?.message;
  };
  t.equal(messageOf('{"error":{"message":"bad \\u0000\\n\\u2028 thing"}}'), 'bad   thing');
  t.equal(messageOf('{"error":"plain"}'), 'plain');
  t.equal(messageOf(JSON.stringify({ error: { message: 'x'.repeat(1_001) } }))?.length, 1_000);
  t.equal(messageOf(JSON.stringify({ error: { message: `${'x'.repeat(999)}\u{1f600}` } })), 'x'.repeat(999));
  t.equal(messageOf('{"error":{"message":"key sk-a is bad"}}', 'sk-a'), 'key *** is bad');
  const target = targetOf('http://127.0.0.1:1', {
    key: 'sk-0123',
    headers: { 'x-team': 'red', authorization: 'Basic sk-0123456789', cookie: 'session=abcdefgh; a=b' },
  });
  t.same(secretsOf(target), ['sk-0123456789', 'abcdefgh', 'sk-0123']);
  t.same(secretsOf(targetOf('http://127.0.0.1:1', { key: undefined })), []);
  const path = '/v1/chat/completions?version=2025-01-01&api_key=in%2Fquery';
  t.same(
    secretsOf({ ...target, key: undefined, headers: {}, path }),
    ['in%2Fquery', 'in/query'],
    'as it is written, and decoded',
  );
  const echo = JSON.stringify({ error: 'red sk-0123456789,sk-0123;abcdefgh' });
  t.equal(messageOf(echo, ...secretsOf(target)), 'red ***,***;***');
  for (const [name, bare] of [
    ['Mistral', { type: 'invalid_request_message_order', param: null, code: '3230' }],
    ['SGLang', { type: 'BadRequestError', param: null, code: 400 }],
  ] as const) {
    const bodyOf = (message: unknown): string => JSON.stringify({ object: 'error', message, ...bare });
    t.equal(messageOf(bodyOf('Expected last role User'), 'sk-a'), 'Expected last role User', name);
    t.equal(messageOf(bodyOf('key sk-a is \n bad'), 'sk-a'), 'key *** is   bad', name);
    t.equal(messageOf(bodyOf('x'.repeat(1_001)))?.length, 1_000, name);
    t.match(messageOf(bodyOf({ detail: [] })), /refused the request; check/, name);
    const tooLong = bodyOf("This model's maximum context length is 4096 tokens");
    t.equal(rejectionFailure(400, undefined, tooLong, new SecretFragments([])).isContextTooLong, true, name);
  }
  for (const body of [
    '',
    'no',
    '[]',
    '{"message":"bad"}',
    '{"error":{"message":5}}',
    '{"error":{"message":" \\n "}}',
  ]) {
    t.match(messageOf(body), /refused the request; check/, body);
  }
  t.end();
});

void t.test("a wrong address or model is nobody's fault but the settings'", (t) => {
  const JSON_TYPE = 'application/json';
  const unknown = '{"error":{"message":"no such model","code":"model_not_found"}}';
  const page = '<!DOCTYPE html><title>Welcome</title>';
  // Status, type, body; whose fault, and whether the breaker counts it.
  const rows: [number, string | undefined, string, 'caller' | 'settings', boolean?][] = [
    [404, JSON_TYPE, unknown, 'settings', false],
    [404, undefined, '{"error":"model \'x\' not found"}', 'settings', false],
    [404, JSON_TYPE, '{"object":"error","message":"no such model","code":404}', 'settings', false],
    [400, JSON_TYPE, '{"object":"error","type":"invalid_model","code":"1500"}', 'settings', false],
    [404, JSON_TYPE, '{"detail":"Not Found"}', 'settings', true],
    [404, 'text/html', page, 'settings', true],
    [404, 'text/plain', '404 page not found', 'settings', true],
    [404, undefined, '', 'settings', true],
    ...[400, 409, 413, 422].flatMap((status): typeof rows => [
      [status, JSON_TYPE, '{"error":{"message":"bad","code":null}}', 'caller'],
      [status, JSON_TYPE, '{"detail":[]}', 'caller'],
      [status, 'text/plain', 'bad', 'caller'],
      [status, undefined, '', 'caller'],
    ]),
    ...[400, 409, 422].flatMap((status): typeof rows => [
      [status, JSON_TYPE, unknown, 'settings', false],
      [status, 'text/html; charset=utf-8', page, 'settings', false],
      [status, undefined, `\r\n ${page}`, 'settings', false],
      [status, 'Text/HTML', '', 'settings', false],
    ]),
    [413, 'text/html', '<html><h1>413 Request Entity Too Large</h1></html>', 'caller'],
  ];
  const fragments = new SecretFragments(['sk-provider-secret']);
  for (const [status, type, body, fault, counts] of rows) {
    const name = `${status} ${type} ${body.slice(0, 40)}`;
    const failure = rejectionFailure(status, type, body, fragments);
    t.equal(failure.callerError?.code, fault === 'caller' ? 'invalid_parameters' : undefined, name);
    t.equal(failure.wrongAddress, fault === 'settings', name);
    if (fault === 'settings') t.equal(failure.isOurs, counts === false, `${name}: the breaker`);
    t.match(failure.cause, new RegExp(`^status ${status}`), name);
  }
  t.match(rejectionFailure(404, JSON_TYPE, unknown, fragments).cause, /model_not_found/);
  const leak = '{"error":{"code":"SK-Provider-secret"}}';
  t.notMatch(rejectionFailure(404, JSON_TYPE, leak, fragments).cause, /provider/i, 'a code is no way out');
  for (const status of [301, 302, 303, 307, 308, 405, 410])
    t.match(statusFailure(status, undefined, NOW), { wrongAddress: true, isOurs: false }, `status ${status}`);
  for (const status of [304, 401, 429, 500, 503])
    t.equal(statusFailure(status, undefined, NOW).wrongAddress, false, `status ${status}`);
  t.match(pageFailure(), { wrongAddress: true, kind: 'invalid_answer' });
  t.end();
});

void t.test('what the caller is told says what to do and names no address', (t) => {
  t.strictSame(unavailableError('r', undefined).retryAfterSeconds, undefined);
  const error = unavailableError('it is rate-limited', 9);
  t.equal(error.code, 'provider_unavailable');
  t.equal(error.retryAfterSeconds, 9);
  t.match(error.message, /retry after 9 seconds/);
  const fault = connectionFailure({ code: 'ECONNREFUSED', message: 'connect 10.0.0.1:80', repeatable: true });
  t.notMatch(fault.reason, /10\.0/);
  t.match(fault.cause, /10\.0/);
  t.equal(fault.repeatable, true);
  t.match(connectionFailure({ code: 'ENOTFOUND', message: '', repeatable: false }).reason, /failed/);
  t.match(connectionFailure({ code: 'HTTP1_INVALID', message: '', repeatable: false }), {
    reason: /not valid/,
    kind: 'invalid_answer',
  });
  for (const code of ['EMFILE', 'ENFILE']) {
    const short = connectionFailure({ code, message: '', repeatable: true });
    t.match(short, { isOurs: true, callerError: { code: 'overloaded', retryAfterSeconds: 1 } }, code);
  }
  t.match(invalidResponseFailure('no JSON').cause, /no JSON/);
  t.end();
});

void t.test('a Retry-After that came inside of a response has the bounds of the header', (t) => {
  for (const [told, seconds] of [
    [Infinity, 3_600],
    [86_400, 3_600],
    [0.2, 1],
    [34.4, 35],
    [7, 7],
    [undefined, undefined],
  ] as const) {
    const reported = { status: 429, retryAfterSeconds: told };
    const fault = { code: 'ERROR_IN_RESPONSE', message: '', repeatable: false, reported };
    t.equal(connectionFailure(fault).retryAfterSeconds, seconds, String(told));
  }
  t.end();
});
