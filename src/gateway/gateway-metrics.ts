/**
 * The metrics of a gateway: creates the shared buffers, names threads and upstreams, and gives a scrape of
 * `/metrics` what it reads from other parts. gateway.ts and stats.ts use GatewayMetrics, on the main thread
 * of a gateway process; notifications.ts makes GroupQuotas and SharedBalances. Samples of groups' quotas and
 * of shared balances are from the gateway with the admin interface alone.
 *
 * Must hold: no two threads have the same stripe, else both write the same counters and counts are lost
 * (test/unit/telemetry/metrics-layout.test.ts). A row that cannot be read costs samples of accounts, and not
 * the page. Further tests: test/unit/gateway/gateway-metrics.group-quotas.test.ts,
 * test/unit/gateway/gateway-metrics.shared-balances.test.ts, test/e2e/metrics.test.ts.
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
import {
  UpstreamNames,
  type AccountSample,
  type MetricsSource,
  type GroupQuotaSample,
} from '../telemetry/metrics-source.js';
import { ThreadHealth } from '../telemetry/thread-health.js';
import { UpstreamErrors } from '../telemetry/upstream-errors.js';

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
  /** Undefined if no other process uses the accounts: then the registry knows their balances. */
  readonly sharedBalances: Pick<SharedBalances, 'refresh' | 'value'> | undefined;
  /** Reads the samples of all gateways of a group; undefined if this one is alone. */
  readonly readGroup: (() => Promise<FamilySamples>) | undefined;
}

export class GatewayMetrics {
  readonly buffers: MetricsBuffers;
  readonly reader: MetricsReader;
  readonly upstreams = new UpstreamNames();
  /** Gets ended calls from gateway-logs.ts. */
  readonly upstreamErrors = new UpstreamErrors();
  /** The names of threads, in the order of the stripes. */
  readonly threads: readonly string[];
  readonly #settings: Settings;
  readonly #health: ThreadHealth;
  readonly upstreamUse: MetricsSource['upstreamUse'];
  #source: MetricsSource | undefined;
  #cachedValues: readonly Pick<CachedValue<unknown>, 'refresh'>[] = [];
  #exposition: Exposition | undefined;

  constructor(settings: Settings, log: LogSwitchBuffer, counters: Pick<UpstreamCounters, 'useOf'>) {
    this.#settings = settings;
    this.upstreamUse = ({ index, limits }) => counters.useOf(index, limits);
    const { listeners } = settings.listen;
    this.buffers = createMetrics(listeners, settings.workers, log);
    this.reader = new MetricsReader(this.buffers);
    this.threads = threadNames(listeners, settings.workers);
    this.#health = new ThreadHealth(this.buffers, MAIN_THREAD);
  }

  /** The stripe of that listener. The order of stripes is that of `threadNames` (metrics-layout.ts). */
  threadOfListener(index: number): number {
    return 1 + index;
  }

  /** The stripe of the first upstream worker. The other workers follow in order. */
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

  /** Reads the values of other processes and hosts, if they are due. */
  async #refresh(): Promise<void> {
    await Promise.all(this.#cachedValues.map((cachedValue) => cachedValue.refresh()));
  }

  close(): void {
    this.#health.stop();
  }
}

/**
 * Returns the samples of accounts. Spending and calls are those of this host alone, so that their sum over
 * hosts is right. If others share the accounts, a balance is from `balances`; undefined if it is not there.
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

/** How many groups have series of their own: one for each quota, so at most nine. */
export const GROUPS_SHOWN_MAX = 100;
/** How many groups, and accounts, are read in one turn of the event loop: for some milliseconds. */
const GROUPS_A_PAGE = 500;
const ACCOUNTS_A_PAGE = 500;
const FRESH_MS_MAX = 10_000;

/**
 * A value that scrapes show, and for which all processes and hosts must be asked. notifications.ts creates
 * the two kinds below.
 *
 * Must hold: scrapes, which need no token, cause a read at most every FRESH_MS_MAX
 * (test/unit/gateway/gateway-metrics.group-quotas.test.ts).
 */
abstract class CachedValue<Value> {
  /** The value while this is off: without the admin interface. */
  readonly #offValue: Value;
  readonly #monotonicMs: () => number;
  #isOn = false;
  #readMs = -Infinity;
  /** The read that goes on, for all who await it. */
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

  /** What the last `refresh` has read; `#offValue` without the admin interface. */
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
      if (!this.#isOn) return;
      this.#value = value;
      this.#readMs = this.#monotonicMs();
    } catch {
      // A row is damaged, a group was deleted, or the server of sharing is away. The next scrape reads again.
    }
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

/** What accounts have left for new calls, in pico-units, by their ids. */
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
    // If the coordinator cannot be asked, statements have no `leased`. Then the last known balance stays,
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
