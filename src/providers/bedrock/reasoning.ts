/**
 * `reasoning_effort` and `thinking` in the words of each family of models. request.ts calls it. Upstream
 * worker.
 *
 *     Claude from 4.6       thinking: adaptive, outputConfig.effort      User Guide, "Adaptive thinking"
 *     Claude 3.7 to 4.5     thinking: enabled, budget_tokens             User Guide, "Extended thinking"
 *     Nova 2                reasoningConfig.maxReasoningEffort           Nova User Guide, "Extended thinking"
 *     gpt-oss, DeepSeek V3  reasoning_effort                             LiteLLM 1.109.1
 *     GPT                   reasoning.effort                             LiteLLM 1.109.1
 *     hidden by its ARN     outputConfig.effort                          API Reference, "OutputConfig"
 *     DeepSeek R1, others   none: R1 always reasons                      LiteLLM 1.109.1
 */
import type { Fields } from '../fields.js';
import { FieldError } from '../provider.js';
import type { ModelFacts } from './models.js';

export interface Reasoning {
  /** Claude thinks. */
  readonly isOn: boolean;
  /** Of `additionalModelRequestFields`. */
  readonly more: Readonly<Record<string, unknown>>;
  /** Of `outputConfig`. */
  readonly output: Readonly<Record<string, unknown>>;
}

/** The least that Claude accepts. */
const BUDGET_MIN = 1024;
/** Tokens; the table of LiteLLM 1.109.1, and nothing below BUDGET_MIN. */
const BUDGETS: Readonly<Record<string, number>> = {
  minimal: BUDGET_MIN,
  low: BUDGET_MIN,
  medium: 2048,
  high: 4096,
  xhigh: 8192,
  max: 16384,
};
const OFF: Reasoning = { isOn: false, more: {}, output: {} };

export function reasoningOf(fields: Fields, facts: ModelFacts, maxTokens: number | undefined): Reasoning {
  const effort = fields.string('reasoning_effort');
  const thinking = fields.record('thinking');
  if (effort !== undefined && effort !== 'none' && BUDGETS[effort] === undefined) {
    throw new FieldError('reasoning_effort', `must be none, ${Object.keys(BUDGETS).join(', ')}`);
  }
  if (thinking !== undefined) {
    if (facts.family !== 'claude' && facts.family !== 'hidden') {
      fields.unsupported('thinking', 'is not supported by this model');
    } else {
      const output = facts.version >= 4.6 && effort !== undefined ? effortOf(effort, facts) : {};
      return { isOn: thinking.type !== 'disabled', more: { thinking }, output };
    }
  }
  return effort === undefined ? OFF : ofEffort(effort, fields, facts, maxTokens);
}

function ofEffort(
  effort: string,
  fields: Fields,
  facts: ModelFacts,
  maxTokens: number | undefined,
): Reasoning {
  const unsupported = (): Reasoning => {
    fields.unsupported('reasoning_effort', `cannot be ${effort} for this model`);
    return OFF;
  };
  switch (facts.family) {
    case 'claude': {
      if (effort === 'none') return OFF;
      if (facts.version >= 4.6) {
        return { isOn: true, more: { thinking: { type: 'adaptive' } }, output: effortOf(effort, facts) };
      }
      if (facts.version < 3.7) return unsupported();
      // Thinking counts as output. If there is no room for the least of it, the model answers without.
      const budget = Math.min(BUDGETS[effort]!, (maxTokens ?? Infinity) - 1);
      if (budget < BUDGET_MIN) return OFF;
      return { isOn: true, more: { thinking: { type: 'enabled', budget_tokens: budget } }, output: {} };
    }
    case 'hidden':
      return effort === 'none' ? unsupported() : { ...OFF, output: effortOf(effort, facts) };
    case 'nova-2': {
      if (effort === 'none') return { ...OFF, more: { reasoningConfig: { type: 'disabled' } } };
      const word = effort === 'minimal' ? 'low' : effort === 'xhigh' || effort === 'max' ? 'high' : effort;
      return { ...OFF, more: { reasoningConfig: { type: 'enabled', maxReasoningEffort: word } } };
    }
    case 'gpt-oss':
    case 'deepseek': {
      if (effort === 'none') return unsupported();
      const word = effort === 'minimal' ? 'low' : effort === 'xhigh' || effort === 'max' ? 'high' : effort;
      return { ...OFF, more: { reasoning_effort: word } };
    }
    case 'gpt':
      return { ...OFF, more: { reasoning: { effort } } };
    default:
      return effort === 'none' ? OFF : unsupported();
  }
}

/** `low`, `medium`, `high`, `xhigh` and `max`; Claude 4.6 has no `xhigh`. */
function effortOf(effort: string, { family, version }: ModelFacts): Record<string, unknown> {
  if (effort === 'none') return {};
  if (effort === 'minimal') return { effort: 'low' };
  return { effort: effort === 'xhigh' && family === 'claude' && version < 4.7 ? 'max' : effort };
}
