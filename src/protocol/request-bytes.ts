/**
 * From a body's bytes to what the gateway has to know of it, or to the 400 that its sender gets. Pure; listener thread, and the
 * counter pool for large bodies.
 */
import { decodeBody, readChatRequest, type ChatRequestResult } from './chat-request.js';

const INVALID_UTF8: ChatRequestResult = {
  ok: false,
  error: {
    code: 'invalid_parameters',
    message: 'the request body must be UTF-8 text, and some of its bytes are not. Send JSON in UTF-8.',
  },
};

/** Keeps nothing of `bytes`. Costs some µs for a small body, some ms a megabyte. */
export function readChatBytes(bytes: Uint8Array): ChatRequestResult {
  const text = decodeBody(bytes);
  return text === undefined ? INVALID_UTF8 : readChatRequest(text, bytes.length);
}
