/**
 * Checks bodies and query parameters of the admin interface by their schemas, and explains errors. route.ts
 * creates a reader for the body and one for the query of each route; live-feed.ts creates one for its query.
 * Files with routes use `quoted` for errors of their own. Main thread of a gateway, and commands that work
 * without one.
 *
 * Must hold: nothing here compiles text to code, as TypeBox's compiler would, because the gateway forbids
 * that to its process (test/unit/admin/openapi.test.ts). So TypeBox interprets the schemas; the first request
 * with input loads TypeBox. TypeBox takes some 30 µs for one account of `POST /bulk`, whose body may have
 * 8 MB. So lists that are too long and unknown names are rejected before TypeBox reads them
 * (test/unit/admin/input-reader.test.ts).
 */
import type { Static, TObject, TSchema } from 'typebox';
import type { Errors } from 'typebox/schema';
import { invariant } from '../core/errors.js';
import { isRecord } from '../core/json.js';
import {
  editDistance,
  nearestName,
  synonymOf,
  clipped,
  formatInputPath,
  UNPRINTABLE,
  type ValueSchema,
  wantedBy,
} from '../core/wrong-input.js';
import { invalid } from '../registry/record-id.js';

/** How much of a wrong value a message shows: enough to recognise it. A whole body may have megabytes. */
const SHOWN_CHARS_MAX = 100;
/** How many unknown names are collected. A message cannot show more: each takes a character or more. */
const NAMES_SHOWN_MAX = SHOWN_CHARS_MAX;

/** What a message calls a member of the input: a field of a body or a parameter of a query. */
type InputNoun = 'field' | 'query parameter';

/** Resolves with the value; rejects with `invalid_parameters`, naming the first wrong field and its rule. */
type Reader<Value> = (value: unknown) => Promise<Value>;

type InputErrors = ReturnType<typeof Errors>[1];

/**
 * Makes a reader of objects by `schema`. Throws, as the program starts, for a schema with a list or an object
 * that `assertBounded` would not find. A schema without required fields must accept `{}`, because the
 * reader accepts it without TypeBox: most requests have no input, and TypeBox takes time to load.
 */
export function createReader<Schema extends TObject>(
  schema: Schema,
  noun: InputNoun,
): Reader<Static<Schema>> {
  assertFollowed(schema);
  const isAllOptional = !('required' in schema);
  return async (value) => {
    if (isAllOptional && isRecord(value) && Object.keys(value).length === 0) return value as Static<Schema>;
    assertBounded(schema, value, noun);
    const typebox = await import('typebox/schema');
    if (typebox.Check(schema, value)) return value;
    throw invalid(inputErrorText(typebox.Errors(schema, value)[1], schema, value));
  };
}

/**
 * Throws `invalid_parameters` for unknown names and lists that are too long. TypeBox checks every item of a
 * list before it counts the items, which took 29 s of the main thread for a body of 8 MB. Follows
 * only `properties` and `items` (`assertFollowed`). `pointer`: the JSON pointer of the value.
 */
function assertBounded(schema: TSchema, value: unknown, noun: InputNoun, pointer = ''): void {
  const { properties, items, maxItems } = schema as Partial<TObject> & {
    readonly items?: TSchema;
    readonly maxItems?: number;
  };
  if (Array.isArray(value) && items !== undefined) {
    if (maxItems !== undefined && value.length > maxItems)
      throw invalid(`${fieldOf(pointer)} must have at most ${maxItems} items, got ${value.length}`);
    value.forEach((item, index) => assertBounded(items, item, noun, `${pointer}/${index}`));
  }
  if (!isRecord(value) || properties === undefined) return;
  const isClosed = 'additionalProperties' in schema && schema.additionalProperties === false;
  const unknownNames: string[] = [];
  for (const name of Object.keys(value)) {
    if (Object.hasOwn(properties, name))
      assertBounded(properties[name]!, value[name], noun, pointerTo(pointer, name));
    else if (isClosed && unknownNames.push(name) === NAMES_SHOWN_MAX) break;
  }
  if (unknownNames.length > 0) throw invalid(unknownNamesText(unknownNames, pointer, schema, noun));
}

/**
 * Throws for an object or a list within another keyword than `properties` and `items`, such as `anyOf`, where
 * `assertBounded` would not look, and for a list without a bound: TypeBox would check all of its items.
 */
function assertFollowed(schema: unknown, isFollowed = true): void {
  if (typeof schema !== 'object' || schema === null) return;
  for (const [keyword, value] of Object.entries(schema)) {
    if (keyword === 'properties') {
      invariant(isFollowed, 'an object in a request is not one of several forms');
      for (const property of Object.values(value as object)) assertFollowed(property);
    } else if (keyword === 'items') {
      invariant(isFollowed && 'maxItems' in schema, 'the items of each list in a request are bounded');
      assertFollowed(value);
    } else assertFollowed(value, false);
  }
}

/**
 * Returns a message with the unknown names that fit, and with a known name that is near the first of them.
 * The search is quick also for a long name, because `editDistance` compares only beginnings.
 */
function unknownNamesText(
  names: readonly string[],
  pointer: string,
  schema: TSchema,
  noun: InputNoun,
): string {
  const fields = names.slice(0, NAMES_SHOWN_MAX).map((name) => fieldOf(pointerTo(pointer, name)));
  const nearest = nearestText(names[0]!, schema);
  return `unknown ${noun} ${clipped(fields.join(', '), SHOWN_CHARS_MAX)}${nearest}`;
}

/** Returns the text of a value for a message: its JSON, cut to SHOWN_CHARS_MAX. */
export function quoted(value: unknown): string {
  return clipped(value === undefined ? 'nothing' : jsonOf(value), SHOWN_CHARS_MAX);
}

/** `value` comes from JSON.parse, or is a text of a query, so JSON can express the value. */
function jsonOf(value: unknown): string {
  try {
    return JSON.stringify(value);
  } catch {
    // JSON.stringify overflows the stack on values that JSON.parse could still read.
    return 'what is nested too deeply';
  }
}

/** Returns the message of one error. `assertBounded` comes before, and tells a misspelt name. */
function inputErrorText(errors: InputErrors, schema: TSchema, value: unknown): string {
  const missing = errors.find((error) => error.keyword === 'required');
  if (missing !== undefined) {
    const { requiredProperties: names } = missing.params;
    return `${names.map((name) => fieldOf(pointerTo(missing.instancePath, name))).join(', ')} must be given`;
  }
  const first = errors[0];
  invariant(first !== undefined, 'what is rejected has an error');
  // Only a body can be another value: the parameters of a query are always an object (`parseQuery`).
  if (first.instancePath === '') return `the body must be a JSON object, got ${quoted(value)}`;
  const wantedForm = wantedBy(schemaAt(schema, first.schemaPath));
  // The schema's rule is preferred: TypeBox's message has only a part of the rule, such as one of two bounds.
  const rule = wantedForm === undefined ? first.message : `must be ${wantedForm}`;
  return `${fieldOf(first.instancePath)} ${rule}, got ${quoted(valueAt(value, first.instancePath))}`;
}

/**
 * Returns the end of a message about an unknown name; empty if the schema has no near one. A name is near if
 * at most half of its characters differ, or if `name` is another gateway's word for it.
 */
function nearestText(name: string, { properties = {} }: Partial<TObject>): string {
  const known = Object.keys(properties);
  const synonym = synonymOf(name);
  const sameMeaning = known.find((candidate) => candidate === synonym);
  const nearest = sameMeaning ?? nearestName(name, known, (candidate) => candidate);
  const isNear =
    sameMeaning !== undefined || (nearest !== undefined && 2 * editDistance(name, nearest) <= nearest.length);
  return isNear ? `, the nearest known one is ${nearest}` : '';
}

/** Returns the JSON pointer of a field of the value at `pointer`. Escapes the name, as `namesOf` expects. */
function pointerTo(pointer: string, name: string): string {
  return `${pointer}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
}

/** The index of an item in a list, in a JSON pointer. JavaScript's numbers are exact up to 15 digits. */
const INDEX = /^(?:0|[1-9]\d{0,14})$/;

/** Converts `/accounts/3/name` to `accounts[3].name`. */
function fieldOf(pointer: string): string {
  const namesAndIndexes = namesOf(pointer).map((name) => (INDEX.test(name) ? Number(name) : name));
  return formatInputPath(namesAndIndexes);
}

/** `schemaPath`: TypeBox's path of a schema within `schema`: `#` and then a JSON pointer. */
function schemaAt(schema: TSchema, schemaPath: string): ValueSchema {
  return valueAt(schema, schemaPath.slice('#'.length)) as ValueSchema;
}

/** Returns undefined if there is no value at the pointer. */
function valueAt(value: unknown, pointer: string): unknown {
  let inner = value;
  for (const name of namesOf(pointer)) inner = (inner as Record<string, unknown> | undefined)?.[name];
  return inner;
}

/** The names in a JSON pointer, without their escapes. */
function namesOf(pointer: string): string[] {
  return pointer
    .split('/')
    .slice(1)
    .map((name) => name.replaceAll('~1', '/').replaceAll('~0', '~'));
}

/** A number of more digits may not be exact in JavaScript. It stays text, which the reader rejects. */
const WHOLE_NUMBER = /^-?\d{1,15}$/;

/** The longest value is `newest` of `GET /calls`: a cursor with a position for each of 64 processes. */
const VALUE_CHARS_MAX = 1_500;

/**
 * Returns a query string's parameters by name, ready for the schema's reader. A value that the schema
 * declares as an integer or a boolean is converted if it has that form; else it stays text, which the reader
 * rejects. Throws `invalid_parameters` if a parameter comes twice, is not percent-encoded UTF-8, is longer
 * than VALUE_CHARS_MAX, or has an unprintable character.
 */
export function parseQuery(query: string, schema: TObject): Record<string, unknown> {
  const values = new Map<string, unknown>();
  for (const pair of query.split('&')) {
    if (pair === '') continue;
    const [encodedName = '', ...encodedTexts] = pair.split('=');
    const name = decode(encodedName, 'the name of a query parameter');
    const text = decode(encodedTexts.join('='), `query parameter ${quoted(name)}`);
    if (values.has(name)) throw invalid(`query parameter ${quoted(name)} must be given once`);
    assertText(name, text);
    values.set(name, valueOf(text, schema.properties[name]));
  }
  return Object.fromEntries(values);
}

/** Throws `invalid_parameters`, whose message calls the text `noun`. */
function decode(text: string, noun: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    throw invalid(`${noun} must be percent-encoded UTF-8, got ${quoted(text)}`);
  }
}

function assertText(name: string, text: string): void {
  if (text.length > VALUE_CHARS_MAX) {
    throw invalid(
      `query parameter ${quoted(name)} must have at most ${VALUE_CHARS_MAX} characters, got ${text.length}`,
    );
  }
  if (UNPRINTABLE.test(text))
    throw invalid(`query parameter ${quoted(name)} must not have control characters`);
}

function valueOf(text: string, schema: { type?: unknown } | undefined): unknown {
  if (schema?.type === 'integer' && WHOLE_NUMBER.test(text)) return Number(text);
  if (schema?.type === 'boolean' && (text === 'true' || text === 'false')) return text === 'true';
  return text;
}
