/**
 * A gateway: order of start, what runs, order of shutdown. Main thread of a gateway process.
 *
 *     start   store → shared buffers → recovery → code from strings off → workers → listeners → admin → ready
 *     drain   not ready → listeners drain → listeners end → workers end → journals drained, last flush → store closed
 */
import { setFlagsFromString } from 'node:v8';
import { SystemClock } from '../core/clock.js';
import type { Settings } from '../config/schema.js';
import type { SettingInForce } from '../config/settings-in-force.js';
import { obtainAdminToken } from '../admin/token.js';
import { bodyBytesInWork, createBodyBudget } from '../request/body-budget.js';
import { createCallTable } from '../channel/call-table.js';
import { createAccessRing } from '../telemetry/access-ring.js';
import type { Log, LogChange, LogView } from '../telemetry/log.js';
import { AdminService, findPort, publicAddressOf } from './admin-service.js';
import { Accounting } from './accounting.js';
import { bodiesInWorkBytesOf, listenerSettingsOf } from './snapshot.js';
import { CounterPool } from './counter-pool.js';
import { Stats } from './stats.js';
import { GatewayLogs } from './gateway-logs.js';
import { GatewayMetrics } from './gateway-metrics.js';
import type { GatewayOptions } from './gateway-options.js';
import { Listeners, type ListenerShape } from './listeners.js';
import type { GatewayReady } from './messages.js';
import { UpstreamWorkers } from './pools.js';
import type { Snapshot, SnapshotKind } from './snapshots.js';
import { LiveSettings, type ReloadContext } from './reload.js';
import type { StatusFacts } from './status.js';
import { tracesOf, type Traces } from './traces.js';

export class Gateway {
  readonly #live: LiveSettings;
  readonly #log: Log;
  readonly #accounting: Accounting;
  readonly #logs: GatewayLogs;
  readonly #metrics: GatewayMetrics;
  readonly #counter: CounterPool;
  readonly #workers: UpstreamWorkers;
  readonly #listeners: Listeners;
  readonly #options: GatewayOptions;
  readonly #admin: AdminService;
  readonly #stats: Stats;
  readonly #startedAtMs = performance.now();
  #inForce: readonly SettingInForce[];
  #port = 0;
  #traces: Traces | undefined;
  #ready = false;

  /**
   * Opens the store and recovers the books; throws StoreFault where they are not to be trusted, StoreHeld where another
   * process works on them. Nothing serves yet.
   */
  constructor(options: GatewayOptions) {
    const { settings, log } = options;
    this.#metrics = new GatewayMetrics(settings, options.logSwitch);
    this.#live = new LiveSettings(settings, this.#metrics.upstreams);
    this.#log = log;
    this.#inForce = options.inForce;
    this.#options = options;
    const { group, supervisor } = options;
    this.#accounting = new Accounting({
      openHosts: options.openHosts,
      settings,
      live: this.#live,
      group,
      requestIdOf: (listener, request) => this.#listeners.requestIdOf(listener, request),
      onCommit: (listenerIndex, ok) => this.#listeners.answerCommit(listenerIndex, ok),
      readAll: (what, accounts) => supervisor.readings(what, accounts),
      log,
    });
    const { buffers, locks: claims, flush, idNames, registry, slotsPerListener, tally } = this.#accounting;
    const bodies = createBodyBudget(settings.listen.listeners, settings.limits.accounts);
    this.#stats = new Stats({
      metrics: this.#metrics,
      scopes: {
        registry,
        accounting: flush,
        bodies: {
          bytesInWork: () => bodyBytesInWork(bodies),
          bytesInWorkMax: () => bodiesInWorkBytesOf(this.settings),
        },
        spans: () => this.#traces?.counts(),
        sharing: () => this.#accounting.sharing,
      },
      tally,
      facts: () => this.#facts(),
      group,
      supervisor,
    });
    this.#admin = new AdminService({
      place: settings,
      token: obtainAdminToken(settings.data, process.env),
      registry,
      service: this.#accounting.service,
      flushBooks: () => this.#accounting.errands.flushAll(),
      readiness: () => this.#ready,
      status: () => this.#stats.status(),
      reload: (request) => supervisor.reload(request),
      changeLog: (change) => this.#changeLog(change),
      resetUpstreams: (model) => this.#resetUpstreams(model),
      settings: () => this.#inForce,
      hosts: this.#accounting.hosts,
      accounts: () => this.#stats.accounts(),
      history: this.#accounting.store.history,
      publicAddress: () => publicAddressOf(settings, this.#port),
      metrics: (format) => this.#stats.page(format),
      clock: new SystemClock(),
      log,
    });

    const accessRings = buffers.journals.map(() => createAccessRing());
    this.#logs = new GatewayLogs({
      settings,
      control: options.logSwitch,
      rings: accessRings,
      names: {
        ids: idNames,
        modelIdOf: (index) => this.#live.catalog.models[index]!.id,
        upstreamNameOf: (slot) => this.#metrics.upstreams.known[slot]?.name,
        requestIdOf: (listener, request) => this.#listeners.requestIdOf(listener, request),
      },
      log,
    });

    const { calls_in_flight: callsInFlightMax, stream_buffer_bytes: streamBufferBytes } = settings.limits;
    const calls = createCallTable(callsInFlightMax, streamBufferBytes);
    this.#counter = new CounterPool({ metrics: this.#metrics.buffers, log });
    this.#workers = new UpstreamWorkers({
      workers: settings.workers,
      routes: this.#live.routes,
      calls,
      metrics: this.#metrics.buffers,
      firstThread: this.#metrics.firstWorkerThread,
      counter: this.#counter,
      newSpanOutlet: () => this.#traces?.newOutlet(),
      log,
      onStarted: (workerIndex) => this.#listeners.attachWorker(workerIndex),
      onLost: (workerIndex) => this.#listeners.detachWorker(workerIndex),
    });
    this.#listeners = new Listeners({
      shapes: Array.from({ length: settings.listen.listeners }, (_, index): ListenerShape => ({
        index,
        host: settings.listen.host,
        slots: { first: index * slotsPerListener, count: slotsPerListener },
        ledger: buffers.ledger,
        journal: buffers.journals[index]!,
        accessLog: accessRings[index]!,
        keys: buffers.keys,
        calls,
        bodies,
        metrics: this.#metrics.buffers,
        thread: this.#metrics.threadOfListener(index),
        storedResponseBytesMax: settings.idempotency.answer_bytes,
      })),
      settings: listenerSettingsOf(settings, this.#live.catalog),
      log,
      workerIndices: () => this.#workers.indices,
      connect: (workerIndex, listenerIndex) => this.#workers.connect(workerIndex, listenerIndex),
      serveParser: (port) => this.#counter.serve(port),
      newTracing: () => this.#traces?.newListenerTracing(),
      serveClaims: (listenerIndex, port) => claims.attach(listenerIndex, port),
      serveLeases: this.#accounting.serveLeases,
      onLost: ({ index }) => {
        this.#logs.drain();
        this.#accounting.releaseListener(index);
      },
      onCommitAsked: (listenerIndex) => this.#accounting.commits.ask(listenerIndex),
      onJournalHalfFull: () => flush.drain(),
      onHopeless: options.onHopeless,
    });
  }

  /** Starts threads and ports. Throws where a port can't be had; then `close` it. */
  async start(): Promise<GatewayReady> {
    const { settings } = this;
    await this.#accounting.start();
    const { leads, joins } = this.#options;
    const demo = this.#options.demo
      ? await this.#accounting.service.change((registry) => registry.ensureDemo())
      : { accountId: undefined, key: undefined };
    const { host, port: wantedPort } = settings.listen;
    const port = joins ? wantedPort : await findPort(host, wantedPort, 'listen');
    this.#port = port;

    // Every thread that faces the network runs without code from strings. Not this one: lmdb's `ordered-binary` needs it
    // when it is loaded, which it was above.
    setFlagsFromString('--disallow-code-generation-from-strings');
    this.#traces = tracesOf(process.env, {
      accountIdOf: (account) => this.#accounting.idNames.accountIdOf(account),
      metrics: this.#metrics.buffers,
      thread: this.#metrics.tracesThread,
      log: this.#log,
    });
    this.#workers.start();
    await this.#listeners.start(port);
    const adminPort = leads ? await this.#admin.open(!joins) : settings.admin.port;
    this.#accounting.flushEach(settings.flush_interval_ms);
    this.#ready = true;
    // µWS has no newer parser for it.
    if (leads && process.versions.node.startsWith('20.'))
      this.#log.warn('Node 20 is for development: headers such as session_id hang; use Node 22 or 24', {
        node: process.version,
      });
    this.#log.info('gateway serves', { port, adminPort });
    return { kind: 'ready', port, adminPort, demoAccountId: demo.accountId, demoKey: demo.key };
  }

  /** Has the admin interface from now on; false where it ended before it could. */
  lead(): Promise<boolean> {
    return this.#admin.lead();
  }

  /** Another has the admin interface. */
  follow(): void {
    this.#admin.follow();
  }

  /** The figures of this gateway; or what it was asked to do is done. */
  async read(what: SnapshotKind, accounts: readonly string[] = []): Promise<Snapshot> {
    if (what === 'changes') return { changes: this.#accounting.followChanges() };
    if (what === 'books') return { books: this.#accounting.flush.run() };
    if (what === 'calls') return { calls: this.#accounting.callsUses(accounts) };
    return this.#stats.read(what);
  }

  get settings(): Settings {
    return this.#live.settings;
  }

  /** An operator has changed what is logged, here or at another gateway of the group. */
  changeLog(change: LogChange): LogView {
    return this.#logs.change(change);
  }

  /** An operator says that upstreams of that model, or all, are well. */
  resetUpstreams(model: string | undefined): void {
    this.#workers.resetUpstreams(model);
  }

  showInForce(inForce: readonly SettingInForce[]): void {
    this.#inForce = inForce;
  }

  /**
   * Serves by `next` from now on, with no call dropped; with `check` changes nothing. Resolves with what speaks against it,
   * and then the old settings stay. What needs a restart must be as it is. One at a time.
   */
  async reload(next: Settings, check: boolean): Promise<string[]> {
    const parts: ReloadContext = {
      ledger: this.#accounting.ledger,
      registry: this.#accounting.registry,
      store: this.#accounting.store,
      replaceRoutes: (routes) => this.#workers.replaceRoutes(routes),
      replaceListenerSettings: (settings) => this.#listeners.replaceSettings(settings),
      log: this.#log,
    };
    if (check) return this.#live.problemsOf(next, parts);
    const errors = await this.#live.replace(next, parts);
    if (this.#ready) this.#accounting.flushEach(this.settings.flush_interval_ms);
    this.#logs.apply(this.settings);
    return errors;
  }

  /**
   * Lets calls in flight finish, for `drain_timeout_ms` at most, then closes. With `replaced` connections at rest have that
   * time too, to come back with a last request, which has the same time from its own begin: another serves, so nobody waits.
   */
  async drain(replaced: boolean): Promise<void> {
    this.#ready = false;
    this.#log.info('gateway drains', { callsInFlight: this.#metrics.reader.callsInFlight() });
    const timeoutMs = this.settings.drain_timeout_ms;
    const drained = await this.#listeners.drain(timeoutMs, replaced);
    if (!drained && replaced) await this.#listeners.drainLate(timeoutMs);
    const callsInFlight = this.#metrics.reader.callsInFlight();
    // What is left may be connections that wait for nothing.
    if (!drained && (callsInFlight > 0 || !replaced)) {
      this.#log.error('calls were cut: they did not end within drain_timeout_ms; what they had is billed', {
        callsInFlight,
      });
    }
    await this.close();
  }

  /** Cuts what is left, writes the books and closes them. */
  async close(): Promise<void> {
    this.#ready = false;
    await this.#listeners.close();
    await this.#workers.close();
    await this.#counter.close();
    await this.#traces?.close();
    this.#logs.close();
    await this.#stats.tellLast();
    this.#metrics.close();
    this.#admin.close();
    const flushed = await this.#accounting.close();
    this.#log.info('gateway ended', { flushed });
  }

  #changeLog(change: LogChange): LogView {
    const view = this.changeLog(change);
    if (Object.keys(change).length > 0) {
      this.#options.supervisor.tellLog(change);
      this.#log.info('an operator changed what is logged, until the next reload', { ...view });
    }
    return view;
  }

  #resetUpstreams(model: string | undefined): Promise<void> {
    this.resetUpstreams(model);
    this.#log.info('an operator had upstreams called again at once', { model: model ?? 'all' });
    return this.#options.supervisor.resetUpstreams(model);
  }

  #facts(): Omit<StatusFacts, 'slot'> {
    return {
      ready: this.#ready,
      uptimeSeconds: Math.floor((performance.now() - this.#startedAtMs) / 1_000),
      listeners: this.#listeners.count,
      workers: this.#workers.indices.length,
      accounts: this.#accounting.store.freeAccountIndex(),
      modelIds: this.#accounting.registry.catalog.models.map(({ id }) => id),
      settings: this.settings,
      accounting: this.#accounting.flush.state,
      sharing: this.#accounting.sharing,
    };
  }
}
