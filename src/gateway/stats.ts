/**
 * The stats that operators read: `/metrics`, `GET /admin/v1/status`, the busiest accounts. `Stats.read` makes
 * the snapshot of this gateway. Under a supervisor ProcessGroupStats adds up the snapshots of all gateways;
 * group-status.ts writes the status document of them. gateway.ts owns one `Stats`, on the main thread of each
 * gateway process; admin-service.ts reads it. A _group_ is a process group, in `groupQuotas` one of accounts.
 *
 * Must hold: a sum over all gateways never falls, or Prometheus takes the fall for a restart and counts twice
 * (test/unit/gateway/stats.process-group.test.ts). `read` never calls `page`, which calls `read` of all
 * gateways. `reportLast` is called once, when all threads have ended, because the supervisor adds these
 * counters for good (test/unit/supervisor/group-snapshots.test.ts). Names in the status document are public
 * (test/unit/gateway/group-status.test.ts). Further test: test/e2e/metrics.test.ts.
 */
import type { Settings } from '../config/schema.js';
import { ProxyError } from '../core/errors.js';
import { packageVersion } from '../core/version.js';
import type { CredentialKeeper } from '../providers/credentials/credential-keeper.js';
import { bodyBytesInWork, type BodyBudgetBuffer } from '../request/body-budget.js';
import type { FlushState } from '../store/flush.js';
import type { FamilySamples, MetricsFormat, MetricsPage } from '../telemetry/exposition.js';
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
import { mergeFamily } from '../telemetry/metrics-snapshot.js';
import type { SharingSnapshot } from '../telemetry/metrics-source.js';
import type { NamedUpstream } from '../telemetry/upstream-names.js';
import type {
  CredentialStatus,
  StatusDocument,
  HistogramView,
  UpstreamStatus,
} from '../telemetry/status-document.js';
import type { AccountReport } from '../telemetry/account-history.js';
import type { Accounting } from './accounting.js';
import type { GatewayLogs } from './gateway-logs.js';
import type { GatewayMetrics } from './gateway-metrics.js';
import type { GatewayState } from './gateway-options.js';
import { statusDocument, sharingStatusOf } from './group-status.js';
import type { Listeners } from './listeners.js';
import { bodiesInWorkBytesOf } from './memory-limit.js';
import {
  type GroupPosition,
  type GroupSnapshot,
  NO_SNAPSHOTS,
  type Snapshot,
  type SnapshotKind,
  type ModelStatus,
  type ProcessStatus,
} from './messages.js';
import type { Notifications } from './notifications.js';
import type { UpstreamWorkers } from './upstream-workers.js';
import type { LiveSettings } from './reload.js';
import type { SupervisorLink } from './supervisor-link.js';

/** The kinds of snapshots that this file makes. */
type StatsKind = Extract<SnapshotKind, 'metrics' | 'status' | 'accounts'>;

interface ProcessGroupStatsOptions {
  /** The slot of this gateway process. */
  readonly slot: number;
  /** Reads this gateway alone. The snapshot has that kind. */
  readonly read: (kind: StatsKind) => Promise<Snapshot>;
  /** Asks all gateways, by the supervisor. Undefined if it does not reply in time. */
  readonly readAll: (kind: StatsKind) => Promise<GroupSnapshot | undefined>;
}

const SUPERVISOR_RETRY_SECONDS = 5;
const SUPERVISOR_LATE =
  'The supervisor did not answer in time, so nothing is known of the other processes: this machine has too much ' +
  `work, or the supervisor stands still. Retry after ${SUPERVISOR_RETRY_SECONDS} seconds.`;

/**
 * Sums over the running gateways (`members`, each with its snapshot `reading`) and the last counters of those
 * that have `ended`. If the supervisor does not reply, methods reject with ProxyError `overloaded`: a scrape
 * then fails, or a chart has a gap.
 */
export class ProcessGroupStats {
  readonly #options: ProcessGroupStatsOptions;

  constructor(options: ProcessGroupStatsOptions) {
    this.#options = options;
  }

  async metrics(): Promise<FamilySamples> {
    const { slot } = this.#options;
    const { members, ended } = await this.#readAll('metrics');
    const snapshots = members.flatMap(({ slot: memberSlot, reading: { metrics } }) =>
      metrics === undefined ? [] : [{ slot: memberSlot, own: memberSlot === slot, families: metrics }],
    );
    return (family) => mergeFamily(family, snapshots, ended.metrics ?? []);
  }

  /** The status document: what runs in all gateways, and the sums of their counts. */
  async status(): Promise<StatusDocument> {
    const { slot } = this.#options;
    const { members, ended } = await this.#readAll('status');
    const statuses = members.flatMap(({ reading: { status } }) => (status === undefined ? [] : [status]));
    const ownStatus = statuses.find((status) => status.process === slot);
    // `#readAll` has made sure of this gateway's status; `??` is for the type alone.
    return statusDocument(ownStatus ?? statuses[0]!, statuses, ended.status);
  }

  /** One report for each process, also for processes that have just ended. */
  async accounts(): Promise<readonly AccountReport[]> {
    const { members, ended } = await this.#readAll('accounts');
    return [...members.map(({ reading }) => reading), ended].flatMap(({ accounts = [] }) => accounts);
  }

  /** Adds the snapshot of this gateway, if the supervisor does not know it yet. */
  async #readAll(kind: StatsKind): Promise<GroupSnapshot> {
    const { slot, read, readAll } = this.#options;
    const all = await readAll(kind);
    // Without the other processes each sum would fall, and rise again at the next read.
    if (all === undefined)
      throw new ProxyError('overloaded', 'gateway', SUPERVISOR_LATE, SUPERVISOR_RETRY_SECONDS);
    if (all.members.some((member) => member.slot === slot && member.reading[kind] !== undefined)) return all;
    const otherMembers = all.members.filter((member) => member.slot !== slot);
    return { ...all, members: [...otherMembers, { slot, reading: await read(kind) }] };
  }
}

interface StatsOptions {
  readonly live: LiveSettings;
  readonly metrics: GatewayMetrics;
  readonly accounting: Accounting;
  readonly bodies: BodyBudgetBuffer;
  readonly listeners: Listeners;
  readonly logs: Pick<GatewayLogs, 'dropped'>;
  readonly workers: UpstreamWorkers;
  readonly credentials: Pick<CredentialKeeper, 'statuses'>;
  readonly notifications: Pick<Notifications, 'webhookCounts' | 'groupQuotas' | 'sharedBalances'>;
  readonly state: GatewayState;
  /** The process group; undefined if this gateway is the only one on its data directory. */
  readonly group: GroupPosition | undefined;
  readonly supervisor: SupervisorLink;
}

export class Stats {
  readonly #options: StatsOptions;
  readonly #processGroup: ProcessGroupStats;
  readonly #startedMs = performance.now();

  constructor(options: StatsOptions) {
    this.#options = options;
    const { live, metrics, accounting, bodies, logs, notifications, state, group, supervisor } = options;
    const processGroup = (this.#processGroup = new ProcessGroupStats({
      slot: group?.slot ?? 0,
      read: (kind) => this.read(kind),
      // Without a group nobody is asked: the snapshot of this gateway, which is added, is all there is.
      readAll: (kind) => (group === undefined ? Promise.resolve(NO_SNAPSHOTS) : supervisor.readAll(kind)),
    }));
    metrics.connectParts({
      registry: accounting.registry,
      accounting: accounting.flush,
      bodies: {
        bytesInWork: () => bodyBytesInWork(bodies),
        bytesInWorkMax: () => bodiesInWorkBytesOf(live.settings),
      },
      spans: () => state.traces?.spanCounts,
      logRecords: () => state.traces?.logRecordCounts,
      droppedCalls: () => logs.dropped,
      webhooks: () => notifications.webhookCounts,
      credentials: () => this.#credentials(),
      cacheStoredBytes: () => accounting.cache.storedBytes,
      groupQuotas: notifications.groupQuotas,
      sharedBalances: notifications.sharedBalances,
      sharing: () => accounting.sharing.snapshot,
      readGroup: group && (() => processGroup.metrics()),
    });
  }

  /** Returns the snapshot of this gateway alone. */
  async read(kind: StatsKind): Promise<Snapshot> {
    const { metrics, accounting } = this.#options;
    if (kind === 'metrics') return { metrics: await metrics.read() };
    if (kind === 'accounts') return { accounts: [accounting.base.topAccounts.read()] };
    return { status: statusOf(this.#statusInputs(), metrics) };
  }

  /** The document of `GET /admin/v1/status`. */
  async status(): Promise<StatusDocument> {
    return this.#processGroup.status();
  }

  /** Which accounts are the busiest: one report for each process. */
  async accounts(): Promise<readonly AccountReport[]> {
    return this.#processGroup.accounts();
  }

  /** What `GET /metrics` returns. */
  page(format: MetricsFormat): Promise<MetricsPage> {
    return this.#options.metrics.render(format);
  }

  /**
   * Sends the last snapshot to the supervisor, which keeps its counters after this gateway has ended. Of
   * accounts it has also the span of the history that still runs. Resolves when the snapshot has left this
   * process, or after LAST_SNAPSHOT_WAIT_MS_MAX (supervisor-link.ts).
   */
  async reportLast(): Promise<void> {
    if (this.#options.group === undefined) return;
    const accounts = [this.#options.accounting.base.topAccounts.readLast()];
    await this.#options.supervisor.reportLast({
      ...(await this.read('metrics')),
      ...(await this.read('status')),
      accounts,
    });
  }

  #credentials(): CredentialStatus[] {
    return this.#options.credentials.statuses.map(({ name, ok, expiresMs, renewals, failures, error }) => ({
      name,
      ok,
      expires_at: expiresMs === undefined ? null : Math.floor(expiresMs / 1_000),
      renewals,
      failures,
      last_error: error ?? null,
    }));
  }

  #statusInputs(): StatusInputs {
    const { live, accounting, listeners, workers, state, group } = this.#options;
    return {
      slot: group?.slot ?? 0,
      ready: state.ready,
      uptimeSeconds: Math.floor((performance.now() - this.#startedMs) / 1_000),
      listeners: listeners.count,
      workers: workers.count,
      // The number of accounts: accounts are never deleted, so their indices have no gaps.
      accounts: accounting.base.store.freeAccountIndex(),
      modelIds: accounting.registry.catalog.models.map(({ id }) => id),
      settings: live.settings,
      flush: accounting.flush.state,
      credentials: this.#credentials(),
      sharing: accounting.sharing.snapshot,
    };
  }
}

/** What `statusOf` needs besides the metrics. */
interface StatusInputs {
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
function statusOf(inputs: StatusInputs, metrics: GatewayMetrics): ProcessStatus {
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
