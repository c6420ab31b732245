/**
 * A build step: `npm run build` runs it after tsc as `node dist/doors/build-generated.js`. It writes
 * protocol/generated.js, the compiled checks of requests and the OpenAPI document, so that no thread that
 * faces the network loads TypeBox (10 MB a thread) or makes code from strings.
 *
 * Must hold: the written module imports nothing (test/unit/protocol/request-rules.test.ts).
 */
import { writeFileSync } from 'node:fs';
import { checkCode } from '../core/check-code.js';
import { DOOR_INDEX, type DoorName } from '../core/door-names.js';
import { jsonText } from '../core/json.js';
import { type DoorOperation, publicDocument } from '../protocol/openapi.js';
import { dialectAt } from './dialects.js';
import { REQUEST_SCHEMAS } from './request-schemas.js';

/** What the OpenAPI document says of each door but chat, which protocol/openapi.ts itself describes. */
const DOOR_DOCUMENTS: Readonly<
  Record<Exclude<DoorName, 'chat'>, Omit<DoorOperation, 'door' | 'schema' | 'marker' | 'markerType'>>
> = {
  messages: {
    operationId: 'createMessage',
    summary: 'Answer a conversation by the Messages API of Anthropic.',
    name: 'MessagesRequest',
    events: 'from message_start to message_stop; an error ends it with `event: error`',
  },
  responses: {
    operationId: 'createResponse',
    summary: 'Answer a conversation by the Responses API of OpenAI.',
    name: 'ResponsesRequest',
    events: 'from response.created to response.completed or response.incomplete; an error ends it',
  },
  embeddings: {
    operationId: 'createEmbeddings',
    summary: 'Make vectors of texts.',
    name: 'EmbeddingsRequest',
  },
  completions: {
    operationId: 'createCompletion',
    summary: 'Continue a text, by the former interface.',
    name: 'CompletionsRequest',
    events: 'chunks with choices, and a last `data: [DONE]`',
  },
  moderations: {
    operationId: 'createModeration',
    summary: 'Judge texts.',
    name: 'ModerationsRequest',
  },
  rerank: {
    operationId: 'createRerank',
    summary: 'Order documents by a query.',
    name: 'RerankRequest',
  },
  count_tokens: {
    operationId: 'countMessageTokens',
    summary: 'Count the tokens of a prompt by the Messages API of Anthropic, at no cost.',
    name: 'CountTokensRequest',
  },
};

const documentedDoors = Object.keys(DOOR_DOCUMENTS) as (keyof typeof DOOR_DOCUMENTS)[];
const operations = documentedDoors.map((door): DoorOperation => {
  // Every door but chat has a dialect (dialects.ts).
  const { marker, isCount } = dialectAt(DOOR_INDEX[door])!;
  const schema = REQUEST_SCHEMAS[door];
  const markerType = isCount === true ? 'integer' : 'array';
  return { door, ...DOOR_DOCUMENTS[door], schema, marker, markerType };
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
