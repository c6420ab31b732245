/**
 * Metric families of requests: outcomes, rejections, latencies, tokens, cost. exposition.ts reads them at a
 * scrape, on the main thread. A model has samples once it has had a call.
 *
 * Must hold:
 * - Names and labels stay, because dashboards use them (test/unit/telemetry/exposition.names.test.ts).
 *   `npm run docs` copies names, labels and help to docs/metrics.md.
 * - No label has a value that a caller can choose, so that the number of time series is bounded.
 * - Samples have the labels that the family declares (test/unit/telemetry/exposition.test.ts).
 */
import { DOOR_NAMES, DOOR_PATHS, statusByDoor } from '../core/door-names.js';
import { ERROR_KINDS } from '../core/errors.js';
import { valueCountOf, type HistogramSnapshot } from './histogram.js';
import {
  NO_MODEL,
  OTHER_MODEL,
  OTHER_ROUTES,
  modelSlotOf,
  type OtherRoute,
  type Outcome,
  type Route,
} from './metrics-layout.js';
import type { ModelSnapshot } from './metrics-reader.js';
import {
  currencyOf,
  histogramSamples,
  secondsOf,
  type MetricFamily,
  type MetricsSource,
  OPERATIONS,
  type ModelName,
  type Sample,
} from './metrics-source.js';

/** Names the slot OTHER_MODEL. No model of the settings has this id, because ids have no spaces. */
const UNKNOWN_MODEL: ModelName = { id: 'unknown model', ownedBy: '', serves: [] };
/** Names the slot NO_MODEL by an empty label. */
const WITHOUT_MODEL: ModelName = { id: '', ownedBy: '', serves: [] };

const GEN_AI_LABELS = ['gen_ai_operation_name', 'gen_ai_provider_name', 'gen_ai_request_model'];

interface NamedModel extends ModelName {
  /** Model slot in the stripes of the listeners (metrics-layout.ts). */
  readonly slot: number;
}

/** Returns the models of the catalogue. `models()` is in the order of their indexes. */
function modelsOf(source: MetricsSource): NamedModel[] {
  return source.models().map((model, index) => ({ ...model, slot: modelSlotOf(index) }));
}

/** Returns the two slots of calls whose model is not in the catalogue, then `modelsOf`. */
function allModelsOf(source: MetricsSource): NamedModel[] {
  return [{ ...WITHOUT_MODEL, slot: NO_MODEL }, { ...UNKNOWN_MODEL, slot: OTHER_MODEL }, ...modelsOf(source)];
}

function readModels(
  source: MetricsSource,
): { readonly model: NamedModel; readonly snapshot: ModelSnapshot }[] {
  return modelsOf(source).map((model) => ({ model, snapshot: source.reader.model(model.slot) }));
}

/** Returns the label `status`. */
function statusOf(route: Route, outcome: Outcome, isBroken: boolean): string {
  if (outcome === 'ok' || isBroken) return '200';
  if (outcome === 'client_gone') return 'none';
  const door = DOOR_NAMES.find((name) => DOOR_PATHS[name] === route);
  if (door !== undefined) return String(statusByDoor(door, outcome));
  // A route of OTHER_ROUTES that has a model has it in its path, so an unknown model is a 404.
  return outcome === 'model_not_found' ? '404' : String(ERROR_KINDS[outcome].status);
}

/**
 * This outcome has a sample of 0 before it is first counted, because there is an alert on it
 * (deploy/prometheus): Prometheus sees no growth in a series that begins with its first count.
 */
const SHOWN_AT_ZERO: Outcome = 'internal_error';

interface CountedRequests {
  readonly route: Route;
  /** The model's id; empty if the requests have none. */
  readonly model: string;
  readonly outcomes: ReadonlyMap<Outcome, number>;
  /** Whether the responses had begun, with 200, before the calls failed. */
  readonly isBroken: boolean;
}

function requestSamples({ route, model, outcomes, isBroken }: CountedRequests): Sample[] {
  return [...outcomes]
    .filter(([outcome, count]) => count > 0 || outcome === SHOWN_AT_ZERO)
    .map(([outcome, value]) => ({
      value,
      labels: { route, status: statusOf(route, outcome, isBroken), code: outcome, model },
    }));
}

/**
 * Returns the label of a model's tokens and times, which are not counted by operation. If the model serves
 * several operations, the label is that of chat, or of the first one without chat.
 */
function operationOf({ serves }: ModelName): string {
  const [first = 'chat'] = serves;
  return OPERATIONS[serves.includes('chat') ? 'chat' : first];
}

/** Returns the samples of the models whose histogram is not empty. `scale` converts bounds and sum. */
function modelHistogram(
  source: MetricsSource,
  name: string,
  histogramOf: (snapshot: ModelSnapshot) => HistogramSnapshot,
  extraLabels: Readonly<Record<string, string>>,
  scale?: (value: number) => number,
): Sample[] {
  return readModels(source).flatMap(({ model, snapshot }) => {
    const histogram = histogramOf(snapshot);
    if (valueCountOf(histogram) === 0) return [];
    const labels = {
      gen_ai_operation_name: operationOf(model),
      gen_ai_provider_name: model.ownedBy,
      gen_ai_request_model: model.id,
      ...extraLabels,
    };
    return histogramSamples(name, histogram, labels, scale);
  });
}

const sampleUnlessZero = (value: number, labels: Sample['labels']): Sample[] =>
  value === 0 ? [] : [{ value, labels }];

const TOKEN_USAGE = 'gen_ai_client_token_usage';
const REQUEST_DURATION = 'gen_ai_server_request_duration_seconds';
const FIRST_TOKEN = 'gen_ai_server_time_to_first_token_seconds';
const OVERHEAD = 'tollgate_overhead_seconds';

export const REQUEST_FAMILIES: readonly MetricFamily[] = [
  {
    name: 'tollgate_requests_total',
    type: 'counter',
    help: 'Requests that have ended, by route, status sent, outcome and model. code: ok, client_gone or the code of the error; status is 200 if a stream had begun before it failed, none if the client left. model is empty if a request was refused before its model was known, or had its answer from an earlier one by its Idempotency-Key.',
    labels: ['route', 'status', 'code', 'model'],
    collect: (source) => [
      ...allModelsOf(source).flatMap(({ id, slot }) =>
        source.reader.doors(slot).flatMap(({ door, outcomes, broken }) => {
          const requests = { route: DOOR_PATHS[door], model: id };
          return [
            ...requestSamples({ ...requests, outcomes, isBroken: false }),
            ...requestSamples({ ...requests, outcomes: broken, isBroken: true }),
          ];
        }),
      ),
      ...OTHER_ROUTES.flatMap((route: OtherRoute) => {
        const outcomes = source.reader.route(route);
        if ([...outcomes.values()].every((count) => count === 0)) return [];
        return requestSamples({ route, model: '', outcomes, isBroken: false });
      }),
    ],
  },
  {
    name: 'tollgate_refusals_total',
    type: 'counter',
    help: 'Calls that were refused before they were sent to an upstream, by reason: the code of the error, or the limit that was reached.',
    labels: ['reason'],
    collect: ({ reader }) =>
      [...reader.rejections()].map(([reason, value]) => ({ value, labels: { reason } })),
  },
  {
    name: 'tollgate_calls_in_flight',
    type: 'gauge',
    help: 'Calls that upstream workers are handling.',
    labels: [],
    collect: ({ reader }) => [{ value: reader.callsInFlight(), labels: {} }],
  },
  {
    name: 'tollgate_calls_in_flight_limit',
    type: 'gauge',
    help: 'Setting limits.calls_in_flight, times the processes.',
    labels: [],
    collect: ({ callsInFlightMax }) => [{ value: callsInFlightMax, labels: {} }],
  },
  {
    name: 'tollgate_bodies_in_work_bytes',
    type: 'gauge',
    help: 'Memory that the bodies of calls in work take, twice their length; bodies up to 4 KiB are not counted.',
    labels: [],
    collect: ({ bodies }) => [{ value: bodies.bytesInWork(), labels: {} }],
  },
  {
    name: 'tollgate_bodies_in_work_limit_bytes',
    type: 'gauge',
    help: 'Setting limits.bodies_in_work_bytes or its default, times the processes.',
    labels: [],
    collect: ({ bodies }) => [{ value: bodies.bytesInWorkMax(), labels: {} }],
  },
  {
    name: REQUEST_DURATION,
    type: 'histogram',
    help: 'Time of calls that were answered whole, from their headers to the last byte of the answer, in the OpenTelemetry convention gen_ai.server.request.duration.',
    labels: GEN_AI_LABELS,
    collect: (source) =>
      modelHistogram(source, REQUEST_DURATION, ({ durationMs }) => durationMs, {}, secondsOf),
  },
  {
    name: FIRST_TOKEN,
    type: 'histogram',
    help: 'Time of streams that were answered whole, from the headers of the call to the first event of its answer, in the OpenTelemetry convention gen_ai.server.time_to_first_token.',
    labels: GEN_AI_LABELS,
    collect: (source) =>
      modelHistogram(source, FIRST_TOKEN, ({ firstTokenMs }) => firstTokenMs, {}, secondsOf),
  },
  {
    name: OVERHEAD,
    type: 'histogram',
    help: 'Time inside the gateway of calls that were answered whole: from the last byte of the request to the first byte of the answer, less the time from the first attempt on an upstream to its first event (of a stream) or its last byte (of a whole answer). Failed attempts, retries and the pauses between them count as upstream.',
    labels: ['stream'],
    collect: ({ reader }) =>
      [false, true].flatMap((stream) =>
        histogramSamples(OVERHEAD, reader.overheadMs(stream), { stream: String(stream) }, secondsOf),
      ),
  },
  {
    name: TOKEN_USAGE,
    type: 'histogram',
    help: 'Tokens of charged calls, in the OpenTelemetry convention gen_ai.client.token.usage; its sum is all tokens.',
    labels: [...GEN_AI_LABELS, 'gen_ai_token_type'],
    collect: (source) => [
      ...modelHistogram(source, TOKEN_USAGE, ({ inputTokens }) => inputTokens, {
        gen_ai_token_type: 'input',
      }),
      ...modelHistogram(source, TOKEN_USAGE, ({ outputTokens }) => outputTokens, {
        gen_ai_token_type: 'output',
      }),
    ],
  },
  {
    name: 'tollgate_cached_input_tokens_total',
    type: 'counter',
    help: 'Input tokens that the provider served from its cache; they are part of the input of gen_ai_client_token_usage.',
    labels: ['model'],
    collect: (source) => chargedSamples(source, ({ cachedTokens }) => cachedTokens),
  },
  {
    name: 'tollgate_cache_write_input_tokens_total',
    type: 'counter',
    help: 'Input tokens that the provider wrote to its cache; they are part of the input of gen_ai_client_token_usage.',
    labels: ['model'],
    collect: (source) => chargedSamples(source, ({ cacheWriteTokens }) => cacheWriteTokens),
  },
  {
    name: 'tollgate_reasoning_output_tokens_total',
    type: 'counter',
    help: 'Output tokens that the provider reported as reasoning; they are part of the output of gen_ai_client_token_usage.',
    labels: ['model'],
    collect: (source) => chargedSamples(source, ({ reasoningTokens }) => reasoningTokens),
  },
  {
    name: 'tollgate_fallbacks_total',
    type: 'counter',
    help: 'Charged calls that were answered by a fallback, not by the model that they named. role: named, by the model that they named; answered, by the one that answered, under which their tokens and cost are counted too.',
    labels: ['model', 'role'],
    collect: (source) =>
      readModels(source).flatMap(({ model: { id }, snapshot }) => [
        ...sampleUnlessZero(snapshot.fallenBack, { model: id, role: 'named' }),
        ...sampleUnlessZero(snapshot.stoodIn, { model: id, role: 'answered' }),
      ]),
  },
  {
    name: 'tollgate_cache_requests_total',
    type: 'counter',
    help: 'Calls of models with a response cache, by whichever door. result: hit, whose response was there, and miss, which were sent upstream. Calls with cache-control: no-store or an Idempotency-Key are not counted.',
    labels: ['model', 'result'],
    collect: (source) =>
      readModels(source).flatMap(({ model: { id }, snapshot }) => [
        ...sampleUnlessZero(snapshot.cacheHits, { model: id, result: 'hit' }),
        ...sampleUnlessZero(snapshot.cacheMisses, { model: id, result: 'miss' }),
      ]),
  },
  {
    name: 'tollgate_cache_entries',
    type: 'gauge',
    help: 'Responses of the response cache in memory, of all listeners; each listener has its own.',
    labels: [],
    collect: ({ reader }) => [{ value: reader.cache().entries, labels: {} }],
  },
  {
    name: 'tollgate_cache_bytes',
    type: 'gauge',
    help: 'Bytes of the responses of the response cache in memory, of all listeners.',
    labels: [],
    collect: ({ reader }) => [{ value: reader.cache().bytes, labels: {} }],
  },
  {
    name: 'tollgate_cache_evictions_total',
    type: 'counter',
    help: 'Responses that made room for others in memory; they may still be on disk.',
    labels: [],
    collect: ({ reader }) => [{ value: reader.cache().evictions, labels: {} }],
  },
  {
    name: 'tollgate_cache_stored_bytes',
    type: 'gauge',
    help: 'Bytes of cached responses on disk, which all processes share.',
    labels: [],
    // Families without `across` add up over the processes. All processes read the bytes of one store, so a
    // sum would count them once for each process.
    across: 'one',
    collect: ({ cacheStoredBytes }) => [{ value: cacheStoredBytes(), labels: {} }],
  },
  {
    name: 'tollgate_cost_total',
    type: 'counter',
    help: 'What calls were charged, in units of the currency of the prices. For graphs: the books are exact, this is a float.',
    labels: ['model'],
    collect: (source) => chargedSamples(source, ({ costPicoUnits }) => currencyOf(costPicoUnits)),
  },
  {
    name: 'tollgate_uncovered_total',
    type: 'counter',
    help: 'What calls cost beyond the balance of their account, in units of the currency of the prices: nobody pays it. It is not in tollgate_cost_total. If processes share balances, some of it is collected within half a minute, and stays counted here. "tollgate usage --by account" says whose calls they were.',
    labels: ['model'],
    collect: (source) => chargedSamples(source, ({ uncoveredPicoUnits }) => currencyOf(uncoveredPicoUnits)),
  },
];

/**
 * Returns one sample for each model with a charged call, also if the value is 0. A model has had a charged
 * call if its histogram of input tokens is not empty: each charged call is counted there.
 */
function chargedSamples(source: MetricsSource, valueOf: (snapshot: ModelSnapshot) => number): Sample[] {
  return readModels(source)
    .filter(({ snapshot }) => valueCountOf(snapshot.inputTokens) > 0)
    .map(({ model, snapshot }) => ({ value: valueOf(snapshot), labels: { model: model.id } }));
}
