/**
 * Tells the coordinator of hosts, from the host's store, what the host has charged its accounts, and what its
 * copy of the registry says was credited. open-hosts.ts makes it for valkey-partition.ts. Main thread.
 *
 * Reports may come in any order: processes of a host report at the same time, and copies of hosts differ in
 * age. So each amount has a version that grows with every change, and at the server the newest one counts.
 *
 * Must hold: an amount is never older than its version, or the server would keep it in place of a newer one:
 * others would be granted what is spent. So the version is read first. A version never gets smaller, also if
 * a new epoch of the registry begins (test/unit/sharing/registry-reseed.test.ts).
 */
import { invariant } from '../core/errors.js';
import type { IdPrefix } from '../registry/record-id.js';
import { unlessDamaged } from '../store/record-codec.js';
import type { RegistryPosition } from '../store/registry-copy.js';
import type { Store } from '../store/store.js';
import type { VersionedTotal } from './coordinator.js';
import { HISTORY_MAX } from './registry-reseed.js';
import type { HostAccounting } from './valkey-partition.js';

/** Ids of keys begin with this prefix, ids of accounts and groups do not. */
const KEY_PREFIX = 'key_' satisfies IdPrefix;
/** How many account ids one read of the store returns. */
const PAGE_IDS = 500;
/** Above any version: at a thousand changes a second so many take 34 years. */
const VERSIONS_PER_EPOCH = 2 ** 40;
invariant((HISTORY_MAX + 1) * VERSIONS_PER_EPOCH <= Number.MAX_SAFE_INTEGER, '`versionOf` is exact');

/** Reads the store of this host. Errors: see HostAccounting. */
export function hostAccounting(
  store: Pick<
    Store,
    'copy' | 'findAccount' | 'findSpending' | 'keys' | 'listAccountIds' | 'refresh' | 'shared'
  >,
): HostAccounting {
  return {
    spentOf: (scope): VersionedTotal | undefined => {
      store.refresh();
      // The version first: the next report corrects an amount newer than its version. An older one stays.
      const version = store.shared.accountingVersion();
      const account = store.findAccount(scope);
      const spending = account && store.findSpending(account.index);
      return spending && { totalPicoUnits: spending.spent, version };
    },
    // Needs no `refresh`: an older total comes with its older version, and so replaces nothing.
    creditedOf: (scope): VersionedTotal | undefined => {
      // Undefined if damaged, which RegistryLog logs. Then the credits on record at the server still count.
      const positionBefore = unlessDamaged(() => store.copy.position());
      const account = store.findAccount(scope);
      if (positionBefore === undefined || account === undefined) return undefined;
      return { totalPicoUnits: account.credited, version: versionOf(positionBefore) };
    },
    inheritedOf: (scope) => (scope.startsWith(KEY_PREFIX) ? store.keys.find(scope)?.inherited : undefined),
    *accounts() {
      store.refresh();
      // Reads by pages: the caller awaits the server in between, and a range would keep one transaction open.
      for (let ids = store.listAccountIds('', PAGE_IDS); ids.length > 0;) {
        yield* ids;
        ids = store.listAccountIds(ids.at(-1)!, PAGE_IDS);
      }
    },
  };
}

/**
 * Grows with each change of the registry and with each new epoch. `history` has the earlier epochs, at most
 * HISTORY_MAX. Once it is full, `version` alone grows (registry-reseed.ts). Exported for its test.
 */
export function versionOf({ history, version }: RegistryPosition): number {
  return history.length * VERSIONS_PER_EPOCH + version;
}
