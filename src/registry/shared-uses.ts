/**
 * The live state (registry-context.ts) of a process that shares its registry with other processes or hosts.
 * gateway/shared-accounting.ts makes one. sharing/shared-registry.ts hands it what all processes use. Main
 * thread.
 *
 * Methods for changes do nothing, because the ChangeApplier (change-applier.ts) writes each committed change
 * to the buffers. StoreOnly, the live state of a command, has most of them. It also reads what the last
 * flushes wrote to the store, which is shown of a scope if no more is known.
 *
 * A rotation replaces a key by another, which _inherits_ its use, so that no limit is renewed: `rotate` of
 * keys.ts.
 *
 * Must hold: `missed` of `show` names each scope whose use was looked for and not known, or an operator sees
 * too little used (test/unit/sharing/shared-registry.test.ts, test/unit/registry/groups.test.ts).
 */
import { invariant } from '../core/errors.js';
import { hasQuotas, type QuotaName } from '../core/quotas.js';
import type { WallMs } from '../core/units.js';
import type { AccountRecord } from './account-record.js';
import { type AccountCounts, type SharedUse, type KnownUses, sharedStatement } from './account-statement.js';
import { type InheritedUse, type KeyRecord, mergeUse } from './key-record.js';
import { inheritedQuotasOf, type LimitedScope, type QuotaUse, sharedQuotaUses } from './quota-use.js';
import { StoreOnly } from './registry-context.js';

/** Quotas that `InheritedUse.quotas` lacks: two have other fields, calls in flight are not inherited. */
const NOT_IN_QUOTAS: readonly QuotaName[] = ['requests_per_minute', 'calls_per_day', 'calls_in_flight'];

/**
 * The coordinator knows what all processes use, but a transaction cannot wait for its reply. So
 * sharing/shared-registry.ts runs the work with `show`, asks for the uses that the work missed, and runs it
 * again with them. The use of a scope is not known in that first run, outside of `show`, and if the
 * coordinator did not tell it. Statements then show what this host has flushed.
 */
export class SharedUses extends StoreOnly {
  /** Other processes learn from its record what a key inherits: this one cannot write to their buffers. */
  override readonly inheritsByRecord = true;
  /** While `show` runs: the uses that it got, and the ids that its `work` did not find there. */
  #knownUses: KnownUses | undefined;
  #missedIds: Set<string> | undefined;

  /**
   * Runs `work` with the uses in `known`, and returns what it returns. `missed` has the ids whose use `work`
   * looked for and did not find. Throws what `work` throws, and if `work` calls `show` or returns a promise:
   * the rest of it would run without the uses.
   */
  show<Result>(
    known: KnownUses,
    work: () => Result,
  ): { readonly result: Result; readonly missed: ReadonlySet<string> } {
    invariant(this.#knownUses === undefined, 'the work that `show` runs does not call `show`');
    const missed = new Set<string>();
    this.#knownUses = known;
    this.#missedIds = missed;
    try {
      const result = work();
      invariant(!(result instanceof Promise), 'the work that `show` runs is done when it returns');
      return { result, missed };
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

  override statementOf(record: AccountRecord, nowMs: WallMs): AccountCounts {
    return sharedStatement(super.statementOf(record, nowMs), this.#find(record.id), nowMs);
  }

  /** Of the key's own limits, what all processes have used. Without the coordinator, what this host knows. */
  override useForSuccessor(record: KeyRecord, nowMs: WallMs): InheritedUse | undefined {
    const use = this.#find(record.id);
    if (use === undefined) {
      // This host may have no row of the key's use. What the key itself has inherited is in its record, which
      // all hosts have.
      const flushed = super.useForSuccessor(record, nowMs);
      return flushed === undefined ? record.inherited : mergeUse(flushed, record.inherited);
    }
    // Other hosts may still use what they have leased under the rotated key, so it counts as used.
    const leasedByOthersOf = (quota: QuotaName): number =>
      Number(use.quotas.get(quota)?.leasedByOthers ?? 0n);
    const minuteUsed = Number(use.minute.used) + leasedByOthersOf('requests_per_minute');
    const dayCalls = use.dayCalls + leasedByOthersOf('calls_per_day');
    const { dayNumber } = use;
    // Left out if all would be 0: the rotation then writes no row of quota use for the new key.
    const hasOthers = Array.from(use.quotas.keys()).some((name) => !NOT_IN_QUOTAS.includes(name));
    const quotas = hasOthers ? { quotas: inheritedQuotasOf(use.quotas, this.calendar, nowMs) } : {};
    return mergeUse({ minuteUsed, dayNumber, dayCalls, takenMs: nowMs, ...quotas }, record.inherited);
  }

  override quotasOf(scope: LimitedScope, nowMs: WallMs): QuotaUse[] {
    // A scope without quotas has none to show. So its use is not missed, and the work does not run again.
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
