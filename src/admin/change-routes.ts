/**
 * `/admin/v1/changes`: who changed what, and whether the chain of changes is intact. routes.ts lists these
 * routes with the others, api.ts calls them. Main thread. Test: test/e2e/changes.test.ts.
 */
import { Type } from 'typebox';
import { OperatorChange } from '../registry/operator-change.js';
import { listOf, PAGE_PARAMETERS, pageOf } from './fields.js';
import { defineRoute, type Route } from './route.js';
import { CLOSED, listSchema } from './views.js';

const Seconds = (description: string) => Type.Optional(Type.Integer({ minimum: 0, description }));

const ChangesQuery = Type.Object(
  {
    ...PAGE_PARAMETERS,
    who: Type.Optional(Type.String({ description: "an operator's name, `bootstrap`, `command` …" })),
    action: Type.Optional(Type.String({ description: '`keys.rotate`, or `keys` for all of keys' })),
    target: Type.Optional(Type.String({ description: 'id or name of what was changed' })),
    from: Seconds('Unix seconds; changes from then on'),
    to: Seconds('Unix seconds; changes up to then'),
  },
  CLOSED,
);

const Link = Type.Object({ number: Type.Integer(), hash: Type.String() }, CLOSED);

export const ChainView = Type.Object(
  {
    ok: Type.Boolean({ description: 'whether every row is as it was written, and none is missing' }),
    rows: Type.Integer(),
    before: Type.Object(Link.properties, {
      ...CLOSED,
      description: 'the row before the oldest that is kept; 0 if all are kept',
    }),
    head: Type.Object(Link.properties, { ...CLOSED, description: 'the newest row' }),
    problems: Type.Array(Type.Object({ number: Type.Integer(), problem: Type.String() }, CLOSED), {
      description: 'the first rows that are not as they should be',
    }),
  },
  CLOSED,
);

export type ChainView = Type.Static<typeof ChainView>;

export const CHANGE_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'GET',
    path: '/changes',
    summary:
      'List what operators changed, the newest first. A page looks at some thousand rows: it may be empty while `next` says that there are more.',
    query: ChangesQuery,
    responseSchema: listSchema(OperatorChange),
    answer: ({ query }, { registry }) => {
      const { from, to, who, action, target, cursor } = query;
      const filter = {
        ...{ who, action, target },
        fromMs: from === undefined ? undefined : from * 1_000,
        toMs: to === undefined ? undefined : to * 1_000 + 999,
      };
      const { items, next } = registry.changes.page(filter, cursor, pageOf(query).limit);
      return listOf([...items], next);
    },
  }),
  defineRoute({
    method: 'GET',
    path: '/changes/verify',
    summary: 'Check the whole chain of changes: which rows were altered, removed or put in.',
    responseSchema: ChainView,
    answer: async (_, { registry }) => {
      const { rows, before, head, problems } = await registry.changes.verify();
      return {
        ok: problems.length === 0,
        rows,
        before: { ...before },
        head: { ...head },
        problems: [...problems],
      };
    },
  }),
];
