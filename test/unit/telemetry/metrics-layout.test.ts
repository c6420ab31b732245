/**
 * The layout: every counter has words of its own, in whatever stripe and block, and is read back under its
 * name.
 */
import t from 'tap';
import { DOOR_INDEX, DOOR_NAMES } from '#src/core/door-names.js';
import { CATALOG_ENTRIES_MAX } from '#src/core/limits.js';
import { asWallMs } from '#src/core/units.js';
import {
  DISBELIEF_REASONS,
  FAILURE_KINDS,
  ENDS_WITHOUT_CLIENT,
  LISTENER_STRIPE_WORDS,
  NO_MODEL,
  OTHER_MODEL,
  OTHER_ROUTES,
  OUTCOMES,
  REJECTION_REASONS,
  UPSTREAM_FAILED_AT,
  UPSTREAM_FAILED_KIND,
  UPSTREAM_SLOTS_MAX,
  UPSTREAM_STRIPE_WORDS,
  createMetrics,
  modelSlotOf,
  openStripes,
  threadNames,
  firstWordOfUpstream,
} from '#src/telemetry/metrics-layout.js';
import * as layout from '#src/telemetry/metrics-layout.js';
import { histogramWords } from '#src/telemetry/histogram.js';
import { MetricsReader } from '#src/telemetry/metrics-reader.js';
import { ListenerMetrics, UpstreamMetrics } from '#src/telemetry/metrics-writers.js';

const NOW = asWallMs(1_763_800_000_000);
const LINE_BYTES = 64;
const TOKENS = {
  promptTokens: 100,
  cachedTokens: 40,
  cacheWriteTokens: 0,
  cacheWrite1hTokens: 0,
  reasoningTokens: 0,
  completionTokens: 7,
};

/** Words that are not zero. */
function touched(stripes: readonly Float64Array[]): string[] {
  const found: string[] = [];
  for (const [stripe, words] of stripes.entries()) {
    for (let at = 0; at < words.length; at++) if (words[at] !== 0) found.push(`${stripe}:${at}`);
  }
  return found;
}

void t.test('stripes are whole cache lines', (t) => {
  for (const words of [LISTENER_STRIPE_WORDS, UPSTREAM_STRIPE_WORDS]) t.equal((words * 8) % LINE_BYTES, 0);
  t.end();
});

/** How many words each exported constant of a block has, in the order of the block. All others have one. */
const WORDS: Readonly<Record<string, number>> = {
  ROUTES: OTHER_ROUTES.length * OUTCOMES.length,
  REJECTIONS: REJECTION_REASONS.length,
  OVERHEAD_WHOLE: histogramWords(layout.OVERHEAD_BOUNDS_MS),
  OVERHEAD_STREAM: histogramWords(layout.OVERHEAD_BOUNDS_MS),
  MODEL_INPUT: histogramWords(layout.TOKENS_BOUNDS),
  MODEL_OUTPUT: histogramWords(layout.TOKENS_BOUNDS),
  MODEL_DURATION: histogramWords(layout.DURATION_BOUNDS_MS),
  MODEL_FIRST_TOKEN: histogramWords(layout.FIRST_TOKEN_BOUNDS_MS),
  UPSTREAM_FAILURES: FAILURE_KINDS.length,
  UPSTREAM_DISBELIEVED: DISBELIEF_REASONS.length,
  UPSTREAM_CLIENTS_LEFT: ENDS_WITHOUT_CLIENT.length,
};

void t.test('the words of a block follow each other, without overlap and within the block', (t) => {
  const blocks: [name: RegExp, firstWord: number, end: number][] = [
    [/^(IN_FLIGHT|ROUTES|REJECTIONS|(CACHE|OVERHEAD)_(?!BOUNDS)\w+)$/, 0, layout.firstWordOfModel(NO_MODEL)],
    // A block begins with the calls by outcome and the broken calls, which are found by `firstWordOfDoor`.
    [
      /^MODEL_/,
      2 * OUTCOMES.length,
      layout.firstWordOfModel(OTHER_MODEL) - layout.firstWordOfModel(NO_MODEL),
    ],
    [/^UPSTREAM_(?!SLOTS_MAX|STRIPE_WORDS)/, 0, firstWordOfUpstream(1)],
    [/^THREAD_(?!STRIPE_WORDS)/, 0, layout.THREAD_STRIPE_WORDS],
  ];
  t.equal(layout.firstWordOfDoor(NO_MODEL, 0), layout.firstWordOfModel(NO_MODEL));
  for (const [name, firstWord, end] of blocks) {
    const constants = Object.entries(layout)
      .filter((entry): entry is [string, number] => name.test(entry[0]) && typeof entry[1] === 'number')
      .sort(([, first], [, second]) => first - second);
    t.ok(constants.length >= 4, `${name}`);
    let next = firstWord;
    for (const [constant, word] of constants) {
      t.equal(word, next, constant);
      next = word + (WORDS[constant] ?? 1);
    }
    t.ok(next <= end, `${name} ends within its block`);
  }
  t.end();
});

void t.test('no two counters of a listener share a word', (t) => {
  const slots = [NO_MODEL, OTHER_MODEL, modelSlotOf(0), modelSlotOf(CATALOG_ENTRIES_MAX - 1)];
  const steps: ((metrics: ListenerMetrics) => void)[] = [
    (metrics) => metrics.callBegun(),
    ...REJECTION_REASONS.map((reason) => (metrics: ListenerMetrics) => metrics.countRejection(reason)),
    ...OTHER_ROUTES.flatMap((route) =>
      OUTCOMES.map((outcome) => (metrics: ListenerMetrics) => metrics.countRequest(route, outcome)),
    ),
    ...slots.flatMap((slot) => [
      ...OUTCOMES.flatMap((outcome) =>
        [false, true].map(
          (broken) => (metrics: ListenerMetrics) => metrics.countCall(slot, outcome, broken, 0),
        ),
      ),
      ...DOOR_NAMES.slice(1).flatMap((_, door) =>
        [OUTCOMES[0]!, OUTCOMES.at(-1)!].flatMap((outcome) =>
          [false, true].map(
            (broken) => (metrics: ListenerMetrics) => metrics.countCall(slot, outcome, broken, door + 1),
          ),
        ),
      ),
      (metrics: ListenerMetrics) => metrics.countUsage(slot, TOKENS, 9n, 7n),
      (metrics: ListenerMetrics) => metrics.observeDuration(slot, 1e9),
      (metrics: ListenerMetrics) => metrics.observeFirstToken(slot, 1e9),
    ]),
    (metrics) => metrics.observeOverhead(false, 1e9),
    (metrics) => metrics.observeOverhead(true, 1e9),
  ];
  const seen = new Set<string>();
  for (const step of steps) {
    const { listeners, ...rest } = createMetrics(1, 1);
    step(new ListenerMetrics({ listeners, ...rest }, 0));
    const words = touched(openStripes(listeners, LISTENER_STRIPE_WORDS));
    t.ok(words.length > 0, 'something was counted');
    for (const word of words) {
      if (seen.has(word)) t.fail(`${step.toString()} writes ${word} again`);
      seen.add(word);
    }
  }
  t.end();
});

void t.test('no two counters of a worker share a word, and its stripe is its own', (t) => {
  const seen = new Set<string>();
  for (const worker of [0, 1]) {
    for (const slot of [0, 1, UPSTREAM_SLOTS_MAX - 1]) {
      const steps: ((metrics: UpstreamMetrics) => void)[] = [
        (metrics) => metrics.attemptBegun(slot, true),
        (metrics) => metrics.setBreaker(slot, 'open'),
        ...DISBELIEF_REASONS.map(
          (reason) => (metrics: UpstreamMetrics) => metrics.countDisbelieved(slot, reason),
        ),
        ...FAILURE_KINDS.map((kind) => (metrics: UpstreamMetrics) => metrics.countFailure(slot, kind, NOW)),
        ...ENDS_WITHOUT_CLIENT.map((end) => (metrics: UpstreamMetrics) => metrics.countLeft(slot, end)),
      ];
      for (const step of steps) {
        const buffers = createMetrics(1, 2);
        step(new UpstreamMetrics(buffers, worker));
        // Every failure is the last one for a while.
        const last = [UPSTREAM_FAILED_AT, UPSTREAM_FAILED_KIND].map(
          (at) => `${worker}:${firstWordOfUpstream(slot) + at}`,
        );
        for (const word of touched(openStripes(buffers.upstreams, UPSTREAM_STRIPE_WORDS))) {
          if (last.includes(word)) continue;
          if (seen.has(word)) t.fail(`${step.toString()} writes ${word} again`);
          seen.add(word);
        }
      }
    }
  }
  t.equal(
    seen.size,
    2 * 3 * (3 + 1 + FAILURE_KINDS.length + DISBELIEF_REASONS.length + ENDS_WITHOUT_CLIENT.length),
  );
  t.end();
});

void t.test('listeners and workers add up under the names that were counted', (t) => {
  const buffers = createMetrics(3, 2);
  const reader = new MetricsReader(buffers);
  const listeners = [0, 1, 2].map((index) => new ListenerMetrics(buffers, index));
  for (const [index, metrics] of listeners.entries()) {
    for (let count = 0; count <= index; count++) metrics.countCall(modelSlotOf(4), 'overloaded', false, 0);
    metrics.countCall(modelSlotOf(4), 'internal_error', true, DOOR_INDEX.rerank);
    metrics.countUsage(modelSlotOf(4), TOKENS, 5n, 2n);
    metrics.observeDuration(modelSlotOf(4), 15);
    metrics.callBegun();
  }
  listeners[0]!.callEnded();
  const model = reader.model(modelSlotOf(4));
  t.same(
    reader
      .doors(modelSlotOf(4))
      .flatMap(({ door, outcomes, broken }) =>
        [outcomes, broken].map((counts) => [door, ...[...counts].filter(([, count]) => count > 0)]),
      )
      .filter(([, counted]) => counted !== undefined),
    [
      ['chat', ['overloaded', 6]],
      ['rerank', ['internal_error', 3]],
    ],
  );
  t.same(
    OUTCOMES.flatMap((outcome, index) => (model.calls[index]! > 0 ? [[outcome, model.calls[index]]] : [])),
    [
      ['internal_error', 3],
      ['overloaded', 6],
    ],
    'calls of all doors, broken ones too',
  );
  t.equal(model.inputTokens.sum, 300);
  t.equal(model.outputTokens.sum, 21);
  t.equal(model.cachedTokens, 120);
  t.equal(model.costPicoUnits, 15n);
  t.equal(model.uncoveredPicoUnits, 6n);
  const large = 20_000n * 10n ** 12n + 1n;
  for (const metrics of listeners) metrics.countUsage(modelSlotOf(5), TOKENS, large, large);
  listeners[0]!.countUsage(modelSlotOf(5), TOKENS, 1n, 1n);
  const { costPicoUnits, uncoveredPicoUnits } = reader.model(modelSlotOf(5));
  for (const sum of [costPicoUnits, uncoveredPicoUnits])
    t.equal(sum, 3n * large + 1n, 'exact beyond what one float holds');
  t.equal(model.durationMs.counts[1], 3, '15 ms is above 10 and not above 20');
  t.equal(reader.callsInFlight(), 2);
  t.equal(reader.doors(modelSlotOf(5)).length, 0, 'the next model has none of it');

  const workers = [0, 1].map((index) => new UpstreamMetrics(buffers, index));
  for (const metrics of workers) metrics.attemptBegun(2, metrics === workers[1]);
  workers[1]!.setBreaker(2, 'open', Infinity);
  workers[0]!.countFailure(2, 'credentials', NOW);
  t.same(reader.upstream(3).lastFailure, undefined);
  workers[1]!.countFailure(2, 'timeout', asWallMs(NOW - 1));
  const upstream = reader.upstream(2);
  t.match(upstream, { attempts: 2, retries: 1, callsInFlight: 2 });
  t.equal(upstream.failures.get('credentials'), 1);
  t.same(upstream.lastFailure, { kind: 'credentials', atMs: NOW });
  t.same(
    [...upstream.breakers],
    [
      ['closed', 1],
      ['half_open', 0],
      ['open', 1],
    ],
  );
  t.end();
});

void t.test(
  'who takes the place of a thread that died goes on with its counters and none of its calls',
  (t) => {
    const buffers = createMetrics(1, 1);
    const reader = new MetricsReader(buffers);
    const listener = new ListenerMetrics(buffers, 0);
    listener.callBegun();
    listener.countRejection('overloaded');
    const worker = new UpstreamMetrics(buffers, 0);
    worker.attemptBegun(7, false);
    new ListenerMetrics(buffers, 0).countRejection('overloaded');
    new UpstreamMetrics(buffers, 0).countFailure(7, 'timeout', NOW);
    t.equal(reader.callsInFlight(), 0);
    t.equal(reader.rejections().get('overloaded'), 2);
    const upstream = reader.upstream(7);
    t.match(upstream, { attempts: 1, callsInFlight: 0 });
    t.equal(upstream.failures.get('timeout'), 1);
    t.end();
  },
);

void t.test('threads have names in the order of their stripes', (t) => {
  t.same(threadNames(1, 2), [
    'main',
    'listener-0',
    'worker-0',
    'worker-1',
    'traces',
    'counter-0',
    'counter-1',
  ]);
  t.end();
});
