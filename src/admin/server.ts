/**
 * The HTTP server of the admin interface: a µWebSockets App of its own on a port of its own.
 * gateway/admin-service.ts starts it. Main thread of the gateway.
 *
 * Most responses are sent synchronously, in the callback that has the whole request. A later response is sent
 * only if its socket is still open.
 *
 * Must hold: what fails in serving a request fails that request alone: all of it runs within a Guard. Only
 * `/healthz` (the process lives), `/readyz` (it accepts calls), `/metrics`, the console's files, and
 * `/admin/session` and below, where the console signs in, need no token. All but the first two need an
 * allowed Host (test/unit/admin/server.test.ts).
 */
import uWS, { type HttpRequest, type HttpResponse, type us_listen_socket } from 'uWebSockets.js';
import { OIDC_CALLBACK_PATH, OIDC_START_PATH } from '../config/oidc-schema.js';
import type { Clock } from '../core/clock.js';
import { formatOf, type MetricsFormat, type MetricsPage } from '../telemetry/exposition.js';
import { AdminApi, type AdminApiOptions, roleRejectionOf } from './api.js';
import { AdminAuthentication, AllowedHosts } from './authentication.js';
import { ConsoleFiles } from './console-files.js';
import {
  type AdminResponse,
  closeAfter,
  endWith,
  type Guard,
  guardOf,
  hasUnreadBody,
  methodNotAllowed,
  ok,
  readHead,
  type RequestHead,
  respond,
  send,
  withBody,
} from './http.js';
import { LiveFeed, type LiveSource } from './live-feed.js';
import { Playground, PLAYGROUND_BODY_BYTES_MAX, type PublicAddress } from './playground.js';
import { OidcSignIn } from './oidc.js';
import type { OidcSettings } from './oidc-claims.js';
import {
  LIVE_ROUTE,
  PLAYGROUND_ADDRESS_ROUTE,
  PLAYGROUND_ROUTE,
  SESSION_PATH,
  ADMIN_BODY_BYTES_MAX,
} from './route.js';

export interface AdminOptions extends Omit<AdminApiOptions, 'accountSpans'> {
  readonly host: string;
  /** 0 for any free port. */
  readonly port: number;
  /** Names that Host may have, besides `host` and those of loopback. */
  readonly allowedHosts: readonly string[];
  readonly token: string;
  /** Returns the setting `admin.oidc` of now. */
  readonly oidc: () => OidcSettings | undefined;
  /** False while the gateway starts or drains. */
  readonly readiness: () => boolean;
  /** The source of the console's charts. */
  readonly live: LiveSource;
  /** Returns where the playground sends its calls. */
  readonly publicAddress: () => PublicAddress;
  readonly metrics: (format: MetricsFormat) => Promise<MetricsPage>;
  readonly clock: Clock;
}

export interface AdminServer {
  readonly port: number;
  /**
   * To be called when another gateway has the interface. Accepts no more connections, and ends live streams.
   * Other requests of open connections are served, and each connection is closed by its next response.
   * Idempotent.
   */
  stop(): void;
  /** Closes the port and every connection; idempotent. */
  close(): void;
}

/**
 * Resolves when the port is open; rejects if it cannot be opened. The caller must have checked that nobody
 * else listens there: µWebSockets would share the port, and its exclusive mode fails while the kernel still
 * has connections of a gateway that died.
 */
export function startAdmin(options: AdminOptions): Promise<AdminServer> {
  const { host, port, live, clock } = options;
  let openPort = port;
  const publicHost = (): string | undefined => {
    const address = options.oidc()?.redirect_url;
    return address === undefined ? undefined : new URL(address).host;
  };
  const authentication = new AdminAuthentication(
    options.token,
    options.registry.operators,
    clock,
    () => openPort,
    new AllowedHosts(host, options.allowedHosts, publicHost),
  );
  const parts: ServerParts = {
    api: new AdminApi({
      ...options,
      accountSpans: (ring) => live.accounts.spans(ring, Math.floor(clock.wallMs() / 1_000)),
    }),
    authentication,
    oidc: new OidcSignIn({
      settings: options.oidc,
      openSession: (head, session, secure) => authentication.openSession(head, session, secure),
      port: () => openPort,
      clock,
      log: options.log,
    }),
    files: new ConsoleFiles(),
    live: new LiveFeed(live),
    playground: new Playground(options.publicAddress),
    readiness: options.readiness,
  };
  const app = uWS.App({});
  let accepts = true;
  const guardFor = (response: HttpResponse, { method, path, head }: RequestHead): Guard =>
    guardOf(response, head, (error) => parts.api.failureOf(method, path, error));
  const serveScrape = (response: HttpResponse, request: HttpRequest): void => {
    const head = readHead(request);
    if (!accepts || hasUnreadBody(request, head)) closeAfter(response);
    const accept = request.getHeader('accept');
    guardFor(
      response,
      head,
    )(() => {
      const rejection = parts.authentication.hostRejectionOf(head);
      if (rejection === undefined) return serveMetrics(response, accept, head.head, options);
      send(response, rejection, head.head, true);
      return;
    });
  };
  app.get('/metrics', serveScrape);
  app.head('/metrics', serveScrape);
  app.any('/*', (response, request) => {
    const head = readHead(request);
    if (!accepts || hasUnreadBody(request, head)) closeAfter(response);
    const guard = guardFor(response, head);
    guard(() => serve(response, head, parts, guard));
  });

  return new Promise((resolve, reject) => {
    const onListening = (socket: us_listen_socket | false): void => {
      if (socket === false) {
        reject(
          new Error(
            `The admin interface cannot listen on ${host}:${port}: is the port in use? See admin.host and admin.port.`,
          ),
        );
        return;
      }
      let open = true;
      openPort = uWS.us_socket_local_port(socket);
      resolve({
        port: openPort,
        stop: () => {
          if (open && accepts) uWS.us_listen_socket_close(socket);
          accepts = false;
          if (open) parts.live.close();
        },
        close: () => {
          if (open) app.close();
          open = false;
        },
      });
    };
    app.listen(host, port, onListening);
  });
}

/** `accept` chooses Prometheus' text or OpenMetrics. The client may leave while the page is made. */
async function serveMetrics(
  response: HttpResponse,
  accept: string,
  head: boolean,
  { metrics }: Pick<AdminOptions, 'metrics'>,
): Promise<void> {
  let gone = false as boolean;
  response.onAborted(() => {
    gone = true;
  });
  const { contentType, body } = await metrics(formatOf(accept));
  if (gone) return;
  response.cork(() => {
    response.writeHeader('content-type', contentType);
    response.writeHeader('cache-control', 'no-store');
    endWith(response, body, head);
  });
}

interface ServerParts {
  readonly api: AdminApi;
  readonly authentication: AdminAuthentication;
  readonly oidc: OidcSignIn;
  readonly files: ConsoleFiles;
  readonly live: LiveFeed;
  readonly playground: Playground;
  readonly readiness: () => boolean;
}

function serve(
  response: HttpResponse,
  head: RequestHead,
  parts: ServerParts,
  guard: Guard,
): void | Promise<void> {
  const { api, authentication, oidc, files, live, playground, readiness } = parts;
  const { method, path, query } = head;
  const sendNow = (given: AdminResponse, closeConnection: boolean): void =>
    send(response, given, head.head, closeConnection);
  const useBody = (bytesMax: number, use: (body: string) => void | Promise<void>): void =>
    withBody(response, head, bytesMax, guard, use);

  if (method === 'GET' && serveHealth(response, head, readiness)) return;
  const hostRejection = authentication.hostRejectionOf(head);
  if (hostRejection !== undefined) {
    sendNow(hostRejection, true);
    return;
  }
  if (method === 'GET' && path === SESSION_PATH) {
    sendNow(authentication.sessionOf(head, oidc.view()), false);
    return;
  }
  if (path === OIDC_START_PATH || path === OIDC_CALLBACK_PATH) {
    // No HEAD, because it would use up the sign-in.
    if (method === 'GET' && !head.head) {
      const address = response.getRemoteAddress().slice(0);
      return respond(response, oidc.serve(head, address, remoteTextOf(response)), false);
    }
    sendNow(methodNotAllowed(method, ['GET']), true);
    return;
  }
  if (files.serve(response, head)) return;
  if (path === SESSION_PATH && (method === 'POST' || method === 'DELETE')) {
    useBody(ADMIN_BODY_BYTES_MAX, (body) => {
      const isSignIn = method === 'POST';
      sendNow(isSignIn ? authentication.signIn(response, head, body) : authentication.signOut(head), false);
    });
    return;
  }
  const operator = authentication.identify(response, head);
  if ('rejection' in operator) {
    // The connection is closed, so the body need not be read.
    sendNow(operator.rejection, true);
    return;
  }
  const other = [LIVE_ROUTE, PLAYGROUND_ADDRESS_ROUTE, PLAYGROUND_ROUTE].find(
    (route) => route.path === path && route.method === method,
  );
  const denied = other && roleRejectionOf(operator.role, other);
  if (denied !== undefined) {
    sendNow(denied, true);
    return;
  }
  if (path === LIVE_ROUTE.path) {
    if (other === LIVE_ROUTE && !head.head)
      return live.subscribe(response, query, operator.who, () => authentication.stillAdmits(head));
    sendNow(methodNotAllowed(method, ['GET']), true);
    return;
  }
  if (other === PLAYGROUND_ADDRESS_ROUTE) {
    sendNow(playground.describe(), false);
    return;
  }
  if (other === PLAYGROUND_ROUTE) {
    useBody(PLAYGROUND_BODY_BYTES_MAX, (body) => playground.serve(response, body, operator.who, guard));
    return;
  }
  const call = api.find(method, path, { operator, from: remoteTextOf(response) });
  useBody(call.bodyBytesMax, (body) => {
    const leaving = new AbortController();
    return respond(response, call.handle(query, body, leaving.signal), head.head, leaving);
  });
}

const remoteTextOf = (response: HttpResponse): string =>
  Buffer.from(response.getRemoteAddressAsText()).toString();

/** Responds under any Host, because probes send the address of a pod. Returns whether it has responded. */
function serveHealth(response: HttpResponse, head: RequestHead, readiness: () => boolean): boolean {
  switch (head.path) {
    case '/healthz':
      send(response, ok({ status: 'ok', pid: process.pid }), head.head, false);
      return true;
    case '/readyz': {
      const ready = readiness();
      const given = { ...ok({ status: ready ? 'ready' : 'not ready' }), status: ready ? 200 : 503 };
      send(response, given, head.head, false);
      return true;
    }
    default:
      return false;
  }
}
