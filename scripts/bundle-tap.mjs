/**
 * Puts tap into build/test/node_modules as one module, where tests find it before the package itself: each
 * test file is a process, and to open tap's 350 modules takes 0.2 s of CPU, half of what a short file needs.
 * scripts/test.mjs calls this before it starts the first file. It does nothing if what this version of the
 * script makes of that version of tap and of esbuild is there already.
 *
 * Must hold: a process has one tap. So the module that starts a folder's unit tests (test-batch.mjs) imports
 * this one.
 */
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { build, version as builder } from 'esbuild';

const TARGET = 'build/test/node_modules';
/** tap leaves frames of packages of this scope out of stacks. */
const MODULE = '@tapjs/bundle.js';

const { version } = JSON.parse(readFileSync('node_modules/tap/package.json', 'utf8'));
const script = createHash('sha256')
  .update(readFileSync(new URL(import.meta.url)))
  .digest('hex');
const description = JSON.stringify({
  name: 'tap',
  version,
  type: 'module',
  exports: './index.js',
  madeBy: { script, builder },
});
const descriptionPath = `${TARGET}/tap/package.json`;

export async function bundleTap() {
  if (readOrEmpty(descriptionPath) === description) return;
  await build({
    stdin: { contents: "export * from 'tap'; export { default } from 'tap';", resolveDir: '.' },
    outfile: `${TARGET}/${MODULE}`,
    bundle: true,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    // For packages that are CommonJS and require modules of Node.
    banner: {
      js: "import { createRequire as createRequireOfTap } from 'node:module';\nconst require = createRequireOfTap(import.meta.url);",
    },
    logLevel: 'error',
  });
  mkdirSync(`${TARGET}/tap`, { recursive: true });
  writeFileSync(`${TARGET}/@tapjs/package.json`, '{"type":"module"}');
  writeFileSync(
    `${TARGET}/tap/index.js`,
    `export * from '../${MODULE}';\nexport { default } from '../${MODULE}';\n`,
  );
  // Last: it tells that all is there.
  writeFileSync(descriptionPath, description);
}

function readOrEmpty(path) {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
