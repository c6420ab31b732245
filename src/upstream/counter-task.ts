/**
 * What a counter thread does in one turn: reads a large body, or counts the tokens of a call as far as the turn reaches. A body is
 * read in one go, because what that costs is bounded by its bytes. Counter thread.
 */
import { setPriority } from 'node:os';
import { threadId, workerData } from 'node:worker_threads';
import { move, Piscina } from 'piscina';
import { COUNTER_TURN_MS } from '../core/limits.js';
import { readLargeChatBytes } from '../protocol/request-bytes.js';
import { takeCounterStripe, ThreadHealth } from '../telemetry/thread-health.js';
import { TokenCount } from './token-count.js';
import type { CounterInit, CounterTask, CounterTurn } from './worker-messages.js';

/*
 * Lets a thread give way to the others. Counter thread.
 */

/** A third of the weight of the threads that serve: where cores are short, a long count takes longer and streams go on. */
const NICENESS = 5;
/** Linux knows priorities of threads and takes 0 for the calling one. */
const THIS_THREAD = 0;

/** Lowers the priority of the calling thread, for good. Where a sandbox forbids it, the system shares its cores evenly. */
export function giveWay(): void {
  try {
    setPriority(THIS_THREAD, NICENESS);
  } catch {
    // Forbidden.
  }
}

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
