/**
 * Lists what a Claude model accepts, by its name. request.ts, tools.ts and bedrock/models.ts look models up,
 * and hand the traits to thinking.ts. Upstream worker, or counter thread if the body is large.
 *
 * Follows platform.claude.com, pages "Thinking", "Effort", "Structured outputs", "Mid-conversation system
 * messages" and the migration guides of Opus 4.7 to 5.5, 2026-11; LiteLLM 1.109's table of models says the
 * same. An unknown name without a version counts as the newest model, and so does a version that is newer
 * than the table.
 *
 * Must hold: TRAITS_BY_VERSION is sorted, the newest first. Nobody changes a ModelTraits, because the cache
 * gives one object to all calls (test/unit/providers/anthropic/models.test.ts).
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

/** The models before 3.7, which do not think. Each set below has the version that brought its changes. */
const BEFORE_THINKING: ModelTraits = {
  thinking: 'none',
  thinkingOff: 'absent',
  efforts: NO_EFFORTS,
  allowsSampling: true,
  hasOneSampler: false,
  obeysSchemas: false,
  canForceTools: true,
  allowsSystemTurns: false,
};
const SINCE_3_7: ModelTraits = { ...BEFORE_THINKING, thinking: 'budget' };
const SINCE_4_1: ModelTraits = { ...SINCE_3_7, hasOneSampler: true };
const SINCE_4_5: ModelTraits = { ...SINCE_4_1, obeysSchemas: true };
const SINCE_4_6: ModelTraits = { ...SINCE_4_5, thinking: 'either', efforts: EFFORTS_TO_MAX };
const SINCE_4_7: ModelTraits = {
  ...SINCE_4_6,
  thinking: 'adaptive',
  efforts: EFFORTS,
  allowsSampling: false,
};
const SINCE_4_8: ModelTraits = { ...SINCE_4_7, allowsSystemTurns: true };
/** From version 5 on a model thinks unless the request says otherwise. */
const SINCE_5: ModelTraits = { ...SINCE_4_8, thinkingOff: 'disabled' };
const SINCE_5_1: ModelTraits = { ...SINCE_5, thinkingOff: undefined, canForceTools: false };

/** A version as a number, so that versions can be compared: 4.8 is 408, and 4.10 is 410. */
export const versionOf = (major: number, minor: number): number => major * 100 + minor;
const V4_7 = versionOf(4, 7);
const V5 = versionOf(5, 0);

/** `since`: the first version with these traits. The newest is first; the last is for all older versions. */
const TRAITS_BY_VERSION: readonly { readonly since: number; readonly traits: ModelTraits }[] = [
  { since: versionOf(5, 1), traits: SINCE_5_1 },
  { since: V5, traits: SINCE_5 },
  { since: versionOf(4, 8), traits: SINCE_4_8 },
  { since: V4_7, traits: SINCE_4_7 },
  { since: versionOf(4, 6), traits: SINCE_4_6 },
  { since: versionOf(4, 5), traits: SINCE_4_5 },
  { since: versionOf(4, 1), traits: SINCE_4_1 },
  { since: versionOf(3, 7), traits: SINCE_3_7 },
  { since: 0, traits: BEFORE_THINKING },
];

/** The traits in which a family differs from others of its version. No family differs before 4.7. */
function familyTraits(family: string, version: number): Partial<ModelTraits> {
  if (family === 'mythos' || family === 'fable') return { thinkingOff: undefined };
  if (family === 'sonnet' && version > V5) return { thinkingOff: 'between_tools' };
  if (family === 'haiku' && version > V5) return { thinkingOff: 'disabled', canForceTools: true };
  return {};
}

/**
 * `claude-opus-4-6`, `claude-sonnet-4-5@20250929`, `us.anthropic.claude-haiku-4-5-20251001-v1:0`, and of old
 * names `claude-3-7-sonnet-20250219`, `claude-2.1`, `claude-v2`, `claude-instant-v1`. A number of more than
 * two digits is a date.
 */
const NAME_PATTERN = /claude-(?:([a-z]+)-)?v?(\d{1,2})(?:[-.](\d{1,2})(?!\d))?(?!\d)/;

/** What a model's name says. A name without a version counts as newer than all that are known: Infinity. */
export function nameFactsOf(model: string): { readonly family: string; readonly version: number } {
  const [, family = '', major, minor = '0'] = NAME_PATTERN.exec(model) ?? [];
  return { family, version: major === undefined ? Infinity : versionOf(Number(major), Number(minor)) };
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

const cachedTraitsOf = cachedByModel(traitsByName);

/**
 * What the model accepts. `onVertex`: there schemas begin with 4.6 (Google Cloud, "Structured outputs with
 * Anthropic Claude models", 2026-11).
 */
export function traitsOf(model: string, { onVertex = false } = {}): ModelTraits {
  const traits = cachedTraitsOf(model);
  // The comparison of objects works, because `traitsByName` makes new objects only from 4.7 on.
  return onVertex && traits === SINCE_4_5 ? SINCE_4_1 : traits;
}

function traitsByName(model: string): ModelTraits {
  // The only current model whose name has no version: its traits are those of 4.7, but it always thinks.
  if (model.includes('claude-mythos-preview')) return { ...SINCE_4_7, thinkingOff: undefined };
  const { family, version } = nameFactsOf(model);
  // `!`: the last entry begins at 0, so every version finds an entry.
  const { traits } = TRAITS_BY_VERSION.find(({ since }) => version >= since)!;
  return version < V4_7 ? traits : { ...traits, ...familyTraits(family, version) };
}
