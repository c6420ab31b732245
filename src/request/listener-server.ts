/**
 * The µWS app of one listener: routes, what is open on it, and how it drains. Listener thread.
 */
import type { HttpRequest, HttpResponse, TemplatedApp } from 'uWebSockets.js';
import { invariant, type ErrorRecord } from '../core/errors.js';
import { BODY_BYTES_UNCOUNTED } from '../core/limits.js';
import { SlotList } from '../core/slot-list.js';
import { authenticate } from './authenticate.js';
import { CallContext, type ListenerContext } from './context.js';
import type { BodyBudget } from './body-budget.js';
import type { IdempotencyChannel } from '../channel/idempotency-channel.js';
import { CHAT_ROUTE, type Route } from '../telemetry/metrics-layout.js';
import { DOCUMENT_PATH, writeDocument, writeError } from './response.js';
import { DiscardBudget, DISCARDED_BYTES_MAX, readBody } from './read-body.js';
import type { CallTracer } from './call-trace.js';
import type { BodyParser } from './chat-arrival.js';
import { ChatExchange } from './chat-exchange.js';
import { Cors, type CorsSettings } from './cors.js';
import { DescriptorGuard } from './descriptor-guard.js';
import { Draining } from './draining.js';
import { ListenApps, type TlsFiles } from './listen-apps.js';
import type { ListenerLimits } from './messages.js';
import { passMinute } from './rate-limit.js';
import { ModelRoutes } from './model-routes.js';
import { LaterBody, refuseLast } from './last-on-connection.js';
import { RequestHead, requestIdOf, shown } from './request-head.js';

/** A stream that has been silent for so long gets a comment, before proxies on the way take it for dead. */
const KEEP_ALIVE_MS = 15_000;
/** Streams are looked at so often; a comment comes at most this much late. */
const SWEEP_MS = 1_000;

const NOTHING_HERE: ErrorRecord = {
  code: 'not_found',
  message:
    'There is nothing at this path. The gateway serves POST /v1/chat/completions, GET /v1/models and GET /v1/models/{id}.',
};
const NO_CHUNKS: ErrorRecord = {
  code: 'invalid_parameters',
  message: 'Transfer-Encoding must be absent: only POST /v1/chat/completions takes a body in chunks.',
};

export class ListenerServer {
  readonly parser: BodyParser;
  readonly bodies: BodyBudget;
  readonly locks: IdempotencyChannel;
  /** Exchanges whose answer has begun and has not ended. */
  readonly streaming = new SlotList<ChatExchange>();
  readonly descriptors = new DescriptorGuard();
  readonly discards: DiscardBudget;
  #parts: ListenerContext;
  #limits: ListenerLimits;
  #models: ModelRoutes;
  #cors: Cors | undefined;
  readonly #apps = new ListenApps((app) => this.#route(app));
  readonly #requestPrefix: string;
  readonly #tracer: CallTracer;
  readonly #head = new RequestHead();
  #requestCount = 0;
  readonly #sweeper: NodeJS.Timeout;
  #address = { host: '', port: 0 };
  #stopping = false;
  #isClosing = false;
  readonly #draining = new Draining(() => this.#apps.close());

  constructor(
    parts: ListenerContext,
    limits: ListenerLimits,
    cors: CorsSettings | undefined,
    requestPrefix: string,
    parser: BodyParser,
    bodies: BodyBudget,
    locks: IdempotencyChannel,
    tracer: CallTracer,
  ) {
    this.#parts = parts;
    this.discards = new DiscardBudget(parts.clock);
    this.#limits = limits;
    this.#models = new ModelRoutes(parts, this);
    this.#cors = cors && new Cors(cors);
    this.parser = parser;
    this.bodies = bodies;
    this.locks = locks;
    this.#requestPrefix = requestPrefix;
    this.#tracer = tracer;
    this.#sweeper = setInterval(() => {
      const nowMs = parts.clock.monotonicMs();
      for (const exchange of this.streaming) exchange.onSweep(nowMs, KEEP_ALIVE_MS);
      parts.held.onSweep();
    }, SWEEP_MS);
  }

  get parts(): ListenerContext {
    return this.#parts;
  }

  get limits(): ListenerLimits {
    return this.#limits;
  }

  /** Settings were reloaded: what comes from now on is served by these; admitted calls keep their plan, model and price. */
  replace(parts: ListenerContext, limits: ListenerLimits, cors: CorsSettings | undefined): void {
    this.#parts = parts;
    this.#limits = limits;
    this.#models = new ModelRoutes(parts, this);
    this.#cors = cors && new Cors(cors);
  }

  /** Listens beside the other listeners. False where the port can't be had, or the certificate not be used. */
  listen(host: string, port: number, tls: TlsFiles | undefined): boolean {
    this.#address = { host, port };
    return this.#apps.listen(host, port, tls);
  }

  /** New connections get this certificate, or none; those that there are go on. False where it cannot be used: all is as before. */
  replaceTls(tls: TlsFiles | undefined): boolean {
    if (this.#stopping || this.#apps.serves(tls)) return true;
    return this.#apps.listen(this.#address.host, this.#address.port, tls);
  }

  /** Whether answers end their connections. */
  get endsConnections(): boolean {
    return this.#draining.hasBegun || this.descriptors.isShort;
  }

  /** Stops accepting; responses from then on end their connection; calls back once, when no connection is left. See Draining. */
  drain(keepsIdle: boolean, onDrained: () => void): void {
    if (this.#stopping) return;
    this.#stopping = true;
    // Not before: a client whose connection ended would make its next one here.
    this.#apps.stop(() => this.#draining.begin(this.#requestCount, keepsIdle, onDrained));
  }

  /** Waits from now on for calls alone that have begun since the drain has. */
  drainLate(): void {
    this.#draining.beginLate();
  }

  /** The connections are being cut by this side. */
  get isClosing(): boolean {
    return this.#isClosing;
  }

  /** Cuts every connection, as if each client had left; calls back once what they have had is settled. */
  close(onSettled: () => void): void {
    this.#stopping = true;
    this.#isClosing = true;
    clearInterval(this.#sweeper);
    this.descriptors.close();
    this.#apps.close();
    this.#draining.close(onSettled);
  }

  /** An exchange has begun. */
  opened(): void {
    this.#draining.onCallBegun();
  }

  /** The exchange of that request has ended. */
  closed(requestNumber: number): void {
    this.#draining.onCallEnded(requestNumber);
  }

  #route(app: TemplatedApp): void {
    // 1 where a connection begins, -1 where it ends.
    app.filter((_, change) => {
      this.#draining.onConnection(Number(change));
    });
    app.post(CHAT_ROUTE, (res, req) => this.#chat(res, req));
    this.#any(app, CHAT_ROUTE, CHAT_ROUTE, (res, req) =>
      this.#methodNotAllowed(res, req, CHAT_ROUTE, 'POST'),
    );
    this.#read(app, '/v1/models', '/v1/models', (res, _, isHead) =>
      this.#models.list(res, this.#head.authorization, this.#newContext(), isHead),
    );
    // Identifiers of models may hold slashes.
    this.#read(app, '/v1/models/*', '/v1/models/{id}', (res, req, isHead) =>
      this.#models.show(res, req.getUrl(), this.#head.authorization, this.#newContext(), isHead),
    );
    this.#read(app, DOCUMENT_PATH, 'other', (res, _, isHead) => {
      this.parts.metrics.countRequest('other', 'ok');
      writeDocument(res, this.#newContext(), isHead, this.endsConnections);
    });
    this.#any(app, '/*', 'other', (res, req) => this.#refuse(res, req, 'other', NOTHING_HERE));
  }

  /** A path that is read: GET, and HEAD for the same without its body. */
  #read(
    app: TemplatedApp,
    path: string,
    route: Route,
    serve: (res: HttpResponse, req: HttpRequest, isHead: boolean) => void,
  ): void {
    this.#any(app, path, route, (res, req) => {
      const method = req.getMethod();
      if (method === 'get' || method === 'head') serve(res, req, method === 'head');
      else this.#methodNotAllowed(res, req, route, 'GET, HEAD');
    });
  }

  /** `serve` gets what can be read in one way only and has no body in chunks. */
  #any(
    app: TemplatedApp,
    path: string,
    route: Route,
    serve: (res: HttpResponse, req: HttpRequest) => void,
  ): void {
    app.any(path, (res, req) => {
      this.#head.read(req);
      const error = this.#head.problem() ?? (this.#head.isChunked ? NO_CHUNKS : undefined);
      if (error !== undefined) this.#refuseLast(res, req, route, error);
      else if (this.#cors !== undefined && this.#isPreflight(req)) this.#allow(res, this.#cors);
      else serve(res, req);
    });
  }

  #newContext(): CallContext {
    this.#requestCount += 1;
    return new CallContext(
      requestIdOf(this.#requestPrefix, this.#requestCount),
      this.#requestCount,
      this.#cors === undefined ? '' : this.#cors.linesFor(this.#head.origin),
    );
  }

  /** A browser asks before a script's call; without both headers it is a method that nothing here has. */
  #isPreflight(req: HttpRequest): boolean {
    return (
      req.getMethod() === 'options' &&
      this.#head.origin !== undefined &&
      req.getHeader('access-control-request-method') !== ''
    );
  }

  #allow(res: HttpResponse, cors: Cors): void {
    this.parts.metrics.countRequest('other', 'ok');
    const { corsLines, requestId } = this.#newContext();
    cors.writePreflight(res, corsLines, requestId, this.endsConnections);
  }

  #chat(res: HttpResponse, req: HttpRequest): void {
    const head = this.#head;
    head.read(req);
    const error = head.problem();
    if (error !== undefined) {
      this.#refuseLast(res, req, CHAT_ROUTE, error);
      return;
    }
    const { isChunked } = head;
    const context = this.#newContext();
    const exchange = new ChatExchange(this, res, context, isChunked);
    const unknown = authenticate(context, head.authorization, this.parts);
    if (unknown !== undefined) {
      exchange.refuse(unknown);
      return;
    }
    const { caller } = context;
    invariant(caller !== undefined, 'authenticate sets the caller or refuses');
    // Not before: who has no key shall not write to where traces are kept.
    context.trace = this.#tracer.begin(req, head.traceParent, caller);
    const compressed = head.contentEncoding === undefined ? undefined : refuseCoding(head.contentEncoding);
    const receiver = passMinute(exchange, context, head.idempotencyKey, compressed, this.parts);
    if (receiver === undefined) return;
    const { bodyBytesMax } = caller.plan;
    // 0 where the body comes in chunks.
    const length = Number(head.contentLength ?? 0);
    if (length > bodyBytesMax + DISCARDED_BYTES_MAX) {
      receiver.onTooLarge(true);
      return;
    }
    // What is longer than may be is read to be thrown away.
    if (length > BODY_BYTES_UNCOUNTED && length <= bodyBytesMax && !exchange.takeBody(length, length)) return;
    const reader = isChunked ? new LaterBody(receiver, exchange) : receiver;
    readBody(res, length, bodyBytesMax, this.limits.parseInlineBytesMax, exchange, reader);
    exchange.awaitBody();
  }

  #refuseLast(res: HttpResponse, req: HttpRequest, route: Route, error: ErrorRecord): void {
    this.parts.metrics.countRequest(route, error.code);
    refuseLast(res, error, this.#newContext(), req.getMethod() === 'head');
  }

  #methodNotAllowed(res: HttpResponse, req: HttpRequest, route: Route, allow: string): void {
    const message = `The method ${req.getCaseSensitiveMethod()} is not allowed here. Use ${allow}.`;
    this.#refuse(res, req, route, { code: 'method_not_allowed', message }, allow);
  }

  #refuse(res: HttpResponse, req: HttpRequest, route: Route, error: ErrorRecord, allow?: string): void {
    this.parts.metrics.countRequest(route, error.code);
    writeError(res, error, this.#newContext(), {
      ...(allow === undefined ? {} : { allow }),
      close: this.endsConnections,
      head: req.getMethod() === 'head',
    });
  }
}

/** A refusal of a compressed body; undefined where the header says that it is none. */
function refuseCoding(coding: string): ErrorRecord | undefined {
  if (coding === '' || coding.toLowerCase() === 'identity') return undefined;
  return {
    code: 'unsupported_media_type',
    message: `Content-Encoding must be absent, got ${shown(coding)}. Send the JSON uncompressed.`,
  };
}
