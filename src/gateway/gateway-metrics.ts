/**
 * The metrics of one gateway process. Its other parts count in the buffers that GatewayMetrics creates, and
 * a scrape of `/metrics` reads them. gateway.ts and stats.ts use it, on the main thread.
 *
 * Must hold: each thread has a stripe of its own, because two writers would lose counts. A damaged row costs
 * samples of accounts, and not the page. Further test: test/e2e/metrics.test.ts.
 */
import type { Settings } from '../config/schema.js';
import { packageVersion } from '../core/version.js';
import type { UpstreamCounters } from '../ledger/upstream-counters.js';
import type { Registry } from '../registry/registry.js';
import type { LedgerFlush } from '../store/flush.js';
import {
  Exposition,
  readMetrics,
  type FamilySamples,
  type MetricsFormat,
  type MetricsPage,
} from '../telemetry/exposition.js';
import type { LogSwitchBuffer } from '../telemetry/log-switch.js';
import { createMetrics, MAIN_THREAD, threadNames, type MetricsBuffers } from '../telemetry/metrics-layout.js';
import { MetricsReader } from '../telemetry/metrics-reader.js';
import type { MetricsSnapshot } from '../telemetry/metrics-snapshot.js';
import type { AccountSample, MetricsSource } from '../telemetry/metrics-source.js';
import { ThreadHealth } from '../telemetry/thread-health.js';
import { UpstreamNames } from '../telemetry/upstream-names.js';
import { UpstreamErrors } from '../telemetry/upstream-errors.js';
import {
  ACCOUNT_LABELS_MAX,
  type Balances,
  type GroupQuotas,
  type SharedBalances,
} from './primary-metrics.js';
import { workersInListeners } from './settings-records.js';

/** What a scrape of `/metrics` reads from other objects of the gateway. */
export interface ScrapedParts extends Pick<
  MetricsSource,
  | 'bodies'
  | 'spans'
  | 'logRecords'
  | 'droppedCalls'
  | 'webhooks'
  | 'credentials'
  | 'cacheStoredBytes'
  | 'sharing'
> {
  readonly registry: Registry;
  readonly accounting: Pick<LedgerFlush, 'state' | 'load'>;
  readonly groupQuotas: Pick<GroupQuotas, 'refresh' | 'value'>;
  /** Undefined if no other process uses the accounts: the registry then has their balances. */
  readonly sharedBalances: Pick<SharedBalances, 'refresh' | 'value'> | undefined;
  /** Reads the samples of all gateways of the process group; undefined if this one is alone. */
  readonly readGroup: (() => Promise<FamilySamples>) | undefined;
}

/** Both first refresh what CachedValue has. */
export interface Scrape {
  /** Returns the samples of this process. */
  read(): Promise<MetricsSnapshot>;
  /** Returns the page of `/metrics`: of all gateways, if this one is in a process group. */
  render(format: MetricsFormat): Promise<MetricsPage>;
}

export class GatewayMetrics {
  readonly buffers: MetricsBuffers;
  readonly reader: MetricsReader;
  /** The names of upstreams in labels, and their slots. */
  readonly upstreams = new UpstreamNames();
  /** Gets ended calls from gateway-logs.ts. */
  readonly upstreamErrors = new UpstreamErrors();
  /** The names of threads, in the order of the stripes. */
  readonly threads: readonly string[];
  readonly #settings: Settings;
  /** Measures the main thread. */
  readonly #health: ThreadHealth;
  /** Returns what is used of an upstream's limits. */
  readonly upstreamUse: MetricsSource['upstreamUse'];

  constructor(settings: Settings, log: LogSwitchBuffer, counters: Pick<UpstreamCounters, 'useOf'>) {
    this.#settings = settings;
    this.upstreamUse = ({ index, limits }) => counters.useOf(index, limits);
    const { listeners } = settings.listen;
    this.buffers = createMetrics(listeners, settings.workers, workersInListeners(settings), log);
    this.reader = new MetricsReader(this.buffers);
    this.threads = threadNames(listeners, settings.workers);
    this.#health = new ThreadHealth(this.buffers, MAIN_THREAD);
  }

  /** The stripe of a listener: its position in `threadNames` (metrics-layout.ts). */
  threadOfListener(index: number): number {
    return 1 + index;
  }

  /** The stripe of the first upstream worker. The others follow in the order of their indices. */
  get firstWorkerThread(): number {
    return 1 + this.#settings.listen.listeners;
  }

  /** The stripe of the thread that exports spans. */
  get tracesThread(): number {
    return this.firstWorkerThread + this.#settings.workers;
  }

  close(): void {
    this.#health.stop();
  }

  /** Returns what reads the metrics. Called once, when the other objects of the gateway have been created. */
  scrapeOf({
    registry,
    accounting,
    groupQuotas,
    sharedBalances,
    readGroup,
    ...passed
  }: ScrapedParts): Scrape {
    const source: MetricsSource = {
      ...passed,
      version: packageVersion(),
      reader: this.reader,
      models: () => registry.catalog.models,
      knownUpstreams: () => this.upstreams.known,
      upstreams: () => this.upstreams.current,
      upstreamUse: this.upstreamUse,
      threads: this.threads,
      callsInFlightMax: this.#settings.limits.calls_in_flight,
      flush: () => accounting.load.flush,
      unflushedAccounts: () => accounting.state.unflushedAccounts,
      journalFills: () => accounting.load.journalFills,
      groupQuotas: () => groupQuotas.value,
      accounts: () =>
        this.#settings.metrics.account_labels ? accountSamples(registry, sharedBalances?.value) : [],
    };
    const readAlone = (): Promise<FamilySamples> => Promise.resolve(({ collect }) => collect(source));
    const exposition = new Exposition(readGroup ?? readAlone);
    const refresh = () => Promise.all([groupQuotas.refresh(), sharedBalances?.refresh()]);
    return {
      read: async () => {
        await refresh();
        return readMetrics(source);
      },
      render: async (format) => {
        await refresh();
        return exposition.render(format);
      },
    };
  }
}

/**
 * Returns the samples of accounts. Spending and calls are those of this host alone, so that their sum over
 * hosts is right. If `balances` is given, an account that is not in it has no known balance.
 */
function accountSamples(registry: Registry, balances: Balances | undefined): AccountSample[] {
  try {
    return registry.accounts
      .list(0, ACCOUNT_LABELS_MAX)
      .items.map(({ record, available, spent, callsToday }) => ({
        id: record.id,
        name: record.name,
        availablePicoUnits: balances === undefined ? available : balances.get(record.id),
        spentPicoUnits: spent,
        callsToday,
      }));
  } catch {
    // The row of an account, or of its group, is damaged. The other metrics do not need it.
    return [];
  }
}
