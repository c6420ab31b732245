/**
 * Code of checks by TypeBox schemas, for the steps of the build: doors/build-generated.ts and
 * scripts/build-checks.mjs. Nothing that runs later loads it.
 *
 * Test: test/unit/core/schema-check.test.ts, of the code that it makes.
 */
import type { TSchema } from 'typebox';
import { Code } from 'typebox/compile';

const CHECK = 'export function Check(';

/**
 * Returns an expression of JavaScript: a function that tells whether a value is as `schema` says. Throws an
 * Error if TypeBox makes code for the schema that needs TypeBox.
 */
export function checkCode(name: string, schema: TSchema): string {
  const { Code: code, External: external } = Code(schema);
  // Code() imports TypeBox's helpers, whether or not the schema needs them.
  const body = code
    .replace(/^import \{ \w+ \} from "typebox\/\w+"$/gm, '')
    // A string has a character if it has a UTF-16 unit.
    .replace(/Guard\.CodePointCount\(([\w.]+)\) >= 1\b/g, '$1.length >= 1')
    .replace(/Guard\.CodePointCount\(([\w.]+)\)/g, '[...$1].length')
    .replace(/^.*SetExternal.*$/m, '')
    .replace(/^\/\/.*\n/gm, '')
    .replace(/^let External = \[\]$/m, `const External = [${external.variables.map(literalOf).join(', ')}]`)
    .trim();
  if (/\b(?:Guard|Hashing|CheckContext)\b/.test(body) || !body.includes(CHECK))
    throw new Error(`the schema of ${name} does not compile to code that stands alone; see its file`);
  return `(() => {\n${body.replace(CHECK, 'return function (')}\n})()`;
}

/** TypeBox keeps patterns outside of the code. */
function literalOf(variable: unknown): string {
  if (!(variable instanceof RegExp)) throw new Error('a schema wants more than patterns beside its code');
  return String(variable);
}
