/**
 * Types of the module that scripts/build-checks.mjs writes to dist/core/generated-checks.js.
 * core/schema-check.ts imports it. Test: test/unit/core/schema-check.test.ts.
 */

/** False only while the build loads the modules whose schemas it compiles, and CHECKS is empty. */
export const MADE: boolean;

/** The compiled checks, by the name that `schemaCheck` is called with. */
export const CHECKS: Readonly<Record<string, (value: unknown) => boolean>>;
