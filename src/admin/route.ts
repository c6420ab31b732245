/**
 * The type of a route of the admin interface, and `defineRoute`, with which the route files create theirs.
 * api.ts serves requests by them, and openapi.ts describes them. Main thread of a gateway, and commands that
 * work without one.
 *
 * Must hold: each route has the roles that may use it, and a route with another method than GET declares its
 * roles, or it does not compile. Each route that makes changes has an action, the name under which its
 * changes are recorded (test/unit/admin/roles.test.ts, test/unit/admin/openapi.test.ts). A route keeps its
 * method, path and view as types, by which the commands know the view (`RouteViews` of routes.ts).
 */
import { type Static, type TObject, type TSchema } from 'typebox';
import { invariant } from '../core/errors.js';
import { ALL_ROLES, type Roles } from '../core/roles.js';
import type { AdminContext } from './context.js';
import { createReader, parseQuery } from './input-reader.js';
import { closedObject } from './views.js';

/**
 * Much more than a body needs: it has a few fields, of which the longest is a note of 500 characters.
 * `POST /bulk` has a bound of its own.
 */
export const ADMIN_BODY_BYTES_MAX = 64 * 1024;

export const JSON_TYPE = 'application/json';

export type RouteMethod = 'GET' | 'POST' | 'PUT' | 'DELETE';

export interface RouteInput<Query, Body> {
  /** The path's variable segment, decoded; empty in a route without one. */
  readonly id: string;
  readonly query: Query;
  readonly body: Body;
}

/** The input before it is checked: the query still encoded, the body parsed. */
type RawInput = RouteInput<string, unknown>;

/** A response whose text the route makes itself, in place of a view. */
export class TextResponse {
  readonly contentType: string;
  readonly text: string;

  constructor(contentType: string, text: string) {
    this.contentType = contentType;
    this.text = text;
  }
}

/** All roles may use a GET unless it declares others. Every other route must declare its roles. */
type Permission =
  | { readonly method: 'GET'; readonly roles?: Roles; readonly action?: null }
  | {
      readonly method: Exclude<RouteMethod, 'GET'>;
      readonly roles: Roles;
      /** The name under which its changes are recorded; null if there are none; by default by `actionOf`. */
      readonly action?: string | null;
    };

/** `Method` and `Path`: literal types, by which the commands name the route (`RouteViews` of routes.ts). */
type RouteDeclaration<
  Method extends RouteMethod,
  Path extends string,
  Query extends TObject,
  Body extends TObject,
  Response extends TSchema,
> = Permission & { readonly method: Method; readonly path: Path } & RouteTerms<Query, Body, Response>;

/** What a route file declares of a route, besides who may use it. */
interface RouteTerms<Query extends TObject, Body extends TObject, Response extends TSchema> {
  /** One line, for the OpenAPI document. */
  readonly summary: string;
  /** Absent: the route takes no parameters. */
  readonly query?: Query;
  /** Absent: the body must be empty or an empty object. */
  readonly body?: Body;
  /** By default ADMIN_BODY_BYTES_MAX. */
  readonly bodyBytesMax?: number;
  /** The JSON of a response with status 200. */
  readonly responseSchema: Response;
  /** Content types of other responses, which the query may ask for. */
  readonly otherTypes?: readonly string[];
  readonly respond: (
    input: RouteInput<Static<Query>, Static<Body>>,
    context: AdminContext,
  ) => Static<Response> | TextResponse | Promise<Static<Response> | TextResponse>;
}

/** `View`: what `respond` resolves with, of the type of `responseSchema`. */
export interface Route<
  Method extends RouteMethod = RouteMethod,
  Path extends string = string,
  View = unknown,
> {
  readonly method: Method;
  /** Other roles get a 403 (api.ts). */
  readonly roles: Roles;
  /** The name under which its changes are recorded; undefined if the route changes nothing. */
  readonly action: string | undefined;
  /** Below `/admin/v1`; one segment may be variable: `/accounts/{account}`. */
  readonly path: Path;
  /** The segments of `path`, of which at most one is variable. */
  readonly segments: readonly string[];
  readonly summary: string;
  readonly query: TObject;
  readonly body: TObject;
  readonly bodyBytesMax: number;
  readonly responseSchema: TSchema;
  readonly otherTypes: readonly string[];
  /**
   * Checks the input and does the work. Resolves with a view or a TextResponse. Rejects with a ProxyError if
   * the failure is an expected one.
   */
  readonly respond: (input: RawInput, context: AdminContext) => Promise<View | TextResponse>;
}

const NO_FIELDS = closedObject({});

export function defineRoute<
  Method extends RouteMethod,
  Path extends string,
  Response extends TSchema,
  Query extends TObject = typeof NO_FIELDS,
  Body extends TObject = typeof NO_FIELDS,
>(declaration: RouteDeclaration<Method, Path, Query, Body, Response>): Route<Method, Path, Static<Response>> {
  const { path } = declaration;
  const segments = path.slice(1).split('/');
  invariant(segments.filter(isVariable).length <= 1, 'a path has at most one variable segment');
  // If the declaration has no `query`, TypeScript infers for Query its default, the type of NO_FIELDS. So the
  // cast is safe. The same is true of `body`.
  const query = declaration.query ?? (NO_FIELDS as unknown as Query);
  const body = declaration.body ?? (NO_FIELDS as unknown as Body);
  const readQuery = createReader(query, 'query parameter');
  const readBody = createReader(body, 'field');
  return {
    ...declaration,
    roles: declaration.roles ?? ALL_ROLES,
    action: declaration.action === undefined ? actionOf(declaration) : (declaration.action ?? undefined),
    segments,
    query,
    body,
    bodyBytesMax: declaration.bodyBytesMax ?? ADMIN_BODY_BYTES_MAX,
    otherTypes: declaration.otherTypes ?? [],
    respond: async (input, context) =>
      declaration.respond(
        {
          id: input.id,
          query: await readQuery(parseQuery(input.query, query)),
          body: await readBody(input.body),
        },
        context,
      ),
  };
}

const VERBS: Readonly<Record<RouteMethod, string | undefined>> = {
  GET: undefined,
  POST: 'create',
  PUT: 'set',
  DELETE: 'delete',
};

/**
 * Returns `keys.rotate` for `POST /keys/{key}/rotate`, and `keys.create` for `POST /keys`; undefined for a
 * GET. A path with two words gives the same action for all methods, so the routes of such a path declare
 * their actions if there are several.
 */
function actionOf({ method, path }: Pick<Route, 'method' | 'path'>): string | undefined {
  const verb = VERBS[method];
  if (verb === undefined) return undefined;
  const words = path
    .slice(1)
    .split('/')
    .filter((segment) => !isVariable(segment));
  return (words.length > 1 ? words : [...words, verb]).join('.');
}

/** Whether a segment of a route's path is variable, such as `{account}`. */
export function isVariable(segment: string): boolean {
  return segment.startsWith('{');
}
