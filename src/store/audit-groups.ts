/**
 * The checks of `tollgate audit` on groups, on their members, and on the use of quotas by accounts, models,
 * keys and groups. audit.ts calls them, on the main thread of a command. The checks write nothing, and add
 * differences to the AuditRun: `expect` and `addDifference` take what was found, then what should be there.
 *
 * Must hold in a sound store, and is checked here: each group's parent exists; no group is deeper than
 * GROUP_DEPTH_MAX or inside itself; a group's slot and name lead back to it; each account's group exists;
 * members are listed under their group and nowhere else; each row of quota use has an owner
 * (test/unit/store/audit-groups.test.ts).
 */
import { GROUP_DEPTH_MAX } from '../core/limits.js';
import type { AccountRecord, GroupRecord } from '../registry/account-record.js';
import type { AuditRun } from './audit-run.js';
import { MEMBER_ACCOUNT, MEMBER_GROUP, readGroup } from './group-rows.js';
import { ownerKindOf, readQuotaUse } from './quota-use-rows.js';
import { readAccount } from './account-codec.js';

/** Checks all groups, members and rows of quota use. Returns the number of groups, damaged ones included. */
export function auditGroups(run: AuditRun): number {
  const groups = new Map<string, GroupRecord>();
  let count = 0;
  for (const { key: id, value } of run.rows('groups')) {
    count++;
    const record = run.readOrReport(readGroup, 'groups', id, value);
    if (record !== undefined) groups.set(id, record);
  }
  // After all groups are read, because a parent may come after its child.
  for (const [id, record] of groups) auditGroup(run, id, record, groups);
  run.checkBackReferences('group', (id) => groups.get(id));
  auditMembers(run, groups);
  auditUses(run);
  return count;
}

/** Checks that the group's slot, name and parent lead to it and back, and that it is not too deep. */
function auditGroup(
  run: AuditRun,
  id: string,
  record: GroupRecord,
  groups: ReadonlyMap<string, GroupRecord>,
): void {
  const { snapshot, bounds } = run;
  const { index, name, parentId } = record;
  const row = run.rowAt('groups', id);
  run.expect(row, 'the id', record.id, id);
  run.expectIndexes('group', row, { id, index, name }, bounds.groupsMax);
  if (parentId === undefined) return;
  if (!groups.has(parentId)) run.addDifference(row, 'the group that it is in', parentId, 'a group');
  else if (depthOf(record, groups) > GROUP_DEPTH_MAX)
    run.addDifference(row, 'its depth', 'more, or a circle', `at most ${GROUP_DEPTH_MAX}`);
  if (snapshot.get('group_members', [parentId, MEMBER_GROUP, index]) !== true)
    run.addDifference(row, `the group in the list of ${parentId}`, undefined, id); // Not in the list.
}

/** Depth of the group, 1 without a parent. At most GROUP_DEPTH_MAX + 1, as groups may form a circle. */
function depthOf(record: GroupRecord, groups: ReadonlyMap<string, GroupRecord>): number {
  let depth = 1;
  for (let group: GroupRecord | undefined = record; depth <= GROUP_DEPTH_MAX; depth++) {
    group = group.parentId === undefined ? undefined : groups.get(group.parentId);
    if (group === undefined) return depth;
  }
  return depth;
}

/** Checks that each row of `group_members` names an account or a group that is in the row's group. */
function auditMembers(run: AuditRun, groups: ReadonlyMap<string, GroupRecord>): void {
  const groupBySlot = new Map(Array.from(groups.values(), (group) => [group.index as number, group]));
  for (const { key } of run.rows('group_members')) {
    const [groupId, kind, slot] = key;
    const row = run.rowAt('group_members', key);
    const id = kind === MEMBER_ACCOUNT ? run.accountIdOf(slot) : undefined;
    const account = id === undefined ? undefined : run.readIfSound(readAccount, 'accounts', id);
    const memberGroupId = kind === MEMBER_ACCOUNT ? account?.groupId : groupBySlot.get(slot)?.parentId;
    const memberKind = kind === MEMBER_ACCOUNT ? 'account' : 'group';
    run.expect(row, `the group of this ${memberKind}`, memberGroupId, groupId);
  }
}

/** Checks that the group of an account exists and lists the account. `auditAccounts` calls it. */
export function auditGroupOf(run: AuditRun, { id, index, groupId }: AccountRecord): void {
  if (groupId === undefined) return;
  const { snapshot } = run;
  const row = run.rowAt('accounts', id, id);
  if (run.readIfSound(readGroup, 'groups', groupId) === undefined)
    run.addDifference(row, 'the group', groupId, 'a group');
  if (snapshot.get('group_members', [groupId, MEMBER_ACCOUNT, index]) !== true)
    run.addDifference(row, `the account in the list of ${groupId}`, undefined, id);
}

/** Checks that each row of quota use can be read and has an owner. */
function auditUses(run: AuditRun): void {
  const { snapshot } = run;
  for (const { key, value } of run.rows('quota_uses')) {
    run.readOrReport(readQuotaUse, 'quota_uses', key, value);
    const [kind, slot] = key;
    const ownerKind = ownerKindOf(kind);
    if (ownerKind !== undefined && snapshot.get(`${ownerKind}_slots`, slot) !== undefined) continue;
    const row = run.rowAt('quota_uses', key);
    const shouldBe = ownerKind === 'account' ? 'an account' : `a ${ownerKind ?? kind}`;
    run.addDifference(row, `the owner of slot ${slot}`, undefined, shouldBe);
  }
}
