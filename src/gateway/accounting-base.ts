/**
 * The part of a gateway's accounting that is the same whether it shares its limits or not: the store on
 * disk, the limits and balances in shared buffers, their readers and writers, and the ids of accounts and
 * keys by their slots. `accounting.ts` adds the rest for a gateway that is alone, `shared-accounting.ts` for
 * one that shares. Runs on the main thread.
 *
 * Tests: test/e2e/books.test.ts for a gateway that is alone, test/e2e/processes-limits.test.ts for one that
 * shares.
 */
import type { Settings } from '../config/schema.js';
import { SystemClock, type Clock } from '../core/clock.js';
import type { AccountIndex, KeyIndex } from '../core/units.js';
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
import { clearLeaseFiles } from '../sharing/lease-file.js';
import type { OpenHosts } from '../sharing/open-hosts.js';
import type { LedgerFlushOptions } from '../store/flush.js';
import { Store } from '../store/store.js';
import type { Log } from '../telemetry/log.js';
import { TopAccounts } from '../telemetry/top-accounts.js';
import { usageLogOf, type UsageLog } from './gateway-logs.js';
import { IdempotencyService, type IdempotencyServiceOptions } from './idempotency-service.js';
import type { GroupPosition, GroupSnapshot, SnapshotKind } from './messages.js';
import { ChangedScopes } from './quota-notices.js';
import type { LiveSettings } from './reload.js';

export interface AccountingOptions {
  /** The settings of the start. */
  readonly settings: Settings;
  readonly live: LiveSettings;
  /** Counts what is used of the upstreams' limits. */
  readonly upstreams: UpstreamBuffers;
  /** Absent if no other gateway uses this data directory. */
  readonly group?: GroupPosition | undefined;
  /** Present if the settings have `sharing`. */
  readonly openHosts?: OpenHosts | undefined;
  /** Returns the request id for a line of the usage log. */
  readonly requestPrefixOf: (listenerIndex: number) => string;
  /** Asks all gateways, through the supervisor. */
  readonly readAll: (what: SnapshotKind, accounts?: readonly string[]) => Promise<GroupSnapshot>;
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
  /** The coordinator's clock if limits are shared, otherwise the host's. */
  readonly clock: Clock;
  readonly ledger: Ledger;
  readonly keyTable: KeyTable;
  readonly groupNames: GroupNames;
  readonly directory: AccountDirectory;
  readonly journals: readonly JournalReader[];
  readonly idNames: IdNames;
  readonly topAccounts: TopAccounts;
  readonly usageLog: UsageLog | undefined;
  /** For the notices of quotas. */
  readonly changed: ChangedScopes;
}

/**
 * Opens the store and creates empty buffers; the caller recovers them. Throws `StoreHeld` if another process
 * uses the store, and `StoreError` if the store cannot be trusted.
 */
export function openBase(options: AccountingOptions): AccountingBase {
  const { settings, live, group, requestPrefixOf, log } = options;
  const { accounts: accountsMax, keys: keysMax, groups: groupsMax } = settings.limits;
  const { calls_in_flight: callsInFlightMax } = settings.limits;
  const { quota_timezone: timezone } = settings;
  const { listeners } = settings.listen;
  const shared = group !== undefined;
  const store = Store.hold(settings.data, { kind: 'gateway', group: group?.id }, () =>
    clearLeaseFiles(settings.data, shared),
  );
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
    idNames,
    topAccounts: new TopAccounts((account) => idNames.accountIdOf(account), hostClock),
    usageLog: usageLogOf(settings, { ids: idNames, requestPrefixOf, modelIdOf: live.modelIdOf }, log),
    changed: new ChangedScopes(() => live.settings.notify !== undefined),
  };
}

/**
 * Returns a function that logs an operator's change with its hash. A copy of the log then shows whether the
 * chain of changes in the store was altered later.
 */
export function changeLogger(log: Log): (change: OperatorChange) => void {
  return ({ number, who, role, from, action, target, changes, hash }) =>
    log.info('an operator changed something', {
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
  const { live, ledger, journals, store, usageLog, topAccounts, changed, clock, log } = base;
  return {
    ledger,
    journals,
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

/** How many ids of each kind are cached. A gateway with more in use reads them from the store again. */
const IDS_MAX = 100_000;
/** The cache is emptied this often: well before a deleted key's slot may be given to another key. */
const KEPT_MS = 3_600_000;

export interface IdSource {
  /** May throw what the store throws, as may `findKeyId`. */
  findAccountId(account: AccountIndex): string | undefined;
  findKeyId(key: KeyIndex): string | undefined;
}

/**
 * Ids of accounts and keys by their slots, cached in memory so that a line of a log needs no read of the
 * store. The logs of calls, the top-accounts counter and the leases use it.
 *
 * Must hold: a slot is looked up anew every hour, because a day after its key was deleted another key may get
 * it (test/unit/gateway/accounting-base.id-names.test.ts).
 */
export class IdNames {
  readonly #source: IdSource;
  readonly #clock: Clock;
  readonly #accounts = new Map<AccountIndex, string>();
  readonly #keys = new Map<KeyIndex, string>();
  #sinceMs: number;

  constructor(source: IdSource, clock: Clock) {
    this.#source = source;
    this.#clock = clock;
    this.#sinceMs = clock.monotonicMs();
  }

  /** Returns null if there is none or it cannot be read: a line of a log is not worth an exception. */
  accountIdOf(account: AccountIndex): string | null {
    return this.#idOf(this.#accounts, account, () => this.#source.findAccountId(account));
  }

  /** Returns the id of the key that has the slot or had it last; null as above. */
  keyIdOf(key: KeyIndex): string | null {
    return this.#idOf(this.#keys, key, () => this.#source.findKeyId(key));
  }

  /**
   * Empties the cache if it is old. To be called each time calls are taken out of the listeners' rings: if
   * each lookup of an id read the clock instead, there would be several reads for a call.
   */
  forgetOld(): void {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#sinceMs < KEPT_MS) return;
    this.#sinceMs = nowMs;
    this.#accounts.clear();
    this.#keys.clear();
  }

  #idOf<Index>(ids: Map<Index, string>, index: Index, find: () => string | undefined): string | null {
    const known = ids.get(index);
    if (known !== undefined) return known;
    try {
      const id = find();
      if (id === undefined) return null;
      if (ids.size >= IDS_MAX) ids.clear();
      ids.set(index, id);
      return id;
    } catch {
      return null;
    }
  }
}
