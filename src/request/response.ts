/**
 * Writes responses: status lines, headers, error bodies. Every phase that responds calls it, and
 * listener-server.ts and model-routes.ts. Cors makes the lines by which browsers know which scripts of web
 * pages may call; listener-server.ts has one for each set of settings. Listener thread.
 *
 * Must hold: every function runs inside a cork of µWebSockets.js (µWS), so that a response is one write; the
 * callbacks of µWS for a new request are corked. Nothing of a request may be written into a head, or a caller
 * could add headers of its own (test/e2e/head.test.ts; for `durationOf`
 * test/unit/request/response.duration.test.ts). An origin in a response is from the settings, never from
 * the request; each header that a response may have is in EXPOSED_HEADERS
 * (test/unit/request/response.heads.test.ts, test/e2e/cors.test.ts).
 */
import type { HttpResponse } from 'uWebSockets.js';
import type { ErrorRecord } from '../core/errors.js';
import { PUBLIC_DOCUMENT } from '../protocol/generated.js';
import type { ChatExchange } from './chat-exchange.js';
import type { CallContext } from './context.js';
import type { CorsSettings } from './messages.js';

/**
 * Has each status of core/errors.ts and of the doors' own errors, or a head says `undefined`
 * (test/unit/request/response.heads.test.ts).
 */
const STATUS_LINES: Readonly<Record<number, string>> = {
  200: '200 OK',
  400: '400 Bad Request',
  401: '401 Unauthorized',
  403: '403 Forbidden',
  404: '404 Not Found',
  405: '405 Method Not Allowed',
  408: '408 Request Timeout',
  409: '409 Conflict',
  413: '413 Content Too Large',
  415: '415 Unsupported Media Type',
  429: '429 Too Many Requests',
  500: '500 Internal Server Error',
  502: '502 Bad Gateway',
  503: '503 Service Unavailable',
  529: '529 Overloaded',
};

export const JSON_TYPE = 'application/json';
const EVENT_STREAM_TYPE = 'text/event-stream; charset=utf-8';
const CLOSE_LINE = '\r\nconnection: close';
/** The argument `endsConnection` of a response after which nothing may be read from the connection. */
export const ENDS_CONNECTION = true;
/** µWS ends an idle connection after 8 to 12 s; one second of the 8 is for the next request to arrive. */
const KEPT_LINE = '\r\nkeep-alive: timeout=7';
/** These lines keep proxies from storing or buffering a stream. */
const STREAM_LINES = '\r\ncache-control: no-cache\r\nx-accel-buffering: no';

export const DOCUMENT_PATH = '/openapi.json';
const DOCUMENT = Buffer.from(PUBLIC_DOCUMENT);

/**
 * Writes the status and the headers that every response has, and those of the rate limit once it is known.
 * All lines are written with the status, which µWS writes unchanged, because each method of µWS copies its
 * strings. `endsConnection`: the connection ends with the response. `moreLines` are headers, each with a line
 * break before it.
 */
export function writeHead(
  res: HttpResponse,
  status: number,
  context: CallContext,
  contentType: string,
  endsConnection: boolean,
  moreLines = '',
): void {
  const { requestId, rateLimit, tokenLimit, corsLines, door } = context;
  const head = `${STATUS_LINES[status]!}\r\ncontent-type: ${contentType}${endsConnection ? '' : KEPT_LINE}${moreLines}${corsLines}${door.headerLines(context)}\r\nx-request-id: ${requestId}`;
  if (rateLimit === undefined) {
    res.writeStatus(head);
    return;
  }
  const { limit, remaining, resetSeconds } = rateLimit;
  // These headers have OpenAI's names and format, because clients read them.
  const tokenLines =
    tokenLimit === undefined
      ? ''
      : `\r\nx-ratelimit-limit-tokens: ${tokenLimit.limit}\r\nx-ratelimit-remaining-tokens: ${tokenLimit.remaining}\r\nx-ratelimit-reset-tokens: ${durationOf(tokenLimit.resetMs)}`;
  res.writeStatus(
    `${head}\r\nx-ratelimit-limit: ${limit}\r\nx-ratelimit-remaining: ${remaining}\r\nx-ratelimit-reset: ${resetSeconds}${tokenLines}`,
  );
}

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
/** Fractions of a second as text, by milliseconds. Made once, because V8 takes 0.2 µs for each. */
const FRACTIONS = Array.from({ length: SECOND_MS }, (_, ms) => String(ms / SECOND_MS).slice(1));

/** A duration as OpenAI writes it, rounded up to ms: `0s`, `120ms`, `12.5s`, `1m0s`. Exported for a test. */
export function durationOf(ms: number): string {
  const wholeMs = Math.max(0, Math.ceil(ms));
  if (wholeMs > 0 && wholeMs < SECOND_MS) return `${wholeMs}ms`;
  const seconds = `${Math.floor((wholeMs % MINUTE_MS) / SECOND_MS)}${FRACTIONS[wholeMs % SECOND_MS]!}s`;
  return wholeMs < MINUTE_MS ? seconds : `${Math.floor(wholeMs / MINUTE_MS)}m${seconds}`;
}

/**
 * Writes the head of a call's response. `sendsClose` writes `connection: close`, for a response that comes in
 * pieces; if a response has a length, µWS writes that line when `end` is to end the connection. `fallback` is
 * the id of the model that answers, if that is a fallback.
 */
export function writeChatHead(
  exchange: ChatExchange,
  isStream: boolean,
  sendsClose: boolean,
  fallback?: string,
): void {
  const { res, cacheLine, endsConnection } = exchange;
  const streamLines = isStream ? STREAM_LINES : '';
  const modelLines = fallback === undefined ? streamLines : `${streamLines}\r\nx-tollgate-model: ${fallback}`;
  const lines = cacheLine === '' ? modelLines : modelLines + cacheLine;
  const type = isStream ? EVENT_STREAM_TYPE : JSON_TYPE;
  writeHead(res, 200, exchange, type, endsConnection, sendsClose ? lines + CLOSE_LINE : lines);
}

/**
 * Ends a response that came in pieces and whose head said `connection: close`. response-writer.ts calls it
 * inside the cork of the last piece, and then closes the connection. µWS's `end(…, true)` is for responses
 * with a length: here it would write the header `Connection: close` into the body. So the last chunk is
 * written as a header, which µWS sends unchanged. What µWS appends makes a trailer field, which clients skip.
 */
export function writeLastChunk(res: HttpResponse): void {
  res.writeHeader('\r\n0\r\nx-connection', 'close\r\n');
}

/**
 * Writes the whole response of an error, as the request's door writes errors. `endsConnection`: the
 * connection ends with the response. `allow`: the methods of the path, for a 405.
 */
export function writeError(
  res: HttpResponse,
  error: ErrorRecord,
  context: CallContext,
  endsConnection: boolean,
  allow?: string,
): void {
  const { errors } = context.door;
  writeHead(res, errors.status(error), context, JSON_TYPE, endsConnection);
  if (error.retryAfterSeconds !== undefined) res.writeHeader('retry-after', String(error.retryAfterSeconds));
  if (allow !== undefined) res.writeHeader('allow', allow);
  endResponse(res, errors.body(error, context.requestId), context, endsConnection);
}

/**
 * Rejects a request with wrong framing, after which nothing may be read from the connection. The response is
 * written outside of the callback of µWS: see outsideOfCallbacks in read-body.ts.
 */
export function rejectAndClose(res: HttpResponse, error: ErrorRecord, context: CallContext): void {
  let isGone = false;
  res.onAborted(() => (isGone = true));
  setImmediate(() => {
    if (!isGone) res.cork(() => writeError(res, error, context, ENDS_CONNECTION));
  });
}

/** Ends a response, without the body if the request is a HEAD. */
export function endResponse(
  res: HttpResponse,
  body: string | Uint8Array,
  { isHead }: CallContext,
  endsConnection: boolean,
): void {
  if (!isHead) {
    res.end(body, endsConnection);
    return;
  }
  // `endWithoutBody` of µWS 20.41 has an argument for the length, but with that argument µWS leaves the
  // response open and aborts the process.
  res.writeHeader('content-length', String(Buffer.byteLength(body)));
  endWithoutBody(res, endsConnection);
}

/** Ends a response after its head. `endWithoutBody` of µWS cannot end the connection if there is a length. */
export function endWithoutBody(res: HttpResponse, endsConnection: boolean): void {
  if (!endsConnection) {
    res.endWithoutBody();
    return;
  }
  let isGone = false;
  res.onAborted(() => (isGone = true));
  // The value has the empty line that ends the head.
  res.writeHeader('connection', 'close\r\n');
  setImmediate(() => {
    if (!isGone) res.close();
  });
}

/** Responds to GET /openapi.json, for which no key is needed. */
export function writeDocument(res: HttpResponse, context: CallContext, endsConnection: boolean): void {
  writeHead(res, 200, context, JSON_TYPE, endsConnection);
  endResponse(res, DOCUMENT, context, endsConnection);
}

/** The headers that scripts of web pages may read: all that responses have at any door. */
const EXPOSED_HEADERS =
  'x-request-id, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, retry-after, idempotent-replayed, x-tollgate-model, x-tollgate-cache, age, request-id, anthropic-ratelimit-requests-limit, anthropic-ratelimit-requests-remaining, anthropic-ratelimit-requests-reset, anthropic-ratelimit-tokens-limit, anthropic-ratelimit-tokens-remaining, anthropic-ratelimit-tokens-reset';
/** `*` allows all headers but authorization. Some browsers take `*` for a name, so others are named too. */
const ALLOWED_HEADERS = 'authorization, content-type, idempotency-key, traceparent, x-request-id, *';
const VARY_LINE = '\r\nvary: origin';

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
