/**
 * `reasoning_effort` and `thinking` of a chat completion in the form of each model family. request.ts calls
 * it. Pure; upstream worker.
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
 * Test: test/unit/providers/bedrock/request.test.ts ('reasoning_effort and thinking').
 */
import type { Fields } from '../fields.js';
import { FieldError } from '../provider.js';
import type { ModelTraits } from '../anthropic/models.js';
import type { ModelFacts } from './models.js';

export interface Reasoning {
  /** Whether Claude will think, which rules out some sampling and forced tools. */
  readonly isOn: boolean;
  /** Members of `additionalModelRequestFields`. */
  readonly more: Readonly<Record<string, unknown>>;
  /** Members of `outputConfig`. */
  readonly output: Readonly<Record<string, unknown>>;
}

/** The least that Claude accepts. */
const BUDGET_MIN = 1024;
/** Tokens of thinking by effort: the table of LiteLLM 1.109.1, raised to BUDGET_MIN. */
const BUDGETS: ReadonlyMap<string, number> = new Map<string, number>([
  ['minimal', BUDGET_MIN],
  ['low', BUDGET_MIN],
  ['medium', 2048],
  ['high', 4096],
  ['xhigh', 8192],
  ['max', 16384],
]);
/** Efforts that a model with low, medium and high lacks, and the next one that it has. */
const THREE_EFFORTS: ReadonlyMap<string, string> = new Map<string, string>([
  ['minimal', 'low'],
  ['xhigh', 'high'],
  ['max', 'high'],
]);
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
  if (effort !== undefined && effort !== 'none' && !BUDGETS.has(effort)) {
    throw new FieldError('reasoning_effort', 'must be none, minimal, low, medium, high, xhigh or max');
  }
  if (thinking !== undefined) {
    if (facts.claude !== undefined || facts.family === 'hidden') {
      const output = effort === undefined || effort === 'none' ? {} : effortOf(effort, facts);
      return { isOn: THINKING.has(thinking.type), more: { thinking }, output };
    }
    fields.unsupported('thinking', 'is not supported by this model');
  }
  if (effort === undefined) return OFF;
  if (facts.claude === undefined) return ofOthers(effort, fields, facts);
  if (effort === 'none') return unthinking(fields, facts.claude);
  switch (facts.claude.thinking) {
    case 'none':
      fields.unsupported('reasoning_effort', 'is not supported by this model');
      return OFF;
    case 'budget': {
      // An effort is a hint: it is ignored if max_tokens leaves no room to think, or Claude would refuse.
      const budget = Math.min(BUDGETS.get(effort)!, (maxTokens ?? Infinity) - 1);
      if (budget < BUDGET_MIN || continuesWithoutThinking) return OFF;
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

function unthinking(fields: Fields, { thinkingOff }: ModelTraits): Reasoning {
  if (thinkingOff === 'absent') return OFF;
  if (thinkingOff !== undefined) return { ...OFF, more: { thinking: { type: thinkingOff } } };
  fields.unsupported('reasoning_effort', 'cannot be none: this model always thinks');
  return { ...OFF, output: { effort: 'low' } };
}

function ofOthers(effort: string, fields: Fields, facts: ModelFacts): Reasoning {
  const isOff = effort === 'none';
  const word = THREE_EFFORTS.get(effort) ?? effort;
  switch (facts.family) {
    case 'nova-2': {
      const config = isOff ? { type: 'disabled' } : { type: 'enabled', maxReasoningEffort: word };
      return { ...OFF, more: { reasoningConfig: config } };
    }
    case 'gpt':
      return { ...OFF, more: { reasoning: { effort } } };
    case 'gpt-oss':
    case 'deepseek':
      if (!isOff) return { ...OFF, more: { reasoning_effort: word } };
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
