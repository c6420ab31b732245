/** Spans of calls that differ by their number. */
import { asAccountIndex } from '#src/core/units.js';
import { type CallSpanRecord, SPAN_OF_CALL } from '#src/telemetry/span-record.js';

/** The span of a call, each number with another. */
export const numberedSpan = (index: number): CallSpanRecord => ({
  kind: SPAN_OF_CALL,
  traceId: index.toString(16).padStart(32, '0'),
  spanId: index.toString(16).padStart(16, '0'),
  parentSpanId: null,
  flags: 1,
  traceState: '',
  startMs: 1.5,
  endMs: 2.25,
  firstTokenMs: null,
  outcome: 'ok',
  status: 200,
  requestId: `r-${index}`,
  door: 'chat',
  account: asAccountIndex(index % 3),
  model: 'm',
  provider: 'p',
  stream: false,
  answeredModel: null,
  tokens: [1, 2, 3, 4, 5],
  costPicoUnits: 2n ** 60n,
  queuedMs: 0,
});
