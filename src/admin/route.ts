/**
 * A route of the admin interface: one record that the dispatcher runs, the reader of its input is compiled from, and the
 * OpenAPI document is made from. Main thread.
 */
import { Type, type Static, type TObject, type TSchema } from 'typebox';
import type { SettingChange, SettingInForce } from '../config/settings-in-force.js';
import type { Registry } from '../registry/registry.js';
import type { RegistryService } from '../registry/registry-service.js';
import type { AccountSpan } from '../telemetry/account-history.js';
import type { RingName } from '../telemetry/history.js';
import type { SharedHosts } from './host-routes.js';
import { compileReader, parseQuery } from './input-reader.js';
import type { LogChange, LogView } from './log-routes.js';

/** A body is a handful of fields; the longest is a note of 500 characters. */
export const ADMIN_BODY_BYTES_MAX = 64 * 1024;

export const JSON_TYPE = 'application/json';

/** What routes work with. */
export interface AdminContext {
  /** For what is no account's and changes nothing. */
  readonly registry: Registry;
  readonly service: RegistryService;
  /** Resolves when what was settled until now is in the store; at once where no gateway runs. False where some of it is not. */
  readonly flushBooks: () => Promise<boolean>;
  /** What `/admin/v1/status` shows; JSON-ready. */
  readonly status: () => object | Promise<object>;
  /** Reads the settings anew; with `dryRun` only tells what would change, with `restart` replaces the gateways. */
  readonly reload: (request: {
    readonly dryRun: boolean;
    readonly restart: boolean;
  }) => Promise<ReloadResult>;
  /** Takes what is named of it, and tells what is logged then. */
  readonly changeLog: (change: LogChange) => LogView;
  /** Upstreams of that model, or of all, are called again at once. Resolves when all processes have heard of it. */
  readonly resetUpstreams: (model: string | undefined) => Promise<void>;
  /** Who has called most, of the last spans; empty where a command answers from the store. */
  readonly accountSpans: (ring: RingName) => readonly AccountSpan[];
  /** Every setting in force; none where a command answers from the store, without a gateway. */
  readonly settings: () => readonly SettingInForce[];
  /** Undefined where nothing is shared with other hosts. */
  readonly hosts: SharedHosts | undefined;
}

/** What became of a reload. */
export interface ReloadResult {
  readonly applied: readonly string[];
  readonly restartNeeded: readonly string[];
  /** Of both, what was and would be; only where nothing was to be changed. */
  readonly changes?: readonly SettingChange[];
  /** Why nothing was applied, each a whole line. */
  readonly problems: readonly string[];
  /** Gateways that are being replaced from now on. */
  readonly replacing: number;
}

export type RouteMethod = 'GET' | 'POST' | 'PUT' | 'DELETE';

export interface RouteInput<Query, Body> {
  /** The path's variable segment, decoded; empty in a route without one. */
  readonly id: string;
  readonly query: Query;
  readonly body: Body;
}

/** As it came: the query still encoded, the body parsed. */
export interface RawInput {
  readonly id: string;
  readonly query: string;
  readonly body: unknown;
}

/** A response that is not JSON. */
export class TextResponse {
  readonly contentType: string;
  readonly text: string;

  constructor(contentType: string, text: string) {
    this.contentType = contentType;
    this.text = text;
  }
}

export interface RouteDeclaration<Query extends TObject, Body extends TObject, Response extends TSchema> {
  readonly method: RouteMethod;
  /** Below `/admin/v1`; one segment may be variable: `/accounts/{account}`. */
  readonly path: string;
  /** One line, for the document. */
  readonly summary: string;
  /** Absent where there are no parameters, and none is taken. */
  readonly query?: Query;
  /** Absent where the body must be empty or an empty object. */
  readonly body?: Body;
  readonly bodyBytesMax?: number;
  /** Of the JSON with which it answers 200. */
  readonly responseSchema: Response;
  /** Types of other responses, of which the query may ask for one. */
  readonly otherTypes?: readonly string[];
  readonly answer: (
    input: RouteInput<Static<Query>, Static<Body>>,
    context: AdminContext,
  ) => Static<Response> | TextResponse | Promise<Static<Response> | TextResponse>;
}

export interface Route {
  readonly method: RouteMethod;
  readonly path: string;
  readonly segments: readonly string[];
  readonly summary: string;
  readonly query: TObject;
  readonly body: TObject;
  readonly bodyBytesMax: number;
  readonly responseSchema: TSchema;
  readonly otherTypes: readonly string[];
  /** Reads the input and does it. Throws `ProxyError`. */
  readonly answer: (input: RawInput, context: AdminContext) => unknown;
}

/** Objects take the fields that they name and no others. */
export const CLOSED = { additionalProperties: false };

const NOTHING = Type.Object({}, CLOSED);

export function defineRoute<
  Response extends TSchema,
  Query extends TObject = typeof NOTHING,
  Body extends TObject = typeof NOTHING,
>(declaration: RouteDeclaration<Query, Body, Response>): Route {
  const { method, path, summary, responseSchema: answerSchema } = declaration;
  // The types default as the values do.
  const query = declaration.query ?? (NOTHING as unknown as Query);
  const body = declaration.body ?? (NOTHING as unknown as Body);
  const readQuery = compileReader(query, 'query parameter');
  const readBody = compileReader(body, 'field');
  return {
    method,
    path,
    segments: path.slice(1).split('/'),
    summary,
    query,
    body,
    bodyBytesMax: declaration.bodyBytesMax ?? ADMIN_BODY_BYTES_MAX,
    responseSchema: answerSchema,
    otherTypes: declaration.otherTypes ?? [],
    answer: (input, context) =>
      declaration.answer(
        {
          id: input.id,
          query: readQuery(parseQuery(input.query, query)),
          body: readBody(input.body),
        },
        context,
      ),
  };
}

/** Whether a segment of a route's path stands for any one. */
export function isVariable(segment: string): boolean {
  return segment.startsWith('{');
}
