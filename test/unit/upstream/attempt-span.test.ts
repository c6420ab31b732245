/** The span of an attempt: when there is one, what it tells the upstream, and which outcome counts. */
import t from 'tap';
import { SystemClock } from '#src/core/clock.js';
import type { SpanRecord } from '#src/telemetry/span-record.js';
import { UNRECORDED } from '#src/telemetry/trace-context.js';
import { newAttemptSpan } from '#src/upstream/attempt-span.js';
import { requestOf, targetOf } from '../../fixtures/upstream-server.js';

const TRACE_ID = '0af7651916cd43dd8448eb211c80319c';
const SPAN_ID = 'b7ad6b7169203331';
const SAMPLED = `00-${TRACE_ID}-${SPAN_ID}-01`;
const NOT_SAMPLED = `00-${TRACE_ID}-${SPAN_ID}-00`;
const TARGET = targetOf('http://127.0.0.1:1', { model: 'theirs' });

function spanOf(trace: unknown, isExported = true, target = TARGET) {
  const records: SpanRecord[] = [];
  const deps = {
    routes: { routeOf: () => ({ id: 'ours', ownedBy: 'us' }) },
    spanOutbox: isExported ? { push: (record: SpanRecord) => records.push(record) } : undefined,
    clock: new SystemClock(),
  };
  const request = { ...requestOf({}), requestId: 'r1', stream: true, trace };
  const span = newAttemptSpan(deps as never, { request: request as never, attempts: 3 }, target);
  return { span, records };
}

void t.test('there is a span only if it is exported and the trace is sampled', (t) => {
  t.equal(spanOf([SAMPLED, ''], false).span, undefined, 'spans are not exported');
  t.equal(spanOf(undefined).span, undefined, 'no trace');
  t.equal(spanOf(UNRECORDED).span, undefined);
  t.equal(spanOf([NOT_SAMPLED, '']).span, undefined);
  t.ok(spanOf([SAMPLED, '']).span);
  t.end();
});

void t.test('the upstream becomes a child of the span, and the span one of the call', (t) => {
  const { span, records } = spanOf([SAMPLED, 'a=b']);
  span!.end({ error: undefined, status: 200, responseModel: 'answered', nowMs: 9 });
  const [record] = records;
  t.strictSame(span!.headers, ['traceparent', `00-${TRACE_ID}-${record!.spanId}-01`, 'tracestate', 'a=b']);
  t.not(record!.spanId, SPAN_ID);
  t.match(record, {
    ...{ traceId: TRACE_ID, parentSpanId: SPAN_ID, traceState: 'a=b', flags: 1 },
    ...{ endMs: 9, firstByteMs: null, error: null, status: 200 },
    ...{ requestId: 'r1', model: 'theirs', responseModel: 'answered', provider: 'us', earlierAttempts: 2 },
    ...{ origin: TARGET.origin, stream: true, door: 'chat' },
  });
  t.strictSame(spanOf([SAMPLED, '']).span!.headers.length, 2, 'no empty tracestate');
  t.end();
});

void t.test(
  'the model is the id here if the settings name no other; a provider has the name of OpenTelemetry',
  (t) => {
    const provider = { name: 'bedrock' } as never;
    const { span, records } = spanOf([SAMPLED, ''], true, { ...TARGET, model: undefined, provider });
    span!.end({ error: 'connect', status: 0, responseModel: undefined, nowMs: 9 });
    t.match(records, [{ model: 'ours', provider: 'aws.bedrock', status: null, responseModel: null }]);
    t.end();
  },
);

void t.test('the first outcome is the outcome, and nothing after it counts', (t) => {
  for (const first of [undefined, 'timeout', 'cancelled']) {
    const { span, records } = spanOf([SAMPLED, '']);
    span!.recordFirstByte(5);
    span!.end({ error: first, status: 200, responseModel: undefined, nowMs: 6 });
    span!.recordFirstByte(7);
    span!.end({ error: 'cancelled', status: 0, responseModel: 'other', nowMs: 8 });
    t.match(records, [{ error: first ?? null, status: 200, responseModel: null, firstByteMs: 5, endMs: 6 }]);
    t.equal(records.length, 1);
  }
  t.equal(spanOf([SAMPLED, '']).records.length, 0, 'a span that never ends is not exported');
  t.end();
});
