/**
 * Accounts, keys and credits: every change an operator can make, on disk first and then in the shared buffers, where it
 * takes effect on all threads at once. Main thread of the gateway; or a command, on the store alone, while none runs.
 *
 * Expected failures are `invalid_parameters` (naming the field and the rule) and `not_found`.
 */
import { DEMO_PLAN } from '../config/defaults.js';
import { asPicoUnits } from '../core/units.js';
import { Accounts } from './accounts.js';
import { createInBulk, type CreatedAccount, type NewAccountWithKeys } from './bulk-creation.js';
import type { Catalog } from './catalog.js';
import { Credits } from './credits.js';
import { Keys } from './keys.js';
import { isId } from './record-id.js';
import type { RecordStore } from './record-store.js';
import type { RegistryOptions } from './registry-options.js';
import { reportUsage, type UsageLine, type UsageQuestion } from './usage-report.js';

/** What is undefined does not restrict it; accounts and keys by id or name. */
export interface UsageRequest extends Pick<UsageQuestion, 'fromHour' | 'toHour' | 'by'> {
  readonly account: string | undefined;
  readonly key: string | undefined;
  readonly model: string | undefined;
}

export interface UsageNames {
  readonly account: string | undefined;
  readonly key: string | undefined;
}

const DEMO_NAME = 'demo';
const DEMO_CREDIT = asPicoUnits(100_000_000_000_000n);

export class Registry {
  readonly accounts: Accounts;
  readonly credits: Credits;
  readonly keys: Keys;
  readonly #store: RecordStore;
  /** What all parts work on; the catalogue in it is replaced by a reload. */
  readonly #options: { -readonly [Name in keyof RegistryOptions]: RegistryOptions[Name] };

  constructor(given: RegistryOptions) {
    const options = { ...given };
    this.#options = options;
    this.accounts = new Accounts(options);
    this.credits = new Credits(options, this.accounts);
    this.keys = new Keys(options, this.accounts);
    this.#store = options.store;
  }

  get catalog(): Catalog {
    return this.#options.catalog;
  }

  /** Indices must mean what they meant (mergeCatalogs), and every listener must know those that are new. */
  set catalog(catalog: Catalog) {
    this.#options.catalog = catalog;
  }

  /** See bulk-creation.ts. */
  createInBulk(items: readonly NewAccountWithKeys[]): CreatedAccount[] {
    return createInBulk({ store: this.#store, accounts: this.accounts, keys: this.keys }, items);
  }

  /**
   * What is on disk: a running gateway is ahead of it by one flush. The usage of a key that was deleted is found by its id,
   * no longer by its name.
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

  /** What people call an account or a key that a report names by its id; no name where it is there no more. */
  namesOf(id: string): UsageNames {
    const key = this.#store.keys.find(id);
    return { account: this.#store.findAccount(key?.accountId ?? id)?.name, key: key?.name };
  }

  /**
   * On a store without any account: makes account `demo` on plan `demo` with 100.00 and one key, which is returned this
   * once. Else no key; and no id where there are accounts but none of that name.
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
