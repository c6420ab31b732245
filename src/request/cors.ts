/**
 * What browsers are told about scripts of other pages (CORS): lines of responses' heads, made once for each
 * set of settings. Listener thread.
 *
 * Nothing of a request is written back: an origin in a response is the one of the settings.
 */
import type { HttpResponse } from 'uWebSockets.js';
import { closeAfterHead } from './response.js';

export interface CorsSettings {
  /** `*` is every origin. */
  readonly origins: readonly string[];
  readonly maxAgeSeconds: number;
}

const EXPOSED =
  'x-request-id, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, retry-after, idempotent-replayed';
/** `*` is all but authorization; those by name are for browsers that take it for a name. */
const ALLOWED_HEADERS = 'authorization, content-type, idempotency-key, traceparent, x-request-id, *';
const VARY_LINE = '\r\nvary: origin';

export class Cors {
  readonly #linesByOrigin: ReadonlyMap<string, string>;
  /** To origins that are not named. */
  readonly #otherLines: string;
  readonly #preflightLines: string;

  constructor({ origins, maxAgeSeconds }: CorsSettings) {
    const everybody = origins.includes('*');
    // Where all are answered alike a cache need not tell them apart.
    this.#otherLines = everybody ? allowing('*') : VARY_LINE;
    this.#linesByOrigin = new Map(
      everybody ? [] : origins.map((origin) => [origin, VARY_LINE + allowing(origin)]),
    );
    this.#preflightLines =
      '\r\naccess-control-allow-methods: GET, HEAD, POST' +
      `\r\naccess-control-allow-headers: ${ALLOWED_HEADERS}\r\naccess-control-max-age: ${maxAgeSeconds}`;
  }

  /** Lines of the response to a request with that header `Origin`, each after its line break. */
  linesFor(origin: string | undefined): string {
    return (origin === undefined ? undefined : this.#linesByOrigin.get(origin)) ?? this.#otherLines;
  }

  /**
   * Answers the question whether a script may call: with 204 in any case, and without the lines that allow it
   * where it may not, which the browser then tells its developer. `close` ends the connection.
   */
  writePreflight(res: HttpResponse, corsLines: string, requestId: string, close: boolean): void {
    const allowed = corsLines === VARY_LINE ? '' : this.#preflightLines;
    res.writeStatus(`204 No Content${corsLines}${allowed}\r\nx-request-id: ${requestId}`);
    if (close) closeAfterHead(res);
    else res.endWithoutBody();
  }
}

function allowing(origin: string): string {
  return `\r\naccess-control-allow-origin: ${origin}\r\naccess-control-expose-headers: ${EXPOSED}`;
}
