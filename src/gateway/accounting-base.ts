/**
 * Holds what every gateway's accounting has: the store on disk, the limits and balances in shared buffers,
 * their readers and writers. accounting.ts makes the other parts (AccountingParts) for a process that is
 * alone, shared-accounting.ts for one that shares limits with other processes or hosts. main.ts calls
 * `openStore`, and these two files call everything else. Main thread of a gateway process.
 *
 * Must hold: lease files, in which processes of a host share limits (sharing/lease-file.ts), are cleared only
 * while no other process has the store open. If only the processes of this host share limits, the file of
 * this boot of the machine stays, so that used quotas stay used (test/unit/sharing/lmdb-coordinator.test.ts
 * sees which files stay). No unit test; see test/e2e/books.test.ts and test/e2e/processes-limits.test.ts.
 */
import type { MessagePort } from 'node:worker_threads';
import type { Settings } from '../config/schema.js';
import { SystemClock, type Clock } from '../core/clock.js';
import { asCallSlot, type CallSlot } from '../core/units.js';
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
import type { CallsUse } from '../sharing/sharing-stats.js';
import type { LedgerFlush, FlushContext } from '../store/flush.js';
import { Store } from '../store/store.js';
import type { Log } from '../telemetry/log.js';
import type { SharingSnapshot } from '../telemetry/metrics-source.js';
import { TopAccounts } from '../telemetry/top-accounts.js';
import type { GatewayOptions } from './gateway-options.js';
import type { FlushRequests, ReadAll } from './group-requests.js';
import { IdempotencyService, type IdempotencyServiceOptions } from './idempotency-service.js';
import { IdNames } from './id-names.js';
import type { GroupPosition } from './messages.js';
import { ChangedScopes } from './changed-scopes.js';
import type { LiveSettings } from './reload.js';
import { usageLogOf, type UsageLog } from './usage-log.js';

/** The options of `openAccounting` (accounting.ts). */
export interface AccountingOptions extends Pick<
  GatewayOptions,
  'settings' | 'store' | 'group' | 'openHosts' | 'log'
> {
  readonly live: LiveSettings;
  /** Counts what is used of the upstreams' limits. */
  readonly upstreams: UpstreamBuffers;
  /** Returns what the request ids of a listener begin with, for the usage log. */
  readonly requestPrefixOf: (listenerIndex: number) => string;
  readonly readAll: ReadAll;
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
  /** How many accounts, keys and groups there may be. */
  readonly capacity: { readonly accountsMax: number; readonly keysMax: number; readonly groupsMax: number };
  readonly live: LiveSettings;
  readonly log: Log;
  readonly store: Store;
  readonly buffers: AccountingBuffers;
  /** Returns the call slots of a listener and its successors: an equal part of `calls_in_flight`. */
  readonly slotsOf: (listenerIndex: number) => { readonly first: CallSlot; readonly count: number };
  /** The clock of the host, by which the busiest accounts are counted. */
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

/** What a gateway does about limits that it shares with other processes or hosts. */
export interface Sharing {
  /** Joins the others. Rejects if this host's accounts and keys are not those that the others share. */
  start(): Promise<void>;
  /** Replies to a listener that waits for leases; undefined if no call needs a lease. */
  readonly serveLeases: ((port: MessagePort) => void) | undefined;
  /** Applies the changes of others. Returns the number of the newest change that is applied here. */
  followChanges(): number;
  /** Returns what calls of this gateway use of these accounts now. `accounts` are ids. */
  callsUses(accounts: readonly string[]): CallsUse[];
  /** As `claimOf` (sharing/open-hosts.ts): whether no other host has it. Undefined if there are none. */
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
    // With `sharing` the server counts, and a process alone counts in memory: the file would be out of date.
    clearLeaseFiles(settings.data, { isShared: group !== undefined && settings.sharing === undefined }),
  );
}

/** Creates the buffers, empty: `recover` (store/recovery.ts) fills them. */
export function openBase(options: AccountingOptions): AccountingBase {
  const { settings, store, live, group, requestPrefixOf, log } = options;
  const { limits, quota_timezone: timezone } = settings;
  const { accounts: accountsMax, keys: keysMax, groups: groupsMax } = limits;
  const capacity = { accountsMax, keysMax, groupsMax };
  const { calls_in_flight: callsInFlightMax } = limits;
  const { listeners } = settings.listen;
  // Also true with `sharing`, for which the supervisor always makes a group.
  const shared = group !== undefined;
  const slotsPerListener = Math.floor(callsInFlightMax / listeners);
  const buffers: AccountingBuffers = {
    ledger: createLedgerBuffers({ ...capacity, callsInFlightMax, timezone, shared }),
    keys: createKeyTableBuffers({ keysMax }),
    groupNames: createGroupNames(groupsMax),
    journals: Array.from({ length: listeners }, () => createJournalBuffer(slotsPerListener)),
  };
  const hostClock = new SystemClock();
  const clock = clockOf(buffers.ledger, hostClock);
  const idNames = new IdNames(store, clock);
  return {
    settings,
    capacity,
    live,
    log,
    store,
    buffers,
    slotsOf: (listenerIndex) => ({
      first: asCallSlot(listenerIndex * slotsPerListener),
      count: slotsPerListener,
    }),
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
 * Returns a function that logs an operator's change with its hash, whatever the level of the log. A copy of
 * the log then shows whether somebody has altered the chain of changes in the store.
 */
export function changeLogger(log: Log): (change: OperatorChange) => void {
  return ({ number, who, role, from, action, target, changes, hash }) =>
    log.record('an operator changed something', {
      ...{ number, who, role, from, action, hash },
      target: JSON.stringify(target),
      changes: JSON.stringify(changes),
    });
}

/** `sharedLocks`: the locks that the processes of the host share; undefined if there is only one process. */
export function idempotencyServiceOf(
  { settings, live, store, journals, clock, log }: AccountingBase,
  sharedLocks?: IdempotencyServiceOptions['shared'],
): IdempotencyService {
  return new IdempotencyService({
    settings,
    // With `commit` even the first client has no whole response before its charge is on disk.
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
): Omit<FlushContext, 'usage' | 'keyUses' | 'quotaUses'> {
  const { live, ledger, journals, requestPrefixOf, store, usageLog, topAccounts, changed, clock, log } = base;
  return {
    ledger,
    journals,
    requestPrefixOf,
    store,
    // With `commit` a call cannot end while the store fails, so none is begun.
    rejectOnError: () => live.settings.on_store_error === 'refuse' || live.settings.durability === 'commit',
    usageLog,
    topAccounts,
    changed,
    storedResponses,
    clock,
    log,
  };
}
