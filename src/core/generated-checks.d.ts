/**
 * Types of dist/core/generated-checks.js, the compiled checks of stored rows. scripts/build-checks.mjs writes
 * that module, core/schema-check.ts alone imports it. Any thread.
 *
 * Must hold: the script writes what these types say, which tsc does not compare
 * (test/unit/core/schema-check.test.ts calls each check).
 */

/**
 * Whether the checks are made. The build first writes `false` and an empty CHECKS, because it must load the
 * modules that have the schemas. Then it writes `true` and all checks.
 */
export const MADE: boolean;

/** By the name that `schemaCheck` is called with, which throws if the name is not here. No prototype. */
export const CHECKS: Readonly<Record<string, (value: unknown) => boolean>>;
