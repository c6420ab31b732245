/**
 * Four things that the files of the admin interface share: the type of a route, by which api.ts serves
 * requests and openapi.ts describes the route; `defineRoute`, with which the route files create theirs; the
 * parts of the gateway that routes use (AdminContext); and OTHER_ROUTES, what server.ts serves besides the
 * routes, and whose other methods it answers with 405. Main thread of a gateway, and commands that work
 * without one.
 *
 * Must hold: each route has the roles that may use it, and a route with another method than GET declares its
 * roles. Each route that makes changes has an action, the name under which its changes are recorded
 * (test/unit/admin/roles.test.ts, test/unit/admin/openapi.test.ts). OTHER_ROUTES, which
 * scripts/write-docs.mjs and tests read, says what server.ts does (test/e2e/operator-roles.test.ts).
 */
import { type Static, type TObject, type TSchema } from 'typebox';
import type { CallReader } from '../call-log/call-reader.js';
import type { ContentsReader } from '../call-log/contents-writer.js';
import { OIDC_CALLBACK_PATH, OIDC_START_PATH } from '../config/oidc-schema.js';
import type { SettingChange, SettingInForce } from '../config/settings-in-force.js';
import { ALL_ROLES, type Operator, type Roles, RIGHTS } from '../core/roles.js';
import type { ChangeDetails } from '../registry/operator-change.js';
import type { Accounts } from '../registry/accounts.js';
import type { Credits } from '../registry/credits.js';
import type { Groups } from '../registry/groups.js';
import type { Keys } from '../registry/keys.js';
import type { Operators } from '../registry/operators.js';
import type { Registry, RegistryService } from '../registry/registry.js';
import type { AccountSpan } from '../telemetry/account-history.js';
import type { RingName } from '../telemetry/history.js';
import type { LogChange, LogView } from '../telemetry/log-switch.js';
import type { Log } from '../telemetry/log.js';
import { PLAYGROUND_PATH, ROOT, SESSION_PATH } from './addresses.js';
import { type HostView, closedObject } from './views.js';
import { createReader, parseQuery } from './input-reader.js';

/**
 * Much more than a body needs: it has a few fields, of which the longest is a note of 500 characters.
 * `POST /bulk` has a bound of its own.
 */
export const ADMIN_BODY_BYTES_MAX = 64 * 1024;

export const JSON_TYPE = 'application/json';

/** Who sends a request, and from where. */
export interface Requester {
  readonly operator: Operator;
  /** The client's address as text, or the system's user of a command that works without a gateway. */
  readonly from: string;
}

/**
 * What is read without `service`: the registry without statements of accounts, groups and keys, and without
 * changes. A statement that is read elsewhere than in `service.read` lacks what other processes have used.
 */
export interface RecordReader extends Readonly<Pick<Registry, 'catalog' | 'changes' | 'usage'>> {
  readonly accounts: Pick<Accounts, 'recordOf'>;
  readonly groups: Pick<Groups, 'membersOf'>;
  readonly keys: Pick<Keys, 'recordOf'>;
  readonly credits: Pick<Credits, 'list'>;
  readonly operators: Pick<Operators, 'find' | 'identityOf' | 'list'>;
}

/** The registry for one request. Its changes are recorded as changes of the requester. */
export interface RequestService extends Pick<RegistryService, 'read'> {
  /** Runs `work` in one transaction. What `work` throws undoes all of it. */
  change<Result>(work: (registry: Registry) => Result): Result | Promise<Result>;
  /**
   * Records a change that was made outside the registry. If the change cannot be recorded, the log and the
   * response say so. Never rejects for that.
   */
  record(note: ChangeDetails): Promise<void>;
}

/** What `respond` of a route gets besides its input: the gateway's parts, and the requester. */
export interface AdminContext extends Omit<AdminParts, 'service'>, Requester {
  readonly service: RequestService;
  readonly log: Log;
  /** Adds a warning to a response of success. A second warning replaces the first. */
  readonly warn: (text: string) => void;
  /** Aborted when the requester has left, for work that takes long. Undefined for a command. */
  readonly requesterLeft: AbortSignal | undefined;
}

/** The parts of the gateway that routes use. A command without a gateway has others (cli/store-client.ts). */
export interface AdminParts {
  readonly registry: RecordReader;
  readonly service: RegistryService;
  /** Resolves when all charges settled so far are in the store. False if some are not. */
  readonly flushBooks: () => Promise<boolean>;
  /** Writes the records and contents of this process's calls that have ended, so that a read finds them. */
  readonly flushCalls: () => void;
  /** Returns the document of `/admin/v1/status`. */
  readonly status: () => object | Promise<object>;
  /** Reads the settings again. `dryRun` only reports what would change; `restart` also replaces gateways. */
  readonly reload: (request: {
    readonly dryRun: boolean;
    readonly restart: boolean;
  }) => Promise<ReloadResult>;
  /** Changes what is logged, by the fields that `change` has, and returns what is logged afterwards. */
  readonly changeLog: (change: LogChange) => LogView;
  /** Resets the breakers of that model's upstreams, or of all. Resolves when all processes have done so. */
  readonly resetUpstreams: (model: string | undefined) => Promise<void>;
  /** Removes the cached responses of that model, or of all. Resolves when all processes have done so. */
  readonly clearCache: (model: string | undefined) => Promise<void>;
  /** Returns the ended spans of that ring, each with its busiest accounts. */
  readonly accountSpans: (ring: RingName) => readonly AccountSpan[];
  /** Returns each setting with the value that is in force now, and where that value comes from. */
  readonly settings: () => readonly SettingInForce[];
  /** Reads the call log, which is empty if `call_log` was never on. */
  readonly calls: CallReader;
  /** Reads contents of calls. There are none if `call_log.contents` was never on. */
  readonly contents: ContentsReader;
  /** Undefined if nothing is shared with other hosts. */
  readonly hosts: SharedHosts | undefined;
}

export interface ReloadResult {
  readonly applied: readonly string[];
  readonly restartNeeded: readonly string[];
  /** Values before and after: of both lists in a dry run, else of what was applied. */
  readonly changes?: readonly SettingChange[] | undefined;
  /** Why nothing was applied, each a whole line; empty if the settings were applied. */
  readonly problems: readonly string[];
  /** How many gateways are being replaced from now on. */
  readonly replacing: number;
}

/** What the routes need of the host directory. */
export interface SharedHosts {
  list(): Promise<readonly SharedHost[]>;
  /**
   * Removes a host that will not come back. Rejects with a ProxyError (core/errors.ts), which becomes the
   * error response, if the host is alive or unknown, or the server of sharing cannot be reached.
   */
  forget(id: string): Promise<void>;
}

export interface SharedHost {
  readonly id: string;
  readonly isSelf: boolean;
  readonly state: HostView['state'];
  /** When the server of sharing last heard the host: Unix ms by its clock; undefined if it does not know. */
  readonly heardMs: number | undefined;
}

type RouteMethod = 'GET' | 'POST' | 'PUT' | 'DELETE';

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
    segments: path.slice(1).split('/'),
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
