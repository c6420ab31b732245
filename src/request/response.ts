/**
 * The responses as they are written: status lines, headers, error bodies. Listener thread.
 *
 * Every function must run inside a corked callback of µWS, so that a response is one write.
 */
import type { HttpResponse } from 'uWebSockets.js';
import { errorBody, type ErrorRecord, statusOf } from '../core/errors.js';
import { PUBLIC_DOCUMENT } from '../protocol/generated-openapi.js';
import type { CallContext } from './context.js';

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
};

export const JSON_TYPE = 'application/json';
const EVENT_STREAM_TYPE = 'text/event-stream; charset=utf-8';
const CLOSE_LINE = '\r\nconnection: close';
/** µWS ends a connection after 8 to 12 s at rest, and has no setting for it. A second is left for the next request's way. */
const KEPT_LINE = '\r\nkeep-alive: timeout=7';
/** Nobody on the way may store or gather a stream. */
const STREAM_LINES = '\r\ncache-control: no-cache\r\nx-accel-buffering: no';

/**
 * Status and the headers that every response has; those of the limit once it is known. In one call: each call of µWS costs the copies of
 * its strings, and what stands behind the status is written as it is. So nothing in it may come from outside. `closes`: the connection
 * ends with the response. `moreLines` are headers, each after its line break.
 */
export function writeHead(
  res: HttpResponse,
  status: number,
  context: CallContext,
  contentType: string,
  closes: boolean,
  moreLines = '',
): void {
  const { requestId, rateLimit, corsLines } = context;
  const head = `${STATUS_LINES[status]!}\r\ncontent-type: ${contentType}${closes ? '' : KEPT_LINE}${moreLines}${corsLines}\r\nx-request-id: ${requestId}`;
  if (rateLimit === undefined) {
    res.writeStatus(head);
    return;
  }
  const { limit, remaining, resetSeconds } = rateLimit;
  res.writeStatus(
    `${head}\r\nx-ratelimit-limit: ${limit}\r\nx-ratelimit-remaining: ${remaining}\r\nx-ratelimit-reset: ${resetSeconds}`,
  );
}

/**
 * Of a chat answer. `tellsClose` is for one that comes in pieces: where it is written with its length, µWS writes that line when it is
 * told to end the connection. A stream must reach its reader as it comes.
 */
export function writeChatHead(
  res: HttpResponse,
  context: CallContext,
  isStream: boolean,
  tellsClose: boolean,
  closes: boolean,
): void {
  const lines = isStream ? STREAM_LINES : '';
  const type = isStream ? EVENT_STREAM_TYPE : JSON_TYPE;
  writeHead(res, 200, context, type, closes, tellsClose ? lines + CLOSE_LINE : lines);
}

/**
 * Ends a response that came in pieces and told `close`, inside the cork of its last piece; then the connection is to be closed. µWS would
 * write its header `Connection: close` into the body: `end` with that flag is for responses with a length. So the last chunk is written
 * here, as a header, which µWS sends as it stands; what it appends makes a trailer field, which readers pass over.
 */
export function writeLastChunk(res: HttpResponse): void {
  res.writeHeader('\r\n0\r\nx-connection', 'close\r\n');
}

export interface ErrorOptions {
  /** Methods that the path knows, for a 405. */
  readonly allow?: string;
  /** Ends the connection: what follows on it would not be read, or the gateway is closing. */
  readonly close?: boolean;
  /** The response to a HEAD has no body. */
  readonly head?: boolean;
}

export function writeError(
  res: HttpResponse,
  error: ErrorRecord,
  context: CallContext,
  options: ErrorOptions = {},
): void {
  writeHead(res, statusOf(error), context, JSON_TYPE, options.close === true);
  if (error.retryAfterSeconds !== undefined) res.writeHeader('retry-after', String(error.retryAfterSeconds));
  if (options.allow !== undefined) res.writeHeader('allow', options.allow);
  endWithBody(res, errorBody(error), options.head === true, options.close);
}

/** The last of a response, without the body where it is to a HEAD. `close` ends the connection. */
export function endWithBody(
  res: HttpResponse,
  body: string | Uint8Array,
  isHead: boolean,
  close = false,
): void {
  if (!isHead) {
    res.end(body, close);
    return;
  }
  // µWS 20.41 leaves a response open, and aborts the process for it, when it is told the length it should write itself.
  res.writeHeader('content-length', String(Buffer.byteLength(body)));
  if (close) closeAfterHead(res);
  else res.endWithoutBody();
}

/** A response without a body that ends the connection, as to a HEAD, which µWS's `endWithoutBody` does for none that has its own length. */
export function closeAfterHead(res: HttpResponse): void {
  let gone = false;
  res.onAborted(() => (gone = true));
  // With the empty line that ends the head.
  res.writeHeader('connection', 'close\r\n');
  setImmediate(() => {
    if (!gone) res.close();
  });
}

/*
 * GET /openapi.json: the document of the interface, for anybody. Listener thread.
 */

export const DOCUMENT_PATH = '/openapi.json';

const BYTES = Buffer.from(PUBLIC_DOCUMENT);

/** `isHead`: without its body. `close` ends the connection. */
export function writeDocument(
  res: HttpResponse,
  context: CallContext,
  isHead: boolean,
  close: boolean,
): void {
  writeHead(res, 200, context, JSON_TYPE, close);
  endWithBody(res, BYTES, isHead, close);
}
