/**
 * Builds the OpenAPI document of the admin interface from its routes: routes.ts at the first request for
 * `/admin/v1/openapi.json`, and `npm run docs`. Pure; main thread.
 *
 * Must hold: each route is in the document and responds as the document says; operationIds differ
 * (test/unit/admin/openapi.test.ts calls all routes). An operationId stays, and so do names of parameters and
 * fields, for generated clients (test/unit/admin/stable-names.test.ts).
 */
import type { TObject, TSchema } from 'typebox';
import type { ErrorCode } from '../core/errors.js';
import { ROLES } from '../core/roles.js';
import { packageVersion } from '../core/version.js';
import { ERROR_SCHEMA, errorResponses } from '../protocol/openapi.js';
import { REFERENCE_RULE } from '../registry/record-id.js';
import { ROOT } from './addresses.js';
import { LIVE_ROUTE } from './other-routes.js';
import { isVariable, JSON_TYPE, type Route } from './route.js';
import { RangeQuery, withRules } from './fields.js';

/** Returns the document as a value that JSON can express. `routes` has no LIVE_ROUTE, so it is added. */
export function adminDocument(routes: readonly Route[]): object {
  const paths: Record<string, Record<string, object>> = {};
  for (const route of routes) {
    const path = (paths[`${ROOT}${route.path}`] ??= {});
    path[route.method.toLowerCase()] = operationOf(route);
  }
  // Its path has ROOT already, because server.ts compares it with whole paths: it is a stream, not a Route.
  paths[LIVE_ROUTE.path] = { get: LIVE_OPERATION };
  return {
    openapi: '3.1.0',
    info: {
      title: 'Tollgate admin interface',
      version: packageVersion(),
      license: { name: 'MIT', identifier: 'MIT' },
      description:
        'Accounts, groups, keys, usage and status of a gateway. Money is decimal text, moments are Unix seconds. The roles in x-tollgate-roles may use an operation, others get a 403. /admin/session and /admin/playground are for the console in a browser alone, which has a cookie in place of the token, and may change: programs want neither.',
    },
    servers: [{ url: '/' }],
    security: [{ token: [] }],
    paths,
    components: {
      securitySchemes: {
        token: {
          type: 'http',
          scheme: 'bearer',
          description: 'the admin token, or the token of an operator',
        },
      },
      schemas: { Error: ERROR_SCHEMA },
    },
  };
}

function operationOf(route: Route): object {
  const { summary, body, responseSchema, otherTypes } = route;
  const takesBody = Object.keys(body.properties).length > 0;
  return {
    operationId: operationIdOf(route),
    summary,
    'x-tollgate-roles': route.roles,
    parameters: [...pathParameters(route), ...queryParameters(route.query)],
    ...(takesBody && {
      requestBody: {
        required: requiredOf(body).length > 0,
        content: { [JSON_TYPE]: { schema: withRules(body) } },
      },
    }),
    responses: {
      200: {
        description: 'Done.',
        content: {
          [JSON_TYPE]: { schema: openSchema(responseSchema) },
          ...Object.fromEntries(otherTypes.map((type) => [type, { schema: { type: 'string' } }])),
        },
      },
      ...errorResponses(codesOf(route)),
    },
  };
}

/**
 * The schema without `additionalProperties: false` (closedObject of views.ts): a later version may add fields
 * to a response, and clients that were generated from the document must not reject them.
 */
function openSchema(schema: TSchema): unknown {
  const text = JSON.stringify(schema, (name, value: unknown) =>
    name === 'additionalProperties' && value === false ? undefined : value,
  );
  return JSON.parse(text);
}

/** Fields of queries that name something, and whose schema has no rule. */
const REFERENCE_FIELDS = ['account', 'group'];
const REFERENCE_RULE_TEXT = JSON.stringify(REFERENCE_RULE);

/** Whether what the field names may not be found. A `referenceSchema` may be deep within the field. */
function isReference([name, schema]: readonly [string, TSchema]): boolean {
  return REFERENCE_FIELDS.includes(name) || JSON.stringify(schema).includes(REFERENCE_RULE_TEXT);
}

/** Returns the codes of the errors that the document lists for the route. */
function codesOf({ method, roles, segments, query, body }: Route): ErrorCode[] {
  const fields = { ...query.properties, ...body.properties };
  const hasReference = segments.some(isVariable) || Object.entries(fields).some(isReference);
  // A change conflicts if a key was rotated already, or a group is not empty. If hosts share, it also
  // conflicts if nobody could confirm whether it was made. `/hosts` conflicts if no host shares.
  const mayConflict = method !== 'GET' || segments.includes('hosts');
  return [
    'invalid_parameters',
    'missing_api_key',
    'invalid_api_key',
    ...(roles.length < ROLES.length ? (['insufficient_role'] as const) : []),
    ...(hasReference ? (['not_found'] as const) : []),
    ...(mayConflict ? (['conflict'] as const) : []),
    ...(method === 'GET' ? [] : (['request_too_large'] as const)),
    'rate_limit_exceeded',
    'overloaded',
    'internal_error',
  ];
}

/** Such as `postAccountsCredit` for `POST /accounts/{account}/credit`; `getAccountsOne` for one account. */
function operationIdOf({ method, segments }: Route): string {
  const words = segments.filter((segment) => !isVariable(segment)).map(pascalCased);
  // route.ts splits the path, which gives at least one segment.
  const endsWithOne = isVariable(segments.at(-1)!);
  return `${method.toLowerCase()}${words.join('')}${endsWithOne ? 'One' : ''}`;
}

function pascalCased(segment: string): string {
  return segment
    .split(/[-.]/)
    .map((word) => word.charAt(0).toUpperCase() + word.slice(1))
    .join('');
}

function pathParameters({ segments }: Route): object[] {
  return segments.filter(isVariable).map((segment) => ({
    name: segment.slice(1, -1),
    in: 'path',
    required: true,
    description: 'id or unique name',
    schema: { type: 'string', minLength: 1, ...REFERENCE_RULE },
  }));
}

function queryParameters(query: TObject): object[] {
  const required = requiredOf(query);
  return Object.entries(query.properties).map(([name, schema]) => ({
    name,
    in: 'query',
    required: required.includes(name),
    schema: withRules(schema),
  }));
}

/** TypeBox leaves `required` out if all properties are optional, although its type has the member. */
function requiredOf(schema: TObject): readonly string[] {
  return Array.isArray(schema.required) ? schema.required : [];
}

/**
 * The operation of LIVE_ROUTE, which live-feed.ts serves. It repeats by hand what that file sends:
 * openapi.test.ts compares the range, the content type and two errors, but no events. The errors lack
 * `insufficient_role`, because all roles may use the route.
 */
const LIVE_OPERATION = {
  operationId: 'getLive',
  summary: 'Stream the status every two seconds, and the history of its figures.',
  'x-tollgate-roles': LIVE_ROUTE.roles,
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
