/**
 * Checks stored rows by their TypeBox schemas, with code that the build makes: scripts/build-checks.mjs loads
 * the modules that call `schemaCheck`, and writes generated-checks.js. So a gateway loads no compiler, which
 * would take 5 MB and delay its start. Any thread.
 *
 * Must hold: no schema is interpreted, or a start with a million accounts takes minutes
 * (test/unit/core/schema-check.test.ts).
 */
import type { Static, TSchema } from 'typebox';
import { invariant } from './errors.js';
import { CHECKS, MADE } from './generated-checks.js';

/** Read by the build. */
export const CHECKED_SCHEMAS = new Map<string, TSchema>();

/**
 * Returns the compiled check of `schema`. `name` must be unique among all schemas. Throws an Error if the
 * build has not made the check.
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
