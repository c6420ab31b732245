/**
 * For the image: takes from ./dist and ./node_modules what the gateway never reads. What is left of the
 * packages is a third.
 *
 * Of dist/ that is every module that is in a bundle, and what the compiler keeps for its next run; of
 * node_modules the packages that nothing but a bundle wants, whose licences stay.
 *
 * Of native binaries those stay that this Node on this system maps when the packages are loaded, whatever
 * they are called: the packages bring one for every system, processor and ABI (µWebSockets.js 240 MB of
 * them).
 */
import { existsSync, readFileSync, readdirSync, rmSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const MODULES = resolve('node_modules');
const require = createRequire(join(MODULES, '../package.json'));

/** Sources of what is there compiled, second forms of the same code, and documents. */
const UNREAD = [
  // ES modules for bundlers: Node reads build/src.
  ...readdirSync(join(MODULES, '@opentelemetry')).flatMap((name) => [
    `@opentelemetry/${name}/build/esm`,
    `@opentelemetry/${name}/build/esnext`,
  ]),
  // Those that want it require it.
  ...readdirSync(join(MODULES, '@opentelemetry/semantic-conventions/dist'), { recursive: true })
    .filter((name) => name.endsWith('.mjs'))
    .map((name) => `@opentelemetry/semantic-conventions/dist/${name}`),
  // ES modules for bundlers: Node reads dist-cjs.
  ...['@aws-sdk', '@smithy'].flatMap((scope) =>
    readdirSync(join(MODULES, scope)).flatMap((name) => [
      `${scope}/${name}/dist-es`,
      `${scope}/${name}/dist-types`,
    ]),
  ),
  // Node has web streams: fetch-blob asks for one file of it, if they are missing.
  'web-streams-polyfill/dist',
  'web-streams-polyfill/es2018',
  'web-streams-polyfill/es6',
  'web-streams-polyfill/ponyfill',
  // Node reads es5.js.
  'bowser/bundled.js',
  'bowser/src',
  'bignumber.js/doc',
  // Those that want it require it.
  'gaxios/build/cjs/test',
  'gaxios/build/esm',
  // Tests, and forms for browsers.
  ...['msgpackr/dist', 'lmdb/node_modules/msgpackr/dist'].flatMap((folder) =>
    ['test.js', 'index.min.js', 'index-no-eval.min.js'].map((name) => `${folder}/${name}`),
  ),
  // The tokens' ranks are read, and nothing else of it.
  'gpt-tokenizer/cjs',
  'gpt-tokenizer/data/TestPlans.txt',
  // Of models before chat completions.
  'gpt-tokenizer/data/p50k_base.tiktoken',
  'gpt-tokenizer/data/r50k_base.tiktoken',
  'gpt-tokenizer/esm',
  'gpt-tokenizer/src',
  'lmdb/dependencies',
  'lmdb/src',
  'piscina/benchmark',
  'piscina/docs',
  'piscina/examples',
  'pino-pretty/test',
  'piscina/test',
  'thread-stream/test',
  'uWebSockets.js/docs',
  'uWebSockets.js/examples',
  'uWebSockets.js/misc',
];
rmSync('dist/.tsbuildinfo', { force: true });
const bundle = JSON.parse(readFileSync('dist/bundle.json', 'utf8'));

for (const name of readdirSync('dist', { recursive: true })) {
  const isCompiled = /\.(?:js|d\.[cm]?ts)$/.test(name) && !name.startsWith('console/');
  if (isCompiled && !bundle.files.includes(name)) rmSync(join('dist', name));
}

/** What is loaded by name, and what that wants in turn. */
const loaded = new Set();
for (const left = [...bundle.loadedByName]; left.length > 0;) {
  const name = left.pop();
  if (loaded.has(name) || !existsSync(join(MODULES, name))) continue;
  loaded.add(name);
  const { dependencies, optionalDependencies, peerDependencies } = JSON.parse(
    readFileSync(join(MODULES, name, 'package.json'), 'utf8'),
  );
  left.push(...Object.keys({ ...dependencies, ...optionalDependencies, ...peerDependencies }));
}
const bundled = bundle.packages.filter((name) => !loaded.has(name)).map((name) => join(MODULES, name));

/** Of compilers, debuggers and readers. Licences are kept. */
const UNREAD_FILES = /\.(?:d\.[cm]?ts|[cm]?ts|map|md|flow|h|c|cc|cpp|gyp|gypi|tsbuildinfo)$/;
const LICENCES = /^(?:licen[cs]e|notice|copying)/i;

for (const name of ['lmdb', 'msgpackr', 'uWebSockets.js']) require(name);
const mapped = readFileSync('/proc/self/maps', 'utf8');

let freedBytes = 0;
let keptBytes = 0;
const natives = [];
for (const path of UNREAD) rmSync(join(MODULES, path), { recursive: true, force: true });
for (const entry of readdirSync(MODULES, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile()) continue;
  const path = join(entry.parentPath, entry.name);
  const { size } = statSync(path);
  const native = entry.name.endsWith('.node');
  const unread = native
    ? !mapped.includes(path)
    : !LICENCES.test(entry.name) &&
      (UNREAD_FILES.test(entry.name) ||
        (entry.name !== 'package.json' && bundled.some((folder) => path.startsWith(`${folder}/`))));
  if (unread) {
    freedBytes += size;
    rmSync(path);
  } else {
    keptBytes += size;
    if (native) natives.push(path.slice(MODULES.length + 1));
  }
}
if (!natives.some((path) => path.startsWith('uWebSockets.js/'))) {
  throw new Error('µWebSockets.js loaded no binary of its own: is this package for this Node?');
}
// What is loaded when first needed, long after the image was made.
const LATE = [
  '@aws-sdk/credential-provider-node',
  '@opentelemetry/exporter-trace-otlp-http',
  '@opentelemetry/sdk-trace',
  'google-auth-library',
];
for (const name of LATE) {
  require(name);
  await import(pathToFileURL(require.resolve(name)).href);
}
for (const name of ['o200k_base', 'cl100k_base'])
  readFileSync(require.resolve(`gpt-tokenizer/data/${name}.tiktoken`));
console.log(`native binaries kept: ${natives.join(', ')}`);
console.log(
  `modules: ${(keptBytes / 1e6).toFixed(1)} MB kept, ${(freedBytes / 1e6).toFixed(1)} MB of files removed`,
);
