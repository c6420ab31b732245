/**
 * `reasoning_effort` and `thinking` of a chat completion in the form of each model family (models.ts).
 * request.ts calls it. Pure; upstream worker.
 *
 *     Claude from 4.6       thinking: adaptive, outputConfig.effort      User Guide, "Adaptive thinking"
 *     Claude 3.7 to 4.5     thinking: enabled, budget_tokens             User Guide, "Extended thinking"
 *     Nova 2                reasoningConfig.maxReasoningEffort           Nova User Guide, "Extended thinking"
 *     gpt-oss, DeepSeek V3  reasoning_effort                             LiteLLM 1.109.1
 *     GPT                   reasoning.effort                             LiteLLM 1.109.1
 *     hidden by its ARN     outputConfig.effort                          API Reference, "OutputConfig"
 *     DeepSeek R1, others   none: R1 always reasons                      LiteLLM 1.109.1
 *
 * The guides are Amazon Bedrock's and Amazon Nova's, 2026-11.
 *
 * Must hold: the table (test/unit/providers/bedrock/request.test.ts, 'reasoning_effort and thinking').
 */
import type { Fields } from '../fields.js';
import { FieldError } from '../provider.js';
import { BUDGET_TOKENS_MIN, BUDGETS, type ModelTraits } from '../anthropic/models.js';
import type { ModelFacts } from './models.js';

export interface Reasoning {
  /** Whether Claude will think, which rules out some sampling and forced tools. */
  readonly isOn: boolean;
  /** Members of `additionalModelRequestFields`. */
  readonly more: Readonly<Record<string, unknown>>;
  /** Members of `outputConfig`. */
  readonly output: Readonly<Record<string, unknown>>;
}

/** Efforts that a model with low, medium and high lacks, and the nearest one that it has. */
const THREE_EFFORTS: ReadonlyMap<string, string> = new Map<string, string>([
  ['minimal', 'low'],
  ['xhigh', 'high'],
  ['max', 'high'],
]);
/** The `thinking.type` of a request that makes Claude think. */
const THINKING: ReadonlySet<unknown> = new Set(['enabled', 'adaptive']);
const OFF: Reasoning = { isOn: false, more: {}, output: {} };

/**
 * `maxTokens`: of the request. `continuesWithoutThinking`: as in `Conversation` (messages.ts); Claude then
 * refuses to think with a budget.
 */
export function reasoningOf(
  fields: Fields,
  facts: ModelFacts,
  maxTokens: number | undefined,
  continuesWithoutThinking: boolean,
): Reasoning {
  const effort = fields.string('reasoning_effort');
  const thinking = fields.record('thinking');
  if (effort !== undefined && !BUDGETS.has(effort))
    throw new FieldError('reasoning_effort', 'must be none, minimal, low, medium, high, xhigh or max');
  if (thinking !== undefined) {
    if (facts.claude !== undefined || facts.family === 'hidden') {
      const output = effort === undefined || effort === 'none' ? {} : effortOf(effort, facts);
      return { isOn: THINKING.has(thinking.type), more: { thinking }, output };
    }
    fields.unsupported('thinking', 'is not supported by this model');
  }
  if (effort === undefined) return OFF;
  if (facts.claude === undefined) return reasoningOfOthers(effort, fields, facts);
  if (effort === 'none') return withoutThinking(fields, facts.claude);
  switch (facts.claude.thinking) {
    case 'none':
      fields.unsupported('reasoning_effort', 'is not supported by this model');
      return OFF;
    case 'budget': {
      // An effort is a hint: it is ignored if max_tokens leaves too few tokens, or if Claude would refuse.
      const budget = Math.min(BUDGETS.get(effort)!, (maxTokens ?? Infinity) - 1);
      if (budget < BUDGET_TOKENS_MIN || continuesWithoutThinking) return OFF;
      return { isOn: true, more: { thinking: { type: 'enabled', budget_tokens: budget } }, output: {} };
    }
    default: {
      // Without `display` the newer models return no text of their thinking.
      const display = facts.claude.thinking === 'adaptive' ? { display: 'summarized' } : {};
      const thinking = { type: 'adaptive', ...display };
      return { isOn: true, more: { thinking }, output: effortOf(effort, facts) };
    }
  }
}

function withoutThinking(fields: Fields, { thinkingOff }: ModelTraits): Reasoning {
  if (thinkingOff === 'absent') return OFF;
  if (thinkingOff !== undefined) return { ...OFF, more: { thinking: { type: thinkingOff } } };
  fields.unsupported('reasoning_effort', 'cannot be none: this model always thinks');
  return { ...OFF, output: { effort: 'low' } };
}

/** The reasoning of models other than Claude. */
function reasoningOfOthers(effort: string, fields: Fields, facts: ModelFacts): Reasoning {
  const isOff = effort === 'none';
  const nearest = THREE_EFFORTS.get(effort) ?? effort;
  switch (facts.family) {
    case 'nova-2': {
      const config = isOff ? { type: 'disabled' } : { type: 'enabled', maxReasoningEffort: nearest };
      return { ...OFF, more: { reasoningConfig: config } };
    }
    case 'gpt':
      return { ...OFF, more: { reasoning: { effort } } };
    case 'gpt-oss':
    case 'deepseek':
      if (!isOff) return { ...OFF, more: { reasoning_effort: nearest } };
      break;
    case 'hidden':
      if (!isOff) return { ...OFF, output: effortOf(effort, facts) };
      break;
    case 'deepseek-r1':
      break;
    default:
      if (isOff) return OFF;
  }
  fields.unsupported('reasoning_effort', `cannot be ${effort} for this model`);
  return OFF;
}

/** The model's effort for `effort`: the next lower one if the model lacks it. */
function effortOf(effort: string, { claude }: ModelFacts): Record<string, unknown> {
  if (claude?.efforts.length === 0) return {};
  if (effort === 'minimal') return { effort: 'low' };
  return { effort: claude?.efforts.includes(effort) === false ? 'high' : effort };
}
