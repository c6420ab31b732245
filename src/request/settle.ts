/**
 * The settle phase, which every admitted call reaches exactly once: its hold becomes a charge, or is given
 * back, and the journal gets a record. With `durability: commit` the end of a response then waits until that
 * record is on disk (ledger/pending-commits.ts). To _release_ a call is to settle it without a charge.
 * delivery.ts and replay.ts call this. Listener thread.
 *
 * Must hold: a call is settled or released once; a second time throws. (`reverse` is the caller's to call
 * once.) Ledger and journal change together, one record for each change, because the store is written
 * from the journal and limits are checked in the ledger (test/unit/request/admit.test.ts,
 * test/e2e/books.test.ts).
 */
import { invariant, type ErrorRecord } from '../core/errors.js';
import { asPicoUnits, type MonotonicMs, type PicoUnits, type WallMs } from '../core/units.js';
import { CREDITED_PICO_UNITS_MAX, type Settlement } from '../ledger/balance.js';
import type { Taken } from '../ledger/reservations.js';
import type { JournalOutcome } from '../ledger/journal-layout.js';
import { USAGE_SOURCES, type Usage, usageWithoutParts } from '../core/token-counts.js';
import { costOf } from '../registry/catalog.js';
import type { CallContext, ListenerContext } from './context.js';
import type { CandidateModel } from './model-access.js';

const SETTLED_ONCE = 'a call is settled or released once';
const NO_COST = asPicoUnits(0n);
const NO_USAGE = usageWithoutParts({ promptTokens: 0, completionTokens: 0, source: 'reported' });
/** The amounts in the journal's record of a call that costs nothing. */
const NO_CHARGE: Settlement = { charged: NO_COST, uncovered: NO_COST };

/** A settled call: what is needed to wait until its charge is on disk, and to take the charge back. */
export interface Settled extends Settlement {
  /** Position of the call's record in the journal. */
  readonly position: number;
  /** When the call was settled, by both clocks: the call log needs both, and to read a clock takes 40 ns. */
  readonly settledMs: MonotonicMs;
  readonly settledWallMs: WallMs;
  readonly usage: Usage;
  /** The tokens that were counted toward quotas. Kept, because a reload may change `cachedInput`. */
  readonly tokens: number;
  /** Index, in the catalogue, of the model that answered; its price was charged. */
  readonly answered: number;
  /**
   * What the call had taken of its quotas, to take the charge back. Set if `durability` is `commit`, and was
   * so when the call was admitted. Undefined otherwise: then the response need not wait for the disk.
   */
  readonly taken: Taken | undefined;
}

/**
 * Charges a call that was served, whole or up to where its client left, for `usage`, at the price of the
 * model that answered: `fallback`, or the model that the call names.
 */
export function settle(
  context: CallContext,
  usage: Usage,
  listener: ListenerContext,
  fallback?: CandidateModel,
): Settled {
  const { model, modelIndex: answered } = fallback ?? context.admitted;
  const cost = context.door.isFree === true ? NO_COST : costOf(model.price, usage);
  return charge(context, cost, usage, answered, listener);
}

/** Charges the price of a hit of the response cache. A hit has no tokens. */
export function settleHit(context: CallContext, listener: ListenerContext): Settled {
  const { model, modelIndex: answered } = context.admitted;
  return charge(context, model.price.cachedResponsePicoUnits, NO_USAGE, answered, listener);
}

/** Settles the call in the ledger, and appends its record to the journal. */
function charge(
  context: CallContext,
  cost: PicoUnits,
  usage: Usage,
  answered: number,
  listener: ListenerContext,
): Settled {
  const { ledger, durability, cachedInput } = listener;
  const { slot, mayReverse } = context.admitted;
  // Before `ledger.settle`, which clears what the slot has taken.
  const taken = mayReverse && durability === 'commit' ? ledger.takenOf(slot) : undefined;
  const settledMs = listener.clock.monotonicMs();
  const freeTokens = cachedInput === 'free' ? usage.cachedTokens : 0;
  const tokens = usage.promptTokens + usage.completionTokens - freeTokens;
  const settlement = ledger.settle(slot, cost, tokens, settledMs);
  invariant(settlement !== undefined, SETTLED_ONCE);
  const { charged } = settlement;
  // Bounded, because reported usage times a price may exceed the 64 bits of a journal's field.
  const isBeyondBound = settlement.uncovered >= CREDITED_PICO_UNITS_MAX;
  const uncovered = isBeyondBound ? CREDITED_PICO_UNITS_MAX : settlement.uncovered;
  const settledWallMs = listener.clock.wallMs();
  const amounts = { charged, uncovered };
  const position = append(context, 'served', usage, answered, amounts, listener, settledMs, settledWallMs);
  return { position, settledMs, settledWallMs, usage, tokens, answered, taken, charged, uncovered };
}

/**
 * Gives back all that a failed call took, without a charge. A call whose parameters a provider rejected still
 * counts toward the day and the month, because the rejection was a response. Throws, and records nothing, if
 * the call was settled or released before.
 */
export function release(context: CallContext, error: ErrorRecord, listener: ListenerContext): void {
  const { slot, modelIndex } = context.admitted;
  const { ledger } = listener;
  const isReleased =
    error.code === 'invalid_parameters'
      ? ledger.settle(slot, NO_COST, 0) !== undefined
      : ledger.release(slot);
  invariant(isReleased, SETTLED_ONCE);
  append(context, error.code, NO_USAGE, modelIndex, NO_CHARGE, listener);
}

/** Takes back the charge of a call whose response is not sent to its end, by a journal record of its own. */
export function reverse(context: CallContext, settled: Settled, listener: ListenerContext): void {
  const { usage, tokens, answered, taken, charged, uncovered } = settled;
  invariant(taken !== undefined, 'what is reversed was admitted and settled with durability: commit');
  listener.ledger.reverse(taken, settled, tokens);
  const negativeUsage: Usage = {
    promptTokens: -usage.promptTokens,
    cachedTokens: -usage.cachedTokens,
    cacheWriteTokens: -usage.cacheWriteTokens,
    cacheWrite1hTokens: -usage.cacheWrite1hTokens,
    completionTokens: -usage.completionTokens,
    reasoningTokens: -usage.reasoningTokens,
    source: usage.source,
  };
  const refund = { charged: asPicoUnits(0n - charged), uncovered: asPicoUnits(0n - uncovered) };
  // The record is counted in the hour of the charge that it takes back.
  const nowMs = listener.clock.monotonicMs();
  append(context, 'reversed', negativeUsage, answered, refund, listener, nowMs, settled.settledWallMs);
}

/**
 * Appends a record to the journal, and returns its position. The call's end is `nowMs` by the monotonic clock
 * and `endedMs` by the wall clock. `admit` has made sure that the journal has space.
 */
function append(
  { knownCaller: caller, admitted: admission, requestNumber }: CallContext,
  outcome: JournalOutcome,
  usage: Usage,
  answered: number,
  { charged, uncovered }: Settlement,
  { journal, clock }: ListenerContext,
  nowMs = clock.monotonicMs(),
  endedMs = clock.wallMs(),
): number {
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
