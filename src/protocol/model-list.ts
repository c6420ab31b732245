/**
 * Bodies of `GET /v1/models` and `GET /v1/models/{id}`, encoded once for each plan of a catalogue. Pure; any thread.
 */
import { jsonText } from '../core/json.js';

/** What a caller may know of a model; a registry's ModelEntry is one. */
export interface ModelCard {
  readonly id: string;
  readonly aliases: readonly string[];
  readonly ownedBy: string;
  /** Unix time. */
  readonly createdSeconds: number;
}

/** JSON texts for the models of one plan. */
export interface ModelBodies {
  readonly list: string;
  /** By the model's id and by its aliases; a name that is not in it is unknown to the plan. */
  readonly byName: ReadonlyMap<string, string>;
}

function modelBody(model: ModelCard): string {
  return jsonText({
    id: model.id,
    object: 'model',
    created: model.createdSeconds,
    owned_by: model.ownedBy,
  });
}

/** Encodes `models` in their order. Their ids and aliases differ from each other. */
export function encodeModels(models: readonly ModelCard[]): ModelBodies {
  const bodies = models.map(modelBody);
  const byName = new Map(
    models.flatMap((model, index) => [model.id, ...model.aliases].map((name) => [name, bodies[index]!])),
  );
  return { list: `{"object":"list","data":[${bodies.join(',')}]}`, byName };
}
