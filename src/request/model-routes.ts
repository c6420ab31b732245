/**
 * GET /v1/models and GET /v1/models/{id}: the models of the caller's plan, encoded once for each plan of a
 * catalogue. listener-server.ts makes a ModelRoutes, and another with each reload. Listener thread.
 *
 * Must hold: a caller sees the models of its own plan only (test/unit/request/model-access.test.ts,
 * test/unit/request/model-routes.test.ts).
 */
import type { HttpResponse } from 'uWebSockets.js';
import type { ErrorRecord } from '../core/errors.js';
import { jsonText } from '../core/json.js';
import type { ModelEntry } from '../registry/catalog.js';
import type { OtherRoute } from '../telemetry/metrics-layout.js';
import { authenticate } from './authenticate.js';
import type { CallContext, ListenerContext } from './context.js';
import { MODEL_NAME_MISSING, unknownModel } from './rejections.js';
import { endResponse, JSON_TYPE, writeError, writeHead } from './response.js';

/** Of the path of one model, for which listener-server.ts has the route. */
const MODELS_PREFIX = '/v1/models/';

/** JSON texts for the models of one plan. */
interface ModelBodies {
  readonly list: string;
  /** By the model's id and by its aliases. */
  readonly byName: ReadonlyMap<string, string>;
}

/** Encodes `models` in their order. Their ids and aliases all differ (config/). Exported for its test. */
export function encodeModels(
  models: readonly Pick<ModelEntry, 'id' | 'aliases' | 'ownedBy' | 'createdSeconds' | 'serves'>[],
): ModelBodies {
  const bodies = models.map(({ id, createdSeconds, ownedBy, serves }) =>
    jsonText({ id, object: 'model', created: createdSeconds, owned_by: ownedBy, serves }),
  );
  const byName = new Map(
    models.flatMap((model, index) => [model.id, ...model.aliases].map((name) => [name, bodies[index]!])),
  );
  return { list: `{"object":"list","data":[${bodies.join(',')}]}`, byName };
}

export class ModelRoutes {
  readonly #listener: ListenerContext;
  /** By plan. Each is made when a caller first asks, because all at once would delay the thread's calls. */
  readonly #bodiesByPlan: (ModelBodies | undefined)[];

  constructor(listener: ListenerContext) {
    this.#listener = listener;
    this.#bodiesByPlan = listener.catalog.plans.map(() => undefined);
  }

  /**
   * Responds to GET and HEAD of /v1/models. `authorization`: the header. `endsConnection`: the response ends
   * its connection.
   */
  list(res: HttpResponse, authorization: string, context: CallContext, endsConnection: boolean): void {
    this.#respond(res, authorization, context, endsConnection, '/v1/models', ({ list }) => list);
  }

  /** As `list`, for GET and HEAD of /v1/models/{id}. `url`: the path, as in the request. */
  show(
    res: HttpResponse,
    url: string,
    authorization: string,
    context: CallContext,
    endsConnection: boolean,
  ): void {
    const name = decodePath(url.slice(MODELS_PREFIX.length));
    this.#respond(res, authorization, context, endsConnection, '/v1/models/{id}', ({ byName }) => {
      if (name === '') return MODEL_NAME_MISSING;
      // 404 in place of the error's usual 400, which is for a model that a body names (docs/errors.md).
      return byName.get(name) ?? { ...unknownModel(name), status: 404 };
    });
  }

  /** `bodyOf` returns the body of the response, or an error. It is called only if the caller is known. */
  #respond(
    res: HttpResponse,
    authorization: string,
    context: CallContext,
    endsConnection: boolean,
    route: OtherRoute,
    bodyOf: (models: ModelBodies) => string | ErrorRecord,
  ): void {
    const rejection = authenticate(context, authorization, this.#listener);
    const body = rejection ?? bodyOf(this.#modelsOf(context.knownCaller.planIndex));
    if (typeof body === 'string') {
      this.#listener.metrics.countRequest(route, 'ok');
      writeHead(res, 200, context, JSON_TYPE, endsConnection);
      endResponse(res, body, context, endsConnection);
    } else {
      this.#listener.metrics.countRequest(route, body.code);
      writeError(res, body, context, endsConnection);
    }
  }

  #modelsOf(planIndex: number): ModelBodies {
    return (this.#bodiesByPlan[planIndex] ??= encodeModels(this.#listener.access.modelsOf(planIndex)));
  }
}

/** Decodes a path. A path with a broken escape is returned unchanged: no model has such a name. */
function decodePath(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}
