/**
 * Every change that an operator can make to accounts, groups, keys and credits. A change is on disk first and
 * then in the live state, from which all threads see it at once. The admin interface uses it on the main
 * thread of a gateway process, or of a command.
 *
 * Expected failures are `invalid_parameters` (naming the field and the rule), `not_found` and `conflict`.
 *
 * Must hold: a change that does not get to disk leaves the live state as it was, and one that does is in it
 * also if its commit threw (commitAndApply in record-store.ts); a bulk creation makes all accounts or none.
 * Tests: test/unit/registry/registry-money.test.ts (a disk that fails rolls the words back),
 * test/unit/registry/registry.failed-commits.test.ts, test/unit/registry/registry.bulk-creation.test.ts.
 */
import { once } from 'node:events';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { DEMO_PLAN } from '../config/examples.js';
import { type AccountIndex, asAccountIndex, asPicoUnits } from '../core/units.js';
import { ProxyError, throwIfLeft } from '../core/errors.js';
import type { AccountRecord } from './account-record.js';
import type { AccountStatement } from './account-statement.js';
import { Accounts, type NewAccount } from './accounts.js';
import type { Catalog } from './catalog.js';
import { Credits } from './credits.js';
import { Groups } from './groups.js';
import { type CreatedKey, Keys, type NewKey } from './keys.js';
import type { Cause, ChangeNote, ChangeStore, OperatorChange, Recorded } from './operator-change.js';
import { Operators } from './operators.js';
import { isIdOf } from './record-id.js';
import { commitAndApply, ifReadable, type RecordStore } from './record-store.js';
import { recordMomentMs, type RegistryContext } from './registry-context.js';
import { KeptReport, type UsageGroup, type UsageLine, UsageReport, type UsageRow } from './usage-report.js';

/** Both ends are included. */
interface UsageHours {
  readonly fromHour: number;
  readonly toHour: number;
}

/** A field that is undefined does not restrict the report. Accounts and keys are named by id or name. */
export interface UsageRequest extends UsageHours {
  readonly by: UsageGroup;
  readonly account: string | undefined;
  readonly key: string | undefined;
  readonly model: string | undefined;
}

export interface UsageNames {
  readonly account: string | undefined;
  readonly key: string | undefined;
}

/** Where a page of rows begins. */
export interface UsageCursor {
  /** Of the account. */
  readonly slot: number;
  readonly hour: number;
  /** The row of that hour; default the first. */
  readonly row?: Pick<UsageRow, 'keyId' | 'modelId'> | undefined;
}

interface UsageRowsPage {
  readonly rows: readonly UsageRow[];
  readonly next: UsageCursor | undefined;
}

/** How many slots of accounts one page of usage rows reads: some 10 ms if they have no calls. */
const ACCOUNTS_READ_MAX = 1_000;

/** How many rows a report reads in one event-loop turn, in some 10 ms: 17 µs each. */
const REPORT_PAGE_ROWS = 500;

/**
 * A report that reads more pages than this is a long one, of 0.2 s and more. Long ones run one after the
 * other, because each may read the books for minutes, and so many of them may wait.
 */
const SHORT_REPORT_PAGES = 20;
const LONG_REPORTS_WAITING_MAX = 4;
const REPORT_RETRY_SECONDS = 30;

interface NewAccountWithKeys extends NewAccount {
  readonly keys: readonly NewKey[];
}

interface CreatedAccount {
  readonly statement: AccountStatement;
  readonly keys: readonly CreatedKey[];
}

interface MadeAccount {
  readonly record: AccountRecord;
  readonly created: readonly CreatedKey[];
}

const DEMO_NAME = 'demo';
/** 100.00 of the currency, in pico-units. */
const DEMO_CREDIT = asPicoUnits(100_000_000_000_000n);

export class Registry {
  readonly accounts: Accounts;
  readonly credits: Credits;
  readonly groups: Groups;
  readonly keys: Keys;
  readonly operators: Operators;
  readonly keptReport = new KeptReport();
  readonly #store: RecordStore;
  /** Shared with the parts. A reload replaces the catalogue in it. */
  readonly #context: { -readonly [Name in keyof RegistryContext]: RegistryContext[Name] };
  /** Those that run or wait, and the end of the last one. */
  #longReports = 0;
  #longReportEnd: Promise<void> = Promise.resolve();

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

  /** Make it by `mergeCatalogs`, so that indices stay, and set it when every listener has it. */
  set catalog(catalog: Catalog) {
    this.#context.catalog = catalog;
  }

  /** The log of operators' changes. */
  get changes(): Pick<ChangeStore, 'page' | 'verify'> {
    return this.#store.changes;
  }

  /**
   * Runs `work`, which may commit once, and records what it changes, as the change of `cause`. Returns its
   * row if there is one.
   */
  during<Result>(cause: Cause, work: () => Result): Recorded<Result> {
    const atMs = recordMomentMs(this.#context.clock);
    return this.#store.changes.during({ ...cause, atMs }, work);
  }

  /** Records a change of something outside of the registry, as the only change within `during`. */
  note(note: ChangeNote): void {
    this.#store.commit(() => this.#store.changes.note(note));
  }

  /**
   * Creates many accounts with their keys in one transaction, all of them or none, in the order of `items`.
   * They are on disk on return. Throws `invalid_parameters` that names the wrong item. Costs one fsync,
   * and 100 µs of the main thread for an account with two keys.
   */
  createInBulk(items: readonly NewAccountWithKeys[]): CreatedAccount[] {
    const { accounts, keys } = this;
    const put = (): readonly MadeAccount[] => {
      // Free slots are looked up once for all, because that takes longer than to put a record.
      const freeAccount = this.#store.freeAccountIndex();
      const freeKeys = keys.takeSlots(items.reduce((count, item) => count + item.keys.length, 0)).values();
      return items.map((item, at) => {
        const record = named(`accounts[${at}]`, () => accounts.put(item, asAccountIndex(freeAccount + at)));
        const created = item.keys.map((key, keyAt) =>
          named(`accounts[${at}].keys[${keyAt}]`, () => keys.put(record, key, freeKeys.next().value)),
        );
        return { record, created };
      });
    };
    return this.#make(put).map(({ record, created }) => ({
      statement: accounts.statementOf(record),
      keys: created,
    }));
  }

  /**
   * Reports the usage on disk, which is one flush behind a running gateway; each row as it is when its page
   * is read. The usage of a deleted key is found by its id only. Reads the rows of those hours alone, and
   * lets other work of the main thread run between its pages. Rejects with `invalid_parameters`, `not_found`
   * and, if LONG_REPORTS_WAITING_MAX wait already, `overloaded`. If `left` is aborted, it ends with the page
   * that it reads, and rejects.
   */
  async reportUsage(
    { account, key, model, by, fromHour, toHour }: UsageRequest,
    left?: AbortSignal,
  ): Promise<UsageLine[]> {
    const keyRecord =
      key === undefined
        ? undefined
        : isIdOf('key_', key)
          ? this.#store.keys.find(key)
          : this.keys.recordOf(key, account);
    const slot = account === undefined ? keyRecord?.accountIndex : this.accounts.recordOf(account).index;
    const report = new UsageReport({ keyId: keyRecord?.id ?? key, modelId: model, by });
    const hours = { fromHour, toHour };
    let from: UsageCursor | undefined = { slot: slot ?? 0, hour: 0 };
    let end: (() => void) | undefined;
    try {
      for (let pages = 0; from !== undefined; pages++) {
        throwIfLeft(left);
        if (pages === SHORT_REPORT_PAGES) end = await this.#longReportTurn(left);
        const page: UsageRowsPage = this.#rowsPage(hours, from, REPORT_PAGE_ROWS, {
          only: slot,
          splits: true,
        });
        report.add(page.rows);
        from = page.next;
        if (from !== undefined) await nextTurn();
      }
      return report.lines();
    } finally {
      end?.();
    }
  }

  /** Resolves when no other long report runs, with what ends the turn. Rejects once `left` is aborted. */
  async #longReportTurn(left: AbortSignal | undefined): Promise<() => void> {
    if (this.#longReports > LONG_REPORTS_WAITING_MAX) {
      const message = `${LONG_REPORTS_WAITING_MAX} long reports of usage wait already: try again.`;
      throw new ProxyError('overloaded', 'gateway', message, REPORT_RETRY_SECONDS);
    }
    this.#longReports += 1;
    const before = this.#longReportEnd;
    let end = (): void => undefined;
    this.#longReportEnd = new Promise((resolve) => (end = resolve));
    const endTurn = (): void => {
      this.#longReports -= 1;
      // If this one ends while it waits, the next one still waits for the one that runs.
      void before.then(end);
    };
    await (left === undefined ? before : Promise.race([before, once(left, 'abort')]));
    if (left?.aborted === true) endTurn();
    throwIfLeft(left);
    return endTurn;
  }

  /**
   * Returns the stored rows of those hours, by account: about `limit`, because the rows of an account's hour
   * stay together. `next` continues; a page that read many accounts without calls may be empty.
   */
  usageRows(hours: UsageHours, from: UsageCursor, limit: number): UsageRowsPage {
    return this.#rowsPage(hours, from, limit, {});
  }

  /** Rows of the account in slot `only`, or of all accounts. `splits`: a page may end within an hour. */
  #rowsPage(
    { fromHour, toHour }: UsageHours,
    from: UsageCursor,
    limit: number,
    { only, splits = false }: { readonly only?: AccountIndex | undefined; readonly splits?: boolean },
  ): UsageRowsPage {
    const store = this.#store;
    const rows: UsageRow[] = [];
    const end = only === undefined ? store.freeAccountIndex() : only + 1;
    const pageEnd = Math.min(end, from.slot + ACCOUNTS_READ_MAX);
    for (let slot = from.slot; slot < pageEnd; slot++) {
      const account = asAccountIndex(slot);
      const accountId = store.findAccountId(account);
      if (accountId === undefined) continue;
      const first = slot === from.slot ? Math.max(fromHour, from.hour) : fromHour;
      const fromRow = slot === from.slot ? from.row : undefined;
      let hour = -1;
      for (const row of store.usages({ account, fromHour: first, fromRow, toHour })) {
        if (rows.length >= limit && (splits || row.hour !== hour))
          return { rows, next: { slot, hour: row.hour, row: splits ? row : undefined } };
        hour = row.hour;
        rows.push({ ...row, accountId });
      }
    }
    return { rows, next: pageEnd < end ? { slot: pageEnd, hour: 0 } : undefined };
  }

  /**
   * Returns the names for the id of an account or a key in a report. `key` is undefined for an account and
   * for a key that was deleted, whose account is found by `accountId`. `account` is undefined for one that is
   * not in the books of this host, which were put back from an older copy or do not have it yet. Accounts are
   * never deleted. A damaged row has no names either: it is not worth a report without the others.
   */
  namesOf(id: string, accountId?: string): UsageNames {
    const key = ifReadable(() => this.#store.keys.find(id));
    const account = ifReadable(() => this.#store.findAccount(accountId ?? key?.accountId ?? id));
    return { account: account?.name, key: key?.name };
  }

  /**
   * On a store without accounts, creates the account `demo` on plan `demo` with 100.00 and one key, which is
   * returned only once. Otherwise returns no key; and no id if no account is named `demo`.
   */
  ensureDemo(): { accountId: string | undefined; key: string | undefined } {
    if (this.#store.listAccounts(0, 1).items.length > 0) {
      return { accountId: this.#store.findAccountByName(DEMO_NAME)?.id, key: undefined };
    }
    const [made] = this.#make(() => {
      const record = this.accounts.put({ name: DEMO_NAME, planId: DEMO_PLAN, credit: DEMO_CREDIT });
      return [{ record, created: [this.keys.put(record, { name: DEMO_NAME })] }];
    });
    return { accountId: made?.record.id, key: made?.created[0]?.key };
  }

  /** Puts accounts with their keys in one transaction, and makes the live state know them. */
  #make(put: () => readonly MadeAccount[]): readonly MadeAccount[] {
    const { accounts, keys } = this;
    return commitAndApply(
      this.#store,
      put,
      (made) => made.filter(({ record }) => this.#store.findAccount(record.id) !== undefined),
      (made) => {
        for (const { record, created } of made) {
          accounts.open(record);
          for (const key of created) keys.insert(key.record);
        }
      },
    );
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
 * How the admin interface reaches the registry: directly, or together with the processes that share it
 * (sharing/shared-registry.ts). `work` is synchronous. If the registry is shared, `work` may be run several
 * times; each run is undone before the next.
 */
export interface RegistryService {
  /** Returns what `work` reads; statements show what all processes use now. */
  read<Result>(work: (registry: Registry) => Result): Result | Promise<Result>;
  /**
   * Changes the registry, and records that as a change of `cause`, in one transaction. On return it is on
   * disk, and in force in every process of this host. If some processes did not apply it in time, `onBehind`
   * gets their number; they apply it as soon as they can.
   */
  change<Result>(
    cause: Cause,
    work: (registry: Registry) => Result,
    onBehind?: (processes: number) => void,
  ): Result | Promise<Result>;
}

/** The service of a process that is alone. `onChange` gets each change once it is on disk. */
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
