/**
 * The accounting of a gateway, as its other parts use it. The start chooses how it is made: `openAlone` for a
 * gateway that has the limits for itself, `openShared` (shared-accounting.ts) for one that shares them with
 * other processes or hosts. gateway.ts owns the Accounting, on the main thread of a gateway process.
 *
 * Must hold: what a listener has settled is counted once, even if the listener dies or the process ends
 * (test/e2e/books.test.ts; there is no unit test).
 */
import { msToNextTick } from '../core/clock.js';
import { OwnBuffers } from '../registry/registry-context.js';
import { ownRegistryService, type RegistryService, Registry } from '../registry/registry.js';
import { LedgerFlush } from '../store/flush.js';
import { KeyUses } from '../store/key-uses.js';
import { QuotaUses } from '../store/quota-uses.js';
import { UsageBook } from '../store/usage-book.js';
import { recover } from '../store/recovery.js';
import { SpentTotals } from '../store/spent-totals.js';
import {
  changeLogger,
  type AccountingBase,
  type AccountingOptions,
  type AccountingParts,
  flushOptionsOf,
  idempotencyServiceOf,
  openBase,
  type Sharing,
} from './accounting-base.js';
import { FlushRequests } from './group-requests.js';
import { CacheService } from './cache-service.js';
import type { IdempotencyService } from './idempotency-service.js';
import { openShared } from './shared-accounting.js';

/** For a gateway that shares with nobody: each member does nothing or is empty. */
const NOT_SHARED: Sharing = {
  start: () => Promise.resolve(),
  serveLeases: undefined,
  followChanges: () => 0,
  callsUses: () => [],
  claim: undefined,
  hosts: undefined,
  snapshot: undefined,
  close: () => Promise.resolve(),
};

/** Recovers the accounting of a gateway that has the limits for itself. Throws `StoreError`. */
function openAlone(options: AccountingOptions): AccountingParts {
  const base = openBase(options);
  const { store, ledger, keyTable, groupNames, directory, capacity, clock, log } = base;
  const { catalog } = base.live;
  const totals = new SpentTotals(capacity.accountsMax);
  const tables = { ledger, keyTable, groupNames };
  recover({ store, ...tables, totals, directory, catalog, ...capacity, clock, log });
  const locks = idempotencyServiceOf(base);
  const keyUses = new KeyUses(tables, clock);
  const usage = new UsageBook(store, base.live.modelIdOf);
  const quotaUses = new QuotaUses(ledger, clock, base.live.modelIdOf);
  const flush = new LedgerFlush({ ...flushOptionsOf(base, locks), totals, usage, keyUses, quotaUses });
  const flushRequests = new FlushRequests(() => flush.run());
  const ownBuffers = new OwnBuffers(store, tables, directory);
  const registry = new Registry({ store, catalog, clock, ...capacity, live: ownBuffers });
  const service = ownRegistryService(registry, changeLogger(log));
  return { base, registry, service, locks, flush, flushRequests, sharing: NOT_SHARED };
}

/** Recovers the accounting from the store. Throws `StoreError` if the store cannot be trusted. */
export function openAccounting(options: AccountingOptions): Accounting {
  const { group } = options;
  return new Accounting(group === undefined ? openAlone(options) : openShared(options, group));
}

export class Accounting {
  readonly registry: Registry;
  readonly service: RegistryService;
  readonly locks: IdempotencyService;
  readonly cache: CacheService;
  readonly flush: LedgerFlush;
  readonly flushRequests: FlushRequests;
  readonly sharing: Sharing;
  readonly base: AccountingBase;
  #flushTimer: NodeJS.Timeout | undefined;

  constructor({ base, registry, service, locks, flush, flushRequests, sharing }: AccountingParts) {
    this.base = base;
    this.registry = registry;
    this.service = service;
    this.locks = locks;
    const { store, clock, log, live } = base;
    this.cache = new CacheService({ store, clock, log });
    this.cache.applySettings(live.catalog, live.settings.cache.bytes);
    this.flush = flush;
    this.flushRequests = flushRequests;
    this.sharing = sharing;
  }

  /** Flushes every `intervalMs` and then calls `onFlushed`, until this method is called again. */
  flushEvery(intervalMs: number, onFlushed: () => void): void {
    clearTimeout(this.#flushTimer);
    this.#flushTimer = setTimeout(() => {
      this.flush.run();
      this.locks.onSweep();
      this.cache.onFlushed();
      onFlushed();
      this.flushEvery(intervalMs, onFlushed);
    }, msToNextTick(intervalMs));
  }

  /**
   * To be called when a listener's thread has exited, before its successor writes to the same journal and
   * uses the same call slots. Counts the calls that the listener had settled, and releases the holds of its
   * other calls. If a row of the store cannot be read, a later drain counts them.
   */
  releaseListener(listenerIndex: number): void {
    const { ledger, slotsOf, log } = this.base;
    this.flush.drainEnded(listenerIndex);
    this.locks.detach(listenerIndex);
    this.cache.detach(listenerIndex);
    const { first, count } = slotsOf(listenerIndex);
    const released = ledger.releaseSlots(first, count);
    if (released > 0) log.error('calls were cut with their listener and not billed', { calls: released });
    const halfSettled = ledger.freeClaimedSlots(first, count);
    if (halfSettled > 0)
      log.error(
        'calls were cut while they were settled; what they held may stay held until the gateway is restarted',
        { calls: halfSettled },
      );
  }

  /**
   * Flushes a last time and closes the store. To be called once, when the listeners have ended. Resolves with
   * false if charges were lost, and logs the loss.
   */
  async close(): Promise<boolean> {
    const { usageLog, store, log } = this.base;
    clearTimeout(this.#flushTimer);
    const flushed = this.flush.run();
    this.cache.onFlushed();
    this.cache.close();
    this.locks.close();
    usageLog?.close();
    await this.sharing.close();
    await store.close();
    if (!flushed) {
      log.error('charges were lost: the books could not be written before the end', {
        accounts: this.flush.state.unflushedAccounts,
      });
    }
    return flushed;
  }
}
