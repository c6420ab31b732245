/**
 * The admin interface without its sockets: a request as plain text in, a response as plain text out. Main thread. The
 * server hands it what comes over HTTP; a command, while no gateway runs, calls it directly.
 */
import { jsonText } from '../core/json.js';
import { ProxyError } from '../core/errors.js';
import { invalid } from '../registry/record-id.js';
import type { RegistryService } from '../registry/registry-service.js';
import { diskErrorOf } from '../store/store-file.js';
import type { Log } from '../telemetry/log.js';
import { responseOfError, methodNotAllowed, type AdminResponse } from './response.js';
import {
  ADMIN_BODY_BYTES_MAX,
  JSON_TYPE,
  TextResponse,
  isVariable,
  type AdminContext,
  type Route,
} from './route.js';
import { ADMIN_ROUTES } from './routes.js';

export interface AdminRequest {
  readonly method: string;
  /** Still percent-encoded. */
  readonly path: string;
  /** Without its question mark; may be empty. */
  readonly query: string;
  /** Empty where there was none. */
  readonly body: string;
}

export interface AdminApiOptions extends AdminContext {
  readonly log: Log;
}

const ROOT = '/admin/v1/';

/** A disk is rarely emptied within a second. */
const DISK_RETRY_SECONDS = 5;

export class AdminApi {
  readonly #context: AdminContext;
  readonly #log: Log;

  constructor(options: AdminApiOptions) {
    this.#context = options;
    this.#log = options.log;
  }

  /** Never throws, nor rejects: a refusal is a response, and a bug is logged and answered with `internal_error`. */
  handle(request: AdminRequest): AdminResponse | Promise<AdminResponse> {
    try {
      const answer = this.#response(request);
      return answer instanceof Promise
        ? answer.catch((error: unknown) => this.#failure(request, error))
        : answer;
    } catch (error) {
      return this.#failure(request, error);
    }
  }

  #failure(request: AdminRequest, error: unknown): AdminResponse {
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
        method: request.method,
        path: request.path,
        error: diskError,
      });
      return responseOfError({
        code: 'overloaded',
        message: `The books cannot be written: look at the disk of the data folder, ${diskError}. Nothing was changed. Retry after ${DISK_RETRY_SECONDS} seconds.`,
        retryAfterSeconds: DISK_RETRY_SECONDS,
      });
    }
    this.#log.error('admin request failed', {
      method: request.method,
      path: request.path,
      error: error instanceof Error ? (error.stack ?? error.message) : String(error),
    });
    return responseOfError({
      code: 'internal_error',
      message: 'The request failed: see the log of the gateway.',
    });
  }

  /** Of a request's body, before it is read. */
  bodyBytesMaxOf(method: string, path: string): number {
    const route = routesAt(segmentsOf(path)).find((found) => found.method === method);
    return route?.bodyBytesMax ?? ADMIN_BODY_BYTES_MAX;
  }

  #response(request: AdminRequest): AdminResponse | Promise<AdminResponse> {
    const segments = segmentsOf(request.path);
    const found = routesAt(segments);
    if (found.length === 0) {
      return responseOfError({ code: 'not_found', message: `There is nothing at ${request.path}.` });
    }
    const route = found.find(({ method }) => method === request.method);
    if (route === undefined) {
      return methodNotAllowed(
        request.method,
        found.map(({ method }) => method),
      );
    }
    const id = segments[route.segments.findIndex(isVariable)] ?? '';
    // What a GET sends beside its path means nothing (RFC 9110 §9.3.1).
    const body = route.method === 'GET' ? {} : parseBody(request.body);
    const input = { id, query: request.query, body };
    if (route.method === 'GET') return responded(route.answer(input, this.#context), () => undefined);
    let warning: string | undefined;
    const { service } = this.#context;
    const noted: RegistryService = {
      read: (work) => service.read(work),
      change: (work) => service.change(work, (processes) => (warning = behindText(processes))),
    };
    return responded(route.answer(input, { ...this.#context, service: noted }), () => warning);
  }
}

/** `warningOf` is asked when the response is there. */
function responded(
  view: unknown,
  warningOf: () => string | undefined,
): AdminResponse | Promise<AdminResponse> {
  if (!(view instanceof Promise)) return responseOfView(view);
  return view.then((late: unknown) => ({ ...responseOfView(late), warning: warningOf() }));
}

function behindText(processes: number): string {
  return `The change is made. ${processes} of the gateway processes did not confirm it in time: each takes it over as soon as it can.`;
}

function responseOfView(view: unknown): AdminResponse {
  const { contentType, text } =
    view instanceof TextResponse ? view : new TextResponse(JSON_TYPE, jsonText(view));
  return { status: 200, contentType, body: text };
}

function routesAt(segments: readonly string[]): Route[] {
  return ADMIN_ROUTES.filter((route) => matches(route.segments, segments));
}

function matches(path: readonly string[], segments: readonly string[]): boolean {
  return (
    path.length === segments.length && path.every((word, at) => isVariable(word) || word === segments[at])
  );
}

/** Empty where the path is not below the root or cannot be decoded: no route is empty, so that is a 404. */
function segmentsOf(path: string): string[] {
  if (!path.startsWith(ROOT)) return [];
  try {
    return path.slice(ROOT.length).split('/').map(decodeURIComponent);
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
