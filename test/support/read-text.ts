/** Reads a request that is given as text. */
import type { ChatRequestResult } from '#src/protocol/chat-call.js';
import { readChatBytes } from '#src/protocol/request-bytes.js';

export function readText(text: string): ChatRequestResult {
  return readChatBytes(Buffer.from(text));
}
