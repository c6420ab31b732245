/**
 * GET /openapi.json: the document of the interface, for anybody. Listener thread.
 */
import type { HttpResponse } from 'uWebSockets.js';
import type { CallContext } from '../pipeline/context.js';
import { PUBLIC_DOCUMENT } from '../protocol/generated-openapi.js';
import { endWithBody, JSON_TYPE, writeHead } from './answer.js';

export const DOCUMENT_PATH = '/openapi.json';

const BYTES = Buffer.from(PUBLIC_DOCUMENT);

/** `isHead`: without its body. `close` ends the connection. */
export function writeDocument(
  res: HttpResponse,
  context: CallContext,
  isHead: boolean,
  close: boolean,
): void {
  writeHead(res, 200, context, JSON_TYPE);
  endWithBody(res, BYTES, isHead, close);
}
