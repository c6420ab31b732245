/**
 * A gateway of a group as far as its books go: a ledger that holds what was leased, a journal, and the flush.
 */
import type { Clock } from '#src/core/clock.js';
import { asCallSlot, asKeyIndex, asPicoUnits, type AccountIndex } from '#src/core/units.js';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { Leases } from '#src/ledger/leases.js';
import { Ledger } from '#src/ledger/ledger.js';
import { createRing, type JournalRecord } from '#src/ledger/journal-layout.js';
import { JournalReader, JournalWriter } from '#src/ledger/journal.js';
import { createGroupNames, GroupNames } from '#src/registry/group-names.js';
import { createKeyTableBuffers, KeyTable } from '#src/registry/key-table.js';
import { LedgerFlush, type FlushStore, type FlushContext } from '#src/store/flush.js';
import { SharedKeyUses } from '#src/store/key-uses.js';
import { SharedQuotaUses } from '#src/store/quota-uses.js';
import { recover } from '#src/store/recovery.js';
import { SharedUsageBook } from '#src/store/usage-book.js';
import { SharedSpentTotals } from '#src/store/spent-totals.js';
import type { Store } from '#src/store/store.js';
import { ACCOUNTS_MAX, CATALOG, KEYS_MAX, ListLog } from '../unit/store/support.js';
import { admitTo } from '../fixtures/ledger-world.js';

export const BOUNDS = { accountsMax: ACCOUNTS_MAX, keysMax: KEYS_MAX, groupsMax: 8 };
const SLOT = asCallSlot(0);
const CALLS_PER_DAY = 1_000_000_000;

export interface BooksMember {
  readonly ledger: Ledger;
  /** What the coordinator has lent is put here. */
  readonly leases: Leases;
  readonly keyTable: KeyTable;
  /** Appends what a call cost, or takes it back. */
  readonly record: (of: Partial<JournalRecord> & Pick<JournalRecord, 'account' | 'charged'>) => void;
  readonly totals: SharedSpentTotals;
  readonly flush: LedgerFlush;
  readonly log: ListLog;
  /**
   * A call of the account by key 0, or that of `more`, from admission to its record; what it costs must have
   * been leased.
   */
  readonly serve: (account: AccountIndex, cost: bigint, more?: Partial<JournalRecord>) => void;
}

/**
 * `life` is text that no other gateway has had; flushes go `through` a store of the caller's where it is
 * given.
 */
export function joinBooks(
  store: Store,
  clock: Clock,
  slot: number,
  life: string,
  through: FlushStore = store,
  more: Partial<Omit<FlushContext, 'usage' | 'keyUses' | 'quotaUses'>> = {},
): BooksMember {
  const buffers = createLedgerBuffers({ ...BOUNDS, callsInFlightMax: 16, shared: true });
  const leases = new Leases(buffers, clock);
  const ledger = new Ledger(buffers, clock);
  const keyTable = new KeyTable(createKeyTableBuffers({ keysMax: KEYS_MAX }));
  const groupNames = new GroupNames(createGroupNames(BOUNDS.groupsMax));
  const ring = createRing(1_024);
  const journal = new JournalWriter(ring, () => undefined);
  const totals = new SharedSpentTotals(
    ACCOUNTS_MAX,
    (account) => store.findSpending(account),
    (account, amount) => leases.removeReversed(account, amount),
  );
  const log = new ListLog();
  recover({
    store,
    ledger,
    totals: undefined,
    keyTable,
    groupNames,
    catalog: CATALOG,
    ...BOUNDS,
    clock,
    log,
  });
  const flush = new LedgerFlush({
    ledger,
    journals: [new JournalReader(ring)],
    requestPrefixOf: (listener) => `req_${listener}-`,
    totals,
    mark: store.newFlushMark(slot, life),
    store: through,
    usage: new SharedUsageBook(through, (index) => CATALOG.models[index]!.id),
    rejectOnError: () => false,
    keyUses: new SharedKeyUses({ ledger, keyTable, groupNames }, clock, store.keys, log),
    quotaUses: new SharedQuotaUses(ledger, clock, () => '', store.quotaUses, log),
    clock,
    log,
    ...more,
  });
  const record: BooksMember['record'] = (of) => {
    journal.append({
      ...{
        request: 1,
        endedMs: clock.wallMs(),
        promptTokens: 3,
        cachedTokens: 1,
        cacheWriteTokens: 0,
        cacheWrite1hTokens: 0,
        reasoningTokens: 0,
        completionTokens: 2,
      },
      ...{ uncovered: asPicoUnits(0n), key: asKeyIndex(0), model: 0, requested: 0 },
      ...{ outcome: 'served', source: 0, durationMs: 5 },
      ...of,
    });
  };
  const serve: BooksMember['serve'] = (account, cost, more = {}) => {
    if (admitTo(ledger, SLOT, account, CALLS_PER_DAY, asPicoUnits(cost)) !== 'admitted')
      throw new Error('not admitted');
    const { charged, uncovered } = ledger.settle(SLOT, asPicoUnits(cost))!;
    record({ account, charged, uncovered, ...more });
  };
  return { ledger, leases, keyTable, record, totals, flush, log, serve };
}
