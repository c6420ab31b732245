/**
 * A data directory of its own, a clock that stands still, and a registry over real buffers.
 */
import type { Clock } from '#src/core/clock.js';
import { NO_QUOTAS } from '#src/core/quotas.js';
import {
  asAccountIndex,
  asCallSlot,
  asKeyIndex,
  asMonotonicMs,
  asPicoUnits,
  asWallMs,
  type MonotonicMs,
  type WallMs,
} from '#src/core/units.js';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { createRing, type JournalRecord } from '#src/ledger/journal-layout.js';
import { JournalReader, JournalWriter } from '#src/ledger/journal.js';
import { Ledger } from '#src/ledger/ledger.js';
import { LedgerFlush, type FlushStore, type FlushContext } from '#src/store/flush.js';
import { KeyUses } from '#src/store/key-uses.js';
import { QuotaUses } from '#src/store/quota-uses.js';
import { SpentTotals } from '#src/store/spent-totals.js';
import { type Catalog, tokenPriceOf } from '#src/registry/catalog.js';
import { createGroupNames, GroupNames } from '#src/registry/group-names.js';
import { createKeyTableBuffers, KeyTable } from '#src/registry/key-table.js';
import type { Cause } from '#src/registry/operator-change.js';
import { OwnBuffers, StoreOnly } from '#src/registry/registry-context.js';
import { Registry } from '#src/registry/registry.js';
import { UsageBook } from '#src/store/usage-book.js';
import { Store } from '#src/store/store.js';
import type { LogLevel } from '#src/telemetry/log-switch.js';
import type { Log } from '#src/telemetry/log.js';
import { picoUnitsPerToken } from '#src/core/money.js';
import { admitTo } from '../../fixtures/ledger-world.js';

export class StoppedClock implements Clock {
  nowMs = Date.UTC(2025, 0, 31, 12);
  /** By which the calendar, `nowMs`, was set forward. */
  setMs = 0;

  monotonicMs(): MonotonicMs {
    return asMonotonicMs(this.nowMs - this.setMs);
  }

  wallMs(): WallMs {
    return asWallMs(this.nowMs);
  }
}

const price = picoUnitsPerToken('0.15')!;

const BOUNDS = {
  outputTokensMax: undefined,
  callsInFlightMax: 16,
  bodyBytesMax: 10_000,
  quotas: NO_QUOTAS,
  modelLimits: undefined,
};

export const CATALOG: Catalog = {
  models: [
    {
      id: 'small',
      aliases: [],
      ownedBy: 'house',
      createdSeconds: 1_700_000_000,
      price: tokenPriceOf({ inputPicoUnits: price, outputPicoUnits: price }),
      outputTokensMax: 100,
      serves: ['chat' as const],
      mediaPartTokens: 0,
      passMembers: [],
      fallbacks: [],
    },
  ],
  plans: [
    { ...BOUNDS, id: 'free', requestsPerMinute: 60, callsPerDay: 1_000, modelIndices: [0] },
    { ...BOUNDS, id: 'paid', requestsPerMinute: 600, callsPerDay: 100_000, modelIndices: [0] },
    { ...BOUNDS, id: 'demo', requestsPerMinute: 600, callsPerDay: 100_000, modelIndices: [] },
  ],
};

/** Keeps what was logged. */
export class ListLog implements Log {
  readonly lines: string[] = [];
  /** Of each line. */
  readonly fields: object[] = [];

  error(message: string, fields: object = {}): void {
    this.lines.push(`error ${message}`);
    this.fields.push(fields);
  }

  warn(message: string, fields: object = {}): void {
    this.lines.push(`warn ${message}`);
    this.fields.push(fields);
  }

  info(message: string, fields: object = {}): void {
    this.record(message, fields);
  }

  record(message: string, fields: object = {}, level: LogLevel = 'info'): void {
    this.lines.push(`${level} ${message}`);
    this.fields.push(fields);
  }
}

export const ACCOUNTS_MAX = 4;
export const KEYS_MAX = 4;
export const GROUPS_MAX = 8;

/** What a gateway's main thread has. */
export interface House {
  readonly clock: StoppedClock;
  readonly store: Store;
  readonly ledger: Ledger;
  readonly keyTable: KeyTable;
  readonly groupNames: GroupNames;
  readonly registry: Registry;
  readonly totals: SpentTotals;
  readonly journal: JournalWriter;
  readonly journalReader: JournalReader;
}

/** `quotaRecords`: in how many scopes the ledger can count quotas; all of them if it is left out. */
export function openHouse(dataPath: string, catalog: Catalog = CATALOG, quotaRecords?: number): House {
  const clock = new StoppedClock();
  const store = new Store(dataPath);
  const buffers = createLedgerBuffers({
    accountsMax: ACCOUNTS_MAX,
    callsInFlightMax: 16,
    keysMax: KEYS_MAX,
    groupsMax: GROUPS_MAX,
  });
  const ledger = new Ledger({ ...buffers, quotasMax: quotaRecords ?? buffers.quotasMax }, clock);
  const keyTable = new KeyTable(createKeyTableBuffers({ keysMax: KEYS_MAX }));
  const groupNames = new GroupNames(createGroupNames(GROUPS_MAX));
  const registry = new Registry({
    store,
    catalog,
    clock,
    accountsMax: ACCOUNTS_MAX,
    keysMax: KEYS_MAX,
    groupsMax: GROUPS_MAX,
    live: new OwnBuffers(store, { ledger, keyTable, groupNames }),
  });
  const ring = createRing(16);
  const journal = new JournalWriter(ring, () => undefined);
  const journalReader = new JournalReader(ring);
  const totals = new SpentTotals(ACCOUNTS_MAX);
  return { clock, store, ledger, keyTable, groupNames, registry, totals, journal, journalReader };
}

/** A registry as commands have it while no gateway runs. */
export function offlineRegistry(store: Store, clock: Clock, live = new StoreOnly(store)): Registry {
  return new Registry({
    store,
    catalog: CATALOG,
    clock,
    accountsMax: ACCOUNTS_MAX,
    keysMax: KEYS_MAX,
    groupsMax: GROUPS_MAX,
    live,
  });
}

/** The flush of a house; `store` stands in for the real one where it is given. */
export function flushOf(
  house: House,
  log: Log,
  store: FlushStore = house.store,
  more: Partial<FlushContext> = {},
): LedgerFlush {
  const { ledger, journalReader, totals, clock } = house;
  return new LedgerFlush({
    ledger,
    journals: [journalReader],
    requestPrefixOf: (listener) => `req_${listener}-`,
    totals,
    store,
    usage: new UsageBook(store, (index) => CATALOG.models[index]!.id),
    rejectOnError: () => false,
    keyUses: new KeyUses(house, clock),
    quotaUses: new QuotaUses(ledger, clock, (index) => CATALOG.models[index]!.id),
    clock,
    log,
    ...more,
  });
}

/** A call from admission to its record, as a listener makes it. */
export function serve(house: House, account: number, cost: bigint, more: Partial<JournalRecord> = {}): void {
  const slot = asCallSlot(0);
  const index = asAccountIndex(account);
  if (admitTo(house.ledger, slot, index, 1_000, asPicoUnits(cost)) !== 'admitted')
    throw new Error('not admitted');
  house.ledger.settle(slot, asPicoUnits(cost));
  house.journal.append({
    request: 1,
    endedMs: house.clock.wallMs(),
    promptTokens: 3,
    cachedTokens: 1,
    cacheWriteTokens: 0,
    cacheWrite1hTokens: 0,
    reasoningTokens: 0,
    completionTokens: 2,
    charged: asPicoUnits(cost),
    uncovered: asPicoUnits(0n),
    account: index,
    key: asKeyIndex(0),
    model: 0,
    requested: 0,
    outcome: 'served',
    source: 0,
    durationMs: 5,
    ...more,
  });
}

/** Whoever changes something in a test. */
export const TESTER: Cause = { actor: { who: 'tester', role: 'admin', from: 'test' }, action: 'test.change' };
