/**
 * What the specification's error table (and the few rows of docs/errors.md beyond it) promise of a response,
 * written down here a second time, so that the program's own catalogue is judged and not believed.
 */
import type { Test } from 'tap';

const TABLE = {
  missing_api_key: [401, 'authentication_error'],
  invalid_api_key: [401, 'authentication_error'],
  key_disabled: [403, 'permission_error'],
  insufficient_quota: [403, 'permission_error'],
  rate_limit_exceeded: [429, 'rate_limit_error'],
  daily_limit_exceeded: [429, 'rate_limit_error'],
  budget_exceeded: [429, 'rate_limit_error'],
  model_not_found: [400, 'invalid_request_error'],
  invalid_parameters: [400, 'invalid_request_error'],
  provider_unavailable: [502, 'provider_error'],
  internal_error: [500, 'server_error'],
  not_found: [404, 'invalid_request_error'],
  request_in_progress: [409, 'invalid_request_error'],
  conflict: [409, 'invalid_request_error'],
  insufficient_role: [403, 'permission_error'],
  method_not_allowed: [405, 'invalid_request_error'],
  request_timeout: [408, 'invalid_request_error'],
  request_too_large: [413, 'invalid_request_error'],
  unsupported_media_type: [415, 'invalid_request_error'],
  overloaded: [503, 'server_error'],
} as const;

export type ErrorName = keyof typeof TABLE;

export interface ErrorAnswer {
  readonly status: number;
  readonly body: string;
  /** Left out of what came as an event of a stream. */
  readonly headers?: Readonly<Record<string, string | string[] | undefined>> | ReadonlyMap<string, string>;
}

/** Always with `Retry-After`: docs/errors.md says so to callers. */
const WITH_RETRY_AFTER: readonly ErrorName[] = [
  'rate_limit_exceeded',
  'daily_limit_exceeded',
  'budget_exceeded',
  'request_in_progress',
  'overloaded',
];

/** Shorter ones do not say what to do. */
const MESSAGE_CHARS_MIN = 15;

/**
 * Asserts status, type, code and shape of a response, and returns its message. `status` where it is not the
 * table's: an unknown model in a path.
 */
export function checkError(
  t: Test,
  answer: ErrorAnswer,
  code: ErrorName,
  name: string,
  status?: number,
): string {
  const [tableStatus, type] = TABLE[code];
  t.equal(answer.status, status ?? tableStatus, `${name}: status (body: ${answer.body.slice(0, 200)})`);
  const body = JSON.parse(answer.body) as { error: { message: string; type: string; code: string } };
  t.same(Object.keys(body), ['error'], `${name}: nothing but the error`);
  t.same(Object.keys(body.error).sort(), ['code', 'message', 'type'], `${name}: three fields`);
  t.equal(body.error.code, code, `${name}: code`);
  t.equal(body.error.type, type, `${name}: type`);
  t.type(body.error.message, 'string');
  t.ok(body.error.message.length >= MESSAGE_CHARS_MIN, `${name}: message "${body.error.message}"`);
  if (answer.headers !== undefined && WITH_RETRY_AFTER.includes(code)) {
    const { headers } = answer;
    const entries: Iterable<readonly [string, unknown]> =
      headers instanceof Map ? headers : Object.entries(headers);
    t.match(String(new Map(entries).get('retry-after')), /^[1-9]\d*$/, `${name}: Retry-After`);
  }
  return body.error.message;
}
