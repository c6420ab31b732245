/**
 * The records of accounts, groups and operators: what an operator changes, the journal of credits, and the
 * totals that the flush writes. Plain records of the registry, the store and sharing; main thread.
 *
 * Must hold: rows of these records are on disk (store/account-codec.ts, group-rows.ts, operator-rows.ts), so
 * a field keeps its meaning, and a new one is optional. The codecs do not compile before they know a new
 * field, except for that of SpendingRecord. Tests:
 * test/unit/store/record-codec.rows-on-disk.test.ts (all of them, now and of format 4),
 * test/durability/earlier-store.test.ts (accounts and credits of format 3).
 */
import type { QuotaLimits } from '../core/quotas.js';
import type { Role } from '../core/roles.js';
import type { AccountIndex, GroupIndex, PicoUnits, WallMs } from '../core/units.js';

/** An account. It is on disk before the request that made it gets its response. */
export interface AccountRecord {
  /** The account's slot in the ledger; never given again, because no account is ever deleted. */
  readonly index: AccountIndex;
  /** `acct_` and 16 characters. */
  readonly id: string;
  /** Unique. */
  readonly name: string;
  readonly planId: string;
  readonly active: boolean;
  /** Id of the group that the account is in; undefined if it is in no group. */
  readonly groupId?: string | undefined;
  readonly createdMs: WallMs;
  /** All credits less all debits since its creation: the sum of its journal. */
  readonly credited: PicoUnits;
}

/** One line of an account's journal. The amount of a debit is negative. */
export interface CreditRecord {
  readonly amount: PicoUnits;
  readonly note: string;
  readonly createdMs: WallMs;
}

/**
 * A credit that was requested with an idempotency key, and its response. The same request again does nothing
 * and gets the same response. Kept as long as the journal.
 */
export interface CreditRequestRecord {
  readonly amount: PicoUnits;
  readonly note: string;
  /** The response's body, in JSON, which a replay gets again. */
  readonly response: string;
}

/** Absolute totals of an account as of the last flush: writing a row twice changes nothing. */
export interface SpendingRecord {
  readonly spent: PicoUnits;
  /** The sum of the uncovered charges. */
  readonly uncovered: PicoUnits;
  /** The day of `dayCalls`, as `dayNumberOf` (ledger/day.ts) counts: by UTC+8, whatever `timezone` says. */
  readonly dayNumber: number;
  readonly dayCalls: number;
  /** Requests in the minute before `takenMs`. */
  readonly minuteUsed: number;
  /** When the flush read the counts, by its wall clock: Store.steppedMs tells how that was set since. */
  readonly takenMs: WallMs;
}

/**
 * A group of accounts. Groups are a tree, at most GROUP_DEPTH_MAX deep: a group may be in another. A group's
 * parent never changes, so no circle of groups can be made.
 */
export interface GroupRecord {
  /** The group's slot in the ledger; given again a day after the group was deleted (SlotRest). */
  readonly index: GroupIndex;
  /** `grp_` and 16 characters. */
  readonly id: string;
  /** Unique. */
  readonly name: string;
  /** Id of the group that this group is in; undefined if it is at the top. A row then lacks the field. */
  readonly parentId: string | undefined;
  readonly createdMs: WallMs;
  /** Shared by all accounts in the group and in the groups below it. */
  readonly limits: QuotaLimits;
}

/** A person or a program with a token of its own for the admin interface. */
export interface OperatorRecord {
  /** `op_` and 16 characters. */
  readonly id: string;
  /** Unique. */
  readonly name: string;
  readonly role: Role;
  /** SHA-256 of the token, in hex. */
  readonly digest: string;
  /** False while the operator is disabled. */
  readonly active: boolean;
  readonly createdMs: WallMs;
  /** Unix seconds, as the admin interface takes them; undefined if the token never expires. */
  readonly expiresSeconds: number | undefined;
}
