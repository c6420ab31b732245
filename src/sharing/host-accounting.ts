/**
 * What the store of a host tells the coordinator of hosts: what the host has charged its accounts, and what its copy of the
 * registry has as credited. Main thread; reads of some microseconds.
 *
 * Figures come with a version each that grows with every change, since processes of a host report them side by side, and hosts
 * have copies of different age.
 */
import type { AccountRecord } from '../registry/account-record.js';
import type { IdPrefix } from '../registry/record-id.js';
import type { Page } from '../registry/record-store.js';
import type { RegistryPosition } from '../store/registry-copy.js';
import type { Store } from '../store/store.js';
import type { HostSpent } from './coordinator.js';
import type { Credited } from './valkey-codec.js';
import type { HostAccounting } from './valkey-partition.js';

const PAGE_ACCOUNTS = 500;
const KEY_PREFIX = 'key_' satisfies IdPrefix;
/** Versions of the registry in one epoch of it; what both make together stays below 2^53. */
const VERSIONS_PER_EPOCH = 2 ** 40;

export function hostAccounting(
  store: Pick<
    Store,
    'copy' | 'findAccount' | 'findSpending' | 'keys' | 'listAccounts' | 'refresh' | 'shared'
  >,
): HostAccounting {
  const spentBy = (account: AccountRecord | undefined): HostSpent | undefined => {
    // Before the figure: of one that is newer than its version the next report is taken all the same.
    const version = store.shared.booksVersion();
    const spending = account === undefined ? undefined : store.findSpending(account.index);
    return spending === undefined ? undefined : { totalPicoUnits: spending.spent, version };
  };
  return {
    spentOf: (scope) => {
      store.refresh();
      return spentBy(store.findAccount(scope));
    },
    creditedOf: (scope): Credited | undefined => {
      const position = store.copy.position();
      const account = store.findAccount(scope);
      if (position === undefined || account === undefined) return undefined;
      return { totalPicoUnits: account.credited, version: versionOf(position) };
    },
    inheritedOf: (scope) => (scope.startsWith(KEY_PREFIX) ? store.keys.find(scope)?.inherited : undefined),
    *allSpent() {
      // Page by page: between two of them the event loop goes on.
      for (let from: number | undefined = 0; from !== undefined;) {
        store.refresh();
        const page: Page<AccountRecord> = store.listAccounts(from, PAGE_ACCOUNTS);
        for (const account of page.items) {
          const spent = spentBy(account);
          if (spent !== undefined) yield [account.id, spent];
        }
        from = page.next;
      }
    },
  };
}

/** Grows with each change of the registry, over its epochs. */
function versionOf({ history, version }: RegistryPosition): number {
  return history.length * VERSIONS_PER_EPOCH + version;
}
