/**
 * A build step: `npm run build` runs it after tsc as `node dist/doors/build-generated.js`. It writes
 * protocol/generated.js, the compiled validators of requests and the OpenAPI document, so that no thread that
 * faces the network loads TypeBox (10 MB a thread) or makes code from strings.
 *
 * Must hold: the written module imports nothing (test/unit/protocol/validators.test.ts). `marker` of each
 * door is that of its Dialect (dialects.ts); no test compares the two.
 */
import { writeFileSync } from 'node:fs';
import type { TSchema } from 'typebox';
import { checkCode } from '../core/check-code.js';
import { jsonText } from '../core/json.js';
import { ChatRequestSchema } from '../protocol/chat-schema.js';
import { type DoorOperation, publicDocument } from '../protocol/openapi.js';
import {
  CompletionsRequestSchema,
  CountRequestSchema,
  EmbeddingsRequestSchema,
  MessagesRequestSchema,
  ModerationsRequestSchema,
  RerankRequestSchema,
  ResponsesRequestSchema,
} from './request-schemas.js';

/** What the OpenAPI document says of each door; protocol/openapi.ts itself has that of chat. */
const DOOR_DOCUMENTS: readonly DoorOperation[] = [
  {
    door: 'messages',
    operationId: 'createMessage',
    summary: 'Answer a conversation by the Messages API of Anthropic.',
    name: 'MessagesRequest',
    schema: MessagesRequestSchema,
    marker: 'content',
    events: 'from message_start to message_stop; an error ends it with `event: error`',
  },
  {
    door: 'responses',
    operationId: 'createResponse',
    summary: 'Answer a conversation by the Responses API of OpenAI.',
    name: 'ResponsesRequest',
    schema: ResponsesRequestSchema,
    marker: 'output',
    events: 'from response.created to response.completed or response.incomplete; an error ends it',
  },
  {
    door: 'embeddings',
    operationId: 'createEmbeddings',
    summary: 'Make vectors of texts.',
    name: 'EmbeddingsRequest',
    schema: EmbeddingsRequestSchema,
    marker: 'data',
  },
  {
    door: 'completions',
    operationId: 'createCompletion',
    summary: 'Continue a text, by the former interface.',
    name: 'CompletionsRequest',
    schema: CompletionsRequestSchema,
    marker: 'choices',
    events: 'chunks with choices, and a last `data: [DONE]`',
  },
  {
    door: 'moderations',
    operationId: 'createModeration',
    summary: 'Judge texts.',
    name: 'ModerationsRequest',
    schema: ModerationsRequestSchema,
    marker: 'results',
  },
  {
    door: 'rerank',
    operationId: 'createRerank',
    summary: 'Order documents by a query.',
    name: 'RerankRequest',
    schema: RerankRequestSchema,
    marker: 'results',
  },
  {
    door: 'count_tokens',
    operationId: 'countMessageTokens',
    summary: 'Count the tokens of a prompt by the Messages API of Anthropic, at no cost.',
    name: 'CountTokensRequest',
    schema: CountRequestSchema,
    marker: 'input_tokens',
    markerType: 'integer',
  },
];

/** Schemas by the name of the validator. A new one needs a line in generated.d.ts and validators.ts too. */
const SCHEMAS: Readonly<Record<string, TSchema>> = {
  checkChatRequest: ChatRequestSchema,
  checkMessagesRequest: MessagesRequestSchema,
  checkCountRequest: CountRequestSchema,
  checkEmbeddingsRequest: EmbeddingsRequestSchema,
  checkCompletionsRequest: CompletionsRequestSchema,
  checkModerationsRequest: ModerationsRequestSchema,
  checkRerankRequest: RerankRequestSchema,
  checkResponsesRequest: ResponsesRequestSchema,
};

writeFileSync(
  new URL('../protocol/generated.js', import.meta.url),
  [
    '// Made by build-generated.js from the schemas of requests and openapi.js; do not edit.',
    'export const COMPILED = true;',
    ...Object.entries(SCHEMAS).map(([name, schema]) => `export const ${name} = ${checkCode(name, schema)};`),
    `export const PUBLIC_DOCUMENT = ${JSON.stringify(jsonText(publicDocument(DOOR_DOCUMENTS)))};`,
    '',
  ].join('\n'),
);
