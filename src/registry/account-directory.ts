/**
 * Names, plans and status of all accounts, in memory. A search so reads only the records it found: looking
 * through 100,000 accounts takes some milliseconds, where reading their records would take half a second.
 * About 60 bytes an account. Accounts uses it on the main thread.
 *
 * A slot is never reused and a name never changes, so the lists only grow.
 */
import { asAccountIndex, type AccountIndex } from '../core/units.js';
import type { AccountRecord } from './account-record.js';

/** Every account has what is not given. */
export interface AccountFilter {
  /** `text`: part of the name, in any case. `ids`: accounts whose id was found to begin with it. */
  readonly search?: { readonly text: string; readonly ids: ReadonlySet<AccountIndex> } | undefined;
  readonly planId?: string | undefined;
  readonly active?: boolean | undefined;
}

/** Slots that one search looks at: some 30 ms. The page is then short, and its cursor continues. */
const SLOTS_PER_SEARCH_MAX = 500_000;

export class AccountDirectory {
  readonly #names: string[] = [];
  readonly #planIds: string[] = [];
  readonly #active: boolean[] = [];
  /** One string for each plan, however many records it was read from. */
  readonly #plans = new Map<string, string>();

  /** Adds an account, or sets its plan and status. */
  set({ index, name, planId, active }: AccountRecord): void {
    const plan = this.#plans.get(planId) ?? planId;
    this.#plans.set(plan, plan);
    this.#names[index] = name.toLowerCase();
    this.#planIds[index] = plan;
    this.#active[index] = active;
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
      if (text !== undefined && !this.#names[slot]?.includes(text) && !filter.search?.ids.has(index))
        continue;
      if (found.length === limit) return { found, next: slot };
      found.push(index);
    }
    return { found, next: end < this.#names.length ? end : undefined };
  }
}
