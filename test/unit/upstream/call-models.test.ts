/** Which model gets a call next, what its upstreams get of the body, and which error its caller gets. */
import t from 'tap';
import { OUTPUT_TOKENS_UNLIMITED, type UpstreamRequest } from '#src/channel/messages.js';
import { SystemClock } from '#src/core/clock.js';
import type { ErrorRecord } from '#src/core/errors.js';
import { createMetrics } from '#src/telemetry/metrics-layout.js';
import { UpstreamMetrics } from '#src/telemetry/metrics-writers.js';
import { CallModels } from '#src/upstream/call-models.js';
import { RouteTable } from '#src/upstream/route-table.js';
import type { FallbackReason } from '#src/upstream/target.js';
import { FakeLog, requestOf, targetOf, upstreamQuotas } from '../../fixtures/upstream-server.js';

const error = (message: string): ErrorRecord => ({ code: 'provider_unavailable', message });

function modelsOf(changes: Partial<UpstreamRequest>, fallbackOn: readonly FallbackReason[]): CallModels {
  const clock = new SystemClock();
  const model = (id: string, outputTokensMax: number) => ({
    ...{ id, ownedBy: 'o', tokenizer: 'none' as const, outputTokensMax, mediaPartTokens: 0, fallbackOn },
    targets: [targetOf('http://127.0.0.1:1', {})],
  });
  const routes = new RouteTable([model('m', 1_000), model('second "one"', 20), model('third', 5_000)], {
    clock,
    log: new FakeLog(),
    metrics: new UpstreamMetrics(createMetrics(1, 1), 0),
    quotas: upstreamQuotas(clock),
  });
  return new CallModels(requestOf(changes), routes, clock);
}

/** A request to `m` with both fallbacks, whose body begins with its bounds. */
function bounded(fields: { max_tokens?: number; max_completion_tokens?: number }): Partial<UpstreamRequest> {
  const body = JSON.stringify({ ...fields, model: 'm', messages: [] });
  const spanOf = (name: keyof typeof fields) => {
    const value = fields[name];
    if (value === undefined) return { start: 0, end: 0 };
    const start = body.indexOf(`"${name}":`) + name.length + 3;
    return { start, end: start + String(value).length };
  };
  const modelStart = body.indexOf('"model":') + 8;
  return {
    body,
    modelStart,
    modelEnd: modelStart + 3,
    outputTokensMax: Math.max(...Object.values(fields), 0) || OUTPUT_TOKENS_UNLIMITED,
    fallbacks: {
      models: [1, 2],
      maxTokens: spanOf('max_tokens'),
      maxCompletionTokens: spanOf('max_completion_tokens'),
    },
  };
}

void t.test('each fallback in turn, and then the error of the model that was named', (t) => {
  const models = modelsOf(bounded({ max_tokens: 50 }), ['unavailable']);
  t.match([models.fallbackNumber, models.request.modelIndex], [0, 0]);
  t.equal(models.failOver(error('first'), 'unavailable'), undefined);
  t.match([models.fallbackNumber, models.request.modelIndex], [1, 1]);
  t.same(JSON.parse(models.request.body), { max_tokens: 20, model: 'second "one"', messages: [] });
  t.equal(models.request.outputTokensMax, 20);
  const { body, modelStart, modelEnd } = models.request;
  t.equal(body.slice(modelStart, modelEnd), JSON.stringify('second "one"'));
  t.equal(
    models.failOver(error('second'), undefined),
    undefined,
    'a fallback refused: that is not the caller',
  );
  t.same(JSON.parse(models.request.body), { max_tokens: 50, model: 'third', messages: [] });
  t.equal(models.hasNext('unavailable'), false);
  t.same(models.failOver(error('third'), 'unavailable'), error('first'));
  t.end();
});

void t.test('only what the settings say', (t) => {
  const cases: [on: FallbackReason[], why: FallbackReason | undefined, falls: boolean][] = [
    [['unavailable'], 'unavailable', true],
    [['unavailable'], 'context_length', false],
    [['context_length'], 'context_length', true],
    [['context_length'], 'unavailable', false],
    [['unavailable', 'context_length'], undefined, false],
  ];
  for (const [on, why, falls] of cases) {
    const models = modelsOf(bounded({}), on);
    t.equal(models.hasNext(why), falls);
    t.same(models.failOver(error('first'), why), falls ? undefined : error('first'));
  }
  t.same(modelsOf({}, ['unavailable']).failOver(error('alone'), 'unavailable'), error('alone'));
  t.end();
});

void t.test('bounds are lowered, never added, in text and in bytes', (t) => {
  const cases: [fields: object, sent: object][] = [
    [{}, {}],
    [{ max_tokens: 7 }, { max_tokens: 7 }],
    [{ max_completion_tokens: 21 }, { max_completion_tokens: 20 }],
    [
      { max_tokens: 3, max_completion_tokens: 900 },
      { max_tokens: 3, max_completion_tokens: 20 },
    ],
  ];
  for (const [fields, sent] of cases) {
    const asked = bounded(fields);
    for (const large of [false, true]) {
      const models = modelsOf(large ? { ...asked, body: '', largeBody: Buffer.from(asked.body!) } : asked, [
        'unavailable',
      ]);
      models.failOver(error('first'), 'unavailable');
      const { body, largeBody } = models.request;
      const text = large ? Buffer.from(largeBody!).toString() : body;
      t.same(JSON.parse(text), { ...sent, model: 'second "one"', messages: [] });
    }
  }
  t.end();
});
