/**
 * What a counter thread does in one turn: reads a large body, or counts the tokens of a call as far as the turn reaches. A body is
 * read in one go, because what that costs is bounded by its bytes. Counter thread.
 */
import { threadId, workerData } from 'node:worker_threads';
import { Piscina, move } from 'piscina';
import { COUNTER_TURN_MS } from '../core/limits.js';
import { readLargeChatBytes } from '../protocol/request-bytes.js';
import { takeCounterStripe } from '../telemetry/counter-stripe.js';
import { ThreadHealth } from '../telemetry/thread-health.js';
import { TokenCount } from './token-count.js';
import { giveWay } from './thread-priority.js';
import type { CounterInit, CounterTask, CounterTurn } from './worker-messages.js';

// This module is loaded once in each counter thread and nowhere else.
giveWay();

const { metrics } = workerData as CounterInit;
let stripe: number | undefined;

export function runCounterTask(task: CounterTask): CounterTurn {
  const endMs = performance.now() + COUNTER_TURN_MS;
  beginHealth();
  if (task.kind === 'parse') {
    const read = readLargeChatBytes(task.pieces);
    const buffers = read.ok && read.call.largeBody !== undefined ? [read.call.largeBody.buffer] : [];
    return handOver({ over: true, answer: read }, buffers);
  }
  const count = task.kind === 'count' ? TokenCount.begin(task.request) : TokenCount.resume(task.rest);
  const usage = count.run(endMs);
  if (usage !== undefined) return { over: true, answer: usage };
  const rest = count.rest();
  return handOver({ over: false, rest }, [rest.chars.buffer, rest.lengths.buffer]);
}

/** Piscina's words for a result of which a part changes its owner without a copy. */
function handOver(turn: CounterTurn, buffers: readonly ArrayBufferLike[]): CounterTurn {
  if (buffers.length === 0) return turn;
  return move({
    [Piscina.transferableSymbol]: buffers,
    [Piscina.valueSymbol]: turn,
  } as never) as unknown as CounterTurn;
}

/** With the first task as a rule: later where the thread that this one replaces had not quite ended. */
function beginHealth(): void {
  if (stripe !== undefined) return;
  stripe = takeCounterStripe(metrics, threadId);
  if (stripe !== undefined) new ThreadHealth(metrics, stripe);
}
