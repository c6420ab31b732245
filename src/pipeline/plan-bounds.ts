/**
 * What a plan lets a call ask for. Listener thread.
 */
import type { ErrorRecord } from '../core/errors.js';
import { withOutputTokensMax } from '../protocol/chat-body.js';
import type { ChatCall } from '../protocol/chat-call.js';
import type { ModelEntry, PlanEntry } from '../registry/catalog.js';

/** The refusal of a call that asks for more output than the plan allows. */
export function beyondPlan(call: ChatCall, plan: PlanEntry): ErrorRecord | undefined {
  const { outputTokensMax: asked, outputTokensField: field } = call;
  const { outputTokensMax: allowed } = plan;
  if (asked === undefined || field === undefined || allowed === undefined || asked <= allowed)
    return undefined;
  return {
    code: 'invalid_parameters',
    message: `${field} must be at most ${allowed} on the plan ${plan.id}, got ${asked}`,
  };
}

/**
 * The call as the plan lets it go upstream: one that bounds its output nowhere is given the plan's bound, where that is below the
 * model's. Costs a scan of the body then, else nothing.
 */
export function boundedCall(call: ChatCall, plan: PlanEntry, model: ModelEntry): ChatCall {
  const { outputTokensMax: allowed } = plan;
  if (call.outputTokensMax !== undefined || allowed === undefined || allowed >= model.outputTokensMax) {
    return call;
  }
  return withOutputTokensMax(call, allowed);
}
