/**
 * Checks of stored rows by their TypeBox schemas, as code that the build makes: scripts/build-checks.mjs
 * loads the modules that call `schemaCheck`, and writes generated-checks.js. A gateway so loads no compiler,
 * which takes 5 MB and part of its start, and makes no code from text. Any thread.
 *
 * Must hold: no schema is interpreted, which would make a start with a million accounts take minutes
 * (test/unit/core/schema-check).
 */
import type { Static, TSchema } from 'typebox';
import { invariant } from './errors.js';
import { CHECKS, MADE } from './generated-checks.js';

/** For the build. */
export const CHECKED_SCHEMAS = new Map<string, TSchema>();

/**
 * Returns what tells whether a value is as `schema` says. `name` is that of the schema, and no other schema
 * has it. Throws an Error if the build has not made it.
 */
export function schemaCheck<Schema extends TSchema>(
  name: string,
  schema: Schema,
): (value: unknown) => value is Static<Schema> {
  invariant(!CHECKED_SCHEMAS.has(name), `one schema is called ${name}`);
  CHECKED_SCHEMAS.set(name, schema);
  const check = CHECKS[name];
  if (MADE && check === undefined) throw new Error(`the check ${name} is not made: run \`npm run build\``);
  return check as (value: unknown) => value is Static<Schema>;
}
