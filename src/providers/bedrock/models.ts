/**
 * What models on Bedrock can do and Converse does not say by itself: its members are the same for all, what a
 * model accepts of them is not. Pure; upstream worker.
 *
 * The name of a model tells: `us.anthropic.claude-sonnet-4-5-20250929-v1:0`, alone or at the end of an ARN.
 * Some ARNs tell nothing (application inference profiles, provisioned throughput): what they cannot do,
 * Bedrock refuses itself.
 *
 * Sources, read 2026-11: Amazon Bedrock User Guide, "Get validated JSON results from models", "Prompt
 * caching", "Adaptive thinking"; the model table of LiteLLM 1.109.1 if the guide is silent.
 */
import { traitsOf, type ModelTraits } from '../anthropic/models.js';

export type Family =
  'claude' | 'nova' | 'nova-2' | 'deepseek-r1' | 'deepseek' | 'gpt-oss' | 'gpt' | 'hidden' | 'other';

export interface ModelFacts {
  readonly family: Family;
  /** Undefined if it is not Claude. */
  readonly claude: ModelTraits | undefined;
  /** Of Claude: 4.5; 0 for others. */
  readonly version: number;
  /** `outputConfig.textFormat` binds what the model writes. */
  readonly schemas: boolean;
  readonly cachePoints: boolean;
}

const CACHING: ReadonlySet<Family> = new Set(['nova', 'nova-2', 'hidden']);
const CLAUDE_VERSION = /claude-(?:[a-z]+-)?v?(\d{1,2})(?:-(\d)(?!\d))?(?!\d)/;
const WITHOUT_SCHEMAS =
  /amazon\.|meta\.|cohere\.|ai21\.|writer\.|deepseek\.r1|mistral\.(?:mistral-7b|mixtral|mistral-small|mistral-large-24|pixtral)/;

const known = new Map<string, ModelFacts>();
/** The settings name few models; a bound all the same. */
const KNOWN_MAX = 256;

export function factsOf(model: string): ModelFacts {
  let facts = known.get(model);
  if (facts === undefined) {
    if (known.size === KNOWN_MAX) known.clear();
    facts = factsByName(model);
    known.set(model, facts);
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

/** The model's name for callers: of an ARN, which holds an account's number, its end. */
export function publicName(model: string): string {
  if (!model.startsWith('arn:')) return model;
  const name = model.slice(model.lastIndexOf('/') + 1);
  return name.includes('.') ? name : 'bedrock';
}
