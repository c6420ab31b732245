/**
 * GET /v1/models and GET /v1/models/{id}: what the caller's plan may use, written once a plan. Listener thread.
 */
import type { HttpRequest, HttpResponse } from 'uWebSockets.js';
import type { ErrorRecord } from '../core/errors.js';
import { encodeModels, type ModelBodies } from '../protocol/model-list.js';
import { unknownModel } from '../pipeline/admit.js';
import { authenticate } from '../pipeline/authenticate.js';
import type { CallContext } from '../pipeline/context.js';
import type { PipelineParts } from '../pipeline/parts.js';
import { JSON_TYPE, writeError, writeHead } from './answer.js';

const MODELS_PREFIX = '/v1/models/';

export class ModelRoutes {
  readonly #parts: PipelineParts;
  readonly #plans: readonly ModelBodies[];

  constructor(parts: PipelineParts) {
    this.#parts = parts;
    this.#plans = parts.catalog.plans.map((_, planIndex) => encodeModels(parts.access.modelsOf(planIndex)));
  }

  list(res: HttpResponse, req: HttpRequest, context: CallContext): void {
    const models = this.#modelsOf(res, req, context);
    if (models !== undefined) this.#write(res, context, models.list);
  }

  show(res: HttpResponse, req: HttpRequest, context: CallContext): void {
    const models = this.#modelsOf(res, req, context);
    if (models === undefined) return;
    const id = decodePath(req.getUrl().slice(MODELS_PREFIX.length));
    const body = models.byId.get(id);
    // The specification's 400 is for a model in a body; a path that names nothing is a 404 (DESIGN §5).
    if (body === undefined) writeError(res, { ...unknownModel(id), status: 404 }, context);
    else this.#write(res, context, body);
  }

  #modelsOf(res: HttpResponse, req: HttpRequest, context: CallContext): ModelBodies | undefined {
    const refusal: ErrorRecord | undefined = authenticate(
      context,
      req.getHeader('authorization'),
      this.#parts,
    );
    if (refusal !== undefined) {
      writeError(res, refusal, context);
      return undefined;
    }
    return this.#plans[context.caller!.planIndex];
  }

  #write(res: HttpResponse, context: CallContext, body: string): void {
    writeHead(res, 200, context, JSON_TYPE);
    res.end(body);
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
