/**
 * The admin interface's listener: its own uWebSockets.js App on its own port. Main thread of the gateway.
 *
 * Everything is answered synchronously, inside the callback that has the whole request, so no answer ever outlives its
 * socket. Without a token: `/healthz` (the process lives) and `/readyz` (it takes calls).
 */
import { STATUS_CODES } from 'node:http';
import uWS, { type HttpRequest, type HttpResponse, type us_listen_socket } from 'uWebSockets.js';
import { AUTHORIZATION_CHARS_MAX } from '../core/limits.js';
import type { Registry } from '../registry/registry.js';
import type { Log } from '../telemetry/log.js';
import { ADMIN_BODY_BYTES_MAX, AdminApi, answerOfError, type AdminAnswer, type AdminRequest } from './api.js';
import { TokenCheck } from './token.js';

export interface AdminOptions {
  readonly host: string;
  /** 0 for any free one. */
  readonly port: number;
  readonly token: string;
  readonly registry: Registry;
  /** False while the gateway starts or drains. */
  readonly readiness: () => boolean;
  /** What `/admin/v1/status` shows; JSON-ready. */
  readonly status: () => object;
  readonly log: Log;
}

export interface AdminServer {
  /** The port it listens on. */
  readonly port: number;
  /** Closes the port and every connection; idempotent. */
  close(): void;
}

/**
 * Resolves when the port is open; rejects where it cannot be had. The caller has seen that nobody else listens there: µWS
 * would share the port, and its exclusive mode fails while the kernel remembers connections of a gateway that died.
 */
export function startAdmin(options: AdminOptions): Promise<AdminServer> {
  const { host, port, registry, readiness, status, log } = options;
  const api = new AdminApi({ registry, status, log });
  const token = new TokenCheck(options.token);
  const app = uWS.App({});
  app.any('/*', (response, request) => serve(response, request, api, token, readiness));

  return new Promise((resolve, reject) => {
    const onListening = (socket: us_listen_socket | false): void => {
      if (socket === false) {
        reject(new Error(`The admin interface cannot listen on ${host}:${port}: is the port in use?`));
        return;
      }
      let open = true;
      resolve({
        port: uWS.us_socket_local_port(socket),
        close: () => {
          if (open) app.close();
          open = false;
        },
      });
    };
    app.listen(host, port, onListening);
  });
}

function serve(
  response: HttpResponse,
  request: HttpRequest,
  api: AdminApi,
  token: TokenCheck,
  readiness: () => boolean,
): void {
  // Everything is read now: the request is gone when this function returns.
  const sentMethod = request.getCaseSensitiveMethod();
  const path = request.getUrl();
  const query = request.getQuery();
  // HEAD asks for what GET would answer, without its body.
  const head = sentMethod === 'HEAD';
  const method = head ? 'GET' : sentMethod;

  if (method === 'GET' && path === '/healthz') {
    send(response, ok({ status: 'ok', pid: process.pid }), head, false);
    return;
  }
  if (method === 'GET' && path === '/readyz') {
    const ready = readiness();
    const body = JSON.stringify({ status: ready ? 'ready' : 'not ready' });
    send(response, { status: ready ? 200 : 503, body, allow: undefined }, head, false);
    return;
  }
  const refusal = refusalOf(request.getHeader('authorization'), token);
  if (refusal !== undefined) {
    // Its body is not wanted, so neither is its connection.
    send(response, refusal, head, true);
    return;
  }
  collectBody(response, (body) => {
    if (body === undefined) send(response, TOO_LARGE, head, true);
    else send(response, api.handle({ method, path, query, body } satisfies AdminRequest), head, false);
  });
}

const TOO_LARGE = answerOfError({
  code: 'request_too_large',
  message: `The body must have at most ${ADMIN_BODY_BYTES_MAX} bytes.`,
});

function refusalOf(authorization: string, token: TokenCheck): AdminAnswer | undefined {
  const sent = /^Bearer +(\S.*)$/i.exec(authorization)?.[1]?.trim();
  if (sent === undefined) {
    const message =
      'The header "Authorization: Bearer <admin token>" is missing; the token is in the data directory.';
    return answerOfError({ code: 'missing_api_key', message });
  }
  if (authorization.length > AUTHORIZATION_CHARS_MAX || !token.accepts(sent)) {
    return answerOfError({
      code: 'invalid_api_key',
      message: 'This is not the admin token of this gateway.',
    });
  }
  return undefined;
}

/** Calls back once: with the body as text, or with undefined as soon as it is too large; never when the client has gone. */
function collectBody(response: HttpResponse, done: (body: string | undefined) => void): void {
  const chunks: Buffer[] = [];
  let bytes = 0;
  let ended = false;
  response.onAborted(() => {
    ended = true;
  });
  response.onData((chunk, isLast) => {
    if (ended) return;
    bytes += chunk.byteLength;
    if (bytes > ADMIN_BODY_BYTES_MAX) {
      ended = true;
      done(undefined);
      return;
    }
    // The library takes the chunk back when this function returns.
    chunks.push(Buffer.copyBytesFrom(new Uint8Array(chunk)));
    if (!isLast) return;
    ended = true;
    done(Buffer.concat(chunks).toString('utf8'));
  });
}

function ok(view: object): AdminAnswer {
  return { status: 200, body: JSON.stringify(view), allow: undefined };
}

function send(response: HttpResponse, answer: AdminAnswer, head: boolean, closeConnection: boolean): void {
  response.cork(() => {
    response.writeStatus(`${answer.status} ${STATUS_CODES[answer.status] ?? ''}`);
    response.writeHeader('content-type', 'application/json');
    // An answer may hold a new key.
    response.writeHeader('cache-control', 'no-store');
    if (answer.allow !== undefined) response.writeHeader('allow', answer.allow);
    if (!head) {
      response.end(answer.body, closeConnection);
      return;
    }
    // The length of the body and not the body. Given as an argument the length would make µWS 20.41 wait for the body, and
    // end the process where nothing else waits for the request.
    response.writeHeader('content-length', String(Buffer.byteLength(answer.body)));
    response.endWithoutBody();
  });
}
