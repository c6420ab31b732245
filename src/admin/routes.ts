/**
 * All routes of the admin interface, a file a resource. Main thread.
 */
import { Type } from 'typebox';
import { jsonText } from '../core/json.js';
import { ACCOUNT_HISTORY_ROUTES } from './account-history-routes.js';
import { ACCOUNT_ROUTES } from './account-routes.js';
import { BULK_ROUTES } from './bulk-routes.js';
import { CATALOG_ROUTES } from './catalog-routes.js';
import { CREDIT_ROUTES } from './credit-routes.js';
import { listOf, listSchema } from './fields.js';
import { HOST_ROUTES } from './host-routes.js';
import { KEY_ROUTES } from './key-routes.js';
import { LOG_ROUTES } from './log-routes.js';
import { adminDocument } from './openapi.js';
import { RELOAD_ROUTES } from './reload-route.js';
import { CLOSED, defineRoute, JSON_TYPE, type Route, TextResponse } from './route.js';
import { UPSTREAM_ROUTES } from './upstream-routes.js';
import { USAGE_ROUTES } from './usage-routes.js';

/*
 * `/admin/v1/status`: how the gateway is. Main thread.
 */

/** Empty where a command answers from the store, without a gateway. */
const StatusView = Type.Object({}, { additionalProperties: true });

export const STATUS_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'GET',
    path: '/status',
    summary: 'Show threads, calls in flight, outcomes and the state of the books.',
    responseSchema: StatusView,
    answer: (_, { status }) => status(),
  }),
];

/*
 * `/admin/v1/openapi.json`: the document of all routes. Main thread.
 */

/** `routes` gives all routes, this one among them; the document is made once, when it is first asked for. */
export function openapiRoute(routes: () => readonly Route[]): Route {
  let text: string | undefined;
  return defineRoute({
    method: 'GET',
    path: '/openapi.json',
    summary: 'Show this document.',
    responseSchema: Type.Object({ openapi: Type.Literal('3.1.0') }, { additionalProperties: true }),
    answer: () => new TextResponse(JSON_TYPE, (text ??= jsonText(adminDocument(routes())))),
  });
}

/*
 * `/admin/v1/flush`: what was settled until now, on disk, for whoever reads the books themselves. Main thread.
 */

const FlushView = Type.Object(
  {
    flushed: Type.Boolean({
      description: 'false where a process did not answer in time, or the disk takes nothing now',
    }),
  },
  CLOSED,
);

export const FLUSH_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'POST',
    path: '/flush',
    summary: 'Write the charges of all calls that have ended to disk, as happens each flush_interval_ms.',
    responseSchema: FlushView,
    answer: async (_input, { flushBooks }) => ({ flushed: await flushBooks() }),
  }),
];

/*
 * `/admin/v1/settings`: what the gateway runs with, and where each value came from. Main thread.
 */

const SettingView = Type.Object(
  {
    setting: Type.String({ examples: ['models.gpt-4o-mini.price.input'] }),
    value: Type.String({ description: 'as text; a secret is not shown' }),
    origin: Type.String({
      description: 'a line of the file, a variable of the environment, an option of the command, or default',
      examples: ['tollgate.yaml:12', 'TOLLGATE_PORT', '--port', 'default'],
    }),
    live: Type.Boolean({ description: 'whether a reload can change it; a restart is needed otherwise' }),
  },
  CLOSED,
);

export const SETTINGS_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'GET',
    path: '/settings',
    summary: 'Show every setting in force and where its value came from.',
    responseSchema: listSchema(SettingView),
    answer: (_, { settings }) =>
      listOf(
        settings().map((setting) => ({ ...setting })),
        undefined,
      ),
  }),
];

export const ADMIN_ROUTES: readonly Route[] = [
  ...ACCOUNT_ROUTES,
  ...ACCOUNT_HISTORY_ROUTES,
  ...CREDIT_ROUTES,
  ...BULK_ROUTES,
  ...KEY_ROUTES,
  ...USAGE_ROUTES,
  ...CATALOG_ROUTES,
  ...STATUS_ROUTES,
  ...HOST_ROUTES,
  ...SETTINGS_ROUTES,
  ...RELOAD_ROUTES,
  ...LOG_ROUTES,
  ...UPSTREAM_ROUTES,
  ...FLUSH_ROUTES,
  openapiRoute(() => ADMIN_ROUTES),
];
