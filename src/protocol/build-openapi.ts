/**
 * Build step, after tsc: writes the document of the public interface into a module, so that listener threads serve it
 * without loading TypeBox (10 MB a thread). Run as `node dist/protocol/build-openapi.js`.
 */
import { writeFileSync } from 'node:fs';
import { jsonText } from '../core/json.js';
import { publicDocument } from './openapi.js';

writeFileSync(
  new URL('./generated-openapi.js', import.meta.url),
  [
    '// Made by build-openapi.js from openapi.js; do not edit.',
    `export const PUBLIC_DOCUMENT = ${JSON.stringify(jsonText(publicDocument()))};`,
    '',
  ].join('\n'),
);
