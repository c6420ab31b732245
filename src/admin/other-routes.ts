/**
 * Routes of the admin port that are not in ADMIN_ROUTES (routes.ts), with the roles that may use each:
 * streams, and routes for the console and for probes. server.ts serves them; openapi.ts and docs/roles.md
 * list them. Pure. Test: test/unit/admin/roles.test.ts.
 */
import { OIDC_CALLBACK_PATH, OIDC_START_PATH } from '../config/oidc-schema.js';
import { ALL_ROLES, RIGHTS, type Roles } from '../core/roles.js';
import { ROOT, type RouteMethod } from './route.js';

export interface OtherRoute {
  readonly method: RouteMethod;
  readonly path: string;
  /** `anyone`: no token is needed. */
  readonly roles: Roles | 'anyone';
}

export const SESSION_PATH = '/admin/session';

export const LIVE_ROUTE = { method: 'GET', path: `${ROOT}/live`, roles: ALL_ROLES } as const;

/** The operator gives the key for the call. A role that may only read makes no calls here all the same. */
export const PLAYGROUND_ROUTE = {
  method: 'POST',
  path: '/admin/playground',
  roles: RIGHTS.playground,
} as const;
export const PLAYGROUND_ADDRESS_ROUTE = {
  method: 'GET',
  path: PLAYGROUND_ROUTE.path,
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
  { method: 'GET', path: '/metrics', roles: 'anyone' },
  { method: 'GET', path: '/healthz', roles: 'anyone' },
  { method: 'GET', path: '/readyz', roles: 'anyone' },
];
