/**
 * What the admin port serves besides ADMIN_ROUTES: streams, the console, probes. server.ts serves three of
 * them by the constants here, and answers other methods at all of these paths with 405;
 * scripts/write-docs.mjs writes them into docs/roles.md. Main thread of a gateway.
 *
 * Must hold: OTHER_ROUTES says what server.ts does (test/e2e/operator-roles.test.ts).
 */
import { OIDC_CALLBACK_PATH, OIDC_START_PATH } from '../config/oidc-schema.js';
import { ALL_ROLES, type Roles, RIGHTS } from '../core/roles.js';
import { PLAYGROUND_PATH, ROOT, SESSION_PATH } from './addresses.js';
import type { RouteMethod } from './route.js';

/** A route of the admin port that ADMIN_ROUTES (routes.ts) lacks: a stream, of the console or of probes. */
export interface OtherRoute {
  readonly method: RouteMethod;
  readonly path: string;
  /** `anyone`: no token is needed. */
  readonly roles: Roles | 'anyone';
}

export const LIVE_ROUTE = { method: 'GET', path: `${ROOT}/live`, roles: ALL_ROLES } as const;

/**
 * The playground makes a call with a caller's key, which the operator must give. The key alone would be
 * enough, but a role that may only read shall make no calls at this port.
 */
export const PLAYGROUND_ROUTE = {
  method: 'POST',
  path: PLAYGROUND_PATH,
  roles: RIGHTS.playground,
} as const;
export const PLAYGROUND_ADDRESS_ROUTE = {
  method: 'GET',
  path: PLAYGROUND_PATH,
  roles: ALL_ROLES,
} as const;

export const OTHER_ROUTES: readonly OtherRoute[] = [
  LIVE_ROUTE,
  PLAYGROUND_ADDRESS_ROUTE,
  PLAYGROUND_ROUTE,
  { method: 'GET', path: SESSION_PATH, roles: 'anyone' },
  { method: 'POST', path: SESSION_PATH, roles: 'anyone' },
  { method: 'DELETE', path: SESSION_PATH, roles: 'anyone' },
  { method: 'GET', path: OIDC_START_PATH, roles: 'anyone' },
  { method: 'GET', path: OIDC_CALLBACK_PATH, roles: 'anyone' },
  { method: 'GET', path: '/', roles: 'anyone' },
  { method: 'GET', path: '/console/*', roles: 'anyone' },
  // Open to anyone, so that Prometheus needs no token. Its page names accounts only with
  // `metrics.account_labels`.
  { method: 'GET', path: '/metrics', roles: 'anyone' },
  { method: 'GET', path: '/healthz', roles: 'anyone' },
  { method: 'GET', path: '/readyz', roles: 'anyone' },
];
