/**
 * Bundles what runs: each entry of a process or a thread, with the modules that entries of its group share in
 * dist/chunks, in the place of the compiler's own output. A gateway opened 1,900 files before it served, and
 * that was half of its start. Run from the package's root by finish-build.mjs; what it writes is named in
 * dist/bundle.json, for who leaves out the rest.
 *
 * All other modules of dist/ stay what the compiler made of them, for tests and scripts. Chunks lie as deep
 * as the entries' folders, so that `new URL('../gateway/main.js', import.meta.url)` means the same in both.
 */
import { copyFileSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { build } from 'esbuild';
import { licenceOf } from './licences.mjs';

const TARGET = 'dist';
const CHUNKS = 'chunks';

/**
 * Entries of one group share chunks. A process has those of one group alone: what it shared with others would
 * be cut into many more files, and to find and open 70 files takes a gateway longer than to compile them.
 * Threads of different kinds share, because a copy for each would be 1.2 MB more.
 */
const GROUPS = [
  ['cli/main'],
  ['gateway/main'],
  [
    'gateway/listener-with-worker.thread',
    'request/listener.thread',
    'telemetry/span-export.thread',
    'upstream/counter-task',
    'upstream/upstream-task',
  ],
];
const ENTRIES = GROUPS.flat();

/**
 * Loaded by name as before: what brings native code or finds files of its own beside itself, what brings one
 * copy of itself to those, and what is loaded for a few gateways only.
 */
const LOADED_BY_NAME = [
  '@aws-sdk/credential-provider-node',
  '@opentelemetry/core',
  '@opentelemetry/exporter-trace-otlp-http',
  '@opentelemetry/resources',
  '@opentelemetry/sdk-trace',
  '@redis/client',
  'google-auth-library',
  'gpt-tokenizer',
  'lmdb',
  'msgpackr',
  'pino-pretty',
  'piscina',
  'uWebSockets.js',
];

// For packages that are CommonJS and require modules of Node.
const BANNER =
  "import { createRequire as createRequireOfChunk } from 'node:module';\nconst require = createRequireOfChunk(import.meta.url);";

// The compiler writes an entry only if its source has changed, and a bundle stands in its place: so what the
// compiler wrote is kept beside it, and the next build bundles that.
const compiledPath = (name) => `${TARGET}/${name}.compiled.js`;
for (const name of ENTRIES) {
  const path = `${TARGET}/${name}.js`;
  if (!readFileSync(path, 'utf8').includes(BANNER)) copyFileSync(path, compiledPath(name));
}

/** An entry that another imports is what the compiler wrote, too. */
const compiledEntries = {
  name: 'compiled-entries',
  setup: ({ onResolve }) =>
    onResolve({ filter: /^\.\.?\// }, ({ path, resolveDir }) => {
      const name = relative(TARGET, join(resolveDir, path)).replace(/\.js$/, '');
      return ENTRIES.includes(name) ? { path: resolve(compiledPath(name)) } : undefined;
    }),
};

/**
 * CommonJS packages that are loaded at a start. They are required: for the first that is imported Node
 * compiles a lexer, which searches their sources for the names that they export.
 */
const REQUIRED = ['msgpackr', 'uWebSockets.js'];
const requiredPackages = {
  name: 'required-packages',
  setup: ({ onResolve, onLoad }) => {
    onResolve({ filter: /^[\w.]+$/ }, ({ path, kind }) =>
      kind === 'import-statement' && REQUIRED.includes(path) ? { path, namespace: 'required' } : undefined,
    );
    onLoad({ filter: /^/, namespace: 'required' }, ({ path }) => ({
      contents: `module.exports = require(${JSON.stringify(path)});`,
    }));
  },
};

const outputs = new Set();
const inputs = new Set();
for (const entries of GROUPS) {
  // Readable as it is: the stack of an error names functions and lines that a reader finds again.
  const { metafile } = await build({
    entryPoints: entries.map((name) => ({ in: compiledPath(name), out: name })),
    outbase: TARGET,
    outdir: TARGET,
    allowOverwrite: true,
    bundle: true,
    splitting: true,
    chunkNames: `${CHUNKS}/[name]-[hash]`,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    minify: false,
    sourcemap: false,
    legalComments: 'inline',
    external: LOADED_BY_NAME,
    banner: { js: BANNER },
    metafile: true,
    plugins: [compiledEntries, requiredPackages],
    logLevel: 'warning',
  });
  for (const path of Object.keys(metafile.outputs)) outputs.add(path);
  for (const path of Object.keys(metafile.inputs)) inputs.add(path);
}

const written = [...outputs];
// V8 keeps a source in two bytes a character if one character wants them. esbuild escapes those of texts, and
// leaves those of comments and patterns, where an escape means the same.
for (const path of written.filter((path) => path.endsWith('.js'))) {
  const text = readFileSync(path, 'utf8');
  const narrow = text.replace(
    /[^\0-\xff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
  if (narrow !== text) writeFileSync(path, narrow);
}
for (const name of readdirSync(`${TARGET}/${CHUNKS}`)) {
  if (!written.includes(`${TARGET}/${CHUNKS}/${name}`)) rmSync(`${TARGET}/${CHUNKS}/${name}`);
}

const packages = [...new Set([...inputs].flatMap((path) => packageOf(path) ?? []))].sort();
writeFileSync(
  `${TARGET}/licences.txt`,
  [...packages, ...LOADED_BY_NAME].map(licenceText).join(`\n${'-'.repeat(80)}\n\n`),
);
const bundle = {
  files: written.map((path) => relative(TARGET, path)),
  packages,
  loadedByName: LOADED_BY_NAME,
};
writeFileSync(`${TARGET}/bundle.json`, `${JSON.stringify(bundle, null, 2)}\n`);

/** The package that a module belongs to; undefined for the program's own. */
function packageOf(path) {
  return /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1];
}

/**
 * Copies of a package's modules come with its licence, as that wants; what is loaded by name is listed with
 * its own.
 */
function licenceText(packageName) {
  const { name, version, license, text } = licenceOf(join('node_modules', packageName));
  if (text === undefined && packages.includes(packageName)) {
    throw new Error(`${packageName} has no licence file: may it be copied?`);
  }
  return `${name} ${version} (${license})\n\n${text ?? 'It has no licence file.'}\n`;
}
