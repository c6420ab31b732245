/**
 * The write-behind buffer of quota use: what ended calls have used of the quotas of their accounts, keys,
 * groups and rules for models. flush.ts uses it on the main thread: QuotaUses (gateway/accounting.ts) if this
 * gateway alone writes the rows, SharedQuotaUses (gateway/shared-accounting.ts) if several gateways add to
 * them.
 *
 * Must hold: a listener counts a call's use before it appends the call to its journal, so that a flush writes
 * the use of each charge with it or before. `recordWritten` is called only when the rows are on disk, or
 * shared rows count a use twice (test/unit/store/quota-uses.test.ts).
 */
import type { Clock } from '../core/clock.js';
import { GROUPS_MAX, MODEL_SCOPES_MAX } from '../core/limits.js';
import {
  type AccountIndex,
  asWallMs,
  type GroupIndex,
  type ModelScopeIndex,
  type KeyIndex,
} from '../core/units.js';
import type { Ledger } from '../ledger/ledger.js';
import type { ScopeCounts } from '../ledger/limited-scopes.js';
import type { SettledQuotas } from '../ledger/scope-quotas.js';
import type { QuotaUseRecord, SlotScope, UsedScope } from '../registry/quota-use.js';
import type { Log } from '../telemetry/log.js';
import { quotaUseKeyOf, type QuotaUseRows } from './quota-use-rows.js';
import { type CountsByPeriod, CountsOnDisk, mergedCounts } from './shared-counts.js';

/** For accounts and keys: their requests a minute and calls a day are in `spending` and `key_uses`. */
const NO_COUNTS = { minuteUsed: 0, dayNumber: 0, dayCalls: 0 };

export class QuotaUses {
  readonly #ledger: Ledger;
  readonly #clock: Clock;
  readonly #modelIdOf: (modelIndex: number) => string;
  /** Groups whose rows are to be written. A flush that fails leaves them to the next. */
  readonly #groups = new Set<GroupIndex>();
  /** Rules for models whose rows are to be written. */
  readonly #modelRules = new Set<ModelScopeIndex>();

  constructor(ledger: Ledger, clock: Clock, modelIdOf: (modelIndex: number) => string) {
    this.#ledger = ledger;
    this.#clock = clock;
    this.#modelIdOf = modelIdOf;
  }

  /** Number of groups and rules whose rows are to be written. */
  get size(): number {
    return this.#groups.size + this.#modelRules.size;
  }

  /** Takes all dirty groups and rules from the ledger, so that none lacks what a drained charge has used. */
  drain(): void {
    const { groups, models } = this.#ledger;
    groups.dirty.drain((group) => this.#groups.add(group), GROUPS_MAX);
    models.dirty.drain((model) => this.#modelRules.add(model), MODEL_SCOPES_MAX);
  }

  /**
   * Yields the rows of all groups and rules that were drained, and of the `accounts` and `keys` that have a
   * quota record. Iterate once, in the transaction that writes the rows.
   */
  *rows(
    accounts: Iterable<AccountIndex>,
    keys: Iterable<KeyIndex>,
  ): Generator<readonly [UsedScope, QuotaUseRecord]> {
    for (const index of accounts) yield* this.#rowIfAny({ kind: 'account', index });
    for (const index of keys) yield* this.#rowIfAny({ kind: 'key', index });
    for (const index of this.#groups) yield* this.#rowIfAny({ kind: 'group', index });
    for (const slot of this.#modelRules) {
      const pair = this.#ledger.modelScopes.pairOf(slot);
      if (pair === undefined) continue;
      const { account: index, modelIndex } = pair;
      const scope = { kind: 'model', index, modelId: this.#modelIdOf(modelIndex) } as const;
      const row = this.rowOf(scope, this.#useOfModel(slot));
      if (row !== undefined) yield [scope, row];
    }
  }

  /** Call when what `rows` returned is on disk. */
  recordWritten(): void {
    this.#groups.clear();
    this.#modelRules.clear();
  }

  /** Returns the row to write, if any. `counted` is what this gateway has counted. */
  protected rowOf(_scope: UsedScope, counted: QuotaUseRecord): QuotaUseRecord | undefined {
    return counted;
  }

  /** Yields the row of the scope, if one is to be written. */
  *#rowIfAny(scope: SlotScope): Generator<readonly [UsedScope, QuotaUseRecord]> {
    const counted = this.#useOf(scope);
    const row = counted && this.rowOf(scope, counted);
    if (row !== undefined) yield [scope, row];
  }

  /** Undefined if nothing of the scope is counted. */
  #useOf(scope: SlotScope): QuotaUseRecord | undefined {
    const settled = this.#ledger.settledOf(scope);
    const counts = scope.kind === 'group' ? this.#ledger.groups.countsOf(scope.index) : undefined;
    return settled === undefined && counts === undefined ? undefined : this.#recordOf(counts, settled);
  }

  #useOfModel(index: ModelScopeIndex): QuotaUseRecord {
    const { models } = this.#ledger;
    return this.#recordOf(models.countsOf(index), this.#ledger.settledOf({ kind: 'model', index }));
  }

  #recordOf(counts: ScopeCounts | undefined, settled: SettledQuotas | undefined): QuotaUseRecord {
    const { minuteUsed, dayNumber, dayCalls } = counts ?? NO_COUNTS;
    return {
      minuteRequests: minuteUsed,
      callDayNumber: dayNumber,
      callsPerDay: dayCalls,
      takenMs: asWallMs(Math.floor(this.#clock.wallMs())),
      ...(settled ?? NOTHING_SETTLED),
    };
  }
}

/** For a group or rule whose only quotas are requests a minute and calls a day. */
const NOTHING_SETTLED = {
  minuteTokens: 0,
  dayNumber: 0,
  monthNumber: 0,
  tokensPerDay: 0,
  callsPerMonth: 0,
  tokensPerMonth: 0,
  spendPerDay: 0,
  spendPerMonth: 0,
};

/** Counts of this gateway, and the id that had the slot then. */
interface OwnedUse {
  readonly owner: string;
  readonly use: QuotaUseRecord;
}

type SharedRows = Pick<QuotaUseRows, 'find' | 'ownerOf'>;

/** For rows that several gateways add to (shared-counts.ts). A row has this gateway's minute. */
export class SharedQuotaUses extends QuotaUses {
  readonly #rows: SharedRows;
  /**
   * An entry names the owner of the slot, because the slot of a deleted key or group is given again after a
   * day, and the next owner's counts begin at 0 within the same month.
   */
  readonly #uses: CountsOnDisk<string, OwnedUse>;

  constructor(
    ledger: Ledger,
    clock: Clock,
    modelIdOf: (modelIndex: number) => string,
    rows: SharedRows,
    log: Log,
  ) {
    super(ledger, clock, modelIdOf);
    this.#rows = rows;
    this.#uses = new CountsOnDisk('quota use', log);
  }

  override rows(...scopes: Parameters<QuotaUses['rows']>): ReturnType<QuotaUses['rows']> {
    this.#uses.begin();
    return super.rows(...scopes);
  }

  override recordWritten(): void {
    super.recordWritten();
    this.#uses.recordWritten();
  }

  protected override rowOf(scope: UsedScope, counted: QuotaUseRecord): QuotaUseRecord | undefined {
    const owner = this.#rows.ownerOf(scope);
    // Another gateway has deleted the key or group.
    if (owner === undefined) return undefined;
    const rowName = quotaUseKeyOf(scope).join('/');
    const { stored, own } = this.#uses.read(rowName, () => this.#rows.find(scope));
    this.#uses.put(rowName, { owner, use: counted });
    return mergedCounts(COUNTS_BY_PERIOD, counted, own?.owner === owner ? own.use : undefined, stored);
  }
}

/** Which counts start at 0 with which period. Exported for the test. */
export const COUNTS_BY_PERIOD: CountsByPeriod<Exclude<keyof QuotaUseRecord, 'takenMs'>> = [
  ['callDayNumber', ['callsPerDay']],
  ['dayNumber', ['tokensPerDay', 'spendPerDay']],
  ['monthNumber', ['callsPerMonth', 'tokensPerMonth', 'spendPerMonth']],
];
