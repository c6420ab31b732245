/**
 * Checks stored rows by their TypeBox schemas, with code that the build makes: scripts/build-checks.mjs loads
 * the modules of src/store and src/sharing that call `schemaCheck`, reads CHECKED_SCHEMAS, and writes
 * generated-checks.js. So a gateway loads no compiler, which would take 5 MB and delay its start. Those
 * modules call it once for each schema, as they are loaded. Any thread.
 *
 * Must hold: no schema is interpreted, or a start with a million accounts takes minutes
 * (test/unit/core/schema-check.test.ts).
 */
import type { Static, TSchema } from 'typebox';
import { invariant } from './errors.js';
import { CHECKS, MADE } from './generated-checks.js';

/** The schemas by their names. Only scripts/build-checks.mjs and the test read them. */
export const CHECKED_SCHEMAS = new Map<string, TSchema>();

/**
 * Returns the compiled check of `schema`. Throws an Error if another schema has the name, or if the build has
 * not made the check. A check is found by its name alone, so a schema that was changed needs a build too:
 * until then its old check is used, without a warning.
 */
export function schemaCheck<Schema extends TSchema>(
  name: string,
  schema: Schema,
): (value: unknown) => value is Static<Schema> {
  invariant(!CHECKED_SCHEMAS.has(name), `one schema is called ${name}`);
  CHECKED_SCHEMAS.set(name, schema);
  const check = CHECKS[name];
  if (MADE && check === undefined) throw new Error(`the check ${name} is not made: run \`npm run build\``);
  // The cast: undefined only while the build collects schemas (MADE is false) and calls no check.
  return check as (value: unknown) => value is Static<Schema>;
}
