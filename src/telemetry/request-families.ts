/**
 * Metric families of requests: outcomes, rejections, latencies, tokens, cost. exposition.ts reads them at a
 * scrape, on the main thread. A model has samples once it has had a call. metrics-source.ts says what must
 * hold of all families.
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
  counter,
  currencyOf,
  gauge,
  histogram,
  labelled,
  type MetricFamily,
  type MetricsSource,
  type ModelName,
  OPERATIONS,
  secondsOf,
  single,
} from './metrics-source.js';

const GEN_AI_LABELS = ['gen_ai_operation_name', 'gen_ai_provider_name', 'gen_ai_request_model'] as const;

/** Ids of models in labels, with their slots. In the settings no id is empty, and none has a space. */
function modelSlotsOf(source: MetricsSource): { readonly id: string; readonly slot: number }[] {
  const models = source.models().map(({ id }, index) => ({ id, slot: modelSlotOf(index) }));
  return [{ id: '', slot: NO_MODEL }, { id: 'unknown model', slot: OTHER_MODEL }, ...models];
}

/** Returns what was counted of each model of the settings. */
function readModels({
  models,
  reader,
}: MetricsSource): { readonly model: ModelName; readonly snapshot: ModelSnapshot }[] {
  return models().map((model, index) => ({ model, snapshot: reader.model(modelSlotOf(index)) }));
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

function requestSamples({ route, model, outcomes, isBroken }: CountedRequests) {
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

/** Returns the histograms of the models that have counted something there. */
function modelHistograms(source: MetricsSource, histogramOf: (snapshot: ModelSnapshot) => HistogramSnapshot) {
  return readModels(source)
    .map(({ model, snapshot }) => ({
      snapshot: histogramOf(snapshot),
      labels: {
        gen_ai_operation_name: operationOf(model),
        gen_ai_provider_name: model.ownedBy,
        gen_ai_request_model: model.id,
      },
    }))
    .filter(({ snapshot }) => valueCountOf(snapshot) > 0);
}

function tokenHistograms(
  source: MetricsSource,
  type: 'input' | 'output',
  histogramOf: (snapshot: ModelSnapshot) => HistogramSnapshot,
) {
  return modelHistograms(source, histogramOf).map(({ snapshot, labels }) => ({
    snapshot,
    labels: { ...labels, gen_ai_token_type: type },
  }));
}

/**
 * One sample for each model with a charged call, also if the value is 0. A model has had a charged call if
 * its histogram of input tokens is not empty: each charged call is counted there.
 */
function charged(valueOf: (snapshot: ModelSnapshot) => number) {
  return labelled(['model'], (source) =>
    readModels(source)
      .filter(({ snapshot }) => valueCountOf(snapshot.inputTokens) > 0)
      .map(({ model, snapshot }) => ({ value: valueOf(snapshot), labels: { model: model.id } })),
  );
}

/** Two samples for each model, without those that are 0. The label `label` has the name of the count. */
function pairOfModel<Name extends string>(
  label: string,
  countsOf: (snapshot: ModelSnapshot) => Readonly<Record<Name, number>>,
) {
  return labelled(['model', label], (source) =>
    readModels(source).flatMap(({ model, snapshot }) =>
      Object.entries<number>(countsOf(snapshot))
        .filter(([, count]) => count > 0)
        .map(([name, value]) => ({ value, labels: { model: model.id, [label]: name } })),
    ),
  );
}

export const REQUEST_FAMILIES: readonly MetricFamily[] = [
  counter(
    'tollgate_requests_total',
    'Requests that have ended, by route, status sent, outcome and model. code: ok, client_gone or the code of the error; status is 200 if a stream had begun before it failed, none if the client left. model is empty if a request was refused before its model was known, or had its answer from an earlier one by its Idempotency-Key.',
    labelled(['route', 'status', 'code', 'model'], (source) => [
      ...modelSlotsOf(source).flatMap(({ id, slot }) =>
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
    ]),
  ),
  counter(
    'tollgate_refusals_total',
    'Calls that were refused before they were sent to an upstream, by reason: the code of the error, or the limit that was reached.',
    labelled(['reason'], ({ reader }) =>
      [...reader.rejections()].map(([reason, value]) => ({ value, labels: { reason } })),
    ),
  ),
  gauge(
    'tollgate_calls_in_flight',
    'Calls that upstream workers are handling.',
    single(({ reader }) => reader.callsInFlight()),
  ),
  gauge(
    'tollgate_calls_in_flight_limit',
    'Setting limits.calls_in_flight, times the processes.',
    single(({ callsInFlightMax }) => callsInFlightMax),
  ),
  gauge(
    'tollgate_bodies_in_work_bytes',
    'Memory that the bodies of calls in work take, twice their length; bodies up to 4 KiB are not counted.',
    single(({ bodies }) => bodies.bytesInWork()),
  ),
  gauge(
    'tollgate_bodies_in_work_limit_bytes',
    'Setting limits.bodies_in_work_bytes or its default, times the processes.',
    single(({ bodies }) => bodies.bytesInWorkMax()),
  ),
  histogram(
    'gen_ai_server_request_duration_seconds',
    'Time of calls that were answered whole, from their headers to the last byte of the answer, in the OpenTelemetry convention gen_ai.server.request.duration.',
    GEN_AI_LABELS,
    (source) => modelHistograms(source, ({ durationMs }) => durationMs),
    secondsOf,
  ),
  histogram(
    'gen_ai_server_time_to_first_token_seconds',
    'Time of streams that were answered whole, from the headers of the call to the first event of its answer, in the OpenTelemetry convention gen_ai.server.time_to_first_token.',
    GEN_AI_LABELS,
    (source) => modelHistograms(source, ({ firstTokenMs }) => firstTokenMs),
    secondsOf,
  ),
  histogram(
    'tollgate_overhead_seconds',
    'Time inside the gateway of calls that were answered whole: from the last byte of the request to the first byte of the answer, less the time from the first attempt on an upstream to its first event (of a stream) or its last byte (of a whole answer). Failed attempts, retries and the pauses between them count as upstream.',
    ['stream'],
    ({ reader }) =>
      [false, true].map((stream) => ({
        snapshot: reader.overheadMs(stream),
        labels: { stream: String(stream) },
      })),
    secondsOf,
  ),
  histogram(
    'gen_ai_client_token_usage',
    'Tokens of charged calls, in the OpenTelemetry convention gen_ai.client.token.usage; its sum is all tokens.',
    [...GEN_AI_LABELS, 'gen_ai_token_type'],
    (source) => [
      ...tokenHistograms(source, 'input', ({ inputTokens }) => inputTokens),
      ...tokenHistograms(source, 'output', ({ outputTokens }) => outputTokens),
    ],
  ),
  counter(
    'tollgate_cached_input_tokens_total',
    'Input tokens that the provider served from its cache; they are part of the input of gen_ai_client_token_usage.',
    charged(({ cachedTokens }) => cachedTokens),
  ),
  counter(
    'tollgate_cache_write_input_tokens_total',
    'Input tokens that the provider wrote to its cache; they are part of the input of gen_ai_client_token_usage.',
    charged(({ cacheWriteTokens }) => cacheWriteTokens),
  ),
  counter(
    'tollgate_reasoning_output_tokens_total',
    'Output tokens that the provider reported as reasoning; they are part of the output of gen_ai_client_token_usage.',
    charged(({ reasoningTokens }) => reasoningTokens),
  ),
  counter(
    'tollgate_fallbacks_total',
    'Charged calls that were answered by a fallback, not by the model that they named. role: named, by the model that they named; answered, by the one that answered, under which their tokens and cost are counted too.',
    pairOfModel('role', ({ fallenBack, stoodIn }) => ({ named: fallenBack, answered: stoodIn })),
  ),
  counter(
    'tollgate_cache_requests_total',
    'Calls of models with a response cache, by whichever door. result: hit, whose response was there, and miss, which were sent upstream. Calls with cache-control: no-store or an Idempotency-Key are not counted.',
    pairOfModel('result', ({ cacheHits, cacheMisses }) => ({ hit: cacheHits, miss: cacheMisses })),
  ),
  gauge(
    'tollgate_cache_entries',
    'Responses of the response cache in memory, of all listeners; each listener has its own.',
    single(({ reader }) => reader.cache().entries),
  ),
  gauge(
    'tollgate_cache_bytes',
    'Bytes of the responses of the response cache in memory, of all listeners.',
    single(({ reader }) => reader.cache().bytes),
  ),
  counter(
    'tollgate_cache_evictions_total',
    'Responses that made room for others in memory; they may still be on disk.',
    single(({ reader }) => reader.cache().evictions),
  ),
  gauge(
    'tollgate_cache_stored_bytes',
    'Bytes of cached responses on disk, which all processes share.',
    // Families without `across` add up over the processes. All processes read the bytes of one store, so a
    // sum would count them once for each process.
    single(({ cacheStoredBytes }) => cacheStoredBytes()),
    'one',
  ),
  counter(
    'tollgate_cost_total',
    'What calls were charged, in units of the currency of the prices. For graphs: the books are exact, this is a float.',
    charged(({ costPicoUnits }) => currencyOf(costPicoUnits)),
  ),
  counter(
    'tollgate_uncovered_total',
    'What calls cost beyond the balance of their account, in units of the currency of the prices: nobody pays it. It is not in tollgate_cost_total. If processes share balances, some of it is collected within half a minute, and stays counted here. "tollgate usage --by account" says whose calls they were.',
    charged(({ uncoveredPicoUnits }) => currencyOf(uncoveredPicoUnits)),
  ),
];
