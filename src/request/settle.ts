/**
 * The last phase, which every admitted call reaches exactly once: the hold becomes a charge, or is given back, and the
 * journal is told. Listener thread.
 */
import { invariant, type ErrorRecord } from '../core/errors.js';
import { asPicoUnits, asWallMs, type PicoUnits } from '../core/units.js';
import { CREDITED_PICO_UNITS_MAX, type Settlement } from '../ledger/balance.js';
import type { TakenDay } from '../ledger/calls.js';
import type { JournalOutcome } from '../ledger/journal-layout.js';
import { USAGE_SOURCES, type Usage } from '../protocol/usage.js';
import { costOf } from '../registry/catalog.js';
import type { CallContext, ListenerContext } from './context.js';

const NOTHING = asPicoUnits(0n);
const NO_USAGE: Usage = { promptTokens: 0, cachedTokens: 0, completionTokens: 0, source: 'reported' };
const NO_CHARGE: Settlement = { charged: NOTHING, uncovered: NOTHING };

/** What a settled call leaves behind: enough to wait for it to be on disk, and to take it back. */
export interface Settled extends Settlement, TakenDay {
  /** Of the call's record, for `JournalWriter.isCommitted`. */
  readonly position: number;
  readonly usage: Usage;
}

/** The call was served, whole or up to where its client left: it is charged for `usage`. */
export function settle(context: CallContext, usage: Usage, parts: ListenerContext): Settled {
  const { admission } = context;
  invariant(admission !== undefined, 'only an admitted call is settled');
  const dayNumber = parts.ledger.dayNumberOf(admission.slot);
  const dayKey = parts.ledger.dayKeyOf(admission.slot);
  const settlement = parts.ledger.settle(admission.slot, costOf(admission.model.price, usage));
  invariant(settlement !== undefined, 'a call is settled once');
  const { charged } = settlement;
  const uncovered = bounded(settlement.uncovered);
  const position = append(context, 'served', usage, { charged, uncovered }, parts);
  return { position, usage, dayNumber, dayKey, charged, uncovered };
}

/**
 * The call failed: nothing is charged. A 500 or 502 also gives the day's call back; a provider's refusal of the
 * parameters is a response and keeps it.
 */
export function release(context: CallContext, error: ErrorRecord, parts: ListenerContext): void {
  const { admission } = context;
  invariant(admission !== undefined, 'only an admitted call is released');
  if (error.code === 'invalid_parameters') parts.ledger.settle(admission.slot, NOTHING);
  else parts.ledger.release(admission.slot);
  append(context, error.code, NO_USAGE, NO_CHARGE, parts);
}

/** The response of a settled call could not be finished: its charge is taken back, in the ledger and by a record of its own. */
export function reverse(context: CallContext, settled: Settled, parts: ListenerContext): void {
  const { caller } = context;
  invariant(caller !== undefined, 'a settled call has a caller');
  const { usage, charged, uncovered } = settled;
  parts.ledger.reverse(caller.account, settled, settled);
  const negative: Usage = {
    promptTokens: -usage.promptTokens,
    cachedTokens: -usage.cachedTokens,
    completionTokens: -usage.completionTokens,
    source: usage.source,
  };
  const refund = { charged: asPicoUnits(0n - charged), uncovered: asPicoUnits(0n - uncovered) };
  append(context, 'reversed', negative, refund, parts);
}

function append(
  { caller, admission, requestNumber }: CallContext,
  outcome: JournalOutcome,
  usage: Usage,
  { charged, uncovered }: Settlement,
  { journal, clock }: ListenerContext,
): number {
  invariant(caller !== undefined && admission !== undefined, 'the journal takes admitted calls');
  return journal.append({
    request: requestNumber,
    endedMs: asWallMs(clock.wallMs()),
    promptTokens: usage.promptTokens,
    cachedTokens: usage.cachedTokens,
    completionTokens: usage.completionTokens,
    charged,
    uncovered,
    account: caller.account,
    key: caller.key,
    model: admission.modelIndex,
    outcome,
    source: USAGE_SOURCES.indexOf(usage.source),
    durationMs: clock.monotonicMs() - admission.admittedMs,
  });
}

/** What an upstream reports times a price may pass 64 bits; beyond this bound nothing is recorded anyway. */
function bounded(uncovered: PicoUnits): PicoUnits {
  return uncovered < CREDITED_PICO_UNITS_MAX ? uncovered : CREDITED_PICO_UNITS_MAX;
}
