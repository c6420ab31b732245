import { ROOT_CONTEXT } from '@opentelemetry/api';
import { SamplingDecision, TraceIdRatioBasedSampler } from '@opentelemetry/sdk-trace';
import t from 'tap';
import { newSpanId, newTraceId } from '#src/telemetry/trace-context.js';
import { isSampled, samplingOf } from '#src/telemetry/trace-sampling.js';

void t.test('the same traces are sampled as by the SDK', (t) => {
  const ids = Array.from({ length: 2_000 }, newTraceId);
  ids.push('f'.repeat(32), `${'f'.repeat(8)}${'0'.repeat(24)}`, `${'0'.repeat(31)}1`);
  for (const ratio of [0, 1e-9, 0.1, 0.5, 0.9, 1]) {
    const sdk = new TraceIdRatioBasedSampler(ratio);
    const differing = ids.filter((id) => {
      const { decision } = sdk.shouldSample(ROOT_CONTEXT, id);
      return (
        isSampled({ parentBased: false, ratio }, id, undefined) !==
        (decision === SamplingDecision.RECORD_AND_SAMPLED)
      );
    });
    t.same(differing, [], `ratio ${ratio}`);
  }
  t.end();
});

void t.test('a parent decides where the sampling is parent-based', (t) => {
  const parent = (flags: number) => ({ traceId: newTraceId(), spanId: newSpanId(), flags });
  const asked = (parentBased: boolean, ratio: number, flags: number) =>
    isSampled({ parentBased, ratio }, newTraceId(), parent(flags));
  t.same(
    [asked(true, 0, 1), asked(true, 0, 3), asked(true, 1, 0), asked(true, 1, 2)],
    [true, true, false, false],
  );
  t.same([asked(false, 0, 1), asked(false, 1, 0)], [false, true]);
  t.equal(isSampled({ parentBased: true, ratio: 1 }, newTraceId(), undefined), true);
  t.end();
});

void t.test('the environment', (t) => {
  const read = (sampler?: string, arg?: string) =>
    samplingOf({ OTEL_TRACES_SAMPLER: sampler, OTEL_TRACES_SAMPLER_ARG: arg });
  for (const [sampler, arg, parentBased, ratio] of [
    [undefined, undefined, true, 1],
    ['', undefined, true, 1],
    ['always_on', undefined, false, 1],
    ['always_off', undefined, false, 0],
    ['traceidratio', '0.25', false, 0.25],
    ['traceidratio', undefined, false, 1],
    ['parentbased_always_on', undefined, true, 1],
    ['parentbased_always_off', undefined, true, 0],
    ['parentbased_traceidratio', '0', true, 0],
  ] as const)
    t.same(read(sampler, arg), { sampling: { parentBased, ratio } }, `${sampler} ${arg}`);
  for (const arg of ['2', '-1', 'many', 'NaN'])
    t.match(read('traceidratio', arg), { sampling: { ratio: 1 }, problem: `got ${arg}` }, arg);
  t.match(read('xray'), { sampling: { parentBased: true, ratio: 1 }, problem: 'got xray' });
  t.end();
});

void t.test('identifiers', (t) => {
  const ids = new Set(Array.from({ length: 5_000 }, () => [newTraceId(), newSpanId()]).flat());
  t.equal(ids.size, 10_000, 'each is new');
  t.ok([...ids].every((id) => /^(?:[0-9a-f]{32}|[0-9a-f]{16})$/.test(id)));
  t.end();
});
