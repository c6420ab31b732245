/**
 * Makes JavaScript code that checks a value by a TypeBox schema. Two build steps call it:
 * doors/build-generated.ts and scripts/build-checks.mjs. No running gateway loads it.
 *
 * The function edits the text that `Code` of TypeBox returns, and depends on its form. TypeBox 1.4.3 writes
 * this, with blank lines and `// @ts-ignore` between the lines:
 *
 *     import { Hashing } from "typebox/system"
 *     import { Guard } from "typebox/guard"
 *     let External = []
 *     export function SetExternal(external) { External = external.variables }
 *     const check_0 = ((value) => (typeof value === "string" && External[0].test(value)));
 *     export function Check(value) { return check_0(value) }
 *
 * Must hold: the code says of each value what TypeBox itself says (test/unit/core/schema-check.test.ts). Run
 * that test after each change of TypeBox's version. The edits do not tell code from the texts of a schema
 * (its names and constants): no schema may have a text that looks like the beginning of a line above or like
 * a call of `Guard.CodePointCount`. A text with the word Guard, Hashing, CheckContext or SetExternal makes
 * `checkCode` throw, and so does another form of the line of patterns.
 */
import type { TSchema } from 'typebox';
import { Code } from 'typebox/compile';

const CHECK = 'export function Check(';
const PATTERNS = /^let External = \[\]$/m;

/**
 * Returns an expression of a function that checks a value. Throws an Error, which has `name`, if the code
 * would need TypeBox to run.
 */
export function checkCode(name: string, schema: TSchema): string {
  const { Code: code, External: external } = Code(schema);
  if (!PATTERNS.test(code))
    throw new Error('TypeBox writes its patterns in another form than this file edits');
  const body = code
    // `Code` imports TypeBox's helpers even if the schema needs none. Each import has one name.
    .replace(/^import \{ \w+ \} from "typebox\/\w+"$/gm, '')
    // A string that has a UTF-16 unit has a character, so the cheaper `length` answers `>= 1`. This
    // replacement comes before the next, which would match too.
    .replace(/Guard\.CodePointCount\(([\w.]+)\) >= 1\b/g, '$1.length >= 1')
    .replace(/Guard\.CodePointCount\(([\w.]+)\)/g, '[...$1].length')
    // Not needed: the last replacement writes the patterns into the code.
    .replace(/^.*SetExternal.*$/m, '')
    .replace(/^\/\/.*\n/gm, '')
    // By a function, because `$$` or `$&` of a pattern would mean something in a replacement's text.
    .replace(PATTERNS, () => `const External = [${external.variables.map(literalOf).join(', ')}]`)
    .trim();
  if (/\b(?:Guard|Hashing|CheckContext|SetExternal)\b/.test(body) || !body.includes(CHECK))
    // "Its file" is the file that declares the schema.
    throw new Error(`the schema of ${name} does not compile to code that stands alone; see its file`);
  return `(() => {\n${body.replace(CHECK, 'return function (')}\n})()`;
}

/** TypeBox keeps regular expressions outside of the code. What a `Type.Refine` checks by has no literal. */
function literalOf(variable: unknown): string {
  if (!(variable instanceof RegExp)) throw new Error('a schema wants more than patterns besides its code');
  return String(variable);
}
