/**
 * The error catalogue as OpenAPI responses, for the documents of both interfaces. Pure; main thread, and the build.
 */
import { ERROR_KINDS, type ErrorCode } from '../core/errors.js';

export const ERROR_SCHEMA = {
  type: 'object',
  required: ['error'],
  additionalProperties: false,
  properties: {
    error: {
      type: 'object',
      required: ['message', 'type', 'code'],
      additionalProperties: false,
      properties: {
        message: { type: 'string', description: 'what is wrong and what to do' },
        type: { enum: [...new Set(Object.values(ERROR_KINDS).map(({ type }) => type))] },
        code: { enum: Object.keys(ERROR_KINDS) },
      },
    },
  },
};

const RETRY_AFTER = {
  'Retry-After': { schema: { type: 'integer' }, description: 'seconds to wait' },
};
const WITH_RETRY_AFTER: readonly number[] = [429, 503];

/** Responses by status, each with the codes that it may have; the document has `ERROR_SCHEMA` as component `Error`. */
export function errorResponses(codes: readonly ErrorCode[]): Record<string, object> {
  const byStatus = new Map<number, ErrorCode[]>();
  for (const code of codes) {
    const { status } = ERROR_KINDS[code];
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  return Object.fromEntries(
    [...byStatus].map(([status, sharing]) => [
      String(status),
      {
        description: sharing.map((code) => `\`${code}\``).join(' or '),
        ...(WITH_RETRY_AFTER.includes(status) ? { headers: RETRY_AFTER } : {}),
        content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
      },
    ]),
  );
}
