/**
 * Build step, after tsc: makes a standalone module of the request's schema, so that no thread that faces the network loads
 * TypeBox (10 MB a thread) or makes code from strings. Run as `node dist/protocol/build-validators.js`.
 */
import { writeFileSync } from 'node:fs';
import { Code } from 'typebox/compile';
import { ChatRequestSchema } from './chat-schema.js';

const TARGET = new URL('./generated-validators.js', import.meta.url);
const CHECK = 'export function Check(';

const { Code: code, External: external } = Code(ChatRequestSchema);

// Code() imports TypeBox's helpers whether or not the schema needs them.
const body = code
  .replace(/^import \{ \w+ \} from "typebox\/\w+"$/gm, '')
  // A string has a character if it has a unit; other lengths would need the helper.
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
  TARGET,
  [
    '// Made by build-validators.js from chat-schema.js; do not edit.',
    'export const COMPILED = true;',
    body.replace(CHECK, 'export function checkChatRequest('),
    '',
  ].join('\n'),
);
