/**
 * The codecs of the rows of accounts: the account itself, its credits, what was asked with an idempotency key
 * for a credit, and the totals of the last flush. store.ts packs and reads them; the audit and
 * registry-copy.ts read them. Main thread.
 *
 * Must hold: rows keep their fields, as record-codec.ts says. What an operator changes is checked before it
 * is written (`rowCodec`). The totals of a flush are not, because one wrong row must not keep all charges
 * from the disk. Tests: test/unit/store/record-codec.rows-on-disk.test.ts, and
 * test/durability/earlier-store.test.ts for accounts and credits of format 3.
 */
import type { Static } from 'typebox';
import * as Type from 'typebox';
import { asAccountIndex, asPicoUnits, asWallMs } from '../core/units.js';
import type {
  AccountRecord,
  CreditRecord,
  CreditRequestRecord,
  SpendingRecord,
} from '../registry/account-record.js';
import {
  closedObject,
  Count,
  Format,
  FORMAT,
  Moment,
  Money,
  type NoFields,
  rowCodec,
  rowReader,
  Slot,
} from './record-codec.js';

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

export const { pack: packAccount, read: readAccount } = rowCodec('StoredAccount', StoredAccount, {
  pack: (record: AccountRecord) => {
    const { index, id, name, planId, active, groupId, createdMs, credited, ...others } = record;
    others satisfies NoFields;
    const creditedPicoUnits = credited.toString();
    return { format: FORMAT, index, id, name, planId, active, groupId, createdMs, creditedPicoUnits };
  },
  unpack: (stored): AccountRecord => ({
    index: asAccountIndex(stored.index),
    id: stored.id,
    name: stored.name,
    planId: stored.planId,
    active: stored.active,
    groupId: stored.groupId,
    createdMs: asWallMs(stored.createdMs),
    credited: asPicoUnits(BigInt(stored.creditedPicoUnits)),
  }),
});

const StoredCredit = closedObject({
  format: Format,
  amountPicoUnits: Money,
  note: Type.String(),
  createdMs: Moment,
});

export const { pack: packCredit, read: readCredit } = rowCodec('StoredCredit', StoredCredit, {
  pack: ({ amount, note, createdMs, ...others }: CreditRecord) => {
    others satisfies NoFields;
    return { format: FORMAT, amountPicoUnits: amount.toString(), note, createdMs };
  },
  unpack: ({ amountPicoUnits, note, createdMs }): CreditRecord => ({
    amount: asPicoUnits(BigInt(amountPicoUnits)),
    note,
    createdMs: asWallMs(createdMs),
  }),
});

/** `answer` is the record's `response`, by the name that it has on disk. */
const StoredCreditRequest = closedObject({
  format: Format,
  amountPicoUnits: Money,
  note: Type.String(),
  answer: Type.String(),
});

export const { pack: packCreditRequest, read: readCreditRequest } = rowCodec(
  'StoredCreditRequest',
  StoredCreditRequest,
  {
    pack: ({ amount, note, response: answer, ...others }: CreditRequestRecord) => {
      others satisfies NoFields;
      return { format: FORMAT, amountPicoUnits: amount.toString(), note, answer };
    },
    unpack: ({ amountPicoUnits, note, answer: response }): CreditRequestRecord => ({
      amount: asPicoUnits(BigInt(amountPicoUnits)),
      note,
      response,
    }),
  },
);

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
