/**
 * Every change that an operator can make to accounts, groups, keys and credits. A change is on disk first and
 * then in the live state, from which all threads see it at once. The admin interface uses it on the main
 * thread of a gateway process, or of a command.
 *
 * Expected failures are `invalid_parameters` (naming the field and the rule), `not_found` and `conflict`.
 *
 * Must hold: a change that the disk does not take leaves the live state as it was, and a bulk creation is
 * whole or nothing. Tests: unit/registry/registry-money (a disk that fails rolls the words back),
 * registry.bulk-creation.
 */
import { DEMO_PLAN } from '../config/examples.js';
import { asAccountIndex, asPicoUnits } from '../core/units.js';
import { ProxyError } from '../core/errors.js';
import type { AccountStatement } from './account-statement.js';
import { Accounts, type NewAccount } from './accounts.js';
import type { Catalog } from './catalog.js';
import { Credits } from './credits.js';
import { Groups } from './groups.js';
import { type CreatedKey, Keys, type NewKey } from './keys.js';
import type { Cause, ChangeNote, ChangeStore, OperatorChange, Recorded } from './operator-change.js';
import { Operators } from './operators.js';
import { isId } from './record-id.js';
import type { RecordStore } from './record-store.js';
import { recordMomentMs, type RegistryContext } from './registry-context.js';
import { reportUsage, type UsageLine, type UsageQuestion, type UsageRecord } from './usage-report.js';

/** What is undefined does not restrict the report. Accounts and keys by id or name. */
export interface UsageRequest extends Pick<UsageQuestion, 'fromHour' | 'toHour' | 'by'> {
  readonly account: string | undefined;
  readonly key: string | undefined;
  readonly model: string | undefined;
}

export interface UsageNames {
  readonly account: string | undefined;
  readonly key: string | undefined;
}

/** Both ends are included. */
type UsageHours = Pick<UsageQuestion, 'fromHour' | 'toHour'>;

/** Where a page of rows begins. */
export interface UsageCursor {
  /** Of the account. */
  readonly slot: number;
  readonly hour: number;
}

export interface UsageRow extends UsageRecord {
  readonly accountId: string;
}

export interface UsageRowsPage {
  readonly rows: readonly UsageRow[];
  readonly next: UsageCursor | undefined;
}

/** Of one page of usage rows: some 10 ms without a call. */
const ACCOUNTS_READ_MAX = 1_000;

export interface NewAccountWithKeys extends NewAccount {
  readonly keys: readonly NewKey[];
}

export interface CreatedAccount {
  readonly statement: AccountStatement;
  readonly keys: readonly CreatedKey[];
}

const DEMO_NAME = 'demo';
const DEMO_CREDIT = asPicoUnits(100_000_000_000_000n);

export class Registry {
  readonly accounts: Accounts;
  readonly credits: Credits;
  readonly groups: Groups;
  readonly keys: Keys;
  readonly operators: Operators;
  readonly #store: RecordStore;
  /** Shared with the parts. A reload replaces the catalogue in it. */
  readonly #context: { -readonly [Name in keyof RegistryContext]: RegistryContext[Name] };

  constructor(given: RegistryContext) {
    const context = { ...given };
    this.#context = context;
    this.groups = new Groups(context);
    this.accounts = new Accounts(context, this.groups);
    this.credits = new Credits(context, this.accounts);
    this.keys = new Keys(context, this.accounts);
    this.operators = new Operators(context);
    this.#store = context.store;
  }

  get catalog(): Catalog {
    return this.#context.catalog;
  }

  /** Indices must mean what they meant before (mergeCatalogs), and every listener must know the new ones. */
  set catalog(catalog: Catalog) {
    this.#context.catalog = catalog;
  }

  /** Who changed what. */
  get changes(): Pick<ChangeStore, 'page' | 'verify'> {
    return this.#store.changes;
  }

  /**
   * Runs `work`, and has what it changes recorded as the change of `cause`. Returns the row too, if anything
   * was changed.
   */
  during<Result>(cause: Cause, work: () => Result): Recorded<Result> {
    const atMs = recordMomentMs(this.#context.clock);
    return this.#store.changes.during({ ...cause, atMs }, work);
  }

  /** Records a change of what is not in the registry, as the only change within `during`. */
  note(note: ChangeNote): void {
    this.#store.commit(() => this.#store.changes.note(note));
  }

  /**
   * Many accounts with their keys in one transaction, for moving in from elsewhere: all of them or none.
   * Durable when it returns, in the order of `items`. Throws `invalid_parameters` that names the wrong item.
   * Costs one disk flush, and 100 µs an account with two keys, during which the main thread does nothing
   * else.
   */
  createInBulk(items: readonly NewAccountWithKeys[]): CreatedAccount[] {
    const { accounts, keys } = this;
    const made = this.#store.commit(() => {
      // Free slots are looked up once: that takes longer than to put a record.
      const freeAccount = this.#store.freeAccountIndex();
      const freeKeys = keys.takeSlots(items.reduce((count, item) => count + item.keys.length, 0)).values();
      return items.map((item, at) => {
        const record = named(`accounts[${at}]`, () => accounts.put(item, asAccountIndex(freeAccount + at)));
        const created = item.keys.map((key, keyAt) =>
          named(`accounts[${at}].keys[${keyAt}]`, () => keys.put(record, key, freeKeys.next().value)),
        );
        return { record, created };
      });
    });
    return made.map(({ record, created }) => {
      accounts.open(record);
      for (const key of created) keys.insert(key.record);
      return { statement: accounts.statementOf(record), keys: created };
    });
  }

  /**
   * Reports what is on disk; a running gateway is ahead of it by one flush. The usage of a deleted key is
   * found by its id, no longer by its name. Throws `invalid_parameters` and `not_found`.
   */
  reportUsage({ account, key, model, ...rest }: UsageRequest): UsageLine[] {
    const store = this.#store;
    const keyRecord = key === undefined || isId(key) ? undefined : this.keys.find(key).record;
    const question: UsageQuestion = {
      ...rest,
      account: account === undefined ? keyRecord?.accountIndex : this.accounts.recordOf(account).index,
      keyId: keyRecord?.id ?? key,
      modelId: model,
    };
    return reportUsage(
      question,
      (range) => store.usages(range),
      (index) => store.findAccountId(index) ?? `slot ${index}`,
    );
  }

  /**
   * Returns the stored rows of those hours, by account, about `limit` of them: all of an account's hour come
   * together. `next` goes on; a page that looked through many accounts without calls may be empty.
   */
  usageRows({ fromHour, toHour }: UsageHours, from: UsageCursor, limit: number): UsageRowsPage {
    const rows: UsageRow[] = [];
    const { items, next } = this.#store.listAccounts(from.slot, ACCOUNTS_READ_MAX);
    for (const { index, id } of items) {
      const first = index === from.slot ? Math.max(fromHour, from.hour) : fromHour;
      let hour = -1;
      for (const row of this.#store.usages({ account: index, fromHour: first, toHour })) {
        if (row.hour !== hour && rows.length >= limit) return { rows, next: { slot: index, hour: row.hour } };
        hour = row.hour;
        rows.push({ ...row, accountId: id });
      }
    }
    return { rows, next: next === undefined ? undefined : { slot: next, hour: 0 } };
  }

  /** Returns the names of an account or a key that a report names by its id. No name if it is deleted. */
  namesOf(id: string): UsageNames {
    const key = this.#store.keys.find(id);
    return { account: this.#store.findAccount(key?.accountId ?? id)?.name, key: key?.name };
  }

  /**
   * On a store without accounts, creates the account `demo` on plan `demo` with 100.00 and one key, which is
   * returned only once. Otherwise returns no key; and no id if no account is named `demo`.
   */
  ensureDemo(): { accountId: string | undefined; key: string | undefined } {
    if (this.#store.listAccounts(0, 1).items.length > 0) {
      return { accountId: this.#store.findAccountByName(DEMO_NAME)?.id, key: undefined };
    }
    const made = this.#store.commit(() => {
      const account = this.accounts.put({ name: DEMO_NAME, planId: DEMO_PLAN, credit: DEMO_CREDIT });
      return { account, created: this.keys.put(account, { name: DEMO_NAME }) };
    });
    this.accounts.open(made.account);
    this.keys.insert(made.created.record);
    return { accountId: made.account.id, key: made.created.key };
  }
}

/** Names the item in a rejection of it. */
function named<Result>(item: string, work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof ProxyError)) throw error;
    throw new ProxyError(error.code, error.source, `${item}: ${error.message}`);
  }
}

/**
 * How the admin interface reaches the registry: directly, or by way of the processes that share it
 * (sharing/shared-registry.ts). `work` is synchronous. If the registry is shared, it may be run several
 * times, and what it wrote is undone before.
 */
export interface RegistryService {
  /** Returns what `work` reads, of accounts with what all processes use of them now. */
  read<Result>(work: (registry: Registry) => Result): Result | Promise<Result>;
  /**
   * Changes the registry in one transaction, and records it as a change of `cause` in the same one. It is
   * durable, and in force in every process of this host, when the result is there. If some processes did not
   * apply it in time, `onBehind` gets their number; they do as soon as they can.
   */
  change<Result>(
    cause: Cause,
    work: (registry: Registry) => Result,
    onBehind?: (processes: number) => void,
  ): Result | Promise<Result>;
}

/** The service of the only process. `onChange` is told of each change once it is durable. */
export function ownRegistryService(
  registry: Registry,
  onChange: (change: OperatorChange) => void = () => undefined,
): RegistryService {
  return {
    read: (work) => work(registry),
    change: (cause, work) => {
      const { result, change } = registry.during(cause, () => work(registry));
      if (change !== undefined) onChange(change);
      return result;
    },
  };
}
