/**
 * The last phase, which every admitted call reaches exactly once: the hold becomes a charge, or is given back.
 * Listener thread.
 */
import { invariant, type ErrorRecord } from '../core/errors.js';
import { asPicoUnits } from '../core/units.js';
import type { Usage } from '../protocol/usage.js';
import { costOf } from '../registry/catalog.js';
import type { CallContext } from './context.js';
import type { PipelineParts } from './parts.js';

const NOTHING = asPicoUnits(0n);

/** The call was served, whole or up to where its client left: it is charged for `usage`. */
export function settle(context: CallContext, usage: Usage, parts: PipelineParts): void {
  const { admission } = context;
  invariant(admission !== undefined, 'only an admitted call is settled');
  parts.ledger.settle(admission.slot, costOf(admission.model.price, usage));
  parts.metrics.add('prompt_tokens', usage.promptTokens);
  parts.metrics.add('completion_tokens', usage.completionTokens);
}

/**
 * The call failed: nothing is charged. A 500 or 502 also gives the day's call back; a provider's refusal of the
 * parameters is an answer and keeps it.
 */
export function release(context: CallContext, error: ErrorRecord, parts: PipelineParts): void {
  const { admission } = context;
  invariant(admission !== undefined, 'only an admitted call is released');
  if (error.code === 'invalid_parameters') parts.ledger.settle(admission.slot, NOTHING);
  else parts.ledger.release(admission.slot);
}
