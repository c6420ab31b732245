/**
 * What a gateway's accounting has whether the gateway shares its limits or not: the store on disk, the limits
 * and balances in shared buffers, their readers and writers. accounting.ts makes the other parts
 * (AccountingParts) for a gateway that is alone, shared-accounting.ts for a gateway that shares.
 * main.ts calls `openStore`. Main thread of a gateway process.
 *
 * Must hold: lease files are cleared only while no other process has the store. The lease file of this boot
 * of the machine stays if only the processes of this host share limits, so that used quotas stay used. There
 * is no unit test: see test/e2e/books.test.ts for a gateway that is alone, test/e2e/processes-limits.test.ts
 * for one that shares.
 */
import type { MessagePort } from 'node:worker_threads';
import type { Settings } from '../config/schema.js';
import { SystemClock, type Clock } from '../core/clock.js';
import { clockOf } from '../ledger/coordinator-clock.js';
import { createJournalBuffer, type JournalBuffer } from '../ledger/journal-layout.js';
import { JournalReader } from '../ledger/journal.js';
import { createLedgerBuffers, type LedgerBuffers } from '../ledger/layout.js';
import { Ledger } from '../ledger/ledger.js';
import type { UpstreamBuffers } from '../ledger/upstream-counters.js';
import { AccountDirectory } from '../registry/account-directory.js';
import { createGroupNames, GroupNames, type GroupNamesBuffer } from '../registry/group-names.js';
import { KeyTable, createKeyTableBuffers, type KeyTableBuffers } from '../registry/key-table.js';
import type { OperatorChange } from '../registry/operator-change.js';
import type { Registry, RegistryService } from '../registry/registry.js';
import type { HostDirectory } from '../sharing/host-directory.js';
import { clearLeaseFiles } from '../sharing/lease-file.js';
import type { OpenHosts } from '../sharing/open-hosts.js';
import type { CallsUse } from '../sharing/sharing-stats.js';
import type { LedgerFlush, LedgerFlushOptions } from '../store/flush.js';
import { Store } from '../store/store.js';
import type { Log } from '../telemetry/log.js';
import type { SharingSnapshot } from '../telemetry/metrics-source.js';
import { TopAccounts } from '../telemetry/top-accounts.js';
import { IdNames } from './call-lines.js';
import { usageLogOf, type UsageLog } from './usage-log.js';
import type { FlushRequests } from './group-requests.js';
import { IdempotencyService, type IdempotencyServiceOptions } from './idempotency-service.js';
import type { GroupPosition, GroupSnapshot, SnapshotKind } from './messages.js';
import { ChangedScopes } from './quota-notices.js';
import type { LiveSettings } from './reload.js';

export interface AccountingOptions {
  /** The settings of the start. */
  readonly settings: Settings;
  /** From `openStore`. */
  readonly store: Store;
  readonly live: LiveSettings;
  /** Counts what is used of the upstreams' limits. */
  readonly upstreams: UpstreamBuffers;
  /** Absent if no other gateway uses this data directory. */
  readonly group?: GroupPosition | undefined;
  /** Present if the settings have `sharing`. */
  readonly openHosts?: OpenHosts | undefined;
  /** Returns what the request ids of a listener begin with, for the usage log. */
  readonly requestPrefixOf: (listenerIndex: number) => string;
  /** Asks all gateways, through the supervisor. */
  readonly readAll: (kind: SnapshotKind, accounts?: readonly string[]) => Promise<GroupSnapshot>;
  readonly log: Log;
}

/** The shared buffers that listeners work with. */
interface AccountingBuffers {
  readonly ledger: LedgerBuffers;
  readonly keys: KeyTableBuffers;
  readonly groupNames: GroupNamesBuffer;
  /** The journal of each listener, by index. */
  readonly journals: readonly JournalBuffer[];
}

export interface AccountingBase {
  readonly settings: Settings;
  readonly live: LiveSettings;
  readonly log: Log;
  readonly store: Store;
  readonly buffers: AccountingBuffers;
  /** How many call slots each listener has. */
  readonly slotsPerListener: number;
  readonly hostClock: Clock;
  /** The coordinator's clock if limits are shared, otherwise the clock of the host. */
  readonly clock: Clock;
  readonly ledger: Ledger;
  readonly keyTable: KeyTable;
  readonly groupNames: GroupNames;
  readonly directory: AccountDirectory;
  readonly journals: readonly JournalReader[];
  readonly requestPrefixOf: (listenerIndex: number) => string;
  readonly idNames: IdNames;
  readonly topAccounts: TopAccounts;
  readonly usageLog: UsageLog | undefined;
  /** The scopes that flushes have written, for the notices of quotas. */
  readonly changed: ChangedScopes;
}

/** The parts that accounting.ts and shared-accounting.ts build differently. */
export interface AccountingParts {
  readonly base: AccountingBase;
  readonly registry: Registry;
  /** Through it operators change the registry. */
  readonly service: RegistryService;
  readonly locks: IdempotencyService;
  readonly flush: LedgerFlush;
  readonly flushRequests: FlushRequests;
  readonly sharing: Sharing;
}

/** What a gateway does about limits that it shares with other processes or hosts. NOT_SHARED does nothing. */
export interface Sharing {
  /** Joins the others. Rejects if this host's accounts and keys are not those that the others share. */
  start(): Promise<void>;
  /** Replies to a listener that waits for leases; undefined if no call needs a lease. */
  readonly serveLeases: ((port: MessagePort) => void) | undefined;
  /** Applies the changes of others. Returns the number of the newest change that is applied here. */
  followChanges(): number;
  /** Returns what calls of this gateway use of these accounts now. `accounts` are ids. */
  callsUses(accounts: readonly string[]): CallsUse[];
  /**
   * Claims a name for this host, for `forMs`. Resolves with false if another host has it, and with true also
   * if the server of sharing cannot be reached. Undefined if there are no other hosts.
   */
  readonly claim: ((name: string, forMs: number) => Promise<boolean>) | undefined;
  /** The directory of the other hosts; undefined if there are none. */
  readonly hosts: HostDirectory | undefined;
  /** The state of sharing, for operators; undefined if nothing is shared. */
  readonly snapshot: SharingSnapshot | undefined;
  /** To be called after the last flush, before the store is closed. */
  close(): Promise<void>;
}

/**
 * Opens the store. Called before anything else of a gateway is made, so that a start which waits for another
 * process has no buffers and no timers. Throws `StoreHeld` while another process has the store, and
 * `StoreError` if the store cannot be trusted.
 */
export function openStore(settings: Settings, group: GroupPosition | undefined): Store {
  return Store.hold(settings.data, { kind: 'gateway', group: group?.id }, () =>
    // Hosts that share limits count at their server. An earlier lease file would be taken for present use.
    clearLeaseFiles(settings.data, group !== undefined && settings.sharing === undefined),
  );
}

/** Creates the buffers, empty: `recover` (store/recovery.ts) fills them. */
export function openBase(options: AccountingOptions): AccountingBase {
  const { settings, store, live, group, requestPrefixOf, log } = options;
  const { accounts: accountsMax, keys: keysMax, groups: groupsMax } = settings.limits;
  const { calls_in_flight: callsInFlightMax } = settings.limits;
  const { quota_timezone: timezone } = settings;
  const { listeners } = settings.listen;
  const shared = group !== undefined;
  const slotsPerListener = Math.floor(callsInFlightMax / listeners);
  const buffers: AccountingBuffers = {
    ledger: createLedgerBuffers({ accountsMax, callsInFlightMax, keysMax, groupsMax, timezone, shared }),
    keys: createKeyTableBuffers({ keysMax }),
    groupNames: createGroupNames(groupsMax),
    journals: Array.from({ length: listeners }, () => createJournalBuffer(slotsPerListener)),
  };
  const hostClock = new SystemClock();
  const clock = clockOf(buffers.ledger, hostClock);
  const idNames = new IdNames(store, clock);
  return {
    settings,
    live,
    log,
    store,
    buffers,
    slotsPerListener,
    hostClock,
    clock,
    ledger: new Ledger(buffers.ledger, clock),
    keyTable: new KeyTable(buffers.keys),
    groupNames: new GroupNames(buffers.groupNames),
    directory: new AccountDirectory(),
    journals: buffers.journals.map((journal) => new JournalReader(journal)),
    requestPrefixOf,
    idNames,
    topAccounts: new TopAccounts((account) => idNames.accountIdOf(account), hostClock),
    usageLog: usageLogOf(settings, { ids: idNames, modelIdOf: live.modelIdOf }, log),
    changed: new ChangedScopes(() => live.settings.notify !== undefined),
  };
}

/**
 * Returns a function that logs an operator's change with its hash, whatever the level. A copy of the log then
 * shows whether the chain of changes in the store was altered later.
 */
export function changeLogger(log: Log): (change: OperatorChange) => void {
  return ({ number, who, role, from, action, target, changes, hash }) =>
    log.record('an operator changed something', {
      ...{ number, who, role, from, action, hash },
      target: JSON.stringify(target),
      changes: JSON.stringify(changes),
    });
}

/**
 * Creates the idempotency service. `sharedLocks`: the locks that the processes of the host share; undefined
 * if there is only one process.
 */
export function idempotencyServiceOf(
  { settings, live, store, journals, clock, log }: AccountingBase,
  sharedLocks?: IdempotencyServiceOptions['shared'],
): IdempotencyService {
  return new IdempotencyService({
    settings,
    replaysUnwritten: () => live.settings.durability === 'interval',
    store,
    shared: sharedLocks,
    journals,
    clock,
    log,
  });
}

/** Returns the options of a flush that are the same whether limits are shared or not. */
export function flushOptionsOf(
  base: AccountingBase,
  storedResponses: IdempotencyService,
): Omit<LedgerFlushOptions, 'totals' | 'usage' | 'keyUses' | 'quotaUses'> {
  const { live, ledger, journals, requestPrefixOf, store, usageLog, topAccounts, changed, clock, log } = base;
  return {
    ledger,
    journals,
    requestPrefixOf,
    store,
    rejectOnError: () => live.settings.on_store_error === 'refuse' || live.settings.durability === 'commit',
    usageLog,
    topAccounts,
    changed,
    storedResponses,
    clock,
    log,
  };
}
