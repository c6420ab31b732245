/**
 * Reads requests of the admin interface from µWebSockets (µWS) and writes responses to it. server.ts calls
 * it, and live-feed.ts, playground.ts and console-files.ts, which write to a socket themselves. Main thread
 * of the gateway.
 *
 * Must hold: a body is read up to its bound and no further, and a late response is written only if its socket
 * is still open, because µWS throws otherwise (test/unit/admin/server.test.ts).
 */
import { isUtf8 } from 'node:buffer';
import { STATUS_CODES } from 'node:http';
import type { HttpRequest, HttpResponse } from 'uWebSockets.js';
import { errorBody, type ErrorRecord, statusOf } from '../core/errors.js';
import { BODY_BYTES_UNCOUNTED } from '../core/limits.js';
import { JSON_TYPE } from './route.js';

/** The part of a request before its body. */
export interface RequestHead {
  /** `GET` for a HEAD too. */
  readonly method: string;
  /** Whether it is a HEAD, which wants the headers alone. */
  readonly head: boolean;
  /** Still percent-encoded. */
  readonly path: string;
  /** Without its question mark; may be empty. */
  readonly query: string;
  /** Each of the following is empty if the request lacks the header. */
  readonly authorization: string;
  readonly cookie: string;
  readonly host: string;
  readonly origin: string;
  readonly fetchSite: string;
  /** Set by the console's own code. A page of another site cannot set it. */
  readonly fromConsole: boolean;
  readonly forwardedProto: string;
  readonly acceptEncoding: string;
}

/** Reads everything at once, because µWS invalidates the request when its callback returns. */
export function readHead(request: HttpRequest): RequestHead {
  const sentMethod = request.getCaseSensitiveMethod();
  const head = sentMethod === 'HEAD';
  // Undefined if there is no question mark, whatever its type says.
  const query = request.getQuery() as string | undefined;
  return {
    method: head ? 'GET' : sentMethod,
    head,
    path: request.getUrl(),
    query: query ?? '',
    authorization: request.getHeader('authorization'),
    cookie: request.getHeader('cookie'),
    host: request.getHeader('host'),
    origin: request.getHeader('origin'),
    fetchSite: request.getHeader('sec-fetch-site'),
    fromConsole: request.getHeader('x-tollgate-console') === '1',
    forwardedProto: request.getHeader('x-forwarded-proto'),
    acceptEncoding: request.getHeader('accept-encoding'),
  };
}

/**
 * Before the names of cookies that are `Secure`. Browsers take such a cookie from this host alone. Without it
 * another host of the domain could sign a browser in as somebody else, by a cookie for all hosts (cookie
 * tossing).
 */
export const HOST_COOKIE = '__Host-';

/** Returns the value of the first cookie of that name; empty if the request has none. */
export function cookieOf({ cookie }: RequestHead, name: string): string {
  const pair = cookie.split(/; */).find((part) => part.startsWith(`${name}=`));
  return pair?.slice(name.length + 1) ?? '';
}

const NOT_UTF8 = responseOfError({ code: 'invalid_parameters', message: 'the body must be UTF-8' });

/** Serves a request, or a part of it. Throws or rejects if that fails; a Guard then sends the response. */
export type Work = () => void | Promise<void>;

/**
 * Runs what serves one request. An exception in a callback of µWS, or a rejection that nobody handles, would
 * end the process: here both become the error response of that request.
 */
export type Guard = (work: Work) => void;

/** `errorOf`: makes the error response of what was thrown, and logs what is a bug. */
export function guardOf(
  response: HttpResponse,
  head: boolean,
  errorOf: (error: unknown) => AdminResponse,
): Guard {
  const fail = (error: unknown): void => {
    const errorResponse = errorOf(error);
    try {
      // A response that has begun must not look complete.
      if (response.getWriteOffset() > 0) response.close();
      else send(response, errorResponse, head, true);
    } catch {
      // The response has ended, or its client has left: then µWS allows no access to it.
    }
  };
  return (work) => {
    try {
      const done = work();
      if (done instanceof Promise) done.catch(fail);
    } catch (error) {
      fail(error);
    }
  };
}

/**
 * Calls `use` once with the whole body. Sends an error instead if the body is not UTF-8, or as soon as it is
 * longer than `bytesMax`. Does neither if the client leaves.
 */
export function withBody(
  response: HttpResponse,
  { head }: RequestHead,
  bytesMax: number,
  guard: Guard,
  use: (body: string) => void | Promise<void>,
): void {
  const chunks: Buffer[] = [];
  let bytes = 0;
  let ended = false;
  response.onAborted(() => {
    ended = true;
  });
  response.onData((chunk, isLast) => {
    if (ended) return;
    bytes += chunk.byteLength;
    ended = isLast || bytes > bytesMax;
    if (bytes > bytesMax) {
      const message = `The body must have at most ${bytesMax} bytes.`;
      send(response, responseOfError({ code: 'request_too_large', message }), head, true);
      return;
    }
    // µWebSockets reuses the chunk's memory when this function returns.
    chunks.push(Buffer.copyBytesFrom(new Uint8Array(chunk)));
    if (!isLast) return;
    const whole = Buffer.concat(chunks);
    // From here on `use` must notice if the client leaves, by `respond` or its own onAborted.
    if (isUtf8(whole)) guard(() => use(whole.toString('utf8')));
    else send(response, NOT_UTF8, head, false);
  });
}

export interface AdminResponse {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
  /** The header `allow` of a 405. */
  readonly allow?: string | undefined;
  readonly retryAfterSeconds?: number | undefined;
  /**
   * Text of a header `warning`, without quotes: such as that some processes have not applied the change yet.
   */
  readonly warning?: string | undefined;
  /** A whole `set-cookie` header. */
  readonly setCookie?: string | undefined;
  /** Further headers, by name in small letters. */
  readonly headers?: readonly (readonly [string, string])[] | undefined;
}

/**
 * Whether the operator `who` may open no further page (live-feed.ts) or call (playground.ts) beside those in
 * `open`. From `max` on only operators without one may open one, up to twice as many in all, so that nobody
 * keeps the others out.
 */
export function isFull(open: ReadonlySet<{ readonly who: string }>, max: number, who: string): boolean {
  if (open.size < max) return false;
  return open.size >= 2 * max || [...open].some((item) => item.who === who);
}

export function responseOfError(error: ErrorRecord): AdminResponse {
  const { retryAfterSeconds } = error;
  return { status: statusOf(error), contentType: JSON_TYPE, body: errorBody(error), retryAfterSeconds };
}

export function methodNotAllowed(method: string, allowed: readonly string[]): AdminResponse {
  const allow = allowed.join(', ');
  const message = `${method} is not possible here, but ${allow}.`;
  return { ...responseOfError({ code: 'method_not_allowed', message }), allow };
}

export function ok(view: object): AdminResponse {
  return { status: 200, contentType: JSON_TYPE, body: JSON.stringify(view) };
}

/**
 * Sends the response once it is ready, unless the client has left by then: that aborts `requesterLeft`. Most
 * responses are ready at once. Rejects if `content` does: call it within a Guard.
 */
export function respond(
  response: HttpResponse,
  content: AdminResponse | Promise<AdminResponse>,
  head: boolean,
  requesterLeft = new AbortController(),
): void | Promise<void> {
  if (!(content instanceof Promise)) {
    send(response, content, head, false);
    return;
  }
  response.onAborted(() => requesterLeft.abort());
  return content.then((late) => {
    if (!requesterLeft.signal.aborted) send(response, late, head, false);
  });
}

/** `head`: sends only the headers. `closeConnection`: for a request whose body was not read. */
export function send(
  response: HttpResponse,
  content: AdminResponse,
  head: boolean,
  closeConnection: boolean,
): void {
  response.cork(() => {
    response.writeStatus(`${content.status} ${STATUS_CODES[content.status] ?? ''}`);
    response.writeHeader('content-type', content.contentType);
    // A response may contain a new key.
    response.writeHeader('cache-control', 'no-store');
    response.writeHeader('x-content-type-options', 'nosniff');
    if (content.allow !== undefined) response.writeHeader('allow', content.allow);
    if (content.warning !== undefined) response.writeHeader('warning', `199 tollgate "${content.warning}"`);
    if (content.setCookie !== undefined) response.writeHeader('set-cookie', content.setCookie);
    for (const [name, value] of content.headers ?? []) response.writeHeader(name, value);
    if (content.retryAfterSeconds !== undefined) {
      response.writeHeader('retry-after', String(content.retryAfterSeconds));
    }
    // As bytes, because µWS does not write every character of a text that is not JSON as UTF-8.
    endWith(response, Buffer.from(content.body), head, closeConnection);
  });
}

/**
 * Whether a GET, whose body nobody reads, has one that is too long to be discarded as it comes: µWS takes
 * half a megabyte of it in each event-loop turn, to its end.
 */
export function hasUnreadBody(request: HttpRequest, { method }: RequestHead): boolean {
  if (method !== 'GET') return false;
  const bytes = Number(request.getHeader('content-length'));
  return !(bytes <= BODY_BYTES_UNCOUNTED) || request.getHeader('transfer-encoding') !== '';
}

/**
 * Makes the response close its connection when it ends, whoever ends it. A response that is sent in pieces
 * does not, because µWS 20.41 would write the header into its body.
 */
export function closeAfter(response: HttpResponse): void {
  const end = response.end.bind(response);
  response.end = (body) => end(body, response.getWriteOffset() === 0);
  // For a HEAD. `endWith` has written its length, with which µWS does not close the connection itself.
  response.endWithoutBody = () => {
    let isGone = false;
    response.onAborted(() => {
      isGone = true;
    });
    // The value contains the empty line that ends the headers.
    response.writeHeader('connection', 'close\r\n');
    setImmediate(() => {
      if (!isGone) response.close();
    });
    return response;
  };
}

/**
 * Ends a response whose headers are written. Call it within `cork`. After a HEAD the connection stays open,
 * unless `closeAfter` was called.
 */
export function endWith(response: HttpResponse, body: Buffer, head: boolean, closeConnection = false): void {
  if (!head) {
    response.end(body, closeConnection);
    return;
  }
  // A HEAD has the length of the body without the body. As an argument of endWithoutBody the length would
  // make µWS 20.41 wait for the body, and end the process if nothing else waits for the request.
  response.writeHeader('content-length', String(body.length));
  response.endWithoutBody();
}
