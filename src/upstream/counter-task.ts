/**
 * What a counter thread does: reads a large body, or counts the tokens of a call. Counter thread.
 */
import type { ChatRequestResult } from '../protocol/chat-request.js';
import { readChatBytes } from '../protocol/request-bytes.js';
import type { Usage } from '../protocol/usage.js';
import { countTokens } from './token-count.js';
import type { CounterTask } from './worker-messages.js';

export function runCounterTask(task: CounterTask): ChatRequestResult | Usage {
  return task.kind === 'count' ? countTokens(task.request) : readChatBytes(task.bytes);
}
