/**
 * The roles of operators, and the operator who sends a request to the admin interface. Each route declares
 * which roles may use it (admin/route.ts). Main thread; the console in the browser.
 *
 * Must hold: no role may do more than its meaning says (test/e2e/operator-roles.test.ts tries every route
 * with every role). The names of roles stay, because the registry has them on disk.
 */

/** From the fewest rights to all: `npm run docs` writes the columns of a table in this order. */
export const ROLES = ['viewer', 'support', 'finance', 'admin'] as const;
export type Role = (typeof ROLES)[number];

/** Roles that may do something. `admin` may do everything, so a list without `admin` does not compile. */
export type Roles = readonly [...Role[], 'admin'];

export const ALL_ROLES: Roles = ROLES;
export const ADMIN_ONLY: Roles = ['admin'];

/** Which roles may do what. Routes name these lists, and the console hides what the operator may not do. */
export const RIGHTS = {
  /** To make and to switch off keys. Only `admin` changes what a key may use. */
  keys: ['support', 'admin'],
  credit: ['finance', 'admin'],
  upstreams: ['support', 'admin'],
  playground: ['support', 'admin'],
  /** To read what callers have sent and got, if `call_log.contents` keeps the contents. */
  contents: ADMIN_ONLY,
  /** Accounts, groups, limits, settings, operators. */
  everything: ADMIN_ONLY,
} as const satisfies Readonly<Record<string, Roles>>;

/** What each role is for, as the documents say it. */
export const ROLE_MEANINGS: Readonly<Record<Role, string>> = {
  viewer: 'reads everything but secrets, and changes nothing',
  support:
    'reads, manages keys and calls upstreams again; gives limits to new keys alone, and no money or plans',
  finance: 'reads, and gives and takes credit',
  admin: 'everything, operators too',
};

/** Who sends a request to the admin interface. */
export interface Operator {
  /**
   * The operator's name. No operator of the registry has the name of another actor, such as `bootstrap`
   * (OTHER_ACTORS of registry/operators.ts), or one with a colon.
   */
  readonly who: string;
  readonly role: Role;
}

/**
 * Returns the operator of a console session, or undefined if the operator was disabled or deleted. It is
 * called at each request, so that a change of an operator takes effect at once. A `check` is no use of a
 * token.
 */
export type Identify = (purpose: 'request' | 'check') => Operator | undefined;

/** The operator of requests with the admin token of the data directory, or of the environment. */
export const BOOTSTRAP: Operator = { who: 'bootstrap', role: 'admin' };

/** `admin`, `support or admin`, `support, finance or admin`: for messages and pages. */
export function rolesText(roles: readonly Role[]): string {
  const lastRole = roles.at(-1) ?? '';
  return roles.length < 2 ? lastRole : `${roles.slice(0, -1).join(', ')} or ${lastRole}`;
}
