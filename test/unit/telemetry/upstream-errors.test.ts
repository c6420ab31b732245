/** The last errors of each upstream: the newest five, of failed attempts alone. */
import t from 'tap';
import type { CallAttempt, CallRecord } from '#src/telemetry/call-record.js';
import { ERRORS_KEPT, newestErrors, UpstreamErrors } from '#src/telemetry/upstream-errors.js';
import { asWallMs } from '#src/core/units.js';

const attempt = (upstream: string | null, code: string | null): CallAttempt => ({
  upstream,
  model: 'm',
  status: code === null ? 200 : 503,
  code,
  startMs: 100,
  durationMs: 900,
  error: code === null ? null : 'the upstream is overloaded',
});

const call = (request: number, attempts: readonly CallAttempt[]): CallRecord =>
  ({
    requestPrefix: 'req_a-',
    request,
    endedMs: asWallMs(request * 10_000 + 5_000),
    durationMs: 5_000,
    attempts,
  }) as unknown as CallRecord;

void t.test('failed attempts, also of calls that another upstream saved', (t) => {
  const errors = new UpstreamErrors();
  t.same(errors.errorsOf('m', 'a'), []);
  errors.append(call(40, [attempt('a', 'overloaded'), attempt('b', null)]));
  errors.append(call(41, [attempt(null, 'overloaded')]));
  t.same(errors.errorsOf('m', 'a'), [
    { at: 401, kind: 'overloaded', status: 503, error: 'the upstream is overloaded', request_id: 'req_a-14' },
  ]);
  t.same(errors.errorsOf('m', 'b'), []);
  t.same(errors.errorsOf('n', 'a'), []);
  t.end();
});

void t.test('attempts that the client ended are no errors of the upstream', (t) => {
  const errors = new UpstreamErrors();
  errors.append(call(1, [attempt('a', 'timeout')]));
  for (let request = 2; request < 10; request++) errors.append(call(request, [attempt('a', 'cancelled')]));
  t.match(errors.errorsOf('m', 'a'), [{ kind: 'timeout' }]);
  t.equal(errors.errorsOf('m', 'a').length, 1);
  t.end();
});

void t.test('bounded: the newest of one, and upstreams that were renamed', (t) => {
  const errors = new UpstreamErrors();
  for (let request = 0; request < 20; request++) errors.append(call(request, [attempt('a', 'timeout')]));
  t.same(
    errors.errorsOf('m', 'a').map(({ at }) => at),
    [191, 181, 171, 161, 151],
  );
  t.equal(newestErrors(errors.errorsOf('m', 'a'), errors.errorsOf('m', 'a')).length, ERRORS_KEPT);
  for (let name = 0; name < 5_000; name++) errors.append(call(1, [attempt(`u${name}`, 'timeout')]));
  t.same(errors.errorsOf('m', 'a'), [], 'the one that failed first is forgotten');
  t.equal(errors.errorsOf('m', 'u4999').length, 1);
  t.end();
});
