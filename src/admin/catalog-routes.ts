/**
 * `/admin/v1/models` and `/admin/v1/plans`, as the settings give them. Main thread.
 */
import { type Static, Type } from 'typebox';
import { decimalOf } from '../core/money.js';
import { type Catalog, isListed, type ModelEntry, type PlanEntry } from '../registry/catalog.js';
import { listOf, listSchema, Moment, Money } from './fields.js';
import { CLOSED, defineRoute, type Route } from './route.js';

/*
 * How models and plans look to an operator. Pure; main thread.
 */

export const ModelView = Type.Object(
  {
    id: Type.String(),
    aliases: Type.Array(Type.String(), { description: 'other names that callers may use' }),
    owned_by: Type.String(),
    created: Moment,
    price: Type.Object(
      { input: Money, cached_input: Money, output: Money },
      { ...CLOSED, description: 'per million tokens' },
    ),
    max_output_tokens: Type.Integer(),
  },
  CLOSED,
);

export const PlanView = Type.Object(
  {
    id: Type.String(),
    requests_per_minute: Type.Integer(),
    calls_per_day: Type.Integer(),
    max_tokens: Type.Union([Type.Integer(), Type.Null()], {
      description: 'null where the model’s own bound alone counts',
    }),
    calls_in_flight: Type.Integer({ description: 'of one account' }),
    body_bytes: Type.Integer(),
    models: Type.Array(Type.String()),
  },
  CLOSED,
);

export type ModelView = Readonly<Static<typeof ModelView>>;
export type PlanView = Readonly<Static<typeof PlanView>>;

const TOKENS_PER_PRICE = 1_000_000n;

/** Prices as the settings give them: per million tokens. */
export function viewOfModel(model: ModelEntry): ModelView {
  const { inputPicoUnits, cachedInputPicoUnits, outputPicoUnits } = model.price;
  return {
    id: model.id,
    aliases: [...model.aliases],
    owned_by: model.ownedBy,
    created: model.createdSeconds,
    price: {
      input: decimalOf(inputPicoUnits * TOKENS_PER_PRICE),
      cached_input: decimalOf(cachedInputPicoUnits * TOKENS_PER_PRICE),
      output: decimalOf(outputPicoUnits * TOKENS_PER_PRICE),
    },
    max_output_tokens: model.outputTokensMax,
  };
}

export function viewOfPlan(plan: PlanEntry, catalog: Catalog): PlanView {
  return {
    id: plan.id,
    requests_per_minute: plan.requestsPerMinute,
    calls_per_day: plan.callsPerDay,
    max_tokens: plan.outputTokensMax ?? null,
    calls_in_flight: plan.callsInFlightMax,
    body_bytes: plan.bodyBytesMax,
    models: plan.modelIndices.map((index) => catalog.models[index]!.id),
  };
}

export const CATALOG_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'GET',
    path: '/models',
    summary: 'List the models and their prices.',
    responseSchema: listSchema(ModelView),
    answer: (_, { registry: { catalog } }) =>
      listOf(catalog.models.filter(isListed).map(viewOfModel), undefined),
  }),
  defineRoute({
    method: 'GET',
    path: '/plans',
    summary: 'List the plans and their limits.',
    responseSchema: listSchema(PlanView),
    answer: (_, { registry: { catalog } }) =>
      listOf(
        catalog.plans.filter(isListed).map((plan) => viewOfPlan(plan, catalog)),
        undefined,
      ),
  }),
];
