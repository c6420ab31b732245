/**
 * What a counter thread does: reads a large body, or counts the tokens of a call. Counter thread.
 */
import { threadId, workerData } from 'node:worker_threads';
import { Piscina, move } from 'piscina';
import type { ChatRequestResult } from '../protocol/chat-request.js';
import { readLargeChatBytes } from '../protocol/request-bytes.js';
import type { Usage } from '../protocol/usage.js';
import { takeCounterStripe } from '../telemetry/counter-stripe.js';
import { ThreadHealth } from '../telemetry/thread-health.js';
import { countTokens } from './token-count.js';
import { giveWay } from './thread-priority.js';
import type { CounterInit, CounterTask } from './worker-messages.js';

// This module is loaded once in each counter thread and nowhere else.
giveWay();

const { metrics } = workerData as CounterInit;
let stripe: number | undefined;

export function runCounterTask(task: CounterTask): unknown {
  beginHealth();
  if (task.kind === 'count') return countTokens(task.request) satisfies Usage;
  const read: ChatRequestResult = readLargeChatBytes(task.pieces);
  if (!read.ok || read.call.largeBody === undefined) return read;
  // Piscina's words for a result of which a part is handed over without a copy.
  return move({
    [Piscina.transferableSymbol]: [read.call.largeBody.buffer],
    [Piscina.valueSymbol]: read,
  } as never);
}

/** With the first task as a rule: later where the thread that this one replaces had not quite ended. */
function beginHealth(): void {
  if (stripe !== undefined) return;
  stripe = takeCounterStripe(metrics, threadId);
  if (stripe !== undefined) new ThreadHealth(metrics, stripe);
}
