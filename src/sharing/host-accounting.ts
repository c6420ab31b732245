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
import type { InheritedUse } from '../registry/key-record.js';
import type { IdPrefix } from '../registry/record-id.js';
import { unlessDamaged } from '../store/record-codec.js';
import type { RegistryPosition } from '../store/registry-copy.js';
import type { Store } from '../store/store.js';
import type { VersionedTotal } from './coordinator.js';
import { HISTORY_MAX } from './registry-reseed.js';

/** Ids of keys begin with this prefix, ids of accounts and groups do not. */
const KEY_PREFIX = 'key_' satisfies IdPrefix;
/** How many account ids one read of the store returns. */
const PAGE_IDS = 500;
/** Above any version: at a thousand changes a second so many take 34 years. */
const VERSIONS_PER_EPOCH = 2 ** 40;
invariant((HISTORY_MAX + 1) * VERSIONS_PER_EPOCH <= Number.MAX_SAFE_INTEGER, '`versionOf` is exact');

export type HostAccounting = ReturnType<typeof hostAccounting>;

/** Reads the store of this host. All reads are synchronous, and throw StoreError if a record is damaged. */
export function hostAccounting(
  store: Pick<
    Store,
    'copy' | 'findAccount' | 'findSpending' | 'keys' | 'listAccountIds' | 'refresh' | 'shared'
  >,
) {
  return {
    /** What the host has charged in all; undefined if nothing. */
    spentOf: (scope: string): VersionedTotal | undefined => {
      store.refresh();
      // The version first: the next report corrects an amount newer than its version. An older one stays.
      const version = store.shared.accountingVersion();
      const account = store.findAccount(scope);
      const spending = account && store.findSpending(account.index);
      return spending && { totalPicoUnits: spending.spent, version };
    },
    /** What the host's copy of the registry says; undefined if the copy has no such account. */
    creditedOf: (scope: string): VersionedTotal | undefined => {
      // Needs no `refresh`: an older total comes with its older version, and so replaces nothing.
      // Undefined if damaged, which RegistryLog logs. Then the credits on record at the server still count.
      const positionBefore = unlessDamaged(() => store.copy.position());
      const account = store.findAccount(scope);
      if (positionBefore === undefined || account === undefined) return undefined;
      return { totalPicoUnits: account.credited, version: versionOf(positionBefore) };
    },
    /** What a rotated key inherited from the key before it; undefined for all other scopes. */
    inheritedOf: (scope: string): InheritedUse | undefined =>
      scope.startsWith(KEY_PREFIX) ? store.keys.find(scope)?.inherited : undefined,
    /** All accounts that the host may have charged. */
    *accounts(): Iterable<string> {
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
