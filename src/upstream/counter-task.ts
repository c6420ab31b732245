/**
 * What a counter thread does: reads a large body, or counts the tokens of a call. Counter thread.
 */
import { Piscina, move } from 'piscina';
import type { ChatRequestResult } from '../protocol/chat-request.js';
import { readLargeChatBytes } from '../protocol/request-bytes.js';
import type { Usage } from '../protocol/usage.js';
import { countTokens } from './token-count.js';
import { giveWay } from './thread-priority.js';
import type { CounterTask } from './worker-messages.js';

// This module is loaded once in each counter thread and nowhere else.
giveWay();

export function runCounterTask(task: CounterTask): unknown {
  if (task.kind === 'count') return countTokens(task.request) satisfies Usage;
  const read: ChatRequestResult = readLargeChatBytes(task.pieces);
  if (!read.ok || read.call.largeBody === undefined) return read;
  // Piscina's words for a result of which a part is handed over without a copy.
  return move({
    [Piscina.transferableSymbol]: [read.call.largeBody.buffer],
    [Piscina.valueSymbol]: read,
  } as never);
}
