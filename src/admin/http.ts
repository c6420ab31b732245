/**
 * Reads requests of the admin interface from µWebSockets (µWS) and writes responses to it. server.ts uses
 * these functions, and so do live-feed.ts, playground.ts and console-files.ts, which write to a socket
 * themselves. Main thread of the gateway.
 *
 * Must hold: a body is read up to its bound and no further. A response that is ready late is written only if
 * its socket is still open, because µWS throws otherwise. Test of both: test/unit/admin/server.test.ts.
 */
import { isUtf8 } from 'node:buffer';
import { STATUS_CODES } from 'node:http';
import type { HttpRequest, HttpResponse } from 'uWebSockets.js';
import { errorBody, type ErrorRecord, invariant, statusOf } from '../core/errors.js';
import { BODY_BYTES_UNCOUNTED } from '../core/limits.js';
import { CONSOLE_HEADER, CONSOLE_HEADER_VALUE } from './addresses.js';
import { JSON_TYPE } from './route.js';

/** The part of a request before its body. */
export interface RequestHead {
  /** `GET` for a HEAD too. */
  readonly method: string;
  /** Whether the request is a HEAD, whose response has only headers. */
  readonly isHead: boolean;
  /** Still percent-encoded. */
  readonly path: string;
  /** Without its question mark; may be empty. */
  readonly query: string;
  /** The following texts are empty if the request lacks the header. `fetchSite`: `sec-fetch-site`. */
  readonly authorization: string;
  readonly cookie: string;
  readonly host: string;
  readonly origin: string;
  readonly fetchSite: string;
  /** Whether the console's own code made the request (CONSOLE_HEADER of addresses.ts). */
  readonly isFromConsole: boolean;
  readonly forwardedProto: string;
  readonly accept: string;
  readonly acceptEncoding: string;
}

/** Reads all that is needed later, because µWS invalidates the request when its callback returns. */
export function readHead(request: HttpRequest): RequestHead {
  const sentMethod = request.getCaseSensitiveMethod();
  const isHead = sentMethod === 'HEAD';
  // `getQuery` returns undefined if there is no question mark, whatever its type says.
  const query = request.getQuery() as string | undefined;
  return {
    method: isHead ? 'GET' : sentMethod,
    isHead,
    path: request.getUrl(),
    query: query ?? '',
    authorization: request.getHeader('authorization'),
    cookie: request.getHeader('cookie'),
    host: request.getHeader('host'),
    origin: request.getHeader('origin'),
    fetchSite: request.getHeader('sec-fetch-site'),
    isFromConsole: request.getHeader(CONSOLE_HEADER) === CONSOLE_HEADER_VALUE,
    forwardedProto: request.getHeader('x-forwarded-proto'),
    accept: request.getHeader('accept'),
    acceptEncoding: request.getHeader('accept-encoding'),
  };
}

/**
 * Prefix of the names of cookies that are `Secure`. Browsers accept a cookie with it only from this host.
 * Without the prefix another host of the domain could sign a browser in as somebody else, by a cookie for all
 * hosts (cookie tossing).
 */
export const HOST_COOKIE = '__Host-';

/** Returns the value of the first cookie of that name; empty if the request has none. */
export function cookieOf({ cookie }: RequestHead, name: string): string {
  const pair = cookie.split(/; */).find((text) => text.startsWith(`${name}=`));
  return pair?.slice(name.length + 1) ?? '';
}

const NOT_UTF8 = responseOfError({ code: 'invalid_parameters', message: 'the body must be UTF-8' });

/**
 * Runs `work`, which serves a request, whole or in part. An exception in a callback of µWS, or a rejection
 * that nobody handles, would end the process. Within a Guard both become the error response of that request.
 */
export type Guard = (work: () => void | Promise<void>) => void;

/** `errorOf`: makes the error response of what was thrown, and logs what was thrown if it is a bug. */
export function guardOf(response: HttpResponse, errorOf: (error: unknown) => AdminResponse): Guard {
  const fail = (error: unknown): void => {
    const errorResponse = errorOf(error);
    try {
      // A response that has begun must not look complete, so its connection is cut.
      if (response.getWriteOffset() > 0) response.close();
      else send(response, errorResponse, 'close');
    } catch {
      // The response has ended, or its client has left. µWS then throws at any access to the response.
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
 * Calls `onBody` once with the whole body. Sends an error instead if the body is not UTF-8, or as soon as it
 * is longer than `bytesMax`. Does nothing more if the client leaves before.
 */
export function withBody(
  response: HttpResponse,
  bytesMax: number,
  guard: Guard,
  onBody: (body: string) => void | Promise<void>,
): void {
  const chunks: Buffer[] = [];
  let bytesRead = 0;
  /** Whether the whole body has come, or was too long, or the client has left. */
  let hasEnded = false;
  response.onAborted(() => {
    hasEnded = true;
  });
  response.onData((chunk, isLast) => {
    if (hasEnded) return;
    bytesRead += chunk.byteLength;
    hasEnded = isLast || bytesRead > bytesMax;
    if (bytesRead > bytesMax) {
      const message = `The body must have at most ${bytesMax} bytes.`;
      send(response, responseOfError({ code: 'request_too_large', message }), 'close');
      return;
    }
    // µWS reuses the chunk's memory when this function returns.
    chunks.push(Buffer.copyBytesFrom(new Uint8Array(chunk)));
    if (!isLast) return;
    const body = Buffer.concat(chunks);
    // From here on `onBody` must notice if the client leaves, by `sendWhenReady` or its own onAborted.
    if (isUtf8(body)) guard(() => onBody(body.toString('utf8')));
    else send(response, NOT_UTF8);
  });
}

export interface AdminResponse {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
  readonly retryAfterSeconds?: number | undefined;
  /** Text of a header `warning`: such as that some processes lack the change yet. */
  readonly warning?: string | undefined;
  /** Further headers, by name in small letters. */
  readonly headers?: readonly (readonly [string, string])[] | undefined;
}

/**
 * Whether the operator `who` may open no further stream (live-feed.ts) or call (playground.ts). `open`: those
 * of all operators. If `max` or more are open, only an operator without an open one may open one, up to twice
 * `max` in all, so that no operator keeps the others out.
 */
export function isFull(open: ReadonlySet<{ readonly who: string }>, max: number, who: string): boolean {
  if (open.size < max) return false;
  return open.size >= 2 * max || [...open].some((each) => each.who === who);
}

export function responseOfError(error: ErrorRecord): AdminResponse {
  const { retryAfterSeconds } = error;
  return { status: statusOf(error), contentType: JSON_TYPE, body: errorBody(error), retryAfterSeconds };
}

export function methodNotAllowed(method: string, allowed: readonly string[]): AdminResponse {
  const allow = allowed.join(', ');
  const message = `${method} is not possible here, but ${allow}.`;
  return { ...responseOfError({ code: 'method_not_allowed', message }), headers: [['allow', allow]] };
}

/** `view` must have no bigint, because JSON.stringify throws for it. */
export function okResponse(view: object): AdminResponse {
  return { status: 200, contentType: JSON_TYPE, body: JSON.stringify(view) };
}

/**
 * Sends `content` on `response`: now, or when its promise resolves. Sends nothing if the client has left by
 * then, which also aborts `requesterLeft`. Rejects if `content` does, so it is called in a Guard.
 */
export function sendWhenReady(
  response: HttpResponse,
  content: AdminResponse | Promise<AdminResponse>,
  requesterLeft = new AbortController(),
): void | Promise<void> {
  if (!(content instanceof Promise)) {
    send(response, content);
    return;
  }
  response.onAborted(() => requesterLeft.abort());
  return content.then((lateContent) => {
    if (!requesterLeft.signal.aborted) send(response, lateContent);
  });
}

/** What becomes of the connection after a response: `close` after a request whose body was not read. */
type ConnectionEnd = 'keep' | 'close';

/** Sends a whole response. `response` must still be open, because µWS throws otherwise. */
export function send(
  response: HttpResponse,
  content: AdminResponse,
  connection: ConnectionEnd = 'keep',
): void {
  response.cork(() => {
    response.writeStatus(`${content.status} ${STATUS_CODES[content.status] ?? ''}`);
    response.writeHeader('content-type', content.contentType);
    // A response may contain a new key.
    response.writeHeader('cache-control', 'no-store');
    response.writeHeader('x-content-type-options', 'nosniff');
    if (content.warning !== undefined) {
      // The command that prints it removes what stands around the text (cli/admin-client.ts).
      response.writeHeader('warning', `199 tollgate "${headerText(content.warning)}"`);
    }
    for (const [name, value] of content.headers ?? []) response.writeHeader(name, value);
    if (content.retryAfterSeconds !== undefined) {
      response.writeHeader('retry-after', String(content.retryAfterSeconds));
    }
    // As bytes, because µWS does not write every character of a text that is not JSON as UTF-8.
    response.end(Buffer.from(content.body), connection === 'close');
  });
}

/**
 * The text without what would end the quoted string of a header, or the header itself: a warning may have a
 * message of the system.
 */
function headerText(text: string): string {
  return text.replace(/["\\]/g, "'").replace(/[^ -~]/g, '?');
}

/**
 * Whether the request is a GET whose body is long or of unknown length. Nobody reads the body of a GET. µWS
 * discards it to its end, half a megabyte in each event-loop turn, unless `closeAfter` was called.
 */
export function hasUnreadBody(request: HttpRequest, { method }: RequestHead): boolean {
  if (method !== 'GET') return false;
  const bytes = Number(request.getHeader('content-length'));
  // Negated, because a header that is no number is NaN, which compares false.
  return !(bytes <= BODY_BYTES_UNCOUNTED) || request.getHeader('transfer-encoding') !== '';
}

/**
 * Makes the response close its connection when it ends, whichever code ends it. After a response that is sent
 * in several writes the connection stays open: µWS 20.41 would write the header `connection` into the body.
 */
export function closeAfter(response: HttpResponse): void {
  const end = response.end.bind(response);
  response.end = (body) => end(body, response.getWriteOffset() === 0);
  // For a HEAD: µWS does not close the connection itself, because `leaveOutBody` writes the content-length.
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
 * Makes the response to a HEAD end with the length of its body in place of the body, whichever code ends it.
 * To be called after `closeAfter`, without which the connection stays open. The body must be one Buffer.
 */
export function leaveOutBody(response: HttpResponse): void {
  response.end = (body) => {
    invariant(Buffer.isBuffer(body), 'the response to a HEAD has a body of a known length');
    // The length is no argument of endWithoutBody: µWS 20.41 would wait for the body, and end the process if
    // nothing else waits.
    response.writeHeader('content-length', String(body.length));
    return response.endWithoutBody();
  };
}
