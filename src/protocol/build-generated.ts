/**
 * Build step, run after tsc as `node dist/protocol/build-generated.js`. Writes generated.js: the compiled
 * validator of chat requests, and the OpenAPI document. So no thread that faces the network loads TypeBox (10
 * MB a thread) or makes code from strings.
 */
import { writeFileSync } from 'node:fs';
import { Code } from 'typebox/compile';
import { jsonText } from '../core/json.js';
import { ChatRequestSchema } from './chat-schema.js';
import { publicDocument } from './openapi.js';

const CHECK = 'export function Check(';

const { Code: code, External: external } = Code(ChatRequestSchema);

// Code() imports TypeBox's helpers, whether or not the schema needs them.
const body = code
  .replace(/^import \{ \w+ \} from "typebox\/\w+"$/gm, '')
  // A string has a character if it has a UTF-16 unit; other lengths would need the helper.
  .replace(/Guard\.CodePointCount\(([\w.]+)\) >= 1\b/g, '$1.length >= 1')
  .trimStart();
if (
  /\b(?:Guard|Hashing|CheckContext)\b/.test(body) ||
  external.variables.length > 0 ||
  !body.includes(CHECK)
) {
  throw new Error(
    'the request schema does not compile to a module that stands alone; see protocol/chat-schema.ts',
  );
}

writeFileSync(
  new URL('./generated.js', import.meta.url),
  [
    '// Made by build-generated.js from chat-schema.js and openapi.js; do not edit.',
    'export const COMPILED = true;',
    body.replace(CHECK, 'export function checkChatRequest('),
    `export const PUBLIC_DOCUMENT = ${JSON.stringify(jsonText(publicDocument()))};`,
    '',
  ].join('\n'),
);
