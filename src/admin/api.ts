/**
 * The admin interface without its sockets: a request as plain text in, an answer as plain text out. Main thread. The
 * server hands it what comes over HTTP; a command, while no gateway runs, calls it directly.
 */
import { jsonText } from '../core/json-text.js';
import { errorBody, ProxyError, statusOf, type ErrorRecord } from '../core/errors.js';
import { invalid } from '../registry/record-id.js';
import type { Registry } from '../registry/registry.js';
import type { Log } from '../telemetry/log.js';
import { adminRoutes, type Route } from './routes.js';

/** A body of the admin interface is a handful of fields; the longest is a note of 500 characters. */
export const ADMIN_BODY_BYTES_MAX = 64 * 1024;

export interface AdminRequest {
  readonly method: string;
  /** Still percent-encoded. */
  readonly path: string;
  /** Without its question mark; may be empty. */
  readonly query: string;
  /** Empty where there was none. */
  readonly body: string;
}

export interface AdminAnswer {
  readonly status: number;
  /** JSON text. */
  readonly body: string;
  /** For the header `allow` of a 405. */
  readonly allow: string | undefined;
}

export interface AdminApiOptions {
  readonly registry: Registry;
  /** What `/admin/v1/status` shows. */
  readonly status: () => object;
  readonly log: Log;
}

const ROOT = '/admin/v1/';

export class AdminApi {
  readonly #routes: readonly Route[];
  readonly #log: Log;

  constructor({ registry, status, log }: AdminApiOptions) {
    this.#routes = adminRoutes(registry, status);
    this.#log = log;
  }

  /** Never throws: a refusal is an answer, and a bug is logged and answered with `internal_error`. */
  handle(request: AdminRequest): AdminAnswer {
    try {
      return this.#answer(request);
    } catch (error) {
      if (error instanceof ProxyError) return answerOfError({ code: error.code, message: error.message });
      this.#log.error('admin request failed', {
        method: request.method,
        path: request.path,
        error: error instanceof Error ? (error.stack ?? error.message) : String(error),
      });
      return answerOfError({
        code: 'internal_error',
        message: 'The request failed: see the log of the gateway.',
      });
    }
  }

  #answer(request: AdminRequest): AdminAnswer {
    const segments = segmentsOf(request.path);
    const found = this.#routes.filter((route) => matches(route.path, segments));
    if (found.length === 0) {
      return answerOfError({ code: 'not_found', message: `There is nothing at ${request.path}.` });
    }
    const route = found.find(({ method }) => method === request.method);
    if (route === undefined) {
      const allow = found.map(({ method }) => method).join(', ');
      const message = `${request.method} is not possible here, but ${allow}.`;
      return { ...answerOfError({ code: 'method_not_allowed', message }), allow };
    }
    const id = segments[route.path.indexOf(':id')] ?? '';
    const view = route.answer({ id, query: parseQuery(request.query), body: parseBody(request.body) });
    return { status: 200, body: jsonText(view), allow: undefined };
  }
}

export function answerOfError(error: ErrorRecord): AdminAnswer {
  return { status: statusOf(error), body: errorBody(error), allow: undefined };
}

function matches(path: readonly string[], segments: readonly string[]): boolean {
  return path.length === segments.length && path.every((word, at) => word === ':id' || word === segments[at]);
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

function parseQuery(query: string): Record<string, string> {
  return Object.fromEntries(new URLSearchParams(query));
}

function parseBody(body: string): unknown {
  if (body === '') return {};
  try {
    return JSON.parse(body);
  } catch (error) {
    throw invalid(`the body must be JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
}
