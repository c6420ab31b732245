/**
 * What only the primary, the process with the admin interface, shows in its metrics: how full the quotas of
 * groups (of accounts) are, and the balances of accounts that processes or hosts share. notifications.ts
 * creates both values, because it knows whether this process is the primary; gateway-metrics.ts reads them
 * for each scrape. Main thread of a gateway process.
 *
 * Must hold: scrapes, which need no token, cause a read at most every FRESH_MS_MAX, also if reads fail
 * (test/unit/gateway/primary-metrics.group-quotas.test.ts). A value whose read fails stays as it was
 * (primary-metrics.shared-balances.test.ts beside that), and the log says that it is old.
 */
import { errorText } from '../core/errors.js';
import { QUOTA_FIELDS, QUOTA_NAMES } from '../core/quotas.js';
import type { GroupRecord } from '../registry/account-record.js';
import type { RegistryService } from '../registry/registry.js';
import type { Log } from '../telemetry/log.js';
import type { GroupQuotaSample } from '../telemetry/metrics-source.js';

/**
 * How many accounts have labels of their own, the oldest first, if `metrics.account_labels` is set. The three
 * samples of so many accounts take some 10 ms a scrape.
 */
export const ACCOUNT_LABELS_MAX = 1_000;
/** How many groups have series of their own: a group has one for each of its quotas (QUOTA_NAMES). */
export const GROUPS_SHOWN_MAX = 100;
/** How many groups, and accounts, are read in one turn of the event loop: for some milliseconds. */
const GROUPS_A_PAGE = 500;
const ACCOUNTS_A_PAGE = 500;
/** Less than the 15 s that mostly lie between two scrapes, so that each scrape shows new values. */
const FRESH_MS_MAX = 10_000;

interface CommonOptions {
  readonly service: Pick<RegistryService, 'read'>;
  readonly monotonicMs: () => number;
  readonly log: Log;
}

interface CachedValueOptions<Value> extends Omit<CommonOptions, 'service'> {
  /** What the log calls the value. */
  readonly name: string;
  /** The value while this process has no admin interface. */
  readonly offValue: Value;
  /** Reads the value: all processes must flush, and the coordinator must be asked. */
  readonly read: (former: Value) => Promise<Value>;
}

/** A value that scrapes show. */
export class CachedValue<Value> {
  readonly #options: CachedValueOptions<Value>;
  #isOn = false;
  /** When the last read ended; monotonic. */
  #readMs = -Infinity;
  /** The read that runs, for all who await it. */
  #running: Promise<void> | undefined;
  /** Whether the last read has failed. */
  #isFailing = false;
  #value: Value;

  constructor(options: CachedValueOptions<Value>) {
    this.#options = options;
    this.#value = options.offValue;
  }

  /** To be called when this gateway gets the admin interface. */
  turnOn(): void {
    this.#isOn = true;
  }

  /** To be called when this gateway loses the admin interface, or ends. */
  turnOff(): void {
    this.#isOn = false;
    this.#value = this.#options.offValue;
    // So that the next read is due at once, however soon `turnOn` is called again.
    this.#readMs = -Infinity;
  }

  /** What the last good read returned; `offValue` without the admin interface. */
  get value(): Value {
    return this.#value;
  }

  /** To be awaited before `value`. Never rejects: a value whose read fails stays as it was. */
  async refresh(): Promise<void> {
    if (!this.#isOn || this.#options.monotonicMs() - this.#readMs < FRESH_MS_MAX) return;
    await (this.#running ??= this.#read().finally(() => (this.#running = undefined)));
  }

  async #read(): Promise<void> {
    try {
      const value = await this.#options.read(this.#value);
      // If `turnOff` was called meanwhile, the value stays `offValue`.
      if (this.#isOn) this.#value = value;
      this.#isFailing = false;
    } catch (error) {
      // Most likely a row is damaged, or a group was deleted after its id was read. The first of several
      // failures in a row is logged.
      const { log, name: values } = this.#options;
      if (!this.#isFailing)
        log.warn('the metrics show old values, which cannot be read now', {
          values,
          error: errorText(error),
        });
      this.#isFailing = true;
    }
    if (this.#isOn) this.#readMs = this.#options.monotonicMs();
  }
}

export type GroupQuotas = CachedValue<readonly GroupQuotaSample[]>;

/**
 * Returns how full the quotas of groups are, for the groups nearest to a limit. `records`: all groups.
 * `showsNames`: whether series have the names of groups, which may be those of customers.
 */
export function groupQuotasOf({
  service,
  records,
  showsNames,
  ...common
}: CommonOptions & {
  readonly records: () => Iterable<Pick<GroupRecord, 'id' | 'limits'>>;
  readonly showsNames: boolean;
}): GroupQuotas {
  const read = async (): Promise<readonly GroupQuotaSample[]> => {
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
  };
  return new CachedValue({ name: 'quotas of groups', offValue: [], read, ...common });
}

/** What accounts have left for new calls, in pico-units, by id. */
export type Balances = ReadonlyMap<string, bigint>;
export type SharedBalances = CachedValue<Balances>;

/**
 * Returns the balances of accounts with labels, as all processes and hosts that share them have left them.
 * The store of a host has neither what other hosts have spent nor what calls hold.
 */
export function sharedBalancesOf({ service, ...common }: CommonOptions): SharedBalances {
  const read = async (former: Balances): Promise<Balances> => {
    // A statement has `leased` only if the coordinator was asked. Without it the last known balance stays,
    // which is nearer the truth than the store's.
    const balances = new Map(former);
    let nextStart: number | undefined = 0;
    for (let count = 0; nextStart !== undefined && count < ACCOUNT_LABELS_MAX; count += ACCOUNTS_A_PAGE) {
      const pageStart: number = nextStart;
      const page = await service.read(({ accounts }) => accounts.list(pageStart, ACCOUNTS_A_PAGE));
      for (const { record, available, leased } of page.items)
        if (leased !== undefined) balances.set(record.id, available);
      nextStart = page.next;
    }
    return balances;
  };
  return new CachedValue<Balances>({ name: 'balances of accounts', offValue: new Map(), read, ...common });
}
