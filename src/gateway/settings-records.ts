/**
 * Converts the settings into the plain records that threads work with: the routes and the settings of
 * listeners. (catalog-records.ts makes the catalogue.) gateway-start.ts and reload.ts call it, on the main
 * thread of a gateway process; in a command, upstream-probe.ts uses `routesOf`. Routes are in the order of
 * these settings. At a reload, mergeById (registry/catalog.ts) puts them in that of the catalogue in force.
 *
 * Must hold: providers' keys are in the routes alone, because the catalogue and the listeners' settings go to
 * threads that untrusted bodies reach (test/e2e/secrets.test.ts). Further test:
 * test/unit/gateway/reload.test.ts.
 */
import { KEY_HEADER } from '../config/upstream-scopes.js';
import { apiVersionOf, AUTHORISING_HEADER, memberNamesOf, urlOf } from '../config/provider-settings.js';
import type { Settings } from '../config/schema.js';
import { invariant } from '../core/errors.js';
import type { Catalog } from '../registry/catalog.js';
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
