/**
 * The metrics of one gateway process. Its other parts count in the buffers that GatewayMetrics creates, and
 * a scrape of `/metrics` reads them. gateway.ts and stats.ts use it, on the main thread. notifications.ts
 * creates GroupQuotas and SharedBalances, because it knows whether this process is the primary: the primary
 * alone shows what groups (of accounts) use of their quotas, and shared balances.
 *
 * Must hold: each thread has a stripe of its own, because two writers would lose counts. A damaged row costs
 * samples of accounts, and not the page. Further tests: gateway-metrics.group-quotas.test.ts and
 * gateway-metrics.shared-balances.test.ts in test/unit/gateway, test/e2e/metrics.test.ts.
 */
import type { Settings } from '../config/schema.js';
import { QUOTA_NAMES, QUOTA_FIELDS } from '../core/quotas.js';
import { packageVersion } from '../core/version.js';
import type { UpstreamCounters } from '../ledger/upstream-counters.js';
import type { GroupRecord } from '../registry/account-record.js';
import type { Registry, RegistryService } from '../registry/registry.js';
import type { LedgerFlush } from '../store/flush.js';
import {
  Exposition,
  readMetrics,
  type FamilySamples,
  type MetricsFormat,
  type MetricsPage,
} from '../telemetry/exposition.js';
import type { LogSwitchBuffer } from '../telemetry/log.js';
import { createMetrics, MAIN_THREAD, threadNames, type MetricsBuffers } from '../telemetry/metrics-layout.js';
import { MetricsReader } from '../telemetry/metrics-reader.js';
import type { MetricsSnapshot } from '../telemetry/metrics-snapshot.js';
import type { AccountSample, GroupQuotaSample, MetricsSource } from '../telemetry/metrics-source.js';
import { ThreadHealth } from '../telemetry/thread-health.js';
import { UpstreamNames } from '../telemetry/upstream-names.js';
import { UpstreamErrors } from '../telemetry/upstream-errors.js';
import { workersInListeners } from './settings-records.js';

/**
 * How many accounts have labels of their own, the oldest first, if `metrics.account_labels` is set. The three
 * samples of so many accounts take some 10 ms a scrape.
 */
const ACCOUNT_LABELS_MAX = 1_000;

/** Members of `MetricsSource` that `connectParts` passes on unchanged. */
type PassedMembers =
  | 'bodies'
  | 'spans'
  | 'logRecords'
  | 'droppedCalls'
  | 'webhooks'
  | 'credentials'
  | 'cacheStoredBytes'
  | 'sharing';

/** What a scrape of `/metrics` reads from other objects of the gateway. */
export interface ScrapedParts extends Pick<MetricsSource, PassedMembers> {
  readonly registry: Registry;
  readonly accounting: Pick<LedgerFlush, 'state' | 'load'>;
  readonly groupQuotas: Pick<GroupQuotas, 'refresh' | 'value'>;
  /** Undefined if no other process uses the accounts: the registry then has their balances. */
  readonly sharedBalances: Pick<SharedBalances, 'refresh' | 'value'> | undefined;
  /** Reads the samples of all gateways of the process group; undefined if this one is alone. */
  readonly readGroup: (() => Promise<FamilySamples>) | undefined;
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
  #source: MetricsSource | undefined;
  #cachedValues: readonly Pick<CachedValue<unknown>, 'refresh'>[] = [];
  #exposition: Exposition | undefined;

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

  /** Connects the objects that are created after this one. To be called before `render` and `read`. */
  connectParts({
    registry,
    accounting,
    groupQuotas,
    sharedBalances,
    readGroup,
    ...passed
  }: ScrapedParts): void {
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
    this.#source = source;
    this.#cachedValues = sharedBalances === undefined ? [groupQuotas] : [groupQuotas, sharedBalances];
    const readAlone = (): Promise<FamilySamples> => Promise.resolve(({ collect }) => collect(source));
    this.#exposition = new Exposition(readGroup ?? readAlone);
  }

  /** Returns the samples of this process. `connectParts` was called before, as for `render`. */
  async read(): Promise<MetricsSnapshot> {
    await this.#refresh();
    return readMetrics(this.#source!);
  }

  /** Returns the page of `/metrics`: of all gateways, if this one is in a process group. */
  async render(format: MetricsFormat): Promise<MetricsPage> {
    await this.#refresh();
    return this.#exposition!.render(format);
  }

  async #refresh(): Promise<void> {
    await Promise.all(this.#cachedValues.map((cachedValue) => cachedValue.refresh()));
  }

  close(): void {
    this.#health.stop();
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

/** How many groups have series of their own: a group has one for each of its quotas (QUOTA_NAMES). */
export const GROUPS_SHOWN_MAX = 100;
/** How many groups, and accounts, are read in one turn of the event loop: for some milliseconds. */
const GROUPS_A_PAGE = 500;
const ACCOUNTS_A_PAGE = 500;
/** Less than the 15 s that mostly lie between two scrapes, so that each scrape shows new values. */
const FRESH_MS_MAX = 10_000;

/**
 * A value that scrapes show. To read it, all processes must flush and the coordinator must be asked.
 *
 * Must hold: scrapes, which need no token, cause a read at most every FRESH_MS_MAX, also if reads fail
 * (test/unit/gateway/gateway-metrics.group-quotas.test.ts).
 */
abstract class CachedValue<Value> {
  /** The value while this process has no admin interface. */
  readonly #offValue: Value;
  readonly #monotonicMs: () => number;
  #isOn = false;
  /** When the last read ended; monotonic. */
  #readMs = -Infinity;
  /** The read that runs, for all who await it. */
  #running: Promise<void> | undefined;
  #value: Value;

  constructor(offValue: Value, monotonicMs: () => number) {
    this.#offValue = offValue;
    this.#value = offValue;
    this.#monotonicMs = monotonicMs;
  }

  /** To be called when this gateway gets the admin interface. */
  turnOn(): void {
    this.#isOn = true;
  }

  /** To be called when this gateway loses the admin interface, or ends. */
  turnOff(): void {
    this.#isOn = false;
    this.#value = this.#offValue;
    // So that the next read is due at once, however soon `turnOn` is called again.
    this.#readMs = -Infinity;
  }

  /** What the last good read returned; `#offValue` without the admin interface. */
  get value(): Value {
    return this.#value;
  }

  /** To be awaited before `value`. Never rejects: after a failure the value stays as it was. */
  async refresh(): Promise<void> {
    if (!this.#isOn || this.#monotonicMs() - this.#readMs < FRESH_MS_MAX) return;
    await (this.#running ??= this.#read().finally(() => (this.#running = undefined)));
  }

  async #read(): Promise<void> {
    try {
      const value = await this.read();
      // If `turnOff` was called meanwhile, the value stays `#offValue`.
      if (this.#isOn) this.#value = value;
    } catch {
      // A row is damaged, or a group was deleted after its id was read.
    }
    if (this.#isOn) this.#readMs = this.#monotonicMs();
  }

  protected abstract read(): Promise<Value>;
}

interface GroupQuotasOptions {
  readonly service: Pick<RegistryService, 'read'>;
  /** All groups. */
  readonly records: () => Iterable<Pick<GroupRecord, 'id' | 'limits'>>;
  /** Whether series have the names of groups, which may be those of customers. */
  readonly showsNames: boolean;
  readonly monotonicMs: () => number;
}

/** Samples of how full the quotas of groups are, for the groups nearest to a limit. */
export class GroupQuotas extends CachedValue<readonly GroupQuotaSample[]> {
  readonly #options: GroupQuotasOptions;

  constructor(options: GroupQuotasOptions) {
    super([], options.monotonicMs);
    this.#options = options;
  }

  protected async read(): Promise<readonly GroupQuotaSample[]> {
    const { service, records, showsNames } = this.#options;
    let fullest: { readonly ratio: number; readonly samples: readonly GroupQuotaSample[] }[] = [];
    const ids = [...records()]
      .filter(({ limits }) => QUOTA_NAMES.some((quota) => limits[QUOTA_FIELDS[quota]] !== undefined))
      .map(({ id }) => id);
    for (let start = 0; start < ids.length; start += GROUPS_A_PAGE) {
      const page = ids.slice(start, start + GROUPS_A_PAGE);
      const statements = await service.read(({ groups }) => page.map((id) => groups.find(id)));
      for (const { record, quotas } of statements) {
        const name = showsNames ? record.name : '';
        const samples = quotas.map(({ quota, used, held, limit }) => ({
          group: record.id,
          name,
          quota,
          // What calls in flight hold counts too, because they may use all of it.
          ratio: Number(used + held) / Number(limit),
        }));
        fullest.push({ ratio: Math.max(...samples.map(({ ratio }) => ratio)), samples });
      }
      fullest = fullest.sort((first, second) => second.ratio - first.ratio).slice(0, GROUPS_SHOWN_MAX);
    }
    return fullest.flatMap(({ samples }) => samples);
  }
}

/** What accounts have left for new calls, in pico-units, by id. */
type Balances = ReadonlyMap<string, bigint>;

/**
 * The balances of accounts with labels, as all processes and hosts that share them have left them. The store
 * of a host has neither what other hosts have spent nor what calls hold.
 */
export class SharedBalances extends CachedValue<Balances> {
  readonly #service: Pick<RegistryService, 'read'>;

  constructor(service: Pick<RegistryService, 'read'>, monotonicMs: () => number) {
    super(new Map(), monotonicMs);
    this.#service = service;
  }

  protected async read(): Promise<Balances> {
    // A statement has `leased` only if the coordinator was asked. Without it the last known balance stays,
    // which is nearer the truth than the store's.
    const balances = new Map(this.value);
    let nextStart: number | undefined = 0;
    for (let count = 0; nextStart !== undefined && count < ACCOUNT_LABELS_MAX; count += ACCOUNTS_A_PAGE) {
      const pageStart: number = nextStart;
      const page = await this.#service.read(({ accounts }) => accounts.list(pageStart, ACCOUNTS_A_PAGE));
      for (const { record, available, leased } of page.items)
        if (leased !== undefined) balances.set(record.id, available);
      nextStart = page.next;
    }
    return balances;
  }
}
