/**
 * `/admin/v1/operators`: who has a token for this interface, and with which role. `{operator}` is an id or a
 * name. Only the role `admin` may use the routes. routes.ts lists them, api.ts calls them. Main thread.
 *
 * Must hold: a token is shown only in the response that creates it. When its operator is disabled or deleted,
 * or the token is rotated, the token is rejected and its console sessions end, because authentication.ts and
 * sessions.ts ask registry/operators.ts at each request. All writes go through `service.change`, which
 * records who made them. Further test: test/unit/admin/change-routes.test.ts.
 */
import type { Static } from 'typebox';
import * as Type from 'typebox';
import { ADMIN_ONLY, ROLES } from '../core/roles.js';
import { OPERATOR_NAME_RULE, type OperatorStatement } from '../registry/operators.js';
import { EXPIRY, listOf, textWithRule, secondsOf } from './fields.js';
import { defineRoute } from './route.js';
import { closedObject, listSchema, Moment, orNull, DeletedView } from './views.js';

const RoleName = Type.Enum([...ROLES], { description: 'what the operator may do: docs/roles.md' });

/** Shows neither the token nor its digest. CreatedOperatorView shows the token. */
export const OperatorView = closedObject({
  id: Type.String(),
  name: Type.String(),
  role: RoleName,
  active: Type.Boolean({ description: 'false while it is disabled' }),
  created: Moment,
  expires: orNull(Moment),
  expired: Type.Boolean(),
  last_used: orNull(
    Moment,
    'when it last sent a request to this host, or up to ten minutes before that after a crash; null if never',
  ),
});
export type OperatorView = Readonly<Static<typeof OperatorView>>;

export const CreatedOperatorView = closedObject({
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

const NewOperator = closedObject({
  name: textWithRule('unique among operators', OPERATOR_NAME_RULE),
  role: RoleName,
  ...EXPIRY,
});

export const OPERATOR_ROUTES = [
  defineRoute({
    method: 'GET',
    path: '/operators',
    roles: ADMIN_ONLY,
    summary: 'List the operators by name, all on one page.',
    responseSchema: listSchema(OperatorView),
    respond: (_, { registry }) => listOf(registry.operators.list().map(viewOfOperator)),
  }),
  defineRoute({
    method: 'POST',
    path: '/operators',
    roles: ADMIN_ONLY,
    summary: 'Create an operator. Its token is shown only once, in this response.',
    body: NewOperator,
    responseSchema: CreatedOperatorView,
    respond: ({ body: { name, role, expires, expires_in } }, { service }) =>
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
    respond: ({ id }, { registry }) => viewOfOperator(registry.operators.find(id)),
  }),
  defineRoute({
    method: 'POST',
    path: '/operators/{operator}/set-role',
    roles: ADMIN_ONLY,
    summary: 'Change the role of an operator, from its next request on.',
    body: closedObject({ role: RoleName }),
    responseSchema: OperatorView,
    respond: ({ id, body: { role } }, { service }) =>
      service.change(({ operators }) => viewOfOperator(operators.setRole(id, role))),
  }),
  defineRoute({
    method: 'POST',
    path: '/operators/{operator}/rotate',
    roles: ADMIN_ONLY,
    summary:
      'Replace the token by a new one, which is shown only once, in this response. The old token is ' +
      'rejected at once. The new one expires as the old one would have, unless the body says otherwise.',
    body: closedObject(EXPIRY),
    responseSchema: CreatedOperatorView,
    respond: ({ id, body: { expires, expires_in } }, { service }) =>
      service.change(({ operators }) => {
        const rotated = operators.rotate(id, { expiresSeconds: expires, expiresInSeconds: expires_in });
        return { ...viewOfOperator(rotated), token: rotated.token };
      }),
  }),
  ...(
    [
      {
        verb: 'disable',
        active: false,
        summary: 'Reject the token of an operator from now on, and end the console sessions that it opened.',
      },
      { verb: 'enable', active: true, summary: 'Accept the token of a disabled operator again.' },
    ] as const
  ).map(({ verb, active, summary }) =>
    defineRoute({
      method: 'POST',
      path: `/operators/{operator}/${verb}`,
      roles: ADMIN_ONLY,
      summary,
      responseSchema: OperatorView,
      respond: ({ id }, { service }) =>
        service.change(({ operators }) => viewOfOperator(operators.setActive(id, active))),
    }),
  ),
  defineRoute({
    method: 'DELETE',
    path: '/operators/{operator}',
    roles: ADMIN_ONLY,
    summary: 'Delete an operator for good.',
    responseSchema: DeletedView,
    respond: ({ id }, { service }) =>
      service.change(({ operators }) => ({ id: operators.delete(id).id, deleted: true as const })),
  }),
];
