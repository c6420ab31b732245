/**
 * Makes one model of Tollgate with several upstreams from the entries of LiteLLM's file that have the same
 * `model_name`: the price, the upstreams' weights and priorities, the aliases, the fallbacks. import.ts calls
 * `importModel`, `importAliases` and `withFallbacks`, in the command `tollgate config import-litellm`. Pure.
 *
 * Must hold: what `config check` would reject is left out, with a remark, and so is all else that is read and
 * not used, as remarks.ts says (test/unit/config/litellm/import.test.ts).
 */
import type { Service } from '../../core/door-names.js';
import { IDENTIFIER_PATTERN } from '../annotations.js';
import { QUOTA_LIMITS_MAX } from '../../core/quotas.js';
import { isRecord } from '../../core/json.js';
import { ALIASES_MAX, FALLBACKS_MAX, OUTPUT_TOKENS_USUAL, UPSTREAMS_MAX } from '../catalog-schema.js';
import { urlOf } from '../provider-settings.js';
import type { Settings } from '../schema.js';
import { WEIGHT_MAX } from '../upstream-schema.js';
import { KEY_HEADER } from '../upstream-scopes.js';
import type { Deployment, Upstream } from './deployment.js';
import { type ModelPrice, priceOf } from './price.js';
import type { ImportMap } from './remarks.js';

/**
 * A model in Tollgate's file, with the names of the file. It is written in the order of the members in
 * `importModel`; what is undefined is not written.
 */
export interface ImportedModel {
  readonly id: string;
  readonly aliases: readonly string[] | undefined;
  readonly owned_by: string;
  readonly price: ModelPrice | undefined;
  readonly serves: readonly Service[] | undefined;
  readonly max_output_tokens: number | undefined;
  readonly fallbacks: readonly string[] | undefined;
  readonly fallback_on: readonly FallbackReason[] | undefined;
  readonly upstreams: readonly (Upstream &
    Limits & { readonly weight: number | undefined; readonly priority: number | undefined })[];
}

/** What a model without the setting `serves` serves. */
const CHAT: readonly Service[] = ['chat'];

type FallbackReason = Settings['models'][number]['fallback_on'][number];

/**
 * The limits of one deployment. LiteLLM counts each deployment by itself. Tollgate counts all models of an
 * address and key together unless `quota_scope` is `model`, so a deployment with limits gets this setting.
 */
type Limits = Partial<Record<'requests_per_minute' | 'tokens_per_minute', number>> & {
  readonly quota_scope?: 'model';
};

/** LiteLLM shares calls among entries by the first of these parameters that any entry has. */
const SHARE_PARAMETERS = ['weight', 'rpm', 'tpm'] as const;

/**
 * Returns the model `id` with an upstream for each deployment. There is at least one. Deployments beyond
 * UPSTREAMS_MAX are left out, with a remark. `allDeployments`: the deployments of all models.
 */
export function importModel(
  id: string,
  deployments: readonly Deployment[],
  allDeployments: readonly Deployment[],
): ImportedModel {
  const kept = deployments.slice(0, UPSTREAMS_MAX);
  for (const { entry } of deployments.slice(UPSTREAMS_MAX)) {
    entry.remark('model_name', `left out: a model has at most ${UPSTREAMS_MAX} upstreams`);
  }
  const weights = weightsOf(kept);
  const priorities = prioritiesOf(kept);
  const serves = [...new Set(kept.map(({ service }) => service))];
  const price = priceOf(kept, serves.includes('chat') || serves.includes('completions'));
  const outputTokensMax = outputTokensOf(kept);
  if (price !== undefined && outputTokensMax === undefined && serves.includes('chat'))
    kept[0]!.entry.remark(
      'model_name',
      `max_output_tokens is not in the file (LiteLLM has a table of its own): ${OUTPUT_TOKENS_USUAL} is taken, and a report of more output is not believed, so that only its text is billed`,
    );
  return {
    id,
    aliases: undefined,
    owned_by: kept[0]!.provider,
    price,
    serves: serves.length === 1 && serves[0] === 'chat' ? undefined : serves,
    max_output_tokens: outputTokensMax,
    fallbacks: undefined,
    fallback_on: undefined,
    upstreams: kept.map((deployment, index) => ({
      ...deployment.upstream,
      ...limitsOf(deployment, allDeployments),
      weight: weights?.[index],
      priority: priorities?.[index],
    })),
  };
}

/** The setting that each parameter becomes, and its highest value. */
const LIMIT_SETTINGS = {
  rpm: { name: 'requests_per_minute', max: QUOTA_LIMITS_MAX.requestsPerMinute },
  tpm: { name: 'tokens_per_minute', max: QUOTA_LIMITS_MAX.tokensPerMinute },
} as const;

/**
 * Returns the entry's `rpm` and `tpm` as limits. Upstreams of one scope share one limit in Tollgate, whatever
 * models they are of, and `config check` rejects a limit with two values. So entries of one scope that differ
 * get no limit, but a remark.
 */
function limitsOf(deployment: Deployment, allDeployments: readonly Deployment[]): Limits {
  const scope = scopeOf(deployment);
  const deploymentsOfScope = allDeployments.filter((other) => scopeOf(other) === scope);
  const limits: Limits = {};
  for (const parameter of ['rpm', 'tpm'] as const) {
    const value = deployment[parameter];
    if (value === undefined) continue;
    const { name, max } = LIMIT_SETTINGS[parameter];
    if (!Number.isSafeInteger(value) || value < 1 || value > max)
      remarkParameter(deployment, parameter, `no limit: wanted is a whole number from 1 to ${max}`);
    else if (deploymentsOfScope.some((other) => other[parameter] !== value))
      remarkParameter(deployment, parameter, 'no limit: entries with the same address, key and model differ');
    else limits[name] = value;
  }
  return Object.keys(limits).length === 0 ? {} : { ...limits, quota_scope: 'model' };
}

/**
 * Returns the same text for upstreams that share their limits. Does what `scopeTextOf` (upstream-scopes.ts)
 * does for settings that were read: here variables have no values yet. The text stays in this process.
 */
function scopeOf({ upstream }: Deployment): string {
  const { provider, key, model, region, project, profile, headers = {} } = upstream;
  const secrets = Object.entries(headers).filter(([name]) => KEY_HEADER.test(name));
  return JSON.stringify([provider, urlOf(upstream), key, model, region, project, profile, secrets]);
}

/** Returns whole numbers from 1 in the ratio of the entries' values; undefined if all are the same. */
function weightsOf(deployments: readonly Deployment[]): number[] | undefined {
  const parameter = SHARE_PARAMETERS.find((name) =>
    deployments.some((deployment) => deployment[name] !== undefined),
  );
  if (parameter === undefined) return undefined;
  const shares = deployments.map((deployment) => Math.max(deployment[parameter] ?? 0, 0));
  const largest = Math.max(...shares);
  if (shares.every((share) => share === largest)) return undefined;
  // A divisor of 0 stands for shares that are no whole numbers: they are scaled and rounded.
  const divisor = shares.every(Number.isSafeInteger) ? shares.reduce(greatestDivisor) : 0;
  const isExact = divisor > 0 && largest / divisor <= WEIGHT_MAX;
  return shares.map((share, index) => {
    if (share === 0)
      remarkParameter(deployments[index]!, parameter, 'has no share in LiteLLM; here it has the smallest');
    const weight = isExact ? share / divisor : Math.round((share / largest) * WEIGHT_MAX);
    return Math.max(weight, 1);
  });
}

/** Returns the greatest common divisor. */
function greatestDivisor(number: number, other: number): number {
  return other === 0 ? number : greatestDivisor(other, number % other);
}

/**
 * Returns priorities in the order of the entries' `order`, of which LiteLLM uses the lowest first, and
 * entries without an order last. Undefined if no entry has an order.
 */
function prioritiesOf(deployments: readonly Deployment[]): number[] | undefined {
  const orders = [...new Set(deployments.flatMap(({ order }) => (order === undefined ? [] : [order])))];
  if (orders.length === 0) return undefined;
  orders.sort((order, other) => order - other);
  return deployments.map(({ order }) => (order === undefined ? orders.length : orders.indexOf(order)) + 1);
}

/** Returns the highest bound of output tokens that an entry has; undefined if none has one. */
function outputTokensOf(deployments: readonly Deployment[]): number | undefined {
  const bounds = deployments.flatMap(({ outputTokensMax }) => outputTokensMax ?? []);
  return bounds.length === 0 ? undefined : Math.max(...bounds);
}

/** Adds a remark on a parameter that was read already. */
function remarkParameter({ entry }: Deployment, name: string, text: string): void {
  entry.map('litellm_params').remark(name, text);
}

/** A name that callers can use. */
export const MODEL_NAME = new RegExp(IDENTIFIER_PATTERN);
export const MODEL_NAME_RULE = 'want a name of 1 to 128 visible ASCII characters without *';

/**
 * Reads `model_group_alias`, a map from an alias to its model. Returns the aliases by the id of their model.
 * Adds a remark on each alias that cannot be used.
 */
export function importAliases(router: ImportMap, modelIds: readonly string[]): Map<string, string[]> {
  const aliases = new Map<string, string[]>();
  const section = router.map('model_group_alias');
  for (const alias of section.unread) {
    const value = section.take(alias);
    const modelId = typeof value === 'string' ? value : modelOfAlias(section.map(alias));
    if (!MODEL_NAME.test(alias)) {
      section.remark(alias, MODEL_NAME_RULE);
    } else if (modelIds.includes(alias)) {
      section.remark(alias, 'a model has this name');
    } else if (modelId === undefined || !modelIds.includes(modelId)) {
      section.remark(alias, 'its model is not among those carried over');
    } else {
      const modelAliases = aliases.get(modelId) ?? [];
      if (modelAliases.length < ALIASES_MAX) aliases.set(modelId, [...modelAliases, alias]);
      else section.remark(alias, `a model has at most ${ALIASES_MAX} aliases`);
    }
  }
  return aliases;
}

/** Returns the model of an alias that is a map. Its other members, such as `hidden`, get a remark. */
function modelOfAlias(alias: ImportMap): string | undefined {
  const model = alias.text('model');
  for (const name of alias.unread) alias.remark(name, 'has no counterpart; GET /v1/models lists no aliases');
  return model;
}

/** LiteLLM's lists of fallbacks, and when the fallbacks of each are asked. */
const FALLBACK_LISTS: readonly [name: string, reason: FallbackReason][] = [
  ['fallbacks', 'unavailable'],
  ['context_window_fallbacks', 'context_length'],
];

/** The fallbacks of one model, of all lists together. */
interface ModelFallbacks {
  readonly ids: Set<string>;
  readonly reasons: Set<FallbackReason>;
}

/**
 * Returns the models with their fallbacks. `sections`: `router_settings`, then `litellm_settings`. LiteLLM
 * has a list for each reason, and Tollgate has one for both, which gets a remark.
 */
export function withFallbacks(
  models: readonly ImportedModel[],
  sections: readonly ImportMap[],
): ImportedModel[] {
  const fallbacksByModel = fallbacksOf(models, sections);
  const servedBy = new Map(models.map(({ id, serves }) => [id, serves ?? CHAT]));
  return models.map((model) => {
    const fallbacks = fallbacksByModel.get(model.id);
    return fallbacks === undefined ? model : withFallbacksOf(model, fallbacks, servedBy, sections[0]);
  });
}

/** Returns the fallbacks that are models of this import, by the model that has them. */
function fallbacksOf(
  models: readonly ImportedModel[],
  sections: readonly ImportMap[],
): Map<string, ModelFallbacks> {
  const modelIds = new Set(models.map(({ id }) => id));
  const fallbacksByModel = new Map<string, ModelFallbacks>();
  for (const { section, name, reason, id, listed } of listedFallbacks(sections)) {
    const importedIds = listed.filter(
      (fallback): fallback is string => typeof fallback === 'string' && modelIds.has(fallback),
    );
    const ofModel = `of ${JSON.stringify(id).slice(0, 200)}`;
    if (!modelIds.has(id) || importedIds.length === 0) {
      section.remark(name, `${ofModel}: its models are not among those carried over`);
      continue;
    }
    if (importedIds.length < listed.length)
      section.remark(
        name,
        `${ofModel}: ${listed.length - importedIds.length} of its models are not carried over`,
      );
    const { ids, reasons } = fallbacksByModel.get(id) ?? { ids: new Set(), reasons: new Set([reason]) };
    if (!reasons.has(reason))
      section.remark(name, `${ofModel}: a model has one list of fallbacks, so each is used for both reasons`);
    fallbacksByModel.set(id, { ids: new Set([...ids, ...importedIds]), reasons: reasons.add(reason) });
  }
  return fallbacksByModel;
}

/**
 * Reads `fallbacks` and `context_window_fallbacks`: lists of maps from a model to a list of others. `id`: the
 * model that has the fallbacks `listed`, without itself.
 */
function listedFallbacks(sections: readonly ImportMap[]) {
  return sections.flatMap((section) =>
    FALLBACK_LISTS.flatMap(([name, reason]) =>
      fallbackMaps(section, name).flatMap((map) =>
        Object.entries(map).map(([id, list]) => {
          const listed = listIn(list).filter((fallback) => fallback !== id);
          return { section, name, reason, id, listed };
        }),
      ),
    ),
  );
}

/** Returns the maps of a list of fallbacks. Another value gets a remark: LiteLLM would not start with it. */
function fallbackMaps(section: ImportMap, name: string): Record<string, unknown>[] {
  const value = section.take(name);
  const maps = listIn(value).filter(isRecord);
  const isListOfMaps = Array.isArray(value) && maps.length === value.length;
  if (value !== undefined && !isListOfMaps)
    section.remark(name, 'wanted is a list of maps from a model to a list of others; all else was left out');
  return maps;
}

/** Returns the value if it is a list, otherwise an empty list. */
function listIn(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? (value as unknown[]) : [];
}

/** Returns the model with the first FALLBACKS_MAX of the fallbacks that serve all that the model serves. */
function withFallbacksOf(
  model: ImportedModel,
  { ids, reasons }: ModelFallbacks,
  servedBy: ReadonlyMap<string, readonly Service[]>,
  section: ImportMap | undefined,
): ImportedModel {
  const ofModel = `of ${JSON.stringify(model.id)}`;
  // A fallback without the model's services cannot respond in its place: `config check` rejects it.
  const services = model.serves ?? CHAT;
  const servingIds = [...ids].filter((id) =>
    services.every((service) => (servedBy.get(id) ?? CHAT).includes(service)),
  );
  if (servingIds.length < ids.size)
    section?.remark(
      'fallbacks',
      `${ofModel}: ${ids.size - servingIds.length} of its models serve something else`,
    );
  if (servingIds.length > FALLBACKS_MAX)
    section?.remark('fallbacks', `${ofModel}: a model has at most ${FALLBACKS_MAX}`);
  if (servingIds.length === 0) return model;
  return { ...model, fallbacks: servingIds.slice(0, FALLBACKS_MAX), fallback_on: [...reasons] };
}
