/**
 * The settle phase, which every admitted call reaches exactly once: its hold becomes a charge, or is given
 * back, and the journal gets a record. With `durability: commit` the end of a response then waits until that
 * record is on disk (PendingCommits: group commit). Called by Delivery and ChargedHit, and by dispatch.ts if
 * no worker takes the call. Listener thread.
 *
 * Must hold: ledger and journal change together, one record for each change, because the store is written
 * from the journal and the limits from the ledger (test/unit/request/admit.test.ts,
 * test/unit/request/settle.pending-commits.test.ts, test/e2e/books.test.ts).
 */
import type { Clock } from '../core/clock.js';
import { invariant, type ErrorRecord } from '../core/errors.js';
import { COMMIT_WAIT_MS_MAX } from '../core/limits.js';
import { asPicoUnits, type MonotonicMs, type PicoUnits, type WallMs } from '../core/units.js';
import { CREDITED_PICO_UNITS_MAX, type Settlement } from '../ledger/balance.js';
import type { Taken } from '../ledger/reservations.js';
import type { JournalOutcome } from '../ledger/journal-layout.js';
import type { JournalWriter } from '../ledger/journal.js';
import { USAGE_SOURCES, type Usage, usageOfWhole } from '../core/token-counts.js';
import { costOf } from '../registry/catalog.js';
import type { CallContext, ChosenModel, ListenerContext } from './context.js';

type SettleContext = Pick<ListenerContext, 'ledger' | 'journal' | 'clock' | 'durability' | 'cachedInput'>;

const NOTHING = asPicoUnits(0n);
const NO_USAGE = usageOfWhole(0, 0, 'reported');
const NO_CHARGE: Settlement = { charged: NOTHING, uncovered: NOTHING };

/** What is needed to wait until a settled call is on disk, and to take its charge back. */
export interface Settled extends Settlement {
  /** Position of the call's record in the journal. */
  readonly position: number;
  /** When it was settled, by both clocks: a reading takes 40 ns, and the record of the call needs both. */
  readonly settledMs: MonotonicMs;
  readonly settledWallMs: WallMs;
  readonly usage: Usage;
  /** Index of the model that answered, whose price was charged. */
  readonly answered: number;
  /** Undefined if the charge is never taken back: only `durability: commit` does. */
  readonly taken: Taken | undefined;
}

/**
 * The call was served, whole or up to where its client left: it is charged for `usage`, at the price of the
 * model that answered, which is `fallback` if that is given.
 */
export function settle(
  context: CallContext,
  usage: Usage,
  listener: SettleContext,
  fallback?: ChosenModel,
): Settled {
  const { admission } = context;
  invariant(admission !== undefined, 'only an admitted call is settled');
  const { model, modelIndex: answered } = fallback ?? admission;
  const cost = context.door.isFree === true ? NOTHING : costOf(model.price, usage);
  return charge(context, cost, usage, answered, listener);
}

/** The call gets the response of the cache: it is charged the price of that, and has no tokens. */
export function settleHit(context: CallContext, listener: SettleContext): Settled {
  const { admission } = context;
  invariant(admission !== undefined, 'only an admitted call is settled');
  const { model, modelIndex } = admission;
  return charge(context, model.price.cachedResponsePicoUnits, NO_USAGE, modelIndex, listener);
}

function charge(
  context: CallContext,
  cost: PicoUnits,
  usage: Usage,
  answered: number,
  listener: SettleContext,
): Settled {
  const { ledger, durability, cachedInput } = listener;
  const { slot } = context.admission!;
  const taken = durability === 'commit' ? ledger.takenOf(slot) : undefined;
  const settledMs = listener.clock.monotonicMs();
  const settlement = ledger.settle(slot, cost, tokensOf(usage, cachedInput), settledMs);
  invariant(settlement !== undefined, 'a call is settled once');
  const { charged } = settlement;
  const uncovered = bounded(settlement.uncovered);
  const settledWallMs = listener.clock.wallMs();
  const amounts = { charged, uncovered };
  const position = append(context, 'served', usage, answered, amounts, listener, settledMs, settledWallMs);
  return { position, settledMs, settledWallMs, usage, answered, taken, charged, uncovered };
}

/** What a call counts toward quotas of tokens. */
function tokensOf(
  { promptTokens, cachedTokens, completionTokens }: Usage,
  cachedInput: ListenerContext['cachedInput'],
): number {
  return promptTokens + completionTokens - (cachedInput === 'free' ? cachedTokens : 0);
}

/**
 * The call failed: nothing is charged, and all that it took of quotas is given back. Only if a provider
 * rejected the parameters the calls of the day and the month are used up: that was a response.
 */
export function release(context: CallContext, error: ErrorRecord, listener: SettleContext): void {
  const { admission } = context;
  invariant(admission !== undefined, 'only an admitted call is released');
  if (error.code === 'invalid_parameters') listener.ledger.settle(admission.slot, NOTHING, 0);
  else listener.ledger.release(admission.slot);
  append(context, error.code, NO_USAGE, admission.modelIndex, NO_CHARGE, listener);
}

/** The response of a settled call can't be finished: takes its charge back, by a record of its own. */
export function reverse(context: CallContext, settled: Settled, listener: SettleContext): void {
  const { usage, answered, taken, charged, uncovered } = settled;
  invariant(taken !== undefined, 'what is reversed was settled with durability: commit');
  listener.ledger.reverse(taken, settled, tokensOf(usage, listener.cachedInput));
  const negative: Usage = {
    promptTokens: -usage.promptTokens,
    cachedTokens: -usage.cachedTokens,
    cacheWriteTokens: -usage.cacheWriteTokens,
    cacheWrite1hTokens: -usage.cacheWrite1hTokens,
    completionTokens: -usage.completionTokens,
    reasoningTokens: -usage.reasoningTokens,
    source: usage.source,
  };
  const refund = { charged: asPicoUnits(0n - charged), uncovered: asPicoUnits(0n - uncovered) };
  append(context, 'reversed', negative, answered, refund, listener);
}

function append(
  { caller, admission, requestNumber }: CallContext,
  outcome: JournalOutcome,
  usage: Usage,
  answered: number,
  { charged, uncovered }: Settlement,
  { journal, clock }: SettleContext,
  nowMs = clock.monotonicMs(),
  endedMs = clock.wallMs(),
): number {
  invariant(caller !== undefined && admission !== undefined, 'the journal takes admitted calls');
  return journal.append({
    request: requestNumber,
    endedMs,
    promptTokens: usage.promptTokens,
    cachedTokens: usage.cachedTokens,
    cacheWriteTokens: usage.cacheWriteTokens,
    cacheWrite1hTokens: usage.cacheWrite1hTokens,
    completionTokens: usage.completionTokens,
    reasoningTokens: usage.reasoningTokens,
    charged,
    uncovered,
    account: caller.account,
    key: caller.key,
    model: answered,
    requested: admission.modelIndex,
    outcome,
    source: USAGE_SOURCES.indexOf(usage.source),
    durationMs: nowMs - admission.admittedMs,
  });
}

/** Reported usage times a price may exceed 64 bits. Nothing is recorded beyond this bound. */
function bounded(uncovered: PicoUnits): PicoUnits {
  return uncovered < CREDITED_PICO_UNITS_MAX ? uncovered : CREDITED_PICO_UNITS_MAX;
}

/** A response whose end waits for its charge. One of the two is called, once. */
export interface PendingCommit {
  onCommitted(): void;
  /** The store fails, or is too slow: the charge is not known to be on disk. */
  onUncommitted(): void;
}

interface Held {
  readonly position: number;
  readonly sinceMs: number;
  readonly end: PendingCommit;
}

/**
 * The ends of responses that wait. The main thread is asked once for all of them, and again if more have come
 * by the time it replies: the next group gathers while it waits for the disk. Charges reach the disk in the
 * order of the journal, and the ends are let go in that order.
 */
export class PendingCommits {
  readonly #journal: JournalWriter;
  readonly #clock: Clock;
  readonly #askCommit: () => void;
  #held: Held[] = [];
  #asked = false;

  /** `askCommit` is replied to by a call of `onCommit`. */
  constructor(journal: JournalWriter, clock: Clock, askCommit: () => void) {
    this.#journal = journal;
    this.#clock = clock;
    this.#askCommit = askCommit;
  }

  get size(): number {
    return this.#held.length;
  }

  /** Holds `end` until the record at `position` of the journal is on disk. */
  hold(position: number, end: PendingCommit): void {
    this.#held.push({ position, sinceMs: this.#clock.monotonicMs(), end });
    if (this.#asked) return;
    this.#asked = true;
    // One message for all ends of this event-loop turn.
    setImmediate(this.#askCommit);
  }

  /** The main thread has replied. `ok` is false if the store fails, and then nothing is held any longer. */
  onCommit(ok: boolean): void {
    this.#asked = false;
    this.#letGo();
    if (!ok) this.#giveUp(this.#held.length);
    if (this.#held.length === 0) return;
    this.#asked = true;
    this.#askCommit();
  }

  /** Called about once a second: gives up what has been held for too long. */
  onSweep(): void {
    this.#letGo();
    const oldestMs = this.#clock.monotonicMs() - COMMIT_WAIT_MS_MAX;
    const young = this.#held.findIndex(({ sinceMs }) => sinceMs > oldestMs);
    this.#giveUp(young < 0 ? this.#held.length : young);
  }

  #letGo(): void {
    const waiting = this.#held.findIndex(({ position }) => !this.#journal.isCommitted(position));
    const committed = this.#held.splice(0, waiting < 0 ? this.#held.length : waiting);
    for (const { end } of committed) end.onCommitted();
  }

  #giveUp(count: number): void {
    for (const { end } of this.#held.splice(0, count)) end.onUncommitted();
  }
}
