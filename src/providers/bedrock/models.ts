/**
 * Lists what a model on Bedrock accepts, by its name; and the members that make it reason. Converse has the
 * same members for all models, but each model accepts only some. request.ts and tools.ts look models up, and
 * pass the facts to messages.ts and content.ts; response.ts and stream.ts call `publicName`. Upstream worker,
 * or for requests a counter thread if the body is large.
 *
 * A name is like `us.anthropic.claude-sonnet-4-5-20250929-v1:0`, alone or at the end of an ARN. Some ARNs
 * hide the model (application inference profiles, provisioned throughput): its family is `hidden`, and
 * Bedrock itself rejects the members that it does not accept.
 *
 * Follows, as of 2026-11, Amazon Bedrock User Guide, "Get validated JSON results from models", "Prompt
 * caching", "Adaptive thinking", "Extended thinking"; for what the guide does not say the model table of
 * LiteLLM 1.109.1. `reasoning_effort` and `thinking` become:
 *
 *     Claude from 4.6       thinking: adaptive, outputConfig.effort      User Guide, "Adaptive thinking"
 *     Claude 3.7 to 4.5     thinking: enabled, budget_tokens             User Guide, "Extended thinking"
 *     Nova 2                reasoningConfig.maxReasoningEffort           Nova User Guide, "Extended thinking"
 *     gpt-oss, DeepSeek V3  reasoning_effort                             LiteLLM 1.109.1
 *     GPT                   reasoning.effort                             LiteLLM 1.109.1
 *     hidden by its ARN     outputConfig.effort                          API Reference, "OutputConfig"
 *     DeepSeek R1, others   none: R1 always reasons                      LiteLLM 1.109.1
 *
 * Must hold: a name tells family and version, and the table above is what goes out
 * (test/unit/providers/bedrock/request.test.ts). Nobody changes a ModelFacts, because the cache gives one
 * object to all calls.
 */
import type { Members } from '../../core/json.js';
import { cachedByModel, type ModelTraits, nameFactsOf, traitsOf, versionOf } from '../anthropic/models.js';
import {
  ADAPTIVE_THINKING,
  asksToThink,
  effortIn,
  thinkingOf,
  type Thinking,
} from '../anthropic/thinking.js';
import { isClaudeOnBedrock } from '../claude-names.js';
import type { Fields } from '../fields.js';

type Family =
  | 'claude'
  | 'nova'
  | 'nova-2'
  | 'deepseek-r1'
  | 'deepseek'
  | 'gpt-oss'
  | 'gpt'
  | 'hidden'
  | 'other';

export interface ModelFacts {
  readonly family: Family;
  readonly claude: ModelTraits | undefined;
  /** Version of a Claude model, as `versionOf` counts it; Infinity if its name has none; 0 for others. */
  readonly version: number;
  /** Whether the model obeys a schema in `outputConfig.textFormat`. */
  readonly obeysSchemas: boolean;
  /** Whether the model accepts cache points in system texts and messages. */
  readonly allowsCachePoints: boolean;
}

/** Claude is not here: its models accept cache points from V3_5 on. */
const FAMILIES_WITH_CACHE_POINTS: ReadonlySet<Family> = new Set(['nova', 'nova-2', 'hidden']);
const V3_5 = versionOf(3, 5);
export const V4_5 = versionOf(4, 5);
export const V4_7 = versionOf(4, 7);
/** Names of models that do not obey a schema in `textFormat`. */
const WITHOUT_SCHEMAS =
  /amazon\.|meta\.|cohere\.|ai21\.|writer\.|deepseek\.r1|mistral\.(?:mistral-7b|mixtral|mistral-small|mistral-large-24|pixtral)/;

export const factsOf = cachedByModel(factsByName);

function factsByName(model: string): ModelFacts {
  const family = familyOf(model);
  const claude = family === 'claude' ? traitsOf(model) : undefined;
  const version = claude === undefined ? 0 : nameFactsOf(model).version;
  return {
    family,
    claude,
    version,
    obeysSchemas: claude?.obeysSchemas ?? !WITHOUT_SCHEMAS.test(model),
    allowsCachePoints: FAMILIES_WITH_CACHE_POINTS.has(family) || (claude !== undefined && version >= V3_5),
  };
}

function familyOf(model: string): Family {
  if (isClaudeOnBedrock(model)) return 'claude';
  if (model.includes('amazon.nova-2')) return 'nova-2';
  if (model.includes('amazon.nova')) return 'nova';
  if (model.includes('deepseek.r1')) return 'deepseek-r1';
  if (model.includes('deepseek')) return 'deepseek';
  if (model.includes('gpt-oss')) return 'gpt-oss';
  if (/openai\.gpt-\d/.test(model)) return 'gpt';
  return /^arn:.*\/[^./]+$/.test(model) ? 'hidden' : 'other';
}

/** The model's name for callers: of an ARN, which has the operator's account, the end if it names a model. */
export function publicName(model: string): string {
  if (!model.startsWith('arn:')) return model;
  const name = model.slice(model.lastIndexOf('/') + 1);
  return name.includes('.') ? name : 'bedrock';
}

export interface Reasoning {
  /** Whether Claude will think, which rules out some sampling and forced tools. */
  readonly isOn: boolean;
  /** Members of `additionalModelRequestFields`. */
  readonly modelFields: Members;
  /** Members of `outputConfig`. */
  readonly output: Members;
}

/** For models that know only low, medium and high: the nearest of these to each other effort. */
const THREE_EFFORTS: ReadonlyMap<string, string> = new Map<string, string>([
  ['minimal', 'low'],
  ['xhigh', 'high'],
  ['max', 'high'],
]);
const NO_REASONING: Reasoning = { isOn: false, modelFields: {}, output: {} };

/**
 * The members for `reasoning_effort` and `thinking` of the caller. `maxTokens`: of the request; undefined
 * without a bound. `continuesWithoutThinking`: as in `Conversation` (messages.ts); Claude then refuses to
 * think with a budget. Throws a FieldError.
 */
export function reasoningOf(
  fields: Fields,
  facts: ModelFacts,
  maxTokens: number | undefined,
  continuesWithoutThinking: boolean,
): Reasoning {
  const { claude } = facts;
  if (claude !== undefined) {
    // 4.6 returns the text of its thinking without `display`.
    const adaptive = claude.thinking === 'adaptive' ? ADAPTIVE_THINKING : { type: 'adaptive' };
    return reasoningOfClaude(thinkingOf(fields, claude, { maxTokens, continuesWithoutThinking, adaptive }));
  }
  const effort = effortIn(fields);
  const thinking = fields.record('thinking');
  if (thinking !== undefined) {
    if (facts.family === 'hidden')
      return {
        isOn: asksToThink(thinking),
        modelFields: { thinking },
        output: effort === undefined || effort === 'none' ? {} : hiddenEffort(effort),
      };
    // Other models have no `thinking`, only efforts. `adaptive` asks for what they do without an effort.
    const { type } = thinking;
    if (type === 'disabled' && effort === undefined)
      return reasoningOfOthers('none', fields, facts, 'thinking.type');
    if (type !== 'disabled' && type !== 'adaptive')
      fields.unsupported('thinking', 'is not supported by this model');
  }
  return effort === undefined ? NO_REASONING : reasoningOfOthers(effort, fields, facts, 'reasoning_effort');
}

function reasoningOfClaude({ thinking, effort }: Thinking): Reasoning {
  return {
    isOn: asksToThink(thinking),
    modelFields: thinking === undefined ? {} : { thinking },
    output: effort === undefined ? {} : { effort },
  };
}

/** `path`: the caller's member that asks for the effort, which `reasoningOf` has checked. */
function reasoningOfOthers(effort: string, fields: Fields, facts: ModelFacts, path: string): Reasoning {
  const isNone = effort === 'none';
  const nearestEffort = THREE_EFFORTS.get(effort) ?? effort;
  switch (facts.family) {
    case 'nova-2': {
      const config = isNone ? { type: 'disabled' } : { type: 'enabled', maxReasoningEffort: nearestEffort };
      return { ...NO_REASONING, modelFields: { reasoningConfig: config } };
    }
    case 'gpt':
      return { ...NO_REASONING, modelFields: { reasoning: { effort } } };
    case 'gpt-oss':
    case 'deepseek':
      if (!isNone) return { ...NO_REASONING, modelFields: { reasoning_effort: nearestEffort } };
      break;
    case 'hidden':
      if (!isNone) return { ...NO_REASONING, output: hiddenEffort(effort) };
      break;
    case 'deepseek-r1':
      break;
    // A model that cannot reason does what `none` asks for.
    default:
      if (isNone) return NO_REASONING;
  }
  const callersValue = path === 'reasoning_effort' ? effort : 'disabled';
  fields.unsupported(path, `cannot be ${callersValue} for this model`);
  return NO_REASONING;
}

/** The member `effort` of `outputConfig` for a model that its ARN hides: no Claude has `minimal`. */
function hiddenEffort(effort: string): Members {
  return { effort: effort === 'minimal' ? 'low' : effort };
}
