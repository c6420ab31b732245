/**
 * The routes of one listener. A ListenerServer makes the context of each request, and starts an Intake for
 * each call. listener.thread.ts makes one ListenerServer; listener thread. The phases of a call, each in a
 * file of this folder:
 *
 *     intake     authenticate → rate-limit → read-body → admit (and idempotency)
 *     delivery   dispatch to a worker → relay of its frames (response-writer, response) → settle
 *
 * Must hold: a request with an ambiguous head is rejected here, and its connection ends, before its key is
 * looked up. So `#checked` makes each handler of µWS: it reads and checks the head
 * (test/hostile/framing.test.ts). Each response without a call asks `#discardsBody` once whether its
 * connection ends (test/hostile/unread-bodies.test.ts).
 */
import type { HttpRequest, HttpResponse, TemplatedApp } from 'uWebSockets.js';
import { onEachTick } from '../core/clock.js';
import type { ErrorRecord } from '../core/errors.js';
import type { Door } from '../doors/door.js';
import { DOORS } from '../doors/doors.js';
import { requestIdOf } from '../telemetry/call-record.js';
import type { Route } from '../telemetry/metrics-layout.js';
import type { CallTracer } from './call-trace.js';
import { ChatExchange } from './chat-exchange.js';
import type { DrainOptions } from './connections.js';
import { CallContext, type IntakeContext } from './context.js';
import { takeDiscard } from './discard-budget.js';
import { Intake } from './intake.js';
import { ModelRoutes } from './model-routes.js';
import { CHUNKED_BODY, NOTHING_HERE } from './rejections.js';
import { RequestHead } from './request-head.js';
import type { CorsSettings } from './messages.js';
import { Cors, DOCUMENT_PATH, rejectAndClose, writeDocument, writeError } from './response.js';

/** How often each body that is read and each response that is written in pieces is checked for progress. */
const SWEEP_PERIOD_MS = 1_000;

/** Serves a request whose head is in `#head`, before it returns. */
type Serve = (res: HttpResponse, req: HttpRequest) => void;

export class ListenerServer {
  /** What this listener has for all of its requests. */
  readonly #listener: IntakeContext;
  #modelRoutes: ModelRoutes;
  #cors: Cors | undefined;
  readonly #requestPrefix: string;
  readonly #tracer: CallTracer;
  /**
   * The head of the request whose callback runs now. Valid until the callback returns: a phase copies what it
   * needs later.
   */
  readonly #head = new RequestHead();
  /** Requests of all routes so far, which is also the number of the newest request. */
  #requestCount = 0;
  readonly #stopSweeps: () => void;

  constructor(
    listener: IntakeContext,
    cors: CorsSettings | undefined,
    requestPrefix: string,
    tracer: CallTracer,
  ) {
    this.#listener = listener;
    this.#modelRoutes = new ModelRoutes(listener);
    this.#cors = cors && new Cors(cors);
    this.#requestPrefix = requestPrefix;
    this.#tracer = tracer;
    this.#stopSweeps = onEachTick(SWEEP_PERIOD_MS, () => {
      const nowMs = listener.clock.monotonicMs();
      for (const swept of listener.sweeps) swept.onSweep(nowMs);
      listener.pendingCommits.onSweep();
    });
  }

  /** Called after a reload has replaced the context's settings. Admitted calls keep plan, model and price. */
  onSettings(cors: CorsSettings | undefined): void {
    this.#modelRoutes = new ModelRoutes(this.#listener);
    this.#cors = cors && new Cors(cors);
  }

  /** Accepts no new connection. Calls `onDrained` when the drain has ended (Connections.drain). */
  drain(options: DrainOptions, onDrained: () => void): void {
    // From now on a call whose client has left is cut at its upstream, not read to its end.
    this.#listener.channel.stopLeftCalls();
    this.#listener.connections.drain(() => this.#requestCount, options, onDrained);
  }

  /**
   * Ends every call in flight. Calls `onSettled` when all are settled (Connections.close). Sweeps go on until
   * then: a response that waits for the disk ends when its charge is on disk, or when a sweep gives up.
   */
  close(onSettled: () => void): void {
    this.#listener.channel.stopLeftCalls();
    this.#listener.connections.close(() => {
      this.#stopSweeps();
      onSettled();
    });
  }

  /** Adds all routes to a new app of ListenApps. */
  route(app: TemplatedApp): void {
    for (const door of DOORS) {
      const serve = this.#checked(door.path, 'chunks too', (res, req) => this.#startCall(res, req, door));
      app.post(door.path, serve);
      this.#addAny(app, door.path, door.path, (res, req) => this.#rejectMethod(res, req, door.path, 'POST'));
    }
    this.#addGet(app, '/v1/models', '/v1/models', (res, req) =>
      this.#modelRoutes.list(res, this.#head.authorization, this.#newContext(req), !this.#discardsBody()),
    );
    // A wildcard, because identifiers of models may hold slashes.
    this.#addGet(app, '/v1/models/*', '/v1/models/{id}', (res, req) => {
      const { authorization } = this.#head;
      const context = this.#newContext(req);
      this.#modelRoutes.show(res, req.getUrl(), authorization, context, !this.#discardsBody());
    });
    // The OpenAPI document of these routes.
    this.#addGet(app, DOCUMENT_PATH, 'other', (res, req) => {
      this.#listener.metrics.countRequest('other', 'ok');
      writeDocument(res, this.#newContext(req), !this.#discardsBody());
    });
    this.#addAny(app, '/*', 'other', (res, req) => this.#reject(res, req, 'other', NOTHING_HERE));
  }

  /**
   * Whether the body of the request in `#head`, which gets its response now, is read to be discarded. If not,
   * the response ends its connection. Called once for each such request, because it takes of a budget.
   */
  #discardsBody(): boolean {
    const { connections } = this.#listener;
    const bytes = Number(this.#head.contentLength ?? 0);
    return !connections.endsConnections && takeDiscard(bytes, undefined, this.#listener);
  }

  /**
   * Returns the handler of a route: it reads the head, and calls `serve` if the head is unambiguous. A body
   * in chunks is rejected, unless `bodies` allows it. `route` names the requests in metrics.
   */
  #checked(route: Route, bodies: 'chunks too' | 'no chunks', serve: Serve): Serve {
    return (res, req) => {
      const head = this.#head;
      head.read(req);
      const chunkedError = head.isChunked && bodies === 'no chunks' ? CHUNKED_BODY : undefined;
      const error = head.rejection() ?? chunkedError;
      if (error === undefined) {
        serve(res, req);
        return;
      }
      this.#listener.metrics.countRequest(route, error.code);
      // Ends the connection, because the framing of what follows is not certain.
      rejectAndClose(res, error, this.#newContext(req));
    };
  }

  /** Adds a route for GET, and for HEAD, which gets the same without its body. */
  #addGet(app: TemplatedApp, path: string, route: Route, serve: Serve): void {
    this.#addAny(app, path, route, (res, req) => {
      const method = req.getMethod();
      if (method === 'get' || method === 'head') serve(res, req);
      else this.#rejectMethod(res, req, route, 'GET, HEAD');
    });
  }

  /** Adds a route for all methods. CORS preflights are served here. */
  #addAny(app: TemplatedApp, path: string, route: Route, serve: Serve): void {
    const serveOrPreflight: Serve = (res, req) => {
      if (this.#cors !== undefined && this.#isPreflight(req)) this.#servePreflight(res, req, this.#cors);
      else serve(res, req);
    };
    app.any(path, this.#checked(route, 'no chunks', serveOrPreflight));
  }

  #startCall(res: HttpResponse, req: HttpRequest, door: Door): void {
    const requestNumber = ++this.#requestCount;
    const requestId = requestIdOf(this.#requestPrefix, requestNumber);
    const cors = this.#corsLines();
    const listener = this.#listener;
    const { isChunked } = this.#head;
    const exchange = new ChatExchange(res, requestId, requestNumber, cors, isChunked, listener, door);
    new Intake(exchange, listener).begin(req, this.#head, this.#tracer);
  }

  /** Makes the context of a request that is no call, or whose head is rejected. */
  #newContext(req: HttpRequest): CallContext {
    const requestNumber = ++this.#requestCount;
    const requestId = requestIdOf(this.#requestPrefix, requestNumber);
    const context = new CallContext(requestId, requestNumber, this.#corsLines(), doorAt(req));
    context.isHead = req.getMethod() === 'head';
    return context;
  }

  #corsLines(): string {
    return this.#cors === undefined ? '' : this.#cors.linesFor(this.#head.origin);
  }

  /** Whether the request is a CORS preflight of a browser. No path has any other OPTIONS. */
  #isPreflight(req: HttpRequest): boolean {
    return (
      req.getMethod() === 'options' &&
      this.#head.origin !== undefined &&
      req.getHeader('access-control-request-method') !== ''
    );
  }

  #servePreflight(res: HttpResponse, req: HttpRequest, cors: Cors): void {
    this.#listener.metrics.countRequest('other', 'ok');
    const { corsLines, requestId } = this.#newContext(req);
    cors.writePreflight(res, corsLines, requestId, !this.#discardsBody());
  }

  #rejectMethod(res: HttpResponse, req: HttpRequest, route: Route, allow: string): void {
    // `getMethod` returns small letters, and so does `getCaseSensitiveMethod` after it.
    const message = `The method ${req.getMethod().toUpperCase()} is not allowed here. Use ${allow}.`;
    this.#reject(res, req, route, { code: 'method_not_allowed', message }, allow);
  }

  #reject(res: HttpResponse, req: HttpRequest, route: Route, error: ErrorRecord, allow?: string): void {
    this.#listener.metrics.countRequest(route, error.code);
    writeError(res, error, this.#newContext(req), !this.#discardsBody(), allow);
  }
}

/**
 * Returns the door whose path the request's path is or begins with, because clients of such a path know that
 * door's errors: `/v1/messages/batches` is below the door of messages. Undefined if there is none.
 */
function doorAt(req: HttpRequest): Door | undefined {
  const url = req.getUrl();
  return DOORS.find(({ path }) => url === path || url.startsWith(`${path}/`));
}
