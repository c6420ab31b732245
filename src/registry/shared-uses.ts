/**
 * The live state (registry-context.ts) of a process that shares its registry with other processes or hosts.
 * gateway/shared-accounting.ts makes one. sharing/shared-registry.ts hands it what all processes use. Its
 * methods for changes do nothing, because a ChangeApplier (live-buffers.ts) writes each committed change to
 * the buffers. Main thread.
 *
 * Must hold: `missed` of `show` names each scope whose use was looked for and not known, or an operator sees
 * too little used (test/unit/sharing/shared-registry.test.ts, test/unit/registry/groups.test.ts).
 */
import { hasQuotas, type QuotaName } from '../core/quotas.js';
import type { WallMs } from '../core/units.js';
import type { Ledger } from '../ledger/ledger.js';
import type { AccountDirectory } from './account-directory.js';
import type { AccountRecord } from './account-record.js';
import { type AccountCounts, type SharedUse, type KnownUses, sharedStatement } from './account-statement.js';
import { type InheritedUse, type KeyRecord, mergeUse } from './key-record.js';
import { inheritedQuotasOf, type LimitedScope, type QuotaUse, sharedQuotaUses } from './quota-use.js';
import type { RecordStore } from './record-store.js';
import { canCount, type CountedScope, StoreOnly } from './registry-context.js';

/** Quotas that `InheritedUse.quotas` lacks: two have other fields, calls in flight are not inherited. */
const COUNTED_APART: readonly QuotaName[] = ['requests_per_minute', 'calls_per_day', 'calls_in_flight'];

/**
 * The live state of a process that shares its registry: what all processes use of accounts, keys and groups.
 * The coordinator knows these uses, but a transaction cannot wait for its reply. So
 * sharing/shared-registry.ts asks beforehand, runs the work with `show`, and does both again if the work
 * needed more uses. If the use of a scope is not known, statements show what this host has flushed.
 */
export class SharedUses extends StoreOnly {
  override readonly inheritsByRecord = true;
  readonly #ledger: Ledger | undefined;
  /** While `show` runs: the uses that it got, and the ids that its `work` did not find there. */
  #knownUses: KnownUses | undefined;
  #missedIds: Set<string> | undefined;

  /** `ledger` counts the calls of this process; limits that it cannot count are rejected. */
  constructor(store: RecordStore, directory: AccountDirectory, timezone?: string, ledger?: Ledger) {
    super(store, directory, timezone);
    this.#ledger = ledger;
  }

  /**
   * Runs `work`, which must be synchronous and not call `show`, with the uses in `known`. `missed` has the
   * ids whose use `work` looked for and did not find.
   */
  show<Result>(
    known: KnownUses,
    work: () => Result,
  ): { readonly result: Result; readonly missed: ReadonlySet<string> } {
    const missed = new Set<string>();
    this.#knownUses = known;
    this.#missedIds = missed;
    try {
      return { result: work(), missed };
    } finally {
      this.#knownUses = undefined;
      this.#missedIds = undefined;
    }
  }

  override openAccount(_record: AccountRecord): void {
    // The ChangeApplier adds the account to the buffers and the directory.
  }

  override changeAccount(_record: AccountRecord): void {
    // The ChangeApplier changes the buffers and the directory.
  }

  override canCount(scope: CountedScope): boolean {
    return this.#ledger === undefined || canCount(this.#ledger, scope);
  }

  override statementOf(record: AccountRecord, nowMs: WallMs): AccountCounts {
    return sharedStatement(super.statementOf(record, nowMs), this.#find(record.id), nowMs);
  }

  override countsOf(record: KeyRecord, nowMs: WallMs): InheritedUse | undefined {
    const use = this.#find(record.id);
    if (use === undefined) {
      // The coordinator did not reply. Only what this host has flushed and what the key inherited are known.
      const flushed = super.countsOf(record, nowMs);
      return flushed === undefined ? record.inherited : mergeUse(flushed, record.inherited);
    }
    // Other hosts may still use what they have leased under the former key, so it counts as used.
    const leasedByOthersOf = (quota: QuotaName): number =>
      Number(use.quotas.get(quota)?.leasedByOthers ?? 0n);
    const minuteUsed = Number(use.minute.used) + leasedByOthersOf('requests_per_minute');
    const dayCalls = use.dayCalls + leasedByOthersOf('calls_per_day');
    const { dayNumber } = use;
    const hasSettled = Array.from(use.quotas.keys()).some((name) => !COUNTED_APART.includes(name));
    const quotas = hasSettled ? { quotas: inheritedQuotasOf(use.quotas, this.calendar, nowMs) } : {};
    return mergeUse({ minuteUsed, dayNumber, dayCalls, takenMs: nowMs, ...quotas }, record.inherited);
  }

  override quotasOf(scope: LimitedScope, nowMs: WallMs): QuotaUse[] {
    const use = hasQuotas(scope.limits) ? this.#find(scope.id) : undefined;
    const flushed = super.quotasOf(scope, nowMs);
    if (use === undefined) return flushed;
    return sharedQuotaUses(flushed, use.quotas, this.calendar, nowMs);
  }

  /** The use of the scope with this id; if it is missing, `show` returns the id in `missed`. */
  #find(id: string): SharedUse | undefined {
    const use = this.#knownUses?.get(id);
    if (use === undefined) this.#missedIds?.add(id);
    return use;
  }
}
