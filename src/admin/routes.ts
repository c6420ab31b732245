/**
 * All routes of the admin interface, a file a resource. Main thread.
 */
import { ACCOUNT_HISTORY_ROUTES } from './account-history-routes.js';
import { ACCOUNT_ROUTES } from './account-routes.js';
import { BULK_ROUTES } from './bulk-routes.js';
import { CATALOG_ROUTES } from './catalog-routes.js';
import { CREDIT_ROUTES } from './credit-routes.js';
import { FLUSH_ROUTES } from './flush-route.js';
import { HOST_ROUTES } from './host-routes.js';
import { KEY_ROUTES } from './key-routes.js';
import { LOG_ROUTES } from './log-routes.js';
import { RELOAD_ROUTES } from './reload-route.js';
import { openapiRoute } from './openapi-routes.js';
import type { Route } from './route.js';
import { SETTINGS_ROUTES } from './settings-routes.js';
import { STATUS_ROUTES } from './status-routes.js';
import { UPSTREAM_ROUTES } from './upstream-routes.js';
import { USAGE_ROUTES } from './usage-routes.js';

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
