/**
 * A gateway: creates its parts, reloads them, and defines the order of shutdown; gateway-start.ts has that of
 * the start. main.ts creates a gateway, on the main thread of a gateway process.
 *
 *     drain   not ready → listeners drain → listeners end → workers end → other parts end → journals drained,
 *             last flush → store closed
 *
 * Must hold: the last flush comes after the listeners have ended, because they leave their last calls in the
 * journals. A charge that is left there after the last flush is lost (test/e2e/shutdown.test.ts).
 */
import { type Settings, settingsDeclaration } from '../config/schema.js';
import { secretsIn, type SettingInForce } from '../config/settings-in-force.js';
import { SystemClock } from '../core/clock.js';
import { LEFT_CALLS_MAX, WHOLE_RESPONSES_BYTES_MAX } from '../core/limits.js';
import { createUpstreamBuffers, UpstreamCounters } from '../ledger/upstream-counters.js';
import { noteOfReload } from '../admin/routes.js';
import { SIGNAL, WATCH } from '../registry/operator-change.js';
import { createBodyBudget } from '../request/body-budget.js';
import { CredentialKeeper } from '../providers/credentials/credential-keeper.js';
import { credentialsOf, secretsOfCredential } from '../providers/credentials/credential-spec.js';
import { createCallTable } from '../channel/call-table.js';
import { createCallRing } from '../telemetry/call-ring-layout.js';
import { createContentsBudget } from '../telemetry/contents-layout.js';
import type { Log } from '../telemetry/log.js';
import { AdminService } from './admin-service.js';
import { openAccounting, type Accounting } from './accounting.js';
import { listenerSettingsOf, workersInListeners } from './settings-records.js';
import { CounterPool } from './counter-pool.js';
import { Stats } from './stats.js';
import { GatewayLogs } from './gateway-logs.js';
import { GatewayMetrics } from './gateway-metrics.js';
import type { GatewayOptions, GatewayState } from './gateway-options.js';
import { flushEach, startGateway } from './gateway-start.js';
import { Listeners, RequestIds } from './listeners.js';
import {
  type Broadcast,
  type GatewayReady,
  NO_SNAPSHOTS,
  type RecordReload,
  type Snapshot,
  type SnapshotKind,
} from './messages.js';
import { Notifications } from './notifications.js';
import { type UpstreamUse, UpstreamWorkers } from './upstream-workers.js';
import { GATEWAY_STOPS, LiveSettings, type ReloadContext } from './reload.js';
import { createBudget } from '../upstream/worker-budget.js';
import { secretsOf } from '../upstream/target.js';

/** How long a reload waits for missing credentials. Calls without their credential get 502. */
const CREDENTIALS_RELOAD_WAIT_MS = 5_000;

export class Gateway {
  readonly #options: GatewayOptions;
  readonly #log: Log;
  readonly #state: GatewayState;
  readonly #metrics: GatewayMetrics;
  readonly #live: LiveSettings;
  readonly #accounting: Accounting;
  readonly #notifications: Notifications;
  readonly #logs: GatewayLogs;
  readonly #counter: CounterPool;
  readonly #credentials: CredentialKeeper;
  readonly #workers: UpstreamWorkers;
  readonly #listeners: Listeners;
  readonly #stats: Stats;
  readonly #admin: AdminService;
  /** Ends the waits of `drain`, which sets the function. Does nothing before. */
  #endDrain: () => void = () => undefined;
  /** Once it is not 'serving', a start opens nothing. */
  #stage: 'serving' | 'draining' | 'closing' = 'serving';
  /** The secrets of the settings, cached while `routes` is the same array. Each reload makes a new array. */
  #declared: { readonly routes: LiveSettings['routes']; readonly secrets: readonly string[] } | undefined;

  /** Recovers the accounting; throws what `openAccounting` throws. `start` starts the threads. */
  constructor(options: GatewayOptions) {
    const { settings, store, group, openHosts, inForce, supervisor, logSwitch, log, onHopeless } = options;
    const { calls_in_flight: callsInFlightMax, stream_buffer_bytes: streamBufferBytes } = settings.limits;
    this.#options = options;
    this.#log = log;
    const state = (this.#state = { ready: false, port: 0, inForce, traces: undefined });
    const requestIds = new RequestIds();
    const workersMax = settings.workers + workersInListeners(settings);
    // The own workers of listeners add nothing to these bounds if there are threads for workers.
    const budgetShares = settings.workers || settings.listen.listeners;
    const upstreamBuffers = createUpstreamBuffers(workersMax, group !== undefined);
    const upstreams: UpstreamUse = {
      buffers: upstreamBuffers,
      counters: new UpstreamCounters(upstreamBuffers, new SystemClock()),
    };
    const metrics = (this.#metrics = new GatewayMetrics(settings, logSwitch, upstreams.counters));
    const live = (this.#live = new LiveSettings(settings, metrics.upstreams));
    const accounting = (this.#accounting = openAccounting({
      settings,
      store,
      live,
      upstreams: upstreamBuffers,
      group,
      openHosts,
      requestPrefixOf: requestIds.prefixOf,
      readAll: async (kind, accounts) => (await supervisor.readAll(kind, accounts)) ?? NO_SNAPSHOTS,
      log,
    }));
    const notifications = (this.#notifications = new Notifications({ live, accounting, log }));
    const bodies = createBodyBudget(settings.listen.listeners, settings.limits.accounts);
    const calls = createCallTable(callsInFlightMax, streamBufferBytes);
    const callRings = accounting.base.buffers.journals.map(() => createCallRing());
    const contentsBudgets = callRings.map(() => createContentsBudget());
    const logs = (this.#logs = new GatewayLogs({
      settings,
      logSwitch,
      rings: callRings,
      contentsBudgets,
      names: {
        ids: accounting.base.idNames,
        modelIdOf: live.modelIdOf,
        groupNameOf: (index) => accounting.base.groupNames.nameOf(index),
        upstreamNameOf: (slot) => metrics.upstreams.known[slot]?.name,
        requestPrefixOf: requestIds.prefixOf,
      },
      secrets: () => this.#secrets(),
      upstreamErrors: metrics.upstreamErrors,
      clock: new SystemClock(),
      log,
    }));
    const counter = (this.#counter = new CounterPool({ metrics: metrics.buffers, log }));
    const credentials = (this.#credentials = new CredentialKeeper({
      specOf: (position) => live.credentials.specOf(position),
      send: (records) => this.#workers.sendCredentials(records),
      clock: new SystemClock(),
      log,
    }));
    const workers = (this.#workers = new UpstreamWorkers({
      workers: settings.workers,
      inListeners: workersInListeners(settings) > 0,
      routes: live.routes,
      calls,
      metrics,
      upstreams,
      responses: createBudget(workersMax, WHOLE_RESPONSES_BYTES_MAX * budgetShares),
      leftCalls: createBudget(workersMax, LEFT_CALLS_MAX * budgetShares),
      counter,
      credentials,
      serveLeases: accounting.sharing.serveLeases,
      state,
      log,
    }));
    const listeners = (this.#listeners = new Listeners({
      settings,
      listenerSettings: listenerSettingsOf(settings, live.catalog),
      accounting,
      workers,
      counter,
      calls,
      bodies,
      callRings,
      contentsBudgets,
      logs,
      requestIds,
      metrics,
      state,
      log,
      onHopeless,
    }));
    const stats = (this.#stats = new Stats({
      live,
      metrics,
      accounting,
      bodies,
      listeners,
      logs,
      workers,
      credentials,
      notifications,
      state,
      group,
      supervisor,
    }));
    this.#admin = new AdminService({
      settings,
      live,
      accounting,
      stats,
      logs,
      supervisor,
      carryOut: (message) => this.carryOut(message),
      state,
      log,
    });
  }

  /** Returns the texts to mask in stored contents of calls: the secrets that the gateway has now. */
  #secrets(): string[] {
    const { settings, routes } = this.#live;
    if (this.#declared?.routes !== routes) {
      const declared = secretsIn(settingsDeclaration, settings);
      this.#declared = {
        routes,
        secrets: [
          ...routes.flatMap(({ targets }) => targets.flatMap(secretsOf)),
          ...declared,
          // A webhook's secret is masked without its prefix too, because the remainder is the key itself.
          ...declared.map((secret) => secret.replace(/^whsec_/, '')),
        ],
      };
    }
    const renewed = this.#credentials.current.flatMap(({ credential }) =>
      credential === undefined ? [] : secretsOfCredential(credential),
    );
    return [this.#admin.token, process.env.AZURE_CLIENT_SECRET ?? '', ...this.#declared.secrets, ...renewed];
  }

  /** Starts the threads and opens the ports. If it rejects, as for a port that is taken, call `close`. */
  start(): Promise<GatewayReady> {
    return startGateway({
      options: this.#options,
      state: this.#state,
      live: this.#live,
      metrics: this.#metrics,
      accounting: this.#accounting,
      notifications: this.#notifications,
      logs: this.#logs,
      credentials: this.#credentials,
      workers: this.#workers,
      listeners: this.#listeners,
      admin: this.#admin,
      isEnding: () => this.#stage !== 'serving',
    });
  }

  /** Opens the admin interface, then sends webhooks. Resolves with false after `follow` or `close`. */
  async lead(): Promise<boolean> {
    const leads = await this.#admin.lead();
    if (leads && this.#stage !== 'closing') this.#notifications.lead();
    return leads;
  }

  /** To be called when another gateway has the admin interface. Stops what `lead` began. */
  follow(): void {
    this.#admin.follow();
    this.#notifications.follow();
  }

  /**
   * Resolves with this gateway's snapshot of that kind. For `changes` it first applies the registry's
   * changes, for `books` it flushes (GROUP_REQUESTS in messages.ts). `accounts` are ids, for `calls` alone.
   */
  async read(kind: SnapshotKind, accounts: readonly string[] = []): Promise<Snapshot> {
    if (kind === 'changes') return { changes: this.#accounting.sharing.followChanges() };
    if (kind === 'books') return { books: this.#accounting.flush.run() };
    if (kind === 'calls') return { calls: this.#accounting.sharing.callsUses(accounts) };
    return this.#stats.read(kind);
  }

  get settings(): Settings {
    return this.#live.settings;
  }

  /** Does at this gateway what an operator, of this one or another of the group, wants of all. */
  async carryOut(message: Broadcast): Promise<void> {
    switch (message.kind) {
      case 'log':
        this.#logs.changeSwitch(message.change);
        return;
      case 'reset_upstreams':
        this.#workers.resetUpstreams(message.model);
        return;
      case 'clear_cache':
        // All three caches are cleared in this event-loop turn, so no question of a listener is answered in
        // between. A response that was sent before is served, but the listener does not keep it
        // (ResponseCache).
        this.#listeners.clearCache(message.model);
        await this.#accounting.cache.clear(message.model);
    }
  }

  /** Records a reload that no operator of the interface asked for. Never rejects. */
  async recordReload({ by, ...outcome }: RecordReload): Promise<void> {
    const cause = { actor: by === 'signal' ? SIGNAL : WATCH, action: 'settings.reload' };
    try {
      await this.#accounting.service.change(cause, (registry) => registry.record(noteOfReload(outcome)));
    } catch (error) {
      this.#log.error('a reload could not be recorded', { by, error: String(error) });
    }
  }

  /** Replaces the settings that operators are shown, after a reload. */
  showInForce(inForce: readonly SettingInForce[]): void {
    this.#state.inForce = inForce;
  }

  /**
   * Applies `next` without dropping a call, or with `check` only checks it. Resolves with the problems of
   * `next`; with any, the former settings stay. The supervisor has made sure that no setting which needs a
   * restart differs. Reloads are applied one after the other.
   */
  async reload(next: Settings, check: boolean): Promise<string[]> {
    const isClosing = (): boolean => this.#stage === 'closing';
    if (isClosing()) return [GATEWAY_STOPS];
    const { base, registry } = this.#accounting;
    const context: ReloadContext = {
      ledger: base.ledger,
      groupNames: base.groupNames,
      store: base.store,
      registry,
      replaceRoutes: async (routes) => {
        await this.#credentials.ensure(credentialsOf(routes), CREDENTIALS_RELOAD_WAIT_MS);
        return isClosing() ? [] : this.#workers.replaceRoutes(routes);
      },
      replaceListenerSettings: (settings) => this.#listeners.replaceSettings(settings),
      isClosing,
      log: this.#log,
    };
    if (check) return this.#live.problemsOf(next, context);
    let problems: string[];
    try {
      problems = await this.#live.replace(next, context);
    } catch (error) {
      // The store may have been closed under the reload.
      if (isClosing()) return [GATEWAY_STOPS];
      throw error;
    }
    if (isClosing()) return [GATEWAY_STOPS];
    this.#credentials.retain(credentialsOf(this.#live.routes));
    this.#accounting.cache.applySettings(this.#live.catalog, this.settings.cache.bytes);
    if (this.#state.ready) flushEach(this.settings.flush_interval_ms, this.#accounting, this.#notifications);
    if (problems.length === 0) this.#logs.applySettings(this.settings);
    return problems;
  }

  /**
   * Lets calls in flight finish, for `drain_timeout_ms` at most, then closes. With `replaced` (another
   * gateway serves) idle connections have that time for a last request, whose call then has the same time
   * again. `hurry` ends both waits. Returns what `close` does.
   */
  async drain(replaced: boolean): Promise<boolean> {
    this.#stage = 'draining';
    this.#state.ready = false;
    this.#log.info('gateway drains', { callsInFlight: this.#metrics.reader.callsInFlight() });
    const timeoutMs = this.settings.drain_timeout_ms;
    const drainEnd = new Promise<boolean>((resolve) => (this.#endDrain = () => resolve(false)));
    const drained = await Promise.race([this.#listeners.drain(timeoutMs, replaced), drainEnd]);
    if (!drained && replaced) await Promise.race([this.#listeners.drainLate(timeoutMs), drainEnd]);
    const callsInFlight = this.#metrics.reader.callsInFlight();
    // With `replaced`, idle connections alone may have made `drained` false.
    if (!drained && (callsInFlight > 0 || !replaced))
      this.#log.error('calls were cut: they did not end within drain_timeout_ms; what they had is billed', {
        callsInFlight,
      });
    return await this.close();
  }

  /**
   * If the supervisor stops while `drain` waits: it kills this process after the `drain_timeout_ms` of the
   * last reload and a grace. Longer calls are cut here, and billed.
   */
  hurry(): void {
    setTimeout(() => this.#endDrain(), this.settings.drain_timeout_ms);
  }

  /**
   * Cuts the remaining calls, flushes and closes the store. Called once, by `drain` or by main.ts. Returns
   * false if the last flush failed, so that charges were lost.
   */
  async close(): Promise<boolean> {
    this.#stage = 'closing';
    this.#state.ready = false;
    try {
      await this.#closeParts();
    } catch (error) {
      // A part that fails must not cost the last flush.
      this.#log.error('a part of the gateway failed while it closed', { error: String(error) });
    }
    const flushed = await this.#accounting.close();
    this.#log.info('gateway ended', { flushed });
    return flushed;
  }

  /** Closes all parts but the accounting, in the header's order. */
  async #closeParts(): Promise<void> {
    await this.#listeners.close();
    this.#credentials.close();
    await this.#workers.close();
    await this.#counter.close();
    // The logs are closed before the traces: calls that the logs drain at their end are exported too.
    this.#logs.close();
    await this.#state.traces?.close();
    // No webhook is sent from now on, and the last report does not read groups' quotas and shared balances.
    this.#notifications.follow();
    await this.#stats.reportLast();
    this.#metrics.close();
    this.#admin.close();
  }
}
