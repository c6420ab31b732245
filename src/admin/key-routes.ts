/**
 * `/admin/v1/keys`. Main thread; routes.ts puts them among the others.
 */
import { Type, type Static } from 'typebox';
import { CALLS_PER_DAY_MAX, REQUESTS_PER_MINUTE_MAX } from '../core/limits.js';
import type { KeyStatement } from '../registry/keys.js';
import { KEY_EXPIRES_SECONDS_MAX } from '../registry/key-table.js';
import type { CreatedKey, NewKey as RegistryNewKey, RotatedKey } from '../registry/keys.js';
import { listOf, nameOf, PAGE_PARAMETERS, pageOf, reference, secondsOf } from './fields.js';
import { defineRoute, type Route } from './route.js';
import { CLOSED, CreatedKeyView, KeyView, listSchema, Moment, RotatedKeyView } from './views.js';

export function viewOfKey({ record, accountName, expired, lastUsedSeconds }: KeyStatement): KeyView {
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
    replaced_by: record.replacedById ?? null,
  };
}

export function viewOfCreatedKey(created: CreatedKey): CreatedKeyView {
  const { record, accountName, key } = created;
  return {
    ...viewOfKey({ record, accountName, expired: false, lastUsedSeconds: undefined, quotas: [] }),
    key,
  };
}

export function viewOfRotatedKey(rotated: RotatedKey): RotatedKeyView {
  return { ...viewOfCreatedKey(rotated), replaces: viewOfKey(rotated.replaced) };
}

/** A year. Who needs longer keeps two keys. */
const GRACE_SECONDS_MAX = 31_536_000;
/** Long enough to put the new key into a running service, short enough to be remembered. */
const GRACE_SECONDS_DEFAULT = 3_600;

/** What a new key is asked for with, beside its account. */
export const KeyTerms = Type.Object(
  {
    name: nameOf('what the key is for; no other key of the account has it'),
    expires: Type.Optional(Moment),
    expires_in: Type.Optional(
      Type.Integer({ minimum: 1, maximum: KEY_EXPIRES_SECONDS_MAX, description: 'seconds from now' }),
    ),
    requests_per_minute: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: REQUESTS_PER_MINUTE_MAX,
        description: "in force where it is lower than the plan's",
      }),
    ),
    calls_per_day: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: CALLS_PER_DAY_MAX,
        description: "in force where it is lower than the plan's",
      }),
    ),
  },
  CLOSED,
);
const NewKey = Type.Object({ account: reference(), ...KeyTerms.properties }, CLOSED);
const Rotation = Type.Object(
  {
    grace: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: GRACE_SECONDS_MAX,
        description: `seconds for which the former key is still taken, ${GRACE_SECONDS_DEFAULT} by default; 0: it is refused at once`,
      }),
    ),
  },
  CLOSED,
);
const KeysQuery = Type.Object({ ...PAGE_PARAMETERS, account: Type.Optional(reference()) }, CLOSED);
const DeletedKey = Type.Object({ id: Type.String(), deleted: Type.Literal(true) }, CLOSED);

export const KEY_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'GET',
    path: '/keys',
    summary: 'List keys, those of all accounts by default.',
    query: KeysQuery,
    responseSchema: listSchema(KeyView),
    answer: ({ query }, { registry }) => {
      const { from, limit } = pageOf(query);
      const { items, next } = registry.keys.list(query.account, from, limit);
      return listOf(items.map(viewOfKey), next);
    },
  }),
  defineRoute({
    method: 'POST',
    path: '/keys',
    summary: 'Make a key. The answer holds it this once.',
    body: NewKey,
    responseSchema: CreatedKeyView,
    answer: ({ body }, { service }) =>
      service.change(({ keys }) =>
        viewOfCreatedKey(keys.create({ account: body.account, ...newKeyOf(body) })),
      ),
  }),
  defineRoute({
    method: 'GET',
    path: '/keys/{key}',
    summary: 'Show a key, by id or name, with its last use.',
    responseSchema: KeyView,
    answer: ({ id }, { registry }) => viewOfKey(registry.keys.find(id)),
  }),
  defineRoute({
    method: 'POST',
    path: '/keys/{key}/rotate',
    summary: `Put a new key in the place of another, which is still taken for \`grace\` seconds, ${GRACE_SECONDS_DEFAULT} by default. The answer holds it this once.`,
    body: Rotation,
    responseSchema: RotatedKeyView,
    answer: ({ id, body: { grace } }, { service }) =>
      service.change(({ keys }) => viewOfRotatedKey(keys.rotate(id, grace ?? GRACE_SECONDS_DEFAULT))),
  }),
  defineRoute({
    method: 'POST',
    path: '/keys/{key}/disable',
    summary: 'Refuse a key, by id or name, from now on.',
    responseSchema: KeyView,
    answer: ({ id }, { service }) => service.change(({ keys }) => viewOfKey(keys.setActive(id, false))),
  }),
  defineRoute({
    method: 'POST',
    path: '/keys/{key}/enable',
    summary: 'Take a disabled key again.',
    responseSchema: KeyView,
    answer: ({ id }, { service }) => service.change(({ keys }) => viewOfKey(keys.setActive(id, true))),
  }),
  defineRoute({
    method: 'DELETE',
    path: '/keys/{key}',
    summary: 'Delete a key for good.',
    responseSchema: DeletedKey,
    answer: ({ id }, { service }) =>
      service.change(({ keys }) => ({ id: keys.delete(id).id, deleted: true as const })),
  }),
];

export function newKeyOf(terms: Static<typeof KeyTerms>): RegistryNewKey {
  return {
    name: terms.name,
    expiresSeconds: terms.expires,
    expiresInSeconds: terms.expires_in,
    limits: { requestsPerMinute: terms.requests_per_minute, callsPerDay: terms.calls_per_day },
  };
}
