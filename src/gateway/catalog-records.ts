/**
 * Converts the settings into the catalogue: models, prices and plans. gateway-start.ts and reload.ts call
 * `catalogOf` on the main thread of a gateway process, cli/store-client.ts in a command. Indices of models
 * and plans are positions in these settings. At a reload, mergeCatalogs (registry/catalog.ts) replaces them
 * by those of the catalogue in force.
 *
 * Must hold: the catalogue has no secret (settings-records.ts). What was checked when the settings were read
 * is an `invariant` here. Tests: test/unit/gateway/settings-records.test.ts, of both files.
 */
import { hash } from 'node:crypto';
import { matchesModel } from '../config/cross-checks.js';
import type { Settings } from '../config/schema.js';
import { invariant } from '../core/errors.js';
import { picoUnitsOf, picoUnitsPerCall, picoUnitsPerToken } from '../core/money.js';
import type { QuotaLimits } from '../core/quotas.js';
import type { PicoUnits } from '../core/units.js';
import {
  type CacheRule,
  type Catalog,
  type ModelEntry,
  type PlanEntry,
  tokenPriceOf,
} from '../registry/catalog.js';

type ModelSettings = Settings['models'][number];
type UpstreamSettings = ModelSettings['upstreams'][number];
type PlanSettings = Settings['plans'][number];

/**
 * Settings of a model on which no cached response depends. Responses of fallbacks are not cached, and
 * admission checks `pass_members` before the cache. A new setting does not compile (CachedModelSettings)
 * before it is listed here or has become a part of `revision`.
 */
type ModelWithoutEffect =
  | 'id'
  | 'aliases'
  | 'owned_by'
  | 'created'
  | 'price'
  | 'media_part_tokens'
  | 'pass_members'
  | 'serves'
  | 'tokenizer'
  | 'fallbacks'
  | 'fallback_on';
type ModelWithEffect = 'cache' | 'upstreams' | 'max_output_tokens';
/** `never`, which no model is, if a setting is in neither list. */
type CachedModelSettings =
  Exclude<keyof ModelSettings, ModelWithoutEffect | ModelWithEffect> extends never ? ModelSettings : never;

/** Settings of an upstream that are left out of a cache's `revision`, because no response depends on them. */
const WITHOUT_EFFECT_ON_RESPONSES = {
  key: undefined,
  key_file: undefined,
  when_client_leaves: undefined,
} satisfies { readonly [Name in keyof UpstreamSettings]?: undefined };

/** Returns the models, prices and plans; every thread may have them. */
export function catalogOf(settings: Settings): Catalog {
  const models = settings.models.map((model): ModelEntry => ({
    id: model.id,
    aliases: model.aliases,
    ownedBy: model.owned_by,
    createdSeconds: model.created,
    price: tokenPriceOf({
      ...tokenPricesOf(model.price),
      callPicoUnits: callPrice(model.price.call),
      cachedResponsePicoUnits: callPrice(model.price.cached_response),
      long: model.price.long?.map((price) => ({ ...tokenPricesOf(price), aboveTokens: price.above })),
    }),
    outputTokensMax: model.max_output_tokens,
    mediaPartTokens: model.media_part_tokens,
    serves: model.serves,
    passMembers: model.pass_members,
    fallbacks: model.fallbacks.map((id) => {
      const index = settings.models.findIndex((fallback) => fallback.id === id);
      invariant(index >= 0, 'fallbacks were checked when the settings were read');
      return index;
    }),
    cache: cacheRuleOf(settings, model),
  }));
  const plans = settings.plans.map((plan): PlanEntry => ({
    id: plan.id,
    requestsPerMinute: plan.requests_per_minute,
    callsPerDay: plan.calls_per_day,
    outputTokensMax: plan.max_tokens,
    callsInFlightMax: Math.min(plan.calls_in_flight ?? Infinity, settings.limits.calls_in_flight_per_account),
    bodyBytesMax: Math.min(plan.body_bytes ?? Infinity, settings.limits.body_bytes),
    quotas: quotasOf(plan),
    modelLimits: modelLimitsOf(plan, models),
    modelIndices: models.flatMap((model, index) =>
      plan.models.some((pattern) => matchesModel(pattern, model.id)) ? [index] : [],
    ),
  }));
  return { models, plans };
}

/**
 * Returns undefined if the model's responses are not cached. `revision` changes with all that may change a
 * response, and cached responses of another revision are removed. The revision also changes with timeouts and
 * weights of upstreams, which change no response: their change only costs some hits.
 */
function cacheRuleOf({ cache }: Settings, model: CachedModelSettings): CacheRule | undefined {
  const ttlMs = 1_000 * (model.cache?.ttl_seconds ?? cache.ttl_seconds);
  if (ttlMs === 0) return undefined;
  const isShared = (model.cache?.scope ?? cache.scope) === 'all';
  const upstreams = model.upstreams.map((upstream) => ({ ...upstream, ...WITHOUT_EFFECT_ON_RESPONSES }));
  const { max_output_tokens: outputTokensMax } = model;
  const revision = hash(
    'sha256',
    JSON.stringify({ upstreams, ttlMs, isShared, outputTokensMax }),
    'base64url',
  );
  const bytesMax = model.cache?.bytes;
  // The model has the same share of the memory as of the disk; undefined if it has no bound of its own.
  const memoryShare = bytesMax && Math.min(1, bytesMax / cache.bytes);
  return { ttlMs, isShared, bytesMax, memoryShare, revision };
}

/** Returns the quotas of a plan, or of a plan's rule for a model; undefined for a quota that is not set. */
function quotasOf(limits: Omit<PlanSettings['models_limits'][number], 'model'>): QuotaLimits {
  return {
    requestsPerMinute: limits.requests_per_minute,
    tokensPerMinute: limits.tokens_per_minute,
    callsInFlight: limits.calls_in_flight,
    callsPerDay: limits.calls_per_day,
    tokensPerDay: limits.tokens_per_day,
    callsPerMonth: limits.calls_per_month,
    tokensPerMonth: limits.tokens_per_month,
    spendPerDay: spendingOf(limits.spend_per_day),
    spendPerMonth: spendingOf(limits.spend_per_month),
  };
}

/** Returns pico-units. The ledger alone counts limits of spending in nano-units. */
function spendingOf(text: string | undefined): PicoUnits | undefined {
  return text === undefined ? undefined : checked(picoUnitsOf(text));
}

/** Returns, by the model's index, the quotas of the first of the plan's rules that matches the model. */
function modelLimitsOf(plan: PlanSettings, models: readonly ModelEntry[]): PlanEntry['modelLimits'] {
  if (plan.models_limits.length === 0) return undefined;
  return models.map(({ id }) => {
    const rule = plan.models_limits.find(({ model }) => matchesModel(model, id));
    return rule && quotasOf(rule);
  });
}

/** Returns the prices of tokens of a model's own price or of a long price; undefined if not set. */
function tokenPricesOf(price: Omit<NonNullable<ModelSettings['price']['long']>[number], 'above'>) {
  return {
    inputPicoUnits: tokenPrice(price.input),
    cachedInputPicoUnits: priceIfGiven(price.cached_input),
    cacheWritePicoUnits: priceIfGiven(price.cache_write),
    cacheWrite1hPicoUnits: priceIfGiven(price.cache_write_1h),
    outputPicoUnits: tokenPrice(price.output),
    reasoningPicoUnits: priceIfGiven(price.reasoning),
  };
}

const callPrice = (text = '0'): PicoUnits => checked(picoUnitsPerCall(text));
const tokenPrice = (text: string): PicoUnits => checked(picoUnitsPerToken(text));
const priceIfGiven = (text: string | undefined): PicoUnits | undefined =>
  text === undefined ? undefined : tokenPrice(text);

function checked(amount: PicoUnits | undefined): PicoUnits {
  invariant(amount !== undefined, 'prices and amounts were checked when the settings were read');
  return amount;
}
