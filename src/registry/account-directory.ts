/**
 * Names, plans, groups and status of all accounts, in memory. A search so reads only the records it found:
 * looking through 100,000 accounts takes some milliseconds, where reading their records would take half a
 * second. About 60 bytes an account. Accounts uses it on the main thread.
 *
 * A slot is never reused and a name never changes, so the lists only grow.
 *
 * Must hold: it has every account of the store, whatever made or changed it. Test:
 * unit/registry/account-directory ("the registry keeps it, with or without a gateway").
 */
import { asAccountIndex, type AccountIndex } from '../core/units.js';
import type { AccountRecord } from './account-record.js';

/** Every account has what is not given. */
export interface AccountFilter {
  /** `text`: part of the name, in any case. `ids`: accounts whose id was found to begin with it. */
  readonly search?: { readonly text: string; readonly ids: ReadonlySet<AccountIndex> } | undefined;
  readonly planId?: string | undefined;
  readonly active?: boolean | undefined;
  /** Ids of groups; the account is in one of them. */
  readonly groupIds?: ReadonlySet<string> | undefined;
}

/** Slots that one search looks at: some 30 ms. The page is then short, and its cursor continues. */
const SLOTS_PER_SEARCH_MAX = 500_000;

export class AccountDirectory {
  readonly #names: string[] = [];
  readonly #planIds: string[] = [];
  readonly #active: boolean[] = [];
  readonly #groupIds: (string | undefined)[] = [];
  /** One string for each plan and group, however many records it was read from. */
  readonly #texts = new Map<string, string>();
  /** Accounts by the group that they are in. */
  readonly #counts = new Map<string, number>();

  /** Adds an account, or sets its plan, group and status. */
  set({ index, name, planId, active, groupId }: AccountRecord): void {
    this.#names[index] = name.toLowerCase();
    this.#planIds[index] = this.#textOf(planId);
    this.#active[index] = active;
    const former = this.#groupIds[index];
    if (former === groupId) return;
    if (former !== undefined) this.#counts.set(former, this.countOf(former) - 1);
    if (groupId !== undefined) this.#counts.set(groupId, this.countOf(groupId) + 1);
    this.#groupIds[index] = groupId === undefined ? undefined : this.#textOf(groupId);
  }

  /** Number of accounts that are in the group itself. */
  countOf(groupId: string): number {
    return this.#counts.get(groupId) ?? 0;
  }

  /**
   * Returns at most `limit` accounts from slot `from` on. `next` is the cursor that continues, also if none
   * was found yet.
   */
  find(
    filter: AccountFilter,
    from: number,
    limit: number,
  ): { found: AccountIndex[]; next: number | undefined } {
    const text = filter.search?.text.toLowerCase();
    const end = Math.min(this.#names.length, from + SLOTS_PER_SEARCH_MAX);
    const found: AccountIndex[] = [];
    for (let slot = from; slot < end; slot++) {
      const index = asAccountIndex(slot);
      if (filter.planId !== undefined && this.#planIds[slot] !== filter.planId) continue;
      if (filter.active !== undefined && this.#active[slot] !== filter.active) continue;
      const groupId = this.#groupIds[slot];
      if (filter.groupIds !== undefined && (groupId === undefined || !filter.groupIds.has(groupId))) continue;
      if (text !== undefined && !this.#names[slot]?.includes(text) && !filter.search?.ids.has(index))
        continue;
      if (found.length === limit) return { found, next: slot };
      found.push(index);
    }
    return { found, next: end < this.#names.length ? end : undefined };
  }

  #textOf(text: string): string {
    const known = this.#texts.get(text);
    if (known === undefined) this.#texts.set(text, text);
    return known ?? text;
  }
}
