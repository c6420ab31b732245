/**
 * Tells by a model's name at a cloud whether it is one of Anthropic's, which speak Messages there.
 * vertex/vertex.ts and bedrock/models.ts choose the protocol of a call by it, gateway/settings-records.ts the
 * doors of an upstream. Pure; main thread and upstream worker.
 *
 * Must hold: no other file decides this by a name. If two files differed, a door whose calls pass as they are
 * could send Messages to a model that speaks another protocol (test/unit/gateway/settings-records.test.ts).
 */
import type { ProviderName } from '../core/provider-names.js';

/** At the start alone: a tuned model, or one of another publisher, may have any name. */
export function isClaudeOnVertex(model: string): boolean {
  return /^(?:publishers\/anthropic\/models\/)?claude-/.test(model);
}

/** Anywhere: after `us.anthropic.`, or in an ARN. */
export function isClaudeOnBedrock(model: string): boolean {
  return model.includes('claude');
}

/** Whether the provider is a cloud, which serves other models too, and the model one of Anthropic's. */
export function isClaudeAtCloud(provider: ProviderName, model: string): boolean {
  if (provider === 'vertex') return isClaudeOnVertex(model);
  return provider === 'bedrock' && isClaudeOnBedrock(model);
}
