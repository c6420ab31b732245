/**
 * The roles of operators, and the operator behind a request to the admin interface. Each route declares which
 * roles may use it (admin/route.ts). Main thread; the console in the browser.
 *
 * Must hold: no role may do more than its meaning says (test/e2e/operator-roles.test.ts: every route with
 * every role).
 */

/** From the fewest rights to all. `npm run docs` writes the table of routes from them. */
export const ROLES = ['viewer', 'support', 'finance', 'admin'] as const;
export type Role = (typeof ROLES)[number];

/** Roles that may do something. `admin` may do everything, so no list compiles without it. */
export type Roles = readonly [...Role[], 'admin'];

export const ALL_ROLES: Roles = ROLES;
export const ADMIN_ONLY: Roles = ['admin'];

/** Which roles may do what. Routes refer to it, and the console hides what the operator's role may not do. */
export const RIGHTS = {
  /** `support` hands out keys; only `admin` changes what a key may use. */
  keys: ['support', 'admin'],
  credit: ['finance', 'admin'],
  upstreams: ['support', 'admin'],
  playground: ['support', 'admin'],
  /** What callers have sent and got, if `call_log.contents` keeps it. */
  contents: ADMIN_ONLY,
  /** Accounts, groups, limits, settings, operators. */
  everything: ADMIN_ONLY,
} as const satisfies Readonly<Record<string, Roles>>;

/** What each role is for, as the documents say it. */
export const ROLE_MEANINGS: Readonly<Record<Role, string>> = {
  viewer: 'reads everything but secrets, and changes nothing',
  support: 'reads, manages keys and calls upstreams again; no money, no limits, no plans',
  finance: 'reads, and gives and takes credit',
  admin: 'everything, operators too',
};

/** Who sends a request to the admin interface. */
export interface Operator {
  /**
   * The operator's name; `bootstrap`, `command`, `signal`, `start` and `watch` are no operator's, nor is one
   * with a colon.
   */
  readonly who: string;
  readonly role: Role;
}

/**
 * Returns the operator of a console session, or undefined if the operator was disabled or deleted. It is
 * called at each request, so that a change of an operator takes effect at once.
 */
export type Identify = () => Operator | undefined;

/** The operator of requests with the admin token of the data directory, or of the environment. */
export const BOOTSTRAP: Operator = { who: 'bootstrap', role: 'admin' };

/** `admin`, `support or admin`, `support, finance or admin`: for messages and pages. */
export function rolesText(roles: readonly Role[]): string {
  const last = roles.at(-1) ?? '';
  return roles.length < 2 ? last : `${roles.slice(0, -1).join(', ')} or ${last}`;
}
