/**
 * What a gateway has besides where it shares limits and registry with others: the leases of its calls, what follows the others'
 * changes, and the service of the operator. Main thread of a gateway process.
 */
import type { MessagePort } from 'node:worker_threads';
import type { Clock } from '../core/clock.js';
import type { AccountIndex, KeyIndex } from '../core/units.js';
import type { Settings } from '../config/schema.js';
import { CoordinatorClock } from '../ledger/coordinator-clock.js';
import type { LedgerBuffers } from '../ledger/layout.js';
import type { JournalRecord } from '../ledger/journal-layout.js';
import type { Ledger } from '../ledger/ledger.js';
import { Leases } from '../ledger/leases.js';
import type { AccountDirectory } from '../registry/account-directory.js';
import type { SharedUses } from '../registry/registry-context.js';
import { ChangeApplier } from '../registry/live-buffers.js';
import type { KeyTable } from '../registry/key-table.js';
import type { RegistryService } from '../registry/registry.js';
import type { Registry } from '../registry/registry.js';
import { UncoveredCharges } from '../sharing/uncovered-charges.js';
import type { ScopeLimits } from '../sharing/coordinator.js';
import { ChangeFollower } from '../sharing/change-follower.js';
import { DebitService } from '../sharing/debits.js';
import { LeaseManager, serveLeases } from '../sharing/lease-manager.js';
import type { LeaseFile } from '../sharing/lease-file.js';
import type { ScopeAddress } from '../sharing/leased-scope.js';
import { SYSTEM_TIMERS } from '../sharing/lease-terms.js';
import type { SpentAccounting } from '../sharing/stock-leases.js';
import type { HostDirectory } from '../sharing/host-directory.js';
import type { Hosts, OpenHosts } from '../sharing/open-hosts.js';
import { openCoordinators, type Coordinators } from '../sharing/lmdb-coordinator.js';
import { SharedRegistry, commitHere } from '../sharing/shared-registry.js';
import { type CallsUse, sharingSnapshot } from '../sharing/sharing-stats.js';
import type { SharedTotals } from '../store/spent-totals.js';
import type { Store } from '../store/store.js';
import type { Log } from '../telemetry/log.js';
import type { SharingSnapshot } from '../telemetry/metrics-snapshot.js';
import type { GroupErrands } from './group-errands.js';
import type { IdNames } from './id-names.js';
import type { LiveSettings } from './reload.js';

export interface SharedPartOptions {
  readonly settings: Settings;
  readonly live: LiveSettings;
  /** Index of the process in its group. */
  readonly slot: number;
  readonly leaseFile: LeaseFile;
  /** Where limits, accounts and keys are shared with other hosts too. */
  readonly openHosts: OpenHosts | undefined;
  readonly store: Store;
  readonly buffers: LedgerBuffers;
  readonly ledger: Ledger;
  readonly keyTable: KeyTable;
  readonly directory: AccountDirectory;
  readonly registry: Registry;
  readonly uses: SharedUses;
  readonly totals: SharedTotals;
  readonly idNames: IdNames;
  /** `feed.newest()` of a moment before the buffers were filled from the store. */
  readonly appliedTo: number;
  /** Of all processes of this host. */
  readonly errands: GroupErrands;
  /** To be written with the next flush. */
  readonly correct: (journal: number, record: JournalRecord) => void;
  /** The host's own. */
  readonly clock: Clock;
  readonly log: Log;
}

export class SharedPart {
  readonly service: RegistryService;
  readonly uncoveredCharges: UncoveredCharges;
  readonly #manager: LeaseManager;
  readonly #follower: ChangeFollower;
  readonly #debits: DebitService;
  readonly #hosts: Hosts | undefined;
  readonly #clock: Clock;
  readonly #store: Store;

  constructor(options: SharedPartOptions) {
    const { settings, live, store, ledger, keyTable, directory, registry, uses, clock, log } = options;
    const { accounts: accountsMax, keys: keysMax } = settings.limits;
    const { slot } = options;
    this.#clock = clock;
    this.#store = store;
    const onTaken = (): void => this.#follower.look();
    this.#hosts = options.openHosts?.({ settings, slot, store, clock, onTaken, log });
    const coordinators: Coordinators =
      this.#hosts?.coordinators ?? openCoordinators({ slot, file: options.leaseFile, store, clock });
    this.uncoveredCharges = new UncoveredCharges({
      setUncovered: (account, amount) => this.#manager.setUncovered(account, amount),
      charge: (account, most) => ledger.collect(account, most),
      correct: options.correct,
      holdsAnswers: () => live.settings.durability === 'commit',
      timers: SYSTEM_TIMERS,
    });
    this.#manager = managerOf(options, coordinators.calls, this.uncoveredCharges);
    this.#debits = new DebitService(coordinators.debits, (accountId) => {
      const account = store.findAccount(accountId);
      if (account !== undefined) this.#manager.recallMoney(account.index);
    });
    const applier = new ChangeApplier({
      store,
      live: { ledger, keyTable },
      directory,
      catalog: () => live.catalog,
      accountsMax,
      keysMax,
      log,
    });
    const { feed } = store.shared;
    const { appliedTo } = options;
    this.#follower = new ChangeFollower({ feed, applier, appliedTo, accountsMax, keysMax, log });
    this.service = new SharedRegistry({
      store,
      registry,
      uses,
      coordinator: coordinators.calls,
      debits: this.#debits,
      commit: this.#hosts?.registry.commit ?? commitHere(store, onTaken),
      confirm: (change) => options.errands.confirm(change),
      flushAll: () => options.errands.flushAll(),
      callsUses: (accounts) => options.errands.callsUses(accounts),
    });
  }

  /** Rejects where this host's accounts and keys are not those that hosts share, or cannot be had at all. */
  async start(): Promise<void> {
    await this.#hosts?.registry.join();
    this.#follower.look();
    this.#follower.start();
    await this.#manager.start();
  }

  /** Takes over what others have changed; the number of the newest change that is in force here. */
  followChanges(): number {
    this.#follower.look();
    return this.#follower.appliedTo;
  }

  /** What calls of this gateway use of these accounts now. */
  callsUses(accounts: readonly string[]): CallsUse[] {
    return accounts.flatMap((id) => {
      const account = this.#store.findAccount(id);
      return (account && this.#manager.callsUse(account.index)) ?? [];
    });
  }

  /** Answers a listener that waits for leases. */
  serve(port: MessagePort): void {
    serveLeases(this.#manager, port);
  }

  /** Where other hosts share too. */
  get hosts(): HostDirectory | undefined {
    return this.#hosts?.directory;
  }

  /** For operators. */
  get reading(): SharingSnapshot {
    const hosts = this.#hosts && {
      calls: this.#hosts.coordinators.calls,
      registry: this.#hosts.registry.state,
    };
    return sharingSnapshot({ manager: this.#manager.state, hosts, nowMs: this.#clock.monotonicMs() });
  }

  /** After the last flush, before the store is closed. */
  async close(): Promise<void> {
    this.#follower.stop();
    await this.#debits.close();
    await this.#manager.close();
    await this.#hosts?.closeRegistry();
  }
}

function managerOf(
  { buffers, ledger, live, idNames, totals, clock, log }: SharedPartOptions,
  coordinator: ReturnType<typeof openCoordinators>['calls'],
  uncoveredCharges: UncoveredCharges,
): LeaseManager {
  const leases = new Leases(buffers);
  const calendar = new CoordinatorClock(clock, buffers.calendar!);
  const accounting: SpentAccounting = {
    flushedOf: (account) => totals.writtenOf(account),
    collect: (account, most) => uncoveredCharges.collect(account, most),
  };
  const addressOfAccount = (account: AccountIndex): ScopeAddress | undefined => {
    const scope = idNames.accountIdOf(account);
    if (scope === null) return undefined;
    const limits = (): ScopeLimits => limitsOfPlan(live, ledger.planIndexOf(account));
    return {
      scope,
      leases: leases.accounts,
      index: account,
      limits,
      account: { index: account, leases, accounting },
    };
  };
  const addressOfKey = (key: KeyIndex): ScopeAddress | undefined => {
    const scope = idNames.keyIdOf(key);
    if (scope === null) return undefined;
    const limits = (): ScopeLimits => {
      const { requestsPerMinute = 0, callsPerDay = 0 } = ledger.keys.limitOf(key);
      return { requestsPerMinute, callsPerDay, callsInFlight: 0 };
    };
    return { scope, leases: leases.keys, index: key, limits, account: undefined };
  };
  return new LeaseManager({
    coordinator,
    clock,
    timers: SYSTEM_TIMERS,
    random: Math.random,
    addressOfAccount,
    addressOfKey,
    onCalendar: (wallMs, hostWallMs) => calendar.follow(wallMs, hostWallMs),
    onContact: ({ lost }) => {
      if (lost === undefined) log.warn('those who share the limits can be reached again', {});
      else {
        log.error('those who share the limits cannot be reached', {
          reason: lost.reason,
          error: lost.message,
        });
      }
    },
  });
}

/** None where the account's plan is gone: it is not active then. */
function limitsOfPlan({ catalog }: LiveSettings, planIndex: number): ScopeLimits {
  const plan = catalog.plans[planIndex];
  if (plan === undefined) return { requestsPerMinute: 0, callsPerDay: 0, callsInFlight: 0 };
  const { requestsPerMinute, callsPerDay, callsInFlightMax: callsInFlight } = plan;
  return { requestsPerMinute, callsPerDay, callsInFlight };
}
