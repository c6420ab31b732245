/**
 * The OpenAPI document of the public interface, from its schemas and the error catalogue. Loaded at build time alone.
 */
import type { ErrorCode } from '../core/errors.js';
import { packageVersion } from '../core/version.js';
import { ChatChunkSchema, ChatCompletionSchema, ModelListSchema, ModelSchema } from './answer-schemas.js';
import { ChatRequestSchema } from './chat-schema.js';
import { ERROR_SCHEMA, errorResponses } from './openapi-errors.js';

const KEY_CODES: readonly ErrorCode[] = [
  'missing_api_key',
  'invalid_api_key',
  'key_disabled',
  'internal_error',
];
const CHAT_CODES: readonly ErrorCode[] = [
  'invalid_parameters',
  'model_not_found',
  'missing_api_key',
  'invalid_api_key',
  'key_disabled',
  'insufficient_quota',
  'request_in_progress',
  'request_too_large',
  'rate_limit_exceeded',
  'daily_limit_exceeded',
  'internal_error',
  'provider_unavailable',
  'overloaded',
];

const integerHeader = (description: string): object => ({ schema: { type: 'integer' }, description });

const REQUEST_ID = { 'x-request-id': { schema: { type: 'string' }, description: 'names the call in logs' } };
const CHAT_HEADERS = {
  ...REQUEST_ID,
  'X-RateLimit-Limit': integerHeader('requests a minute'),
  'X-RateLimit-Remaining': integerHeader('of them left'),
  'X-RateLimit-Reset': integerHeader('Unix seconds at which a request is admitted again'),
};

const reference = (name: string): object => ({ $ref: `#/components/schemas/${name}` });

/** JSON-ready. */
export function publicDocument(): object {
  return {
    openapi: '3.1.0',
    info: {
      title: 'Tollgate',
      version: packageVersion(),
      license: { name: 'MIT', identifier: 'MIT' },
      description:
        'Chat completions and models. Members of a request that are not named here are handed on as they are.',
    },
    servers: [{ url: '/' }],
    security: [{ key: [] }],
    paths: {
      '/v1/chat/completions': { post: chatOperation() },
      '/v1/models': {
        get: {
          operationId: 'listModels',
          summary: 'List the models that the key may use.',
          responses: { 200: jsonAnswer('ModelList', REQUEST_ID), ...errorResponses(KEY_CODES) },
        },
      },
      '/v1/models/{model}': {
        get: {
          operationId: 'showModel',
          summary: 'Show a model.',
          parameters: [{ name: 'model', in: 'path', required: true, schema: { type: 'string' } }],
          responses: {
            200: jsonAnswer('Model', REQUEST_ID),
            ...errorResponses(KEY_CODES),
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
        ChatCompletion: ChatCompletionSchema,
        ChatCompletionChunk: ChatChunkSchema,
        Model: ModelSchema,
        ModelList: ModelListSchema,
        Error: ERROR_SCHEMA,
      },
    },
  };
}

function chatOperation(): object {
  return {
    operationId: 'createChatCompletion',
    summary: 'Answer a conversation, at once or as a stream of server-sent events.',
    parameters: [
      {
        name: 'Idempotency-Key',
        in: 'header',
        required: false,
        description: 'a repeat with the same key and body gets the first answer and is not charged',
        schema: { type: 'string', minLength: 1, maxLength: 255 },
      },
    ],
    requestBody: { required: true, content: { 'application/json': { schema: reference('ChatRequest') } } },
    responses: {
      200: {
        description: 'The answer; with `stream: true` an event a chunk, and a last `data: [DONE]`.',
        headers: CHAT_HEADERS,
        content: {
          'application/json': { schema: reference('ChatCompletion') },
          'text/event-stream': {
            schema: { type: 'string', description: 'each event is a ChatCompletionChunk' },
          },
        },
      },
      ...errorResponses(CHAT_CODES),
    },
  };
}

function jsonAnswer(schema: string, headers: object): object {
  return { description: 'Done.', headers, content: { 'application/json': { schema: reference(schema) } } };
}
