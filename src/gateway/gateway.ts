/**
 * A gateway: order of start, what runs, order of shutdown. Main thread of a gateway process.
 *
 *     start   store → shared buffers → recovery → code from strings off → workers → listeners → admin → ready
 *     drain   not ready → listeners drain → listeners end → workers end → journals drained, last flush → store closed
 */
import { setFlagsFromString } from 'node:v8';
import { SystemClock } from '../core/clock.js';
import { asCallSlot } from '../core/units.js';
import type { Settings } from '../config/schema.js';
import { removeGatewayFile, writeGatewayFile } from '../admin/gateway-file.js';
import { startAdmin, type AdminServer } from '../admin/server.js';
import { obtainAdminToken } from '../admin/token.js';
import { createJournalBuffer } from '../ledger/journal-layout.js';
import { JournalReader } from '../ledger/journal.js';
import { createLedgerBuffers } from '../ledger/layout.js';
import { Ledger } from '../ledger/ledger.js';
import { createCallTable } from '../pool/call-table.js';
import { KeyTable, createKeyTableBuffers } from '../registry/key-table.js';
import { Registry } from '../registry/registry.js';
import { LedgerFlush } from '../store/flush.js';
import { recover } from '../store/recovery.js';
import { SpentTotals } from '../store/spent-totals.js';
import { Store } from '../store/store.js';
import { UsageLines } from '../store/usage-lines.js';
import type { Log } from '../telemetry/log.js';
import { UsageLog } from '../telemetry/usage-log.js';
import { createMetrics, readMetrics, type MetricsBuffer } from '../telemetry/metrics.js';
import { Listeners, type ListenerShape } from './listeners.js';
import type { GatewayReady } from './messages.js';
import { findPort } from './port-probe.js';
import { CounterPool, UpstreamWorkers } from './pools.js';
import { catalogOf, routesOf } from './snapshot.js';

export interface GatewayOptions {
  readonly settings: Settings;
  /** Make a demo account in an empty store. */
  readonly demo: boolean;
  readonly log: Log;
  /** The gateway can't go on: its process must end, with its books flushed or not. */
  readonly onHopeless: (reason: string) => void;
}

function usageLogOf({ usage_log: usageLog }: Settings, log: Log): UsageLog | undefined {
  if (usageLog === undefined) return undefined;
  const { path, rotate_bytes: rotateBytes, keep } = usageLog;
  return new UsageLog({ path, rotateBytes, keep, log });
}

export class Gateway {
  readonly #settings: Settings;
  readonly #log: Log;
  readonly #store: Store;
  readonly #ledger: Ledger;
  readonly #flush: LedgerFlush;
  readonly #usageLog: UsageLog | undefined;
  readonly #registry: Registry;
  readonly #metrics: MetricsBuffer;
  readonly #counter: CounterPool;
  readonly #workers: UpstreamWorkers;
  readonly #listeners: Listeners;
  readonly #demo: boolean;
  /** Listeners whose answers wait for the disk. */
  readonly #commitAsked = new Set<number>();
  readonly #startedAtMs = performance.now();
  #admin: AdminServer | undefined;
  #flushTimer: NodeJS.Timeout | undefined;
  #ready = false;

  /** Opens the store and recovers the books; throws StoreFault where they are not to be trusted. Nothing serves yet. */
  constructor(options: GatewayOptions) {
    const { settings, log } = options;
    this.#settings = settings;
    this.#log = log;
    this.#demo = options.demo;
    const clock = new SystemClock();
    const catalog = catalogOf(settings);
    const { accounts: accountsMax, keys: keysMax, calls_in_flight: callsInFlightMax } = settings.limits;

    this.#store = new Store(settings.data);
    const ledgerBuffers = createLedgerBuffers({ accountsMax, callsInFlightMax });
    const keyBuffers = createKeyTableBuffers({ keysMax });
    const calls = createCallTable(callsInFlightMax, settings.limits.stream_buffer_bytes);
    this.#metrics = createMetrics(settings.listen.listeners);
    this.#ledger = new Ledger(ledgerBuffers, clock);
    const keyTable = new KeyTable(keyBuffers);
    const totals = new SpentTotals(accountsMax);
    recover({
      store: this.#store,
      ledger: this.#ledger,
      totals,
      keyTable,
      catalog,
      accountsMax,
      keysMax,
      clock,
      log,
    });
    const slotsPerListener = Math.floor(callsInFlightMax / settings.listen.listeners);
    const journals = Array.from({ length: settings.listen.listeners }, () =>
      createJournalBuffer(slotsPerListener),
    );
    this.#usageLog = usageLogOf(settings, log);
    this.#flush = new LedgerFlush({
      ledger: this.#ledger,
      journals: journals.map((journal) => new JournalReader(journal)),
      totals,
      store: this.#store,
      modelIds: catalog.models.map(({ id }) => id),
      refuseOnError: settings.on_store_error === 'refuse' || settings.durability === 'commit',
      usageLines: this.#usageLinesOf(this.#usageLog),
      clock,
      log,
    });
    const live = { ledger: this.#ledger, keyTable };
    this.#registry = new Registry({ store: this.#store, catalog, clock, accountsMax, keysMax, live });

    this.#counter = new CounterPool(log);
    this.#workers = new UpstreamWorkers({
      workers: settings.workers,
      routes: routesOf(settings),
      calls,
      counter: this.#counter,
      log,
      onStarted: (workerIndex) => this.#listeners.attachWorker(workerIndex),
      onLost: (workerIndex) => this.#listeners.detachWorker(workerIndex),
    });
    this.#listeners = new Listeners({
      shapes: Array.from({ length: settings.listen.listeners }, (_, index): ListenerShape => ({
        index,
        host: settings.listen.host,
        slots: { first: index * slotsPerListener, count: slotsPerListener },
        ledger: ledgerBuffers,
        journal: journals[index]!,
        keys: keyBuffers,
        calls,
        metrics: this.#metrics,
        catalog,
        limits: {
          bodyBytesMax: settings.limits.body_bytes,
          parseInlineBytesMax: settings.limits.parse_inline_bytes,
          clientIdleTimeoutMs: settings.limits.client_idle_timeout_ms,
        },
        accountCallsMax: settings.limits.calls_in_flight_per_account,
        lowBalance: settings.low_balance,
        durability: settings.durability,
      })),
      log,
      workerIndices: () => this.#workers.indices,
      connect: (workerIndex, listenerIndex) => this.#workers.connect(workerIndex, listenerIndex),
      serveParser: (port) => this.#counter.serveListener(port),
      onLost: ({ slots }) => {
        // What it has settled goes to the books before another goes on in its journal.
        this.#flush.drain();
        this.#releaseSlots(slots.first, slots.count);
      },
      onCommitAsked: (listenerIndex) => this.#commitSoon(listenerIndex),
      onJournalHalfFull: () => this.#flush.drain(),
      onHopeless: options.onHopeless,
    });
  }

  /** Starts threads and ports. Throws where a port can't be had; then `close` it. */
  async start(): Promise<GatewayReady> {
    const { settings } = this;
    const demo = this.#demo ? this.#registry.ensureDemo() : { accountId: undefined, key: undefined };
    const port = await findPort(settings.listen.host, settings.listen.port);

    // Every thread that faces the network runs without code from strings. Not this one: lmdb's `ordered-binary` needs it
    // when it is loaded, which it was above.
    setFlagsFromString('--disallow-code-generation-from-strings');
    this.#workers.start();
    await this.#listeners.start(port);
    this.#admin = await startAdmin({
      host: settings.admin.host,
      port: await findPort(settings.admin.host, settings.admin.port),
      token: obtainAdminToken(settings.data, process.env),
      registry: this.#registry,
      readiness: () => this.#ready,
      status: () => this.#status(),
      log: this.#log,
    });
    const adminPort = this.#admin.port;
    writeGatewayFile(settings.data, { pid: process.pid, adminHost: settings.admin.host, adminPort });
    this.#flushTimer = setInterval(() => this.#flush.run(), settings.flush_interval_ms);
    this.#ready = true;
    this.#log.info('gateway serves', { port, adminPort, pid: process.pid });
    return { kind: 'ready', port, adminPort, demoAccountId: demo.accountId, demoKey: demo.key };
  }

  get settings(): Settings {
    return this.#settings;
  }

  /** Lets calls in flight finish, for `drain_timeout_ms` at most, then closes. */
  async drain(): Promise<void> {
    this.#ready = false;
    this.#log.info('gateway drains', { callsInFlight: readMetrics(this.#metrics).callsInFlight });
    const drained = await this.#listeners.drain(this.#settings.drain_timeout_ms);
    if (!drained) {
      this.#log.error('calls were cut: they did not end within drain_timeout_ms, and were not billed', {
        callsInFlight: readMetrics(this.#metrics).callsInFlight,
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
    clearInterval(this.#flushTimer);
    const flushed = this.#flush.run();
    this.#usageLog?.close();
    this.#admin?.close();
    removeGatewayFile(this.#settings.data, process.pid);
    await this.#store.close();
    if (!flushed) {
      this.#log.error('charges were lost: the books could not be written before the end', {
        accounts: this.#flush.state.unflushedAccounts,
      });
    }
    this.#log.info('gateway ended', { flushed });
  }

  #usageLinesOf(usageLog: UsageLog | undefined): UsageLines | undefined {
    if (usageLog === undefined) return undefined;
    return new UsageLines({
      append: (lines) => usageLog.append(lines),
      accountIdOf: (account) => this.#store.findAccountId(account),
      requestIdOf: (journal, request) => this.#listeners.requestIdOf(journal, request),
    });
  }

  /** One commit for all listeners that ask in the same turn, and for all that ask while it is being made. */
  #commitSoon(listenerIndex: number): void {
    this.#commitAsked.add(listenerIndex);
    if (this.#commitAsked.size > 1) return;
    setImmediate(() => {
      const asked = [...this.#commitAsked];
      this.#commitAsked.clear();
      const ok = this.#flush.commit();
      for (const index of asked) this.#listeners.answerCommit(index, ok);
    });
  }

  #releaseSlots(first: number, count: number): void {
    const released = this.#ledger.releaseSlots(asCallSlot(first), count);
    if (released > 0)
      this.#log.error('calls were cut with their listener and not billed', { calls: released });
  }

  #status(): object {
    const metrics = readMetrics(this.#metrics);
    const store = this.#flush.state;
    return {
      pid: process.pid,
      ready: this.#ready,
      uptime_seconds: Math.floor((performance.now() - this.#startedAtMs) / 1_000),
      node: process.version,
      listeners: this.#listeners.count,
      workers: this.#workers.indices.length,
      calls_in_flight: metrics.callsInFlight,
      outcomes: metrics.outcomes,
      store: {
        ok: store.ok,
        last_error: store.lastError ?? null,
        unflushed_accounts: store.unflushedAccounts,
      },
      tokens: { prompt: metrics.promptTokens, completion: metrics.completionTokens },
    };
  }
}
