/**
 * The phases over real shared buffers, a clock that stands still, and no sockets.
 */
import { asAccountIndex, asKeyIndex, asMonotonicMs, asPicoUnits, asWallMs } from '#src/core/units.js';
import { picoUnitsOf } from '#src/core/money.js';
import { dayNumberOf } from '#src/ledger/day.js';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { createRing, type JournalRecord } from '#src/ledger/journal-layout.js';
import { JournalReader, JournalWriter } from '#src/ledger/journal.js';
import { PendingCommits } from '#src/ledger/pending-commits.js';
import { NO_QUOTAS, type QuotaLimits } from '#src/core/quotas.js';
import { Ledger } from '#src/ledger/ledger.js';
import { CallContext, type ListenerContext } from '#src/request/context.js';
import { ModelAccess } from '#src/request/model-access.js';
import { CallTable, createCallTable } from '#src/channel/call-table.js';
import { ListenerChannel } from '#src/channel/listener-channel.js';
import { readChatBytes } from '#src/protocol/request-bytes.js';
import type { ChatCall } from '#src/protocol/chat-call.js';
import { type Catalog, type PlanEntry, tokenPriceOf } from '#src/registry/catalog.js';
import { digestOf, generateKey } from '#src/registry/key-digest.js';
import { createGroupNames, GroupNames } from '#src/registry/group-names.js';
import { KeyTable, createKeyTableBuffers } from '#src/registry/key-table.js';
import { createCallRing } from '#src/telemetry/call-ring-layout.js';
import { CallRingWriter } from '#src/telemetry/call-ring-writer.js';
import { LogSwitch, createLogSwitch } from '#src/telemetry/log-switch.js';
import { ListenerMetrics } from '#src/telemetry/metrics-writers.js';
import { createMetrics } from '#src/telemetry/metrics-layout.js';

const pico = (amount: string) => picoUnitsOf(amount)!;

/** One token of input costs 1, cached 0.5, of output 2 millionths of a unit. */
const PRICE = tokenPriceOf({
  inputPicoUnits: asPicoUnits(1_000_000n),
  cachedInputPicoUnits: asPicoUnits(500_000n),
  outputPicoUnits: asPicoUnits(2_000_000n),
});
const model = (id: string, price = PRICE) => ({
  id,
  aliases: [`also-${id}`],
  ownedBy: 'test',
  createdSeconds: 0,
  price,
  outputTokensMax: 1_000,
  serves: ['chat' as const],
  mediaPartTokens: 0,
  passMembers: [],
  fallbacks: [] as number[],
});
const FREE = tokenPriceOf({ inputPicoUnits: asPicoUnits(0n), outputPicoUnits: asPicoUnits(0n) });

export const CATALOG: Catalog = {
  models: [model('priced'), model('free', FREE), model('hidden')],
  plans: [
    {
      id: 'plan',
      requestsPerMinute: 2,
      callsPerDay: 3,
      outputTokensMax: undefined,
      callsInFlightMax: 8,
      bodyBytesMax: 10_000,
      quotas: { ...NO_QUOTAS, requestsPerMinute: 2, callsPerDay: 3 },
      modelLimits: undefined,
      modelIndices: [0, 1],
    },
  ],
};

const GROUPS = 4;

/** 2026-03-01T12:00:00.500Z: 20:00 in UTC+8. */
const NOON_MS = Date.UTC(2026, 2, 1, 12, 0, 0, 500);
export const SECONDS_TO_MIDNIGHT = 4 * 60 * 60;

export class StillClock {
  nowMs = 0;
  /** By which the calendar was set forward, or back. */
  stepMs = 0;

  monotonicMs() {
    return asMonotonicMs(1_000_000 + this.nowMs);
  }

  wallMs() {
    return asWallMs(NOON_MS + this.nowMs + this.stepMs);
  }
}

export interface House {
  readonly listener: ListenerContext;
  /** The same as another listener has them: what a Ledger returns is overwritten by its own next call. */
  readonly ofAnotherThread: () => ListenerContext;
  readonly clock: StillClock;
  readonly key: string;
  readonly keyIndex: ReturnType<typeof asKeyIndex>;
  readonly account: ReturnType<typeof asAccountIndex>;
  /** What the journal was told since it was last asked. */
  readonly records: () => JournalRecord[];
}

export function openHouse({
  credit = '1.00',
  lowBalance = 'refuse',
  slots = 4,
  durability = 'interval',
}: {
  credit?: string;
  lowBalance?: 'refuse' | 'clamp';
  slots?: number;
  durability?: 'interval' | 'commit';
} = {}): House {
  const clock = new StillClock();
  const buffers = createLedgerBuffers({
    accountsMax: 4,
    callsInFlightMax: 20,
    keysMax: 4,
    groupsMax: GROUPS,
  });
  const ledger = new Ledger(buffers, clock);
  const keys = new KeyTable(createKeyTableBuffers({ keysMax: 4 }));
  const account = asAccountIndex(2);
  const keyIndex = asKeyIndex(3);
  const key = generateKey();
  ledger.openAccount(account, {
    credited: pico(credit),
    spent: asPicoUnits(0n),
    uncovered: asPicoUnits(0n),
    dayNumber: dayNumberOf(clock.wallMs()),
    dayCalls: 0,
    planIndex: 0,
    active: true,
  });
  keys.insert(keyIndex, digestOf(key), account, true);
  const ring = createRing(16);
  const journal = new JournalWriter(ring, () => undefined);
  const reader = new JournalReader(ring);
  const listener: ListenerContext = {
    clock,
    ledger,
    journal,
    pendingCommits: new PendingCommits(journal, clock, () => undefined),
    durability,
    keys,
    groupNames: new GroupNames(createGroupNames(GROUPS)),
    catalog: CATALOG,
    access: new ModelAccess(CATALOG),
    channel: new ListenerChannel(new CallTable(createCallTable(20, 64)), { first: 0, count: slots }),
    leases: undefined,
    metrics: new ListenerMetrics(createMetrics(1, 1), 0),
    callRing: new CallRingWriter(createCallRing(), new LogSwitch(createLogSwitch())),
    lowBalance,
    tokenQuota: 'reserve',
    cachedInput: 'count',
  };
  return {
    listener,
    ofAnotherThread: () => ({ ...listener, ledger: new Ledger(buffers, clock) }),
    clock,
    key,
    keyIndex,
    account,
    records: () => drained(reader),
  };
}

/** A context whose caller is known; `bounds` are over those of its plan, `keyLimits` what the ledger has. */
export function knownCaller(
  { account, keyIndex }: House,
  bounds: Partial<PlanEntry> = {},
  keyLimits?: Partial<QuotaLimits>,
): CallContext {
  const context = new CallContext('req_test', 1);
  context.caller = {
    key: keyIndex,
    account,
    planIndex: 0,
    plan: { ...CATALOG.plans[0]!, ...bounds },
    isLimited: keyLimits !== undefined,
  };
  return context;
}

export function chatCall(fields: object): ChatCall {
  const text = JSON.stringify({ model: 'priced', messages: [{ role: 'user', content: 'hi' }], ...fields });
  const read = readChatBytes(Buffer.from(text));
  if (!read.ok) throw new Error(read.error.message);
  return read.call;
}

function drained(reader: JournalReader): JournalRecord[] {
  const records: JournalRecord[] = [];
  reader.drain((record) => records.push({ ...record }));
  return records;
}
