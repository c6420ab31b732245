/**
 * A step of the build, after tsc: writes dist/core/generated-checks.js, the checks of all schemas that
 * modules hand to `schemaCheck` (src/core/schema-check.ts), or to `rowReader` or `rowCodec` of src/store,
 * which hand them on. Run from the package's root.
 */
import { copyFileSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';

const PATH = 'dist/core/generated-checks.js';
const HEAD = '// Made by scripts/build-checks.mjs; do not edit.\n';

// tsc does not copy a declaration that is written by hand.
copyFileSync('src/core/generated-checks.d.ts', 'dist/core/generated-checks.d.ts');

// Without checks, so that the modules load and say which schemas they have.
writeFileSync(PATH, `${HEAD}export const MADE = false;\nexport const CHECKS = {};\n`);
const { CHECKED_SCHEMAS } = await import('../dist/core/schema-check.js');
for (const folder of ['store', 'sharing']) {
  for (const name of readdirSync(`src/${folder}`)) {
    if (readFileSync(`src/${folder}/${name}`, 'utf8').match(/\b(schemaCheck|rowReader|rowCodec)\(/))
      await import(`../dist/${folder}/${name.replace(/\.ts$/, '.js')}`);
  }
}

const { checkCode } = await import('../dist/core/check-code.js');
const checks = [...CHECKED_SCHEMAS].map(
  ([name, schema]) => `  ${JSON.stringify(name)}: ${checkCode(name, schema)},`,
);
writeFileSync(
  PATH,
  // Without a prototype, so that a schema called `constructor` finds no function that is not its check.
  `${HEAD}export const MADE = true;\nexport const CHECKS = {\n  __proto__: null,\n${checks.join('\n')}\n};\n`,
);
