/**
 * `reasoning_effort`, `thinking` and Google's own `thinking_config` as Gemini's `thinkingConfig`. request.ts
 * calls it. Pure; upstream worker.
 *
 * Follows the table of https://ai.google.dev/gemini-api/docs/openai#thinking, read 2026-11; LiteLLM's budgets
 * for `minimal` (1, 128 or 512 tokens by model) differ from it:
 *
 *     reasoning_effort   Gemini 3: level                  before: budget in tokens
 *     none               minimal; Pro: cannot be had      0; Pro: cannot be had
 *     minimal            minimal; Pro: low                1,024
 *     low, medium, high  the same                         1,024, 8,192, 24,576
 *     xhigh              high                             24,576; Pro: 32,768, its highest
 *
 * Must hold: the table (test/unit/providers/gemini/request.test.ts).
 */
import { isRecord } from '../../core/json.js';
import type { Fields } from '../fields.js';
import { FieldError } from '../provider.js';

const GEMINI_3 = /(?:^|\/)gemini-(?:[3-9]|[1-9]\d|(?:pro|flash|flash-lite)-latest)/;
const PRO = /-pro\b/;

/**
 * Whether the model is of generation 3 or later, by its name; false for tuned models, whose names say
 * nothing.
 */
export function isGemini3(model: string): boolean {
  return GEMINI_3.test(model);
}

const LEVELS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    minimal: 'MINIMAL',
    low: 'LOW',
    medium: 'MEDIUM',
    high: 'HIGH',
    xhigh: 'HIGH',
  }),
);
const BUDGETS: ReadonlyMap<string, number> = new Map(
  Object.entries({
    minimal: 1_024,
    low: 1_024,
    medium: 8_192,
    high: 24_576,
    xhigh: 24_576,
  }),
);
const PRO_BUDGET_MIN = 128;
const PRO_BUDGET_MAX = 32_768;

/** Members of `extra_body.google.thinking_config`, and their names in `thinkingConfig`. */
const CONFIG_MEMBERS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    thinking_budget: 'thinkingBudget',
    thinking_level: 'thinkingLevel',
    include_thoughts: 'includeThoughts',
  }),
);

/**
 * The `thinkingConfig`; undefined if the request does not say how much to think. `given`: Google's own
 * `thinking_config`, and `givenPath` where it was. Throws a FieldError.
 */
export function thinkingConfig(
  fields: Fields,
  model: string,
  given: unknown,
  givenPath: string,
): object | undefined {
  const effort = fields.string('reasoning_effort');
  const thinking = fields.record('thinking');
  if (given !== undefined && given !== null) {
    if (effort !== undefined || thinking !== undefined)
      throw new FieldError(givenPath, 'cannot stand beside reasoning_effort or thinking');
    return renamed(given, givenPath);
  }
  if (effort !== undefined) return ofEffort(fields, effort, model, 'reasoning_effort');
  if (thinking === undefined) return undefined;
  if (thinking.type === 'disabled') return ofEffort(fields, 'none', model, 'thinking.type');
  if (thinking.type !== 'enabled' && thinking.type !== 'adaptive')
    throw new FieldError('thinking.type', 'must be enabled, adaptive or disabled');
  const { budget_tokens: budget } = thinking;
  if (budget !== undefined && !Number.isSafeInteger(budget))
    throw new FieldError('thinking.budget_tokens', 'must be an integer');
  return { ...(budget !== undefined && { thinkingBudget: budget }), includeThoughts: budget !== 0 };
}

function ofEffort(fields: Fields, effort: string, model: string, path: string): object {
  const isPro = PRO.test(model);
  const isNew = isGemini3(model);
  if (effort === 'none') {
    if (isPro) fields.unsupported(path, 'cannot be none: this model always thinks');
    if (isNew) return { thinkingLevel: isPro ? 'LOW' : 'MINIMAL', includeThoughts: false };
    return { thinkingBudget: isPro ? PRO_BUDGET_MIN : 0, includeThoughts: false };
  }
  const level = effort === 'minimal' && isPro ? 'LOW' : LEVELS.get(effort);
  if (level === undefined) throw new FieldError(path, 'must be none, minimal, low, medium, high or xhigh');
  if (isNew) return { thinkingLevel: level, includeThoughts: true };
  const budget = effort === 'xhigh' && isPro ? PRO_BUDGET_MAX : BUDGETS.get(effort);
  return { thinkingBudget: budget, includeThoughts: true };
}

function renamed(given: unknown, path: string): object {
  if (!isRecord(given)) throw new FieldError(path, 'must be an object');
  const config: Record<string, unknown> = {};
  for (const name in given) {
    const theirs = CONFIG_MEMBERS.get(name);
    if (theirs === undefined) throw new FieldError(`${path}.${name}`, 'is not known');
    config[theirs] = given[name];
  }
  return config;
}
