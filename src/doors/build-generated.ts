/**
 * A build step: `npm run build` runs it after tsc as `node dist/doors/build-generated.js`. It writes
 * protocol/generated.js: the compiled validators of requests, and the OpenAPI document. So no thread that
 * faces the network loads TypeBox (10 MB a thread) or makes code from strings.
 *
 * Must hold: the module that it writes imports nothing (test/unit/protocol/validators.test.ts).
 */
import { writeFileSync } from 'node:fs';
import type { TSchema } from 'typebox';
import { checkCode } from '../core/check-code.js';
import { jsonText } from '../core/json.js';
import { ChatRequestSchema } from '../protocol/chat-schema.js';
import { publicDocument } from '../protocol/openapi.js';
import { CountRequestSchema, MessagesRequestSchema } from './messages/messages-schema.js';
import {
  CompletionsRequestSchema,
  EmbeddingsRequestSchema,
  ModerationsRequestSchema,
  RerankRequestSchema,
} from './simple/simple-schema.js';
import { DOOR_DOCUMENTS } from './door-documents.js';
import { ResponsesRequestSchema } from './responses/responses-schema.js';

/**
 * Schemas by the name of the validator. A new one needs a line in generated.d.ts and in validators.ts too.
 */
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
