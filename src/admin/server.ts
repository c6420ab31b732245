/**
 * The admin interface's listener: its own uWebSockets.js App on its own port. Main thread of the gateway.
 *
 * Nearly everything is answered synchronously, inside the callback that has the whole request; what is not looks whether its
 * socket is still there. Without a token: `/healthz` (the process lives), `/readyz` (it takes calls), `/metrics`, the console's
 * files, and signing in to it at `/admin/session`; but for the first two only under a Host that is allowed.
 */
import uWS, { type HttpRequest, type HttpResponse, type us_listen_socket } from 'uWebSockets.js';
import type { Clock } from '../core/clock.js';
import type { RegistryService } from '../registry/registry-service.js';
import type { Registry } from '../registry/registry.js';
import { formatOf, type MetricsFormat, type MetricsPage } from '../telemetry/exposition.js';
import type { Log } from '../telemetry/log.js';
import { AllowedHosts } from './allowed-hosts.js';
import { AdminApi, type AdminRequest } from './api.js';
import { AdminAuthentication } from './authentication.js';
import { ConsoleFiles } from './console-files.js';
import { LiveFeed, type LiveSource } from './live-feed.js';
import { Playground, PLAYGROUND_BODY_BYTES_MAX, type PublicAddress } from './playground.js';
import { collectBody, readHead, type RequestHead } from './request.js';
import { respond, responseOfError, methodNotAllowed, ok, send } from './response.js';
import { ADMIN_BODY_BYTES_MAX, type AdminContext } from './route.js';

/*
 * `GET /metrics` on the admin port, without a token: the page is made in pieces, so the client may leave meanwhile. Main thread.
 */

export type RenderMetrics = (format: MetricsFormat) => Promise<MetricsPage>;

/** `accept`: the request's header, which chooses Prometheus' text or OpenMetrics. `head`: the headers alone are wanted. */
export function serveMetrics(
  response: HttpResponse,
  accept: string,
  head: boolean,
  render: RenderMetrics,
  log: Log,
): void {
  let gone = false;
  response.onAborted(() => {
    gone = true;
  });
  render(formatOf(accept)).then(
    ({ contentType, body }) => {
      if (gone) return;
      response.cork(() => {
        response.writeHeader('content-type', contentType);
        response.writeHeader('cache-control', 'no-store');
        if (!head) {
          response.end(body);
          return;
        }
        response.writeHeader('content-length', String(body.length));
        response.endWithoutBody();
      });
    },
    (error: unknown) => {
      log.error('the metrics could not be rendered', { error: String(error) });
      if (!gone) response.cork(() => response.writeStatus('500 Internal Server Error').end());
    },
  );
}

export interface AdminOptions {
  readonly host: string;
  /** 0 for any free one. */
  readonly port: number;
  /** Names that may stand in Host beside the loopback ones and `host`. */
  readonly allowedHosts: readonly string[];
  readonly token: string;
  readonly registry: Registry;
  readonly service: RegistryService;
  /** See AdminContext. */
  readonly flushBooks: () => Promise<boolean>;
  /** False while the gateway starts or drains. */
  readonly readiness: () => boolean;
  /** What `/admin/v1/status` shows; JSON-ready. */
  readonly status: AdminContext['status'];
  readonly reload: AdminContext['reload'];
  readonly changeLog: AdminContext['changeLog'];
  readonly resetUpstreams: AdminContext['resetUpstreams'];
  readonly settings: AdminContext['settings'];
  readonly hosts: AdminContext['hosts'];
  /** What the console's charts are fed from. */
  readonly live: LiveSource;
  /** Where the playground calls. */
  readonly publicAddress: () => PublicAddress;
  /** The page of `/metrics`. */
  readonly metrics: RenderMetrics;
  readonly clock: Clock;
  readonly log: Log;
}

export interface AdminServer {
  /** The port it listens on. */
  readonly port: number;
  /** Accepts no more; who is connected is served on. Idempotent. */
  stop(): void;
  /** Closes the port and every connection; idempotent. */
  close(): void;
}

/**
 * Resolves when the port is open; rejects where it cannot be had. The caller has seen that nobody else listens there: µWS
 * would share the port, and its exclusive mode fails while the kernel remembers connections of a gateway that died.
 */
export function startAdmin(options: AdminOptions): Promise<AdminServer> {
  const {
    host,
    port,
    registry,
    service: desk,
    flushBooks,
    readiness,
    status,
    reload,
    changeLog,
    resetUpstreams,
    settings,
    hosts,
    metrics,
    log,
  } = options;
  const accountSpans: AdminContext['accountSpans'] = (ring) =>
    options.live.accounts.spans(ring, Math.floor(options.clock.wallMs() / 1_000));
  let openPort = port;
  const parts: ServerParts = {
    api: new AdminApi({
      registry,
      service: desk,
      flushBooks,
      status,
      reload,
      changeLog,
      resetUpstreams,
      settings,
      hosts,
      accountSpans,
      log,
    }),
    authentication: new AdminAuthentication(
      options.token,
      options.clock,
      () => openPort,
      new AllowedHosts(host, options.allowedHosts),
    ),
    files: new ConsoleFiles(),
    live: new LiveFeed(options.live),
    playground: new Playground(options.publicAddress),
    readiness,
  };
  const app = uWS.App({});
  const serveScrape = (response: HttpResponse, request: HttpRequest): void => {
    const head = readHead(request);
    const refusal = parts.authentication.hostRejectionOf(head);
    if (refusal === undefined) serveMetrics(response, request.getHeader('accept'), head.head, metrics, log);
    else send(response, refusal, head.head, true);
  };
  app.get('/metrics', serveScrape);
  app.head('/metrics', serveScrape);
  app.any('/*', (response, request) => serve(response, readHead(request), parts));

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
      let accepts = true;
      openPort = uWS.us_socket_local_port(socket);
      resolve({
        port: openPort,
        stop: () => {
          if (open && accepts) uWS.us_listen_socket_close(socket);
          accepts = false;
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

interface ServerParts {
  readonly api: AdminApi;
  readonly authentication: AdminAuthentication;
  readonly files: ConsoleFiles;
  readonly live: LiveFeed;
  readonly playground: Playground;
  readonly readiness: () => boolean;
}

const SESSION_PATH = '/admin/session';
const PLAYGROUND_PATH = '/admin/playground';
const LIVE_PATH = '/admin/v1/live';

function serve(response: HttpResponse, head: RequestHead, parts: ServerParts): void {
  const { api, authentication: door, files, live, playground, readiness } = parts;
  const { method, path, query } = head;
  if (method === 'GET' && serveHealth(response, head, readiness)) return;
  const hostRejection = door.hostRejectionOf(head);
  if (hostRejection !== undefined) {
    send(response, hostRejection, head.head, true);
    return;
  }
  if (method === 'GET' && path === SESSION_PATH) {
    send(response, door.sessionOf(head), head.head, false);
    return;
  }
  if (files.serve(response, head)) return;
  if (path === SESSION_PATH && (method === 'POST' || method === 'DELETE')) {
    withBody(response, head, ADMIN_BODY_BYTES_MAX, (body) =>
      send(
        response,
        method === 'POST' ? door.signIn(response, head, body) : door.signOut(head),
        false,
        false,
      ),
    );
    return;
  }
  const refusal = door.rejectionOf(response, head);
  if (refusal !== undefined) {
    // Its body is not wanted, so neither is its connection.
    send(response, refusal, head.head, true);
    return;
  }
  if (path === LIVE_PATH) {
    if (method === 'GET' && !head.head) live.subscribe(response, query, () => door.stillAdmits(head));
    else send(response, methodNotAllowed(method, ['GET']), head.head, true);
    return;
  }
  if (method === 'GET' && path === PLAYGROUND_PATH) {
    send(response, playground.describe(), head.head, false);
    return;
  }
  if (method === 'POST' && path === PLAYGROUND_PATH) {
    withBody(response, head, PLAYGROUND_BODY_BYTES_MAX, (body) => playground.serve(response, body));
    return;
  }
  withBody(response, head, api.bodyBytesMaxOf(method, path), (body) =>
    respond(response, api.handle({ method, path, query, body } satisfies AdminRequest), head.head),
  );
}

/** What anybody may know under any Host: probes send the address of a pod. True where it was answered. */
function serveHealth(response: HttpResponse, head: RequestHead, readiness: () => boolean): boolean {
  switch (head.path) {
    case '/healthz':
      send(response, ok({ status: 'ok', pid: process.pid }), head.head, false);
      return true;
    case '/readyz': {
      const ready = readiness();
      const told = { ...ok({ status: ready ? 'ready' : 'not ready' }), status: ready ? 200 : 503 };
      send(response, told, head.head, false);
      return true;
    }
    default:
      return false;
  }
}

const NOT_UTF8 = responseOfError({ code: 'invalid_parameters', message: 'the body must be UTF-8' });

/** Calls `use` with the whole body, or answers why not. */
function withBody(
  response: HttpResponse,
  { head }: RequestHead,
  bytesMax: number,
  use: (body: string) => void,
): void {
  collectBody(response, bytesMax, (body) => {
    if (body === 'too_large') {
      const message = `The body must have at most ${bytesMax} bytes.`;
      send(response, responseOfError({ code: 'request_too_large', message }), head, true);
    } else if (body === 'not_utf8') send(response, NOT_UTF8, head, false);
    else use(body.text);
  });
}
