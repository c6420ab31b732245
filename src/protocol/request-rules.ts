/**
 * Says why a request breaks the schema of its door, in an error message for its sender, and has the bounds
 * that other code shares with the schemas. chat-scan.ts and doors/member-scan.ts call `violationOf` for a
 * body that the compiled check has rejected. Pure; any thread.
 *
 * The schemas are those of chat-schema.ts and doors/request-schemas.ts, as JSON that the build writes into
 * generated.js: so a rule is declared once, and a running gateway need not load TypeBox. The `description` of
 * a schema is what follows "must be" in the message, and stands in the OpenAPI document too.
 *
 * Must hold: `violationOf` returns a message exactly for the values that the compiled check rejects
 * (test/unit/doors/request-schemas.test.ts). It knows the keywords of RequestSchema alone: a schema with
 * another one needs a line here.
 */
import { isRecord } from '../core/json.js';
import { clipped } from '../core/wrong-input.js';

/** OpenAI's roles. Results of tools have `tool` or `function`. Newer models call `system` `developer`. */
export const CHAT_ROLES = ['system', 'developer', 'user', 'assistant', 'tool', 'function'] as const;

/** Most choices (`n`) of a call, each of which is billed. No known provider makes more. */
export const CHOICES_MAX = 128;

/** The keywords of JSON Schema that the schemas of requests have. */
export interface RequestSchema {
  readonly type?: 'object' | 'array' | 'string' | 'boolean' | 'number' | 'integer' | 'null';
  readonly description?: string;
  readonly properties?: Readonly<Record<string, RequestSchema>>;
  readonly required?: readonly string[];
  readonly items?: RequestSchema;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minLength?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly enum?: readonly unknown[];
  readonly const?: boolean | string;
  readonly anyOf?: readonly RequestSchema[];
}

/** Characters of the sender's text that an error message repeats. */
const TEXT_CHARS_MAX = 40;

/** The rules in words of schemas without a description, by type; `numberViolation` has those of numbers. */
const RULES: Readonly<Record<string, string>> = {
  null: 'be null',
  object: 'be an object',
  array: 'be an array',
  string: 'be a string',
  boolean: 'be true or false',
  integer: 'be an integer',
};

/** A value in words: `"some text…"`, `3`, `null`, `an array`, `nothing`. */
function describe(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (Array.isArray(value)) return 'an array';
  if (typeof value === 'object' && value !== null) return 'an object';
  if (typeof value === 'string') return JSON.stringify(clipped(value, TEXT_CHARS_MAX));
  return typeof value === 'number' ? String(value) : JSON.stringify(value);
}

/** For a body that is rejected although `violationOf` finds no broken rule, which would be a bug. */
export const UNEXPLAINED = 'the request body must be as the interface says';

/** The error message for a field that breaks a rule, such as `temperature must be a number, got "warm"`. */
export function violation(field: string, rule: string, value: unknown): string {
  return `${field} must ${rule}, got ${describe(value)}`;
}

/**
 * The error message for the first rule that `value` breaks: the field, the rule, and what the field has.
 * Undefined if it keeps all. `path`: of the value in the body; left out for the body itself.
 */
export function violationOf(schema: RequestSchema, value: unknown, path = ''): string | undefined {
  const { type, anyOf, description } = schema;
  if (type === 'number' || type === 'integer') return numberViolation(schema, value, path);
  if (anyOf !== undefined) {
    const meant = alternativeFor(anyOf, value);
    const message =
      meant === undefined
        ? violation(path, `be ${description ?? 'of another type'}`, value)
        : violationOf(meant, value, path);
    if (message === undefined) return undefined;
    const isOther = anyOf.some((other) => other !== meant && violationOf(other, value, path) === undefined);
    return isOther ? undefined : message;
  }
  if (schema.enum !== undefined)
    return schema.enum.includes(value)
      ? undefined
      : violation(path, `be one of ${schema.enum.join(', ')}`, value);
  if (schema.const !== undefined)
    return value === schema.const
      ? undefined
      : violation(path, `be ${description ?? String(schema.const)}`, value);
  // A schema without a type allows any value.
  if (type === undefined) return undefined;
  if (!isOfType(schema, value) || isTooShort(schema, value))
    return path === ''
      ? violation('the request body', 'be a JSON object', value)
      : violation(path, description === undefined ? ruleOf(schema, value) : `be ${description}`, value);
  if (Array.isArray(value)) return itemsViolation(schema, value, path);
  return isRecord(value) ? membersViolation(schema, value, path) : undefined;
}

function membersViolation(
  { properties = {}, required = [] }: RequestSchema,
  value: Readonly<Record<string, unknown>>,
  path: string,
): string | undefined {
  for (const [name, schema] of Object.entries(properties)) {
    if (value[name] === undefined && !required.includes(name)) continue;
    const message = violationOf(schema, value[name], memberPath(path, name));
    if (message !== undefined) return message;
  }
  // A member that may have any value, or that `properties` does not name.
  const missing = required.find((name) => value[name] === undefined);
  return missing === undefined ? undefined : violation(memberPath(path, missing), 'be given', undefined);
}

function memberPath(path: string, name: string): string {
  return path === '' ? name : `${path}.${name}`;
}

/** Whether a text has fewer characters than the schema wants. */
function isTooShort({ minLength = 0 }: RequestSchema, value: unknown): boolean {
  // A text has at least half as many characters as UTF-16 units, so that long texts are not counted.
  return typeof value === 'string' && value.length < 2 * minLength && Array.from(value).length < minLength;
}

/** The rule that `value` breaks, in words, of a schema with a type and without a description. */
function ruleOf({ type, minLength = 0 }: RequestSchema, value: unknown): string {
  if (typeof value !== 'string' || type !== 'string') return RULES[type!]!;
  return `have at least ${minLength} ${minLength === 1 ? 'character' : 'characters'}`;
}

function itemsViolation(schema: RequestSchema, value: readonly unknown[], path: string): string | undefined {
  const message = countViolation(schema, value.length, path);
  if (message !== undefined || schema.items === undefined) return message;
  // The path of an item is written for the wrong one alone: a body of 64 KB has 30,000 items.
  const index = value.findIndex((item) => violationOf(schema.items!, item, path) !== undefined);
  return index < 0 ? undefined : violationOf(schema.items, value[index], `${path}[${index}]`);
}

/** Returns the error message for a list of `count` items; undefined if the schema allows so many. */
export function countViolation(
  { minItems = 0, maxItems = Infinity }: RequestSchema,
  count: number,
  path: string,
): string | undefined {
  if (count < minItems) return `${path} must have at least ${minItems} item, got ${count}`;
  return count > maxItems ? `${path} must have at most ${maxItems} items, got ${count}` : undefined;
}

/** Without a description there is a message for each fault: a wrong type, or a wrong number. */
function numberViolation(schema: RequestSchema, value: unknown, path: string): string | undefined {
  const { type, minimum = -Infinity, maximum = Infinity, description } = schema;
  const isNumber = type === 'integer' ? Number.isInteger(value) : Number.isFinite(value);
  if (isNumber && (value as number) >= minimum && (value as number) <= maximum) return undefined;
  if (description !== undefined) return violation(path, `be ${description}`, value);
  if (isNumber && minimum === 0 && maximum === Infinity) return violation(path, 'not be negative', value);
  const bounds = boundsOf(minimum, maximum);
  if (!isNumber) return violation(path, type === 'integer' ? RULES.integer! : `be a number${bounds}`, value);
  return violation(path, `be${bounds}`, value);
}

/** The bounds in words, after a space; empty if there are none. */
function boundsOf(minimum: number, maximum: number): string {
  if (maximum === Infinity) return minimum === -Infinity ? '' : ` at least ${minimum}`;
  return minimum === -Infinity ? ` at most ${maximum}` : ` between ${minimum} and ${maximum}`;
}

/**
 * The alternative that the sender most likely meant: of the value's type, and of several lists the one that
 * allows the first item, else the last. Undefined if none is of the value's type.
 */
function alternativeFor(anyOf: readonly RequestSchema[], value: unknown): RequestSchema | undefined {
  const alternatives = anyOf.filter(({ type }) => type !== 'null');
  if (alternatives.length === 1) return alternatives[0];
  const fitting = alternatives.filter((schema) => isOfType(schema, value));
  if (!Array.isArray(value)) return fitting[0];
  return fitting.find(({ items }) => value.length === 0 || isOfType(items ?? {}, value[0])) ?? fitting.at(-1);
}

function isOfType({ type }: RequestSchema, value: unknown): boolean {
  if (type === 'object') return isRecord(value);
  if (type === 'array') return Array.isArray(value);
  if (type === 'null') return value === null;
  return type === undefined || typeof value === (type === 'integer' ? 'number' : type);
}
