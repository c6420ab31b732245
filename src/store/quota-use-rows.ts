/**
 * The store's table `quota_uses`: how much each scope has used of its quotas. store.ts writes a row in the
 * transaction of the charges of the same calls, registry/keys.ts the row of a rotated key's successor.
 * Recovery, coordinators and the audit read the rows. Main thread of a gateway process or a command.
 *
 * Must hold: names and meanings of fields are on disk for ever; QuotaUseRecord (registry/quota-use.ts) has
 * the meanings. All fields are required and no other is accepted. So a new field must be optional, or
 * existing rows are damaged; and FORMAT must be raised, or an earlier version takes new rows for damaged
 * (test/unit/store/record-codec.rows-on-disk.test.ts).
 */
import type { Static } from 'typebox';
import * as Type from 'typebox';
import { asAccountIndex, asWallMs } from '../core/units.js';
import type { QuotaUseRecord, SlotScope, UsedScope } from '../registry/quota-use.js';
import { closedObject, Count, findRow, Format, FORMAT, Moment, rowReader, rowsIn } from './record-codec.js';
import type { Tables } from './tables.js';

/**
 * What calls add when they are settled, and the day and month of these counts; money in nano-units.
 * Rows of rotated keys (key-rows.ts) have these fields too.
 */
export const SETTLED_FIELDS = {
  minuteTokens: Count,
  dayNumber: Type.Integer(),
  monthNumber: Type.Integer(),
  tokensPerDay: Count,
  callsPerMonth: Count,
  tokensPerMonth: Count,
  spendPerDay: Count,
  spendPerMonth: Count,
};

const StoredQuotaUse = closedObject({
  format: Format,
  minuteRequests: Count,
  callDayNumber: Type.Integer(),
  callsPerDay: Count,
  takenMs: Moment,
  ...SETTLED_FIELDS,
});

type StoredQuotaUse = Static<typeof StoredQuotaUse>;

/** Field by field, because a flush packs many rows and a spread object is slower. */
function packQuotaUse(record: QuotaUseRecord): StoredQuotaUse {
  return {
    format: FORMAT,
    minuteRequests: record.minuteRequests,
    callDayNumber: record.callDayNumber,
    callsPerDay: record.callsPerDay,
    minuteTokens: record.minuteTokens,
    takenMs: record.takenMs,
    dayNumber: record.dayNumber,
    monthNumber: record.monthNumber,
    tokensPerDay: record.tokensPerDay,
    callsPerMonth: record.callsPerMonth,
    tokensPerMonth: record.tokensPerMonth,
    spendPerDay: record.spendPerDay,
    spendPerMonth: record.spendPerMonth,
  };
}

export const readQuotaUse = rowReader('StoredQuotaUse', StoredQuotaUse, (stored): QuotaUseRecord => ({
  minuteRequests: stored.minuteRequests,
  callDayNumber: stored.callDayNumber,
  callsPerDay: stored.callsPerDay,
  minuteTokens: stored.minuteTokens,
  takenMs: asWallMs(stored.takenMs),
  dayNumber: stored.dayNumber,
  monthNumber: stored.monthNumber,
  tokensPerDay: stored.tokensPerDay,
  callsPerMonth: stored.callsPerMonth,
  tokensPerMonth: stored.tokensPerMonth,
  spendPerDay: stored.spendPerDay,
  spendPerMonth: stored.spendPerMonth,
}));

/** `[kind, slot, model id]`. A `model` has its account's slot; other kinds have an empty model id. */
type QuotaUseKey = [string, number, string];

export function quotaUseKeyOf(scope: UsedScope): QuotaUseKey {
  return [scope.kind, scope.index, scope.kind === 'model' ? scope.modelId : ''];
}

/** Whose slot is in the key of a row, by the row's kind. */
const OWNERS = { account: 'account', model: 'account', key: 'key', group: 'group' } as const satisfies Record<
  UsedScope['kind'],
  string
>;

/** Undefined for a kind that this program does not write: a key on disk may be damaged. */
export function ownerKindOf(kind: string): 'account' | 'key' | 'group' | undefined {
  return Object.hasOwn(OWNERS, kind) ? OWNERS[kind as UsedScope['kind']] : undefined;
}

export class QuotaUseRows {
  readonly #tables: Tables;

  constructor(tables: Tables) {
    this.#tables = tables;
  }

  /** Undefined if the scope has no row yet. Throws StoreError `damaged`, as `all` does. */
  find(scope: UsedScope): QuotaUseRecord | undefined {
    return findRow(this.#tables.quotaUses, quotaUseKeyOf(scope), readQuotaUse);
  }

  /**
   * The id of who has the slot; undefined after a deletion. Flushes ask, so that no row is written for a
   * deleted key or group: the audit reports such a row (audit-groups.ts). A damaged id counts as none and
   * does not throw, because the transaction is that of charges.
   */
  ownerOf({ kind, index }: UsedScope): string | undefined {
    const id = this.#tables[`${OWNERS[kind]}Slots`].get(index);
    return typeof id === 'string' ? id : undefined;
  }

  put(scope: UsedScope, record: QuotaUseRecord): void {
    this.#tables.quotaUses.putSync(quotaUseKeyOf(scope), packQuotaUse(record));
  }

  *all(): Generator<[UsedScope, QuotaUseRecord]> {
    for (const [[kind, index, modelId], record] of rowsIn(this.#tables.quotaUses, readQuotaUse)) {
      // The casts: rows are written with keys of `quotaUseKeyOf`.
      if (kind === 'model') yield [{ kind, index: asAccountIndex(index), modelId }, record];
      else yield [{ kind, index } as SlotScope, record];
    }
  }
}
