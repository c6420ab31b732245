/**
 * `/admin/v1/keys`: callers' keys. routes.ts lists these routes with the others, api.ts calls them;
 * account-routes.ts creates keys of `/bulk` with functions of this file. Main thread.
 *
 * Must hold: a key is shown only in the response that creates it, and its digest never
 * (test/unit/admin/key-routes.key-view.test.ts). Each change runs inside `service.change`, in one transaction
 * with the row that says who made the change (test/unit/admin/openapi.test.ts). Statements are read by
 * `service.read`, which knows what all processes have used (test/e2e/shared-keys.test.ts).
 */
import type { Static } from 'typebox';
import * as Type from 'typebox';
import { hasQuotas } from '../core/quotas.js';
import { ADMIN_ONLY, RIGHTS } from '../core/roles.js';
import type { CreatedKey, Keys, KeyStatement, NewKey, RotatedKey } from '../registry/keys.js';
import {
  EXPIRY,
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
import { closedObject, CreatedKeyView, KeyView, listSchema, RotatedKeyView, DeletedView } from './views.js';

export function viewOfKey(statement: KeyStatement): KeyView {
  const { record, accountName, expired, lastUsedSeconds, quotas } = statement;
  return {
    id: record.id,
    account: record.accountId,
    account_name: accountName,
    name: record.name,
    prefix: `${record.prefix}…`,
    active: record.active,
    created: secondsOf(record.createdMs),
    expires: record.expiresSeconds ?? null,
    expired,
    last_used: lastUsedSeconds ?? null,
    requests_per_minute: record.limits.requestsPerMinute ?? null,
    calls_per_day: record.limits.callsPerDay ?? null,
    quotas: viewOfQuotas(quotas),
    private: record.isPrivate === true,
    replaced_by: record.replacedById ?? null,
  };
}

/**
 * The quotas are read from `keys`, because a key that rotation has made begins with what the old key has
 * used. A key without limits has no quotas, so nothing is read for it: `/bulk` creates many keys.
 */
export function viewOfCreatedKey(created: CreatedKey, keys: Pick<Keys, 'find'>): CreatedKeyView {
  const { record, accountName, key } = created;
  const quotas = hasQuotas(record.limits) ? keys.find(record.id).quotas : [];
  return { ...viewOfKey({ record, accountName, expired: false, lastUsedSeconds: undefined, quotas }), key };
}

export function viewOfRotatedKey(rotated: RotatedKey, keys: Pick<Keys, 'find'>): RotatedKeyView {
  return { ...viewOfCreatedKey(rotated, keys), replaces: viewOfKey(rotated.replaced) };
}

/** A year. An operator who wants both keys for longer creates a second key and rotates none. */
const GRACE_SECONDS_MAX = 31_536_000;
/** Long enough to put the new key into a running service, short enough to be remembered. */
const GRACE_SECONDS_DEFAULT = 3_600;

/** Body of `POST /keys` without the account; `/bulk` has such an object for each key. */
export const KeyTerms = closedObject({
  name: nameSchema('what the key is for; unique in the account'),
  ...EXPIRY,
  ...LIMIT_FIELDS,
  private: Type.Optional(
    Type.Boolean({ description: 'true: no contents of its calls are kept; false by default' }),
  ),
});
const NewKeyBody = closedObject({ account: referenceSchema(), ...KeyTerms.properties });
const RotationBody = closedObject({
  grace: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: GRACE_SECONDS_MAX,
      'x-unit': 'seconds',
      description: `seconds for which the old key is still accepted, ${GRACE_SECONDS_DEFAULT} by default; 0: it is rejected at once`,
    }),
  ),
});
const KeysQuery = closedObject({ ...PAGE_PARAMETERS, account: Type.Optional(referenceSchema()) });

export const KEY_ROUTES = [
  defineRoute({
    method: 'GET',
    path: '/keys',
    summary: 'List keys, those of all accounts by default.',
    query: KeysQuery,
    responseSchema: listSchema(KeyView),
    respond: ({ query }, { service }) =>
      service.read(({ keys }) =>
        pageView(query, (from, limit) => keys.list(query.account, from, limit), viewOfKey),
      ),
  }),
  defineRoute({
    method: 'POST',
    path: '/keys',
    roles: RIGHTS.keys,
    summary: 'Create a key. It is shown only once, in this response.',
    body: NewKeyBody,
    responseSchema: CreatedKeyView,
    respond: ({ body }, { service }) =>
      service.change(({ keys }) =>
        viewOfCreatedKey(keys.create({ account: body.account, ...newKeyOf(body) }), keys),
      ),
  }),
  defineRoute({
    method: 'GET',
    path: '/keys/{key}',
    summary: 'Show a key, by id or name, with its last use.',
    responseSchema: KeyView,
    respond: ({ id }, { service }) => service.read(({ keys }) => viewOfKey(keys.find(id))),
  }),
  defineRoute({
    method: 'POST',
    path: '/keys/{key}/rotate',
    roles: RIGHTS.keys,
    summary: `Replace a key by a new one, which is shown only once, in this response. The old key is still accepted for \`grace\` seconds, ${GRACE_SECONDS_DEFAULT} by default.`,
    body: RotationBody,
    responseSchema: RotatedKeyView,
    respond: ({ id, body: { grace } }, { service }) =>
      service.change(({ keys }) => viewOfRotatedKey(keys.rotate(id, grace ?? GRACE_SECONDS_DEFAULT), keys)),
  }),
  defineRoute({
    method: 'POST',
    path: '/keys/{key}/set-limits',
    roles: ADMIN_ONLY,
    summary:
      'Change limits of a key, within those of its account: what is not named stays, and null takes a limit away. What was used stays used.',
    body: closedObject(LIMIT_CHANGE_FIELDS),
    responseSchema: KeyView,
    respond: ({ id, body }, { service }) => {
      const limits = limitsOf(body);
      return service.change(({ keys }) => viewOfKey(keys.setLimits(id, limits)));
    },
  }),
  defineRoute({
    method: 'POST',
    path: '/keys/{key}/set-private',
    roles: ADMIN_ONLY,
    summary: 'Say whether contents of the calls of a key may be kept, if call_log.contents keeps them.',
    body: closedObject({ private: Type.Boolean() }),
    responseSchema: KeyView,
    respond: ({ id, body }, { service }) =>
      service.change(({ keys }) => viewOfKey(keys.setPrivate(id, body.private))),
  }),
  ...(
    [
      { verb: 'disable', active: false, summary: 'Reject a key, by id or name, from now on.' },
      { verb: 'enable', active: true, summary: 'Accept a disabled key again.' },
    ] as const
  ).map(({ verb, active, summary }) =>
    defineRoute({
      method: 'POST',
      path: `/keys/{key}/${verb}`,
      roles: RIGHTS.keys,
      summary,
      responseSchema: KeyView,
      respond: ({ id }, { service }) => service.change(({ keys }) => viewOfKey(keys.setActive(id, active))),
    }),
  ),
  defineRoute({
    method: 'DELETE',
    path: '/keys/{key}',
    roles: RIGHTS.keys,
    summary: 'Delete a key permanently.',
    responseSchema: DeletedView,
    respond: ({ id }, { service }) =>
      service.change(({ keys }) => ({ id: keys.delete(id).id, deleted: true as const })),
  }),
];

/**
 * Returns the registry's request for a new key. Throws `invalid_parameters` for a wrong limit, with `prefix`,
 * such as `accounts[3].keys[0].`, before the name of its field.
 */
export function newKeyOf(terms: Static<typeof KeyTerms>, prefix = ''): NewKey {
  return {
    name: terms.name,
    expiresSeconds: terms.expires,
    expiresInSeconds: terms.expires_in,
    limits: limitsOf(terms, prefix),
    isPrivate: terms.private,
  };
}
