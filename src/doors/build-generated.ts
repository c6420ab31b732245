/**
 * A build step: `npm run build` runs it after tsc as `node dist/doors/build-generated.js`. It writes
 * protocol/generated.js: the compiled validators of requests, and the OpenAPI document. So no thread that
 * faces the network loads TypeBox (10 MB a thread) or makes code from strings.
 *
 * Must hold: the module that it writes imports nothing (test/unit/protocol/validators.test.ts).
 */
import { writeFileSync } from 'node:fs';
import type { TSchema } from 'typebox';
import { Code } from 'typebox/compile';
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

const CHECK = 'export function Check(';

/** Throws an Error if TypeBox makes code for the schema that needs TypeBox. */
function moduleOf(name: string, schema: TSchema): string {
  const { Code: code, External: external } = Code(schema);
  // Code() imports TypeBox's helpers, whether or not the schema needs them.
  const body = code
    .replace(/^import \{ \w+ \} from "typebox\/\w+"$/gm, '')
    // A string has a character if it has a UTF-16 unit; other lengths would need the helper.
    .replace(/Guard\.CodePointCount\(([\w.]+)\) >= 1\b/g, '$1.length >= 1')
    .replace(/^.*SetExternal.*$/m, '')
    .trim();
  if (
    /\b(?:Guard|Hashing|CheckContext)\b/.test(body) ||
    external.variables.length > 0 ||
    !body.includes(CHECK)
  )
    throw new Error(`the schema of ${name} does not compile to code that stands alone; see its file`);
  return `export const ${name} = (() => {\n${body.replace(CHECK, 'return function (')}\n})();`;
}

writeFileSync(
  new URL('../protocol/generated.js', import.meta.url),
  [
    '// Made by build-generated.js from the schemas of requests and openapi.js; do not edit.',
    'export const COMPILED = true;',
    ...Object.entries(SCHEMAS).map(([name, schema]) => moduleOf(name, schema)),
    `export const PUBLIC_DOCUMENT = ${JSON.stringify(jsonText(publicDocument(DOOR_DOCUMENTS)))};`,
    '',
  ].join('\n'),
);
