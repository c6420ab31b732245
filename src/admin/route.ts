/**
 * A route of the admin interface: one record, from which api.ts answers requests and reads their input, and
 * openapi.ts describes it. The route files define theirs with `defineRoute`. Main thread.
 *
 * Must hold: the roles that may use a route are declared with it, and so is the action under which a route
 * that changes something records its changes (test/unit/admin/roles.test.ts, openapi.test.ts).
 */
import { Type, type Static, type TObject, type TSchema } from 'typebox';
import type { SettingChange, SettingInForce } from '../config/settings-in-force.js';
import type { ContentsReader } from '../call-log/contents-writer.js';
import type { CallReader } from '../call-log/call-reader.js';
import { ALL_ROLES, type Operator, type Roles } from '../core/roles.js';
import type { ChangeNote } from '../registry/operator-change.js';
import type { Registry, RegistryService } from '../registry/registry.js';
import type { AccountSpan } from '../telemetry/account-history.js';
import type { RingName } from '../telemetry/history.js';
import type { Log, LogChange, LogView } from '../telemetry/log.js';
import { createReader, parseQuery } from './input-reader.js';
import { type HostView } from './gateway-views.js';
import { CLOSED } from './views.js';

/** All routes are below it. */
export const ROOT = '/admin/v1';

/** A body is a handful of fields; the longest is a note of 500 characters. */
export const ADMIN_BODY_BYTES_MAX = 64 * 1024;

export const JSON_TYPE = 'application/json';

/** Who asks, and from where. */
export interface Requester {
  readonly operator: Operator;
  /** The address of the client, as text; of a command without a gateway the user of the system. */
  readonly from: string;
}

/** The registry for one request: what it changes is recorded as a change of the requester. */
export interface RequestService extends Pick<RegistryService, 'read'> {
  change<Result>(work: (registry: Registry) => Result): Result | Promise<Result>;
  /**
   * Records a change of what is not in the registry, after it was made. If it cannot be recorded, the log and
   * the response say so.
   */
  note(note: ChangeNote): Promise<void>;
}

/** What routes work with, and for whom. */
export interface AdminContext extends Omit<AdminParts, 'service'>, Requester {
  readonly service: RequestService;
  readonly log: Log;
}

/** The gateway's parts. A command that has no gateway gives stand-ins (cli/store-client.ts). */
export interface AdminParts {
  /** For what belongs to no account and changes nothing. */
  readonly registry: Registry;
  readonly service: RegistryService;
  /** Resolves when all charges settled so far are in the store. False if some are not. */
  readonly flushBooks: () => Promise<boolean>;
  /** Writes the records and contents of this process's calls that have ended, so that a read finds them. */
  readonly flushCalls: () => void;
  /** What `/admin/v1/status` shows; JSON-ready. */
  readonly status: () => object | Promise<object>;
  /** Reads the settings again. `dryRun` only says what would change; `restart` replaces the gateways too. */
  readonly reload: (request: {
    readonly dryRun: boolean;
    readonly restart: boolean;
  }) => Promise<ReloadResult>;
  /** Changes what it names, and returns what is logged then. */
  readonly changeLog: (change: LogChange) => LogView;
  /** Upstreams of that model, or of all, are called again at once. Resolves when all processes know. */
  readonly resetUpstreams: (model: string | undefined) => Promise<void>;
  /** Forgets the cached responses of that model, or of all. Resolves when all processes have. */
  readonly clearCache: (model: string | undefined) => Promise<void>;
  /** Who has called most, in the last spans. */
  readonly accountSpans: (ring: RingName) => readonly AccountSpan[];
  /** Every setting in force. */
  readonly settings: () => readonly SettingInForce[];
  /** What is kept of calls; nothing if `call_log` was never on. */
  readonly calls: CallReader;
  /** What is kept of their contents; nothing if `call_log.contents` was never on. */
  readonly contents: ContentsReader;
  /** Undefined if nothing is shared with other hosts. */
  readonly hosts: SharedHosts | undefined;
}

/** The outcome of a reload. */
export interface ReloadResult {
  readonly applied: readonly string[];
  readonly restartNeeded: readonly string[];
  /** Values before and after: of both lists in a dry run, else of what was applied. */
  readonly changes?: readonly SettingChange[] | undefined;
  /** Why nothing was applied, each a whole line. */
  readonly problems: readonly string[];
  /** How many gateways are being replaced from now on. */
  readonly replacing: number;
}

/** What the routes need of the hosts that share. */
export interface SharedHosts {
  list(): Promise<readonly SharedHost[]>;
  /** Rejects with `ProxyError` if the host is alive or not known, or nobody can be asked. */
  forget(id: string): Promise<void>;
}

export interface SharedHost {
  readonly id: string;
  readonly isSelf: boolean;
  readonly state: HostView['state'];
  readonly heardMs: number | undefined;
}

export type RouteMethod = 'GET' | 'POST' | 'PUT' | 'DELETE';

export interface RouteInput<Query, Body> {
  /** The path's variable segment, decoded; empty in a route without one. */
  readonly id: string;
  readonly query: Query;
  readonly body: Body;
}

/** As it came: the query still encoded, the body parsed. */
type RawInput = RouteInput<string, unknown>;

/** A response that is not made by serialising a view. */
export class TextResponse {
  readonly contentType: string;
  readonly text: string;

  constructor(contentType: string, text: string) {
    this.contentType = contentType;
    this.text = text;
  }
}

/** Everyone may read, unless the route says otherwise. A route that changes something says who may. */
type Permission =
  | { readonly method: 'GET'; readonly roles?: Roles; readonly action?: null }
  | {
      readonly method: Exclude<RouteMethod, 'GET'>;
      readonly roles: Roles;
      /** What its changes are recorded as; null if it makes none. By default of its path. */
      readonly action?: string | null;
    };

export type RouteDeclaration<
  Query extends TObject,
  Body extends TObject,
  Response extends TSchema,
> = Permission & RouteTerms<Query, Body, Response>;

interface RouteTerms<Query extends TObject, Body extends TObject, Response extends TSchema> {
  /** Below `/admin/v1`; one segment may be variable: `/accounts/{account}`. */
  readonly path: string;
  /** One line, for the document. */
  readonly summary: string;
  /** Absent: the route takes no parameters. */
  readonly query?: Query;
  /** Absent: the body must be empty or an empty object. */
  readonly body?: Body;
  readonly bodyBytesMax?: number;
  /** The JSON of a response with status 200. */
  readonly responseSchema: Response;
  /** Types of other responses, one of which the query may ask for. */
  readonly otherTypes?: readonly string[];
  readonly answer: (
    input: RouteInput<Static<Query>, Static<Body>>,
    context: AdminContext,
  ) => Static<Response> | TextResponse | Promise<Static<Response> | TextResponse>;
}

export interface Route {
  readonly method: RouteMethod;
  /** Others get a 403 (api.ts). */
  readonly roles: Roles;
  /** As what its changes are recorded; undefined if it makes none. */
  readonly action: string | undefined;
  readonly path: string;
  readonly segments: readonly string[];
  readonly summary: string;
  readonly query: TObject;
  readonly body: TObject;
  readonly bodyBytesMax: number;
  readonly responseSchema: TSchema;
  readonly otherTypes: readonly string[];
  /** Checks the input, does the work; resolves with a view or a TextResponse. Rejects with `ProxyError`. */
  readonly answer: (input: RawInput, context: AdminContext) => Promise<unknown>;
}

const NOTHING = Type.Object({}, CLOSED);

export function defineRoute<
  Response extends TSchema,
  Query extends TObject = typeof NOTHING,
  Body extends TObject = typeof NOTHING,
>(declaration: RouteDeclaration<Query, Body, Response>): Route {
  const { path } = declaration;
  // The types default as the values do.
  const query = declaration.query ?? (NOTHING as unknown as Query);
  const body = declaration.body ?? (NOTHING as unknown as Body);
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
    answer: async (input, context) =>
      declaration.answer(
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

/** `POST /keys/{key}/rotate` is `keys.rotate`, and `POST /keys` is `keys.create`. */
function actionOf({
  method,
  path,
}: {
  readonly method: RouteMethod;
  readonly path: string;
}): string | undefined {
  const verb = VERBS[method];
  if (verb === undefined) return undefined;
  const words = path
    .slice(1)
    .split('/')
    .filter((segment) => !isVariable(segment));
  return (words.length > 1 ? words : [...words, verb]).join('.');
}

/** Whether a segment of a route's path stands for any text. */
export function isVariable(segment: string): boolean {
  return segment.startsWith('{');
}
