/**
 * How a key looks to an operator: its digest is never shown, the key itself in the response to its creation alone. Pure; main
 * thread.
 */
import { Type, type Static, type TSchema } from 'typebox';
import type { KeyStatement } from '../registry/key-statement.js';
import type { CreatedKey, RotatedKey } from '../registry/keys.js';
import { Moment, secondsOf } from './fields.js';
import { CLOSED } from './route.js';

const orNull = <Schema extends TSchema>(schema: Schema) => Type.Union([schema, Type.Null()]);

export const KeyView = Type.Object(
  {
    id: Type.String(),
    account: Type.String({ description: 'id of the account' }),
    account_name: Type.String({ description: 'name of the account' }),
    name: Type.String(),
    prefix: Type.String({ description: 'the beginning of the key' }),
    active: Type.Boolean({ description: 'false while it is disabled' }),
    created: Moment,
    expires: orNull(Moment),
    expired: Type.Boolean(),
    last_used: orNull(Moment),
    requests_per_minute: orNull(Type.Integer({ description: "its own, where it is lower than the plan's" })),
    calls_per_day: orNull(Type.Integer({ description: "its own, where it is lower than the plan's" })),
    replaced_by: orNull(Type.String({ description: 'id of the key that rotation put in its place' })),
  },
  CLOSED,
);

export const CreatedKeyView = Type.Object(
  { ...KeyView.properties, key: Type.String({ description: 'the key, shown this once' }) },
  CLOSED,
);

export const RotatedKeyView = Type.Object({ ...CreatedKeyView.properties, replaces: KeyView }, CLOSED);

export type KeyView = Readonly<Static<typeof KeyView>>;
export type CreatedKeyView = Readonly<Static<typeof CreatedKeyView>>;
export type RotatedKeyView = Readonly<Static<typeof RotatedKeyView>>;

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
    requests_per_minute: record.requestsPerMinute ?? null,
    calls_per_day: record.callsPerDay ?? null,
    replaced_by: record.replacedById ?? null,
  };
}

export function viewOfCreatedKey(created: CreatedKey): CreatedKeyView {
  const { record, accountName, key } = created;
  return { ...viewOfKey({ record, accountName, expired: false, lastUsedSeconds: undefined }), key };
}

export function viewOfRotatedKey(rotated: RotatedKey): RotatedKeyView {
  return { ...viewOfCreatedKey(rotated), replaces: viewOfKey(rotated.replaced) };
}
