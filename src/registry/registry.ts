/**
 * Accounts, keys and credits: every change an operator can make, on disk first and then in the shared buffers, where it
 * takes effect on all threads at once. Main thread of the gateway; or a command, on the store alone, while none runs.
 *
 * Expected failures are `invalid_parameters` (naming the field and the rule) and `not_found`.
 */
import type { Clock } from '../core/clock.js';
import { DEMO_PLAN } from '../config/defaults.js';
import type { ProxyError } from '../core/errors.js';
import { decimalOf } from '../core/money.js';
import { asPicoUnits, asWallMs, type PicoUnits, type WallMs } from '../core/units.js';
import { CREDITED_PICO_UNITS_MAX } from '../ledger/balance.js';
import type { Ledger } from '../ledger/ledger.js';
import type { AccountRecord } from './account-record.js';
import { accountStateOf, findPlanIndex } from './account-state.js';
import { flushedStatement, liveStatement, type AccountStatement } from './account-statement.js';
import type { Catalog } from './catalog.js';
import { digestOf, generateKey } from './key-digest.js';
import { prefixOf, type KeyRecord } from './key-record.js';
import type { KeyTable } from './key-table.js';
import { assertName, assertNoKey, createId, invalid, isId, notFound } from './record-id.js';
import type { Page, RecordStore } from './record-store.js';
import { reportUsage, type UsageLine, type UsageQuestion } from './usage-report.js';

/** What the running gateway's threads share; a command has none. */
export interface LiveBuffers {
  readonly ledger: Ledger;
  readonly keyTable: KeyTable;
}

export interface RegistryOptions {
  readonly store: RecordStore;
  readonly catalog: Catalog;
  readonly clock: Clock;
  /** Slots of the ledger and of the key table (`limits.accounts`, `limits.keys`). */
  readonly accountsMax: number;
  readonly keysMax: number;
  readonly live: LiveBuffers | undefined;
}

/** A new key; `key` is known here alone and can never be had again. */
export interface CreatedKey {
  readonly record: KeyRecord;
  readonly key: string;
}

const DEMO_NAME = 'demo';
const DEMO_CREDIT = asPicoUnits(100_000_000_000_000n);

/**
 * How long a deleted key's slot stays unused. A call that found the former key names its slot in the journal when it ends,
 * an hour later at most, and the hour's usage row is known by the slot while it is in memory.
 */
const KEY_INDEX_REST_MS = 24 * 3_600_000;

/** Of a journal line: a sentence and a document's number, not the document. */
const NOTE_CHARS_MAX = 500;

export class Registry {
  readonly catalog: Catalog;
  readonly #store: RecordStore;
  readonly #clock: Clock;
  readonly #accountsMax: number;
  readonly #keysMax: number;
  readonly #live: LiveBuffers | undefined;

  constructor(options: RegistryOptions) {
    this.catalog = options.catalog;
    this.#store = options.store;
    this.#clock = options.clock;
    this.#accountsMax = options.accountsMax;
    this.#keysMax = options.keysMax;
    this.#live = options.live;
  }

  /** Durable when it returns. Costs a disk flush. */
  createAccount(request: { name: string; planId: string; credit: PicoUnits }): AccountStatement {
    const record = this.#store.commit(() => this.#putNewAccount(request));
    this.#openAccount(record);
    return this.#statementOf(record);
  }

  /** From slot `from` on, in the order of creation. */
  listAccounts(from: number, limit: number): Page<AccountStatement> {
    const { items, next } = this.#store.listAccounts(from, limit);
    return { items: items.map((record) => this.#statementOf(record)), next };
  }

  findAccount(idOrName: string): AccountStatement {
    return this.#statementOf(this.#accountOf(idOrName));
  }

  /** What is on disk: a running gateway is ahead of it by one flush. */
  reportUsage(question: Omit<UsageQuestion, 'account'> & { account: string | undefined }): UsageLine[] {
    const account = question.account === undefined ? undefined : this.#accountOf(question.account).index;
    return reportUsage({ ...question, account }, (range) => this.#store.usages(range));
  }

  /** A negative amount is a debit, refused where the balance does not cover it. */
  credit(idOrName: string, amount: PicoUnits, note: string): AccountStatement {
    if (amount === 0n) throw invalid('amount must not be zero');
    assertNote(note);
    if (amount > 0n) {
      const record = this.#store.commit(() => this.#putCredit(idOrName, amount, note));
      this.#live?.ledger.credit(record.index, amount);
      return this.#statementOf(record);
    }
    return this.#debit(idOrName, amount, note);
  }

  setPlan(idOrName: string, planId: string): AccountStatement {
    const planIndex = this.#planIndexOf(planId);
    const record = this.#changeAccount(idOrName, (account) => ({ ...account, planId }));
    this.#live?.ledger.setPlan(record.index, planIndex);
    // Recovery opens an account disabled whose plan has gone; it is on one again.
    this.#live?.ledger.setActive(record.index, record.active);
    return this.#statementOf(record);
  }

  /** A disabled account's keys are refused with `key_disabled`, on every thread from the moment this returns. */
  setAccountActive(idOrName: string, active: boolean): AccountStatement {
    const record = this.#changeAccount(idOrName, (account) => ({ ...account, active }));
    this.#live?.ledger.setActive(
      record.index,
      active && findPlanIndex(this.catalog, record.planId) !== undefined,
    );
    return this.#statementOf(record);
  }

  createKey(request: { account: string; name: string }): CreatedKey {
    const key = generateKey();
    const record = this.#store.commit(() =>
      this.#putNewKey(this.#accountOf(request.account), request.name, key),
    );
    this.#insertKey(record);
    return { record, key };
  }

  /** From key slot `from` on; of all accounts where none is given. */
  listKeys(account: string | undefined, from: number, limit: number): Page<KeyRecord> {
    const index = account === undefined ? undefined : this.#accountOf(account).index;
    return this.#store.listKeys(index, from, limit);
  }

  /** Takes effect on every thread before it returns, as does `deleteKey`. */
  setKeyActive(idOrName: string, active: boolean): KeyRecord {
    const record = this.#store.commit(() => {
      const changed = { ...this.#keyOf(idOrName), active };
      this.#store.putKey(changed);
      return changed;
    });
    this.#live?.keyTable.setActive(record.index, active);
    return record;
  }

  deleteKey(idOrName: string): KeyRecord {
    const record = this.#store.commit(() => {
      const found = this.#keyOf(idOrName);
      this.#store.removeKey(found, this.#nowMs());
      return found;
    });
    this.#live?.keyTable.remove(record.index);
    return record;
  }

  /**
   * On a store without any account: makes account `demo` on plan `demo` with 100.00 and one key, which is returned this
   * once. Else no key; and no id where there are accounts but none of that name.
   */
  ensureDemo(): { accountId: string | undefined; key: string | undefined } {
    if (this.#store.listAccounts(0, 1).items.length > 0) {
      return { accountId: this.#store.findAccountByName(DEMO_NAME)?.id, key: undefined };
    }
    const key = generateKey();
    const made = this.#store.commit(() => {
      const account = this.#putNewAccount({ name: DEMO_NAME, planId: DEMO_PLAN, credit: DEMO_CREDIT });
      return { account, record: this.#putNewKey(account, DEMO_NAME, key) };
    });
    this.#openAccount(made.account);
    this.#insertKey(made.record);
    return { accountId: made.account.id, key };
  }

  #putNewAccount(request: { name: string; planId: string; credit: PicoUnits }): AccountRecord {
    const { name, planId, credit } = request;
    assertName('name', name);
    this.#planIndexOf(planId);
    if (credit < 0n) throw invalid(`credit must not be negative, got ${decimalOf(credit)}`);
    const taken = this.#store.findAccountByName(name);
    if (taken !== undefined) throw invalid(`name must be unique, and ${taken.id} is named ${name} already`);
    const index = this.#store.freeAccountIndex();
    if (index >= this.#accountsMax) {
      throw invalid(
        `there are ${index} accounts, the most that limits.accounts allows: raise it and restart`,
      );
    }
    const createdMs = this.#nowMs();
    const record: AccountRecord = {
      index,
      id: createId('acct_'),
      name,
      planId,
      active: true,
      createdMs,
      credited: credit,
    };
    this.#store.putAccount(record);
    if (credit > 0n) this.#store.addCredit(index, { amount: credit, note: 'opening balance', createdMs });
    return record;
  }

  #putNewKey(account: AccountRecord, name: string, key: string): KeyRecord {
    assertName('name', name);
    const nowMs = this.#nowMs();
    const index = this.#store.takeKeyIndex(asWallMs(nowMs - KEY_INDEX_REST_MS));
    if (index >= this.#keysMax) {
      throw invalid(
        `limits.keys allows ${this.#keysMax} keys, of which those deleted in the last 24 hours still count: ` +
          'raise it and restart',
      );
    }
    const record: KeyRecord = {
      index,
      id: createId('key_'),
      accountIndex: account.index,
      accountId: account.id,
      name,
      digest: digestOf(key),
      prefix: prefixOf(key),
      active: true,
      createdMs: nowMs,
    };
    this.#store.putKey(record);
    return record;
  }

  #putCredit(idOrName: string, amount: PicoUnits, note: string): AccountRecord {
    const account = this.#accountOf(idOrName);
    const credited = asPicoUnits(account.credited + amount);
    if (credited > CREDITED_PICO_UNITS_MAX) {
      throw invalid(
        `amount must leave the sum of all credits at or below ${decimalOf(CREDITED_PICO_UNITS_MAX)}, ` +
          `and it is ${decimalOf(account.credited)} already`,
      );
    }
    const record = { ...account, credited };
    this.#store.putAccount(record);
    this.#store.addCredit(record.index, { amount, note, createdMs: this.#nowMs() });
    return record;
  }

  /**
   * The other way round than a credit: the live balance gives the money up before the disk hears of it, so that no call
   * can spend it in between. Charges that are not flushed yet make the live balance the lower one, so what it covers the
   * disk covers too.
   */
  #debit(idOrName: string, amount: PicoUnits, note: string): AccountStatement {
    if (this.#live === undefined) return this.#debitOnDisk(idOrName, amount, note);
    const { ledger } = this.#live;
    const account = this.#accountOf(idOrName);
    if (!ledger.credit(account.index, amount)) throw notCovered(this.#statementOf(account));
    try {
      return this.#statementOf(this.#store.commit(() => this.#putCredit(account.id, amount, note)));
    } catch (error) {
      ledger.credit(account.index, asPicoUnits(0n - amount));
      throw error;
    }
  }

  /** Looks and takes in one transaction, so that two commands at once cannot take the same money. */
  #debitOnDisk(idOrName: string, amount: PicoUnits, note: string): AccountStatement {
    const record = this.#store.commit(() => {
      const statement = this.findAccount(idOrName);
      if (statement.available + amount < 0n) throw notCovered(statement);
      return this.#putCredit(idOrName, amount, note);
    });
    return this.#statementOf(record);
  }

  #changeAccount(idOrName: string, change: (account: AccountRecord) => AccountRecord): AccountRecord {
    return this.#store.commit(() => {
      const record = change(this.#accountOf(idOrName));
      this.#store.putAccount(record);
      return record;
    });
  }

  #openAccount(record: AccountRecord): void {
    this.#live?.ledger.openAccount(record.index, accountStateOf(record, undefined, this.catalog));
  }

  #insertKey(record: KeyRecord): void {
    this.#live?.keyTable.insert(record.index, record.digest, record.accountIndex, record.active);
  }

  #accountOf(idOrName: string): AccountRecord {
    assertNoKey(idOrName);
    const record = isId(idOrName)
      ? this.#store.findAccount(idOrName)
      : this.#store.findAccountByName(idOrName);
    if (record === undefined) throw notFound(`there is no account ${idOrName}: see the list of accounts`);
    return record;
  }

  #keyOf(idOrName: string): KeyRecord {
    assertNoKey(idOrName);
    if (isId(idOrName)) {
      const record = this.#store.findKey(idOrName);
      if (record !== undefined) return record;
    } else {
      const [first, second] = this.#store.findKeysByName(idOrName, 2);
      if (second !== undefined) throw invalid(`several keys are named ${idOrName}: give the id of one`);
      if (first !== undefined) return first;
    }
    throw notFound(`there is no key ${idOrName}: see the list of keys`);
  }

  #planIndexOf(planId: string): number {
    const index = findPlanIndex(this.catalog, planId);
    if (index !== undefined) return index;
    const known = this.catalog.plans.map((plan) => plan.id).join(', ');
    throw invalid(`plan must be one of the settings' plans (${known}), got ${planId}`);
  }

  #statementOf(record: AccountRecord): AccountStatement {
    const nowMs = this.#nowMs();
    return this.#live === undefined
      ? flushedStatement(record, this.#store.findSpending(record.index), nowMs)
      : liveStatement(record, this.#live.ledger.snapshot(record.index), nowMs);
  }

  #nowMs(): WallMs {
    // Records hold whole milliseconds.
    return asWallMs(Math.floor(this.#clock.wallMs()));
  }
}

function notCovered({ available }: AccountStatement): ProxyError {
  return invalid(`amount must not take more than the balance of ${decimalOf(available)}`);
}

function assertNote(note: string): void {
  if (note.length > NOTE_CHARS_MAX) {
    throw invalid(`note must have at most ${NOTE_CHARS_MAX} characters, got ${note.length}`);
  }
}
