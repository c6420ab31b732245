/**
 * A caller's JSON schema, rewritten in the subset of JSON Schema that Anthropic enforces (structured
 * outputs). tools.ts calls it, and bedrock/tools.ts. Pure; upstream worker.
 *
 * Follows platform.claude.com, page "Structured outputs", and transformJSONSchema of @anthropic-ai/sdk 1.12,
 * 2026-11: every object is closed (`additionalProperties: false`), `oneOf` becomes `anyOf`, and limits that
 * Anthropic does not enforce, such as `maxLength`, go into the description, where the model reads them.
 *
 * Must hold: an open object stays open, by `undefined`, unless the schema is strict
 * (test/unit/providers/anthropic/models.test.ts).
 */
import { isRecord } from '../../core/json.js';

/** Values of `format` that Anthropic enforces. */
const FORMATS: ReadonlySet<unknown> = new Set([
  'date-time',
  'time',
  'date',
  'duration',
  'email',
  'hostname',
  'uri',
  'ipv4',
  'ipv6',
  'uuid',
]);
/** Keywords that Anthropic enforces as they are, on any type. */
const KEPT: ReadonlySet<string> = new Set(['type', 'enum', 'const', '$ref', 'title', 'required', 'default']);
const LISTS: ReadonlySet<string> = new Set(['anyOf', 'oneOf', 'allOf']);
const MAPS: ReadonlySet<string> = new Set(['properties', '$defs', 'definitions']);
/** Deeper schemas are not rewritten. No response in use is so deep. */
const DEPTH_MAX = 64;

/** The schema is outside of the subset; `closedSchema` catches it. */
class Inexpressible extends Error {}

/**
 * Undefined if the schema has an object that allows members of any name, which Anthropic cannot enforce.
 * `strict`: OpenAI refuses such objects, so each object is closed whatever it says.
 */
export function closedSchema(
  schema: Record<string, unknown>,
  strict: boolean,
): Record<string, unknown> | undefined {
  try {
    return closed(schema, strict, 0);
  } catch (error) {
    if (error instanceof Inexpressible) return undefined;
    throw error;
  }
}

function closed(schema: unknown, strict: boolean, depth: number): Record<string, unknown> {
  if (!isRecord(schema) || depth > DEPTH_MAX) throw new Inexpressible();
  const result: Record<string, unknown> = {};
  const limits: string[] = [];
  for (const name in schema) {
    const value = schema[name];
    if (KEPT.has(name)) result[name] = value;
    else if (MAPS.has(name) && isRecord(value))
      result[name] = Object.fromEntries(
        Object.entries(value).map(([key, inner]) => [key, closed(inner, strict, depth + 1)]),
      );
    else if (LISTS.has(name) && Array.isArray(value))
      result[name === 'oneOf' ? 'anyOf' : name] = value.map((inner: unknown) =>
        closed(inner, strict, depth + 1),
      );
    else if (name === 'items' && isRecord(value)) result.items = closed(value, strict, depth + 1);
    else if (name === 'format' && FORMATS.has(value)) result.format = value;
    else if (name === 'minItems' && (value === 0 || value === 1)) result.minItems = value;
    else if (name === 'additionalProperties') {
      if (value !== false && !strict) throw new Inexpressible();
    } else if (name !== 'description' && name !== '$schema') limits.push(`${name}: ${JSON.stringify(value)}`);
  }
  if (schema.type === 'object' || isRecord(schema.properties)) {
    if (!isRecord(schema.properties) && !strict) throw new Inexpressible();
    result.additionalProperties = false;
  }
  const description = typeof schema.description === 'string' ? schema.description : '';
  if (limits.length > 0)
    result.description = `${description}${description === '' ? '' : '\n\n'}{${limits.join(', ')}}`;
  else if (description !== '') result.description = description;
  return result;
}
