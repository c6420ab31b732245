/**
 * The admin interface without its sockets: takes method, path, query and body as strings, and returns the
 * response as a record whose body is a string. server.ts hands it what comes over HTTP. While no gateway
 * runs, commands such as `accounts`, `keys` and `usage` call it directly (cli/store-client.ts). Main thread.
 *
 * Must hold: `handle` never throws and its promise never rejects; and a route that changes something leaves a
 * row of who did it, or a warning in the response (test/unit/admin/api.test.ts,
 * test/e2e/operator-roles.test.ts).
 */
import { invariant, ProxyError } from '../core/errors.js';
import { jsonText } from '../core/json.js';
import { invalid } from '../registry/record-id.js';
import { type Role, rolesText } from '../core/roles.js';
import type { Cause, ChangeNote } from '../registry/operator-change.js';
import { diskErrorOf } from '../store/store-file.js';
import type { Log } from '../telemetry/log.js';
import { type AdminResponse, methodNotAllowed, responseOfError } from './http.js';
import {
  ADMIN_BODY_BYTES_MAX,
  type AdminParts,
  isVariable,
  JSON_TYPE,
  type Requester,
  type RequestService,
  ROOT,
  type Route,
  type RouteInput,
  TextResponse,
} from './route.js';
import { ADMIN_ROUTES } from './routes.js';

export interface AdminApiOptions extends AdminParts {
  readonly log: Log;
}

/** A request whose route has been looked up, before its body is read. */
export interface RoutedRequest {
  readonly bodyBytesMax: number;
  /**
   * `query`: still percent-encoded, without its question mark. Both may be empty. Never throws, and its
   * promise never rejects: an expected failure becomes an error response. A bug is logged, and the response
   * is `internal_error`.
   */
  handle(query: string, body: string): AdminResponse | Promise<AdminResponse>;
}

/** Disk space is rarely freed within a second. */
const DISK_RETRY_SECONDS = 5;

export class AdminApi {
  readonly #parts: AdminParts;
  readonly #log: Log;

  constructor(options: AdminApiOptions) {
    this.#parts = options;
    this.#log = options.log;
  }

  /**
   * `path`: still percent-encoded. Finds the route. If no route has the path, `handle` returns a 404; if none
   * of that path has the method, a 405; if the requester's role may not use it, a 403, whatever the body is.
   */
  find(method: string, path: string, requester: Requester): RoutedRequest {
    const segments = segmentsOf(path);
    const found = ADMIN_ROUTES.filter((route) => matches(route.segments, segments));
    const route = found.find((one) => one.method === method);
    if (route === undefined) {
      const methods = found.map((one) => one.method);
      const rejection =
        found.length === 0
          ? responseOfError({ code: 'not_found', message: `There is nothing at ${path}.` })
          : methodNotAllowed(method, methods);
      return { bodyBytesMax: ADMIN_BODY_BYTES_MAX, handle: () => rejection };
    }
    const denied = roleRejectionOf(requester.operator.role, route);
    if (denied !== undefined) return { bodyBytesMax: route.bodyBytesMax, handle: () => denied };
    // The path's one variable segment. In a route without one findIndex returns -1, and nothing is there.
    const id = segments[route.segments.findIndex(isVariable)] ?? '';
    const failed = (error: unknown): AdminResponse => this.#failure(method, path, error);
    return {
      bodyBytesMax: route.bodyBytesMax,
      handle: (query, body) => this.#response(route, requester, { id, query, body }).catch(failed),
    };
  }

  async #response(
    route: Route,
    requester: Requester,
    sent: RouteInput<string, string>,
  ): Promise<AdminResponse> {
    // The body of a GET means nothing (RFC 9110 §9.3.1).
    const input = { ...sent, body: route.method === 'GET' ? {} : parseBody(sent.body) };
    // Set while the route works: some processes did not confirm its change in time, or nothing recorded it.
    let warning: string | undefined;
    const { service } = this.#parts;
    const onBehind = (unconfirmed: number): void => void (warning = warningText(unconfirmed));
    const cause = causeOf(route, requester);
    const requestService: RequestService = {
      read: (work) => service.read(work),
      change: (work) => service.change(cause(), work, onBehind),
      note: async (note) => {
        try {
          await service.change(cause(), (registry) => registry.note(note), onBehind);
        } catch (error) {
          warning = this.#notRecorded(cause(), note, error);
        }
      },
    };
    const view = await route.answer(input, {
      ...this.#parts,
      ...requester,
      service: requestService,
      log: this.#log,
    });
    return { ...responseOfView(view), warning };
  }

  /** Returns the warning of the response. What was done stays done, and the log alone knows who did it. */
  #notRecorded({ actor, action }: Cause, { target, changes }: ChangeNote, error: unknown): string {
    const reason = error instanceof Error ? error.message : String(error);
    this.#log.error('a change was made, and could not be recorded', {
      ...{ who: actor.who, from: actor.from, action, target: jsonText(target), changes: jsonText(changes) },
      error: reason,
    });
    return `The change is made, and could not be recorded among the changes: ${reason}`;
  }

  #failure(method: string, path: string, error: unknown): AdminResponse {
    if (error instanceof ProxyError) {
      const { code, message, retryAfterSeconds } = error;
      return responseOfError({
        code,
        message,
        ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
      });
    }
    const diskError = diskErrorOf(error);
    if (diskError !== undefined) {
      this.#log.error('an admin request could not be written to disk, nothing was changed', {
        method,
        path,
        error: diskError,
      });
      // No code is for the disk alone. `overloaded` is a 503 with `Retry-After`: the client may ask again.
      return responseOfError({
        code: 'overloaded',
        message: `The books cannot be written: look at the disk of the data folder, ${diskError}. Nothing was changed. Retry after ${DISK_RETRY_SECONDS} seconds.`,
        retryAfterSeconds: DISK_RETRY_SECONDS,
      });
    }
    this.#log.error('admin request failed', {
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

/** A route that says that it changes nothing gets none. */
function causeOf({ method, path, action }: Route, { operator, from }: Requester): () => Cause {
  return () => {
    invariant(action !== undefined, `${method} ${path} changes something, and has an action`);
    return { actor: { ...operator, from }, action };
  };
}

/** The 403 for that role; undefined if it may. Of routes outside the table too. */
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

/** `unconfirmed`: how many processes did not confirm the change in time. */
function warningText(unconfirmed: number): string {
  return `The change is made. ${unconfirmed} of the gateway processes did not confirm it in time: each applies it as soon as it can.`;
}

function responseOfView(view: unknown): AdminResponse {
  const { contentType, text } =
    view instanceof TextResponse ? view : new TextResponse(JSON_TYPE, jsonText(view));
  return { status: 200, contentType, body: text };
}

function matches(path: readonly string[], segments: readonly string[]): boolean {
  return (
    path.length === segments.length && path.every((word, at) => isVariable(word) || word === segments[at])
  );
}

/**
 * Empty if the path is not below the root or cannot be decoded. No route is empty, so that gives a 404.
 */
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

function parseBody(body: string): unknown {
  if (body === '') return {};
  try {
    return JSON.parse(body);
  } catch (error) {
    throw invalid(`the body must be JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
}
