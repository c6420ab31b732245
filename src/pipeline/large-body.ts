/**
 * What is certain of a large call before its body is whole: that its caller could pay for it on no model, or cannot have the model that it
 * names. Such a body is not kept, let alone parsed. Listener thread.
 */
import type { ErrorRecord } from '../core/errors.js';
import { decimalOf } from '../core/money.js';
import type { Caller } from './context.js';
import type { PipelineParts } from './parts.js';

/**
 * The refusal of a call whose body is at least `bodyBytes` long, and for which `admit` would find too little money whatever model of the
 * plan it names and however little it asks for. Where limits are shared nothing is certain: money may be with others.
 */
export function beyondBalance(
  caller: Caller,
  bodyBytes: number,
  parts: PipelineParts,
): ErrorRecord | undefined {
  if (parts.leases !== undefined) return undefined;
  const { inputPicoUnits, outputPicoUnits } = parts.access.leastPriceOf(caller.planIndex);
  const hold = BigInt(bodyBytes) * inputPicoUnits + outputPicoUnits;
  const available = parts.ledger.available(caller.account);
  if (available >= hold) return undefined;
  return {
    code: 'insufficient_quota',
    message: `A call of this size may cost ${decimalOf(hold)} at least and the balance is ${decimalOf(available)}. Top up the account, or shorten the messages.`,
  };
}

/** Whether the plan has the model. */
export function isAllowed(caller: Caller, model: string, parts: PipelineParts): boolean {
  return parts.access.indexOf(model, caller.planIndex) !== undefined;
}
