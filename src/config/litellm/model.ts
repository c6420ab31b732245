/**
 * Makes one model of Tollgate with several upstreams from the entries of LiteLLM's file that have the same
 * `model_name`: its price, its upstreams' weights and priorities, its aliases, its fallbacks. import.ts calls
 * it, in the process of `tollgate config import-litellm`. Pure.
 *
 * An ImportMap (remarks.ts) remembers which names were read: `take`, `map`, `text` and `number` mark a name
 * as read, and a name that nobody has read gets a remark in the end. So a function that reads a name and
 * cannot use its value adds the remark itself.
 *
 * Must hold: what `config check` would refuse is left out, with a remark
 * (test/unit/config/litellm/import.test.ts).
 */
import type { Service } from '../../core/door-names.js';
import { IDENTIFIER_PATTERN } from '../annotations.js';
import { QUOTA_LIMITS_MAX } from '../../core/quotas.js';
import { isRecord } from '../../core/json.js';
import { ALIASES_MAX, FALLBACKS_MAX, OUTPUT_TOKENS_USUAL, UPSTREAMS_MAX } from '../catalog-schema.js';
import { urlOf } from '../provider-settings.js';
import type { Settings } from '../schema.js';
import { KEY_HEADER } from '../upstream-scopes.js';
import type { Deployment, Upstream } from './deployment.js';
import { type ModelPrice, priceOf } from './price.js';
import type { ImportMap } from './remarks.js';

export interface ImportedModel {
  readonly id: string;
  readonly aliases?: readonly string[];
  readonly owned_by: string;
  readonly price?: ModelPrice;
  readonly serves?: readonly Service[];
  readonly max_output_tokens?: number;
  readonly fallbacks?: readonly string[];
  readonly fallback_on?: readonly FallbackReason[];
  readonly upstreams: readonly (Upstream &
    Limits & { readonly weight?: number; readonly priority?: number })[];
}

/** What a model serves without a setting `serves`. */
const CHAT: readonly Service[] = ['chat'];

type FallbackReason = Settings['models'][number]['fallback_on'][number];

/**
 * The limits of one deployment. LiteLLM counts each deployment by itself. Tollgate counts all models of an
 * address and key together unless `quota_scope` is `model`, so a deployment with limits gets that.
 */
interface Limits {
  readonly requests_per_minute?: number;
  readonly tokens_per_minute?: number;
  readonly quota_scope?: 'model';
}

/** The highest weight and the highest priority in Tollgate's file. */
const SHARE_MAX = 1_000;

/** LiteLLM chooses an upstream by the first of these that an entry has. */
const SHARES = ['weight', 'rpm', 'tpm'] as const;

/**
 * Returns the model `id` with an upstream for each deployment. `deployments` has at least one entry; a remark
 * names those beyond UPSTREAMS_MAX, which are left out. `all`: the deployments of all models.
 */
export function importModel(
  id: string,
  deployments: readonly Deployment[],
  all: readonly Deployment[],
): ImportedModel {
  const used = deployments.slice(0, UPSTREAMS_MAX);
  for (const { entry } of deployments.slice(UPSTREAMS_MAX)) {
    entry.remark('model_name', `left out: a model has at most ${UPSTREAMS_MAX} upstreams`);
  }
  const weights = weightsOf(used);
  const priorities = prioritiesOf(used);
  const serves = [...new Set(used.map(({ service }) => service))];
  const price = priceOf(used, serves.includes('chat') || serves.includes('completions'));
  const outputTokensMax = outputTokensOf(used);
  if (price !== undefined && outputTokensMax === undefined && serves.includes('chat'))
    used[0]!.entry.remark(
      'model_name',
      `max_output_tokens is not in the file (LiteLLM has a table of its own): ${OUTPUT_TOKENS_USUAL} is taken, and a report of more output is not believed, so that only its text is billed`,
    );
  return {
    id,
    owned_by: used[0]!.provider,
    ...(price === undefined ? {} : { price }),
    ...(serves.length === 1 && serves[0] === 'chat' ? {} : { serves }),
    ...(outputTokensMax === undefined ? {} : { max_output_tokens: outputTokensMax }),
    upstreams: used.map(({ upstream }, index) => ({
      ...upstream,
      ...limitsOf(used[index]!, all),
      ...(weights === undefined ? {} : { weight: weights[index]! }),
      ...(priorities === undefined ? {} : { priority: priorities[index]! }),
    })),
  };
}

const LIMITS = {
  rpm: { name: 'requests_per_minute', max: QUOTA_LIMITS_MAX.requestsPerMinute },
  tpm: { name: 'tokens_per_minute', max: QUOTA_LIMITS_MAX.tokensPerMinute },
} as const;

/**
 * Returns the entry's `rpm` and `tpm` as limits. Upstreams of one scope share one limit in Tollgate, whatever
 * models they are of, and `config check` rejects two values of it: entries that differ get no limit, and a
 * remark. `all`: the entries of all models.
 */
function limitsOf(deployment: Deployment, all: readonly Deployment[]): Limits {
  const scope = scopeOf(deployment);
  const same = all.filter((other) => scopeOf(other) === scope);
  const limits: { requests_per_minute?: number; tokens_per_minute?: number } = {};
  for (const share of ['rpm', 'tpm'] as const) {
    const value = deployment[share];
    if (value === undefined) continue;
    const { name, max } = LIMITS[share];
    if (!Number.isSafeInteger(value) || value < 1 || value > max)
      remarkParameter(deployment, share, `no limit: wanted is a whole number from 1 to ${max}`);
    else if (same.some((other) => other[share] !== value))
      remarkParameter(deployment, share, 'no limit: entries with the same address, key and model differ');
    else limits[name] = value;
  }
  return Object.keys(limits).length === 0 ? {} : { ...limits, quota_scope: 'model' };
}

/**
 * The same text for upstreams that share their limits, as `scopeTextOf` has it of settings that were read:
 * here variables have no values yet.
 */
function scopeOf({ upstream }: Deployment): string {
  const { provider, key, model, region, project, profile, headers = {} } = upstream;
  const secrets = Object.entries(headers).filter(([name]) => KEY_HEADER.test(name));
  return JSON.stringify([provider, urlOf(upstream), key, model, region, project, profile, secrets]);
}

/** Whole numbers from 1 in the proportion of the shares; undefined if all shares are the same. */
function weightsOf(deployments: readonly Deployment[]): number[] | undefined {
  const name = SHARES.find((share) => deployments.some((deployment) => deployment[share] !== undefined));
  if (name === undefined) return undefined;
  const shares = deployments.map((deployment) => Math.max(deployment[name] ?? 0, 0));
  const largest = Math.max(...shares);
  if (shares.every((share) => share === largest)) return undefined;
  const divisor = shares.every(Number.isSafeInteger) ? shares.reduce(greatestDivisor) : 0;
  const isExact = divisor > 0 && largest / divisor <= SHARE_MAX;
  return shares.map((share, index) => {
    if (share === 0)
      remarkParameter(deployments[index]!, name, 'has no share in LiteLLM; here it has the smallest');
    const weight = isExact ? share / divisor : Math.round((share / largest) * SHARE_MAX);
    return Math.max(weight, 1);
  });
}

function greatestDivisor(left: number, right: number): number {
  return right === 0 ? left : greatestDivisor(right, left % right);
}

/** LiteLLM uses `order` 1 first, and entries without one last. Undefined if no entry has one. */
function prioritiesOf(deployments: readonly Deployment[]): number[] | undefined {
  const orders = [...new Set(deployments.flatMap(({ order }) => (order === undefined ? [] : [order])))];
  if (orders.length === 0) return undefined;
  orders.sort((left, right) => left - right);
  return deployments.map(({ order }) => (order === undefined ? orders.length : orders.indexOf(order)) + 1);
}

function outputTokensOf(deployments: readonly Deployment[]): number | undefined {
  const given = deployments.flatMap(({ outputTokensMax }) => outputTokensMax ?? []);
  return given.length === 0 ? undefined : Math.max(...given);
}

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

const FALLBACK_SECTIONS: readonly [name: string, reason: FallbackReason][] = [
  ['fallbacks', 'unavailable'],
  ['context_window_fallbacks', 'context_length'],
];

interface ModelFallbacks {
  readonly others: Set<string>;
  readonly reasons: Set<FallbackReason>;
}

/**
 * Adds their fallbacks to the models. `sections`: `router_settings`, then `litellm_settings`.
 *
 * LiteLLM has a list for each reason, and Tollgate has one for both: a model's lists become one. Adds a
 * remark if fallbacks are not carried over, or are used for a further reason.
 */
export function withFallbacks(
  models: readonly ImportedModel[],
  sections: readonly ImportMap[],
): ImportedModel[] {
  const found = fallbacksOf(models, sections);
  const servedBy = new Map(models.map(({ id, serves }) => [id, serves ?? CHAT]));
  return models.map((model) => {
    const own = found.get(model.id);
    return own === undefined ? model : withOwnFallbacks(model, own, servedBy, sections[0]);
  });
}

/** Returns the fallbacks that are models of this import, by the model that they stand in for. */
function fallbacksOf(
  models: readonly ImportedModel[],
  sections: readonly ImportMap[],
): Map<string, ModelFallbacks> {
  const ids = new Set(models.map(({ id }) => id));
  const found = new Map<string, ModelFallbacks>();
  for (const { section, name, reason, id, listed } of listedFallbacks(sections)) {
    const others = listed.filter((other): other is string => typeof other === 'string' && ids.has(other));
    const ofModel = `of ${JSON.stringify(id).slice(0, 200)}`;
    if (!ids.has(id) || others.length === 0) {
      section.remark(name, `${ofModel}: its models are not among those carried over`);
      continue;
    }
    if (others.length < listed.length)
      section.remark(name, `${ofModel}: ${listed.length - others.length} of its models are not carried over`);
    const own = found.get(id);
    if (own === undefined) {
      found.set(id, { others: new Set(others), reasons: new Set([reason]) });
      continue;
    }
    if (!own.reasons.has(reason))
      section.remark(name, `${ofModel}: a model has one list of fallbacks, so each is used for both reasons`);
    for (const other of others) own.others.add(other);
    own.reasons.add(reason);
  }
  return found;
}

/** One list of fallbacks, as the file has it. */
interface ListedFallbacks {
  readonly section: ImportMap;
  readonly name: string;
  readonly reason: FallbackReason;
  /** The model that has them. */
  readonly id: string;
  /** Without the model itself. */
  readonly listed: readonly unknown[];
}

/** Reads `fallbacks` and `context_window_fallbacks`: lists of maps from a model to a list of others. */
function listedFallbacks(sections: readonly ImportMap[]): ListedFallbacks[] {
  return sections.flatMap((section) =>
    FALLBACK_SECTIONS.flatMap(([name, reason]) =>
      fallbackMaps(section, name).flatMap((map) =>
        Object.entries(map).map(([id, list]) => {
          const listed = listIn(list).filter((other) => other !== id);
          return { section, name, reason, id, listed };
        }),
      ),
    ),
  );
}

/** The maps of such a list. Anything else in it gets a remark: LiteLLM does not start with it. */
function fallbackMaps(section: ImportMap, name: string): Record<string, unknown>[] {
  const value = section.take(name);
  const maps = listIn(value).filter(isRecord);
  const isListOfMaps = Array.isArray(value) && maps.length === value.length;
  if (value !== undefined && !isListOfMaps)
    section.remark(name, 'wanted is a list of maps from a model to a list of others; all else was left out');
  return maps;
}

function listIn(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? (value as unknown[]) : [];
}

/** Adds at most FALLBACKS_MAX of the fallbacks: those that serve all that the model serves. */
function withOwnFallbacks(
  model: ImportedModel,
  { others, reasons }: ModelFallbacks,
  servedBy: ReadonlyMap<string, readonly Service[]>,
  router: ImportMap | undefined,
): ImportedModel {
  const ofModel = `of ${JSON.stringify(model.id)}`;
  if (others.size > FALLBACKS_MAX)
    router?.remark('fallbacks', `${ofModel}: a model has at most ${FALLBACKS_MAX}`);
  // Another service's responses have another form, so `config check` rejects such a fallback.
  const services = model.serves ?? CHAT;
  const fitting = [...others].filter((other) =>
    services.every((service) => (servedBy.get(other) ?? CHAT).includes(service)),
  );
  if (fitting.length < others.size)
    router?.remark(
      'fallbacks',
      `${ofModel}: ${others.size - fitting.length} of its models serve something else`,
    );
  if (fitting.length === 0) return model;
  // In the file that is written, the upstreams come last.
  const { upstreams, ...rest } = model;
  const fallbacks = fitting.slice(0, FALLBACKS_MAX);
  return { ...rest, fallbacks, fallback_on: [...reasons], upstreams };
}
