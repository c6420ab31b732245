/**
 * `/admin/v1/operators`: who has a token for this interface, and with which role; and `/admin/v1/changes`:
 * who changed what, and whether the chain of changes is intact. Only the role `admin` may use the former.
 * routes.ts lists them with the others, api.ts calls them. Main thread.
 *
 * Must hold: a token is shown only in the response that creates it; when its operator is disabled or
 * deleted, it is rejected and its sessions end (test/unit/admin/operator-routes.test.ts). Changes:
 * test/e2e/changes.test.ts.
 */
import { Type, type Static } from 'typebox';
import { ProxyError } from '../core/errors.js';
import { ADMIN_ONLY, ROLES } from '../core/roles.js';
import { OperatorChange } from '../registry/operator-change.js';
import type { Registry } from '../registry/registry.js';
import { OPERATOR_NAME_RULE, type OperatorStatement } from '../registry/operators.js';
import { EXPIRY, listOf, ruled, secondsOf, PAGE_ITEMS_DEFAULT, PAGE_PARAMETERS } from './fields.js';
import { defineRoute, type Route } from './route.js';
import { checkSpan } from './usage-routes.js';
import { closed, listSchema, Moment, orNull, optionalText, DeletedView } from './views.js';

const RoleName = Type.Enum([...ROLES], { description: 'what the operator may do: docs/roles.md' });

/** Has neither the token nor its digest. CreatedOperatorView has the token. */
export const OperatorView = closed({
  id: Type.String(),
  name: Type.String(),
  role: RoleName,
  active: Type.Boolean({ description: 'false while it is disabled' }),
  created: Moment,
  expires: orNull(Moment),
  expired: Type.Boolean(),
  last_used: orNull(
    Moment,
    'last request to this host, which a crash may set back by ten minutes; null if there was none',
  ),
});
export type OperatorView = Readonly<Static<typeof OperatorView>>;

export const CreatedOperatorView = closed({
  ...OperatorView.properties,
  token: Type.String({ description: 'the token, shown only once' }),
});
export type CreatedOperatorView = Readonly<Static<typeof CreatedOperatorView>>;

function viewOfOperator({ record, expired, lastUsedSeconds }: OperatorStatement): OperatorView {
  const { id, name, role, active, createdMs, expiresSeconds } = record;
  return {
    id,
    name,
    role,
    active,
    created: secondsOf(createdMs),
    expires: expiresSeconds ?? null,
    expired,
    last_used: lastUsedSeconds ?? null,
  };
}

const NewOperator = closed({
  name: ruled('unique among operators', OPERATOR_NAME_RULE),
  role: RoleName,
  ...EXPIRY,
});

export const OPERATOR_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'GET',
    path: '/operators',
    roles: ADMIN_ONLY,
    summary: 'List the operators by name, all on one page.',
    responseSchema: listSchema(OperatorView),
    answer: (_, { registry }) => listOf(registry.operators.list().map(viewOfOperator)),
  }),
  defineRoute({
    method: 'POST',
    path: '/operators',
    roles: ADMIN_ONLY,
    summary: 'Create an operator. Its token is shown only once, in this response.',
    body: NewOperator,
    responseSchema: CreatedOperatorView,
    answer: ({ body: { name, role, expires, expires_in } }, { service }) =>
      service.change(({ operators }) => {
        const expiry = { expiresSeconds: expires, expiresInSeconds: expires_in };
        const created = operators.create({ name, role, ...expiry });
        return { ...viewOfOperator(created), token: created.token };
      }),
  }),
  defineRoute({
    method: 'GET',
    path: '/operators/{operator}',
    roles: ADMIN_ONLY,
    summary: 'Show an operator, by id or name.',
    responseSchema: OperatorView,
    answer: ({ id }, { registry }) => viewOfOperator(registry.operators.find(id)),
  }),
  defineRoute({
    method: 'POST',
    path: '/operators/{operator}/set-role',
    roles: ADMIN_ONLY,
    summary: 'Change the role of an operator, from its next request on.',
    body: closed({ role: RoleName }),
    responseSchema: OperatorView,
    answer: ({ id, body: { role } }, { service }) =>
      service.change(({ operators }) => viewOfOperator(operators.setRole(id, role))),
  }),
  defineRoute({
    method: 'POST',
    path: '/operators/{operator}/rotate',
    roles: ADMIN_ONLY,
    summary:
      'Replace the token by a new one, which is shown only once, in this response. The old token is rejected at once. The new one expires as the old one would have, unless the body says otherwise.',
    body: closed(EXPIRY),
    responseSchema: CreatedOperatorView,
    answer: ({ id, body: { expires, expires_in } }, { service }) =>
      service.change(({ operators }) => {
        const rotated = operators.rotate(id, { expiresSeconds: expires, expiresInSeconds: expires_in });
        return { ...viewOfOperator(rotated), token: rotated.token };
      }),
  }),
  ...[
    {
      verb: 'disable',
      active: false,
      summary: 'Refuse the token of an operator from now on, and end the sessions that it opened.',
    },
    { verb: 'enable', active: true, summary: 'Take the token of a disabled operator again.' },
  ].map(({ verb, active, summary }) =>
    defineRoute({
      method: 'POST',
      path: `/operators/{operator}/${verb}`,
      roles: ADMIN_ONLY,
      summary,
      responseSchema: OperatorView,
      answer: ({ id }, { service }) =>
        service.change(({ operators }) => viewOfOperator(operators.setActive(id, active))),
    }),
  ),
  defineRoute({
    method: 'DELETE',
    path: '/operators/{operator}',
    roles: ADMIN_ONLY,
    summary: 'Delete an operator for good.',
    responseSchema: DeletedView,
    answer: ({ id }, { service }) =>
      service.change(({ operators }) => ({ id: operators.delete(id).id, deleted: true as const })),
  }),
];

const optionalSeconds = (description: string) => Type.Optional(Type.Integer({ minimum: 0, description }));

const ChangesQuery = closed({
  ...PAGE_PARAMETERS,
  who: optionalText("an operator's name, `bootstrap`, `command` …"),
  action: optionalText('`keys.rotate`, or `keys` for all of keys'),
  target: optionalText('id or name of what was changed'),
  from: optionalSeconds('Unix seconds; changes from then on'),
  to: optionalSeconds('Unix seconds; changes up to then'),
});

const LINK_FIELDS = { number: Type.Integer(), hash: Type.String() };

export const ChainView = closed({
  ok: Type.Boolean({ description: 'whether every row is as it was written, and none is missing' }),
  rows: Type.Integer(),
  before: closed(LINK_FIELDS, 'the row before the oldest that is kept; 0 if all are kept'),
  head: closed(LINK_FIELDS, 'the newest row'),
  problems: Type.Array(closed({ number: Type.Integer(), problem: Type.String() }), {
    description: 'the first rows that are not as they should be',
  }),
});

export type ChainView = Static<typeof ChainView>;

/** For the console, which may not import the registry. */
export type { OperatorChange };

export const CHANGE_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'GET',
    path: '/changes',
    summary:
      'List what operators changed, the newest first. A page looks at some thousand rows: it may be empty while `next` says that there are more.',
    query: ChangesQuery,
    responseSchema: listSchema(OperatorChange),
    answer: ({ query }, { registry }) => {
      const { from, to, who, action, target, cursor, limit = PAGE_ITEMS_DEFAULT } = query;
      checkSpan(from ?? 0, to ?? Infinity);
      const fromMs = from === undefined ? undefined : from * 1_000;
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
    answer: async (_, { registry, requesterLeft }) => {
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
let isVerifying = false;

/**
 * Verifies the chain, but rejects while another check runs: one reads up to a million rows on the main
 * thread, where the flush runs too.
 */
async function verifyAlone(
  { changes }: Registry,
  requesterLeft: AbortSignal | undefined,
): ReturnType<Registry['changes']['verify']> {
  if (isVerifying) {
    const message = 'The changes are being verified already: ask again when that has ended.';
    throw new ProxyError('overloaded', 'downstream', message, VERIFY_RETRY_SECONDS);
  }
  isVerifying = true;
  try {
    return await changes.verify(requesterLeft);
  } finally {
    isVerifying = false;
  }
}
