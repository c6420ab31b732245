/**
 * What the admin interface reads of a request before its body. Main thread of the gateway.
 */
import { isUtf8 } from 'node:buffer';
import type { HttpRequest, HttpResponse } from 'uWebSockets.js';

export interface RequestHead {
  /** `GET` for a HEAD too. */
  readonly method: string;
  /** Whether the headers alone are wanted. */
  readonly head: boolean;
  /** Still percent-encoded. */
  readonly path: string;
  /** Without its question mark; may be empty. */
  readonly query: string;
  /** Each of the following is empty where the header is not there. */
  readonly authorization: string;
  readonly cookie: string;
  readonly host: string;
  readonly origin: string;
  readonly fetchSite: string;
  /** Set by the console's own code, which another site's cannot do. */
  readonly fromConsole: boolean;
  readonly forwardedProto: string;
  readonly acceptEncoding: string;
}

/** Everything at once: the request is gone when its callback returns. */
export function readHead(request: HttpRequest): RequestHead {
  const sentMethod = request.getCaseSensitiveMethod();
  // HEAD asks for what GET would answer, without its body.
  const head = sentMethod === 'HEAD';
  // Undefined where there is no question mark, whatever its type says.
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

/*
 * The body of a request to the admin interface, whole and bounded. Main thread of the gateway.
 */

export type CollectedBody = { readonly text: string } | 'too_large' | 'not_utf8';

/** Calls back once; never when the client has gone. A body is too large as soon as it is, whatever follows. */
export function collectBody(
  response: HttpResponse,
  bytesMax: number,
  done: (body: CollectedBody) => void,
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
    if (bytes > bytesMax) {
      ended = true;
      done('too_large');
      return;
    }
    // The library takes the chunk back when this function returns.
    chunks.push(Buffer.copyBytesFrom(new Uint8Array(chunk)));
    if (!isLast) return;
    ended = true;
    const whole = Buffer.concat(chunks);
    done(isUtf8(whole) ? { text: whole.toString('utf8') } : 'not_utf8');
  });
}
