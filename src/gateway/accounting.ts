/**
 * The books of a gateway: the store on disk, the limits and the money in shared buffers, and what carries one to the other.
 * Main thread of a gateway process.
 */
import { randomUUID } from 'node:crypto';
import type { MessagePort } from 'node:worker_threads';
import { msToNextTick, SystemClock } from '../core/clock.js';
import { asCallSlot } from '../core/units.js';
import type { Settings } from '../config/schema.js';
import { clockOf } from '../ledger/coordinator-clock.js';
import { createJournalBuffer, type JournalBuffer } from '../ledger/journal-layout.js';
import { JournalReader } from '../ledger/journal.js';
import { createLedgerBuffers, type LedgerBuffers } from '../ledger/layout.js';
import { Ledger } from '../ledger/ledger.js';
import { Leases } from '../ledger/leases.js';
import { AccountDirectory } from '../registry/account-directory.js';
import { OwnBuffers, SharedUses } from '../registry/registry-context.js';
import { KeyTable, createKeyTableBuffers, type KeyTableBuffers } from '../registry/key-table.js';
import { ownRegistryService, type RegistryService } from '../registry/registry.js';
import { Registry } from '../registry/registry.js';
import { LedgerFlush } from '../store/flush.js';
import { KeyUses, SharedKeyUses } from '../store/key-uses.js';
import { SharedUsageBook, UsageBook } from '../store/usage-book.js';
import { recover } from '../store/recovery.js';
import { SharedTotals, SpentTotals } from '../store/spent-totals.js';
import { Store } from '../store/store.js';
import { TopAccounts } from '../telemetry/top-accounts.js';
import type { CallsUse } from '../sharing/sharing-stats.js';
import { clearLeaseFiles, openLeaseFile, type LeaseFile } from '../sharing/lease-file.js';
import type { HostDirectory } from '../sharing/host-directory.js';
import type { OpenHosts } from '../sharing/open-hosts.js';
import { SharedLocks } from '../sharing/shared-locks.js';
import type { Log } from '../telemetry/log.js';
import type { SharingSnapshot } from '../telemetry/metrics-snapshot.js';
import { IdNames } from './id-names.js';
import { IdempotencyService } from './idempotency-service.js';
import { GroupCommit, GroupErrands } from './group-errands.js';
import { usageLogOf, type UsageLog } from './gateway-logs.js';
import type { GroupPosition } from './messages.js';
import type { GroupSnapshot, SnapshotKind } from './snapshots.js';
import type { LiveSettings } from './reload.js';
import { SharedPart } from './shared-part.js';

export interface AccountingOptions {
  /** Of the start. */
  readonly settings: Settings;
  readonly live: LiveSettings;
  /** Absent where no other gateway works on this data folder. */
  readonly group?: GroupPosition | undefined;
  /** Where the settings have `sharing`. */
  readonly openHosts?: OpenHosts | undefined;
  /** For the usage log. */
  readonly requestIdOf: (listenerIndex: number, request: number) => string;
  /** What was in the listener's journal when it asked is on disk, or the disk takes nothing. */
  readonly onCommit: (listenerIndex: number, ok: boolean) => void;
  /** Asks all gateways of the supervisor. */
  readonly readAll: (what: SnapshotKind, accounts?: readonly string[]) => Promise<GroupSnapshot>;
  readonly log: Log;
}

/** What a listener works with. */
export interface AccountingBuffers {
  readonly ledger: LedgerBuffers;
  readonly keys: KeyTableBuffers;
  /** One a listener. */
  readonly journals: readonly JournalBuffer[];
}

export class Accounting {
  readonly buffers: AccountingBuffers;
  readonly store: Store;
  /** Of the processes that work on the data directory together; undefined where this one is alone. */
  readonly leases: LeaseFile | undefined;
  readonly ledger: Ledger;
  readonly registry: Registry;
  readonly service: RegistryService;
  readonly locks: IdempotencyService;
  readonly flush: LedgerFlush;
  readonly commits: GroupCommit;
  readonly errands: GroupErrands;
  readonly idNames: IdNames;
  readonly tally: TopAccounts;
  /** Of the calls in flight, each listener's share. */
  readonly slotsPerListener: number;
  readonly #shared: SharedPart | undefined;
  readonly #usageLog: UsageLog | undefined;
  readonly #log: Log;
  #flushTimer: NodeJS.Timeout | undefined;

  /**
   * Opens the store and recovers from it; throws StoreFault where it is not to be trusted, StoreHeld where another process
   * works on it.
   */
  constructor(options: AccountingOptions) {
    const { settings, live, log } = options;
    const { accounts: accountsMax, keys: keysMax, calls_in_flight: callsInFlightMax } = settings.limits;
    const { catalog } = live;
    this.#log = log;
    const shared = options.group !== undefined;
    const holder = { kind: 'gateway', group: options.group?.id } as const;
    this.store = Store.hold(settings.data, holder, () => clearLeaseFiles(settings.data, shared));
    this.leases = shared ? openLeaseFile(settings.data) : undefined;
    this.slotsPerListener = Math.floor(callsInFlightMax / settings.listen.listeners);
    this.buffers = {
      ledger: createLedgerBuffers({ accountsMax, callsInFlightMax, keysMax, shared }),
      keys: createKeyTableBuffers({ keysMax }),
      journals: Array.from({ length: settings.listen.listeners }, () =>
        createJournalBuffer(this.slotsPerListener),
      ),
    };
    const hostClock = new SystemClock();
    const clock = clockOf(this.buffers.ledger, hostClock);
    this.ledger = new Ledger(this.buffers.ledger, clock);
    const { store, ledger } = this;
    const keyTable = new KeyTable(this.buffers.keys);
    const totals = shared
      ? new SharedTotals(
          accountsMax,
          (account) => store.findSpending(account),
          (account, amount) => new Leases(this.buffers.ledger).forgetMoney(account, amount),
        )
      : new SpentTotals(accountsMax);
    const directory = new AccountDirectory();
    const capacity = { accountsMax, keysMax };
    const known = totals instanceof SpentTotals ? totals : undefined;
    const appliedTo = shared ? store.shared.feed.newest() : 0;
    recover({ store, ledger, totals: known, keyTable, directory, catalog, ...capacity, clock, log });

    const journals = this.buffers.journals.map((journal) => new JournalReader(journal));
    this.idNames = new IdNames(store, clock);
    this.tally = new TopAccounts((account) => this.idNames.accountIdOf(account), hostClock);
    this.#usageLog = usageLogOf(settings, { ids: this.idNames, requestIdOf: options.requestIdOf }, log);
    this.locks = new IdempotencyService({
      settings,
      replaysUnwritten: () => live.settings.durability === 'interval',
      store,
      shared: this.leases === undefined ? undefined : new SharedLocks(this.leases),
      journals,
      clock,
      log,
    });
    const buffers = { ledger, keyTable };
    const modelIdOf = (index: number): string => live.catalog.models[index]!.id;
    this.flush = new LedgerFlush({
      ledger,
      journals,
      totals,
      store,
      usage: shared ? new SharedUsageBook(store, modelIdOf) : new UsageBook(store, modelIdOf),
      refuseOnError: () => live.settings.on_store_error === 'refuse' || live.settings.durability === 'commit',
      usageLog: this.#usageLog,
      tally: this.tally,
      answers: this.locks,
      uncoveredCharges: shared
        ? { note: (journal, record) => this.#shared?.uncoveredCharges.record(journal, record) }
        : undefined,
      keyUses: shared ? new SharedKeyUses(buffers, clock, store.keys) : new KeyUses(buffers, clock),
      mark: options.group === undefined ? undefined : store.newFlushMark(options.group.slot, randomUUID()),
      clock,
      log,
    });
    this.commits = new GroupCommit(() => this.flush.commit(), options.onCommit);
    this.errands = new GroupErrands({
      readAll: shared ? options.readAll : undefined,
      flush: () => this.flush.run(),
      refresh: () => void store.shared.feed.newest(),
    });
    const uses = shared ? new SharedUses(store, directory) : undefined;
    this.registry = new Registry({
      store,
      catalog,
      clock,
      accountsMax,
      keysMax,
      live: uses ?? new OwnBuffers(store, buffers, directory),
    });
    this.#shared =
      this.leases === undefined || !(totals instanceof SharedTotals) || uses === undefined
        ? undefined
        : new SharedPart({
            settings,
            live,
            slot: options.group?.slot ?? 0,
            leaseFile: this.leases,
            openHosts: options.openHosts,
            store,
            buffers: this.buffers.ledger,
            ...buffers,
            directory,
            registry: this.registry,
            uses,
            totals,
            idNames: this.idNames,
            appliedTo,
            errands: this.errands,
            correct: (journal, record) => this.flush.correct(journal, record),
            clock: hostClock,
            log,
          });
    this.service = this.#shared?.service ?? ownRegistryService(this.registry);
  }

  /** Where limits are shared: joins those who share them. */
  async start(): Promise<void> {
    await this.#shared?.start();
  }

  /** Where limits are shared: answers a listener that waits for leases. */
  get serveLeases(): ((port: MessagePort) => void) | undefined {
    const shared = this.#shared;
    return shared && ((port) => shared.serve(port));
  }

  /** The number of the newest change of the registry that is in force here. */
  followChanges(): number {
    return this.#shared?.followChanges() ?? 0;
  }

  /** Where limits are shared: what the calls of this gateway use of these accounts now. */
  callsUses(accounts: readonly string[]): CallsUse[] {
    return this.#shared?.callsUses(accounts) ?? [];
  }

  /** Where other hosts share: who they are. */
  get hosts(): HostDirectory | undefined {
    return this.#shared?.hosts;
  }

  /** Where limits are shared: how it stands with those who share them. */
  get sharing(): SharingSnapshot | undefined {
    return this.#shared?.reading;
  }

  /** From now on, each `intervalMs`; in the place of the former interval. */
  flushEach(intervalMs: number): void {
    clearTimeout(this.#flushTimer);
    this.#flushTimer = setTimeout(
      () => {
        this.flush.run();
        this.locks.onSweep();
        this.flushEach(intervalMs);
      },
      msToNextTick(performance.now(), intervalMs),
    );
  }

  /** A listener has died: what it has settled goes to the books before another goes on in its journal. */
  releaseListener(listenerIndex: number): void {
    this.flush.drain();
    this.locks.detach(listenerIndex);
    const first = asCallSlot(listenerIndex * this.slotsPerListener);
    const released = this.ledger.releaseSlots(first, this.slotsPerListener);
    if (released > 0)
      this.#log.error('calls were cut with their listener and not billed', { calls: released });
  }

  /** The last flush, then the store is closed. False where charges were lost, which it logs. */
  async close(): Promise<boolean> {
    clearTimeout(this.#flushTimer);
    const flushed = this.flush.run();
    this.#usageLog?.close();
    await this.#shared?.close();
    await this.leases?.environment.close();
    await this.store.close();
    if (!flushed) {
      this.#log.error('charges were lost: the books could not be written before the end', {
        accounts: this.flush.state.unflushedAccounts,
      });
    }
    return flushed;
  }
}
