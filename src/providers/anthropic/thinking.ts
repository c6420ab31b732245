/**
 * What `reasoning_effort` and `thinking` of a caller mean for a Claude model: the members `thinking` and
 * `effort` of its request. request.ts calls `thinkingOf` for Anthropic and Vertex, bedrock/models.ts for
 * Converse. Pure but for `fields.unsupported`, which throws, or returns if the upstream has
 * `drop_unsupported`. Upstream worker, or counter thread if the body is large.
 *
 * Follows platform.claude.com, pages "Thinking" and "Effort", 2026-11. models.ts says what differs by model.
 *
 * Must hold: a request never has a budget that its `max_tokens` does not exceed, nor an effort that the model
 * lacks: Claude answers 400 to both (test/unit/providers/anthropic/request.test.ts,
 * test/unit/providers/bedrock/request.test.ts). The caller's own `thinking` goes out unchanged.
 */
import type { Members } from '../../core/json.js';
import type { Fields } from '../fields.js';
import { FieldError } from '../provider.js';
import type { ModelTraits } from './models.js';

/** Anthropic's least `budget_tokens`. */
const BUDGET_TOKENS_MIN = 1_024;
/**
 * Tokens of thinking by `reasoning_effort`, for models that think with a budget: LiteLLM's published table,
 * raised to BUDGET_TOKENS_MIN. Its keys are all efforts that a caller may ask for.
 */
const BUDGETS: ReadonlyMap<string, number> = new Map([
  ['none', 0],
  ['minimal', BUDGET_TOKENS_MIN],
  ['low', 1_024],
  ['medium', 2_048],
  ['high', 4_096],
  ['xhigh', 8_192],
  ['max', 16_384],
]);

/** Asks a model to decide how much it thinks. Without `display` models from 4.7 on return no text of it. */
export const ADAPTIVE_THINKING = { type: 'adaptive', display: 'summarized' } as const;

export interface Thinking {
  readonly thinking?: Members;
  /** Of `output_config` at Anthropic, of `outputConfig` in Converse. */
  readonly effort?: string;
}

/** Takes `reasoning_effort`. Throws a FieldError for another value than those of BUDGETS. */
export function effortIn(fields: Fields): string | undefined {
  const effort = fields.string('reasoning_effort');
  if (effort !== undefined && !BUDGETS.has(effort))
    throw new FieldError('reasoning_effort', 'must be none, minimal, low, medium, high, xhigh or max');
  return effort;
}

export function asksToThink(thinking: Members | undefined): boolean {
  return thinking?.type === 'enabled' || thinking?.type === 'adaptive';
}

interface ThinkingRules {
  /** Of the request; undefined without a bound. It includes the tokens of thinking. */
  readonly maxTokens: number | undefined;
  /** The conversation is one in which a model with a budget refuses to think (`Conversation`). */
  readonly continuesWithoutThinking: boolean;
  /** The member `thinking` for a model that decides itself how much it thinks. */
  readonly adaptive: Members;
}

/** Takes both members of the caller. Throws a FieldError. */
export function thinkingOf(fields: Fields, traits: ModelTraits, rules: ThinkingRules): Thinking {
  const callersThinking = fields.record('thinking');
  const effort = effortIn(fields);
  if (callersThinking !== undefined) {
    const { budget_tokens: budget } = callersThinking;
    const { maxTokens } = rules;
    if (typeof budget === 'number' && maxTokens !== undefined && budget >= maxTokens)
      throw new FieldError('thinking.budget_tokens', `must be less than max_tokens, which is ${maxTokens}`);
    return thinkingByCaller(callersThinking, effort, traits);
  }
  return effort === undefined ? {} : thinkingByEffort(effort, traits, fields, rules);
}

/** `effort`: of `effortIn`, here and below. */
function thinkingByCaller(thinking: Members, effort: string | undefined, traits: ModelTraits): Thinking {
  const modelEffort = effort === undefined || effort === 'none' ? undefined : effortOf(effort, traits);
  return { thinking, ...(modelEffort !== undefined && { effort: modelEffort }) };
}

function thinkingByEffort(
  effort: string,
  traits: ModelTraits,
  fields: Fields,
  { maxTokens, continuesWithoutThinking, adaptive }: ThinkingRules,
): Thinking {
  if (effort === 'none') return withoutThinking(fields, traits);
  if (traits.thinking === 'none') {
    fields.unsupported('reasoning_effort', 'is not supported by this model');
    return {};
  }
  // `!`: a model with adaptive thinking has efforts.
  if (traits.thinking !== 'budget') return { thinking: adaptive, effort: effortOf(effort, traits)! };
  // An effort is a hint: it is ignored if max_tokens leaves too few tokens, or if Claude would reject
  // thinking.
  const budget = Math.min(BUDGETS.get(effort)!, (maxTokens ?? Infinity) - 1);
  if (budget < BUDGET_TOKENS_MIN || continuesWithoutThinking) return {};
  return { thinking: { type: 'enabled', budget_tokens: budget } };
}

function withoutThinking(fields: Fields, { thinkingOff }: ModelTraits): Thinking {
  if (thinkingOff === 'absent') return {};
  if (thinkingOff !== undefined) return { thinking: { type: thinkingOff } };
  fields.unsupported('reasoning_effort', 'cannot be none: this model always thinks');
  return { effort: 'low' };
}

/** The model's effort for `effort`, or the nearest one that it has; undefined if it has no efforts. */
function effortOf(effort: string, { efforts }: ModelTraits): string | undefined {
  if (efforts.includes(effort)) return effort;
  if (efforts.length === 0) return undefined;
  return effort === 'xhigh' ? 'high' : 'low';
}
