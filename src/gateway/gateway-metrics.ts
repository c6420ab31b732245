/**
 * The metrics of a gateway: the shared buffers, the names that go with them, and what a scrape reads beside them. Main thread.
 */
import { packageVersion } from '../core/version.js';
import type { Settings } from '../config/schema.js';
import type { Registry } from '../registry/registry.js';
import type { LedgerFlush } from '../store/flush.js';
import {
  Exposition,
  readMetrics,
  type FamilySamples,
  type MetricsFormat,
  type MetricsPage,
} from '../telemetry/exposition.js';
import type { LogSwitchBuffer } from '../telemetry/log.js';
import { createMetrics, threadNames, type MetricsBuffers } from '../telemetry/metrics-layout.js';
import type { MetricsSnapshot, SharingSnapshot } from '../telemetry/metrics-snapshot.js';
import { MetricsReader } from '../telemetry/metrics-reader.js';
import { UpstreamNames, type AccountSample, type MetricsSource } from '../telemetry/metrics-source.js';
import type { SpanCounts } from '../telemetry/span-outbox.js';
import { ThreadHealth } from '../telemetry/thread-health.js';

/** Accounts that have labels, oldest first, where they are switched on: three samples each, some 10 ms a scrape. */
const ACCOUNT_LABELS_MAX = 1_000;

/** What a scrape asks the rest of the gateway for. */
export interface MetricsScopes {
  readonly registry: Registry;
  readonly bodies: MetricsSource['bodies'];
  readonly accounting: Pick<LedgerFlush, 'state' | 'load'>;
  /** Undefined where none are exported. */
  readonly spans: () => SpanCounts | undefined;
  /** Undefined where the gateway has its limits for itself. */
  readonly sharing: () => SharingSnapshot | undefined;
  /** Samples of all gateways of a group; absent where this one is alone. */
  readonly readGroup: (() => Promise<FamilySamples>) | undefined;
}

export class GatewayMetrics {
  readonly buffers: MetricsBuffers;
  readonly reader: MetricsReader;
  readonly upstreams = new UpstreamNames();
  /** In the order of their stripes. */
  readonly threads: readonly string[];
  readonly #settings: Settings;
  readonly #health: ThreadHealth;
  #source: MetricsSource | undefined;
  #exposition: Exposition | undefined;

  constructor(settings: Settings, log: LogSwitchBuffer) {
    this.#settings = settings;
    const { listeners } = settings.listen;
    this.buffers = createMetrics(listeners, settings.workers, log);
    this.reader = new MetricsReader(this.buffers);
    this.threads = threadNames(listeners, settings.workers);
    this.#health = new ThreadHealth(this.buffers, 0);
  }

  /** Stripe of a listener among those of the threads. */
  threadOfListener(index: number): number {
    return 1 + index;
  }

  /** Of the first upstream worker; the others follow. */
  get firstWorkerThread(): number {
    return 1 + this.#settings.listen.listeners;
  }

  /** Of the thread that exports spans. */
  get tracesThread(): number {
    return this.firstWorkerThread + this.#settings.workers;
  }

  /** From now on `render` and `read` work. */
  attach({ registry, bodies, accounting: books, spans, sharing, readGroup }: MetricsScopes): void {
    const source: MetricsSource = {
      version: packageVersion(),
      reader: this.reader,
      models: () => registry.catalog.models,
      knownUpstreams: () => this.upstreams.known,
      upstreams: () => this.upstreams.current,
      threads: this.threads,
      callsInFlightMax: this.#settings.limits.calls_in_flight,
      bodies,
      flush: () => books.load.flush,
      unflushedAccounts: () => books.state.unflushedAccounts,
      journalFills: () => books.load.journalFills,
      spans,
      sharing,
      accounts: () => (this.#settings.metrics.account_labels ? accountSamples(registry) : []),
    };
    this.#source = source;
    const readAlone = (): Promise<FamilySamples> => Promise.resolve(({ collect }) => collect(source));
    this.#exposition = new Exposition(readGroup ?? readAlone);
  }

  /** The samples of this process. */
  read(): Promise<MetricsSnapshot> {
    return readMetrics(this.#source!);
  }

  /** The page of `/metrics`. */
  render(format: MetricsFormat): Promise<MetricsPage> {
    return this.#exposition!.render(format);
  }

  close(): void {
    this.#health.stop();
  }
}

function accountSamples(registry: Registry): AccountSample[] {
  return registry.accounts
    .list(0, ACCOUNT_LABELS_MAX)
    .items.map(({ record, available, spent, callsToday }) => ({
      id: record.id,
      name: record.name,
      availablePicoUnits: available,
      spentPicoUnits: spent,
      callsToday,
    }));
}
