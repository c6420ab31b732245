/**
 * Creates, finds and lists accounts, moves them to a plan or a group, disables them. registry.ts makes the
 * object for the admin interface and the commands; keys.ts and credits.ts find accounts by it. Main thread of
 * a gateway process, or a command.
 *
 * Must hold: a request from which no account can be made leaves no trace: no record, no name that is taken,
 * no slot (test/unit/registry/registry.test.ts; for `search` test/unit/registry/account-directory.test.ts).
 *
 * An account whose plan is no longer in the settings is listed here with `planMissing`. live-buffers.ts keeps
 * the account disabled in the live state until it has a plan (same test).
 */
import { invariant } from '../core/errors.js';
import { decimalOf } from '../core/money.js';
import { NO_QUOTAS } from '../core/quotas.js';
import type { AccountIndex, PicoUnits } from '../core/units.js';
import { clipped } from '../core/wrong-input.js';
import type { AccountRecord } from './account-record.js';
import { isListed } from './catalog.js';
import type { AccountStatement } from './account-statement.js';
import type { Groups } from './groups.js';
import { findPlanIndex } from './live-buffers.js';
import { assertReference, createId, findSpelled, invalid, isId, newName, notFound } from './record-id.js';
import { commitAndApply, type Page } from './record-store.js';
import { recordMomentMs, type RegistryContext } from './registry-context.js';

export interface NewAccount {
  readonly name: string;
  readonly planId: string;
  readonly credit: PicoUnits;
  /** Id or name. */
  readonly group?: string | undefined;
}

/** Selects the accounts that match every field that is given. */
interface AccountSearch {
  /** Part of the name, in any case, or the beginning of the id. */
  readonly text?: string | undefined;
  readonly planId?: string | undefined;
  readonly active?: boolean | undefined;
  /** Id or name of a group: accounts in it and in the groups below it. */
  readonly group?: string | undefined;
}

/** How much of a wrong plan a message repeats. The text of a request may have megabytes. */
const PLAN_CHARS_SHOWN_MAX = 100;
/** A text that may be the beginning of an id. A text with fewer characters would match too many ids. */
const ID_START = /^acct_[0-9a-z]{3,16}$/;
/** How many accounts are found by an ID_START. Of a million random ids some 30 begin with the same three. */
const IDS_FOUND_MAX = 1_000;

export class Accounts {
  readonly #context: RegistryContext;
  readonly #groups: Groups;

  constructor(context: RegistryContext, groups: Groups) {
    this.#context = context;
    this.#groups = groups;
  }

  /**
   * The account is on disk and in the live state on return, which costs an fsync. If the commit throws, the
   * live state gets what is on disk. Throws `invalid_parameters`, and `not_found` for an unknown group.
   */
  create(request: NewAccount): AccountStatement {
    const { store, live, catalog } = this.#context;
    const record = commitAndApply(
      store,
      () => this.put(request),
      ({ id }) => store.findAccount(id),
      (account) => live.openAccount(account, catalog),
    );
    return this.statementOf(record);
  }

  /** Returns accounts from slot `from` on, which is the order of their creation. */
  list(from: number, limit: number): Page<AccountStatement> {
    const { items, next } = this.#context.store.listAccounts(from, limit);
    return { items: items.map((record) => this.statementOf(record)), next };
  }

  /**
   * Returns accounts in the order of creation, from slot `from` on. A page may be short or empty and still
   * have `next`, because account-directory.ts bounds how many slots one search reads. Costs 5 ms for 100,000
   * accounts, and 15 µs for each result.
   */
  search(
    { text, planId, active, group }: AccountSearch,
    from: number,
    limit: number,
  ): Page<AccountStatement> {
    const textSearch = text === undefined ? undefined : { text, ids: this.#slotsByIdStart(text) };
    const groupIds =
      group === undefined ? undefined : this.#groups.idsBelow(this.#groups.recordOf(group, 'group'));
    const filter = { search: textSearch, planId, active, groupIds };
    const { found, next } = this.#context.live.directory().find(filter, from, limit);
    return { items: found.map((index) => this.statementOf(this.#recordAt(index))), next };
  }

  /** Throws `not_found`, or `invalid_parameters` if an API key was given; so do the changes below. */
  find(idOrName: string): AccountStatement {
    return this.statementOf(this.recordOf(idOrName));
  }

  /** Throws `invalid_parameters` for a plan that the settings lack. */
  setPlan(idOrName: string, planId: string): AccountStatement {
    this.#assertPlan(planId);
    return this.#change(idOrName, (account) => ({ ...account, planId }));
  }

  /** Puts the account in `group`, or in none. Calls in flight stay counted in their former group. */
  setGroup(idOrName: string, group: string | undefined): AccountStatement {
    return this.#change(idOrName, (account) => ({
      ...account,
      groupId: group === undefined ? undefined : this.#groups.recordOf(group, 'group').id,
    }));
  }

  /** A disabled account's keys are rejected with `key_disabled`. */
  setActive(idOrName: string, active: boolean): AccountStatement {
    return this.#change(idOrName, (account) => ({ ...account, active }));
  }

  /**
   * Stores the record of a new account in slot `index`, and its credit, or throws `invalid_parameters` or
   * `not_found` before anything is stored. Call it in a commit, and `openAccount` of the live state after the
   * commit, or no listener knows the account before the next start. registry.ts does so for accounts with
   * keys; for many accounts it counts `index` up itself.
   */
  put(request: NewAccount, index = this.#context.store.freeAccountIndex()): AccountRecord {
    const { planId, credit, group } = request;
    const { store, accountsMax, clock } = this.#context;
    const name = newName('name', request.name);
    this.#assertPlan(planId);
    if (credit < 0n) throw invalid(`credit must not be negative, got ${decimalOf(credit)}`);
    const namesake = this.#findByName(name);
    if (namesake !== undefined)
      throw invalid(`name must be unique, and ${namesake.id} is named ${name} already`);
    if (index >= accountsMax) {
      throw invalid(
        `there are ${index} accounts, the most that limits.accounts allows: raise it and restart`,
      );
    }
    const createdMs = recordMomentMs(clock);
    const record: AccountRecord = {
      index,
      id: createId('acct_'),
      name,
      planId,
      active: true,
      groupId: group === undefined ? undefined : this.#groups.recordOf(group, 'group').id,
      createdMs,
      credited: credit,
    };
    store.putAccount(record);
    if (credit > 0n) store.openCredits(index, { amount: credit, note: 'opening balance', createdMs });
    return record;
  }

  /** Throws as `find`. */
  recordOf(idOrName: string): AccountRecord {
    const { store } = this.#context;
    assertReference('account', idOrName);
    const record = isId(idOrName) ? store.findAccount(idOrName) : this.#findByName(idOrName);
    if (record === undefined) throw notFound(`there is no account ${idOrName}: see the list of accounts`);
    return record;
  }

  #findByName(name: string): AccountRecord | undefined {
    return findSpelled(name, (spelling) => this.#context.store.findAccountByName(spelling));
  }

  statementOf(record: AccountRecord): AccountStatement {
    const { live, clock, catalog } = this.#context;
    const statement = live.statementOf(record, recordMomentMs(clock));
    const planIndex = findPlanIndex(catalog, record.planId);
    const limits = planIndex === undefined ? NO_QUOTAS : catalog.plans[planIndex]!.quotas;
    const group = record.groupId === undefined ? undefined : this.#groups.groupPathOf(record.groupId);
    return {
      ...statement,
      quotas: live.quotasOf(
        { kind: 'account', index: record.index, id: record.id, limits },
        recordMomentMs(clock),
      ),
      ...(planIndex === undefined ? { planMissing: true } : {}),
      ...(group === undefined ? {} : { group }),
    };
  }

  /** Stores the changed record in one commit, then applies it to the live state: see `commitAndApply`. */
  #change(idOrName: string, change: (account: AccountRecord) => AccountRecord): AccountStatement {
    const { store, live, catalog } = this.#context;
    const put = (): AccountRecord => {
      const record = change(this.recordOf(idOrName));
      store.putAccount(record);
      return record;
    };
    const changed = commitAndApply(
      store,
      put,
      ({ id }) => store.findAccount(id),
      (account) => live.changeAccount(account, catalog),
    );
    return this.statementOf(changed);
  }

  /** The slots of accounts whose id begins with `text`. */
  #slotsByIdStart(text: string): Set<AccountIndex> {
    const start = text.toLowerCase();
    return new Set(
      ID_START.test(start) ? this.#context.store.findAccountsByIdStart(start, IDS_FOUND_MAX) : [],
    );
  }

  #recordAt(index: AccountIndex): AccountRecord {
    const id = this.#context.store.findAccountId(index);
    invariant(id !== undefined, `slot ${index} of the directory has an account`);
    return this.recordOf(id);
  }

  #assertPlan(planId: string): void {
    const { catalog } = this.#context;
    if (findPlanIndex(catalog, planId) !== undefined) return;
    // Plans that a reload has removed stay in the catalogue, without being listed.
    const listed = catalog.plans
      .filter(isListed)
      .map(({ id }) => id)
      .join(', ');
    throw invalid(
      `plan must be one of the settings' plans (${listed}), got ${clipped(planId, PLAN_CHARS_SHOWN_MAX)}`,
    );
  }
}
