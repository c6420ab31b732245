/**
 * The stats that operators read: `/metrics`, `GET /admin/v1/status`, the busiest accounts. `Stats.read` makes
 * the snapshot of this gateway (process-status.ts has the status). Under a supervisor process-group-stats.ts
 * adds up the snapshots of all gateways. gateway.ts owns one `Stats`, on the main thread of each gateway
 * process; admin-service.ts reads it. A _group_ is a process group, in `groupQuotas` one of accounts.
 *
 * Must hold: `read` never calls `page`, which calls `read` of all gateways. `reportLast` is called once, when
 * all threads have ended, because the supervisor adds these counters for good
 * (test/unit/supervisor/group-snapshots.test.ts). There is no unit test: see test/e2e/metrics.test.ts.
 */
import type { CredentialKeeper } from '../providers/credentials/credential-keeper.js';
import { bodyBytesInWork, type BodyBudgetBuffer } from '../request/body-budget.js';
import type { AccountReport } from '../telemetry/account-history.js';
import type { MetricsFormat, MetricsPage } from '../telemetry/exposition.js';
import type { CredentialStatus, StatusDocument } from '../telemetry/status-document.js';
import type { Accounting } from './accounting.js';
import type { GatewayLogs } from './gateway-logs.js';
import type { GatewayMetrics, Scrape } from './gateway-metrics.js';
import type { GatewayStateView } from './gateway-options.js';
import type { Listeners } from './listeners.js';
import { bodiesInWorkBytesOf } from './memory-limit.js';
import { type GroupPosition, NO_SNAPSHOTS, type Snapshot } from './messages.js';
import type { Notifications } from './notifications.js';
import { ProcessGroupStats, type StatsKind } from './process-group-stats.js';
import { type StatusInputs, statusOf } from './process-status.js';
import type { LiveSettings } from './reload.js';
import type { SupervisorLink } from './supervisor-link.js';
import type { UpstreamWorkers } from './upstream-workers.js';

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
  readonly state: GatewayStateView;
  /** The process group; undefined if this gateway is the only one on its data directory. */
  readonly group: GroupPosition | undefined;
  readonly supervisor: SupervisorLink;
}

export class Stats {
  readonly #options: StatsOptions;
  readonly #processGroup: ProcessGroupStats;
  readonly #scrape: Scrape;
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
    this.#scrape = metrics.scrapeOf({
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
    if (kind === 'metrics') return { metrics: await this.#scrape.read() };
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
    return this.#scrape.render(format);
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
      run: {
        process: group?.slot ?? 0,
        ready: state.ready,
        uptime_seconds: Math.floor((performance.now() - this.#startedMs) / 1_000),
        listeners: listeners.count,
        workers: workers.count,
        // Accounts are never deleted, so their indices have no gaps.
        accounts: accounting.base.store.freeAccountIndex(),
        credentials: this.#credentials(),
      },
      modelIds: accounting.registry.catalog.models.map(({ id }) => id),
      limits: live.settings.limits,
      flush: accounting.flush.state,
      sharing: accounting.sharing.snapshot,
    };
  }
}
