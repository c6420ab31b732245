/**
 * A build step: `npm run build` runs it after tsc as `node dist/doors/build-generated.js`. It writes
 * protocol/generated.js, the compiled checks of requests and the OpenAPI document, so that no thread that
 * faces the network loads TypeBox (10 MB a thread) or makes code from strings.
 *
 * Must hold: the written module imports nothing (test/unit/protocol/request-rules.test.ts).
 */
import { writeFileSync } from 'node:fs';
import { checkCode } from '../core/check-code.js';
import { DOOR_INDEX } from '../core/door-names.js';
import { jsonText } from '../core/json.js';
import { type DoorOperation, publicDocument } from '../protocol/openapi.js';
import { dialectAt } from './dialects.js';
import { REQUEST_SCHEMAS } from './request-schemas.js';

/** What the OpenAPI document says of each door but chat, which protocol/openapi.ts itself describes. */
const DOOR_DOCUMENTS: readonly Omit<DoorOperation, 'schema' | 'marker' | 'markerType'>[] = [
  {
    door: 'messages',
    operationId: 'createMessage',
    summary: 'Answer a conversation by the Messages API of Anthropic.',
    name: 'MessagesRequest',
    events: 'from message_start to message_stop; an error ends it with `event: error`',
  },
  {
    door: 'responses',
    operationId: 'createResponse',
    summary: 'Answer a conversation by the Responses API of OpenAI.',
    name: 'ResponsesRequest',
    events: 'from response.created to response.completed or response.incomplete; an error ends it',
  },
  {
    door: 'embeddings',
    operationId: 'createEmbeddings',
    summary: 'Make vectors of texts.',
    name: 'EmbeddingsRequest',
  },
  {
    door: 'completions',
    operationId: 'createCompletion',
    summary: 'Continue a text, by the former interface.',
    name: 'CompletionsRequest',
    events: 'chunks with choices, and a last `data: [DONE]`',
  },
  {
    door: 'moderations',
    operationId: 'createModeration',
    summary: 'Judge texts.',
    name: 'ModerationsRequest',
  },
  {
    door: 'rerank',
    operationId: 'createRerank',
    summary: 'Order documents by a query.',
    name: 'RerankRequest',
  },
  {
    door: 'count_tokens',
    operationId: 'countMessageTokens',
    summary: 'Count the tokens of a prompt by the Messages API of Anthropic, at no cost.',
    name: 'CountTokensRequest',
  },
];

const operations = DOOR_DOCUMENTS.map((operation): DoorOperation => {
  const { marker, isCount } = dialectAt(DOOR_INDEX[operation.door])!;
  const schema = REQUEST_SCHEMAS[operation.door];
  return { ...operation, schema, marker, markerType: isCount === true ? 'integer' : 'array' };
});

const rules = Object.entries(REQUEST_SCHEMAS).map(
  ([door, schema]) => `  ${door}: { check: ${checkCode(door, schema)}, schema: ${JSON.stringify(schema)} },`,
);

writeFileSync(
  new URL('../protocol/generated.js', import.meta.url),
  [
    '// Made by build-generated.js from the schemas of requests and openapi.js; do not edit.',
    `export const REQUEST_RULES = {\n${rules.join('\n')}\n};`,
    `export const PUBLIC_DOCUMENT = ${JSON.stringify(jsonText(publicDocument(operations)))};`,
    '',
  ].join('\n'),
);
