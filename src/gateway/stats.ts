/**
 * The stats of a gateway (`Stats`), and the sum over all gateways of the supervisor, which operators see
 * (`GroupView`). gateway.ts owns them, on the main thread of a gateway process; AdminService reads them.
 *
 * Must hold: `reportLast` is called once, when all threads have ended, because the supervisor adds these last
 * counters for good. Tests: test/unit/supervisor/group-snapshots.test.ts, test/e2e/metrics.test.ts.
 */
import type { FamilySamples, MetricsFormat, MetricsPage } from '../telemetry/exposition.js';
import type { CredentialKeeper } from '../providers/credentials/credential-keeper.js';
import { mergeFamily } from '../telemetry/metrics-snapshot.js';
import type { CredentialStatus, StatusDocument } from '../telemetry/status-document.js';
import type { AccountReport } from '../telemetry/top-accounts.js';
import { bodyBytesInWork, type BodyBudgetBuffer } from '../request/body-budget.js';
import type { Accounting } from './accounting.js';
import type { GatewayLogs } from './gateway-logs.js';
import type { GatewayMetrics } from './gateway-metrics.js';
import type { GatewayState } from './gateway-options.js';
import { statusDocument } from './group-status.js';
import type { Listeners } from './listeners.js';
import type { GroupPosition, GroupSnapshot, Snapshot, SnapshotKind } from './messages.js';
import type { UpstreamWorkers } from './pools.js';
import type { Notifications } from './notifications.js';
import type { LiveSettings } from './reload.js';
import { bodiesInWorkBytesOf } from './memory-limit.js';
import { type StatusFacts, statusOf } from './status.js';
import type { SupervisorLink } from './supervisor-link.js';

export interface GroupViewOptions {
  /** The number of this gateway in its process group, from 0. */
  readonly slot: number;
  /** Reads this gateway alone. */
  readonly read: (what: SnapshotKind) => Promise<Snapshot>;
  /** Asks all gateways, through the supervisor. */
  readonly readAll: (what: SnapshotKind) => Promise<GroupSnapshot>;
}

/** The sum over all gateways of the supervisor. */
export class GroupView {
  readonly #options: GroupViewOptions;

  constructor(options: GroupViewOptions) {
    this.#options = options;
  }

  async metrics(): Promise<FamilySamples> {
    const { slot } = this.#options;
    const { members, ended } = await this.#readAll('metrics');
    const snapshots = members.flatMap(({ slot: member, reading: { metrics } }) =>
      metrics === undefined ? [] : [{ slot: member, own: member === slot, families: metrics }],
    );
    return (family) => mergeFamily(family, snapshots, ended.metrics ?? []);
  }

  /** The status document: what runs in all gateways, and the sums of their counts. */
  async status(): Promise<StatusDocument> {
    const { slot } = this.#options;
    const { members, ended } = await this.#readAll('status');
    const statuses = members.flatMap(({ reading: { status } }) => (status === undefined ? [] : [status]));
    const own = statuses.find((status) => status.process === slot);
    return statusDocument(own ?? statuses[0]!, statuses, ended.status);
  }

  /** One report for each process, also for those that have just ended. */
  async accounts(): Promise<readonly AccountReport[]> {
    const { members, ended } = await this.#readAll('accounts');
    return [...members.map(({ reading: snapshot }) => snapshot), ended].flatMap(
      ({ accounts = [] }) => accounts,
    );
  }

  /**
   * If the supervisor does not reply, or does not know this gateway yet, adds the snapshot of this gateway.
   */
  async #readAll(what: SnapshotKind): Promise<GroupSnapshot> {
    const { slot, read, readAll } = this.#options;
    const all = await readAll(what);
    if (all.members.some((member) => member.slot === slot && member.reading[what] !== undefined)) return all;
    const others = all.members.filter((member) => member.slot !== slot);
    return { ...all, members: [...others, { slot, reading: await read(what) }] };
  }
}

export interface StatsOptions {
  readonly live: LiveSettings;
  readonly metrics: GatewayMetrics;
  readonly accounting: Accounting;
  readonly bodies: BodyBudgetBuffer;
  readonly listeners: Listeners;
  readonly logs: Pick<GatewayLogs, 'dropped'>;
  readonly workers: UpstreamWorkers;
  readonly credentials: Pick<CredentialKeeper, 'statuses'>;
  readonly notifications: Pick<Notifications, 'counts' | 'groupQuotas'>;
  readonly state: GatewayState;
  /** Undefined if this gateway is the only one on its data directory. */
  readonly group: GroupPosition | undefined;
  readonly supervisor: SupervisorLink;
}

export class Stats {
  readonly #options: StatsOptions;
  readonly #group: GroupView | undefined;
  readonly #startedAtMs = performance.now();

  constructor(options: StatsOptions) {
    this.#options = options;
    const { live, metrics, accounting, bodies, logs, notifications, state, group, supervisor } = options;
    const view =
      group &&
      new GroupView({
        slot: group.slot,
        read: (what) => this.read(what),
        readAll: (what) => supervisor.readings(what),
      });
    this.#group = view;
    metrics.attach({
      registry: accounting.registry,
      accounting: accounting.flush,
      bodies: {
        bytesInWork: () => bodyBytesInWork(bodies),
        bytesInWorkMax: () => bodiesInWorkBytesOf(live.settings),
      },
      spans: () => state.traces?.spanCounts,
      logRecords: () => state.traces?.logRecordCounts,
      droppedCalls: () => logs.dropped,
      webhooks: () => notifications.counts,
      credentials: () => this.#credentials(),
      cacheStoredBytes: () => accounting.cache.storedBytes,
      groupQuotas: notifications.groupQuotas,
      sharing: () => accounting.sharing.snapshot,
      readGroup: view && (() => view.metrics()),
    });
  }

  /** The snapshot of this gateway alone. */
  async read(what: SnapshotKind): Promise<Snapshot> {
    const { metrics, accounting } = this.#options;
    if (what === 'metrics') return { metrics: await metrics.read() };
    if (what === 'accounts') return { accounts: [accounting.base.topAccounts.read()] };
    return { status: statusOf(this.#facts(), metrics) };
  }

  /** The document of `GET /admin/v1/status`. */
  async status(): Promise<StatusDocument> {
    if (this.#group !== undefined) return this.#group.status();
    const { status } = await this.read('status');
    return statusDocument(status!, [status!], undefined);
  }

  /** The busiest accounts, one report for each process. */
  async accounts(): Promise<readonly AccountReport[]> {
    return this.#group === undefined
      ? [this.#options.accounting.base.topAccounts.read()]
      : this.#group.accounts();
  }

  page(format: MetricsFormat): Promise<MetricsPage> {
    return this.#options.metrics.render(format);
  }

  /** Sends the last snapshot to the supervisor, which keeps its counters after this gateway has ended. */
  async reportLast(): Promise<void> {
    if (this.#group === undefined) return;
    const accounts = [this.#options.accounting.base.topAccounts.readLast()];
    this.#options.supervisor.reportLast({
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

  #facts(): StatusFacts {
    const { live, accounting, listeners, workers, state, group } = this.#options;
    return {
      slot: group?.slot ?? 0,
      ready: state.ready,
      uptimeSeconds: Math.floor((performance.now() - this.#startedAtMs) / 1_000),
      listeners: listeners.count,
      workers: workers.count,
      accounts: accounting.base.store.freeAccountIndex(),
      modelIds: accounting.registry.catalog.models.map(({ id }) => id),
      settings: live.settings,
      accounting: accounting.flush.state,
      credentials: this.#credentials(),
      sharing: accounting.sharing.snapshot,
    };
  }
}
