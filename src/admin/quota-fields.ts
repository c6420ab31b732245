/**
 * Quotas in requests and responses of the admin interface: the fields that give a scope its limits, and the
 * view of how much of each is used. The routes of accounts, keys, groups and plans use it. Pure; main thread.
 * Test: test/unit/admin/group-routes.test.ts.
 */
import { Type, type TSchema } from 'typebox';
import { decimalOf } from '../core/money.js';
import {
  QUOTA_FIELDS,
  QUOTA_KINDS,
  QUOTA_LIMITS_MAX,
  QUOTA_NAMES,
  QUOTA_SPEND_MIN,
  type QuotaLimits,
  type QuotaName,
} from '../core/quotas.js';
import type { QuotaUse } from '../registry/quota-use.js';
import { invalid } from '../registry/record-id.js';
import { amountOf, ruled, secondsOf } from './fields.js';
import { type LimitsView, orNull, type QuotasView, type QuotaUseView } from './views.js';

/** Limits as a body has them. Null removes the limit, if the route's schema allows it. */
type LimitFields = Readonly<Partial<Record<QuotaName, number | string | null>>>;

const Spend = ruled(
  'decimal text with at most 12 decimals, from 0.000000001 to 3000000',
  { pattern: '^(?!0(?:\\.0{1,9}|\\.0{9}[0-9]{1,3})?$)(?:0|[1-9][0-9]{0,6})(?:\\.[0-9]{1,12})?$' },
  { examples: ['250.00'] },
);

function limitSchema(name: QuotaName) {
  if (QUOTA_KINDS[name].unit === 'money') return Spend;
  return Type.Integer({ minimum: 1, maximum: QUOTA_LIMITS_MAX[QUOTA_FIELDS[name]] as number });
}

function fieldsOf(schemaOf: (name: QuotaName) => TSchema) {
  return Object.fromEntries(QUOTA_NAMES.map((name) => [name, Type.Optional(schemaOf(name))]));
}

/** Fields of a body that makes a group or a key. Spread them into its schema; `limitsOf` reads them. */
export const LIMIT_FIELDS = fieldsOf(limitSchema);

/** Fields of a body that changes limits: limits that it does not name stay, and null removes a limit. */
export const LIMIT_CHANGE_FIELDS = fieldsOf((name) => orNull(limitSchema(name)));

/**
 * Returns the limits that a body names, undefined for null, without those that it does not name. Messages
 * have `prefix` before the names of fields. Throws `invalid_parameters`.
 */
export function limitsOf(body: object, place = ''): Partial<QuotaLimits> {
  const given = body as LimitFields;
  return Object.fromEntries(
    QUOTA_NAMES.flatMap((name) => {
      const value = given[name];
      if (value === undefined) return [];
      const limit = typeof value === 'string' ? spendOf(`${place}${name}`, value) : (value ?? undefined);
      return [[QUOTA_FIELDS[name], limit]];
    }),
  );
}

function spendOf(field: string, text: string): bigint {
  const amount = amountOf(field, text);
  if (amount >= QUOTA_SPEND_MIN) return amount;
  throw invalid(`${field} must be at least ${decimalOf(QUOTA_SPEND_MIN)}, got ${decimalOf(amount)}`);
}

/** Shows the use of each quota that has a limit. */
export function viewOfQuotas(uses: readonly QuotaUse[]): QuotasView {
  return Object.fromEntries(uses.map((use) => [use.quota, viewOfUse(use)]));
}

function viewOfUse({ quota, limit, used, held, leased, resetsMs }: QuotaUse): QuotaUseView {
  const free = limit - used - held;
  const amounts = { limit, used, held, left: free < 0n ? 0n : free };
  const shown = QUOTA_KINDS[quota].unit === 'money' ? decimalOf : Number;
  return {
    limit: shown(amounts.limit),
    used: shown(amounts.used),
    held: shown(amounts.held),
    left: shown(amounts.left),
    ...(leased !== undefined && { leased: shown(leased) }),
    resets_at: resetsMs === undefined ? null : secondsOf(resetsMs),
  } as QuotaUseView;
}

/** Shows the limits that are set. */
export function viewOfLimits(limits: QuotaLimits): LimitsView {
  return Object.fromEntries(
    QUOTA_NAMES.flatMap((name) => {
      const limit = limits[QUOTA_FIELDS[name]];
      return limit === undefined ? [] : [[name, typeof limit === 'bigint' ? decimalOf(limit) : limit]];
    }),
  );
}
