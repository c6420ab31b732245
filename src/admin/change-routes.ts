/**
 * `/admin/v1/changes`: who changed what, and whether the chain of changes is intact. The routes only read
 * what store/operator-changes.ts has recorded. They have no `roles`, so any role may use them (Permission in
 * route.ts). routes.ts lists the routes with the others, api.ts calls them. Main thread.
 *
 * Must hold: the chain is verified for one request at a time, and no longer than the requester waits
 * (test/unit/admin/change-routes.test.ts). What is recorded: test/e2e/changes.test.ts.
 */
import type { Static } from 'typebox';
import * as Type from 'typebox';
import { ProxyError } from '../core/errors.js';
import { OperatorChange } from '../registry/operator-change.js';
import { checkFromTo, listOf, PAGE_ITEMS_DEFAULT, PAGE_PARAMETERS } from './fields.js';
import type { RecordReader } from './context.js';
import { defineRoute } from './route.js';
import { closedObject, listSchema, optionalText } from './views.js';

const optionalSeconds = (description: string) => Type.Optional(Type.Integer({ minimum: 0, description }));

const ChangesQuery = closedObject({
  ...PAGE_PARAMETERS,
  who: optionalText("an operator's name, `bootstrap`, `command` …"),
  action: optionalText('`keys.rotate`, or `keys` for all of keys'),
  target: optionalText('id or name of what was changed'),
  from: optionalSeconds('Unix seconds; changes from then on'),
  to: optionalSeconds('Unix seconds; changes up to then'),
});

/** The fields by which a row of the chain is identified. */
const ROW_ID_FIELDS = { number: Type.Integer(), hash: Type.String() };

export const ChainView = closedObject({
  ok: Type.Boolean({ description: 'whether every row is as it was written, and none is missing' }),
  rows: Type.Integer(),
  before: closedObject(
    ROW_ID_FIELDS,
    'the row before the oldest that is kept; number 0 and an empty hash if all are kept',
  ),
  head: closedObject(ROW_ID_FIELDS, 'the newest row'),
  problems: Type.Array(closedObject({ number: Type.Integer(), problem: Type.String() }), {
    description: 'the first rows that are not as they should be',
  }),
});

export type ChainView = Static<typeof ChainView>;

/** The console imports the type from here, because it may not import the registry. */
export type { OperatorChange };

export const CHANGE_ROUTES = [
  defineRoute({
    method: 'GET',
    path: '/changes',
    summary:
      'List what operators changed, the newest first. A page looks at some thousand rows: it may be empty while `next` says that there are more.',
    query: ChangesQuery,
    responseSchema: listSchema(OperatorChange),
    respond: ({ query }, { registry }) => {
      const { from, to, who, action, target, cursor, limit = PAGE_ITEMS_DEFAULT } = query;
      checkFromTo(from ?? 0, to ?? Infinity);
      const fromMs = from === undefined ? undefined : from * 1_000;
      // `to` names a second, all of which is searched.
      const toMs = to === undefined ? undefined : to * 1_000 + 999;
      const filter = { who, action, target, fromMs, toMs };
      const { items, next } = registry.changes.page(filter, cursor, limit);
      return listOf([...items], next);
    },
  }),
  defineRoute({
    method: 'GET',
    path: '/changes/verify',
    summary: 'Check the whole chain of changes: which rows were altered, removed or put in.',
    responseSchema: ChainView,
    respond: async (_, { registry, requesterLeft }) => {
      const { rows, before, head, problems } = await verifyAlone(registry, requesterLeft);
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

const VERIFY_RETRY_SECONDS = 5;
/** Whether the chain is being verified. One variable is enough, because all requests run on one thread. */
let isVerifying = false;

/**
 * Verifies the chain. Rejects if `requesterLeft` is aborted, so that a part of the chain is never reported as
 * the whole (test/unit/store/operator-changes.test.ts). Rejects with `overloaded` while the chain is verified
 * for another request, because it reads up to a million rows on the main thread, where the flush runs too.
 */
async function verifyAlone(
  { changes }: RecordReader,
  requesterLeft: AbortSignal | undefined,
): ReturnType<RecordReader['changes']['verify']> {
  if (isVerifying) {
    const message = 'The changes are being verified already: ask again when that has ended.';
    // `downstream`: the requester is the cause, and neither the gateway nor a provider (ErrorSource).
    throw new ProxyError('overloaded', 'downstream', message, VERIFY_RETRY_SECONDS);
  }
  isVerifying = true;
  try {
    return await changes.verify(requesterLeft);
  } finally {
    isVerifying = false;
  }
}
