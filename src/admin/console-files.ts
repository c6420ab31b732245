/**
 * Serves the console's page and the files that the page loads, from the package. server.ts calls `serve`
 * before it checks the token. Main thread of the gateway.
 *
 * Must hold: only files of the package are served, because no token is asked for. Each file has a compressed
 * copy `NAME.gz`, or the gateway does not start. Each file but the page has a digest of its content in its
 * name, or browsers use an old file for a year. scripts/build-console.mjs makes copies and digests. Test:
 * test/unit/admin/console-files.test.ts (paths out of the folder, digests, copies, the policy).
 */
import { readFileSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { HttpResponse } from 'uWebSockets.js';
import type { RequestHead } from './http.js';

const FOLDER = fileURLToPath(new URL('../console/', import.meta.url));
/** The page is served at `/`, all other files below ASSETS_PATH. */
const PAGE = 'index.html';
const ASSETS_PATH = '/console/';

/** The content types by extension. Files with other extensions, such as `gz`, have no path of their own. */
const CONTENT_TYPES: ReadonlyMap<string, string> = new Map([
  ['html', 'text/html; charset=utf-8'],
  ['js', 'text/javascript; charset=utf-8'],
  ['css', 'text/css; charset=utf-8'],
  ['svg', 'image/svg+xml'],
]);

/** Matches a header `accept-encoding` with `gzip`, unless its weight is 0, which means not acceptable. */
const ACCEPTS_GZIP = /(?:^|[\s,])gzip(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))\s*(?:[;,]|$)/i;

/**
 * The page runs, loads, shows and calls only what the gateway serves. Names of accounts and keys are texts
 * of other people: even if such a name got into the page as markup, browsers would not run a script in it.
 */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

const HEADERS: readonly (readonly [string, string])[] = [
  ['content-security-policy', POLICY],
  ['x-content-type-options', 'nosniff'],
  ['x-frame-options', 'DENY'],
  ['referrer-policy', 'no-referrer'],
  ['cross-origin-opener-policy', 'same-origin'],
  ['cross-origin-resource-policy', 'same-origin'],
  ['vary', 'accept-encoding'],
];

interface ConsoleFile {
  readonly contentType: string;
  readonly cacheControl: string;
  readonly plain: Buffer;
  /** `plain`, compressed. */
  readonly gzip: Buffer;
}

export class ConsoleFiles {
  readonly #files = new Map<string, ConsoleFile>();

  /** Reads all files into memory, some 200 KB with their compressed copies. */
  constructor() {
    for (const name of readdirSync(FOLDER)) {
      const contentType = CONTENT_TYPES.get(name.slice(name.lastIndexOf('.') + 1));
      if (contentType === undefined) continue;
      this.#files.set(name === PAGE ? '/' : `${ASSETS_PATH}${name}`, {
        contentType,
        cacheControl: name === PAGE ? 'no-cache' : 'public, max-age=31536000, immutable',
        plain: readFileSync(`${FOLDER}${name}`),
        gzip: readFileSync(`${FOLDER}${name}.gz`),
      });
    }
  }

  /**
   * Sends the file at that path, or only its headers to a HEAD (whose `method` is GET too). Returns false,
   * and sends nothing, if no file is there or for another method.
   */
  serve(response: HttpResponse, { method, path, acceptEncoding }: RequestHead): boolean {
    const file = method === 'GET' ? this.#files.get(path) : undefined;
    if (file === undefined) return false;
    const isCompressed = ACCEPTS_GZIP.test(acceptEncoding);
    const body = isCompressed ? file.gzip : file.plain;
    response.cork(() => {
      response.writeHeader('content-type', file.contentType);
      response.writeHeader('cache-control', file.cacheControl);
      if (isCompressed) response.writeHeader('content-encoding', 'gzip');
      for (const [name, value] of HEADERS) response.writeHeader(name, value);
      response.end(body);
    });
    return true;
  }
}
