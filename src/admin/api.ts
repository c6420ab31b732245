/**
 * The admin interface without its sockets: takes method, path, query and body as strings, and returns the
 * response as a record whose body is a string. server.ts calls it for requests over HTTP. While no gateway
 * runs, commands such as `accounts`, `keys` and `usage` call it directly (cli/store-client.ts). Main thread.
 *
 * Must hold: `handle` never throws and its promise never rejects. A change leaves a row of who made the
 * change, or a warning in the response (test/unit/admin/api.test.ts, test/e2e/operator-roles.test.ts).
 */
import { invariant, ProxyError } from '../core/errors.js';
import { jsonText } from '../core/json.js';
import { type Role, rolesText } from '../core/roles.js';
import type { Cause, ChangeDetails } from '../registry/operator-change.js';
import { diskErrorOf } from '../store/store-file.js';
import { ROOT } from './addresses.js';
import { type AdminResponse, methodNotAllowed, responseOfError } from './http.js';
import { parseBody } from './json-body.js';
import type { AdminParts, Requester, RequestService } from './context.js';
import {
  ADMIN_BODY_BYTES_MAX,
  isVariable,
  JSON_TYPE,
  type Route,
  type RouteInput,
  TextResponse,
} from './route.js';
import { ADMIN_ROUTES } from './routes.js';

/** A request whose route has been looked up, before its body is read. */
interface RoutedRequest {
  /** The caller of `handle` rejects a longer body. */
  readonly bodyBytesMax: number;
  /**
   * Resolves with a response, also of a failure: a bug is logged, and its response is `internal_error`.
   * `query`: still percent-encoded, without its question mark. `query` and `body` may be empty.
   * `requesterLeft`: aborted when the requester has left, which ends long work early.
   */
  handle(query: string, body: string, requesterLeft?: AbortSignal): AdminResponse | Promise<AdminResponse>;
}

/** Disk space is rarely freed within a second, and a person who frees it does not wait for long. */
const DISK_RETRY_SECONDS = 5;

export class AdminApi {
  readonly #parts: AdminParts;

  constructor(parts: AdminParts) {
    this.#parts = parts;
  }

  /**
   * Finds the route. `path`: still percent-encoded. If no route has the path, `handle` returns a 404; if no
   * route of that path has the method, a 405; if the requester's role may not use the route, a 403.
   */
  find(method: string, path: string, requester: Requester): RoutedRequest {
    const segments = segmentsOf(path);
    const routesOfPath = ADMIN_ROUTES.filter((route) => matches(route.segments, segments));
    const route = routesOfPath.find((candidate) => candidate.method === method);
    if (route === undefined) {
      const methods = routesOfPath.map((candidate) => candidate.method);
      const rejection =
        methods.length === 0
          ? responseOfError({ code: 'not_found', message: `There is nothing at ${path}.` })
          : methodNotAllowed(method, methods);
      return { bodyBytesMax: ADMIN_BODY_BYTES_MAX, handle: () => rejection };
    }
    const roleRejection = roleRejectionOf(requester.operator.role, route);
    if (roleRejection !== undefined) return { bodyBytesMax: route.bodyBytesMax, handle: () => roleRejection };
    // A path has at most one variable segment (route.ts). Without one findIndex returns -1, and `id` is ''.
    const id = segments[route.segments.findIndex(isVariable)] ?? '';
    return {
      bodyBytesMax: route.bodyBytesMax,
      handle: (query, body, requesterLeft) =>
        this.#respond(route, requester, { id, query, body }, requesterLeft).catch((error: unknown) =>
          this.errorResponseOf(method, path, error),
        ),
    };
  }

  async #respond(
    route: Route,
    requester: Requester,
    rawInput: RouteInput<string, string>,
    requesterLeft: AbortSignal | undefined,
  ): Promise<AdminResponse> {
    // The body of a GET means nothing (RFC 9110 §9.3.1).
    const input = { ...rawInput, body: route.method === 'GET' ? {} : parseBody(rawInput.body) };
    // A response has one warning: a later one, such as of a change without a record, replaces an earlier one.
    let warning: string | undefined;
    const warn = (text: string): void => void (warning = text);
    const context = {
      ...this.#parts,
      ...requester,
      service: this.#serviceFor(route, requester, warn),
      warn,
      requesterLeft,
    };
    const view = await route.respond(input, context);
    return { ...responseOfView(view), warning };
  }

  /**
   * The registry for one request: adds the requester to each change, and warns if a process did not confirm
   * the change or if it could not be recorded.
   */
  #serviceFor(route: Route, requester: Requester, warn: (text: string) => void): RequestService {
    const { service } = this.#parts;
    const onUnconfirmed = (processes: number): void => warn(unconfirmedText(processes));
    // The cause of a change says who made it, from where and by which action. A route without an action must
    // change nothing, so `causeOf` throws for it. Reads do not call `cause`.
    const cause = (): Cause => causeOf(route, requester);
    return {
      read: (work) => service.read(work),
      change: (work) => service.change(cause(), work, onUnconfirmed),
      // The route has already made the change, outside of the registry. So the request must not fail if the
      // record does. Only a route without an action fails: `cause()` throws in the catch block too.
      record: async (note) => {
        try {
          await service.change(cause(), (registry) => registry.record(note), onUnconfirmed);
        } catch (error) {
          warn(this.#notRecorded(cause(), note, error));
        }
      },
    };
  }

  /** Logs a change that `record` could not record, with who made it. Returns the warning for the response. */
  #notRecorded({ actor, action }: Cause, { target, changes }: ChangeDetails, error: unknown): string {
    const reason = error instanceof Error ? error.message : String(error);
    const { who, from } = actor;
    const change = { who, from, action, target: jsonText(target), changes: jsonText(changes) };
    this.#parts.log.error('a change was made, and could not be recorded', { ...change, error: reason });
    return `The change is made, and could not be recorded among the changes: ${reason}`;
  }

  /**
   * Returns the response to what was thrown. Logs it, unless it is an expected failure. server.ts calls it
   * too, for what is thrown outside of `handle`.
   */
  errorResponseOf(method: string, path: string, error: unknown): AdminResponse {
    if (error instanceof ProxyError) {
      const { code, message, retryAfterSeconds } = error;
      return { ...responseOfError({ code, message }), retryAfterSeconds };
    }
    const diskError = diskErrorOf(error);
    if (diskError !== undefined) {
      this.#parts.log.error(
        'the change of an admin request could not be written to disk, nothing was changed',
        {
          method,
          path,
          error: diskError,
        },
      );
      // "Nothing was changed" is true only of a route that makes one change, in one transaction. There is no
      // code for a full disk. `overloaded` is a 503 with `Retry-After`, so clients may retry.
      return responseOfError({
        code: 'overloaded',
        message: `The books cannot be written: look at the disk of the data directory, ${diskError}. Nothing was changed. Retry after ${DISK_RETRY_SECONDS} seconds.`,
        retryAfterSeconds: DISK_RETRY_SECONDS,
      });
    }
    this.#parts.log.error('admin request failed', {
      method,
      path,
      error: error instanceof Error ? (error.stack ?? error.message) : String(error),
    });
    return responseOfError({
      code: 'internal_error',
      message: 'The request failed: see the log of the gateway.',
    });
  }
}

function causeOf({ method, path, action }: Route, { operator, from }: Requester): Cause {
  invariant(action !== undefined, `${method} ${path} changes something, and has an action`);
  return { actor: { ...operator, from }, action };
}

/** Returns a 403, or undefined if the role may use the route. server.ts asks of other-routes.ts. */
export function roleRejectionOf(
  role: Role,
  { method, roles }: Pick<Route, 'method' | 'roles'>,
): AdminResponse | undefined {
  if (roles.includes(role)) return undefined;
  return responseOfError({
    code: 'insufficient_role',
    message: `${method} needs the role ${rolesText(roles)} here, and this operator has the role ${role}.`,
  });
}

/** `processes`: how many did not confirm the change in time. */
function unconfirmedText(processes: number): string {
  return `The change is made. ${processes} of the gateway processes did not confirm it in time: each applies it as soon as it can.`;
}

/** `view`: what the `respond` of a route has returned. */
function responseOfView(view: unknown): AdminResponse {
  const { contentType, text } =
    view instanceof TextResponse ? view : new TextResponse(JSON_TYPE, jsonText(view));
  return { status: 200, contentType, body: text };
}

/** Whether a path with these decoded segments is that of a route with `routeSegments`. */
function matches(routeSegments: readonly string[], segments: readonly string[]): boolean {
  return (
    routeSegments.length === segments.length &&
    routeSegments.every((segment, index) => isVariable(segment) || segment === segments[index])
  );
}

/** Returns [], which no route matches, if the path is not below ROOT or cannot be decoded. */
function segmentsOf(path: string): string[] {
  if (!path.startsWith(`${ROOT}/`)) return [];
  try {
    return path
      .slice(ROOT.length + 1)
      .split('/')
      .map(decodeURIComponent);
  } catch {
    return [];
  }
}
