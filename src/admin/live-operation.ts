/**
 * `GET /admin/v1/live` as the OpenAPI document tells of it: it answers without an end, so it is no route of the table. Pure; main
 * thread.
 */
import { errorResponses } from '../protocol/openapi-errors.js';
import { RangeQuery } from './fields.js';

export const LIVE_PATH = '/live';

export const LIVE_OPERATION = {
  operationId: 'getLive',
  summary: 'Stream the status every two seconds, and the course of its figures.',
  parameters: [{ name: 'range', in: 'query', required: false, schema: RangeQuery.properties.range }],
  responses: {
    200: {
      description: 'A stream that ends when the caller leaves, or the gateway.',
      content: {
        'text/event-stream': {
          schema: {
            type: 'string',
            description:
              'Server-sent events: `history` once, first, with the spans of the range that have ended; `now` every two seconds with what `/admin/v1/status` answers; `span` whenever one of the range has ended.',
          },
        },
      },
    },
    ...errorResponses([
      'invalid_parameters',
      'missing_api_key',
      'invalid_api_key',
      'rate_limit_exceeded',
      'overloaded',
    ]),
  },
};
