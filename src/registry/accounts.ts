/**
 * Accounts: made, found, listed, moved to a plan, disabled; on disk first and then in the ledger, where it takes effect on
 * all threads at once. Main thread of the gateway; or a command, on the store alone, while none runs.
 */
import { invariant } from '../core/errors.js';
import { decimalOf } from '../core/money.js';
import type { AccountIndex, PicoUnits } from '../core/units.js';
import { AccountDirectory } from './account-directory.js';
import type { AccountRecord } from './account-record.js';
import { accountStateOf, findPlanIndex } from './account-state.js';
import { isListed } from './catalog.js';
import {
  flushedStatement,
  liveStatement,
  sharedStatement,
  type AccountStatement,
} from './account-statement.js';
import { assertName, assertReference, createId, invalid, isId, notFound } from './record-id.js';
import type { Page } from './record-store.js';
import { recordMomentMs, type RegistryOptions } from './registry-options.js';

export interface NewAccount {
  readonly name: string;
  readonly planId: string;
  readonly credit: PicoUnits;
}

/** Accounts that have all of what is given. */
export interface AccountSearch {
  /** Part of the name, in any case, or the beginning of the id. */
  readonly text?: string | undefined;
  readonly planId?: string | undefined;
  readonly active?: boolean | undefined;
}

/** Of a million ids some 30 begin alike when three of their random characters are given. */
const ID_START = /^acct_[0-9a-z]{3,16}$/;
const IDS_FOUND_MAX = 1_000;

export class Accounts {
  readonly #options: RegistryOptions;
  #directory: AccountDirectory | undefined;

  constructor(options: RegistryOptions) {
    this.#options = options;
    this.#directory = options.directory;
  }

  /** Durable when it returns. Costs a disk flush. */
  create(request: NewAccount): AccountStatement {
    const record = this.#options.store.commit(() => this.put(request));
    this.open(record);
    return this.statementOf(record);
  }

  /** From slot `from` on, in the order of creation. */
  list(from: number, limit: number): Page<AccountStatement> {
    const { items, next } = this.#options.store.listAccounts(from, limit);
    return { items: items.map((record) => this.statementOf(record)), next };
  }

  /**
   * In the order of creation. A page may be short, or empty, and still have a cursor: a search looks at so many accounts at
   * once. Costs 5 ms for 100,000 accounts, and 15 µs for each that is found.
   */
  search({ text, planId, active }: AccountSearch, from: number, limit: number): Page<AccountStatement> {
    const search = text === undefined ? undefined : { text, ids: this.#idsFrom(text) };
    const { found, next } = this.#filledDirectory().find({ search, planId, active }, from, limit);
    return { items: found.map((index) => this.statementOf(this.#recordAt(index))), next };
  }

  find(idOrName: string): AccountStatement {
    return this.statementOf(this.recordOf(idOrName));
  }

  setPlan(idOrName: string, planId: string): AccountStatement {
    const planIndex = this.#planIndexOf(planId);
    const record = this.#change(idOrName, (account) => ({ ...account, planId }));
    const ledger = this.#options.live?.ledger;
    ledger?.setPlan(record.index, planIndex);
    // Recovery opens an account disabled whose plan has gone; it is on one again.
    ledger?.setActive(record.index, record.active);
    return this.statementOf(record);
  }

  /** A disabled account's keys are refused with `key_disabled`, on every thread from the moment this returns. */
  setActive(idOrName: string, active: boolean): AccountStatement {
    const { catalog, live } = this.#options;
    const record = this.#change(idOrName, (account) => ({ ...account, active }));
    live?.ledger.setActive(record.index, active && findPlanIndex(catalog, record.planId) !== undefined);
    return this.statementOf(record);
  }

  /** Puts a new account's record in a free slot, inside a commit; `open` follows when that is on disk. */
  put({ name, planId, credit }: NewAccount, index = this.#options.store.freeAccountIndex()): AccountRecord {
    const { store, accountsMax, clock } = this.#options;
    assertName('name', name);
    this.#planIndexOf(planId);
    if (credit < 0n) throw invalid(`credit must not be negative, got ${decimalOf(credit)}`);
    const taken = store.findAccountByName(name);
    if (taken !== undefined) throw invalid(`name must be unique, and ${taken.id} is named ${name} already`);
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
      createdMs,
      credited: credit,
    };
    store.putAccount(record);
    if (credit > 0n) store.openCredits(index, { amount: credit, note: 'opening balance', createdMs });
    return record;
  }

  /** Makes the ledger know an account that has just been put. */
  open(record: AccountRecord): void {
    const { live, catalog } = this.#options;
    live?.ledger.openAccount(record.index, accountStateOf(record, undefined, catalog));
    this.#note(record);
  }

  /** Throws `not_found`, or `invalid_parameters` where a key was given. */
  recordOf(idOrName: string): AccountRecord {
    const { store } = this.#options;
    assertReference('account', idOrName);
    const record = isId(idOrName) ? store.findAccount(idOrName) : store.findAccountByName(idOrName);
    if (record === undefined) throw notFound(`there is no account ${idOrName}: see the list of accounts`);
    return record;
  }

  statementOf(record: AccountRecord): AccountStatement {
    const statement = this.#moneyOf(record);
    const planMissing = findPlanIndex(this.#options.catalog, record.planId) === undefined;
    return planMissing ? { ...statement, planMissing } : statement;
  }

  #moneyOf(record: AccountRecord): AccountStatement {
    const { live, store, clock, uses } = this.#options;
    const nowMs = recordMomentMs(clock);
    if (live !== undefined) return liveStatement(record, live.ledger.snapshot(record.index), nowMs);
    const flushed = flushedStatement(record, store.findSpending(record.index), nowMs);
    return uses === undefined ? flushed : sharedStatement(flushed, uses.find(record.id), nowMs);
  }

  #change(idOrName: string, change: (account: AccountRecord) => AccountRecord): AccountRecord {
    const { store } = this.#options;
    const changed = store.commit(() => {
      const record = change(this.recordOf(idOrName));
      store.putAccount(record);
      return record;
    });
    this.#note(changed);
    return changed;
  }

  #note(record: AccountRecord): void {
    if (this.#options.followed !== true) this.#directory?.set(record);
  }

  #filledDirectory(): AccountDirectory {
    if (this.#directory !== undefined) return this.#directory;
    this.#directory = new AccountDirectory();
    for (const record of this.#options.store.accounts()) this.#directory.set(record);
    return this.#directory;
  }

  #idsFrom(text: string): Set<AccountIndex> {
    const start = text.toLowerCase();
    return new Set(
      ID_START.test(start) ? this.#options.store.findAccountsByIdStart(start, IDS_FOUND_MAX) : [],
    );
  }

  #recordAt(index: AccountIndex): AccountRecord {
    const id = this.#options.store.findAccountId(index);
    invariant(id !== undefined, `slot ${index} of the directory has an account`);
    return this.recordOf(id);
  }

  #planIndexOf(planId: string): number {
    const { catalog } = this.#options;
    const index = findPlanIndex(catalog, planId);
    if (index !== undefined) return index;
    const known = catalog.plans
      .filter(isListed)
      .map(({ id }) => id)
      .join(', ');
    throw invalid(`plan must be one of the settings' plans (${known}), got ${planId}`);
  }
}
