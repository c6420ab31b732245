/**
 * Converts the settings into the plain records that threads work with: the catalogue, the routes, the
 * settings of listeners. gateway-start.ts and reload.ts call it, on the main thread of a gateway process. In
 * a command, upstream-probe.ts uses `routesOf`, and cli/store-client.ts `catalogOf`. Indices of models and
 * plans are positions in these settings. At a reload, mergeCatalogs and mergeById (registry/catalog.ts)
 * replace them by the indices of the catalogue in force.
 *
 * Must hold: providers' keys are in the routes alone, because the catalogue and the listeners' settings go to
 * threads that untrusted bodies reach (test/e2e/secrets.test.ts). What was checked when the settings were
 * read is an `invariant` here. Further test: test/unit/gateway/reload.test.ts.
 */
import { hash } from 'node:crypto';
import { KEY_HEADER } from '../config/upstream-scopes.js';
import { matchesModel } from '../config/cross-checks.js';
import { apiVersionOf, AUTHORISING_HEADER, memberNamesOf, urlOf } from '../config/provider-settings.js';
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
import type { TlsFiles } from '../request/listen-apps.js';
import type { ListenerSettings } from '../request/messages.js';
import { DOOR_PATHS, type DoorName } from '../core/door-names.js';
import { azurePath } from '../providers/azure/azure.js';
import { isClaudeAtCloud } from '../providers/claude-names.js';
import { credentialSpecOf, type CredentialPositions } from '../providers/credentials/credential-spec.js';
import type { ProviderSettings } from '../providers/provider.js';
import type { UpstreamNames } from '../telemetry/upstream-names.js';
import type { ModelRoute, TargetQuotas, UpstreamTarget } from '../upstream/target.js';
import type { UpstreamScopes } from '../upstream/upstream-scopes.js';
import { bodiesInWorkBytesOf } from './memory-limit.js';

type ModelSettings = Settings['models'][number];
type UpstreamSettings = ModelSettings['upstreams'][number];
type PlanSettings = Settings['plans'][number];

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
 * weights of upstreams, which change no response: their change only costs some hits. Fallbacks are left out,
 * because their responses are not cached, and `pass_members`, which admission checks before the cache.
 */
function cacheRuleOf({ cache }: Settings, model: ModelSettings): CacheRule | undefined {
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
  if (text === undefined) return undefined;
  const amount = picoUnitsOf(text);
  invariant(amount !== undefined, 'amounts were checked when the settings were read');
  return amount;
}

/** Returns, by the model's index, the quotas of the first of the plan's rules that matches the model. */
function modelLimitsOf(plan: PlanSettings, models: readonly ModelEntry[]): PlanEntry['modelLimits'] {
  if (plan.models_limits.length === 0) return undefined;
  return models.map(({ id }) => {
    const rule = plan.models_limits.find(({ model }) => matchesModel(model, id));
    return rule && quotasOf(rule);
  });
}

/** Returns how many listeners are upstream workers too: all or none. */
export function workersInListeners({ workers, workers_from_load_percent, listen }: Settings): number {
  return workers === 0 || workers_from_load_percent > 0 ? listen.listeners : 0;
}

/**
 * Returns the upstreams of each model, with the providers' keys and the positions of credentials that expire.
 * The main thread hands the routes to upstream workers alone, also to those in listeners' threads. `names`,
 * `scopes` and `credentials` must be the same objects at each reload, so that an upstream keeps its slot,
 * scope and position.
 */
export function routesOf(
  settings: Settings,
  names: UpstreamNames,
  scopes: UpstreamScopes,
  credentials: CredentialPositions,
): ModelRoute[] {
  const scopeOf = scopes.assign(settings);
  const targetQuotasOf = (upstream: UpstreamSettings, model: ModelSettings): TargetQuotas | undefined => {
    const scope = scopeOf(upstream, model.id);
    return scope && { scope: scope.index, limits: scope.limits, queueMs: upstream.queue_ms };
  };
  const credentialOf = (upstream: UpstreamSettings): number | undefined => {
    // A header that the settings give replaces the credential. At Azure any that KEY_HEADER matches does, so
    // that also the subscription key of API Management, of which AUTHORISING_HEADER knows nothing, replaces
    // the token of Entra.
    const credentialHeader = upstream.provider === 'azure' ? KEY_HEADER : AUTHORISING_HEADER;
    const hasCredentialHeader = Object.keys(upstream.headers).some((name) => credentialHeader.test(name));
    const spec = hasCredentialHeader ? undefined : credentialSpecOf(upstream);
    return spec && credentials.positionOf(spec);
  };
  const slots = names.assign(
    settings.models.flatMap((model) =>
      model.upstreams.map((upstream) => ({
        model: model.id,
        name: nameOf(new URL(urlOf(upstream))),
        priority: upstream.priority,
        weight: upstream.weight,
        scope: scopeOf(upstream, model.id),
      })),
    ),
  );
  // `slots` are in the order of the models and of their upstreams, in which `nextSlot` counts.
  let nextSlot = 0;
  return settings.models.map((model) => ({
    id: model.id,
    ownedBy: model.owned_by,
    tokenizer: model.tokenizer,
    outputTokensMax: model.max_output_tokens,
    mediaPartTokens: model.media_part_tokens,
    fallbackOn: model.fallback_on,
    targets: model.upstreams
      .map((upstream) =>
        targetOf(
          upstream,
          model,
          slots[nextSlot++]!.slot,
          targetQuotasOf(upstream, model),
          providerOf(upstream, model, credentialOf(upstream)),
        ),
      )
      .sort((first, second) => first.priority - second.priority),
  }));
}

/** Returns what listeners work with. `catalog` is the catalogue in force after a reload. */
export function listenerSettingsOf(settings: Settings, catalog: Catalog): ListenerSettings {
  const { limits } = settings;
  const { cors } = settings.listen;
  return {
    catalog,
    limits: {
      bodiesInWorkBytesMax: bodiesInWorkBytesOf(settings),
      parseInlineBytesMax: limits.parse_inline_bytes,
      parseWaitMs: limits.parse_wait_ms,
      clientIdleTimeoutMs: limits.client_idle_timeout_ms,
    },
    lowBalance: settings.low_balance,
    tokenQuota: settings.token_quota,
    cachedInput: settings.quota_cached_input,
    cacheBytesMax: Math.floor(settings.cache.memory_bytes / settings.listen.listeners),
    contents: {
      mode: settings.call_log.enabled ? settings.call_log.contents : 'none',
      bodyBytesMax: settings.call_log.contents_body_bytes,
    },
    durability: settings.durability,
    tls: tlsFilesOf(settings.listen),
    cors: cors && { origins: cors.origins, maxAgeSeconds: cors.max_age_seconds },
  };
}

function tlsFilesOf({ tls }: Settings['listen']): TlsFiles | undefined {
  if (tls === undefined) return undefined;
  const { cert_file: certFile, key_file: keyFile, passphrase, digest } = tls;
  invariant(digest !== undefined, 'the files were read with the settings');
  return { certFile, keyFile, passphrase, digest };
}

/** The name by which operators see the upstream. */
function nameOf(url: URL): string {
  return url.protocol === 'echo:' ? 'echo' : url.host;
}

/** Returns the upstream as workers call it. `slot`: where the metrics count the upstream. */
function targetOf(
  upstream: UpstreamSettings,
  model: ModelSettings,
  slot: number,
  quotas: TargetQuotas | undefined,
  provider: ProviderSettings | undefined,
): UpstreamTarget {
  const url = new URL(urlOf(upstream));
  const isEcho = url.protocol === 'echo:';
  return {
    name: nameOf(url),
    slot,
    origin: isEcho ? 'echo:' : url.origin,
    // A provider without OpenAI's paths gets the base path, to which the provider's code appends.
    path: pathOf(url, provider, upstream.model ?? model.id, 'chat') ?? basePathOf(url),
    key: upstream.key,
    headers: upstream.headers,
    // Undefined if the upstream knows the model by its id: admission has put the id in place of an alias.
    model: upstream.model === model.id ? undefined : upstream.model,
    weight: upstream.weight,
    priority: upstream.priority,
    connectTimeoutMs: upstream.connect_timeout_ms,
    firstByteTimeoutMs: upstream.first_byte_timeout_ms,
    idleTimeoutMs: upstream.idle_timeout_ms,
    totalTimeoutMs: upstream.total_timeout_ms,
    connectionsMax: upstream.connections_max,
    breakerFailuresMax: upstream.breaker_failures,
    parkMsMax: upstream.park_max_ms,
    whenClientLeaves: upstream.when_client_leaves,
    quotas,
    ca: upstream.ca,
    doors: doorsOf(upstream, model, url, provider),
    provider,
    memberNames: memberNamesOf(upstream, model.id),
    thoughtsBack: upstream.thoughts_back,
  };
}

/** Returns the path of a door's calls; undefined if the provider does not use OpenAI's paths. */
function pathOf(
  url: URL,
  provider: ProviderSettings | undefined,
  model: string,
  door: DoorName,
): string | undefined {
  const operation = DOOR_PATHS[door].slice('/v1'.length);
  if (provider === undefined) return `${basePathOf(url)}${operation}${url.search}`;
  return provider.name === 'azure' ? azurePath(provider, { deployment: model, operation }) : undefined;
}

/** Returns the path of each door besides chat whose protocol the upstream speaks (UpstreamTarget.doors). */
function doorsOf(
  upstream: UpstreamSettings,
  model: ModelSettings,
  url: URL,
  provider: ProviderSettings | undefined,
): UpstreamTarget['doors'] {
  const name = upstream.model ?? model.id;
  const servedDoors = model.serves.filter((service) => service !== 'chat');
  const hasPathsOfOpenAi = provider === undefined || provider.name === 'azure';
  const spokenDoors: DoorName[] = hasPathsOfOpenAi
    ? [...servedDoors, ...upstream.speaks]
    : provider.name === 'anthropic' || isClaudeAtCloud(provider.name, name)
      ? ['messages']
      : [];
  // Bedrock counts tokens by a model's name. For an inference profile or an ARN the gateway counts itself.
  if (spokenDoors.includes('messages') && (provider?.name !== 'bedrock' || name.startsWith('anthropic.')))
    spokenDoors.push('count_tokens');
  // A path is empty if the provider's code makes it for each call.
  return Object.fromEntries(spokenDoors.map((door) => [door, pathOf(url, provider, name, door) ?? '']));
}

/** The path of the base address, without a slash at its end. */
function basePathOf(url: URL): string {
  return url.pathname.replace(/\/$/, '');
}

/** Returns undefined if the provider is `openai`. `credential`: position of a credential that expires. */
function providerOf(
  upstream: UpstreamSettings,
  model: ModelSettings,
  credential: number | undefined,
): ProviderSettings | undefined {
  const { provider: name, betas = [], region = '', project = '' } = upstream;
  if (name === 'openai') return undefined;
  const url = new URL(urlOf(upstream));
  return {
    name,
    basePath: basePathOf(url),
    host: url.host,
    apiVersion: apiVersionOf(upstream),
    betas,
    region,
    project,
    dropUnsupported: upstream.drop_unsupported,
    outputTokensMax: model.max_output_tokens,
    credential,
  };
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

function callPrice(text = '0'): PicoUnits {
  const price = picoUnitsPerCall(text);
  invariant(price !== undefined, 'prices of calls were checked when the settings were read');
  return price;
}

function priceIfGiven(text: string | undefined): PicoUnits | undefined {
  return text === undefined ? undefined : tokenPrice(text);
}

function tokenPrice(text: string): PicoUnits {
  const price = picoUnitsPerToken(text);
  invariant(price !== undefined, 'prices of tokens were checked when the settings were read');
  return price;
}
