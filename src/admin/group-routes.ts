/**
 * `/admin/v1/groups` and `/admin/v1/group-tree`: groups of accounts, and what is used of their quotas.
 * routes.ts lists these routes with the others, api.ts calls them. Main thread. Any role may use a route
 * without `roles` (route.ts).
 *
 * Must hold: each change runs inside `service.change`, in one transaction with the row that says who made the
 * change. `limitsOf` runs before, because a wrong limit must be rejected without a transaction
 * (test/unit/admin/group-routes.test.ts, test/unit/admin/openapi.test.ts).
 */
import * as Type from 'typebox';
import { ADMIN_ONLY } from '../core/roles.js';
import type { GroupStatement } from '../registry/groups.js';
import {
  nameSchema,
  PAGE_PARAMETERS,
  pageView,
  referenceSchema,
  secondsOf,
  LIMIT_CHANGE_FIELDS,
  LIMIT_FIELDS,
  limitsOf,
  viewOfQuotas,
} from './fields.js';
import { defineRoute } from './route.js';
import { closedObject, GroupView, listSchema, DeletedView } from './views.js';

function viewOfGroup({ record, path, accounts, groups, quotas }: GroupStatement): GroupView {
  return {
    id: record.id,
    name: record.name,
    parent: record.parentId ?? null,
    path: [...path],
    accounts,
    groups,
    quotas: viewOfQuotas(quotas),
    created: secondsOf(record.createdMs),
  };
}

const NewGroup = closedObject({
  name: nameSchema('unique among groups'),
  parent: Type.Optional(
    referenceSchema('id or name of the group that it is in; this cannot be changed later'),
  ),
  ...LIMIT_FIELDS,
});
/** Lists the groups directly in `parent`; without it, all groups. */
const GroupsQuery = closedObject({
  ...PAGE_PARAMETERS,
  parent: Type.Optional(referenceSchema('only the groups in this one: id or name')),
});
/** Lists `root` and all groups below it; without it, the whole tree. */
const TreeQuery = closedObject({
  ...PAGE_PARAMETERS,
  root: Type.Optional(referenceSchema('this group and those below it: id or name')),
});

export const GROUP_ROUTES = [
  defineRoute({
    method: 'GET',
    path: '/groups',
    summary: 'List groups in the order of their creation, with what is used of their quotas.',
    query: GroupsQuery,
    responseSchema: listSchema(GroupView),
    respond: ({ query }, { service }) =>
      service.read(({ groups }) =>
        pageView(query, (from, limit) => groups.list(query.parent, from, limit), viewOfGroup),
      ),
  }),
  defineRoute({
    method: 'GET',
    path: '/group-tree',
    summary:
      'List groups as a tree: each is followed by the groups in it; the length of `path` is its depth.',
    query: TreeQuery,
    responseSchema: listSchema(GroupView),
    respond: ({ query }, { service }) =>
      service.read(({ groups }) =>
        pageView(query, (from, limit) => groups.tree(query.root, from, limit), viewOfGroup),
      ),
  }),
  defineRoute({
    method: 'POST',
    path: '/groups',
    roles: ADMIN_ONLY,
    summary: 'Create a group. Its limits hold for all accounts and groups in it together.',
    body: NewGroup,
    responseSchema: GroupView,
    respond: ({ body }, { service }) => {
      const limits = limitsOf(body);
      const { name, parent } = body;
      return service.change(({ groups }) => viewOfGroup(groups.create({ name, parent, limits })));
    },
  }),
  defineRoute({
    method: 'GET',
    path: '/groups/{group}',
    summary: 'Show a group, by id or name, with what is used of its quotas.',
    responseSchema: GroupView,
    respond: ({ id }, { service }) => service.read(({ groups }) => viewOfGroup(groups.find(id))),
  }),
  defineRoute({
    method: 'POST',
    path: '/groups/{group}/set-limits',
    roles: ADMIN_ONLY,
    summary:
      'Change limits of a group: a limit that is not named stays, and null removes it. What was used stays counted.',
    body: closedObject(LIMIT_CHANGE_FIELDS),
    responseSchema: GroupView,
    respond: ({ id, body }, { service }) => {
      const limits = limitsOf(body);
      return service.change(({ groups }) => viewOfGroup(groups.setLimits(id, limits)));
    },
  }),
  defineRoute({
    method: 'DELETE',
    path: '/groups/{group}',
    roles: ADMIN_ONLY,
    summary: 'Delete a group in which there is no account and no group.',
    responseSchema: DeletedView,
    respond: ({ id }, { service }) =>
      service.change(({ groups }) => ({ id: groups.delete(id).id, deleted: true as const })),
  }),
];
