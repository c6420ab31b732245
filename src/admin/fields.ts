/**
 * The fields that several routes have in common, in requests and in responses: their schemas, and the
 * functions that read or show them. The route files use both. Pure; main thread of a gateway, and commands
 * that work without one.
 *
 * Must hold: an `x-rule` is shown in the OpenAPI document. It is applied not by the reader but by the
 * registry, `amountOf` or `spendOf`, whose message explains more (test/unit/admin/openapi.test.ts). Limits:
 * test/unit/admin/group-routes.test.ts. Moments: test/unit/admin/usage-routes.test.ts.
 */
import type { Static, TSchema } from 'typebox';
import * as Type from 'typebox';
import { IDENTIFIER_PATTERN } from '../config/annotations.js';
import { parseMomentMs } from '../core/clock.js';
import { picoUnitsOf, decimalOf } from '../core/money.js';
import {
  QUOTA_FIELDS,
  QUOTA_KINDS,
  QUOTA_LIMITS_MAX,
  QUOTA_NAMES,
  QUOTA_SPEND_MIN,
  type QuotaLimits,
  type QuotaName,
} from '../core/quotas.js';
import { asPicoUnits, type PicoUnits, type WallMs } from '../core/units.js';
import { KEY_EXPIRES_SECONDS_MAX } from '../registry/key-table.js';
import type { QuotaUse } from '../registry/quota-use.js';
import { invalid, NAME_RULE, REFERENCE_RULE } from '../registry/record-id.js';
import { RING_NAMES } from '../telemetry/history.js';
import { PAGE_ITEMS_MAX } from './addresses.js';
import { quoted } from './input-reader.js';
import {
  closedObject,
  type ListView,
  type LimitsView,
  orNull,
  type QuotasView,
  type QuotaUseView,
  Moment,
} from './views.js';

export const PAGE_ITEMS_DEFAULT = 100;

/** Makes the schema of a text with a rule that the reader of the body ignores, and `withRules` shows. */
export function textWithRule(description: string, rule: TextRule, options: object = {}) {
  return Type.String({ description, ...options, 'x-rule': rule });
}

interface TextRule {
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
}

/** Returns the schema with each `x-rule` as keywords of JSON Schema. */
export function withRules(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withRules);
  if (typeof schema !== 'object' || schema === null) return schema;
  const { 'x-rule': rule, ...others } = schema as Readonly<Record<string, unknown>>;
  const keywords = Object.entries(others).map(([keyword, value]) => [keyword, withRules(value)]);
  return { ...Object.fromEntries(keywords), ...(rule ?? {}) };
}

export const nameSchema = (description: string) => textWithRule(description, NAME_RULE);
export const PlanId = textWithRule('id of a plan', { pattern: IDENTIFIER_PATTERN });
/** The schema of a field that names an account, a key or a group. */
export const referenceSchema = (description = 'id or name') => textWithRule(description, REFERENCE_RULE);

/**
 * An amount is text, because a JSON number is a binary fraction, which cannot be 0.1 exactly. `amountOf`
 * applies the rule. The 3000000 here, in Spend and in the messages is BALANCE_PICO_UNITS_MAX (core/money.ts)
 * in units of the currency.
 */
export const Amount = textWithRule(
  'decimal text with at most 12 decimals, at most 3000000',
  { pattern: '^-?(?:0|[1-9][0-9]{0,6})(?:\\.[0-9]{1,12})?$' },
  { examples: ['10.00'] },
);

/** The parameter `limit` of a list. The OpenAPI document shows `items`, what is counted, and the default. */
export const pageLimit = (items: string, maximum: number, defaultLimit: number) =>
  Type.Optional(Type.Integer({ minimum: 1, maximum, description: `${items}, ${defaultLimit} by default` }));

/** Parameters of every list; spread them into its query. */
export const PAGE_PARAMETERS = {
  cursor: Type.Optional(
    Type.Integer({
      minimum: 0,
      // The reader of a query takes no longer numbers (WHOLE_NUMBER of input-reader.ts).
      maximum: 999_999_999_999_999,
      description: '`next` of the page before',
    }),
  ),
  limit: pageLimit('items', PAGE_ITEMS_MAX, PAGE_ITEMS_DEFAULT),
};

/** Reads the page that the query names by PAGE_PARAMETERS, and makes a view of each item. */
export function pageView<Item, View>(
  { cursor = 0, limit = PAGE_ITEMS_DEFAULT }: { cursor?: number; limit?: number },
  read: (
    from: number,
    limit: number,
  ) => { readonly items: readonly Item[]; readonly next?: number | undefined },
  viewOf: (item: Item) => View,
): ListView<View> {
  const { items, next } = read(cursor, limit);
  return listOf(items.map(viewOf), next);
}

/** `next`: the cursor of the following page; absent after the last. Some lists' cursors are no numbers. */
export function listOf<View>(data: View[], next?: number): ListView<View> {
  return { data, next: next === undefined ? null : String(next) };
}

/**
 * Returns the amount of decimal text, in which a minus is accepted: the registry decides which amounts may be
 * negative. Throws `invalid_parameters`, whose message names `field`.
 */
export function amountOf(field: string, text: Static<typeof Amount>): PicoUnits {
  const isNegative = text.startsWith('-');
  const amount = picoUnitsOf(isNegative ? text.slice(1) : text);
  if (amount !== undefined) return isNegative ? asPicoUnits(0n - amount) : amount;
  throw invalid(
    `${field} must be a decimal amount such as "10.00", at most 3000000 with at most 12 decimals, got ${quoted(text)}`,
  );
}

/** Returns Unix seconds, rounded down. */
export function secondsOf(wallMs: WallMs): number {
  return Math.floor(wallMs / 1_000);
}

/**
 * Throws `invalid_parameters` if `from` is after `to`: the response would look like that of a period without
 * calls. `from` and `to` must have the same unit.
 */
export function checkFromTo(from: number, to: number): void {
  if (from > to) throw invalid('from must not be after to');
}

/** Whether a text has the form of a day. `momentOf` rejects a day that is in no calendar. */
export function isDay(text: string): boolean {
  return /^\d{4}-\d{2}-\d{2}$/.test(text);
}

/**
 * Returns the Unix milliseconds of a text of Unix seconds, or of the start of a day. Throws
 * `invalid_parameters` for any other text, also for a number of more than eleven digits, which may be
 * milliseconds. The message names `field` and `acceptedForms`: a caller may accept more forms.
 */
export function momentOf(
  field: string,
  text: string,
  acceptedForms = 'Unix seconds or a day such as 2025-01-31',
): number {
  const ms = isDay(text) ? parseMomentMs(text) : /^\d{1,11}$/.test(text) ? Number(text) * 1_000 : NaN;
  if (!Number.isNaN(ms)) return ms;
  throw invalid(`${field} must be ${acceptedForms}, got ${quoted(text)}`);
}

/** `range`: the name of a ring of the history. It says how far the ring goes back. */
export const RangeQuery = closedObject({
  range: Type.Optional(Type.Enum([...RING_NAMES], { description: '5m by default' })),
});

/** Limits as a body has them. Null removes the limit, if the route's schema allows null. */
type LimitsOfBody = Readonly<Partial<Record<QuotaName, number | string | null>>>;

/** `spendOf` applies the rule. The pattern excludes what is below QUOTA_SPEND_MIN (openapi.test.ts). */
const Spend = textWithRule(
  'decimal text with at most 12 decimals, from 0.000000001 to 3000000',
  { pattern: '^(?!0(?:\\.0{1,9}|\\.0{9}[0-9]{1,3})?$)(?:0|[1-9][0-9]{0,6})(?:\\.[0-9]{1,12})?$' },
  { examples: ['250.00'] },
);

function limitSchema(name: QuotaName) {
  if (QUOTA_KINDS[name].unit === 'money') return Spend;
  // A number: only limits of money are bigint, and the line above has returned for money.
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
export function limitsOf(body: object, prefix = ''): Partial<QuotaLimits> {
  const fields = body as LimitsOfBody;
  return Object.fromEntries(
    QUOTA_NAMES.flatMap((name) => {
      const value = fields[name];
      if (value === undefined) return [];
      const limit = typeof value === 'string' ? spendOf(`${prefix}${name}`, value) : (value ?? undefined);
      return [[QUOTA_FIELDS[name], limit]];
    }),
  );
}

function spendOf(field: string, text: string): bigint {
  const amount = amountOf(field, text);
  if (amount >= QUOTA_SPEND_MIN) return amount;
  throw invalid(`${field} must be at least ${decimalOf(QUOTA_SPEND_MIN)}, got ${decimalOf(amount)}`);
}

/** Shows how much is used of each quota that has a limit. */
export function viewOfQuotas(uses: readonly QuotaUse[]): QuotasView {
  return Object.fromEntries(uses.map((use) => [use.quota, viewOfUse(use)]));
}

function viewOfUse({ quota, limit, used, held, leased, resetsMs }: QuotaUse): QuotaUseView {
  // `available` is below 0 if the limit was lowered to less than is used and held.
  const available = limit - used - held;
  const format = QUOTA_KINDS[quota].unit === 'money' ? decimalOf : Number;
  return {
    limit: format(limit),
    used: format(used),
    held: format(held),
    left: format(available < 0n ? 0n : available),
    ...(leased !== undefined && { leased: format(leased) }),
    resets_at: resetsMs === undefined ? null : secondsOf(resetsMs),
    // The compiler does not see that all amounts are numbers, or that all are decimal texts.
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

/** When a new key or token expires. Spread both fields into a body; the registry rejects a body with both. */
export const EXPIRY = {
  expires: Type.Optional(Moment),
  expires_in: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: KEY_EXPIRES_SECONDS_MAX,
      'x-unit': 'seconds',
      description: 'seconds from now',
    }),
  ),
};
