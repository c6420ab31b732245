/**
 * `/admin/v1/models` and `/admin/v1/plans`, as the settings give them. Main thread.
 */
import { isListed } from '../registry/catalog.js';
import { ModelView, PlanView, viewOfModel, viewOfPlan } from './catalog-view.js';
import { listOf, listSchema } from './fields.js';
import { defineRoute, type Route } from './route.js';

export const CATALOG_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'GET',
    path: '/models',
    summary: 'List the models and their prices.',
    answerSchema: listSchema(ModelView),
    answer: (_, { registry: { catalog } }) =>
      listOf(catalog.models.filter(isListed).map(viewOfModel), undefined),
  }),
  defineRoute({
    method: 'GET',
    path: '/plans',
    summary: 'List the plans and their limits.',
    answerSchema: listSchema(PlanView),
    answer: (_, { registry: { catalog } }) =>
      listOf(
        catalog.plans.filter(isListed).map((plan) => viewOfPlan(plan, catalog)),
        undefined,
      ),
  }),
];
