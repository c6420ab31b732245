/**
 * Lists what a Claude model accepts, by its name. request.ts, tools.ts and bedrock/models.ts look models up,
 * and hand the traits to thinking.ts. Upstream worker, or counter thread if the body is large.
 *
 * Follows platform.claude.com, pages "Thinking", "Effort", "Structured outputs", "Mid-conversation system
 * messages" and the migration guides of Opus 4.7 to 5.5, 2026-11; LiteLLM 1.109's table of models says the
 * same. An unknown name without a version counts as the newest model, and so does a version that is newer
 * than the table.
 *
 * Must hold: nobody changes a ModelTraits, because the cache gives one object to all calls
 * (test/unit/providers/anthropic/models.test.ts).
 */

export interface ModelTraits {
  /**
   * `budget`: thinking with a budget of tokens; `adaptive`: the model decides how much, guided by an effort;
   * `either`: it accepts both.
   */
  readonly thinking: 'none' | 'budget' | 'either' | 'adaptive';
  /**
   * The `thinking.type` that asks for no thinking. `between_tools`: some models think at least there.
   * `absent`: the request has no `thinking`. Undefined: there is no such type, the model always thinks.
   */
  readonly thinkingOff: 'absent' | 'disabled' | 'between_tools' | undefined;
  /** Values of `output_config.effort` beside adaptive thinking; empty if the model has no such thinking. */
  readonly efforts: readonly string[];
  /** Whether temperature, top_p and top_k may differ from their defaults. */
  readonly allowsSampling: boolean;
  /** Whether the model rejects temperature and top_p beside each other, as all do since Opus 4.1. */
  readonly hasOneSampler: boolean;
  /** Whether the model obeys a JSON schema for its content, and for the arguments of a `strict` tool. */
  readonly obeysSchemas: boolean;
  /** Whether the request can force the model to call a tool. */
  readonly canForceTools: boolean;
  /** Whether `messages` may have system turns. Only Anthropic's own API allows them (writeMessages). */
  readonly allowsSystemTurns: boolean;
}

const NO_EFFORTS: readonly string[] = [];
const EFFORTS_TO_MAX = ['low', 'medium', 'high', 'max'];
const EFFORTS = ['low', 'medium', 'high', 'xhigh', 'max'];

/** A version as a number, so that versions can be compared: 4.8 is 408, and 4.10 is 410. */
export const versionOf = (major: number, minor: number): number => major * 100 + minor;
const V4_5 = versionOf(4, 5);
const V4_6 = versionOf(4, 6);
const V4_7 = versionOf(4, 7);
const V5 = versionOf(5, 0);

/** The models before 3.7, which do not think. */
const FIRST_TRAITS: ModelTraits = {
  thinking: 'none',
  thinkingOff: 'absent',
  efforts: NO_EFFORTS,
  allowsSampling: true,
  hasOneSampler: false,
  obeysSchemas: false,
  canForceTools: true,
  allowsSystemTurns: false,
};

/** What each version has changed, the oldest first. Where schemas begin depends on the platform besides. */
const CHANGES: readonly (readonly [since: number, changes: Partial<ModelTraits>])[] = [
  [versionOf(3, 7), { thinking: 'budget' }],
  [versionOf(4, 1), { hasOneSampler: true }],
  [V4_6, { thinking: 'either', efforts: EFFORTS_TO_MAX }],
  [V4_7, { thinking: 'adaptive', efforts: EFFORTS, allowsSampling: false }],
  [versionOf(4, 8), { allowsSystemTurns: true }],
  // From here on a model thinks unless the request says otherwise.
  [V5, { thinkingOff: 'disabled' }],
  [versionOf(5, 1), { thinkingOff: undefined, canForceTools: false }],
];

/** The traits in which a family differs from others of its version. No family differs before 4.7. */
function familyTraits(family: string, version: number): Partial<ModelTraits> {
  if (family === 'mythos' || family === 'fable') return { thinkingOff: undefined };
  if (family === 'sonnet' && version > V5) return { thinkingOff: 'between_tools' };
  if (family === 'haiku' && version > V5) return { thinkingOff: 'disabled', canForceTools: true };
  return {};
}

/**
 * `claude-opus-4-6`, `claude-sonnet-4-5@20250929`, `us.anthropic.claude-haiku-4-5-20251001-v1:0`; old names,
 * and those of some resellers, have the family last: `claude-3-7-sonnet-20250219`, `claude-4.5-sonnet`; or
 * none: `claude-2.1`, `claude-v2`. A number of more than two digits is a date.
 */
const NAME_PATTERN = /claude-(?:([a-z]+)-)?v?(\d{1,2})(?:[-.](\d{1,2})(?!\d))?(?!\d)(?:-([a-z]+))?/;

/** What a model's name says. A name without a version counts as newer than all that are known: Infinity. */
export function nameFactsOf(model: string): { readonly family: string; readonly version: number } {
  const [, family, major, minor = '0', lastFamily = ''] = NAME_PATTERN.exec(model) ?? [];
  return {
    family: family ?? lastFamily,
    version: major === undefined ? Infinity : versionOf(Number(major), Number(minor)),
  };
}

/** A full cache is cleared. Most settings name fewer models, but each reload may name others. */
const CACHED_MODELS_MAX = 256;

/** Caches what `read` returns for a name. bedrock/models.ts uses it too. */
export function cachedByModel<Facts>(read: (model: string) => Facts): (model: string) => Facts {
  const cache = new Map<string, Facts>();
  return (model) => {
    let facts = cache.get(model);
    if (facts === undefined) {
      if (cache.size === CACHED_MODELS_MAX) cache.clear();
      facts = read(model);
      cache.set(model, facts);
    }
    return facts;
  };
}

const traitsAnywhere = cachedByModel((model) => traitsByName(model, V4_5));
// Google Cloud, "Structured outputs with Anthropic Claude models", 2026-11.
const traitsOnVertex = cachedByModel((model) => traitsByName(model, V4_6));

/** What the model accepts, on Vertex or elsewhere. */
export function traitsOf(model: string, { onVertex = false } = {}): ModelTraits {
  return (onVertex ? traitsOnVertex : traitsAnywhere)(model);
}

/** `schemasSince`: the first version that obeys schemas. */
function traitsByName(model: string, schemasSince: number): ModelTraits {
  // The only current model whose name has no version: its traits are those of 4.7, but it always thinks.
  const isPreview = model.includes('claude-mythos-preview');
  const { family, version } = isPreview ? { family: 'mythos', version: V4_7 } : nameFactsOf(model);
  let traits: ModelTraits = { ...FIRST_TRAITS, obeysSchemas: version >= schemasSince };
  for (const [since, changes] of CHANGES) if (version >= since) traits = { ...traits, ...changes };
  return version < V4_7 ? traits : { ...traits, ...familyTraits(family, version) };
}
