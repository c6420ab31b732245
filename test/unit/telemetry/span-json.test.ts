/** The JSON of spans says what the OpenTelemetry SDK's own serializer says. */
import { JsonTraceSerializer } from '@opentelemetry/otlp-transformer';
import { resourceFromAttributes } from '@opentelemetry/resources';
import t from 'tap';
import { asAccountIndex } from '#src/core/units.js';
import { RecordedSpan } from '#src/telemetry/otel-span.js';
import { SpanJson } from '#src/telemetry/span-json.js';
import {
  SPAN_OF_ATTEMPT,
  SPAN_OF_CALL,
  type AttemptSpanRecord,
  type CallSpanRecord,
  type SpanRecord,
} from '#src/telemetry/span-record.js';

const call: CallSpanRecord = {
  kind: SPAN_OF_CALL,
  traceId: '4bf92f3577b34da6a3ce929d0e0e4736',
  spanId: '00f067aa0ba902b7',
  parentSpanId: null,
  flags: 3,
  traceState: '',
  startMs: 1.000001,
  endMs: 2_000.25,
  firstTokenMs: null,
  outcome: 'ok',
  status: 200,
  requestId: 'req_3fQx0aZcW8Lk-1c',
  account: asAccountIndex(1),
  model: 'gpt-4o-mini',
  provider: 'openai',
  stream: false,
  tokens: [9, 0, 12],
  costPicoUnits: 8_550_000n,
};
const attempt: AttemptSpanRecord = {
  kind: SPAN_OF_ATTEMPT,
  traceId: call.traceId,
  spanId: '00f067aa0ba902b8',
  parentSpanId: call.spanId,
  flags: 1,
  traceState: '',
  startMs: 3.5,
  endMs: 999.9999,
  firstByteMs: 4.25,
  error: null,
  status: 200,
  requestId: call.requestId,
  origin: 'https://api.example.com',
  model: 'm',
  responseModel: 'm-2025',
  provider: 'p',
  earlierTries: 0,
  stream: true,
};

const records: SpanRecord[] = [
  call,
  attempt,
  { ...call, parentSpanId: '00f067aa0ba902b9', traceState: 'a=1,b="x\\y"', stream: true, firstTokenMs: 1.5 },
  { ...call, outcome: 'provider_unavailable', status: 502, tokens: null, costPicoUnits: null },
  { ...call, outcome: 'client_gone', status: null, model: null, provider: null },
  { ...call, account: asAccountIndex(2), costPicoUnits: 3_000_000_000_000n },
  { ...call, costPicoUnits: 0n, tokens: [2 ** 40, 5, 0] },
  { ...attempt, model: 'modèle "größer"\n', provider: '模型', responseModel: null },
  { ...attempt, error: 'timeout', status: null, earlierTries: 2, firstByteMs: null, origin: 'echo:' },
  { ...attempt, error: 'status', status: 503, origin: 'http://127.0.0.1:4711' },
];

void t.test('every kind of span, twice: encoded and copied', (t) => {
  const around = {
    resource: resourceFromAttributes({ 'service.name': 'tollgate "é"', count: 1.5, yes: true }),
    version: '1.2.3',
    offsetMs: 1_763_800_000_000.125,
    accountIdOf: (account: number) => (account === 1 ? 'acct_abc' : undefined),
  };
  const spans = records.map((record) => new RecordedSpan(record, around));
  const json = new SpanJson();
  const parsed = (bytes: Uint8Array | undefined): unknown => JSON.parse(Buffer.from(bytes!).toString());
  const expected = parsed(JsonTraceSerializer.serializeRequest(spans));
  t.strictSame(parsed(json.serializeRequest(spans)), expected);
  t.strictSame(parsed(json.serializeRequest(spans)), expected, 'again');
  t.equal(json.serializeRequest([]), undefined);
  t.end();
});

void t.test('more models than are kept', (t) => {
  const around = {
    resource: resourceFromAttributes({}),
    version: '1',
    offsetMs: 0,
    accountIdOf: () => undefined,
  };
  const json = new SpanJson();
  for (let index = 0; index < 3_000; index += 1) {
    const spans = [new RecordedSpan({ ...attempt, responseModel: `m-${index}` }, around)];
    t.match(Buffer.from(json.serializeRequest(spans)!).toString(), `{"stringValue":"m-${index}"}`);
  }
  t.end();
});
