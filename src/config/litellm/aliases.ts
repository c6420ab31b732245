/** LiteLLM's `model_group_alias` as aliases of models. Main thread of a command. */
import { ALIASES_MAX } from '../model-schema.js';
import type { ImportMap } from './remarks.js';

/** The names that callers can use: see `identifier` in config/annotations.ts. */
export const MODEL_NAME = /^[!-)+-~]{1,128}$/;
export const MODEL_NAME_RULE = 'want a name of 1 to 128 visible ASCII characters without *';

/** Aliases by the id of their model; with a remark for each that cannot be one. */
export function importAliases(router: ImportMap, modelIds: readonly string[]): Map<string, string[]> {
  const aliases = new Map<string, string[]>();
  const section = router.map('model_group_alias');
  for (const alias of section.rest) {
    const value = section.take(alias);
    const target = typeof value === 'string' ? value : section.map(alias).text('model');
    if (!MODEL_NAME.test(alias)) {
      section.remark(alias, MODEL_NAME_RULE);
    } else if (modelIds.includes(alias)) {
      section.remark(alias, 'a model has this name');
    } else if (target === undefined || !modelIds.includes(target)) {
      section.remark(alias, 'its model is not among those carried over');
    } else {
      const own = aliases.get(target) ?? [];
      if (own.length < ALIASES_MAX) aliases.set(target, [...own, alias]);
      else section.remark(alias, `a model has at most ${ALIASES_MAX} aliases`);
    }
  }
  return aliases;
}
