/**
 * The HTTP server of the admin interface, a µWebSockets App with its own port. gateway/admin-service.ts
 * starts it. Main thread of the gateway.
 *
 * Most responses are sent synchronously, in the callback that has the whole request. A later response is only
 * sent if its socket is still open, because µWebSockets (µWS) throws otherwise.
 *
 * Must hold: an error in serving a request fails only that request, because all code that may throw runs
 * within a Guard. Only `/healthz` (the process lives), `/readyz` (the gateway accepts calls), `/metrics`, the
 * console's files, and `/admin/session` and below, where the console signs in, need no token. All but the
 * first two need an allowed Host; another method at a path gets a 405 (test/unit/admin/server.test.ts).
 * OTHER_ROUTES of other-routes.ts lists these paths (test/e2e/operator-roles.test.ts sends requests to each).
 */
import uWS, { type HttpResponse, type us_listen_socket } from 'uWebSockets.js';
import { OIDC_CALLBACK_PATH, OIDC_START_PATH } from '../config/oidc-schema.js';
import type { Clock } from '../core/clock.js';
import type { Operator } from '../core/roles.js';
import { formatOf, type MetricsFormat, type MetricsPage } from '../telemetry/exposition.js';
import { SESSION_PATH } from './addresses.js';
import { AdminApi, roleRejectionOf } from './api.js';
import type { AdminParts } from './context.js';
import { AllowedHosts } from './allowed-hosts.js';
import { AdminAuthentication } from './authentication.js';
import { ConsoleFiles } from './console-files.js';
import {
  type AdminResponse,
  closeAfter,
  type Guard,
  guardOf,
  hasUnreadBody,
  leaveOutBody,
  methodNotAllowed,
  okResponse,
  readHead,
  type RequestHead,
  sendWhenReady,
  send,
  withBody,
} from './http.js';
import { LiveFeed, type LiveSource } from './live-feed.js';
import { Playground, PLAYGROUND_BODY_BYTES_MAX, type PublicAddress } from './playground.js';
import { OidcSignIn } from './oidc.js';
import type { OidcSettings } from './oidc-claims.js';
import { LIVE_ROUTE, OTHER_ROUTES, PLAYGROUND_ADDRESS_ROUTE, PLAYGROUND_ROUTE } from './other-routes.js';
import { ADMIN_BODY_BYTES_MAX } from './route.js';

/** Takes 1 ms of each second, if there are as many console sessions as there may be. */
const REVOKE_MS = 1_000;

export interface AdminOptions extends Omit<AdminParts, 'accountSpans'> {
  readonly host: string;
  /** The port to listen on; 0 for any free port. */
  readonly port: number;
  /** Names that Host may have, besides `host` and those of loopback. */
  readonly allowedHosts: readonly string[];
  readonly token: string;
  /** The setting `quota_timezone`, for the console. */
  readonly quotaTimezone: string;
  /** Returns the setting `admin.oidc`, which a reload may change; undefined if it is not set. */
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
  /** The port in use, also if `AdminOptions.port` is 0. */
  readonly port: number;
  /**
   * To be called when another gateway has the interface. Accepts no more connections, and ends live streams.
   * Other requests of open connections are served, and each connection is closed by its next response.
   * Idempotent; does nothing after `close`.
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
  const { host, port } = options;
  // `onListening` sets it to the real port if `port` is 0. No request comes before that.
  let openPort = port;
  const services = servicesOf(options, () => openPort);
  const app = uWS.App({});
  let isAccepting = true;
  app.any('/*', (response, request) => {
    const head = readHead(request);
    const { method, path, isHead } = head;
    // After `stop` the connection has to end, and so it has if a body comes that nobody will read.
    if (!isAccepting || hasUnreadBody(request, head)) closeAfter(response);
    if (isHead) leaveOutBody(response);
    const guard = guardOf(response, (error) => services.api.errorResponseOf(method, path, error));
    guard(() => serve(response, head, services, guard));
  });

  return new Promise((resolve, reject) => {
    const onListening = (socket: us_listen_socket | false): void => {
      if (socket === false) {
        const message = `The admin interface cannot listen on ${host}:${port}: is the port in use? See admin.host and admin.port.`;
        reject(new Error(message));
        return;
      }
      let isOpen = true;
      const revoking = setInterval(() => services.authentication.endRevoked(), REVOKE_MS).unref();
      openPort = uWS.us_socket_local_port(socket);
      resolve({
        port: openPort,
        stop: () => {
          if (isOpen && isAccepting) uWS.us_listen_socket_close(socket);
          isAccepting = false;
          if (isOpen) services.live.close();
        },
        close: () => {
          // Ends live streams too: each is forgotten when its connection is closed.
          if (isOpen) app.close();
          clearInterval(revoking);
          isOpen = false;
        },
      });
    };
    app.listen(host, port, onListening);
  });
}

/** `port`: returns the port in use; called only once it is open. */
function servicesOf(options: AdminOptions, port: () => number): Services {
  const { host, live, clock } = options;
  // Browsers come back from the OpenID Connect provider under this host, so it is allowed too.
  const publicHost = (): string | undefined => {
    const address = options.oidc()?.redirect_url;
    return address === undefined ? undefined : new URL(address).host;
  };
  const authentication = new AdminAuthentication({
    token: options.token,
    operators: options.registry.operators,
    clock,
    port,
    hosts: new AllowedHosts(host, options.allowedHosts, publicHost),
    quotaTimezone: options.quotaTimezone,
  });
  return {
    api: new AdminApi({
      ...options,
      accountSpans: (ring) => live.accounts.spans(ring, Math.floor(clock.wallMs() / 1_000)),
    }),
    authentication,
    oidc: new OidcSignIn({
      settings: options.oidc,
      openSession: (head, session, secure) => authentication.openSession(head, session, secure),
      port,
      clock,
      log: options.log,
    }),
    files: new ConsoleFiles(),
    live: new LiveFeed(live),
    playground: new Playground(options.publicAddress),
    readiness: options.readiness,
    metrics: options.metrics,
  };
}

/** The header `accept` chooses between Prometheus' text and OpenMetrics. */
async function serveMetrics(
  response: HttpResponse,
  { accept }: RequestHead,
  metrics: AdminOptions['metrics'],
): Promise<void> {
  // The client may leave while the page is made. `sendWhenReady` sends texts, and the page is bytes. The cast
  // keeps TypeScript from assuming `false` below.
  let hasLeft = false as boolean;
  response.onAborted(() => {
    hasLeft = true;
  });
  const { contentType, body } = await metrics(formatOf(accept));
  if (hasLeft) return;
  response.cork(() => {
    response.writeHeader('content-type', contentType);
    response.writeHeader('cache-control', 'no-store');
    response.end(body);
  });
}

/** What serves the requests of one port. */
interface Services {
  readonly api: AdminApi;
  readonly authentication: AdminAuthentication;
  readonly oidc: OidcSignIn;
  readonly files: ConsoleFiles;
  readonly live: LiveFeed;
  readonly playground: Playground;
  readonly readiness: () => boolean;
  readonly metrics: AdminOptions['metrics'];
}

function serve(
  response: HttpResponse,
  head: RequestHead,
  services: Services,
  guard: Guard,
): void | Promise<void> {
  const { authentication, readiness, metrics } = services;
  if (head.method === 'GET' && serveHealth(response, head, readiness)) return;
  const hostRejection = authentication.hostRejectionOf(head);
  if (hostRejection !== undefined) {
    send(response, hostRejection, 'close');
    return;
  }
  if (head.method === 'GET' && head.path === '/metrics') return serveMetrics(response, head, metrics);
  if (serveWithoutToken(response, head, services, guard)) return;
  const operator = authentication.identify(response, head);
  if (!('rejection' in operator)) return serveOperator(response, head, services, guard, operator);
  // The connection is closed, so that the body need not be read.
  send(response, operator.rejection, 'close');
}

/** Serves the console's files and its sign-in, which need no token. Returns false for any other request. */
function serveWithoutToken(
  response: HttpResponse,
  head: RequestHead,
  { authentication, oidc, files }: Services,
  guard: Guard,
): boolean {
  const { method, path } = head;
  if (path === OIDC_START_PATH || path === OIDC_CALLBACK_PATH) {
    // A HEAD, whose `method` is GET, is rejected, because it would use up the sign-in.
    if (method === 'GET' && !head.isHead) {
      // A copy, because µWS reuses the memory once this callback returns.
      const address = response.getRemoteAddress().slice(0);
      // The Guard around this function gets no Promise from it, so this one has its own.
      guard(() => sendWhenReady(response, oidc.serve(head, address, remoteAddressOf(response))));
    } else send(response, methodNotAllowed(method, ['GET']), 'close');
    return true;
  }
  if (path !== SESSION_PATH) return files.serve(response, head);
  if (method === 'GET') {
    send(response, authentication.sessionOf(head, oidc.view()));
    return true;
  }
  if (method !== 'POST' && method !== 'DELETE') return false;
  withBody(response, ADMIN_BODY_BYTES_MAX, guard, (body) => {
    const isSignIn = method === 'POST';
    const content = isSignIn ? authentication.signIn(response, head, body) : authentication.signOut(head);
    send(response, content);
  });
  return true;
}

/** Serves the live stream, the playground and ADMIN_ROUTES, as far as the operator's role allows. */
function serveOperator(
  response: HttpResponse,
  head: RequestHead,
  { api, authentication, live, playground }: Services,
  guard: Guard,
  operator: Operator,
): void | Promise<void> {
  const { method, path, query } = head;
  const route = [LIVE_ROUTE, PLAYGROUND_ADDRESS_ROUTE, PLAYGROUND_ROUTE].find(
    (candidate) => candidate.path === path && candidate.method === method,
  );
  const rejection =
    route === undefined ? otherMethodRejectionOf(head) : roleRejectionOf(operator.role, route);
  if (rejection !== undefined) {
    send(response, rejection, 'close');
    return;
  }
  if (route === LIVE_ROUTE) {
    if (!head.isHead)
      return live.subscribe(response, query, operator.who, () => authentication.stillAdmits(head));
    // A HEAD, whose `method` is GET, would begin a stream that nobody reads.
    send(response, methodNotAllowed('HEAD', [LIVE_ROUTE.method]), 'close');
    return;
  }
  if (route === PLAYGROUND_ADDRESS_ROUTE) {
    send(response, playground.describe());
    return;
  }
  if (route === PLAYGROUND_ROUTE) {
    withBody(response, PLAYGROUND_BODY_BYTES_MAX, guard, (body) =>
      playground.serve(response, body, operator.who, guard),
    );
    return;
  }
  if (method !== 'GET') authentication.endRevoked();
  const routed = api.find(method, path, { operator, from: remoteAddressOf(response) });
  withBody(response, routed.bodyBytesMax, guard, (body) => {
    const requesterLeft = new AbortController();
    return sendWhenReady(response, routed.handle(query, body, requesterLeft.signal), requesterLeft);
  });
}

/** Returns a 405 if OTHER_ROUTES has the path, whose methods have been served before; undefined if not. */
function otherMethodRejectionOf({ method, path }: RequestHead): AdminResponse | undefined {
  const methods = OTHER_ROUTES.filter((route) => route.path === path).map((route) => route.method);
  return methods.length === 0 ? undefined : methodNotAllowed(method, methods);
}

const remoteAddressOf = (response: HttpResponse): string =>
  Buffer.from(response.getRemoteAddressAsText()).toString();

/** Responds under any Host, because probes send the address of a pod. Returns false for any other path. */
function serveHealth(response: HttpResponse, head: RequestHead, readiness: () => boolean): boolean {
  if (head.path === '/healthz') {
    send(response, okResponse({ status: 'ok', pid: process.pid }));
    return true;
  }
  if (head.path !== '/readyz') return false;
  const isReady = readiness();
  const content = okResponse({ status: isReady ? 'ready' : 'not ready' });
  send(response, { ...content, status: isReady ? 200 : 503 });
  return true;
}
