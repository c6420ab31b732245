/**
 * What a model on Bedrock accepts, by its name. Converse has the same members for all models, but each model
 * accepts only some. The files that write requests ask it. Pure; upstream worker.
 *
 * A name is like `us.anthropic.claude-sonnet-4-5-20250929-v1:0`, alone or at the end of an ARN. Some ARNs
 * hide the model (application inference profiles, provisioned throughput): its family is `hidden`, and
 * Bedrock itself rejects the members that it does not accept.
 *
 * Follows, as of 2026-11, Amazon Bedrock User Guide, "Get validated JSON results from models", "Prompt
 * caching", "Adaptive thinking"; for what the guide does not say the model table of LiteLLM 1.109.1.
 *
 * Must hold: every model id that LiteLLM knows has its family (test/unit/providers/bedrock/request.test.ts).
 */
import { traitsOf, type ModelTraits } from '../anthropic/models.js';

export type Family =
  'claude' | 'nova' | 'nova-2' | 'deepseek-r1' | 'deepseek' | 'gpt-oss' | 'gpt' | 'hidden' | 'other';

export interface ModelFacts {
  readonly family: Family;
  /** Traits of a Claude model; undefined for others. */
  readonly claude: ModelTraits | undefined;
  /** Version of a Claude model, as 4.5; 0 for others. */
  readonly version: number;
  /** Whether the model obeys a schema in `outputConfig.textFormat`. */
  readonly schemas: boolean;
  readonly cachePoints: boolean;
}

/** Converse's greatest temperature; OpenAI's is 2. */
export const TEMPERATURE_MAX = 1;
/** Claude's default of temperature and top_p. */
export const CLAUDE_DEFAULT = 1;

/** Families with cache points, besides Claude. */
const CACHING: ReadonlySet<Family> = new Set(['nova', 'nova-2', 'hidden']);
const CLAUDE_VERSION = /claude-(?:[a-z]+-)?v?(\d{1,2})(?:-(\d)(?!\d))?(?!\d)/;
const WITHOUT_SCHEMAS =
  /amazon\.|meta\.|cohere\.|ai21\.|writer\.|deepseek\.r1|mistral\.(?:mistral-7b|mixtral|mistral-small|mistral-large-24|pixtral)/;

const factsByModel = new Map<string, ModelFacts>();
/** More than the settings name. The bound keeps memory small if names vary. */
const CACHED_MODELS_MAX = 256;

/** Cheap after the first call for a model: the facts are kept by name. */
export function factsOf(model: string): ModelFacts {
  let facts = factsByModel.get(model);
  if (facts === undefined) {
    if (factsByModel.size === CACHED_MODELS_MAX) factsByModel.clear();
    facts = factsByName(model);
    factsByModel.set(model, facts);
  }
  return facts;
}

function factsByName(model: string): ModelFacts {
  const family = familyOf(model);
  const claude = family === 'claude' ? traitsOf(model, false) : undefined;
  const [, major = '0', minor = '0'] = (claude && CLAUDE_VERSION.exec(model)) ?? [];
  const version = Number(`${major}.${minor}`);
  return {
    family,
    claude,
    version,
    schemas: claude?.schemas ?? !WITHOUT_SCHEMAS.test(model),
    cachePoints: CACHING.has(family) || (claude !== undefined && version >= 3.5),
  };
}

function familyOf(model: string): Family {
  if (model.includes('claude')) return 'claude';
  if (model.includes('amazon.nova-2')) return 'nova-2';
  if (model.includes('amazon.nova')) return 'nova';
  if (model.includes('deepseek.r1')) return 'deepseek-r1';
  if (model.includes('deepseek')) return 'deepseek';
  if (model.includes('gpt-oss')) return 'gpt-oss';
  if (/openai\.gpt-\d/.test(model)) return 'gpt';
  return /^arn:.*\/[^./]+$/.test(model) ? 'hidden' : 'other';
}

/**
 * The model's name for callers. An ARN has the number of the operator's account, so they see only its end.
 */
export function publicName(model: string): string {
  if (!model.startsWith('arn:')) return model;
  const name = model.slice(model.lastIndexOf('/') + 1);
  return name.includes('.') ? name : 'bedrock';
}
