/** What each failure of an upstream means. */
import t from 'tap';
import { asWallMs } from '#src/core/units.js';
import {
  callerFailure,
  faultFailure,
  garbageFailure,
  meaningOf,
  retryAfterSeconds,
  statusFailure,
  unavailableError,
} from '#src/upstream/error-mapping.js';
import { secretsOf } from '#src/upstream/target.js';
import { targetOf } from '../../fixtures/upstream-server.js';

const NOW = asWallMs(Date.UTC(2024, 0, 1));

void t.test('every status has one meaning', (t) => {
  const callers = [400, 404, 409, 413, 422];
  for (let status = 200; status < 600; status++) {
    const wanted = status < 300 ? 'answer' : callers.includes(status) ? 'caller' : 'unavailable';
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

void t.test('Retry-After: seconds, dates, nonsense, bounds', (t) => {
  t.equal(retryAfterSeconds('0', NOW), 1);
  t.equal(retryAfterSeconds('3600', NOW), 3600);
  t.equal(retryAfterSeconds('3601', NOW), 3600);
  t.equal(retryAfterSeconds(' 12 ', NOW), 12);
  t.equal(retryAfterSeconds('Mon, 01 Jan 2024 00:00:30 GMT', NOW), 30);
  t.equal(retryAfterSeconds('Sun, 31 Dec 2023 00:00:30 GMT', NOW), 1);
  for (const text of ['', '-5x', 'soon']) t.equal(retryAfterSeconds(text, NOW), undefined, text);
  t.equal(retryAfterSeconds(undefined, NOW), undefined);
  t.end();
});

void t.test("the upstream's message reaches the caller shortened and clean", (t) => {
  const messageOf = (body: string, ...secrets: string[]): string | undefined => {
    const { callerError } = callerFailure(400, body, secrets);
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
  const echo = JSON.stringify({ error: 'red sk-0123456789,sk-0123;abcdefgh' });
  t.equal(messageOf(echo, ...secretsOf(target)), 'red ***,***;***');
  for (const body of ['', '<html>', '[]', '{"error":{"message":5}}', '{"error":{"message":" \\n "}}']) {
    t.match(messageOf(body), /refused the request; check/, body);
  }
  t.end();
});

void t.test('what the caller is told says what to do and names no address', (t) => {
  t.strictSame(unavailableError('r', undefined).retryAfterSeconds, undefined);
  const error = unavailableError('it is rate-limited', 9);
  t.equal(error.code, 'provider_unavailable');
  t.equal(error.retryAfterSeconds, 9);
  t.match(error.message, /retry after 9 seconds/);
  const fault = faultFailure({ code: 'ECONNREFUSED', message: 'connect 10.0.0.1:80', repeatable: true });
  t.notMatch(fault.reason, /10\.0/);
  t.match(fault.cause, /10\.0/);
  t.equal(fault.repeatable, true);
  t.match(faultFailure({ code: 'ENOTFOUND', message: '', repeatable: false }).reason, /failed/);
  t.match(faultFailure({ code: 'HTTP1_INVALID', message: '', repeatable: false }), {
    reason: /not valid/,
    kind: 'invalid_answer',
  });
  for (const code of ['EMFILE', 'ENFILE']) {
    const short = faultFailure({ code, message: '', repeatable: true });
    t.match(short, { ours: true, callerError: { code: 'overloaded', retryAfterSeconds: 1 } }, code);
  }
  t.match(garbageFailure('no JSON').cause, /no JSON/);
  t.end();
});
