/**
 * The µWS app of one listener: routes, what is open on it, and how it drains. Listener thread.
 */
import uWS, {
  type HttpRequest,
  type HttpResponse,
  type TemplatedApp,
  type us_listen_socket,
} from 'uWebSockets.js';
import type { ErrorRecord } from '../core/errors.js';
import type { ChatRequestResult } from '../protocol/chat-request.js';
import { authenticate } from '../pipeline/authenticate.js';
import { CallContext } from '../pipeline/context.js';
import type { PipelineParts } from '../pipeline/parts.js';
import { limitRate } from '../pipeline/rate-limit.js';
import type { AskPort } from '../pool/ask-port.js';
import type { Outcome } from '../telemetry/metrics.js';
import { writeError } from './answer.js';
import { DISCARDED_BYTES_MAX, readBody } from './body-reader.js';
import { ChatExchange } from './chat-exchange.js';
import type { ListenerLimits } from './messages.js';
import { ModelRoutes } from './model-routes.js';
import { requestIdOf } from './request-id.js';

/** A stream that has been silent for so long gets a comment, before proxies on the way take it for dead. */
const KEEP_ALIVE_MS = 15_000;
/** Streams are looked at so often; a comment comes at most this much late. */
const SWEEP_MS = 1_000;

const CHAT_PATH = '/v1/chat/completions';

export class ListenerServer {
  readonly parts: PipelineParts;
  readonly limits: ListenerLimits;
  readonly parser: AskPort<Uint8Array[], ChatRequestResult>;
  /** Exchanges whose answer has begun and has not ended. */
  readonly streaming = new Set<ChatExchange>();
  readonly #app: TemplatedApp;
  readonly #requestPrefix: string;
  #requestCount = 0;
  readonly #sweeper: NodeJS.Timeout;
  #socket: us_listen_socket | undefined;
  #openExchanges = 0;
  #onDrained: (() => void) | undefined;

  constructor(
    parts: PipelineParts,
    limits: ListenerLimits,
    requestPrefix: string,
    parser: AskPort<Uint8Array[], ChatRequestResult>,
  ) {
    this.parts = parts;
    this.limits = limits;
    this.parser = parser;
    this.#requestPrefix = requestPrefix;
    this.#app = uWS.App();
    // A listener that died in this one's place had calls in flight; they are gone.
    parts.metrics.reset('calls_in_flight');
    this.#route();
    this.#sweeper = setInterval(() => {
      const nowMs = parts.clock.monotonicMs();
      for (const exchange of this.streaming) exchange.onSweep(nowMs, KEEP_ALIVE_MS);
      parts.held.onSweep();
    }, SWEEP_MS);
  }

  /** Listens, with SO_REUSEPORT, beside the other listeners. False where the port can't be had. */
  listen(host: string, port: number): boolean {
    // µWS calls back before it returns.
    this.#app.listen(host, port, (socket) => {
      if (socket !== false) this.#socket = socket;
    });
    return this.#socket !== undefined;
  }

  get draining(): boolean {
    return this.#onDrained !== undefined;
  }

  /** Stops accepting; answers from now on end their connection; calls back once when the last exchange has ended. */
  drain(onDrained: () => void): void {
    if (this.draining) return;
    this.#onDrained = onDrained;
    this.#stopListening();
    if (this.#openExchanges === 0) onDrained();
  }

  /** Cuts every connection. µWS must hold no socket when its thread ends, else the whole process aborts. */
  close(): void {
    clearInterval(this.#sweeper);
    this.#stopListening();
    this.#app.close();
  }

  /** An exchange has begun. */
  opened(): void {
    this.#openExchanges += 1;
  }

  /** An exchange has ended. */
  closed(outcome: Outcome): void {
    this.#openExchanges -= 1;
    this.parts.metrics.countOutcome(outcome);
    if (this.#openExchanges === 0) this.#onDrained?.();
  }

  #stopListening(): void {
    if (this.#socket === undefined) return;
    uWS.us_listen_socket_close(this.#socket);
    this.#socket = undefined;
  }

  #route(): void {
    const models = new ModelRoutes(this.parts);
    this.#app.post(CHAT_PATH, (res, req) => this.#chat(res, req));
    this.#app.any(CHAT_PATH, (res, req) => this.#methodNotAllowed(res, req, 'POST'));
    this.#app.get('/v1/models', (res, req) => models.list(res, req, this.#newContext()));
    this.#app.any('/v1/models', (res, req) => this.#methodNotAllowed(res, req, 'GET'));
    // Identifiers of models may hold slashes.
    this.#app.get('/v1/models/*', (res, req) => models.show(res, req, this.#newContext()));
    this.#app.any('/v1/models/*', (res, req) => this.#methodNotAllowed(res, req, 'GET'));
    this.#app.any('/*', (res, req) =>
      this.#refuse(res, req, {
        code: 'not_found',
        message:
          'There is nothing at this path. The gateway serves POST /v1/chat/completions, GET /v1/models and GET /v1/models/{id}.',
      }),
    );
  }

  #newContext(): CallContext {
    this.#requestCount += 1;
    return new CallContext(requestIdOf(this.#requestPrefix, this.#requestCount), this.#requestCount);
  }

  #chat(res: HttpResponse, req: HttpRequest): void {
    const context = this.#newContext();
    const exchange = new ChatExchange(this, res, context);
    const refusal =
      authenticate(context, req.getHeader('authorization'), this.parts) ?? limitRate(context, this.parts);
    if (refusal !== undefined) {
      exchange.refuse(refusal);
      return;
    }
    if (Number(req.getHeader('content-length')) > this.limits.bodyBytesMax + DISCARDED_BYTES_MAX) {
      exchange.onTooLarge(true);
      return;
    }
    readBody(res, this.limits.bodyBytesMax, this.limits.parseInlineBytesMax, exchange);
  }

  #methodNotAllowed(res: HttpResponse, req: HttpRequest, allow: string): void {
    const message = `The method ${req.getCaseSensitiveMethod()} is not allowed here. Use ${allow}.`;
    this.#refuse(res, req, { code: 'method_not_allowed', message }, allow);
  }

  #refuse(res: HttpResponse, req: HttpRequest, error: ErrorRecord, allow?: string): void {
    writeError(res, error, this.#newContext(), {
      ...(allow === undefined ? {} : { allow }),
      close: this.draining,
      head: req.getMethod() === 'head',
    });
  }
}
