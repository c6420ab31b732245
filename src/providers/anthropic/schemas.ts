/**
 * Writes a caller's JSON schema in the subset that Anthropic enforces, for the content of a response and for
 * the arguments of strict tools. tools.ts calls `formatSchema` and `toolSchemas`; bedrock/tools.ts both too,
 * and `closedSchema` for models that are not Claude, since Bedrock knows the same subset. doors/messages/
 * to-chat.ts walks schemas by `innerSchemas`. Pure; upstream worker, or counter thread if the body is large.
 *
 * Follows transformJSONSchema of @anthropic-ai/sdk 1.12, and platform.claude.com, page "Structured outputs",
 * 2026-11.
 *
 * Must hold: every object of a result is closed, and a request's results are within Anthropic's bounds
 * together: Anthropic answers 400 to any other. A schema is given up if it has what Anthropic rejects (a
 * reference that leads round in a circle or out of the definitions, values of `enum` that are objects, a
 * reference in `allOf`), and if it would mean something else when it is closed: an object of any members,
 * whose tool could get no arguments, or objects in `allOf` that have to hold each other's members. The
 * caller's schema is not changed, and the recursion is bounded
 * (test/unit/providers/anthropic/schemas.test.ts).
 */
import { exactJsonText } from '../../core/exact-json.js';
import { isRecord, type Members, membersOf } from '../../core/json.js';

/** Values of `format` that Anthropic enforces. */
const STRING_FORMATS: ReadonlySet<unknown> = new Set(
  'date-time time date duration email hostname uri ipv4 ipv6 uuid'.split(' '),
);
/** Keywords of JSON Schema that stay as they are; then those whose value is a list, or a map, of schemas. */
const KEPT: ReadonlySet<string> = new Set(['type', 'enum', 'const', '$ref', 'title', 'required', 'default']);
/** Keywords that allow members beside `properties`. */
const OPENING: ReadonlySet<string> = new Set(['patternProperties', 'unevaluatedProperties']);
/** A reference to a definition of the whole schema, by a name without escapes. */
const DEFINITION = /^#\/(?:\$defs|definitions)\/[^/~%]+$/;
const LIST_KEYWORDS: ReadonlySet<string> = new Set(['anyOf', 'oneOf', 'allOf']);
const MAP_KEYWORDS: ReadonlySet<string> = new Set(['properties', '$defs', 'definitions']);
/** Deeper schemas are not rewritten, which bounds the recursion. No schema in use is so deep. */
const DEPTH_MAX = 64;

/**
 * Anthropic's bounds of a request: strict tools; and, in all their schemas and that of
 * `output_config.format` together, optional properties and places with more than one type. Anthropic
 * responds with 400 to a request beyond a bound (page "Structured outputs", "Schema complexity limits";
 * camel-ai/camel pull request 4171, read 2026-11).
 */
const STRICT_TOOLS_MAX = 20;
const STRICT_OPTIONAL_MAX = 24;
const STRICT_UNIONS_MAX = 16;

/** Thrown by `closedAtDepth` for a schema outside of the subset; `closedSchema` catches it. */
class Inexpressible extends Error {}

/**
 * A caller's JSON schema in the subset: every object is closed, `oneOf` becomes `anyOf`, and limits that
 * Anthropic does not enforce, such as `maxLength`, go into the description, where the model reads them.
 *
 * Undefined if the schema has an object that allows members of any name, or anything else that Anthropic
 * cannot enforce, or is nested too deeply. `strict`: OpenAI rejects such objects, so every object is closed,
 * whatever its `additionalProperties` is.
 */
export function closedSchema(
  schema: Record<string, unknown>,
  { strict }: { readonly strict: boolean },
): Record<string, unknown> | undefined {
  try {
    const closed = closedAtDepth(schema, strict, 0);
    return hasBadReference(closed) ? undefined : closed;
  } catch (error) {
    if (error instanceof Inexpressible) return undefined;
    throw error;
  }
}

/**
 * The schemas of a request's strict tools, each as `closedSchema` returns it; undefined for one that cannot
 * be closed. All are undefined if together, with `format`, they exceed Anthropic's bounds, because Anthropic
 * would reject the whole request. `format`: what `formatSchema` returned; undefined without one.
 */
export function toolSchemas(
  schemas: readonly Record<string, unknown>[],
  format: Record<string, unknown> | undefined,
): readonly (Record<string, unknown> | undefined)[] {
  // Not `strict: true`: an object of any members would be closed, and the tool could get no arguments.
  const closed = schemas.map((schema) => closedSchema(schema, { strict: false }));
  const hasTooMany = closed.filter((schema) => schema !== undefined).length > STRICT_TOOLS_MAX;
  return hasTooMany || isTooComplex([...closed, format]) ? closed.map(() => undefined) : closed;
}

/**
 * The schema of a response as `closedSchema` returns it. Undefined also if the schema alone exceeds
 * Anthropic's bounds.
 */
export function formatSchema(
  schema: Record<string, unknown>,
  options: { readonly strict: boolean },
): Record<string, unknown> | undefined {
  const closed = closedSchema(schema, options);
  return isTooComplex([closed]) ? undefined : closed;
}

/** Whether closed schemas together exceed Anthropic's bounds. An undefined entry counts nothing. */
function isTooComplex(schemas: readonly (Record<string, unknown> | undefined)[]): boolean {
  const counts = { optional: 0, unions: 0 };
  for (const schema of schemas) addCounts(schema, counts);
  return counts.optional > STRICT_OPTIONAL_MAX || counts.unions > STRICT_UNIONS_MAX;
}

/** Adds to `counts` what is in `schema`, which is closed, at any depth up to DEPTH_MAX. */
function addCounts(schema: unknown, counts: { optional: number; unions: number }): void {
  if (!isRecord(schema)) return;
  const { type, properties, required, anyOf } = schema;
  if (Array.isArray(anyOf) || Array.isArray(type)) counts.unions++;
  const requiredNames = new Set<unknown>(Array.isArray(required) ? required : []);
  for (const name in membersOf(properties)) if (!requiredNames.has(name)) counts.optional++;
  for (const inner of innerSchemas(schema)) addCounts(inner, counts);
}

/** What stands in a closed schema where a schema may stand: also values that are none. */
export function innerSchemas(schema: Members): unknown[] {
  const { properties, anyOf, allOf, items, $defs, definitions } = schema;
  const inMaps = [properties, $defs, definitions].flatMap((map) => Object.values(membersOf(map)));
  const inLists = [anyOf, allOf].flatMap((list) => (Array.isArray(list) ? (list as unknown[]) : []));
  return [...inMaps, ...inLists, items];
}

const isObject = ({ type, properties }: Record<string, unknown>): boolean =>
  type === 'object' || (Array.isArray(type) && type.includes('object')) || isRecord(properties);

/** Throws an Inexpressible for what a schema itself has that Anthropic rejects, or would misunderstand. */
function rejectInexpressible(schema: Record<string, unknown>, strict: boolean): void {
  const { $ref, enum: values, allOf } = schema;
  if ($ref !== undefined && (typeof $ref !== 'string' || !DEFINITION.test($ref))) throw new Inexpressible();
  if (Array.isArray(values) && values.some((value) => typeof value === 'object' && value !== null))
    throw new Inexpressible();
  // One list of alternatives would replace the other.
  if (schema.anyOf !== undefined && schema.oneOf !== undefined) throw new Inexpressible();
  if (!strict && Object.keys(schema).some((name) => OPENING.has(name) && schema[name] !== false))
    throw new Inexpressible();
  if (!Array.isArray(allOf)) return;
  const parts = [...(allOf as unknown[]), { type: schema.type, properties: schema.properties }].filter(
    isRecord,
  );
  if (parts.some((part) => part.$ref !== undefined) || parts.filter(isObject).length > 1)
    throw new Inexpressible();
}

/** Whether a reference of the closed schema leads to no definition, or from one back to itself. */
function hasBadReference(schema: Record<string, unknown>): boolean {
  const open = new Set<string>();
  const checked = new Set<string>();
  const isBad = (reference: string): boolean => {
    if (open.has(reference) || open.size > DEPTH_MAX) return true;
    if (checked.has(reference)) return false;
    const [, map, name] = reference.split('/') as [string, '$defs' | 'definitions', string];
    const definitions = membersOf(schema[map]);
    if (!Object.hasOwn(definitions, name)) return true;
    open.add(reference);
    const isWrong = referencesIn(definitions[name]).some(isBad);
    open.delete(reference);
    checked.add(reference);
    return isWrong;
  };
  return referencesIn(schema).some(isBad);
}

function referencesIn(schema: unknown): string[] {
  if (!isRecord(schema)) return [];
  const { $ref } = schema;
  return [...(typeof $ref === 'string' ? [$ref] : []), ...innerSchemas(schema).flatMap(referencesIn)];
}

/** As `closedSchema`, for a schema at any depth. Throws an Inexpressible in place of returning undefined. */
function closedAtDepth(schema: unknown, strict: boolean, depth: number): Record<string, unknown> {
  if (!isRecord(schema) || depth > DEPTH_MAX) throw new Inexpressible();
  rejectInexpressible(schema, strict);
  const result: Record<string, unknown> = {};
  const limits: string[] = [];
  for (const name in schema) {
    const value = schema[name];
    if (KEPT.has(name)) result[name] = value;
    else if (MAP_KEYWORDS.has(name) && isRecord(value))
      result[name] = Object.fromEntries(
        Object.entries(value).map(([key, inner]) => [key, closedAtDepth(inner, strict, depth + 1)]),
      );
    else if (LIST_KEYWORDS.has(name) && Array.isArray(value))
      result[name === 'oneOf' ? 'anyOf' : name] = value.map((inner: unknown) =>
        closedAtDepth(inner, strict, depth + 1),
      );
    else if (name === 'items' && isRecord(value)) result.items = closedAtDepth(value, strict, depth + 1);
    else if (name === 'format' && STRING_FORMATS.has(value)) result.format = value;
    else if (name === 'minItems' && (value === 0 || value === 1)) result.minItems = value;
    else if (name === 'additionalProperties') {
      if (value !== false && !strict) throw new Inexpressible();
      // Any other keyword may be a limit, which the model then reads in the description.
    } else if (name !== 'description' && name !== '$schema') limits.push(`${name}: ${exactJsonText(value)}`);
  }
  if (isObject(schema)) {
    if (!isRecord(schema.properties) && !strict) throw new Inexpressible();
    result.additionalProperties = false;
  }
  const description = typeof schema.description === 'string' ? schema.description : '';
  if (limits.length > 0)
    result.description = `${description}${description === '' ? '' : '\n\n'}{${limits.join(', ')}}`;
  else if (description !== '') result.description = description;
  return result;
}
