/**
 * Bodies of `GET /v1/models` and `GET /v1/models/{id}`, encoded once for each plan when a catalogue is loaded. Pure; any thread.
 */
import { jsonText } from '../core/json-text.js';

/** What a caller may know of a model; a registry's ModelEntry is one. */
export interface ModelCard {
  readonly id: string;
  readonly ownedBy: string;
  /** Unix time. */
  readonly createdSeconds: number;
}

/** JSON texts for the models of one plan. */
export interface ModelBodies {
  readonly list: string;
  /** By the model's id; an id that is not in it is unknown to the plan. */
  readonly byId: ReadonlyMap<string, string>;
}

function modelBody(model: ModelCard): string {
  return jsonText({
    id: model.id,
    object: 'model',
    created: model.createdSeconds,
    owned_by: model.ownedBy,
  });
}

/** Encodes `models` in their order. Their ids differ from each other. */
export function encodeModels(models: readonly ModelCard[]): ModelBodies {
  const byId = new Map(models.map((model) => [model.id, modelBody(model)]));
  return { list: `{"object":"list","data":[${[...byId.values()].join(',')}]}`, byId };
}
