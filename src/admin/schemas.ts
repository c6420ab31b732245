/**
 * Bodies and query strings that the admin interface takes, compiled when the file is loaded: on the main thread, before it
 * disallows code generation. What they mean (a plan that exists, a free name) is the registry's to check.
 */
import { Type, type Static, type TSchema } from 'typebox';
import { Compile, type Validator } from 'typebox/compile';
import { ProxyError, invariant } from '../core/errors.js';

/** Of a wrong value in a message: enough to know it again, where a whole body may be 64 KiB. */
const SHOWN_CHARS_MAX = 100;

const CLOSED = { additionalProperties: false };

/** Decimal text: a JSON number is a binary fraction, and 0.1 is none. */
const Money = Type.String();

const NewAccount = Type.Object(
  { name: Type.String(), plan: Type.String(), credit: Type.Optional(Money) },
  CLOSED,
);
const Credit = Type.Object({ amount: Money, note: Type.Optional(Type.String()) }, CLOSED);
const PlanChange = Type.Object({ plan: Type.String() }, CLOSED);
const NewKey = Type.Object({ account: Type.String(), name: Type.String() }, CLOSED);
const Nothing = Type.Object({}, CLOSED);
const PageQuery = Type.Object(
  { cursor: Type.Optional(Type.String()), limit: Type.Optional(Type.String()) },
  CLOSED,
);
const KeysQuery = Type.Object({ ...PageQuery.properties, account: Type.Optional(Type.String()) }, CLOSED);

const UsageQuery = Type.Object(
  {
    account: Type.Optional(Type.String()),
    from: Type.Optional(Type.String()),
    to: Type.Optional(Type.String()),
    by: Type.Optional(Type.String()),
  },
  CLOSED,
);

/** Gives back the value, typed, or throws `invalid_parameters` that names the first field at fault and its rule. */
export type Reader<Value> = (value: unknown) => Value;

export const readNewAccount = reader(NewAccount, 'field');
export const readCredit = reader(Credit, 'field');
export const readPlanChange = reader(PlanChange, 'field');
export const readNewKey = reader(NewKey, 'field');
export const readNothing = reader(Nothing, 'field');
export const readPageQuery = reader(PageQuery, 'query parameter');
export const readUsageQuery = reader(UsageQuery, 'query parameter');
export const readKeysQuery = reader(KeysQuery, 'query parameter');
export const readNoQuery = reader(Nothing, 'query parameter');

export type PageQuery = Static<typeof PageQuery>;

function reader<Schema extends TSchema>(schema: Schema, noun: string): Reader<Static<Schema>> {
  const validator = Compile(schema);
  invariant(validator.IsAccelerated(), 'validators of the admin interface are compiled');
  return (value) => {
    if (validator.Check(value)) return value;
    throw new ProxyError('invalid_parameters', 'downstream', faultOf(validator.Errors(value), noun, value));
  };
}

/** Unknown names first, for a misspelt field is also a missing one. */
function faultOf(errors: ReturnType<Validator['Errors']>, noun: string, value: unknown): string {
  for (const error of errors) {
    if (error.keyword === 'additionalProperties') {
      return `unknown ${noun} ${error.params.additionalProperties.join(', ')}`;
    }
  }
  for (const error of errors) {
    if (error.keyword === 'required') return `${error.params.requiredProperties.join(', ')} must be given`;
  }
  const first = errors[0];
  const name = first?.instancePath.slice(1) ?? '';
  if (name === '') return `the body must be a JSON object, got ${shown(value)}`;
  const got = shown((value as Record<string, unknown>)[name]);
  return `${name} ${first?.message ?? 'is invalid'}, got ${got}`;
}

function shown(value: unknown): string {
  const text = JSON.stringify(value);
  return text.length <= SHOWN_CHARS_MAX ? text : `${text.slice(0, SHOWN_CHARS_MAX)}…`;
}
