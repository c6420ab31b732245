/**
 * Counts left calls: those whose clients have left and whose upstreams may finish all the same. The workers
 * of a process share a LeftCallTable, which gateway-start.ts makes; upstream-task.ts makes a LeftCalls for
 * its worker. chat-session.ts calls `begin` when a client leaves, and `end` of the LeftCall. Upstream
 * workers; `releaseLeftCalls` is the main thread's.
 *
 * Must hold: each LeftCall is ended, or it counts until its worker ends. All workers together let at most as
 * many calls finish as the table has slots, and at most `accountCallsMax` of one account
 * (test/unit/upstream/left-calls.test.ts, test/unit/upstream/chat-session-finish.test.ts).
 */
import type { AccountIndex } from '../core/units.js';
import type { EndWithoutClient } from '../telemetry/metrics-layout.js';
import type { UpstreamMetrics } from '../telemetry/metrics-writers.js';
import type { UpstreamTarget } from './target.js';

/**
 * The left calls of a process, a slot for each, in any order. A slot has two words, of which only this file
 * knows:
 *
 *     WORKER    the index of the worker that took the slot, plus 1; NONE: the slot is free
 *     ACCOUNT   the index of the call's account, plus 1; NONE until `begin` has written it
 *
 * A worker writes ACCOUNT after WORKER, and clears it before WORKER. So a free slot never counts for an
 * account. The words are read one by one, some 2 µs for 512 slots, but only when a client leaves such a call.
 * A plain record, for a thread's `workerData`.
 */
export interface LeftCallTable {
  readonly buffer: SharedArrayBuffer;
  readonly accountCallsMax: number;
}

const SLOT_WORDS = 2;
const WORKER = 0;
const ACCOUNT = 1;
const NONE = 0;

/** What stands for a worker or an account in its word: never NONE. */
const wordOf = (index: number): number => index + 1;

/** Called once a process, on the main thread. `callsMax`: of all accounts. */
export function createLeftCallTable(callsMax: number, accountCallsMax: number): LeftCallTable {
  const buffer = new SharedArrayBuffer(callsMax * SLOT_WORDS * Int32Array.BYTES_PER_ELEMENT);
  return { buffer, accountCallsMax };
}

/** Frees the slots of a dead worker. Main thread, before the worker's successor starts. */
export function releaseLeftCalls({ buffer }: LeftCallTable, worker: number): void {
  const words = new Int32Array(buffer);
  for (let slot = 0; slot < words.length; slot += SLOT_WORDS)
    if (Atomics.load(words, slot + WORKER) === wordOf(worker)) freeSlot(words, slot);
}

/** `slot`: as everywhere in this file, the position of the slot's first word. */
function freeSlot(words: Int32Array, slot: number): void {
  Atomics.store(words, slot + ACCOUNT, NONE);
  Atomics.store(words, slot + WORKER, NONE);
}

/** The left calls of one worker. */
export class LeftCalls {
  readonly #metrics: Pick<UpstreamMetrics, 'countLeft'>;
  readonly #words: Int32Array;
  readonly #accountCallsMax: number;
  readonly #worker: number;

  constructor(metrics: Pick<UpstreamMetrics, 'countLeft'>, table: LeftCallTable, worker: number) {
    this.#metrics = metrics;
    this.#words = new Int32Array(table.buffer);
    this.#accountCallsMax = table.accountCallsMax;
    this.#worker = worker;
  }

  /**
   * The client of a call that is charged has left. Returns undefined if the session must abort the upstream:
   * by the upstream's settings, because the call must end `atOnce`, or because too many calls count already.
   */
  begin(target: UpstreamTarget, account: AccountIndex, atOnce: boolean): LeftCall | undefined {
    const { slot: upstream, whenClientLeaves } = target;
    const slot = whenClientLeaves === 'abort' || atOnce ? undefined : this.#takeSlot(account);
    if (slot === undefined) {
      this.#metrics.countLeft(upstream, 'aborted');
      return undefined;
    }
    return new LeftCall((reason) => {
      this.#metrics.countLeft(upstream, reason);
      freeSlot(this.#words, slot);
    });
  }

  /** Returns undefined beyond a bound. */
  #takeSlot(account: AccountIndex): number | undefined {
    for (let slot = 0; slot < this.#words.length; slot += SLOT_WORDS) {
      if (Atomics.compareExchange(this.#words, slot + WORKER, NONE, wordOf(this.#worker)) !== NONE) continue;
      // Counted after the call itself was added: of two workers that take the last call of an account at the
      // same time, at least one sees the other. Perhaps both do, and neither call finishes.
      Atomics.store(this.#words, slot + ACCOUNT, wordOf(account));
      if (this.#callsOf(account) <= this.#accountCallsMax) return slot;
      freeSlot(this.#words, slot);
      return undefined;
    }
    return undefined;
  }

  #callsOf(account: AccountIndex): number {
    let calls = 0;
    for (let slot = 0; slot < this.#words.length; slot += SLOT_WORDS)
      if (Atomics.load(this.#words, slot + ACCOUNT) === wordOf(account)) calls += 1;
    return calls;
  }
}

export class LeftCall {
  #onEnd: ((reason: EndWithoutClient) => void) | undefined;

  constructor(onEnd: (reason: EndWithoutClient) => void) {
    this.#onEnd = onEnd;
  }

  /** The call has ended for that reason, so it counts no longer. A second `end` does nothing. */
  end(reason: EndWithoutClient): void {
    this.#onEnd?.(reason);
    this.#onEnd = undefined;
  }
}
