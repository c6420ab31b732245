/**
 * `/admin/v1/upstreams/reset`: an operator says that upstreams are well. Main thread.
 */
import { Type, type Static } from 'typebox';
import { isListed } from '../registry/catalog.js';
import { invalid } from '../registry/record-id.js';
import { CLOSED, defineRoute, type Route } from './route.js';

export const UpstreamResetView = Type.Object(
  {
    models: Type.Array(Type.String(), {
      description: 'the models whose upstreams are called again',
      examples: [['gpt-4o-mini']],
    }),
  },
  CLOSED,
);
export type UpstreamResetView = Static<typeof UpstreamResetView>;

export const UPSTREAM_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'POST',
    path: '/upstreams/reset',
    summary:
      'Call upstreams again at once that are left alone because they failed or asked for a pause: of one model, or all; in all workers and processes.',
    body: Type.Object(
      { model: Type.Optional(Type.String({ description: "the model's id or alias; all by default" })) },
      CLOSED,
    ),
    responseSchema: UpstreamResetView,
    answer: async ({ body: { model } }, { registry, resetUpstreams }): Promise<UpstreamResetView> => {
      const listed = registry.catalog.models.filter(isListed);
      const chosen =
        model === undefined
          ? listed
          : listed.filter(({ id, aliases }) => id === model || aliases.includes(model)).slice(0, 1);
      if (model !== undefined && chosen.length === 0) {
        throw invalid(`there is no model '${model}' in the settings; GET /admin/v1/models lists them`);
      }
      await resetUpstreams(model === undefined ? undefined : chosen[0]!.id);
      return { models: chosen.map(({ id }) => id) };
    },
  }),
];
