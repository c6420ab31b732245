/**
 * The registry: every change that operators can make to accounts, groups, keys, credits and operators, and
 * the reports of usage. The routes of src/admin use it through a RegistryService. gateway/accounting.ts,
 * gateway/shared-accounting.ts and cli/store-client.ts make a Registry. Main thread, or a command.
 *
 * Rejections are `invalid_parameters` (naming the field and the rule), `not_found` and `conflict`.
 *
 * Must hold: a change that is not on disk leaves the live state as it was. A change that is on disk gets into
 * the live state, even if its commit threw (commitAndApply in record-store.ts). A bulk creation makes all
 * accounts or none. Tests: test/unit/registry/registry-money.test.ts (a failing disk rolls the ledger back),
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
import type { Cause, ChangeDetails, ChangeStore, OperatorChange, Recorded } from './operator-change.js';
import { Operators } from './operators.js';
import type { KeyRecord } from './key-record.js';
import { isIdOf } from './record-id.js';
import { commitAndApply, ifReadable, type RecordStore } from './record-store.js';
import { recordMomentMs, type RegistryContext } from './registry-context.js';
import { KeptReport, type UsageGroup, type UsageLine, UsageReport, type UsageRow } from './usage-report.js';

/** Unix hours; both ends are included. */
interface UsageHours {
  readonly fromHour: number;
  readonly toHour: number;
}

/** A field that is undefined does not restrict the report. An account or a key is given by id or name. */
export interface UsageRequest extends UsageHours {
  readonly by: UsageGroup;
  readonly account: string | undefined;
  readonly key: string | undefined;
  readonly model: string | undefined;
}

/** A name is undefined if it is not known; `namesOf` says when. */
export interface UsageNames {
  readonly account: string | undefined;
  readonly key: string | undefined;
}

/** Where a page of rows begins. */
export interface UsageCursor {
  /** The account's slot. */
  readonly slot: number;
  readonly hour: number;
  /** The row of that hour with which the page begins; undefined for the first. */
  readonly row?: Pick<UsageRow, 'keyId' | 'modelId'> | undefined;
}

interface UsageRowsPage {
  readonly rows: readonly UsageRow[];
  readonly next: UsageCursor | undefined;
}

/** How many accounts one page of usage rows reads: a page of accounts without calls takes some 10 ms. */
const ACCOUNTS_READ_MAX = 1_000;

/** How many rows a report reads in one event-loop turn. A row takes 17 µs, so a turn takes some 10 ms. */
const REPORT_PAGE_ROWS = 500;

/**
 * A report of more pages is long: it takes 0.2 s and more. Long reports run one after the other, because each
 * may read the store for minutes. At most LONG_REPORTS_WAITING_MAX long reports wait.
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
  readonly createdKeys: readonly CreatedKey[];
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
  /** All five objects above hold this same object, so they see a reload's new catalogue. */
  readonly #context: { -readonly [Name in keyof RegistryContext]: RegistryContext[Name] };
  /** How many long reports run or wait. */
  #longReports = 0;
  /** Resolves when all long reports have ended. */
  #longReportEnd: Promise<void> = Promise.resolve();

  constructor(initial: RegistryContext) {
    const context = { ...initial };
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

  /** `mergeCatalogs` makes `catalog`, so that indices stay. Set new plans after the listeners have them. */
  set catalog(catalog: Catalog) {
    this.#context.catalog = catalog;
  }

  /** The log of operators' changes. */
  get changes(): Pick<ChangeStore, 'page' | 'verify'> {
    return this.#store.operatorChanges;
  }

  /**
   * Runs `work`, which may commit once, and records what `work` changes as the change of `cause`. Returns the
   * row of the change if there is one.
   */
  runAs<Result>(cause: Cause, work: () => Result): Recorded<Result> {
    const atMs = recordMomentMs(this.#context.clock);
    return this.#store.operatorChanges.runAs({ ...cause, atMs }, work);
  }

  /** Records a change outside of the registry. Call it as the only change within `runAs`. */
  record(details: ChangeDetails): void {
    this.#store.commit(() => this.#store.operatorChanges.record(details));
  }

  /**
   * Creates many accounts with their keys in one transaction, all of them or none, in the order of `items`.
   * All are on disk on return. A rejection names its item. Costs one fsync, and 100 µs of the main thread for
   * an account with two keys; admin/account-routes.ts bounds the number of items.
   */
  createInBulk(items: readonly NewAccountWithKeys[]): CreatedAccount[] {
    const { accounts, keys } = this;
    const put = (): readonly MadeAccount[] => {
      // Free slots are looked up once, because a lookup takes longer than to put a record.
      const firstSlot = this.#store.freeAccountIndex();
      const keySlots = keys.takeSlots(items.reduce((count, item) => count + item.keys.length, 0)).values();
      return items.map((item, index) => {
        const itemName = `accounts[${index}]`;
        const record = namingItem(itemName, () => accounts.put(item, asAccountIndex(firstSlot + index)));
        const createdKeys = item.keys.map((key, keyIndex) =>
          namingItem(`${itemName}.keys[${keyIndex}]`, () => keys.put(record, key, keySlots.next().value)),
        );
        return { record, createdKeys };
      });
    };
    return this.#createAccounts(put).map(({ record, createdKeys }) => ({
      statement: accounts.statementOf(record),
      keys: createdKeys,
    }));
  }

  /**
   * Reports the usage on disk, which is one flush behind a running gateway. Each row is as it was when its
   * page was read. The usage of a deleted key is found by the key's id only. Other work of the main thread
   * runs between the pages. Rejects with `invalid_parameters`, `not_found` and, if LONG_REPORTS_WAITING_MAX
   * long reports wait already, `overloaded`. If the client leaves, `clientLeft` is aborted: the report then
   * ends after the page that it reads, and rejects.
   */
  async reportUsage(
    { account, key, model, by, fromHour, toHour }: UsageRequest,
    clientLeft?: AbortSignal,
  ): Promise<UsageLine[]> {
    const keyRecord = key === undefined ? undefined : this.#findReportedKey(key, account);
    const slot = account === undefined ? keyRecord?.accountIndex : this.accounts.recordOf(account).index;
    const report = new UsageReport({ keyId: keyRecord?.id ?? key, modelId: model, by });
    const hours = { fromHour, toHour };
    let from: UsageCursor | undefined = { slot: slot ?? 0, hour: 0 };
    let endLongReport: (() => void) | undefined;
    try {
      for (let pages = 0; from !== undefined; pages++) {
        throwIfLeft(clientLeft);
        if (pages === SHORT_REPORT_PAGES) endLongReport = await this.#waitForLongReports(clientLeft);
        const page: UsageRowsPage = this.#rowsPage(hours, from, REPORT_PAGE_ROWS, {
          onlySlot: slot,
          splitsHours: true,
        });
        report.add(page.rows);
        from = page.next;
        if (from !== undefined) await nextTurn();
      }
      return report.lines();
    } finally {
      endLongReport?.();
    }
  }

  /** Undefined for the id of a deleted key. Throws a rejection for an unknown name. */
  #findReportedKey(key: string, account: string | undefined): KeyRecord | undefined {
    return isIdOf('key_', key) ? this.#store.keys.find(key) : this.keys.recordOf(key, account);
  }

  /** Resolves when no other long report runs. Call the result at the end. Rejects if `clientLeft` aborts. */
  async #waitForLongReports(clientLeft: AbortSignal | undefined): Promise<() => void> {
    if (this.#longReports > LONG_REPORTS_WAITING_MAX) {
      const message = `${LONG_REPORTS_WAITING_MAX} long reports of usage wait already: try again.`;
      throw new ProxyError('overloaded', 'gateway', message, REPORT_RETRY_SECONDS);
    }
    this.#longReports += 1;
    const formerEnd = this.#longReportEnd;
    let resolveEnd = (): void => undefined;
    this.#longReportEnd = new Promise((resolve) => (resolveEnd = resolve));
    const endLongReport = (): void => {
      this.#longReports -= 1;
      // If this report ends while it waits, the next report still waits for the report that runs.
      void formerEnd.then(resolveEnd);
    };
    await (clientLeft === undefined ? formerEnd : Promise.race([formerEnd, once(clientLeft, 'abort')]));
    if (clientLeft?.aborted === true) endLongReport();
    throwIfLeft(clientLeft);
    return endLongReport;
  }

  /**
   * Returns the stored rows of `hours`, ordered by account. A page may exceed `limit`, because the rows of an
   * account's hour stay together. A page may be empty although `next` is set, if it has read
   * ACCOUNTS_READ_MAX accounts without calls.
   */
  usageRows(hours: UsageHours, from: UsageCursor, limit: number): UsageRowsPage {
    return this.#rowsPage(hours, from, limit, {});
  }

  /** Rows of the account in `onlySlot`, or of all accounts. With `splitsHours` a page may end in an hour. */
  #rowsPage(
    { fromHour, toHour }: UsageHours,
    from: UsageCursor,
    limit: number,
    {
      onlySlot,
      splitsHours = false,
    }: { readonly onlySlot?: AccountIndex | undefined; readonly splitsHours?: boolean },
  ): UsageRowsPage {
    const store = this.#store;
    const rows: UsageRow[] = [];
    const endSlot = onlySlot === undefined ? store.freeAccountIndex() : onlySlot + 1;
    const pageEnd = Math.min(endSlot, from.slot + ACCOUNTS_READ_MAX);
    for (let slot = from.slot; slot < pageEnd; slot++) {
      const account = asAccountIndex(slot);
      const accountId = store.findAccountId(account);
      if (accountId === undefined) continue;
      // The cursor's hour and row belong to its own account.
      const firstHour = slot === from.slot ? Math.max(fromHour, from.hour) : fromHour;
      const fromRow = slot === from.slot ? from.row : undefined;
      let lastHour = -1;
      for (const row of store.usages({ account, fromHour: firstHour, fromRow, toHour })) {
        if (rows.length >= limit && (splitsHours || row.hour !== lastHour))
          return { rows, next: { slot, hour: row.hour, row: splitsHours ? row : undefined } };
        lastHour = row.hour;
        rows.push({ ...row, accountId });
      }
    }
    return { rows, next: pageEnd < endSlot ? { slot: pageEnd, hour: 0 } : undefined };
  }

  /**
   * Returns the names for the id of an account or a key in a report. `accountId` is needed for a deleted key,
   * because its record is gone. The result's `key` is undefined for an account and for a deleted key. Its
   * `account` is undefined if this host's store, an older copy, lacks the account. Names of a damaged record
   * are undefined too, so that the other rows of the report are shown.
   */
  namesOf(id: string, accountId?: string): UsageNames {
    const key = ifReadable(() => this.#store.keys.find(id));
    const account = ifReadable(() => this.#store.findAccount(accountId ?? key?.accountId ?? id));
    return { account: account?.name, key: key?.name };
  }

  /**
   * On a store without accounts, creates the account `demo` on plan `demo` with 100.00 and one key, whose
   * text is the result's `key`. Otherwise `key` is undefined; so is `accountId` if no account is named
   * `demo`.
   */
  ensureDemo(): { accountId: string | undefined; key: string | undefined } {
    if (this.#store.listAccounts(0, 1).items.length > 0) {
      return { accountId: this.#store.findAccountByName(DEMO_NAME)?.id, key: undefined };
    }
    const [made] = this.#createAccounts(() => {
      const record = this.accounts.put({ name: DEMO_NAME, planId: DEMO_PLAN, credit: DEMO_CREDIT });
      return [{ record, createdKeys: [this.keys.put(record, { name: DEMO_NAME })] }];
    });
    return { accountId: made?.record.id, key: made?.createdKeys[0]?.key };
  }

  /** Puts accounts with their keys in one transaction, and then into the live state. */
  #createAccounts(put: () => readonly MadeAccount[]): readonly MadeAccount[] {
    const { accounts, keys } = this;
    return commitAndApply(
      this.#store,
      put,
      (made) => made.filter(({ record }) => this.#store.findAccount(record.id) !== undefined),
      (made) => {
        for (const { record, createdKeys } of made) {
          accounts.open(record);
          for (const key of createdKeys) keys.insert(key.record);
        }
      },
    );
  }
}

/** Runs `work`. If it throws a rejection, puts `itemName` before the message. */
function namingItem<Result>(itemName: string, work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof ProxyError)) throw error;
    throw new ProxyError(error.code, error.source, `${itemName}: ${error.message}`);
  }
}

/**
 * How the admin interface reaches the registry: directly (`ownRegistryService`), or together with the
 * processes that share the registry (sharing/shared-registry.ts). `work` must be synchronous and have no
 * effect besides the registry: a shared registry may run it several times, and undoes each before the next.
 */
export interface RegistryService {
  /** Returns what `work` reads; statements show what all processes use now. */
  read<Result>(work: (registry: Registry) => Result): Result | Promise<Result>;
  /**
   * Changes the registry, and records `cause` with it, in one transaction. On return the change is on disk,
   * and in force in every process of this host. If some processes did not confirm the change in time,
   * `onUnconfirmed` gets their number, and they apply it as soon as they can.
   */
  change<Result>(
    cause: Cause,
    work: (registry: Registry) => Result,
    onUnconfirmed?: (processes: number) => void,
  ): Result | Promise<Result>;
}

/** The service of a process that is alone on its store. `onChange` gets each change once it is on disk. */
export function ownRegistryService(
  registry: Registry,
  onChange: (change: OperatorChange) => void = () => undefined,
): RegistryService {
  return {
    read: (work) => work(registry),
    change: (cause, work) => {
      const { result, change } = registry.runAs(cause, () => work(registry));
      if (change !== undefined) onChange(change);
      return result;
    },
  };
}
