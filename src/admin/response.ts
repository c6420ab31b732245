/**
 * A response of the admin interface, and how it is written. Main thread of the gateway.
 */
import { STATUS_CODES } from 'node:http';
import type { HttpResponse } from 'uWebSockets.js';
import { errorBody, type ErrorRecord, statusOf } from '../core/errors.js';
import { JSON_TYPE } from './route.js';

export interface AdminResponse {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
  /** For the header `allow` of a 405. */
  readonly allow?: string | undefined;
  /** Whole seconds to wait. */
  readonly retryAfterSeconds?: number | undefined;
  /** Text of a header `warning`: what was done has not come everywhere yet. */
  readonly warning?: string | undefined;
  /** A whole `set-cookie` header. */
  readonly setCookie?: string | undefined;
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

/** Most responses are there at once; one that is not may come when the client has gone. */
export function respond(
  response: HttpResponse,
  given: AdminResponse | Promise<AdminResponse>,
  head: boolean,
): void {
  if (!(given instanceof Promise)) {
    send(response, given, head, false);
    return;
  }
  let gone = false;
  response.onAborted(() => {
    gone = true;
  });
  void given.then((late) => {
    if (!gone) send(response, late, head, false);
  });
}

export function send(
  response: HttpResponse,
  answer: AdminResponse,
  head: boolean,
  closeConnection: boolean,
): void {
  response.cork(() => {
    response.writeStatus(`${answer.status} ${STATUS_CODES[answer.status] ?? ''}`);
    response.writeHeader('content-type', answer.contentType);
    // A response may hold a new key.
    response.writeHeader('cache-control', 'no-store');
    response.writeHeader('x-content-type-options', 'nosniff');
    if (answer.allow !== undefined) response.writeHeader('allow', answer.allow);
    if (answer.warning !== undefined) response.writeHeader('warning', `199 tollgate "${answer.warning}"`);
    if (answer.setCookie !== undefined) response.writeHeader('set-cookie', answer.setCookie);
    if (answer.retryAfterSeconds !== undefined) {
      response.writeHeader('retry-after', String(answer.retryAfterSeconds));
    }
    if (!head) {
      // Text that is not JSON may have characters that µWS would not write as UTF-8.
      response.end(Buffer.from(answer.body), closeConnection);
      return;
    }
    // The length of the body and not the body. Given as an argument the length would make µWS 20.41 wait for the body, and
    // end the process where nothing else waits for the request.
    response.writeHeader('content-length', String(Buffer.byteLength(answer.body)));
    response.endWithoutBody();
  });
}
