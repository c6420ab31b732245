/**
 * Builds one process's part of `GET /admin/v1/status`: what runs, and the counts of its calls so far.
 * stats.ts calls it, on the main thread of a gateway process; group-status.ts adds up the parts.
 *
 * Must hold: member names are public, as they appear in the admin interface. `addStatus` of group-status.ts
 * adds up each count, else operators see that of one process (test/unit/gateway/group-status.test.ts).
 */
import { packageVersion } from '../core/version.js';
import type { Settings } from '../config/schema.js';
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
import type { SharingSnapshot } from '../telemetry/metrics-snapshot.js';
import type { CredentialStatus, HistogramView, UpstreamStatus } from '../telemetry/status-document.js';
import type { NamedUpstream } from '../telemetry/metrics-source.js';
import type { GatewayMetrics } from './gateway-metrics.js';
import type { ModelStatus, ProcessStatus } from './messages.js';
import { sharingStatusOf } from './group-status.js';

export interface StatusFacts {
  /** The number of this process in its process group, from 0. */
  readonly slot: number;
  readonly ready: boolean;
  readonly uptimeSeconds: number;
  /** How many threads run. */
  readonly listeners: number;
  readonly workers: number;
  /** How many accounts there are, also disabled ones. */
  readonly accounts: number;
  /** In the order of the catalogue's indices. */
  readonly modelIds: readonly string[];
  readonly settings: Settings;
  readonly accounting: FlushState;
  readonly credentials: readonly CredentialStatus[];
  readonly sharing: SharingSnapshot | undefined;
}

/**
 * Returns the part of this process. Its counts are those since the process began. Two rows count calls
 * without a model of the catalogue: NO_MODEL those rejected before the model was known, OTHER_MODEL those
 * that named one that is not there.
 */
export function statusOf(facts: StatusFacts, metrics: GatewayMetrics): ProcessStatus {
  const { settings, accounting: books } = facts;
  const { reader } = metrics;
  const slots = facts.modelIds.map((_, index) => modelSlotOf(index));
  const known = slots.map((slot) => reader.model(slot));
  const models = [reader.model(NO_MODEL), reader.model(OTHER_MODEL), ...known];
  const total = (countOf: (model: ModelSnapshot) => number): number =>
    models.reduce((sum, model) => sum + countOf(model), 0);
  return {
    version: packageVersion(),
    node: process.version,
    pid: process.pid,
    process: facts.slot,
    ready: facts.ready,
    uptime_seconds: facts.uptimeSeconds,
    listeners: facts.listeners,
    workers: facts.workers,
    calls_in_flight: reader.callsInFlight(),
    accounts: facts.accounts,
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
    duration_ms: merged(
      DURATION_BOUNDS_MS,
      models.map(({ durationMs }) => durationMs),
    ),
    first_token_ms: merged(
      FIRST_TOKEN_BOUNDS_MS,
      models.map(({ firstTokenMs }) => firstTokenMs),
    ),
    overhead_ms: merged(OVERHEAD_BOUNDS_MS, [reader.overheadMs(false), reader.overheadMs(true)]),
    models: known.flatMap((model, index) => modelOf(facts.modelIds[index]!, model)),
    upstreams: metrics.upstreams.current.map((upstream) => upstreamOf(upstream, metrics)),
    credentials: facts.credentials,
    threads: reader.threads().map(({ thread, delayP99Ms, heapBytes }) => ({
      name: metrics.threads[thread]!,
      event_loop_delay_ms_p99: delayP99Ms,
      heap_bytes: heapBytes,
    })),
    store: {
      ok: books.ok,
      last_error: books.lastError ?? null,
      unflushed_accounts: books.unflushedAccounts,
    },
    sharing: sharingStatusOf(facts.sharing),
  };
}

/**
 * Counts the calls of all doors by outcome. A response that failed after its first byte is counted in
 * `broken` and not in `outcomes`, so the sum counts each call once.
 */
function outcomesOf(models: readonly ModelSnapshot[]): Record<Outcome, number> {
  const count = (outcome: Outcome): number =>
    models
      .flatMap(({ doors }) => doors)
      .reduce((sum, { outcomes, broken }) => sum + outcomes.get(outcome)! + broken.get(outcome)!, 0);
  return Object.fromEntries(OUTCOMES.map((outcome) => [outcome, count(outcome)])) as Record<Outcome, number>;
}

/** Returns one entry, or none for a model without calls. */
function modelOf(id: string, model: ModelSnapshot): ModelStatus[] {
  const outcomes = outcomesOf([model]);
  if (Object.values(outcomes).every((count) => count === 0)) return [];
  return [
    {
      id,
      outcomes,
      tokens: {
        prompt: model.inputTokens.sum,
        cached: model.cachedTokens,
        completion: model.outputTokens.sum,
      },
      cost_pico_units: costOf([model]),
      duration_ms: merged(DURATION_BOUNDS_MS, [model.durationMs]),
      first_token_ms: merged(FIRST_TOKEN_BOUNDS_MS, [model.firstTokenMs]),
    },
  ];
}

/** In pico-units. A bigint: group-status.ts makes decimal text of it for JSON. */
function costOf(models: readonly ModelSnapshot[]): bigint {
  return models.reduce((sum, { costPicoUnits }) => sum + costPicoUnits, 0n);
}

function upstreamOf(
  { model, name, priority, weight, slot, scope }: NamedUpstream,
  { reader, upstreamUse, upstreamErrors }: GatewayMetrics,
): UpstreamStatus {
  const { attempts, callsInFlight, failures, lastFailure, breakers, waits } = reader.upstream(slot);
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
    last_errors: upstreamErrors.of(model, name),
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
function merged(bounds: readonly number[], snapshots: readonly HistogramSnapshot[]): HistogramView {
  const { counts } = emptyHistogram(bounds);
  for (const snapshot of snapshots) snapshot.counts.forEach((count, bucket) => (counts[bucket]! += count));
  return { bounds, counts };
}
