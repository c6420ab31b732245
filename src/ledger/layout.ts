/**
 * The layout of the ledger's shared buffers; reservation-layout.ts has that of reservations.
 * gateway/accounting-base.ts creates the buffers; the main thread and every listener open them through this
 * file, and no file outside of src/ledger has an offset of a record. The buffers are in memory alone, so a
 * new version may change their layout. Any thread.
 *
 * Must hold: no two fields of a record share a byte, and all lie within it (the test lists all fields: a new
 * one is added there). Fields have the names of the constants below, which count words of 64 or 32 bits, as
 * the comment of each group says. A word that several threads write is changed atomically, mostly by
 * compare-exchange (CAS) or addition (add). Further tests, of quota records: test/unit/ledger/stocks.test.ts,
 * test/unit/ledger/token-window.test.ts.
 *
 * The buffers are made once, at full capacity. The kernel provides a page of memory at the first touch, so a
 * million accounts cost nothing until they exist, and no thread has to learn of a new buffer.
 *
 * Accounts, keys, groups and rules for models have a _counted_ record each: 256 bytes, in which a minute and
 * a day are counted. Four cache lines, so a neighbour's calls never touch them. An account's:
 *
 *     byte  bits  field               written by        meaning
 *        0    64  WINDOW              any thread (CAS)  tick, age and count of the minute: window.ts
 *        8    64  DAY                 any thread        a stock of calls (CAS, add): day.ts, stocks.ts
 *       16    64  CREDITED            main thread       all money put in, less what was taken out
 *       24    64  AVAILABLE           any thread        what a new hold may take (CAS, add)
 *       32    64  SPENT               any thread (add)  what settled calls have cost
 *       40    64  UNCOVERED           any thread (CAS)  cost that the balance did not cover
 *       48    32  STATUS              main thread       index of the plan << 1 | 1 if it is active
 *       52 51×32  TICK_STARTS         any thread (CAS)  count as each of the last 51 ticks began
 *
 * The dirty set is one bit an account, 32 to a word: dirty-set.ts. The 16 extra bytes of an account:
 *
 *        0    64  FLIGHT              any thread        its calls in flight, a stock (CAS, add): stocks.ts
 *        8    32  GROUP               main thread       index + 1 of its group, or 0
 *       12    32  ACCOUNT_RECORD      any thread        index + 1 of its quota record, or 0
 *
 * The counted record of a key. WINDOW, DAY and TICK_STARTS are where an account has them, so the same code
 * counts them; bytes 32 to 51 are unused. No thread touches the record of a key without limits of its own:
 *
 *       16    32  REQUESTS_PER_MINUTE main thread       its limit; 0: none of its own
 *       20    32  CALLS_PER_DAY       main thread       its limit; 0: none of its own
 *       24    32  RECORD              main thread       index + 1 of its quota record; 0: none, -1: none left
 *       28    32  PARENT              main thread       of a group: index + 1 of the group above it, or 0
 *
 * Groups have the same record. So has the rule of an account's plan for a model, one for each account and
 * model (scopes of the kind `model`), in the buffers `models`. Any thread gives a rule its RECORD; its limits
 * and parent stay 0, as the plan has the limits. All three have a dirty set each.
 *
 * One quota record, 640 bytes (the last 56 unused), of a scope that has quotas besides requests a minute and
 * calls a day. Accounts and rules get one with their first call, keys and groups with their limits:
 *
 *        0  7×64  LIMITS              main thread       by EXTENDED_QUOTAS (floats); of keys and groups alone
 *       56    32  MASK                main thread       bit n: LIMITS has one of quota n
 *       60    32  LAST_STARTED_TICK   any thread (CAS)  last tick whose start is kept: token-window.ts
 *       64 14×64  STOCKS              any thread        two words a quota (CAS, add): stocks.ts
 *      176 51×64  TOKEN_TICK_STARTS   any thread (CAS)  tokens settled as a tick began: token-window.ts
 *
 * Quota records lie in a memory of WebAssembly. Behind them are the scratch areas of quota-batch.ts. The
 * module of quota-module.ts has offsets of quota records too: each thread that uses the module compiles it
 * from a text with the constants below, so it follows them.
 *
 * If limits are shared with other processes, a quota record has LEASES in place of TOKEN_TICK_STARTS, and the
 * counted record holds what the coordinator granted to this process, without TICK_STARTS (leases.ts):
 *
 *        0    64  WINDOW              any thread (CAS)  expiry in ms << 20 | permits left: leased-window.ts
 *       16    64  CREDITED            main thread       all money granted here, less what was given back
 *       24  3×64  AVAILABLE, …        any thread        money as above, since this process started
 *       64    64  LOW_MONEY           main thread       ask for more if a hold leaves less than this
 *       72    64  MONEY_REMAINING     main thread       pico-units left at the coordinator, by its last reply
 *       80    64  MINUTE_FREE_MS      main thread       monotonic ms when a permit of the minute is free
 *       88    64  MINUTE_REJECTED_UNTIL_MS main thread  monotonic ms before which no listener asks for one
 *       96    32  LOW_MINUTE          main thread       ask for more if a take leaves so many permits
 *      100    32  MINUTE_REMAINING    main thread       permits left at the coordinator, by its last reply
 *      104    32  MINUTE_REJECTED_LIMIT main thread     limit for which MINUTE_REJECTED_UNTIL_MS holds
 *      112  5×64  DAY_LEASE           main thread       lease of the calls of the day: leased-stocks.ts
 *      152  5×64  FLIGHT_LEASE        main thread       lease of an account's calls in flight
 */
import {
  type AccountIndex,
  type Branded,
  ceilDiv,
  type GroupIndex,
  type KeyIndex,
  type ModelScopeIndex,
} from '../core/units.js';
import { invariant } from '../core/errors.js';
import { createSharedMemory } from '../core/shared-memory.js';
import {
  ACCOUNTS_MAX,
  CALLS_IN_FLIGHT_MAX,
  GROUPS_MAX,
  KEYS_MAX,
  MODEL_SCOPES_MAX,
  QUOTA_SCOPES_MAX,
} from '../core/limits.js';
import { SPECIFIED_TIMEZONE } from '../core/calendar.js';
import type { QuotaName } from '../core/quotas.js';
import { lowestBitOf } from './packed-words.js';
import { RESERVATION_BYTES } from './reservation-layout.js';

/**
 * How often a compare-exchange is tried. Each lost try is another thread's progress, so more tries are a bug.
 * The error that is thrown then ends the thread, like that of `invariant`.
 */
export const EXCHANGES_MAX = 100_000;

/** Bytes of the counted record of an account, a key, a group or a rule. */
const COUNTED_BYTES = 256;
const EXTRA_BYTES = 16;
export const QUOTA_BYTES = 640;
export const DIRTY_BITS_PER_WORD = 32;

/** Length of a counted record, and fields of an account's, in 64-bit words. */
export const COUNTED_WORDS64 = COUNTED_BYTES / 8;
export const WINDOW = 0;
export const DAY = 1;
export const CREDITED = 2;
export const AVAILABLE = 3;
export const SPENT = 4;
export const UNCOVERED = 5;

/** The same in 32-bit words. TICKS_KEPT: how many TICK_STARTS fit; window.ts needs exactly so many. */
export const COUNTED_WORDS32 = COUNTED_BYTES / 4;
export const STATUS = 12;
export const TICK_STARTS = 13;
export const TICKS_KEPT = COUNTED_WORDS32 - TICK_STARTS;

/** Fields in place of TICK_STARTS, if limits are shared, in 64-bit words. */
export const LOW_MONEY = 8;
export const MONEY_REMAINING = 9;
export const MINUTE_FREE_MS = 10;
export const MINUTE_REJECTED_UNTIL_MS = 11;
export const DAY_LEASE = 14;
export const FLIGHT_LEASE = 19;
export const LOW_MINUTE = 24; // from here on in 32-bit words
export const MINUTE_REMAINING = 25;
export const MINUTE_REJECTED_LIMIT = 26;

/** Fields of a key, a group or a rule, where an account has its money, in 32-bit words. */
export const REQUESTS_PER_MINUTE = 4;
export const CALLS_PER_DAY = 5;
export const RECORD = 6;
export const PARENT = 7;

/** Length of an account's extra bytes. FLIGHT is in 64-bit words, GROUP and ACCOUNT_RECORD in 32-bit ones. */
export const EXTRA_WORDS64 = EXTRA_BYTES / 8;
const EXTRA_WORDS32 = EXTRA_BYTES / 4;
export const FLIGHT = 0;
const GROUP = 2;
const ACCOUNT_RECORD = 3;

/**
 * The quotas that a quota record counts, in the order of its stocks, in which admission takes them too. There
 * is no bit for an eighth in a byte of TAKEN_MASKS, whose highest bit is DAY_BIT (reservations.ts).
 */
export const EXTENDED_QUOTAS = [
  'calls_in_flight',
  'tokens_per_minute',
  'tokens_per_day',
  'calls_per_month',
  'tokens_per_month',
  'spend_per_day',
  'spend_per_month',
] as const satisfies readonly QuotaName[];

export type ExtendedQuota = (typeof EXTENDED_QUOTAS)[number];

/**
 * The number of a quota in EXTENDED_QUOTAS: of its stock, and of its bit in masks. A type of its own, so that
 * nobody passes a record, a limit or the position of a scope in its place.
 */
export type QuotaNumber = Branded<number, 'QuotaNumber'>;
type OfEach<T> = [T, T, T, T, T, T, T];

export const [
  CALLS_IN_FLIGHT,
  TOKENS_PER_MINUTE,
  TOKENS_PER_DAY,
  CALLS_PER_MONTH,
  TOKENS_PER_MONTH,
  SPEND_PER_DAY,
  SPEND_PER_MONTH,
] = EXTENDED_QUOTAS.keys() as Iterable<number> as OfEach<QuotaNumber>;

export const quotaNumberOf = (name: ExtendedQuota): QuotaNumber =>
  EXTENDED_QUOTAS.indexOf(name) as QuotaNumber;
/** The first quota of a mask that has one. */
export const lowestQuotaOf = lowestBitOf as (mask: number) => QuotaNumber;

/** Length and fields of a quota record, in 64-bit words. */
export const QUOTA_WORDS64 = QUOTA_BYTES / 8;
export const LIMITS = 0;
export const STOCKS = 8;
/** Length of a stock. Its first word is `taken`, and `settled` lies STOCK_SETTLED words further. */
export const STOCK_WORDS = 2;
export const STOCK_SETTLED = 1;
export const TOKEN_TICK_STARTS = STOCKS + EXTENDED_QUOTAS.length * STOCK_WORDS;
/** How many tick starts are kept; token-window.ts needs exactly so many. */
export const TOKEN_TICKS_KEPT = 51;
/** If limits are shared, a lease of each quota is in place of `starts`. leased-stocks.ts has its fields. */
export const LEASES = TOKEN_TICK_STARTS;
export const LEASE_WORDS = 5;

/** Length and fields of a quota record, in 32-bit words. */
export const QUOTA_WORDS32 = QUOTA_BYTES / 4;
export const MASK = 14;
export const LAST_STARTED_TICK = 15;
/** Scratch areas of quota-batch.ts: how many, bytes of one, and the word of `quotasUsed` that counts them. */
export const [SCRATCH_AREAS, SCRATCH_BYTES, SCRATCH_USED] = [1_024, 2_048, 1];

// Where a field lies in the words of its buffer. `scope` is the index of an account, key, group or rule.
export const windowAt = (scope: number): number => scope * COUNTED_WORDS64 + WINDOW;
export const dayAt = (scope: number): number => scope * COUNTED_WORDS64 + DAY;
export const recordAt = (scope: number): number => scope * COUNTED_WORDS32 + RECORD;
export const statusAt = (account: number): number => account * COUNTED_WORDS32 + STATUS;
export const flightAt = (account: number): number => account * EXTRA_WORDS64 + FLIGHT;
export const groupAt = (account: number): number => account * EXTRA_WORDS32 + GROUP;
export const accountRecordAt = (account: number): number => account * EXTRA_WORDS32 + ACCOUNT_RECORD;
export const stockAt = (record: number, quota: QuotaNumber): number =>
  record * QUOTA_WORDS64 + STOCKS + quota * STOCK_WORDS;

/** The index in a word that holds index + 1; undefined for 0, and for the -1 of a scope's word `record`. */
export function indexIn(word: number): number | undefined {
  return word <= 0 ? undefined : word - 1;
}

/** The word that holds `index` + 1; 0 for undefined. */
export function wordOf(index: number | undefined): number {
  return index === undefined ? 0 : index + 1;
}

/** The records of scopes of one kind, and their dirty set. */
type CountedBuffers = Readonly<ReturnType<typeof createCountedBuffers>>;

/** All buffers of a ledger. A plain object of shared memory: hand it to a thread in its `workerData`. */
export type LedgerBuffers = Readonly<ReturnType<typeof createLedgerBuffers>>;

/** Views of the records of one kind of scope. Minutes and days are counted in them. */
export type CountedViews = Readonly<ReturnType<typeof countedViews>>;

export type QuotaViews = Readonly<ReturnType<typeof quotaViews>>;

export type LedgerViews = Readonly<ReturnType<typeof openLedgerViews>>;

/**
 * Buffers for `accountsMax` accounts, `callsInFlightMax` calls, `keysMax` keys and `groupsMax` groups (none
 * by default), all zero: no account is active, every slot is free, no key has limits.
 */
export function createLedgerBuffers(capacity: {
  readonly accountsMax: number;
  readonly callsInFlightMax: number;
  readonly keysMax?: number;
  readonly groupsMax?: number;
  readonly timezone?: string;
  /** Whether limits are shared with other processes; records then hold what was granted. */
  readonly shared?: boolean;
}) {
  const { accountsMax, callsInFlightMax, keysMax = 0, groupsMax = 0 } = capacity;
  const { timezone = SPECIFIED_TIMEZONE, shared = false } = capacity;
  invariant(accountsMax >= 1 && accountsMax <= ACCOUNTS_MAX, `accountsMax within 1..${ACCOUNTS_MAX}`);
  invariant(
    callsInFlightMax >= 1 && callsInFlightMax <= CALLS_IN_FLIGHT_MAX,
    `callsInFlightMax within 1..${CALLS_IN_FLIGHT_MAX}`,
  );
  invariant(keysMax >= 0 && keysMax <= KEYS_MAX, `keysMax within 0..${KEYS_MAX}`);
  invariant(groupsMax >= 0 && groupsMax <= GROUPS_MAX, `groupsMax within 0..${GROUPS_MAX}`);
  // Slots of the hash table of ModelScopes: four for each account, up to MODEL_SCOPES_MAX.
  const modelsMax = 2 ** Math.ceil(Math.log2(Math.min(4 * accountsMax, MODEL_SCOPES_MAX)));
  // One record for each group and rule; accounts and keys share at most QUOTA_SCOPES_MAX more.
  const quotasMax = groupsMax + modelsMax + Math.min(accountsMax + keysMax, QUOTA_SCOPES_MAX);
  return {
    accountsMax,
    callsInFlightMax,
    keysMax,
    groupsMax,
    /** In which days and months begin, for all quotas but calls a day. */
    timezone,
    reservations: new SharedArrayBuffer(callsInFlightMax * RESERVATION_BYTES),
    accountExtras: new SharedArrayBuffer(accountsMax * EXTRA_BYTES),
    accounts: createCountedBuffers(accountsMax),
    keys: createCountedBuffers(keysMax),
    groups: createCountedBuffers(groupsMax),
    models: createCountedBuffers(modelsMax),
    /** 64 bits a slot of `models`: its account and model, as model-scopes.ts codes them. */
    modelPairs: new SharedArrayBuffer(modelsMax * BigInt64Array.BYTES_PER_ELEMENT),
    quotas: createSharedMemory(quotasMax * QUOTA_BYTES + SCRATCH_AREAS * SCRATCH_BYTES),
    quotasMax,
    /** Two 32-bit words: how many quota records are in use, how many scratch areas were ever asked for. */
    quotasUsed: new SharedArrayBuffer(8),
    /** One word: ms by which the coordinator's wall clock is ahead; undefined unless limits are shared. */
    coordinatorAheadMs: shared ? new SharedArrayBuffer(BigInt64Array.BYTES_PER_ELEMENT) : undefined,
  };
}

export function openLedgerViews(buffers: LedgerBuffers) {
  const quotaWords = new BigInt64Array(buffers.quotas.buffer, 0, buffers.quotasMax * QUOTA_WORDS64);
  return {
    accounts: countedViews(buffers.accounts),
    keys: countedViews(buffers.keys),
    groups: countedViews(buffers.groups),
    quotas: quotaViews(quotaWords, buffers.quotasUsed),
    models: countedViews(buffers.models),
    modelPairs: new BigInt64Array(buffers.modelPairs),
    reservations64: new BigInt64Array(buffers.reservations),
    reservations32: new Int32Array(buffers.reservations),
    reservationBytes: new Uint8Array(buffers.reservations),
    reservationFloats: new Float64Array(buffers.reservations),
    accountExtras: new Int32Array(buffers.accountExtras),
    accountExtras64: new BigInt64Array(buffers.accountExtras),
  };
}

/** A scope that the ledger counts. Upstreams are scopes too; upstream-counters.ts has buffers for them. */
export type Scope =
  | { readonly kind: 'account'; readonly index: AccountIndex }
  | { readonly kind: 'key'; readonly index: KeyIndex }
  | { readonly kind: 'group'; readonly index: GroupIndex }
  | { readonly kind: 'model'; readonly index: ModelScopeIndex };

/** Called on the request's path, once each time a lease runs low; never if limits are not shared. */
export type OnLowLease = (kind: Scope['kind'], index: number) => void;

/** The index of a scope's quota record; undefined if it has none, or none was left for it. */
export function recordOf(views: LedgerViews, { kind, index }: Scope): number | undefined {
  return indexIn(
    kind === 'account'
      ? Atomics.load(views.accountExtras, accountRecordAt(index))
      : // The views of `key` are `keys`, and so on: LedgerViews is named by the kinds of Scope.
        Atomics.load(views[`${kind}s`].records32, recordAt(index)),
  );
}

function createCountedBuffers(count: number) {
  return {
    records: new SharedArrayBuffer(count * COUNTED_BYTES),
    dirty: new SharedArrayBuffer(ceilDiv(count, DIRTY_BITS_PER_WORD) * 4),
  };
}

function countedViews({ records, dirty }: CountedBuffers) {
  return {
    records64: new BigInt64Array(records),
    records32: new Int32Array(records),
    dirty: new Int32Array(dirty),
  };
}

/** Records of upstreams' scopes. The quota record of each has the scope's own index. */
export interface ScopeBuffers extends CountedBuffers {
  readonly quotas: SharedArrayBuffer;
}

export function createScopeBuffers(count: number): ScopeBuffers {
  return { ...createCountedBuffers(count), quotas: new SharedArrayBuffer(count * QUOTA_BYTES) };
}

export function openScopeViews(buffers: ScopeBuffers) {
  // Nobody reads this `used`: each scope has the quota record of its own index, and none is given out.
  const quotas = quotaViews(new BigInt64Array(buffers.quotas), new SharedArrayBuffer(4));
  return { counted: countedViews(buffers), quotas };
}

function quotaViews(words64: BigInt64Array<SharedArrayBuffer>, used: SharedArrayBuffer) {
  return {
    words64,
    words32: new Int32Array(words64.buffer, 0, 2 * words64.length),
    floats: new Float64Array(words64.buffer, 0, words64.length),
    used: new Int32Array(used),
  };
}
