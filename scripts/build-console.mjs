/**
 * Builds the console: src/console into dist/console, each file under a name with the digest of its content
 * and with a compressed twin. Run from the package's root by finish-build.mjs.
 */
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { constants, gzipSync } from 'node:zlib';
import { build } from 'esbuild';

const SOURCE = 'src/console';
const TARGET = 'dist/console';
/** Of all files together, compressed: what a phone on a bad line loads in a second. */
const GZIP_BYTES_MAX = 150_000;

const { outputFiles } = await build({
  entryPoints: [`${SOURCE}/main.tsx`],
  outdir: TARGET,
  write: false,
  bundle: true,
  minify: true,
  format: 'esm',
  platform: 'browser',
  target: ['es2022', 'chrome110', 'firefox115', 'safari16'],
  jsx: 'automatic',
  jsxImportSource: 'preact',
  charset: 'ascii',
  legalComments: 'inline',
  sourcemap: false,
  logLevel: 'warning',
});

rmSync(TARGET, { recursive: true, force: true });
mkdirSync(TARGET, { recursive: true });
let gzipBytes = 0;

function put(name, content) {
  const compressed = gzipSync(content, { level: constants.Z_BEST_COMPRESSION });
  writeFileSync(`${TARGET}/${name}`, content);
  writeFileSync(`${TARGET}/${name}.gz`, compressed);
  gzipBytes += compressed.length;
}

function putHashed(stem, extension, content) {
  const digest = createHash('sha256').update(content).digest('hex').slice(0, 12);
  put(`${stem}-${digest}.${extension}`, content);
  return `${stem}-${digest}.${extension}`;
}

const named = (extension) => outputFiles.find(({ path }) => path.endsWith(`.${extension}`)).contents;
const page = readFileSync(`${SOURCE}/index.html`, 'utf8')
  .replace('ICON', putHashed('icon', 'svg', readFileSync(`${SOURCE}/icon.svg`)))
  .replace('STYLE', putHashed('console', 'css', named('css')))
  .replace('SCRIPT', putHashed('console', 'js', named('js')));
put('index.html', page);

if (gzipBytes > GZIP_BYTES_MAX) {
  throw new Error(`the console has ${gzipBytes} bytes compressed and may have ${GZIP_BYTES_MAX}`);
}
