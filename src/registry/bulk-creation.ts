/**
 * Many accounts with their keys in one transaction, for moving in from elsewhere. Main thread of the gateway; or a command,
 * on the store alone, while none runs.
 */
import { ProxyError } from '../core/errors.js';
import { asAccountIndex } from '../core/units.js';
import type { AccountStatement } from './account-statement.js';
import type { Accounts, NewAccount } from './accounts.js';
import type { CreatedKey, Keys, NewKey } from './keys.js';
import type { RecordStore } from './record-store.js';

export interface NewAccountWithKeys extends NewAccount {
  readonly keys: readonly NewKey[];
}

export interface CreatedAccount {
  readonly statement: AccountStatement;
  readonly keys: readonly CreatedKey[];
}

interface BulkParts {
  readonly store: RecordStore;
  readonly accounts: Accounts;
  readonly keys: Keys;
}

/**
 * All of them or none; durable when it returns, in the order of `items`. Throws `invalid_parameters` that names the item at
 * fault. Costs one disk flush, and some 100 µs an account with two keys, during which the main thread does nothing else.
 */
export function createInBulk(parts: BulkParts, items: readonly NewAccountWithKeys[]): CreatedAccount[] {
  const { store, accounts, keys } = parts;
  const made = store.commit(() => {
    // Free slots are looked up once: that takes longer than to put a record.
    const freeAccount = store.freeAccountIndex();
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

/** A refusal of one item tells which one it was. */
function named<Result>(item: string, work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof ProxyError)) throw error;
    throw new ProxyError(error.code, error.source, `${item}: ${error.message}`);
  }
}
