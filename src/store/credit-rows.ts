/**
 * Rows of the journals of credits, and of the credits that were asked for with an idempotency key. Main thread.
 */
import type { AccountIndex } from '../core/units.js';
import type { CreditRecord, CreditRequestRecord } from '../registry/account-record.js';
import type { Page } from '../registry/record-store.js';
import { packCredit, packCreditRequest, readCredit, readCreditRequest } from './record-codec.js';
import type { Tables } from './tables.js';

/** Above every line's number, and still a key that LMDB orders after them. */
const AFTER_ALL_LINES = Number.MAX_SAFE_INTEGER;

export class CreditRows {
  readonly #tables: Tables;

  constructor(tables: Tables) {
    this.#tables = tables;
  }

  /** The first line of a new account: nothing is looked up. */
  open(account: AccountIndex, record: CreditRecord): void {
    this.#tables.credits.putSync([account, 0], packCredit(record));
  }

  add(account: AccountIndex, record: CreditRecord): void {
    const last = this.#tables.credits.getKeys({
      start: [account, AFTER_ALL_LINES],
      end: [account],
      reverse: true,
      limit: 1,
    });
    const [lastKey] = Array.from(last);
    this.#tables.credits.putSync([account, lastKey === undefined ? 0 : lastKey[1] + 1], packCredit(record));
  }

  list(account: AccountIndex, from: number, limit: number): Page<CreditRecord> {
    const range = this.#tables.credits.getRange({
      start: [account, from],
      end: [account, AFTER_ALL_LINES],
      limit: limit + 1,
    });
    const entries = Array.from(range);
    return {
      items: entries
        .slice(0, limit)
        .map(({ key, value }) => readCredit(value, this.#place('credits', key.join('/')))),
      next: entries[limit]?.key[1],
    };
  }

  findRequest(account: AccountIndex, idempotencyKey: string): CreditRequestRecord | undefined {
    const stored = this.#tables.creditRequests.get([account, idempotencyKey]);
    if (stored === undefined) return undefined;
    return readCreditRequest(stored, this.#place('credit_requests', `${account}/${idempotencyKey}`));
  }

  putRequest(account: AccountIndex, idempotencyKey: string, record: CreditRequestRecord): void {
    this.#tables.creditRequests.putSync([account, idempotencyKey], packCreditRequest(record));
  }

  #place(table: string, key: string): string {
    return `${this.#tables.path}: record ${key} of table ${table}`;
  }
}
