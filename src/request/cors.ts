/**
 * The CORS lines of responses, which tell browsers which scripts of web pages may call, and the responses to
 * preflights. listener-server.ts makes a Cors, and another with each reload; response.ts writes the lines.
 * Listener thread.
 *
 * Must hold: an origin in a response is from the settings, never from the request
 * (test/unit/request/response.heads.test.ts, test/e2e/cors.test.ts). Each header that a response may have is
 * in EXPOSED_HEADERS (the same tests).
 */
import type { HttpResponse } from 'uWebSockets.js';
import type { CorsSettings } from './messages.js';
import { endWithoutBody } from './response.js';

/**
 * The headers that scripts of web pages may read: all that responses have at any door. A new header of a
 * response needs its name here (test/e2e/cors.test.ts, test/unit/request/response.heads.test.ts).
 */
const EXPOSED_HEADERS =
  'x-request-id, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, retry-after, idempotent-replayed, x-tollgate-model, x-tollgate-cache, age, request-id, anthropic-ratelimit-requests-limit, anthropic-ratelimit-requests-remaining, anthropic-ratelimit-requests-reset, anthropic-ratelimit-tokens-limit, anthropic-ratelimit-tokens-remaining, anthropic-ratelimit-tokens-reset';
/** `*` allows all headers but authorization. Some browsers take `*` for a name, so others are named too. */
const ALLOWED_HEADERS = 'authorization, content-type, idempotency-key, traceparent, x-request-id, *';
const VARY_LINE = '\r\nvary: origin';

/**
 * The CORS lines of response heads, which tell browsers which scripts may call. Made once for each set of
 * settings. An origin in a response is from the settings, never from the request.
 */
export class Cors {
  readonly #linesByOrigin: ReadonlyMap<string, string>;
  /** For all origins that `#linesByOrigin` lacks. */
  readonly #otherLines: string;
  readonly #preflightLines: string;

  constructor({ origins, maxAgeSeconds }: CorsSettings) {
    const allowsAll = origins.includes('*');
    // If all origins get the same lines, caches need no `vary`.
    this.#otherLines = allowsAll ? linesAllowing('*') : VARY_LINE;
    this.#linesByOrigin = new Map(
      allowsAll ? [] : origins.map((origin) => [origin, VARY_LINE + linesAllowing(origin)]),
    );
    this.#preflightLines =
      '\r\naccess-control-allow-methods: GET, HEAD, POST' +
      `\r\naccess-control-allow-headers: ${ALLOWED_HEADERS}\r\naccess-control-max-age: ${maxAgeSeconds}`;
  }

  /** The lines of a response to a request with that header `Origin`, each with a line break before it. */
  linesFor(origin: string | undefined): string {
    return (origin === undefined ? undefined : this.#linesByOrigin.get(origin)) ?? this.#otherLines;
  }

  /**
   * Responds to a preflight with 204 in any case. If the origin is not allowed, the response lacks the lines
   * that allow the origin, and the browser reports that.
   */
  writePreflight(res: HttpResponse, corsLines: string, requestId: string, endsConnection: boolean): void {
    const preflightLines = corsLines === VARY_LINE ? '' : this.#preflightLines;
    res.writeStatus(`204 No Content${corsLines}${preflightLines}\r\nx-request-id: ${requestId}`);
    endWithoutBody(res, endsConnection);
  }
}

function linesAllowing(origin: string): string {
  return `\r\naccess-control-allow-origin: ${origin}\r\naccess-control-expose-headers: ${EXPOSED_HEADERS}`;
}
