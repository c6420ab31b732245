/**
 * Serves the console's page and the files that it loads, from the package. server.ts calls it before it asks
 * for a token. Main thread of the gateway.
 *
 * Must hold: only files of the package are served, because they need no token
 * (test/unit/admin/console-files.test.ts).
 */
import { readFileSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { HttpResponse } from 'uWebSockets.js';
import { endWith, type RequestHead } from './http.js';

const FOLDER = fileURLToPath(new URL('../console/', import.meta.url));
/** The path of all files but the page itself. The build puts a digest of the content in each name. */
const ASSETS = '/console/';
const PAGE = 'index.html';

const TYPES: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
};

/**
 * The page runs, loads and calls only what the gateway serves. So a name that somebody chose can do nothing,
 * even if it gets into the page as markup.
 */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data:",
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
  readonly gzip: Buffer;
}

export class ConsoleFiles {
  readonly #files = new Map<string, ConsoleFile>();

  /** Reads all files into memory, some 200 KB with their compressed twins. */
  constructor() {
    const names = readdirSync(FOLDER).filter((name) => typeOf(name) in TYPES);
    for (const name of names) {
      this.#files.set(name === PAGE ? '/' : `${ASSETS}${name}`, {
        contentType: TYPES[typeOf(name)]!,
        cacheControl: name === PAGE ? 'no-cache' : 'public, max-age=31536000, immutable',
        plain: readFileSync(`${FOLDER}${name}`),
        gzip: readFileSync(`${FOLDER}${name}.gz`),
      });
    }
  }

  /** Sends the file if there is one at that path. Returns whether it has. */
  serve(response: HttpResponse, { method, head, path, acceptEncoding }: RequestHead): boolean {
    const file = method === 'GET' ? this.#files.get(path) : undefined;
    if (file === undefined) return false;
    const compressed = /\bgzip\b/.test(acceptEncoding);
    const body = compressed ? file.gzip : file.plain;
    response.cork(() => {
      response.writeHeader('content-type', file.contentType);
      response.writeHeader('cache-control', file.cacheControl);
      if (compressed) response.writeHeader('content-encoding', 'gzip');
      for (const [name, value] of HEADERS) response.writeHeader(name, value);
      endWith(response, body, head);
    });
    return true;
  }
}

function typeOf(name: string): string {
  return name.slice(name.lastIndexOf('.') + 1);
}
