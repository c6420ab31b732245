/**
 * Creates, finds, lists, limits and deletes groups of accounts. registry.ts makes the object, mainly for
 * admin/group-routes.ts; accounts.ts finds groups by it. Main thread of a gateway process, or a command.
 *
 * Must hold: the tree is never deeper than GROUP_DEPTH_MAX and has no circle. A group with accounts or groups
 * in it is not deleted. A group's parent never changes, because ended calls find their groups by the parent
 * (ledger/scope-chain.ts).
 */
import { editDistance, nearestName } from '../core/wrong-input.js';
import { GROUP_DEPTH_MAX } from '../core/limits.js';
import { NO_QUOTAS, type QuotaLimits } from '../core/quotas.js';
import type { AccountIndex } from '../core/units.js';
import type { GroupPath } from './account-statement.js';
import type { GroupRecord } from './account-record.js';
import { groupPathTo } from './live-buffers.js';
import type { QuotaUse } from './quota-use.js';
import {
  assertReference,
  conflict,
  createId,
  findSpelled,
  invalid,
  isId,
  newName,
  notFound,
} from './record-id.js';
import { commitAndApply, ifReadable, type Page } from './record-store.js';
import { recordMomentMs, type RegistryContext } from './registry-context.js';

export interface NewGroup {
  readonly name: string;
  /** Id or name of the parent group. */
  readonly parent?: string | undefined;
  readonly limits?: Partial<QuotaLimits> | undefined;
}

/** A group with the use of its quotas, as an operator reads it. */
export interface GroupStatement {
  readonly record: GroupRecord;
  /** Names from the group at the top to this group. */
  readonly path: readonly string[];
  /** Accounts and groups that are in this group itself. */
  readonly accounts: number;
  readonly groups: number;
  readonly quotas: readonly QuotaUse[];
}

/** How many groups are compared to find the name nearest to a wrong name. At 20 µs each they take 20 ms. */
const NAMES_COMPARED_MAX = 1_000;

interface GroupMembers {
  /** Ids of the accounts; undefined if there are too many. Then `has` must be asked for each account. */
  readonly ids: readonly string[] | undefined;
  readonly has: (accountId: string) => boolean;
}

export class Groups {
  readonly #context: RegistryContext;

  constructor(context: RegistryContext) {
    this.#context = context;
  }

  /** The group is on disk and in the live state on return. Throws `invalid_parameters` and `not_found`. */
  create(request: NewGroup): GroupStatement {
    return this.#change(() => this.#put(request));
  }

  /** Returns groups from slot `from` on: all, or the direct children of `parent`. */
  list(parent: string | undefined, from: number, limit: number): Page<GroupStatement> {
    const { groups } = this.#context.store;
    if (parent === undefined) {
      const { items, next } = groups.list(from, limit);
      return { items: items.map((record) => this.statementOf(record)), next };
    }
    const children = groups
      .childrenOf(this.recordOf(parent, 'parent').id)
      .filter(({ index }) => index >= from);
    return {
      items: children.slice(0, limit).map((record) => this.statementOf(record)),
      next: children[limit]?.index,
    };
  }

  /**
   * Returns the tree from `root` down, or the whole forest: each group before its children, siblings by name.
   * `from` is a position in that order. Reads all groups, 3 µs each.
   */
  tree(root: string | undefined, from: number, limit: number): Page<GroupStatement> {
    const { groups } = this.#context.store;
    const childrenOf = new Map<string | undefined, GroupRecord[]>();
    for (const record of groups.all()) {
      const siblings = childrenOf.get(record.parentId);
      if (siblings === undefined) childrenOf.set(record.parentId, [record]);
      else siblings.push(record);
    }
    const ordered: GroupRecord[] = [];
    const visited = new Set<string>();
    const add = (records: readonly GroupRecord[]): void => {
      for (const record of records.toSorted((group, other) => (group.name < other.name ? -1 : 1))) {
        // Damaged rows may make a circle, so each group is visited once.
        if (visited.has(record.id)) continue;
        visited.add(record.id);
        ordered.push(record);
        add(childrenOf.get(record.id) ?? []);
      }
    };
    add(root === undefined ? (childrenOf.get(undefined) ?? []) : [this.recordOf(root, 'root')]);
    return {
      items: ordered.slice(from, from + limit).map((record) => this.statementOf(record)),
      next: from + limit < ordered.length ? from + limit : undefined,
    };
  }

  find(idOrName: string): GroupStatement {
    return this.statementOf(this.recordOf(idOrName));
  }

  /** Sets the limits that `change` has; undefined in `change` removes a limit. What was used stays. */
  setLimits(idOrName: string, change: Partial<QuotaLimits>): GroupStatement {
    const { store, live } = this.#context;
    return this.#change(() => {
      const former = this.recordOf(idOrName);
      const changed = { ...former, limits: { ...former.limits, ...change } };
      live.assertCountable({ kind: 'group', ...changed });
      store.groups.put(changed);
      return changed;
    });
  }

  /** Throws `conflict` if an account or a group is in the group. The commit includes this check. */
  delete(idOrName: string): GroupRecord {
    const { store, live, clock } = this.#context;
    const remove = (): GroupRecord => {
      const record = this.recordOf(idOrName);
      const { id, name } = record;
      const hasAccounts = store.groups.accountsOf(id, 1).length > 0;
      const membersText = hasAccounts
        ? 'accounts: put them in another group, or in none'
        : store.groups.childrenOf(id).length > 0
          ? 'other groups: delete those first'
          : undefined;
      if (membersText !== undefined) throw conflict(`in the group ${id} (${name}) there are ${membersText}`);
      store.groups.remove(record, recordMomentMs(clock));
      return record;
    };
    return commitAndApply(
      store,
      remove,
      (removed) => (store.groups.find(removed.id) === undefined ? removed : undefined),
      (removed) => live.removeGroup(removed),
    );
  }

  /** Runs `put` in one commit, then applies the record to the live state. */
  #change(put: () => GroupRecord): GroupStatement {
    const { store, live } = this.#context;
    const record = commitAndApply(
      store,
      put,
      ({ id }) => store.groups.find(id),
      (group) => live.putGroup(group),
    );
    return this.statementOf(record);
  }

  /** `field`: that of the request which names the group; undefined if the URL does. Throws `not_found`. */
  recordOf(idOrName: string, field?: 'group' | 'parent' | 'root'): GroupRecord {
    const { groups } = this.#context.store;
    assertReference(field ?? 'group', idOrName);
    const record = isId(idOrName) ? groups.find(idOrName) : this.#findByName(idOrName);
    if (record !== undefined) return record;
    const prefix = field === undefined ? '' : `${field}: `;
    throw notFound(`${prefix}there is no group ${idOrName}${this.#nearestHint(idOrName)}`);
  }

  #findByName(name: string): GroupRecord | undefined {
    return findSpelled(name, (spelling) => this.#context.store.groups.findByName(spelling));
  }

  /** Compares the first NAMES_COMPARED_MAX groups only. */
  #nearestHint(name: string): string {
    const names = this.#context.store.groups.list(0, NAMES_COMPARED_MAX).items.map((group) => group.name);
    const nearest = nearestName(name, names, (candidate) => candidate);
    // A name with more differences than half of its characters is no help.
    const isNearEnough = nearest !== undefined && 2 * editDistance(name, nearest) <= nearest.length;
    return isNearEnough ? `, the nearest known one is ${nearest}` : ': see the list of groups';
  }

  /**
   * The group as statements of accounts show it. If its row is missing, or that or one above is damaged, the
   * path is the id alone, so that the account is listed all the same.
   */
  groupPathOf(id: string): GroupPath {
    const path = ifReadable(() => this.#namesTo(this.recordOf(id))) ?? [id];
    // Both paths have a name at least.
    return { id, name: path.at(-1)!, path };
  }

  /** The ids of the group itself and of all groups below it. */
  idsBelow(record: GroupRecord): Set<string> {
    const ids = new Set([record.id]);
    // The loop also visits the ids that it adds.
    for (const id of ids) for (const child of this.#context.store.groups.childrenOf(id)) ids.add(child.id);
    return ids;
  }

  /**
   * The accounts in the group and in the groups below. `ids` has all accounts if they are at most `limit`.
   * Otherwise `has` reads the store, some 5 µs the first time for each account, and remembers the result.
   */
  membersOf(idOrName: string, limit: number): GroupMembers {
    const { store } = this.#context;
    const groupIds = this.idsBelow(this.recordOf(idOrName, 'group'));
    const slots: AccountIndex[] = [];
    for (const id of groupIds) {
      // One more than `limit` is read, to see whether there are too many.
      slots.push(...store.groups.accountsOf(id, limit + 1 - slots.length));
      if (slots.length <= limit) continue;
      const isMemberById = new Map<string, boolean>();
      const lookUp = (accountId: string): boolean => {
        const groupId = store.findAccount(accountId)?.groupId;
        const isMember = groupId !== undefined && groupIds.has(groupId);
        isMemberById.set(accountId, isMember);
        return isMember;
      };
      return { ids: undefined, has: (accountId) => isMemberById.get(accountId) ?? lookUp(accountId) };
    }
    const ids = new Set(slots.flatMap((slot) => store.findAccountId(slot) ?? []));
    return { ids: [...ids], has: (accountId) => ids.has(accountId) };
  }

  statementOf(record: GroupRecord): GroupStatement {
    const { store, live, clock } = this.#context;
    return {
      record,
      path: this.#namesTo(record),
      accounts: live.directory().countOf(record.id),
      groups: store.groups.childrenOf(record.id).length,
      quotas: live.quotasOf({ kind: 'group', ...record }, recordMomentMs(clock)),
    };
  }

  /** The name alone if damaged rows leave no way to the top. */
  #namesTo(record: GroupRecord): string[] {
    return (groupPathTo(record, this.#context.store) ?? [record]).map(({ name }) => name);
  }

  /** Puts the record of a new group. Called in a commit, whose rollback also gives the slot back. */
  #put({ name: givenName, parent, limits }: NewGroup): GroupRecord {
    const { store, live, slotRest, groupsMax, clock } = this.#context;
    const name = newName('name', givenName);
    const namesake = this.#findByName(name);
    if (namesake !== undefined)
      throw invalid(`name must be unique, and ${namesake.id} is named ${name} already`);
    const parentRecord = parent === undefined ? undefined : this.recordOf(parent, 'parent');
    const parentPath = parentRecord && groupPathTo(parentRecord, store);
    if (parentRecord !== undefined && (parentPath?.length ?? GROUP_DEPTH_MAX) >= GROUP_DEPTH_MAX) {
      throw invalid(
        `parent must be at most ${GROUP_DEPTH_MAX - 1} deep, so that no account is in more than ` +
          `${GROUP_DEPTH_MAX} groups, and ${parentRecord.name} is ${GROUP_DEPTH_MAX} deep`,
      );
    }
    const createdMs = recordMomentMs(clock);
    const index = store.groups.takeIndex(slotRest.restedBeforeMs(), groupsMax);
    if (index >= groupsMax) {
      throw invalid(
        `limits.groups allows ${groupsMax} groups, of which those deleted in the last 24 hours still count: ` +
          'raise it and restart',
      );
    }
    const id = createId('grp_');
    const parentId = parentRecord?.id;
    const record = { index, id, name, parentId, createdMs, limits: { ...NO_QUOTAS, ...limits } };
    live.assertCountable({ kind: 'group', ...record });
    store.groups.put(record);
    return record;
  }
}
