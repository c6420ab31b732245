/** What of a trace goes on to the worker: of one that is not recorded as little as there is to say. */
import t from 'tap';
import type { HttpRequest } from 'uWebSockets.js';
import { CallTracer } from '#src/request/call-trace.js';
import type { Caller } from '#src/request/context.js';
import type { SpanOutbox } from '#src/telemetry/span-outbox.js';
import { parseTraceParent, traceHeadersOf, UNRECORDED } from '#src/telemetry/trace-context.js';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const PARENT = '00f067aa0ba902b7';
const CALLER = { account: 3 } as unknown as Caller;

const requestWith = (headers: Readonly<Record<string, string>>): HttpRequest =>
  ({
    getHeader: (name: string) => headers[name] ?? '',
    forEach: (visit: (name: string, value: string) => void) => {
      for (const [name, value] of Object.entries(headers)) visit(name, value);
    },
  }) as HttpRequest;

const tracerOf = (ratio: number): CallTracer =>
  new CallTracer({ sampling: { parentBased: true, ratio }, outbox: {} as unknown as SpanOutbox });

void t.test('a trace that began here and is not recorded', (t) => {
  const trace = tracerOf(0).begin(requestWith({}), '', CALLER);
  t.equal(trace?.carried, UNRECORDED);
  t.equal(trace?.isRecorded, false);
  t.equal(tracerOf(0).begin(requestWith({}), '', CALLER), trace, 'nothing is made for a call');
  const [name, value, ...others] = traceHeadersOf(UNRECORDED);
  t.equal(name, 'traceparent');
  t.same(others, []);
  t.match(value, /^00-[0-9a-f]{32}-[0-9a-f]{16}-02$/, 'who is behind need not decide anew');
  t.not(traceHeadersOf(UNRECORDED)[1], value, 'and takes no two calls for one trace');
  t.end();
});

void t.test('a trace that is recorded, and those of callers', (t) => {
  const own = tracerOf(1).begin(requestWith({}), '', CALLER);
  t.equal(own?.isRecorded, true);
  t.match(own?.carried, [/^00-[0-9a-f]{32}-[0-9a-f]{16}-03$/, '']);
  for (const [sent, isRecorded] of [
    ['00', false],
    ['01', true],
  ] as const) {
    const headers = { traceparent: `00-${TRACE}-${PARENT}-${sent}`, tracestate: 'a=1' };
    const trace = tracerOf(0).begin(requestWith(headers), headers.traceparent, CALLER);
    t.equal(trace?.isRecorded, isRecorded);
    t.match(trace?.carried, [new RegExp(`^00-${TRACE}-[0-9a-f]{16}-${sent}$`), 'a=1']);
    t.not(parseTraceParent((trace!.carried as readonly string[])[0]!)?.spanId, PARENT);
  }
  t.end();
});
