/**
 * Makes the status of one gateway process from its metrics, with counts since its start. stats.ts calls
 * `statusOf` for each snapshot of the kind `status`; group-status.ts adds the statuses of all processes up.
 * Main thread of a gateway process.
 *
 * Must hold: the sums have all calls, also those without a model of the catalogue, so they are those of
 * `/metrics` (test/e2e/metrics.test.ts).
 */
import type { Settings } from '../config/schema.js';
import { packageVersion } from '../core/version.js';
import type { FlushState } from '../store/flush.js';
import { emptyHistogram, type HistogramSnapshot } from '../telemetry/histogram.js';
import {
  BREAKER_STATES,
  DURATION_BOUNDS_MS,
  FIRST_TOKEN_BOUNDS_MS,
  NO_MODEL,
  OTHER_MODEL,
  OUTCOMES,
  OVERHEAD_BOUNDS_MS,
  modelSlotOf,
  type Outcome,
} from '../telemetry/metrics-layout.js';
import type { ModelSnapshot } from '../telemetry/metrics-reader.js';
import type { SharingSnapshot } from '../telemetry/metrics-source.js';
import type { HistogramView, UpstreamStatus } from '../telemetry/status-document.js';
import type { NamedUpstream } from '../telemetry/upstream-names.js';
import type { GatewayMetrics } from './gateway-metrics.js';
import { sharingStatusOf } from './group-status.js';
import type { CallsStatus, ProcessStatus } from './messages.js';

/**
 * What `statusOf` needs besides the metrics: members of the status as they are, and what others are made of.
 */
export interface StatusInputs {
  readonly run: Pick<
    ProcessStatus,
    'process' | 'ready' | 'uptime_seconds' | 'listeners' | 'workers' | 'accounts' | 'credentials'
  >;
  /** In the order of the catalogue's indices. */
  readonly modelIds: readonly string[];
  readonly limits: Settings['limits'];
  readonly flush: FlushState;
  readonly sharing: SharingSnapshot | undefined;
}

/**
 * Returns the status of this process, with counts since its start. Calls without a model of the catalogue are
 * in the sums, but not in `models`: NO_MODEL has the calls that were rejected before their model was known,
 * OTHER_MODEL the calls that named an unknown model.
 */
export function statusOf(
  { run, modelIds, limits, flush, sharing }: StatusInputs,
  metrics: GatewayMetrics,
): ProcessStatus {
  const { reader } = metrics;
  const catalogModels = modelIds.map((_, index) => reader.model(modelSlotOf(index)));
  const models = [reader.model(NO_MODEL), reader.model(OTHER_MODEL), ...catalogModels];
  const overheads = [false, true].map((stream) => reader.overheadMs(stream));
  return {
    ...run,
    version: packageVersion(),
    node: process.version,
    pid: process.pid,
    calls_in_flight: reader.callsInFlight(),
    limits: { calls_in_flight: limits.calls_in_flight, accounts: limits.accounts, keys: limits.keys },
    ...callsOf(models),
    refusals: Object.fromEntries([...reader.rejections()].filter(([, count]) => count > 0)),
    overhead_ms: mergedHistograms(OVERHEAD_BOUNDS_MS, overheads),
    // A model without calls has no status.
    models: catalogModels.flatMap((model, index) =>
      model.calls.some((count) => count > 0) ? [{ id: modelIds[index]!, ...callsOf([model]) }] : [],
    ),
    upstreams: metrics.upstreams.current.map((upstream) => upstreamStatusOf(upstream, metrics)),
    threads: reader.threads().map(({ thread, delayP99Ms, heapBytes }) => ({
      name: metrics.threads[thread]!,
      event_loop_delay_ms_p99: delayP99Ms,
      heap_bytes: heapBytes,
    })),
    store: {
      ok: flush.ok,
      last_error: flush.lastError ?? null,
      unflushed_accounts: flush.unflushedAccounts,
    },
    sharing: sharingStatusOf(sharing),
  };
}

/** Adds up the calls of the models, of all doors. */
function callsOf(models: readonly ModelSnapshot[]): CallsStatus {
  const total = (countOf: (model: ModelSnapshot) => number): number =>
    models.reduce((sum, model) => sum + countOf(model), 0);
  const histogram = (
    bounds: readonly number[],
    histogramOf: (model: ModelSnapshot) => HistogramSnapshot,
  ): HistogramView => mergedHistograms(bounds, models.map(histogramOf));
  return {
    // `calls` has a count for each of OUTCOMES, in their order.
    outcomes: Object.fromEntries(
      OUTCOMES.map((outcome, index) => [outcome, total(({ calls }) => calls[index]!)]),
    ) as Record<Outcome, number>,
    tokens: {
      prompt: total(({ inputTokens }) => inputTokens.sum),
      cached: total(({ cachedTokens }) => cachedTokens),
      completion: total(({ outputTokens }) => outputTokens.sum),
    },
    cost_pico_units: models.reduce((sum, { costPicoUnits }) => sum + costPicoUnits, 0n),
    duration_ms: histogram(DURATION_BOUNDS_MS, ({ durationMs }) => durationMs),
    first_token_ms: histogram(FIRST_TOKEN_BOUNDS_MS, ({ firstTokenMs }) => firstTokenMs),
  };
}

function upstreamStatusOf(
  { model, name, priority, weight, slot: metricsSlot, scope }: NamedUpstream,
  { reader, upstreamUse, upstreamErrors }: GatewayMetrics,
): UpstreamStatus {
  const { attempts, callsInFlight, failures, lastFailure, breakers, waits } = reader.upstream(metricsSlot);
  return {
    model,
    name,
    priority,
    weight,
    calls_in_flight: callsInFlight,
    // Each worker has its own breaker for the upstream: the worst is shown.
    breaker: BREAKER_STATES.findLast((state) => breakers.get(state)! > 0) ?? 'closed',
    attempts,
    failures: [...failures.values()].reduce((sum, count) => sum + count, 0),
    last_failure:
      lastFailure === undefined ? null : { kind: lastFailure.kind, at: Math.floor(lastFailure.atMs / 1_000) },
    last_errors: upstreamErrors.errorsOf(model, name),
    quotas: scope === undefined ? [] : upstreamUse(scope),
    waiting_calls: waits.now,
  };
}

/** Adds up histograms bucket by bucket: all must have been made with the same bounds. */
function mergedHistograms(bounds: readonly number[], snapshots: readonly HistogramSnapshot[]): HistogramView {
  const { counts } = emptyHistogram(bounds);
  for (const snapshot of snapshots) snapshot.counts.forEach((count, bucket) => (counts[bucket]! += count));
  return { bounds, counts };
}
