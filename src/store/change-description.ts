/**
 * Describes what a transaction of the registry changed: which fields of which records, before and after. The
 * description is made from the rows that the transaction wrote. operator-changes.ts calls `describeChange`
 * and `boundedDetails` inside that transaction. Pure.
 *
 * Must hold: a field has the name that it has in the admin interface, where operators read the description.
 * A secret appears only as a fingerprint, the first characters of its SHA-256
 * (test/unit/store/operator-changes.test.ts).
 */
import { decimalOf } from '../core/money.js';
import { clipped } from '../core/wrong-input.js';
import type { ChangeDetails, ChangeTarget, FieldChange, FieldValue } from '../registry/operator-change.js';
import { LIMITS } from './limits-codec.js';
import type { RecordedTable, WrittenRow } from './row-recorder.js';

/** A change of more records is described by counts and the first names, without fields. */
const RECORDS_MAX = 20;
/** Fields that a description lists; further fields are counted. Texts are cut at TEXT_CHARS_MAX. */
const FIELDS_MAX = 200;
const TEXT_CHARS_MAX = 300;
const FINGERPRINT_CHARS = 8;

type Stored = Readonly<Record<string, unknown>>;
type Fields = Readonly<Record<string, FieldValue>>;

interface RecordType {
  /** The name in `target.type` of a change. */
  readonly type: string;
  /** The fields that operators see. Checks nothing, because the store itself has packed the row. */
  readonly fields: (stored: Stored, nameOfGroup: (id: string) => string) => Fields;
}

/** How the rows of a table are described; undefined if operators see nothing of them by themselves. */
const RECORD_TYPES: Readonly<Record<RecordedTable, RecordType | undefined>> = {
  accounts: {
    type: 'account',
    fields: ({ name, planId, active, groupId, creditedPicoUnits }, nameOfGroup) => ({
      name: textOrNull(name),
      plan: textOrNull(planId),
      status: statusOf(active),
      group: groupId === undefined ? null : nameOfGroup(groupId as string),
      credited: moneyOf(creditedPicoUnits),
    }),
  },
  keys: {
    type: 'key',
    fields: (stored) => ({
      name: textOrNull(stored.name),
      account: textOrNull(stored.accountId),
      ...secretFieldsOf(stored),
      ...limitFieldsOf(stored),
      private: stored.isPrivate === true,
      replaced_by: textOrNull(stored.replacedById),
    }),
  },
  groups: {
    type: 'group',
    fields: (stored, nameOfGroup) => ({
      name: textOrNull(stored.name),
      parent: stored.parentId === undefined ? null : nameOfGroup(stored.parentId as string),
      ...limitFieldsOf(stored),
    }),
  },
  operators: {
    type: 'operator',
    fields: (stored) => ({
      name: textOrNull(stored.name),
      role: textOrNull(stored.role),
      ...secretFieldsOf(stored),
    }),
  },
  // Described with their account.
  credits: undefined,
  credit_requests: undefined,
  group_slots_free: undefined,
  key_slots_free: undefined,
  meta: undefined,
  operator_changes: undefined,
};

function secretFieldsOf({ active, expiresSeconds, digest }: Stored): Fields {
  return {
    status: statusOf(active),
    expires: typeof expiresSeconds === 'number' ? expiresSeconds : null,
    fingerprint: String(digest).slice(0, FINGERPRINT_CHARS),
  };
}

/**
 * The stored field `spendPerDayPicoUnits` becomes `spend_per_day`, a decimal amount; `callsPerDay` becomes
 * `calls_per_day`, a number. Null if there is no such limit.
 */
function limitFieldsOf(stored: Stored): Fields {
  return Object.fromEntries(
    Object.keys(LIMITS).map((field) => {
      const isMoney = field.endsWith('PicoUnits');
      const name = field.replace('PicoUnits', '').replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
      const limit = stored[field];
      if (limit === undefined) return [name, null];
      return [name, isMoney ? moneyOf(limit) : Number(limit)];
    }),
  );
}

function statusOf(active: unknown): string {
  return active === true ? 'active' : 'disabled';
}

function moneyOf(picoUnits: unknown): string {
  return decimalOf(BigInt(picoUnits as string));
}

function textOrNull(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}

interface ChangedRecord {
  readonly type: string;
  readonly id: string;
  readonly isNew: boolean;
  readonly name: string;
  readonly changes: FieldChange[];
}

/**
 * Returns undefined if the rows change nothing that operators see. `nameOfGroup` returns the name of a group
 * by its id. The target is a record that existed before, if there is one: for a rotation it is the key that
 * was rotated, and not its successor.
 */
export function describeChange(
  rows: readonly WrittenRow[],
  nameOfGroup: (id: string) => string,
): ChangeDetails | undefined {
  const records = changedRecordsOf(rows, nameOfGroup);
  if (records.length === 0) return undefined;
  if (records.length > RECORDS_MAX) return bulkDetailsOf(records);
  const target = records.find(({ isNew }) => !isNew) ?? records[0]!;
  const otherRecords = records.filter((record) => record !== target);
  return {
    target: targetOf(target),
    changes: [
      ...target.changes,
      ...otherRecords.flatMap(({ id, changes }) =>
        changes.map((change) => ({ ...change, field: `${id}.${change.field}` })),
      ),
    ],
  };
}

/**
 * Returns an entry for each record. A transaction may write a record several times, an operator's record even
 * under two digests: the first `former` and the last `value` count.
 */
function changedRecordsOf(rows: readonly WrittenRow[], nameOfGroup: (id: string) => string): ChangedRecord[] {
  // By id, which no two tables share.
  const writtenRecords = new Map<
    string,
    { recordType: RecordType; former: Stored | undefined; value: Stored | undefined }
  >();
  // By account slot.
  const credits = new Map<unknown, FieldChange[]>();
  for (const { table, key, value, former } of rows) {
    const recordType = RECORD_TYPES[table];
    if (recordType !== undefined) {
      const id = String(((value ?? former) as Stored).id);
      const earlierWrite = writtenRecords.get(id);
      writtenRecords.set(id, {
        recordType,
        former: earlierWrite === undefined ? (former as Stored | undefined) : earlierWrite.former,
        value: value as Stored | undefined,
      });
    } else if (table === 'credits') {
      // The key of a row of `credits`: the account's slot, and the number of the credit.
      const [account] = key as [number, number];
      credits.set(account, [...(credits.get(account) ?? []), ...creditOf(value as Stored)]);
    }
  }
  return Array.from(writtenRecords, ([id, { recordType, former, value }]) => {
    const { type, fields } = recordType;
    const before = former && fields(former, nameOfGroup);
    const after = value && fields(value, nameOfGroup);
    // `value` or `former` is there, because row-recorder.ts leaves out removals that find no row.
    const latest = (value ?? former)!;
    const creditFields = type === 'account' ? (credits.get(latest.index) ?? []) : [];
    return {
      type,
      id,
      isNew: former === undefined,
      name: String(latest.name),
      changes: [...changedFieldsOf(before ?? {}, after ?? {}), ...creditFields],
    };
  });
}

function creditOf({ amountPicoUnits, note }: Stored): FieldChange[] {
  const newField = (field: string, after: string): FieldChange => ({ field, before: null, after });
  return [newField('amount', moneyOf(amountPicoUnits)), newField('note', String(note))];
}

function changedFieldsOf(before: Fields, after: Fields): FieldChange[] {
  return Object.keys({ ...before, ...after }).flatMap((field) => {
    const change = { field, before: before[field] ?? null, after: after[field] ?? null };
    return change.before === change.after ? [] : [change];
  });
}

function targetOf({ type, id, name }: ChangedRecord): ChangeTarget {
  return { type, id, name };
}

/** Describes many records by the count of each type, and the names of the first RECORDS_MAX records. */
function bulkDetailsOf(records: readonly ChangedRecord[]): ChangeDetails {
  const counts = new Map<string, number>();
  for (const { type } of records) counts.set(type, (counts.get(type) ?? 0) + 1);
  const [first] = records;
  const { type } = first!;
  // The target is the first record if it is the only one of its type: an account with its keys.
  const isOnlyOfType = counts.get(type) === 1;
  return {
    target: isOnlyOfType ? targetOf(first!) : { type: `${type}s`, id: null, name: null },
    changes: [
      ...Array.from(counts, ([name, count]) => ({ field: `${name}s`, before: null, after: count })),
      ...records.slice(0, RECORDS_MAX).map(({ id, name }) => ({ field: id, before: null, after: name })),
    ],
  };
}

/** Cuts texts and lists of `details`, so that a row of `operator_changes` takes some 100 KB at most. */
export function boundedDetails(details: ChangeDetails): ChangeDetails {
  const { target, changes } = details;
  const bounded = changes.slice(0, FIELDS_MAX).map(({ field, before, after }) => ({
    field: clipped(field, TEXT_CHARS_MAX),
    before: boundedValue(before),
    after: boundedValue(after),
  }));
  const omitted = changes.length - bounded.length;
  const omittedFields = omitted > 0 ? [{ field: 'further fields', before: null, after: omitted }] : [];
  return { target, changes: [...bounded, ...omittedFields] };
}

function boundedValue(value: FieldValue): FieldValue {
  return typeof value === 'string' ? clipped(value, TEXT_CHARS_MAX) : value;
}
