/**
 * The accounting of a gateway that shares limits, accounts and keys with other processes of its host or with
 * other hosts. In addition to what every gateway does, it leases quotas and money from a coordinator,
 * applies the changes that others make to the registry, and sends its own operators' changes through the
 * coordinator. accounting.ts calls `openShared`, on the main thread of a gateway process.
 *
 * Must hold: `start` has the registry of the other hosts before calls are served, and `close` gives leases
 * back while the coordinator can still be reached. If `close` is called while `start` waits, `start` starts
 * nothing any more (test/unit/gateway/gateway.test.ts). For all else see test/e2e/processes-limits.test.ts,
 * and for other hosts test/e2e/sharing-registry.test.ts and test/e2e/sharing-hosts.test.ts.
 */
import { randomUUID } from 'node:crypto';
import type { MessagePort } from 'node:worker_threads';
import type { LeaseEnd, LeaseMessages, LeaseScope } from '../channel/lease-channel.js';
import type { Settings } from '../config/schema.js';
import type { AskReply } from '../core/ask-port.js';
import { Calendar } from '../core/calendar.js';
import { CoordinatorClock } from '../ledger/coordinator-clock.js';
import { Leases, type SpentAccounting } from '../ledger/leases.js';
import { UpstreamLeases } from '../ledger/upstream-counters.js';
import { SharedUses } from '../registry/shared-uses.js';
import { ChangeApplier } from '../registry/change-applier.js';
import { findScope } from '../registry/record-store.js';
import { Registry, type RegistryService } from '../registry/registry.js';
import { UncoveredCharges } from '../sharing/uncovered-charges.js';
import { ChangeFollower } from '../sharing/change-follower.js';
import { DebitService } from '../sharing/debits.js';
import { LeaseManager } from '../sharing/lease-manager.js';
import { openLeaseFile, type LeaseFile } from '../sharing/lease-file.js';
import { SharedLocks } from '../sharing/shared-locks.js';
import { SYSTEM_TIMERS } from '../sharing/lease-timers.js';
import type { HostDirectory } from '../sharing/host-directory.js';
import type { Hosts } from '../sharing/open-hosts.js';
import { openCoordinators, type Coordinators } from '../sharing/lmdb-coordinator.js';
import { SharedRegistry, commitHere } from '../sharing/shared-registry.js';
import { type CallsUse, sharingSnapshot } from '../sharing/sharing-stats.js';
import { LedgerFlush } from '../store/flush.js';
import { SharedKeyUses } from '../store/key-uses.js';
import { SharedUsageBook } from '../store/usage-book.js';
import { SharedQuotaUses } from '../store/quota-uses.js';
import { recover } from '../store/recovery.js';
import { SharedSpentTotals } from '../store/spent-totals.js';
import type { SharingSnapshot } from '../telemetry/metrics-source.js';
import {
  type AccountingBase,
  type AccountingOptions,
  type AccountingParts,
  changeLogger,
  flushOptionsOf,
  idempotencyServiceOf,
  openBase,
  type Sharing,
} from './accounting-base.js';
import { FlushRequests, GroupRequests } from './group-requests.js';
import { LeaseScopes } from './lease-scopes.js';
import type { GroupPosition } from './messages.js';

/** Opens the lease file, and recovers the accounting. Throws `StoreError`. */
export function openShared(options: AccountingOptions, group: GroupPosition): AccountingParts {
  const base = openBase(options);
  const { store, buffers, ledger, keyTable, groupNames, directory, capacity, clock, live, log } = base;
  const { catalog } = live;
  const tables = { ledger, keyTable, groupNames };
  const leaseFile = openLeaseFile(base.settings.data);
  const leases = new Leases(buffers.ledger, clock);
  const totals = new SharedSpentTotals(
    capacity.accountsMax,
    (account) => store.findSpending(account),
    // Once a reversal is on disk, the coordinator may grant its money to any process: it leaves our lease.
    (account, amount) => leases.removeReversed(account, amount),
  );
  // Read before the buffers are filled: a change that comes meanwhile is applied twice, and not missed.
  const appliedTo = store.shared.feed.newest();
  // `recover` gets no totals, because balances are leased from the coordinator.
  recover({ store, ...tables, totals: undefined, directory, catalog, ...capacity, clock, log });
  const locks = idempotencyServiceOf(base, new SharedLocks(leaseFile));
  const flush = new LedgerFlush({
    ...flushOptionsOf(base, locks),
    totals,
    usage: new SharedUsageBook(store, live.modelIdOf),
    keyUses: new SharedKeyUses(tables, clock, store.keys, log),
    quotaUses: new SharedQuotaUses(ledger, clock, base.live.modelIdOf, store.quotaUses, log),
    // `sharing` is defined below; no flush runs before this function returns.
    uncoveredCharges: { add: (prefix, record) => sharing.uncoveredCharges.record(prefix, record) },
    mark: store.newFlushMark(group.slot, randomUUID()),
  });
  // After `newest`, reads of the store see what other processes have written.
  const groupRequests = new GroupRequests(options.readAll, () => void store.shared.feed.newest());
  const flushRequests = new FlushRequests(() => groupRequests.flush());
  const uses = new SharedUses(store, directory, base.settings.quota_timezone, ledger);
  const registry = new Registry({ store, catalog, clock, ...capacity, live: uses });
  const sharing: SharedAccounting = new SharedAccounting({
    ...base,
    slot: group.slot,
    upstreams: options.upstreams,
    openHosts: options.openHosts,
    leaseFile,
    leases,
    appliedTo,
    totals,
    flush,
    groupRequests,
    flushRequests,
    registry,
    uses,
  });
  return { base, registry, service: sharing.service, locks, flush, flushRequests, sharing };
}

interface SharedAccountingOptions extends AccountingBase, Pick<AccountingOptions, 'upstreams' | 'openHosts'> {
  /** The number of this process in its process group, from 0. */
  readonly slot: number;
  readonly leaseFile: LeaseFile;
  readonly leases: Leases;
  /** The number of the newest change before the buffers were filled from the store (ChangeFeed.newest). */
  readonly appliedTo: number;
  readonly totals: SharedSpentTotals;
  readonly flush: LedgerFlush;
  readonly groupRequests: GroupRequests;
  readonly flushRequests: FlushRequests;
  readonly registry: Registry;
  readonly uses: SharedUses;
}

/** What a gateway that shares limits has in addition to AccountingBase. */
class SharedAccounting implements Sharing {
  readonly service: RegistryService;
  readonly uncoveredCharges: UncoveredCharges;
  readonly #manager: LeaseManager;
  readonly #follower: ChangeFollower;
  readonly #debits: DebitService;
  readonly #hosts: Hosts | undefined;
  readonly #options: SharedAccountingOptions;
  /** Whether `close` was called, perhaps while `start` waited. */
  #isClosed = false;

  /** Some callbacks name parts that are made further below. They are called only after the constructor. */
  constructor(options: SharedAccountingOptions) {
    const { settings, live, store, ledger, keyTable, directory, registry, uses, leaseFile, log } = options;
    const { slot, capacity, flush, groupRequests, flushRequests, hostClock: clock } = options;
    this.#options = options;
    const onApplied = (): void => this.#follower.poll();
    const modelsInForce = (): Settings['models'] => live.settings.models;
    this.#hosts = options.openHosts?.({ settings, modelsInForce, slot, store, clock, onApplied, log });
    const coordinators: Coordinators =
      this.#hosts?.coordinators ??
      openCoordinators({
        ...{ slot, file: leaseFile, store, clock, log },
        calendar: new Calendar(settings.quota_timezone),
      });
    this.uncoveredCharges = new UncoveredCharges({
      setUncovered: (account, amount) => this.#manager.setUncovered(account, amount),
      charge: (account, amountMax) => ledger.collect(account, amountMax),
      correct: (prefix, record) => flush.correct(prefix, record),
      holdsResponses: () => live.settings.durability === 'commit',
      timers: SYSTEM_TIMERS,
    });
    this.#manager = managerOf(options, coordinators.calls, this.uncoveredCharges);
    this.#debits = new DebitService(coordinators.debits, (accountId) => {
      const account = store.findAccount(accountId);
      if (account !== undefined) this.#manager.recallMoney(account.index);
    });
    const applier = new ChangeApplier({
      store,
      live: { ledger, keyTable, groupNames: options.groupNames },
      directory,
      // Not the catalogue of `live`, because during a reload that has new plans before the listeners have
      // them.
      catalog: () => registry.catalog,
      ...capacity,
      log,
    });
    const { appliedTo } = options;
    this.#follower = new ChangeFollower({ feed: store.shared.feed, applier, appliedTo, ...capacity, log });
    this.service = new SharedRegistry({
      store,
      registry,
      uses,
      coordinator: coordinators.calls,
      debits: this.#debits,
      commit: this.#hosts?.registry.commit ?? commitHere(store, onApplied),
      confirm: (change) => groupRequests.confirm(change),
      flushAll: () => flushRequests.flushAll(),
      callsUses: (accounts) => groupRequests.callsUses(accounts),
      onChange: changeLogger(log),
    });
  }

  async start(): Promise<void> {
    // The registry comes first: leases are of accounts and keys that this process must know.
    await this.#hosts?.registry.join();
    // Nothing would stop a follower that starts after `close`. The manager and the debits check this
    // themselves.
    if (this.#isClosed) return;
    this.#follower.poll();
    this.#follower.start();
    await this.#manager.start();
    void this.#debits.start();
  }

  // `Sharing` (accounting-base.ts) describes the public members below.
  followChanges(): number {
    this.#follower.poll();
    return this.#follower.appliedTo;
  }

  callsUses(ids: readonly string[]): CallsUse[] {
    return ids.flatMap((id) => {
      const scope = findScope(this.#options.store, id);
      const use = scope && this.#manager.callsUse(scope);
      return use === undefined ? [] : [{ ...use, slot: this.#options.slot }];
    });
  }

  readonly serveLeases = (port: MessagePort): void => serveLeases(this.#manager, port);

  get claim(): Sharing['claim'] {
    return this.#hosts?.claim;
  }

  get hosts(): HostDirectory | undefined {
    return this.#hosts?.directory;
  }

  get snapshot(): SharingSnapshot {
    const hosts = this.#hosts && {
      leaseCoordinator: this.#hosts.coordinators.calls,
      registry: this.#hosts.registry.state,
    };
    const nowMs = this.#options.hostClock.monotonicMs();
    return sharingSnapshot({ manager: this.#manager.state, hosts, nowMs });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#follower.stop();
    await this.#debits.close();
    // Gives leases back, so it comes before its coordinator is closed: the server of sharing or the lease
    // file.
    await this.#manager.close();
    await this.#hosts?.closeRegistry();
    await this.#options.leaseFile.environment.close();
  }
}

/**
 * Hands what a listener or worker asks for to the lease manager, and its replies back. Every question gets
 * one reply, or a request would wait for ever (test/e2e/shared-quotas.test.ts).
 */
function serveLeases(manager: LeaseManager, port: MessagePort): void {
  let replies: AskReply<LeaseEnd>[] = [];
  const reply = (id: number, end: LeaseEnd): void => {
    // Replies of one event-loop turn are sent as one message.
    if (replies.push({ id, ok: true, result: end }) > 1) return;
    setImmediate(() => {
      port.postMessage(replies);
      replies = [];
    });
  };
  port.on('message', (messages: LeaseMessages) => {
    const lowScopes: LeaseScope[] = [];
    for (const message of messages) {
      if ('ask' in message) {
        const { scopes, need } = message.ask;
        void manager.wait(scopes, need).then((end) => reply(message.id, end));
      } else lowScopes.push(message.low);
    }
    if (lowScopes.length > 0) manager.askForMore(lowScopes);
  });
}

/** Makes the lease manager, which leases quotas and money of the scopes that calls use. */
function managerOf(
  options: SharedAccountingOptions,
  coordinator: Coordinators['calls'],
  uncoveredCharges: UncoveredCharges,
): LeaseManager {
  const { buffers, ledger, leases, live, idNames, store, totals, upstreams, log } = options;
  const clock = options.hostClock;
  // The buffers have a calendar, because they were created as shared.
  const coordinatorClock = new CoordinatorClock(clock, buffers.ledger.coordinatorAheadMs!);
  const accounting: SpentAccounting = {
    flushedOf: (account) => totals.writtenOf(account),
    collect: (account, amountMax) => uncoveredCharges.collect(account, amountMax),
  };
  const scopes = new LeaseScopes({
    ...{ ledger, leases, live, accounting },
    upstreams: new UpstreamLeases(upstreams, clock),
    idOf: {
      account: (account) => idNames.accountIdOf(account) ?? undefined,
      key: (key) => idNames.keyIdOf(key) ?? undefined,
      group: (group) => store.groups.findAt(group)?.id,
    },
  });
  return new LeaseManager({
    coordinator,
    // Without other hosts, what a silent node was granted is never granted to others.
    silentMsMax: (live.settings.sharing?.node_expiry_seconds ?? Infinity) * 1_000,
    clock,
    timers: SYSTEM_TIMERS,
    random: Math.random,
    addressOf: scopes.addressOf,
    groupsOf: scopes.groupsOf,
    calendar: new Calendar(buffers.ledger.timezone),
    onCalendar: (wallMs, hostWallMs) => coordinatorClock.setDifference(wallMs, hostWallMs),
    onContact: ({ lost }) => {
      if (lost === undefined) {
        log.warn('those who share the limits can be reached again');
        return;
      }
      const { reason, message: error } = lost;
      log.error('those who share the limits cannot be reached', { reason, error });
    },
  });
}
