/**
 * Samples for the metrics of how full the quotas of groups are, for the groups nearest to a limit. Only the
 * gateway with the admin interface has samples. notifications.ts creates it, on the main thread of a gateway
 * process.
 *
 * Must hold: scrapes read the groups at most every ten seconds (test/unit/gateway/group-quotas.test.ts).
 */
import { QUOTA_NAMES, QUOTA_FIELDS } from '../core/quotas.js';
import type { GroupRecord } from '../registry/account-record.js';
import type { RegistryService } from '../registry/registry.js';
import type { GroupQuotaSample } from '../telemetry/metrics-source.js';

/** Groups with series of their own, at most nine each. */
export const GROUPS_SHOWN_MAX = 100;
/** Groups that are read without a pause: some milliseconds. */
const PAGE_GROUPS = 500;
const FRESH_MS = 10_000;

export interface GroupQuotasOptions {
  readonly service: Pick<RegistryService, 'read'>;
  /** All groups. */
  readonly records: () => Iterable<Pick<GroupRecord, 'id' | 'limits'>>;
  /** Whether series have the names of groups, which may be those of customers. */
  readonly showsNames: boolean;
  readonly monotonicMs: () => number;
}

export class GroupQuotas {
  readonly #options: GroupQuotasOptions;
  #isOn = false;
  #readMs = -Infinity;
  #reading: Promise<void> | undefined;
  #samples: readonly GroupQuotaSample[] = [];

  constructor(options: GroupQuotasOptions) {
    this.#options = options;
  }

  /** To be called when this gateway gets the admin interface, or loses it. */
  turnOn(on: boolean): void {
    this.#isOn = on;
    if (!on) this.#samples = [];
  }

  /** As of the last `refresh`; empty without the admin interface. */
  get samples(): readonly GroupQuotaSample[] {
    return this.#samples;
  }

  /** To be awaited before `samples`. If the use cannot be read, the samples stay as they were. */
  async refresh(): Promise<void> {
    if (!this.#isOn || this.#options.monotonicMs() - this.#readMs < FRESH_MS) return;
    await (this.#reading ??= this.#read().finally(() => (this.#reading = undefined)));
  }

  async #read(): Promise<void> {
    const { service, records, showsNames, monotonicMs } = this.#options;
    const ids = [...records()]
      .filter(({ limits }) => QUOTA_NAMES.some((quota) => limits[QUOTA_FIELDS[quota]] !== undefined))
      .map(({ id }) => id);
    let found: { readonly ratio: number; readonly samples: readonly GroupQuotaSample[] }[] = [];
    try {
      for (let from = 0; from < ids.length; from += PAGE_GROUPS) {
        const page = ids.slice(from, from + PAGE_GROUPS);
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
          found.push({ ratio: Math.max(...samples.map(({ ratio }) => ratio)), samples });
        }
        found = found.sort((left, right) => right.ratio - left.ratio).slice(0, GROUPS_SHOWN_MAX);
      }
    } catch {
      // A group was deleted meanwhile, or the server of sharing is away. The next scrape reads again.
      return;
    }
    this.#readMs = monotonicMs();
    this.#samples = found.flatMap(({ samples }) => samples);
  }
}
