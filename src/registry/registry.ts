/**
 * The registry: every change that operators can make to accounts, groups, keys, credits and operators. It has
 * the reader of usage too. The routes of src/admin use it through a RegistryService. gateway/accounting.ts,
 * gateway/shared-accounting.ts and cli/store-client.ts make a Registry. Main thread of a gateway process, or
 * a command.
 *
 * Rejections are `invalid_parameters` (naming the field and the rule), `not_found` and `conflict`.
 *
 * Must hold: a change that is not on disk leaves the live state as it was. A change that is on disk gets into
 * the live state, even if its commit threw (commitAndApply in record-store.ts). A bulk creation makes all
 * accounts or none. Tests: test/unit/registry/registry-money.test.ts (a failing disk rolls the ledger back),
 * test/unit/registry/registry.failed-commits.test.ts, test/unit/registry/registry.bulk-creation.test.ts.
 */
import { DEMO_PLAN } from '../config/examples.js';
import { asAccountIndex, asPicoUnits } from '../core/units.js';
import { ProxyError } from '../core/errors.js';
import type { AccountRecord } from './account-record.js';
import type { AccountStatement } from './account-statement.js';
import { Accounts, type NewAccount } from './accounts.js';
import type { Catalog } from './catalog.js';
import { Credits } from './credits.js';
import { Groups } from './groups.js';
import { type CreatedKey, Keys, type NewKey } from './keys.js';
import type { Cause, ChangeDetails, ChangeStore, OperatorChange, Recorded } from './operator-change.js';
import { Operators } from './operators.js';
import { commitAndApply, type RecordStore } from './record-store.js';
import { recordMomentMs, type RegistryContext, SlotRest } from './registry-context.js';
import { UsageReader } from './usage-reader.js';

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
  readonly usage: UsageReader;
  readonly #store: RecordStore;
  /** The same object that `accounts` and the others hold, so that they see a reload's new catalogue. */
  readonly #context: { -readonly [Name in keyof RegistryContext]: RegistryContext[Name] };

  constructor(initial: Omit<RegistryContext, 'slotRest'>) {
    const context = { ...initial, slotRest: new SlotRest(initial.clock) };
    this.#context = context;
    this.groups = new Groups(context);
    this.accounts = new Accounts(context, this.groups);
    this.credits = new Credits(context, this.accounts);
    this.keys = new Keys(context, this.accounts);
    this.operators = new Operators(context);
    this.usage = new UsageReader(context.store, this.accounts, this.keys);
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

  /** As `runAs` of ChangeStore, at the present moment. */
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
   * On a store without accounts, creates the account `demo` on plan `demo` with 100.00 and one key, whose
   * text is the result's `key`. Otherwise returns the id of the account `demo`, if there is one.
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
    const { store, live, catalog } = this.#context;
    return commitAndApply(
      store,
      put,
      (made) => made.filter(({ record }) => store.findAccount(record.id) !== undefined),
      (made) => {
        for (const { record, createdKeys } of made) {
          live.openAccount(record, catalog);
          for (const key of createdKeys) live.putKey(key.record);
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
