/**
 * Reads usage from the store: reports, which sum its rows, and the rows themselves, page by page. registry.ts
 * makes the UsageReader; admin/usage-routes.ts and call-routes.ts call it. Main thread of a gateway process,
 * or a command.
 *
 * Must hold: a report blocks the thread for some 10 ms at a time. A long one may take minutes, so at most one
 * long report runs at a time (test/unit/registry/usage-reader.test.ts).
 */
import { once } from 'node:events';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { ProxyError, throwIfLeft } from '../core/errors.js';
import { type AccountIndex, asAccountIndex } from '../core/units.js';
import type { Accounts } from './accounts.js';
import type { KeyRecord } from './key-record.js';
import type { Keys } from './keys.js';
import { isIdOf } from './record-id.js';
import { ifReadable, type RecordStore } from './record-store.js';
import {
  KeptReport,
  type UsageDimension,
  type UsageLine,
  UsageReport,
  type UsageRow,
} from './usage-report.js';

/** Unix hours; both ends are included. */
interface UsageHours {
  readonly fromHour: number;
  readonly toHour: number;
}

/** A field that is undefined does not restrict the report. An account or a key is given by id or name. */
export interface UsageRequest extends UsageHours {
  readonly by: UsageDimension;
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
  /** The account's slot. */
  readonly slot: number;
  readonly hour: number;
  /** The row of that hour with which the page begins; undefined for the first. */
  readonly row?: Pick<UsageRow, 'keyId' | 'modelId'> | undefined;
}

interface RowsOptions {
  readonly onlySlot?: AccountIndex | undefined;
  readonly splitsHours?: boolean;
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

export class UsageReader {
  /** The last report, for further pages of it. */
  readonly keptReport = new KeptReport();
  readonly #store: RecordStore;
  readonly #accounts: Accounts;
  readonly #keys: Keys;
  /** How many long reports run or wait. */
  #longReports = 0;
  /** Resolves when all long reports have ended. */
  #longReportEnd: Promise<void> = Promise.resolve();

  constructor(store: RecordStore, accounts: Accounts, keys: Keys) {
    this.#store = store;
    this.#accounts = accounts;
    this.#keys = keys;
  }

  /**
   * Reports the usage on disk, which is one flush behind a running gateway. Each row is as it was when its
   * page was read. The usage of a deleted key is found by the key's id only. Other work of the main thread
   * runs between the pages. Rejects with `invalid_parameters`, `not_found` and, if LONG_REPORTS_WAITING_MAX
   * long reports wait already, `overloaded`. If the client leaves, `clientLeft` is aborted: the report then
   * ends after the page that it reads, and rejects.
   */
  async report(
    { account, key, model, by, fromHour, toHour }: UsageRequest,
    clientLeft?: AbortSignal,
  ): Promise<UsageLine[]> {
    const keyRecord = key === undefined ? undefined : this.#findReportedKey(key, account);
    const slot = account === undefined ? keyRecord?.accountIndex : this.#accounts.recordOf(account).index;
    const report = new UsageReport({ keyId: keyRecord?.id ?? key, modelId: model, by });
    const hours = { fromHour, toHour };
    let from: UsageCursor | undefined = { slot: slot ?? 0, hour: 0 };
    let endLongReport: (() => void) | undefined;
    try {
      for (let pages = 0; from !== undefined; pages++) {
        throwIfLeft(clientLeft);
        if (pages === SHORT_REPORT_PAGES) endLongReport = await this.#waitForLongReports(clientLeft);
        const page: UsageRowsPage = this.rows(hours, from, REPORT_PAGE_ROWS, {
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

  /** Undefined for an id that no key has, such as that of a deleted key. Throws for an unknown name. */
  #findReportedKey(key: string, account: string | undefined): KeyRecord | undefined {
    return isIdOf('key_', key) ? this.#store.keys.find(key) : this.#keys.recordOf(key, account);
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
   * Returns the stored rows of `hours`, ordered by account; only those of the account in `onlySlot`, if it is
   * given. Unless `splitsHours`, the rows of an account's hour stay together, so a page may exceed `limit`. A
   * page may be empty although `next` is set, if it has read ACCOUNTS_READ_MAX accounts without calls.
   */
  rows(
    { fromHour, toHour }: UsageHours,
    from: UsageCursor,
    limit: number,
    { onlySlot, splitsHours = false }: RowsOptions = {},
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
   * whose record is gone. A name is undefined if this host's store lacks the record, or it is damaged.
   */
  namesOf(id: string, accountId?: string): UsageNames {
    const key = ifReadable(() => this.#store.keys.find(id));
    const account = ifReadable(() => this.#store.findAccount(accountId ?? key?.accountId ?? id));
    return { account: account?.name, key: key?.name };
  }
}
