/**
 * Schemas and codecs of the records on disk: maps packed by msgpackr, each with the number of its format
 * first. The files of src/store pack and read records by them. The records of keys, groups, operators, quota
 * use and stored responses have theirs in the files of their tables. Main thread.
 *
 * Money is decimal text of whole pico-units, because a packed integer comes back as a number or a bigint
 * depending on its size. A row that does not fit its schema was not written by this program or is damaged:
 * its reader throws and never guesses.
 *
 * Must hold: names and meanings of fields are on disk for ever. A new field is `Type.Optional`, so that the
 * same reader reads records of earlier formats, and FORMAT is raised, so that an older Tollgate rejects the
 * store instead of calling it damaged. Tests: test/unit/store/record-codec.rows-on-disk.test.ts (rows word
 * for word), test/unit/store/record-codec.usage.test.ts, test/unit/store/key-rows.key-codec.test.ts.
 */
import type { Key, RangeOptions } from 'lmdb';
import type { Static } from 'typebox';
import * as Type from 'typebox';
import { schemaCheck } from '../core/schema-check.js';
import { asAccountIndex, asPicoUnits, asWallMs } from '../core/units.js';
import type { QuotaLimits } from '../core/quotas.js';
import type {
  AccountRecord,
  CreditRecord,
  CreditRequestRecord,
  SpendingRecord,
} from '../registry/account-record.js';
import type { UsageTotals } from '../registry/usage-report.js';
import type { Table } from './row-recorder.js';
import { StoreError } from './store-file.js';

/** Format of the store, and of the records that are written now. Earlier records keep theirs. */
export const FORMAT = 5;

/** An object that has no fields but `fields`: a row with another field is damaged. */
export function closedObject<Fields extends Type.TProperties>(fields: Fields): Type.TObject<Fields> {
  return Type.Object(fields, { additionalProperties: false });
}

/** The format of a record. Formats differ only in fields that may be absent, so one schema reads all. */
export const Format = Type.Integer({ minimum: 1, maximum: FORMAT });
/** The slot of an account, key or group. */
export const Slot = Type.Integer({ minimum: 0 });
export const Count = Type.Integer({ minimum: 0 });
/** Unix milliseconds. */
export const Moment = Type.Integer();
/** Pico-units, as decimal text. */
const Money = Type.String({ pattern: '^-?(0|[1-9][0-9]{0,18})$' });
/** SHA-256, in hexadecimal. */
export const Digest = Type.String({ pattern: '^[0-9a-f]{64}$' });

const Limit = Type.Optional(Type.Integer({ minimum: 1 }));
/**
 * The limits that a scope has; others are absent. Formats before 4 had the first two only.
 * change-description.ts makes names of the admin interface from these names.
 */
export const LIMITS = {
  requestsPerMinute: Limit,
  callsPerDay: Limit,
  tokensPerMinute: Limit,
  callsInFlight: Limit,
  tokensPerDay: Limit,
  callsPerMonth: Limit,
  tokensPerMonth: Limit,
  spendPerDayPicoUnits: Type.Optional(Money),
  spendPerMonthPicoUnits: Type.Optional(Money),
};
type StoredLimits = Static<Type.TObject<typeof LIMITS>>;

export function packLimits({ spendPerDay, spendPerMonth, ...counts }: QuotaLimits): StoredLimits {
  const limits = {
    ...counts,
    spendPerDayPicoUnits: spendPerDay?.toString(),
    spendPerMonthPicoUnits: spendPerMonth?.toString(),
  };
  return Object.fromEntries(Object.entries(limits).filter(([, limit]) => limit !== undefined));
}

export function readLimits(stored: StoredLimits): QuotaLimits {
  const money = (text: string | undefined) => (text === undefined ? undefined : asPicoUnits(BigInt(text)));
  return {
    requestsPerMinute: stored.requestsPerMinute,
    tokensPerMinute: stored.tokensPerMinute,
    callsInFlight: stored.callsInFlight,
    callsPerDay: stored.callsPerDay,
    tokensPerDay: stored.tokensPerDay,
    callsPerMonth: stored.callsPerMonth,
    tokensPerMonth: stored.tokensPerMonth,
    spendPerDay: money(stored.spendPerDayPicoUnits),
    spendPerMonth: money(stored.spendPerMonthPicoUnits),
  };
}

const StoredAccount = closedObject({
  format: Format,
  index: Slot,
  id: Type.String(),
  name: Type.String(),
  planId: Type.String(),
  active: Type.Boolean(),
  groupId: Type.Optional(Type.String()),
  createdMs: Moment,
  creditedPicoUnits: Money,
});

const StoredCredit = closedObject({
  format: Format,
  amountPicoUnits: Money,
  note: Type.String(),
  createdMs: Moment,
});

/** `answer` is the record's `response`, by the name that it has on disk. */
const StoredCreditRequest = closedObject({
  format: Format,
  amountPicoUnits: Money,
  note: Type.String(),
  answer: Type.String(),
});

/** SpendingRecord says what the counts are of. */
const StoredSpending = closedObject({
  format: Format,
  spentPicoUnits: Money,
  uncoveredPicoUnits: Money,
  dayNumber: Type.Integer(),
  dayCalls: Count,
  minuteUsed: Count,
  takenMs: Moment,
});

const StoredUsage = closedObject({
  format: Format,
  calls: Count,
  failedCalls: Count,
  estimatedCalls: Count,
  promptTokens: Count,
  cachedTokens: Count,
  completionTokens: Count,
  // Written only if they are not 0, as nearly always they are.
  fallbackCalls: Type.Optional(Count),
  cacheWriteTokens: Type.Optional(Count),
  cacheWrite1hTokens: Type.Optional(Count),
  reasoningTokens: Type.Optional(Count),
  costPicoUnits: Money,
  uncoveredPicoUnits: Money,
});

/** LMDB orders a key with it after the keys with any slot, number or moment in its place. */
export const AFTER_ALL_NUMBERS = Number.MAX_SAFE_INTEGER;

/** Checks and unpacks a row. Throws StoreError `damaged`; `location` names the record in the message. */
export type RowReader<Row> = (stored: unknown, location: string) => Row;

/**
 * Returns the reader of the rows that fit `schema`. `unpack` may throw a StoreError too. Call it as a module
 * is loaded, once for each schema: `name` is as `schemaCheck` has it.
 */
export function rowReader<Schema extends Type.TSchema, Row>(
  name: string,
  schema: Schema,
  unpack: (stored: Static<Schema>, location: string) => Row,
): RowReader<Row> {
  const isStored = schemaCheck(name, schema);
  return (stored, location) => {
    if (!isStored(stored)) throw damaged(location);
    return unpack(stored, location);
  };
}

/** Returns the record under `key`; undefined if there is none. Throws as `read`. */
export function findRow<TableKey extends Key, Row>(
  table: Table<TableKey>,
  key: TableKey,
  read: RowReader<Row>,
): Row | undefined {
  const stored = table.get(key);
  return stored === undefined ? undefined : read(stored, locationOf(table, key));
}

/**
 * Returns what `read` returns; if the row is damaged, calls `onDamaged` and returns undefined. For rows that
 * only count use and for stored responses, which a flush reads in the transaction of charges: one damaged row
 * of this kind must not stop the charges for ever.
 */
export function unlessDamaged<Row>(
  read: () => Row | undefined,
  onDamaged: (message: string) => void = () => undefined,
): Row | undefined {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof StoreError) || error.code !== 'damaged') throw error;
    onDamaged(error.message);
    return undefined;
  }
}

/** Keys and records of a range, or of the whole table. Throws as `read`, at a row that it cannot read. */
export function* rowsIn<TableKey extends Key, Row>(
  table: Table<TableKey>,
  read: RowReader<Row>,
  range?: RangeOptions,
): Generator<[TableKey, Row]> {
  for (const { key, value } of table.getRange(range)) yield [key, read(value, locationOf(table, key))];
}

/** The number under `key`, 0 if there is none. Throws StoreError `damaged`. */
export function countAt(table: Table<string>, key: string): number {
  const count = table.get(key) ?? 0;
  if (typeof count !== 'number') throw damaged(locationOf(table, key));
  return count;
}

/** The id under `slot`; undefined if there is none. Throws StoreError `damaged`. */
export function idAt(table: Table<number>, slot: number): string | undefined {
  const id = table.get(slot);
  if (id !== undefined && typeof id !== 'string') throw damaged(locationOf(table, slot));
  return id;
}

export function packAccount(record: AccountRecord): Static<typeof StoredAccount> {
  const { credited, groupId, ...plainFields } = record;
  const group = groupId === undefined ? {} : { groupId };
  return { format: FORMAT, ...plainFields, ...group, creditedPicoUnits: credited.toString() };
}

export const readAccount = rowReader('StoredAccount', StoredAccount, (stored): AccountRecord => ({
  index: asAccountIndex(stored.index),
  id: stored.id,
  name: stored.name,
  planId: stored.planId,
  active: stored.active,
  groupId: stored.groupId,
  createdMs: asWallMs(stored.createdMs),
  credited: asPicoUnits(BigInt(stored.creditedPicoUnits)),
}));

export function packCredit(record: CreditRecord): Static<typeof StoredCredit> {
  const { amount, note, createdMs } = record;
  return { format: FORMAT, amountPicoUnits: amount.toString(), note, createdMs };
}

export const readCredit = rowReader(
  'StoredCredit',
  StoredCredit,
  ({ amountPicoUnits, note, createdMs }): CreditRecord => ({
    amount: asPicoUnits(BigInt(amountPicoUnits)),
    note,
    createdMs: asWallMs(createdMs),
  }),
);

export function packCreditRequest(record: CreditRequestRecord): Static<typeof StoredCreditRequest> {
  const { amount, note, response: answer } = record;
  return { format: FORMAT, amountPicoUnits: amount.toString(), note, answer };
}

export const readCreditRequest = rowReader(
  'StoredCreditRequest',
  StoredCreditRequest,
  ({ amountPicoUnits, note, answer: response }): CreditRequestRecord => ({
    amount: asPicoUnits(BigInt(amountPicoUnits)),
    note,
    response,
  }),
);

export function packSpending(record: SpendingRecord): Static<typeof StoredSpending> {
  // Field by field, because a flush packs many rows and a spread object is slower.
  return {
    format: FORMAT,
    spentPicoUnits: record.spent.toString(),
    uncoveredPicoUnits: record.uncovered.toString(),
    dayNumber: record.dayNumber,
    dayCalls: record.dayCalls,
    minuteUsed: record.minuteUsed,
    takenMs: record.takenMs,
  };
}

export const readSpending = rowReader('StoredSpending', StoredSpending, (stored): SpendingRecord => ({
  spent: asPicoUnits(BigInt(stored.spentPicoUnits)),
  uncovered: asPicoUnits(BigInt(stored.uncoveredPicoUnits)),
  dayNumber: stored.dayNumber,
  dayCalls: stored.dayCalls,
  minuteUsed: stored.minuteUsed,
  takenMs: asWallMs(stored.takenMs),
}));

export function packUsage(totals: UsageTotals): Static<typeof StoredUsage> {
  const { fallbackCalls, cacheWriteTokens, cacheWrite1hTokens, reasoningTokens } = totals;
  const stored: Static<typeof StoredUsage> = {
    format: FORMAT,
    calls: totals.calls,
    failedCalls: totals.failedCalls,
    estimatedCalls: totals.estimatedCalls,
    promptTokens: totals.promptTokens,
    cachedTokens: totals.cachedTokens,
    completionTokens: totals.completionTokens,
    costPicoUnits: totals.cost.toString(),
    uncoveredPicoUnits: totals.uncovered.toString(),
  };
  if (fallbackCalls !== 0) stored.fallbackCalls = fallbackCalls;
  if (cacheWriteTokens !== 0) stored.cacheWriteTokens = cacheWriteTokens;
  if (cacheWrite1hTokens !== 0) stored.cacheWrite1hTokens = cacheWrite1hTokens;
  if (reasoningTokens !== 0) stored.reasoningTokens = reasoningTokens;
  return stored;
}

export const readUsage = rowReader('StoredUsage', StoredUsage, (stored): UsageTotals => ({
  calls: stored.calls,
  failedCalls: stored.failedCalls,
  estimatedCalls: stored.estimatedCalls,
  fallbackCalls: stored.fallbackCalls ?? 0,
  promptTokens: stored.promptTokens,
  cachedTokens: stored.cachedTokens,
  cacheWriteTokens: stored.cacheWriteTokens ?? 0,
  cacheWrite1hTokens: stored.cacheWrite1hTokens ?? 0,
  completionTokens: stored.completionTokens,
  reasoningTokens: stored.reasoningTokens ?? 0,
  cost: asPicoUnits(BigInt(stored.costPicoUnits)),
  uncovered: asPicoUnits(BigInt(stored.uncoveredPicoUnits)),
}));

/** Names a row in a message. */
export function rowName(table: string, key: Key): string {
  return `record ${Array.isArray(key) ? key.join('/') : String(key)} of table ${table}`;
}

/** Names a row in an error about it. */
export function locationOf({ path, name }: Pick<Table<Key>, 'path' | 'name'>, key: Key): string {
  return `${path}: ${rowName(name, key)}`;
}

/** The error of a row that its reader does not accept. */
export function damaged(location: string): StoreError {
  return new StoreError('damaged', `${location} is damaged. Restore the store from a backup.`);
}
