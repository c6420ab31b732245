/**
 * The list of all routes of the admin interface, by which api.ts serves requests. Routes of accounts, keys,
 * groups, calls, changes, operators and usage have files of their own; the others are here. Main thread.
 *
 * Must hold: a route that changes something outside the registry records the change by `service.record`,
 * after it has made the change (test/unit/admin/openapi.test.ts). route.ts makes the action, the name
 * of a change, from the path, unless the route declares one; `action: null` is for a route that changes
 * nothing. The view of a model: test/unit/admin/routes.model-view.test.ts.
 */
import * as Type from 'typebox';
import { jsonText } from '../core/json.js';
import { decimalOf } from '../core/money.js';
import { ADMIN_ONLY, ALL_ROLES, RIGHTS } from '../core/roles.js';
import {
  type Catalog,
  isListed,
  type ModelEntry,
  type PartPrices,
  type PlanEntry,
} from '../registry/catalog.js';
import type { ChangeDetails } from '../registry/operator-change.js';
import { conflict, invalid } from '../registry/record-id.js';
import { LOG_LEVELS, type LogView } from '../telemetry/log-switch.js';
import { ACCOUNT_ROUTES } from './account-routes.js';
import { CALL_ROUTES } from './call-routes.js';
import { CHANGE_ROUTES } from './change-routes.js';
import { OPERATOR_ROUTES } from './operator-routes.js';
import { listOf, viewOfLimits } from './fields.js';
import { GROUP_ROUTES } from './group-routes.js';
import { quoted } from './input-reader.js';
import { KEY_ROUTES } from './key-routes.js';
import { adminDocument } from './openapi.js';
import type { AdminContext, ReloadResult, SharedHost } from './context.js';
import { defineRoute, JSON_TYPE, type Route, TextResponse } from './route.js';
import { USAGE_ROUTES } from './usage-routes.js';
import {
  CacheClearView,
  HostView,
  ReloadView,
  SettingView,
  UpstreamResetView,
  closedObject,
  listSchema,
  type ListView,
  ModelView,
  PlanView,
  type TokenPricesView,
  optionalText,
} from './views.js';

const TOKENS_PER_PRICE = 1_000_000n;

/** Prices are shown as in the settings: per million tokens, and per call. `fallbacks` index `models`. */
export function viewOfModel(model: ModelEntry, models: Catalog['models']): ModelView {
  const { price } = model;
  return {
    id: model.id,
    aliases: [...model.aliases],
    owned_by: model.ownedBy,
    created: model.createdSeconds,
    serves: [...model.serves],
    price: {
      ...viewOfTokenPrices(price),
      call: decimalOf(price.callPicoUnits),
      cached_response: decimalOf(price.cachedResponsePicoUnits),
      long: (price.long ?? []).map((long) => ({ above: long.aboveTokens, ...viewOfTokenPrices(long) })),
    },
    max_output_tokens: model.outputTokensMax,
    fallbacks: model.fallbacks.map((index) => models[index]!.id),
  };
}

function viewOfTokenPrices(price: PartPrices): TokenPricesView {
  const perMillion = (picoUnits: bigint): string => decimalOf(picoUnits * TOKENS_PER_PRICE);
  return {
    input: perMillion(price.inputPicoUnits),
    cached_input: perMillion(price.cachedInputPicoUnits),
    cache_write: perMillion(price.cacheWritePicoUnits),
    cache_write_1h: perMillion(price.cacheWrite1hPicoUnits),
    output: perMillion(price.outputPicoUnits),
    reasoning: perMillion(price.reasoningPicoUnits),
  };
}

/** `limit`: in pico-units; undefined for no limit. */
function spendText(limit: bigint | undefined): string | null {
  return limit === undefined ? null : decimalOf(limit);
}

function viewOfPlan(plan: PlanEntry, catalog: Catalog): PlanView {
  const { quotas, modelLimits = [] } = plan;
  return {
    id: plan.id,
    requests_per_minute: plan.requestsPerMinute,
    calls_per_day: plan.callsPerDay,
    max_tokens: plan.outputTokensMax ?? null,
    calls_in_flight: plan.callsInFlightMax,
    tokens_per_minute: quotas.tokensPerMinute ?? null,
    tokens_per_day: quotas.tokensPerDay ?? null,
    calls_per_month: quotas.callsPerMonth ?? null,
    tokens_per_month: quotas.tokensPerMonth ?? null,
    spend_per_day: spendText(quotas.spendPerDay),
    spend_per_month: spendText(quotas.spendPerMonth),
    body_bytes: plan.bodyBytesMax,
    models: plan.modelIndices.map((index) => catalog.models[index]!.id),
    models_limits: modelLimits.flatMap((limits, index) =>
      limits === undefined ? [] : [{ model: catalog.models[index]!.id, limits: viewOfLimits(limits) }],
    ),
  };
}

/** The response of `GET /models`. store-client.ts calls it and `planListOf` if there is no store. */
export function modelListOf(catalog: Catalog): ListView<ModelView> {
  return listOf(catalog.models.filter(isListed).map((model) => viewOfModel(model, catalog.models)));
}

/** The response of `GET /plans`. */
export function planListOf(catalog: Catalog): ListView<PlanView> {
  return listOf(catalog.plans.filter(isListed).map((plan) => viewOfPlan(plan, catalog)));
}

const CATALOG_ROUTES = [
  defineRoute({
    method: 'GET',
    path: '/models',
    summary: 'List the models and their prices.',
    responseSchema: listSchema(ModelView),
    respond: (_, { registry }) => modelListOf(registry.catalog),
  }),
  defineRoute({
    method: 'GET',
    path: '/plans',
    summary: 'List the plans and their limits.',
    responseSchema: listSchema(PlanView),
    respond: (_, { registry }) => planListOf(registry.catalog),
  }),
];

const STATUS_ROUTE = defineRoute({
  method: 'GET',
  path: '/status',
  summary: 'Show threads, calls in flight, outcomes and the state of the books.',
  // Empty if a command reads the store without a gateway.
  responseSchema: Type.Object({}, { additionalProperties: true }),
  respond: (_, { status }) => status(),
});

/** Throws `conflict` if this gateway shares with no other host. */
function hostsOf({ hosts }: AdminContext): NonNullable<AdminContext['hosts']> {
  if (hosts === undefined)
    throw conflict('this gateway shares with no other host: its settings have no sharing');
  return hosts;
}

function viewOfHost({ id, isSelf, state, heardMs }: SharedHost): HostView {
  return {
    id,
    self: isSelf,
    state,
    last_heard: heardMs === undefined ? null : Math.floor(heardMs / 1_000),
  };
}

const HOST_ROUTES = [
  defineRoute({
    method: 'GET',
    path: '/hosts',
    summary: 'List the hosts that share with this one.',
    responseSchema: listSchema(HostView),
    respond: async (_, context) => listOf((await hostsOf(context).list()).map(viewOfHost)),
  }),
  defineRoute({
    method: 'DELETE',
    path: '/hosts/{host}',
    roles: ADMIN_ONLY,
    action: 'hosts.forget',
    summary:
      'Forget a host that will not come back: what it was granted is free, and nobody waits for it. What it charged and did not report is lost.',
    responseSchema: closedObject({ id: Type.String(), forgotten: Type.Literal(true) }),
    respond: async ({ id: host }, context) => {
      await hostsOf(context).forget(host);
      await context.service.record({ target: { type: 'host', id: host, name: null }, changes: [] });
      return { id: host, forgotten: true as const };
    },
  }),
];

const SETTINGS_ROUTE = defineRoute({
  method: 'GET',
  path: '/settings',
  summary: 'Show every setting in force and where its value came from.',
  responseSchema: listSchema(SettingView),
  respond: (_, { settings }) => listOf(settings().map((setting) => ({ ...setting }))),
});

/**
 * Returns the change as which a reload is recorded. `replacing`: how many gateway processes it replaces.
 * gateway/gateway.ts calls this too, for reloads by a signal or a changed file.
 */
export function noteOfReload({
  changes = [],
  replacing,
}: Pick<ReloadResult, 'changes' | 'replacing'>): ChangeDetails {
  const replacingChange = { field: 'gateways replaced', before: null, after: replacing };
  return {
    target: { type: 'settings', id: null, name: null },
    changes: [
      ...changes.map(({ setting, before, after }) => ({ field: setting, before, after })),
      ...(replacing > 0 ? [replacingChange] : []),
    ],
  };
}

const RELOAD_ROUTE = defineRoute({
  method: 'POST',
  path: '/reload',
  roles: ADMIN_ONLY,
  action: 'settings.reload',
  summary:
    'Read the settings anew and apply what needs no restart. If anything in them is wrong, nothing is applied.',
  body: closedObject({
    dry_run: Type.Optional(Type.Boolean({ description: 'only tell what would change; false by default' })),
    restart: Type.Optional(
      Type.Boolean({
        description:
          'then replace the gateway processes one by one, for settings that need a restart or a new version; false by default',
      }),
    ),
  }),
  responseSchema: ReloadView,
  respond: async ({ body }, { reload, service }) => {
    const { dry_run: dryRun = false, restart = false } = body;
    const { applied, restartNeeded, changes = [], problems, replacing } = await reload({ dryRun, restart });
    if (problems.length > 0) throw invalid(problems.join('\n'));
    if (!dryRun) await service.record(noteOfReload({ changes, replacing }));
    return {
      dry_run: dryRun,
      applied: [...applied],
      restart_needed: [...restartNeeded],
      ...(dryRun ? { changes: [...changes] } : {}),
      ...(restart ? { replacing } : {}),
    };
  },
});

const LOG_FIELDS = {
  level: Type.Enum([...LOG_LEVELS], { description: 'least severe events that are written' }),
  access_log: Type.Boolean({ description: 'whether a line is written for each chat call' }),
  sample_percent: Type.Integer({
    minimum: 0,
    maximum: 100,
    description: 'share of the calls that went well which the access log has',
  }),
};
const LogSchema = closedObject(LOG_FIELDS);

const LOG_ROUTES = [
  defineRoute({
    method: 'GET',
    path: '/log',
    summary: 'Show what is logged.',
    responseSchema: LogSchema,
    // `changeLog` without a field changes nothing, and returns what is logged.
    respond: (_, { changeLog }) => changeLog({}),
  }),
  defineRoute({
    method: 'PUT',
    path: '/log',
    roles: ADMIN_ONLY,
    summary:
      'Change what is logged, at once and in all threads; what is not named stays. A reload or a restart puts the settings in force again.',
    body: closedObject({
      level: Type.Optional(LOG_FIELDS.level),
      access_log: Type.Optional(LOG_FIELDS.access_log),
      sample_percent: Type.Optional(LOG_FIELDS.sample_percent),
    }),
    responseSchema: LogSchema,
    respond: async ({ body }, { changeLog, service }) => {
      // A copy, because `changeLog` may change and return the same object again.
      const before = { ...changeLog({}) };
      const after = changeLog(body);
      const fields = Object.keys(body) as (keyof LogView)[];
      const changes = fields.map((field) => ({ field, before: before[field], after: after[field] }));
      if (fields.length > 0) await service.record({ target: { type: 'log', id: null, name: null }, changes });
      return after;
    },
  }),
];

const OneModelOrAll = closedObject({ model: optionalText("the model's id or alias; all by default") });

const UPSTREAM_RESET_ROUTE = defineRoute({
  method: 'POST',
  path: '/upstreams/reset',
  roles: RIGHTS.upstreams,
  summary:
    'Call upstreams again at once that are left alone because they failed or asked for a pause: of one model, or all; in all workers and processes.',
  body: OneModelOrAll,
  responseSchema: UpstreamResetView,
  respond: ({ body: { model } }, parts) => resetModels(model, 'upstreams', parts.resetUpstreams, parts),
});

/**
 * Returns the id of the model that has `name` as its id or alias, or without a name the ids of all models in
 * the settings in force, which are those that are listed. Throws `invalid_parameters` if there is none.
 */
function idsOf(catalog: Catalog, name: string | undefined): string[] {
  const listed = catalog.models.filter(isListed);
  if (name === undefined) return listed.map(({ id }) => id);
  const model = listed.find(({ id, aliases }) => id === name || aliases.includes(name));
  if (model === undefined)
    throw invalid(`there is no model ${quoted(name)} in the settings; GET /admin/v1/models lists them`);
  return [model.id];
}

const CACHE_CLEAR_ROUTE = defineRoute({
  method: 'POST',
  path: '/cache/clear',
  roles: ADMIN_ONLY,
  summary: 'Remove the responses of the response cache: of one model, or all; in memory and on disk.',
  body: OneModelOrAll,
  responseSchema: CacheClearView,
  respond: ({ body: { model } }, parts) => resetModels(model, 'cache', parts.clearCache, parts),
});

/** Calls `reset` for the model of that name, or for all, and records it. Returns the models' ids. */
async function resetModels(
  name: string | undefined,
  type: 'upstreams' | 'cache',
  reset: (model: string | undefined) => Promise<void>,
  { registry, service }: AdminContext,
): Promise<{ models: string[] }> {
  const models = idsOf(registry.catalog, name);
  const onlyModel = name === undefined ? undefined : models[0];
  await reset(onlyModel);
  await service.record({ target: { type, id: null, name: onlyModel ?? null }, changes: [] });
  return { models };
}

/** For programs that read the data directory directly. */
const FLUSH_ROUTE = defineRoute({
  method: 'POST',
  path: '/flush',
  roles: ALL_ROLES,
  action: null,
  summary: 'Write the charges of all calls that have ended to disk, as happens each flush_interval_ms.',
  responseSchema: closedObject({
    flushed: Type.Boolean({
      description: 'false if a process did not answer in time, or the disk takes nothing now',
    }),
  }),
  respond: async (_, { flushBooks }) => ({ flushed: await flushBooks() }),
});

/** All routes but DOCUMENT_ROUTE, with the types by which RouteViews knows them. */
const VIEW_ROUTES = [
  ...ACCOUNT_ROUTES,
  ...GROUP_ROUTES,
  ...KEY_ROUTES,
  ...OPERATOR_ROUTES,
  ...CHANGE_ROUTES,
  ...USAGE_ROUTES,
  ...CALL_ROUTES,
  ...CATALOG_ROUTES,
  STATUS_ROUTE,
  ...HOST_ROUTES,
  SETTINGS_ROUTE,
  RELOAD_ROUTE,
  ...LOG_ROUTES,
  UPSTREAM_RESET_ROUTE,
  CACHE_CLEAR_ROUTE,
  FLUSH_ROUTE,
];

type ViewRoute = (typeof VIEW_ROUTES)[number];

/**
 * The view that each route sends, by method and path: `RouteViews['GET /accounts/{account}']`. The commands
 * print views by it, so a command that takes a view for another does not compile.
 */
export type RouteViews = {
  readonly [Each in ViewRoute as `${Each['method']} ${Each['path']}`]: Exclude<
    Awaited<ReturnType<Each['respond']>>,
    TextResponse
  >;
};

/** The OpenAPI document, made at the first request, because few gateways are asked for it. */
let documentText: string | undefined;

const DOCUMENT_ROUTE = defineRoute({
  method: 'GET',
  path: '/openapi.json',
  summary: 'Show this document.',
  responseSchema: Type.Object({ openapi: Type.Literal('3.1.0') }, { additionalProperties: true }),
  respond: () => new TextResponse(JSON_TYPE, (documentText ??= jsonText(adminDocument(ADMIN_ROUTES)))),
});

/** The order is that of the documents; no two match the same request (test/unit/admin/api.test.ts). */
export const ADMIN_ROUTES: readonly Route[] = [...VIEW_ROUTES, DOCUMENT_ROUTE];
