/**
 * What is kept of a group of accounts. Groups are a tree: a group may be in another, at most GROUP_DEPTH_MAX
 * deep, and its parent never changes. So no cycle can come to be. Plain record of the registry and the store;
 * main thread.
 */
import type { QuotaLimits } from '../core/quotas.js';
import type { GroupIndex, WallMs } from '../core/units.js';

export interface GroupRecord {
  /** The group's slot in the ledger; free again a day after the group was deleted. */
  readonly index: GroupIndex;
  /** `grp_` and 16 characters. */
  readonly id: string;
  /** Unique. */
  readonly name: string;
  /** Id of the group that it is in; undefined for one at the top. */
  readonly parentId: string | undefined;
  readonly createdMs: WallMs;
  /** Shared by all accounts in the group and in the groups below it. */
  readonly limits: QuotaLimits;
}
