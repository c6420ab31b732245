/**
 * Keeps names, plans, groups and status of all accounts in memory, so that a search need not read every
 * record: it takes some milliseconds for 100,000 accounts, instead of half a second. An account takes about
 * 60 bytes. StoreOnly and OwnBuffers (registry-context.ts), change-applier.ts and recovery fill the
 * directory; accounts.ts searches it. Main thread.
 *
 * Accounts are never deleted and names never change, so the lists only grow.
 *
 * Must hold: the directory has every account of the store that limits.accounts allows, whatever process made
 * or changed the account (the test has a case for each filler). Each filler reads or writes the record in the
 * same event-loop turn as it calls `set`, so no older record comes after a newer one.
 */
import { asAccountIndex, type AccountIndex } from '../core/units.js';
import type { AccountRecord } from './account-record.js';

/** A field that is undefined does not restrict the search. */
export interface AccountFilter {
  /** `text`: part of the name, in any case. `ids`: slots of the accounts whose id begins with that text. */
  readonly search?: { readonly text: string; readonly ids: ReadonlySet<AccountIndex> } | undefined;
  readonly planId?: string | undefined;
  readonly active?: boolean | undefined;
  /** The account is in one of these groups. */
  readonly groupIds?: ReadonlySet<string> | undefined;
}

/** How many slots one search reads, in some 30 ms. A search that ends there returns a short page. */
const SLOTS_PER_SEARCH_MAX = 500_000;

/** The lists are indexed by slot. */
export class AccountDirectory {
  readonly #names: string[] = [];
  readonly #planIds: string[] = [];
  readonly #active: boolean[] = [];
  readonly #groupIds: (string | undefined)[] = [];
  /** One string object for each id of a plan or group, so that equal ids do not take memory twice. */
  readonly #ids = new Map<string, string>();
  /** How many accounts are in each group, by its id. */
  readonly #accountCounts = new Map<string, number>();

  /** Adds an account, or sets its plan, group and status. */
  set({ index, name, planId, active, groupId }: AccountRecord): void {
    this.#names[index] = searchable(name);
    this.#planIds[index] = this.#sharedId(planId);
    this.#active[index] = active;
    const former = this.#groupIds[index];
    if (former === groupId) return;
    if (former !== undefined) this.#accountCounts.set(former, this.countOf(former) - 1);
    if (groupId !== undefined) this.#accountCounts.set(groupId, this.countOf(groupId) + 1);
    this.#groupIds[index] = groupId === undefined ? undefined : this.#sharedId(groupId);
  }

  /** How many accounts are in the group itself, without the groups below. groups.ts shows the number. */
  countOf(groupId: string): number {
    return this.#accountCounts.get(groupId) ?? 0;
  }

  /**
   * Returns at most `limit` accounts from slot `from` on. `next` is where to continue, undefined after the
   * last slot; it may be set although nothing was found yet.
   */
  find(
    filter: AccountFilter,
    from: number,
    limit: number,
  ): { found: AccountIndex[]; next: number | undefined } {
    const text = filter.search && searchable(filter.search.text);
    const end = Math.min(this.#names.length, from + SLOTS_PER_SEARCH_MAX);
    const found: AccountIndex[] = [];
    for (let slot = from; slot < end; slot++) {
      const index = asAccountIndex(slot);
      // Empty: the ChangeApplier has not applied the account yet.
      const name = this.#names[slot];
      if (name === undefined) continue;
      if (filter.planId !== undefined && this.#planIds[slot] !== filter.planId) continue;
      if (filter.active !== undefined && this.#active[slot] !== filter.active) continue;
      const groupId = this.#groupIds[slot];
      if (filter.groupIds !== undefined && (groupId === undefined || !filter.groupIds.has(groupId))) continue;
      if (text !== undefined && !name.includes(text) && !filter.search?.ids.has(index)) continue;
      if (found.length === limit) return { found, next: slot };
      found.push(index);
    }
    return { found, next: end < this.#names.length ? end : undefined };
  }

  #sharedId(id: string): string {
    const sharedId = this.#ids.get(id);
    if (sharedId === undefined) this.#ids.set(id, id);
    return sharedId ?? id;
  }
}

/** In lower case and composed (NFC): older records may have a name in another form. */
function searchable(text: string): string {
  return text.normalize('NFC').toLowerCase();
}
