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
  DURATION_BOUNDS_MS,
  FIRST_TOKEN_BOUNDS_MS,
  NO_MODEL,
  OTHER_MODEL,
  OUTCOMES,
  OVERHEAD_BOUNDS_MS,
  modelSlotOf,
  type BreakerState,
  type Outcome,
} from '../telemetry/metrics-layout.js';
import type { ModelSnapshot } from '../telemetry/metrics-reader.js';
import type { SharingSnapshot } from '../telemetry/metrics-source.js';
import type { CredentialStatus, HistogramView, UpstreamStatus } from '../telemetry/status-document.js';
import type { NamedUpstream } from '../telemetry/upstream-names.js';
import type { GatewayMetrics } from './gateway-metrics.js';
import { sharingStatusOf } from './group-status.js';
import type { ModelStatus, ProcessStatus } from './messages.js';

/** What `statusOf` needs besides the metrics. */
export interface StatusInputs {
  /** The slot of this process; 0 without a process group. */
  readonly slot: number;
  readonly ready: boolean;
  readonly uptimeSeconds: number;
  /** How many listeners, and workers, run now. */
  readonly listeners: number;
  readonly workers: number;
  /** How many accounts there are, also disabled ones. */
  readonly accounts: number;
  /** In the order of the catalogue's indices. */
  readonly modelIds: readonly string[];
  readonly settings: Settings;
  readonly flush: FlushState;
  readonly credentials: readonly CredentialStatus[];
  readonly sharing: SharingSnapshot | undefined;
}

/**
 * Returns the status of this process, with counts since its start. Calls without a model of the catalogue are
 * in the sums, but not in `models`: NO_MODEL has the calls that were rejected before their model was known,
 * OTHER_MODEL the calls that named an unknown model.
 */
export function statusOf(inputs: StatusInputs, metrics: GatewayMetrics): ProcessStatus {
  const { settings, flush } = inputs;
  const { reader } = metrics;
  const catalogModels = inputs.modelIds.map((_, index) => reader.model(modelSlotOf(index)));
  const models = [reader.model(NO_MODEL), reader.model(OTHER_MODEL), ...catalogModels];
  const overheads = [false, true].map((stream) => reader.overheadMs(stream));
  const total = (countOf: (model: ModelSnapshot) => number): number =>
    models.reduce((sum, model) => sum + countOf(model), 0);
  return {
    version: packageVersion(),
    node: process.version,
    pid: process.pid,
    process: inputs.slot,
    ready: inputs.ready,
    uptime_seconds: inputs.uptimeSeconds,
    listeners: inputs.listeners,
    workers: inputs.workers,
    calls_in_flight: reader.callsInFlight(),
    accounts: inputs.accounts,
    limits: {
      calls_in_flight: settings.limits.calls_in_flight,
      accounts: settings.limits.accounts,
      keys: settings.limits.keys,
    },
    outcomes: outcomesOf(models),
    refusals: Object.fromEntries([...reader.rejections()].filter(([, count]) => count > 0)),
    tokens: {
      prompt: total(({ inputTokens }) => inputTokens.sum),
      cached: total(({ cachedTokens }) => cachedTokens),
      completion: total(({ outputTokens }) => outputTokens.sum),
    },
    cost_pico_units: costOf(models),
    duration_ms: mergedHistograms(
      DURATION_BOUNDS_MS,
      models.map(({ durationMs }) => durationMs),
    ),
    first_token_ms: mergedHistograms(
      FIRST_TOKEN_BOUNDS_MS,
      models.map(({ firstTokenMs }) => firstTokenMs),
    ),
    overhead_ms: mergedHistograms(OVERHEAD_BOUNDS_MS, overheads),
    models: catalogModels.flatMap((model, index) => modelStatusesOf(inputs.modelIds[index]!, model)),
    upstreams: metrics.upstreams.current.map((upstream) => upstreamStatusOf(upstream, metrics)),
    credentials: inputs.credentials,
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
    sharing: sharingStatusOf(inputs.sharing),
  };
}

/** Counts the calls of all doors by outcome. `calls` has a count for each of OUTCOMES, in their order. */
function outcomesOf(models: readonly ModelSnapshot[]): Record<Outcome, number> {
  const countOf = (index: number): number => models.reduce((sum, { calls }) => sum + calls[index]!, 0);
  return Object.fromEntries(OUTCOMES.map((outcome, index) => [outcome, countOf(index)])) as Record<
    Outcome,
    number
  >;
}

/** Returns the status of a model; none for a model without calls. */
function modelStatusesOf(id: string, model: ModelSnapshot): ModelStatus[] {
  if (model.calls.every((count) => count === 0)) return [];
  return [
    {
      id,
      outcomes: outcomesOf([model]),
      tokens: {
        prompt: model.inputTokens.sum,
        cached: model.cachedTokens,
        completion: model.outputTokens.sum,
      },
      cost_pico_units: costOf([model]),
      duration_ms: mergedHistograms(DURATION_BOUNDS_MS, [model.durationMs]),
      first_token_ms: mergedHistograms(FIRST_TOKEN_BOUNDS_MS, [model.firstTokenMs]),
    },
  ];
}

/** Returns pico-units. */
function costOf(models: readonly ModelSnapshot[]): bigint {
  return models.reduce((sum, { costPicoUnits }) => sum + costPicoUnits, 0n);
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
    breaker: worstOf(breakers),
    attempts,
    failures: [...failures.values()].reduce((sum, count) => sum + count, 0),
    last_failure:
      lastFailure === undefined ? null : { kind: lastFailure.kind, at: Math.floor(lastFailure.atMs / 1_000) },
    last_errors: upstreamErrors.errorsOf(model, name),
    quotas: scope === undefined ? [] : upstreamUse(scope),
    waiting_calls: waits.now,
  };
}

/** Returns the worst state, because each worker has its own breaker for the upstream: open is the worst. */
function worstOf(breakers: ReadonlyMap<BreakerState, number>): BreakerState {
  if (breakers.get('open')! > 0) return 'open';
  return breakers.get('half_open')! > 0 ? 'half_open' : 'closed';
}

/** Adds up histograms bucket by bucket: all must have been made with the same bounds. */
function mergedHistograms(bounds: readonly number[], snapshots: readonly HistogramSnapshot[]): HistogramView {
  const { counts } = emptyHistogram(bounds);
  for (const snapshot of snapshots) snapshot.counts.forEach((count, bucket) => (counts[bucket]! += count));
  return { bounds, counts };
}
