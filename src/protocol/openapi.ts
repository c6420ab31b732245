/**
 * Makes the OpenAPI document of the public interface, from its schemas and the error catalogue.
 * doors/build-generated.ts calls it in the build; admin/openapi.ts and tests use parts of it.
 *
 * Must hold: the document describes what callers send and get on the wire (test/judges/schemathesis.test.ts
 * compares responses of a gateway with the document; test/unit/request/response.heads.test.ts the headers,
 * which are written by hand). A new error code counts as one of calls, unless it is added to OTHER_CODES.
 */
import type { TSchema } from 'typebox';
import * as Type from 'typebox';
import { ANTHROPIC_DOORS, DOOR_PATHS, SERVICES, statusByDoor, type DoorName } from '../core/door-names.js';
import { ERROR_CODES, ERROR_KINDS, type ErrorCode } from '../core/errors.js';
import { IDEMPOTENCY_KEY_CHARS_MAX, IDEMPOTENCY_KEY_PATTERN } from '../core/limits.js';
import { packageVersion } from '../core/version.js';
import { ChatRequestSchema } from './chat-schema.js';

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
/** Statuses of responses that have the header; 529 is that of an overload at Anthropic's doors. */
const WITH_RETRY_AFTER: readonly number[] = [429, 503, 529];

/** The error body of the doors that speak Anthropic's Messages API. */
const MESSAGES_ERROR_SCHEMA = {
  type: 'object',
  required: ['type', 'error', 'request_id'],
  properties: {
    type: { const: 'error' },
    error: {
      type: 'object',
      required: ['type', 'message', 'details'],
      properties: {
        type: { type: 'string' },
        message: { type: 'string', description: 'what is wrong and what to do' },
        details: { type: 'object', properties: { error_code: { enum: Object.keys(ERROR_KINDS) } } },
      },
    },
    request_id: { type: 'string' },
  },
};

/**
 * The error responses of `door` by status, each with the codes that have this status. The document must have
 * ERROR_SCHEMA as component `Error`, and MESSAGES_ERROR_SCHEMA as `MessagesError`.
 */
export function errorResponses(codes: readonly ErrorCode[], door: DoorName = 'chat'): Record<string, object> {
  const byStatus = new Map<number, ErrorCode[]>();
  const name = ANTHROPIC_DOORS.includes(door) ? 'MessagesError' : 'Error';
  for (const code of codes) {
    const status = statusByDoor(door, code);
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  return Object.fromEntries(
    [...byStatus].map(([status, codesOfStatus]) => [
      String(status),
      {
        description: codesOfStatus.map((code) => `\`${code}\``).join(' or '),
        ...(WITH_RETRY_AFTER.includes(status) ? { headers: RETRY_AFTER } : {}),
        content: { 'application/json': { schema: reference(name) } },
      },
    ]),
  );
}

// Schemas of the responses. Providers may add members of their own, which are passed on, so objects are open.

const Usage = Type.Object({
  prompt_tokens: Type.Integer({ minimum: 0 }),
  completion_tokens: Type.Integer({ minimum: 0 }),
  total_tokens: Type.Integer({ minimum: 0 }),
});

const FinishReason = Type.Union([Type.String(), Type.Null()]);

const ChatCompletionSchema = Type.Object({
  id: Type.String(),
  object: Type.Literal('chat.completion'),
  created: Type.Integer(),
  model: Type.String(),
  choices: Type.Array(
    Type.Object({
      index: Type.Integer({ minimum: 0 }),
      message: Type.Object({
        role: Type.String(),
        content: Type.Optional(Type.Union([Type.String(), Type.Null()])),
      }),
      finish_reason: FinishReason,
    }),
  ),
  usage: Usage,
});

/** One event of a stream; the last is `data: [DONE]`. */
const ChatChunkSchema = Type.Object({
  id: Type.String(),
  object: Type.Literal('chat.completion.chunk'),
  created: Type.Integer(),
  model: Type.String(),
  choices: Type.Array(
    Type.Object({
      index: Type.Integer({ minimum: 0 }),
      delta: Type.Object({
        role: Type.Optional(Type.String()),
        content: Type.Optional(Type.Union([Type.String(), Type.Null()])),
      }),
      finish_reason: Type.Optional(FinishReason),
    }),
  ),
  usage: Type.Optional(Type.Union([Usage, Type.Null()])),
});

const ModelSchema = Type.Object({
  id: Type.String(),
  object: Type.Literal('model'),
  created: Type.Integer(),
  owned_by: Type.String(),
  serves: Type.Array(Type.Enum([...SERVICES])),
});

const ModelListSchema = Type.Object({
  object: Type.Literal('list'),
  data: Type.Array(ModelSchema),
});

/** The errors of the two routes of models. */
const MODEL_LIST_CODES: readonly ErrorCode[] = [
  'missing_api_key',
  'invalid_api_key',
  'key_disabled',
  'internal_error',
];
/** Errors of the admin interface, and those of a wrong path or method. */
const OTHER_CODES: readonly ErrorCode[] = [
  'not_found',
  'method_not_allowed',
  'conflict',
  'insufficient_role',
];
/** The errors of a call, at any door. */
const CALL_CODES = ERROR_CODES.filter((code) => !OTHER_CODES.includes(code));

const integerHeader = (description: string): object => ({ schema: { type: 'integer' }, description });

const REQUEST_ID = { 'x-request-id': { schema: { type: 'string' }, description: 'names the call in logs' } };
const CALL_HEADERS = {
  ...REQUEST_ID,
  'X-RateLimit-Limit': integerHeader('requests a minute'),
  'X-RateLimit-Remaining': integerHeader('of them left'),
  'X-RateLimit-Reset': integerHeader('Unix seconds at which a request is admitted again'),
  'x-ratelimit-limit-tokens': integerHeader('tokens a minute; absent if they have no limit'),
  'x-ratelimit-remaining-tokens': integerHeader('of them left'),
  'x-ratelimit-reset-tokens': {
    schema: { type: 'string', examples: ['1m0s', '12.5s', '40ms'] },
    description: 'time until tokens are available again',
  },
};

const reference = (name: string): object => ({ $ref: `#/components/schemas/${name}` });

/** What the document says of one door other than chat. */
export interface DoorOperation {
  readonly door: DoorName;
  readonly operationId: string;
  readonly summary: string;
  /** Name of the request's schema among the components. */
  readonly name: string;
  readonly schema: TSchema;
  /** A member that each non-streamed response has, and its type. */
  readonly marker: string;
  readonly markerType: 'array' | 'integer';
  /** Describes the events of a stream; absent if the door has no streams. */
  readonly events?: string;
}

/** The whole document, a plain object for JSON.stringify. `doors`: all doors but chat. */
export function publicDocument(doors: readonly DoorOperation[]): object {
  return {
    openapi: '3.1.0',
    info: {
      title: 'Tollgate',
      version: packageVersion(),
      license: { name: 'MIT', identifier: 'MIT' },
      description:
        'Calls of models, by the interfaces that clients know. Members of a request that are not named here are handed on as they are.',
    },
    servers: [{ url: '/' }],
    security: [{ key: [] }],
    paths: {
      '/v1/chat/completions': { post: chatOperation() },
      ...Object.fromEntries(
        doors.map((operation) => [DOOR_PATHS[operation.door], { post: doorOperation(operation) }]),
      ),
      '/v1/models': {
        get: {
          operationId: 'listModels',
          summary: 'List the models that the key may use.',
          responses: { 200: jsonResponse('ModelList', REQUEST_ID), ...errorResponses(MODEL_LIST_CODES) },
        },
      },
      '/v1/models/{model}': {
        get: {
          operationId: 'showModel',
          summary: 'Show a model.',
          parameters: [{ name: 'model', in: 'path', required: true, schema: { type: 'string' } }],
          responses: {
            200: jsonResponse('Model', REQUEST_ID),
            ...errorResponses(MODEL_LIST_CODES),
            404: {
              description: '`model_not_found`',
              content: { 'application/json': { schema: reference('Error') } },
            },
          },
        },
      },
    },
    components: {
      securitySchemes: { key: { type: 'http', scheme: 'bearer', description: 'an API key, sk-…' } },
      schemas: {
        ChatRequest: ChatRequestSchema,
        ...Object.fromEntries(doors.map(({ name, schema }) => [name, schema])),
        ChatCompletion: ChatCompletionSchema,
        ChatCompletionChunk: ChatChunkSchema,
        Model: ModelSchema,
        ModelList: ModelListSchema,
        Error: ERROR_SCHEMA,
        MessagesError: MESSAGES_ERROR_SCHEMA,
      },
    },
  };
}

const IDEMPOTENCY_KEY = {
  name: 'Idempotency-Key',
  in: 'header',
  required: false,
  description: 'a repeat with the same key and body gets the first answer and is not charged',
  schema: {
    type: 'string',
    minLength: 1,
    maxLength: IDEMPOTENCY_KEY_CHARS_MAX,
    pattern: IDEMPOTENCY_KEY_PATTERN,
  },
};

function doorOperation(operation: DoorOperation): object {
  const { door, operationId, summary, name, marker, markerType: type, events } = operation;
  const wholeResponse = { type: 'object', required: [marker], properties: { [marker]: { type } } };
  const stream = { 'text/event-stream': { schema: { type: 'string', description: events } } };
  return {
    operationId,
    summary,
    parameters: [IDEMPOTENCY_KEY],
    requestBody: { required: true, content: { 'application/json': { schema: reference(name) } } },
    responses: {
      200: {
        description: events === undefined ? 'The answer.' : 'The answer; with `stream: true` as events.',
        headers: CALL_HEADERS,
        content: { 'application/json': { schema: wholeResponse }, ...(events !== undefined && stream) },
      },
      ...errorResponses(CALL_CODES, door),
    },
  };
}

function chatOperation(): object {
  return {
    operationId: 'createChatCompletion',
    summary: 'Answer a conversation, at once or as a stream of server-sent events.',
    parameters: [IDEMPOTENCY_KEY],
    requestBody: { required: true, content: { 'application/json': { schema: reference('ChatRequest') } } },
    responses: {
      200: {
        description: 'The answer; with `stream: true` an event a chunk, and a last `data: [DONE]`.',
        headers: CALL_HEADERS,
        content: {
          'application/json': { schema: reference('ChatCompletion') },
          'text/event-stream': {
            schema: { type: 'string', description: 'each event is a ChatCompletionChunk' },
          },
        },
      },
      ...errorResponses(CALL_CODES),
    },
  };
}

function jsonResponse(schema: string, headers: object): object {
  return { description: 'Done.', headers, content: { 'application/json': { schema: reference(schema) } } };
}
