/**
 * The store's tables of groups and of their members: accounts and subgroups. registry/groups.ts and
 * registry-copy.ts change groups in their transactions; store.ts moves accounts to other groups. Main thread.
 *
 * Must hold: `put`, `remove` and `removeWithoutFreeing` change all tables of a group; otherwise the audit
 * finds a difference (test/unit/registry/groups.test.ts audits random trees). Rows keep their fields
 * (test/unit/store/record-codec.rows-on-disk.test.ts).
 */
import * as Type from 'typebox';
import {
  type AccountIndex,
  asAccountIndex,
  asGroupIndex,
  asWallMs,
  type GroupIndex,
  type WallMs,
} from '../core/units.js';
import type { AccountRecord, GroupRecord } from '../registry/account-record.js';
import type { GroupStore, Page } from '../registry/record-store.js';
import { closedObject, Format, FORMAT, Moment, type NoFields, rowCodec, Slot } from './record-codec.js';
import { LIMITS, packLimits, readLimits } from './limits-codec.js';
import { quotaUseKeyOf } from './quota-use-rows.js';
import { SlotRows } from './slot-rows.js';
import { GROUP_SLOTS_USED, type Tables } from './tables.js';

const StoredGroup = closedObject({
  format: Format,
  index: Slot,
  id: Type.String(),
  name: Type.String(),
  parentId: Type.Optional(Type.String()),
  createdMs: Moment,
  ...LIMITS,
});

const groupCodec = rowCodec('StoredGroup', StoredGroup, {
  pack: ({ index, id, name, parentId, createdMs, limits, ...others }: GroupRecord) => {
    others satisfies NoFields;
    return { format: FORMAT, index, id, name, parentId, createdMs, ...packLimits(limits) };
  },
  unpack: (stored): GroupRecord => ({
    index: asGroupIndex(stored.index),
    id: stored.id,
    name: stored.name,
    parentId: stored.parentId,
    createdMs: asWallMs(stored.createdMs),
    limits: readLimits(stored),
  }),
});
export const readGroup = groupCodec.read;

/**
 * Kinds of members: the second value in a key of `group_members`. Both are on disk, and ranges of keys need
 * MEMBER_ACCOUNT to follow MEMBER_GROUP.
 */
export const MEMBER_GROUP = 0;
export const MEMBER_ACCOUNT = 1;

export class GroupRows extends SlotRows<GroupRecord, GroupIndex> implements GroupStore {
  readonly #tables: Tables;

  constructor(tables: Tables) {
    super(tables, { records: tables.groups, slots: tables.groupSlots }, readGroup);
    this.#tables = tables;
  }

  findByName(name: string): GroupRecord | undefined {
    const id = this.#tables.groupNames.get(name);
    return id === undefined ? undefined : this.recordOf(id);
  }

  list(from: number, limit: number): Page<GroupRecord> {
    return this.listAll(from, limit);
  }

  /** The groups whose parent has this id, ordered by slot. */
  childrenOf(id: string): GroupRecord[] {
    const { groupMembers, groupSlots } = this.#tables;
    const members = groupMembers.getKeys({ start: [id, MEMBER_GROUP, 0], end: [id, MEMBER_ACCOUNT, 0] });
    return Array.from(members, ([, , slot]) => this.recordOf(groupSlots.get(slot)));
  }

  /** The slots of accounts that are in the group itself, at most `limit` of them. */
  accountsOf(id: string, limit: number): AccountIndex[] {
    const range = { start: [id, MEMBER_ACCOUNT, 0], end: [id, MEMBER_ACCOUNT + 1, 0], limit };
    const members = this.#tables.groupMembers.getKeys(range);
    return Array.from(members, ([, , slot]) => asAccountIndex(slot));
  }

  takeIndex(deletedBeforeMs: WallMs, slotsMax: number): GroupIndex {
    const { groupSlotsFree: freed, quotaUses } = this.#tables;
    const clearUse = (slot: number): void =>
      void quotaUses.removeSync(quotaUseKeyOf({ kind: 'group', index: asGroupIndex(slot) }));
    const source = { freed, slotsUsedName: GROUP_SLOTS_USED, clearUse };
    const [slot] = this.takeSlots(source, 1, deletedBeforeMs, slotsMax);
    // `takeSlots` returns as many slots as it was asked for.
    return asGroupIndex(slot!);
  }

  /** No index row of a former record stays: the registry never changes name, parent or slot of a group. */
  put(record: GroupRecord): void {
    const { groups, groupSlots, groupNames, groupMembers } = this.#tables;
    groups.putSync(record.id, groupCodec.pack(record));
    groupSlots.putSync(record.index, record.id);
    groupNames.putSync(record.name, record.id);
    if (record.parentId !== undefined)
      groupMembers.putSync([record.parentId, MEMBER_GROUP, record.index], true);
  }

  /** Removes the group. Its slot rests from `nowMs` on. */
  remove(record: GroupRecord, nowMs: WallMs): void {
    this.removeWithoutFreeing(record);
    this.#tables.groupSlotsFree.putSync([nowMs, record.index], true);
  }

  /**
   * Removes the group but does not free its slot, which the host that deleted the group has freed. If another
   * group has the name or the slot already, its rows stay.
   */
  removeWithoutFreeing({ id, index, name, parentId }: GroupRecord): void {
    const { groups, groupSlots, groupNames, groupMembers, quotaUses } = this.#tables;
    groups.removeSync(id);
    if (groupNames.get(name) === id) groupNames.removeSync(name);
    const hasSlot = groupSlots.get(index) === id;
    if (hasSlot) {
      groupSlots.removeSync(index);
      quotaUses.removeSync(quotaUseKeyOf({ kind: 'group', index }));
    }
    // Another group that has the slot now may be in the same parent. Then the row of `group_members` belongs
    // to that group, and stays.
    const laterGroup = hasSlot ? undefined : this.findAt(index);
    if (parentId !== undefined && laterGroup?.parentId !== parentId)
      groupMembers.removeSync([parentId, MEMBER_GROUP, index]);
  }

  /** Moves an account from its `former` group to its group now. `former` is undefined for a new account. */
  moveAccount(former: AccountRecord | undefined, { index, groupId }: AccountRecord): void {
    const { groupMembers } = this.#tables;
    if (former?.groupId === groupId) return;
    if (former?.groupId !== undefined) groupMembers.removeSync([former.groupId, MEMBER_ACCOUNT, index]);
    if (groupId !== undefined) groupMembers.putSync([groupId, MEMBER_ACCOUNT, index], true);
  }
}
