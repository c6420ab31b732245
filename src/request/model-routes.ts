/**
 * GET /v1/models and GET /v1/models/{id}: what the caller's plan may use, written once a plan and catalogue. Listener thread.
 */
import type { HttpResponse } from 'uWebSockets.js';
import type { ErrorRecord } from '../core/errors.js';
import { encodeModels, type ModelBodies } from '../protocol/model-list.js';
import { unknownModel } from './admit.js';
import { authenticate } from './authenticate.js';
import type { CallContext, ListenerContext } from './context.js';
import type { OtherRoute } from '../telemetry/metrics-layout.js';
import { endWithBody, JSON_TYPE, writeError, writeHead } from './response.js';

const MODELS_PREFIX = '/v1/models/';

const NO_NAME: ErrorRecord = {
  code: 'not_found',
  message: 'The name of a model is missing after /v1/models/. GET /v1/models lists the models.',
};

/** Whether answers end their connections now. */
interface Ending {
  readonly endsConnections: boolean;
}

export class ModelRoutes {
  readonly #parts: ListenerContext;
  readonly #ending: Ending;
  /** Made when a caller of the plan first asks: all plans at once would hold up every other call of the thread. */
  readonly #plans: (ModelBodies | undefined)[];

  constructor(parts: ListenerContext, ending: Ending) {
    this.#parts = parts;
    this.#ending = ending;
    this.#plans = parts.catalog.plans.map(() => undefined);
  }

  /** `isHead`: the response goes without its body. */
  list(res: HttpResponse, authorization: string, context: CallContext, isHead: boolean): void {
    const models = this.#modelsOf(res, authorization, context, '/v1/models', isHead);
    if (models !== undefined) this.#write(res, context, '/v1/models', models.list, isHead);
  }

  show(res: HttpResponse, url: string, authorization: string, context: CallContext, isHead: boolean): void {
    const route = '/v1/models/{id}';
    const models = this.#modelsOf(res, authorization, context, route, isHead);
    if (models === undefined) return;
    const name = decodePath(url.slice(MODELS_PREFIX.length));
    const body = models.byName.get(name);
    // The specification's 400 is for a model in a body; a path that names nothing is a 404 (docs/errors.md).
    if (name === '') this.#refuse(res, context, route, NO_NAME, isHead);
    else if (body === undefined)
      this.#refuse(res, context, route, { ...unknownModel(name), status: 404 }, isHead);
    else this.#write(res, context, route, body, isHead);
  }

  #modelsOf(
    res: HttpResponse,
    authorization: string,
    context: CallContext,
    route: OtherRoute,
    isHead: boolean,
  ): ModelBodies | undefined {
    const refusal: ErrorRecord | undefined = authenticate(context, authorization, this.#parts);
    if (refusal !== undefined) {
      this.#refuse(res, context, route, refusal, isHead);
      return undefined;
    }
    const { planIndex } = context.caller!;
    return (this.#plans[planIndex] ??= encodeModels(this.#parts.access.modelsOf(planIndex)));
  }

  #refuse(
    res: HttpResponse,
    context: CallContext,
    route: OtherRoute,
    error: ErrorRecord,
    head: boolean,
  ): void {
    this.#parts.metrics.countRequest(route, error.code);
    writeError(res, error, context, { head, close: this.#ending.endsConnections });
  }

  #write(res: HttpResponse, context: CallContext, route: OtherRoute, body: string, isHead: boolean): void {
    this.#parts.metrics.countRequest(route, 'ok');
    const close = this.#ending.endsConnections;
    writeHead(res, 200, context, JSON_TYPE, close);
    endWithBody(res, body, isHead, close);
  }
}

/** A path with a broken escape names no model; it is looked up as it stands. */
function decodePath(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
