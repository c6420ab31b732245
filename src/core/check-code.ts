/**
 * Makes JavaScript code that checks a value by a TypeBox schema. Two build steps call it:
 * doors/build-generated.ts and scripts/build-checks.mjs. No running gateway loads it.
 *
 * Must hold: the code says of each value what TypeBox itself says (test/unit/core/schema-check.test.ts).
 */
import type { TSchema } from 'typebox';
import { Code } from 'typebox/compile';

const CHECK = 'export function Check(';

/**
 * Returns a JavaScript expression: a function that tells whether a value is as `schema` says. Throws an Error
 * if the code would need TypeBox to run.
 */
export function checkCode(name: string, schema: TSchema): string {
  const { Code: code, External: external } = Code(schema);
  // Code() imports TypeBox's helpers even if the schema needs none.
  const body = code
    .replace(/^import \{ \w+ \} from "typebox\/\w+"$/gm, '')
    // A string that has a UTF-16 unit has a character.
    .replace(/Guard\.CodePointCount\(([\w.]+)\) >= 1\b/g, '$1.length >= 1')
    .replace(/Guard\.CodePointCount\(([\w.]+)\)/g, '[...$1].length')
    .replace(/^.*SetExternal.*$/m, '')
    .replace(/^\/\/.*\n/gm, '')
    // By a function, because `$$` or `$&` of a pattern would mean something in a replacement's text.
    .replace(/^let External = \[\]$/m, () => `const External = [${external.variables.map(literalOf).join(', ')}]`)
    .trim();
  if (/\b(?:Guard|Hashing|CheckContext)\b/.test(body) || !body.includes(CHECK))
    throw new Error(`the schema of ${name} does not compile to code that stands alone; see its file`);
  return `(() => {\n${body.replace(CHECK, 'return function (')}\n})()`;
}

/** TypeBox keeps regular expressions outside of the code, as variables. */
function literalOf(variable: unknown): string {
  if (!(variable instanceof RegExp)) throw new Error('a schema wants more than patterns beside its code');
  return String(variable);
}
