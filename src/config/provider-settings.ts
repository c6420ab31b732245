/**
 * The rules of each provider for an upstream's settings: the default address, the settings that it needs, and
 * those that mean nothing to it. load.ts calls `checkProviders`. gateway/settings-records.ts,
 * upstream-scopes.ts and the import from LiteLLM look up the address. Pure.
 *
 * Must hold: a setting that means nothing to the provider is an error, and not ignored
 * (test/unit/config/provider-settings.test.ts). The compiler asks for an entry of
 * each new provider in RULES.
 */
import { API_VERSIONS, type ProviderName } from '../core/provider-names.js';
import type { HasErrors, Report, SettingPath } from './config-error.js';
import type { Settings, SettingsDraft } from './schema.js';

type UpstreamSettings = Settings['models'][number]['upstreams'][number];
/** A draft of an upstream's settings: a value with an error is undefined. */
export type UpstreamDraft = {
  readonly [Name in keyof UpstreamSettings]?: UpstreamSettings[Name] | undefined;
};

type ModelDraft = NonNullable<NonNullable<SettingsDraft['models']>[number]>;

/** Calls `visit` with each upstream of the models and with its path. Skips upstreams that are no maps. */
export function forEachUpstream(
  models: SettingsDraft['models'],
  visit: (
    upstream: NonNullable<NonNullable<ModelDraft['upstreams']>[number]>,
    path: SettingPath,
    model: ModelDraft,
  ) => void,
): void {
  models?.forEach((model, modelIndex) => {
    model?.upstreams?.forEach((upstream, index) => {
      if (upstream !== undefined) visit(upstream, ['models', modelIndex, 'upstreams', index], model);
    });
  });
}

/** Settings that only some providers have: `uses` of RULES names them for each provider. */
const PROVIDER_SETTINGS = [
  'api_version',
  'betas',
  'region',
  'project',
  'credentials_file',
  'profile',
  'drop_unsupported',
  'member_names',
  'thoughts_back',
] as const;
type ProviderSetting = (typeof PROVIDER_SETTINGS)[number];

interface Rules {
  /** The provider's address; absent if each customer has another. */
  readonly url?: (region: string) => string;
  /** The settings of PROVIDER_SETTINGS that mean something to the provider. */
  readonly uses: readonly ProviderSetting[];
  /** Settings that must be given. */
  readonly needs?: readonly ('url' | 'region' | 'project')[];
  /**
   * Matches the end of the path that the gateway adds itself, so that `url` must not have it. In the middle
   * of a path the same words belong to a proxy, such as `/v1/ACCOUNT/` of Cloudflare's AI Gateway.
   */
  readonly adds?: RegExp;
  /** Headers that the gateway writes itself, so that `headers` must not have them. */
  readonly writes?: readonly HeaderRule[];
}

/** `instead`: what an operator should do in place of setting the header, for an error. */
type HeaderRule = readonly [name: RegExp, instead: string];

const VERSION: HeaderRule = [/^anthropic-version$/i, 'set api_version'];
const BETAS: HeaderRule = [/^anthropic-beta$/i, 'set betas'];
/** AWS rejects headers of these names if the signature does not cover them. */
const SIGNED: HeaderRule = [/^x-amz-/i, 'calls are signed here, which writes them'];
/** Matches headers that authorise a call. With a key too there would be two credentials. */
export const AUTHORISING_HEADER = /^(?:(?:x-)?api-key|x-goog-api-key|authorization)$/i;

const RULES: Readonly<Record<ProviderName, Rules>> = {
  openai: {
    url: () => 'https://api.openai.com/v1',
    uses: ['member_names', 'thoughts_back'],
  },
  azure: {
    uses: ['api_version', 'member_names', 'thoughts_back'],
    needs: ['url'],
    adds: /\/openai(?:\/(?:v1|deployments|responses)(?:\/.*)?)?$/,
  },
  anthropic: {
    url: () => 'https://api.anthropic.com',
    uses: ['api_version', 'betas', 'drop_unsupported'],
    adds: /\/v1(?:\/messages)?$/,
    writes: [VERSION, BETAS],
  },
  gemini: {
    url: () => 'https://generativelanguage.googleapis.com',
    uses: ['api_version', 'drop_unsupported'],
    adds: /\/v1(?:beta|alpha)?(?:\/(?:models|openai)(?:\/.*)?)?$/,
  },
  vertex: {
    url: (region) =>
      region === 'global'
        ? 'https://aiplatform.googleapis.com'
        : `https://${region}-aiplatform.googleapis.com`,
    uses: ['api_version', 'betas', 'region', 'project', 'credentials_file', 'drop_unsupported'],
    needs: ['region', 'project'],
    adds: /\/v1(?:beta1)?(?:\/projects(?:\/.*)?)?$/,
    writes: [VERSION, BETAS],
  },
  bedrock: {
    url: (region) => `https://bedrock-runtime.${region}.amazonaws.com`,
    uses: ['betas', 'region', 'profile', 'drop_unsupported'],
    needs: ['region'],
    adds: /\/model(?:\/[^/]+(?:\/(?:converse|invoke)[\w-]*)?)?$/,
    writes: [BETAS, SIGNED],
  },
};

/** Returns `url`, or else the provider's own address; empty if that needs a `url` or a `region`. */
export function urlOf({ provider = 'openai', url, region }: UpstreamDraft): string {
  const { url: defaultUrlOf, needs = [] } = RULES[provider];
  if (url !== undefined) return url;
  return needs.includes('region') && region === undefined ? '' : (defaultUrlOf?.(region ?? '') ?? '');
}

/** Returns the address without the path that the gateway adds itself. `url` has no slash at its end. */
export function withoutAddedPath(provider: ProviderName, url: string): string {
  const { adds } = RULES[provider];
  // The host is no path: `https://openai` stays.
  const pathAt = url.indexOf('/', url.indexOf('://') + '://'.length);
  return adds === undefined || pathAt < 0 ? url : url.slice(0, pathAt) + url.slice(pathAt).replace(adds, '');
}

/** Returns what an operator should do instead of setting this header; undefined if the header may be set. */
export function insteadOfHeader(provider: ProviderName, name: string): string | undefined {
  return RULES[provider].writes?.find(([pattern]) => pattern.test(name))?.[1];
}

/** Returns `api_version`, or else the provider's default; empty if the provider has none. */
export function apiVersionOf({ provider, api_version: apiVersion }: UpstreamSettings): string {
  return apiVersion ?? API_VERSIONS[provider];
}

/**
 * Models of OpenAI, also fine-tuned, that answer 400 to `max_tokens`: by its reference of chat completions
 * the o-series, by reports the GPT-5 series too, also at Azure (softwaremill/sttp-ai issue 490,
 * anomalyco/opencode issue 37964; read 2026-11). All chat models of OpenAI know `max_completion_tokens`, so
 * later numbers are in the pattern as well. A deployment of Azure often has the name of its model.
 */
const REJECTS_MAX_TOKENS = /^(?:ft:)?(?:o[1-9]|gpt-[5-9])(?:[-.:]|$)/;
const NEW_NAMES = { max_tokens: 'max_completion_tokens' };

/** Returns `member_names`, for a model of REJECTS_MAX_TOKENS with NEW_NAMES unless it has one of the two. */
export function memberNamesOf(
  { provider, model, member_names: memberNames }: UpstreamSettings,
  modelId: string,
): Readonly<Record<string, string>> | undefined {
  const isOpenAi = provider === 'openai' || provider === 'azure';
  const isListed = memberNames?.max_tokens !== undefined || memberNames?.max_completion_tokens !== undefined;
  if (!isOpenAi || isListed || !REJECTS_MAX_TOKENS.test(model ?? modelId)) return memberNames;
  return { ...NEW_NAMES, ...memberNames };
}

/**
 * Reports settings that an upstream's provider needs and that are missing, and settings that mean nothing to
 * it. A setting with an error only seems to be missing.
 */
export function checkProviders({ models }: SettingsDraft, report: Report, hasErrors: HasErrors): void {
  forEachUpstream(models, (upstream, path) => {
    // An unknown provider was reported already. Otherwise the default has set it, so the cast is safe.
    if (upstream.provider === undefined) return;
    checkProvider(
      upstream as UpstreamDraft & { provider: ProviderName },
      (name, text) => report([...path, name], text),
      (name) => hasErrors([...path, name]),
    );
  });
}

function checkProvider(
  upstream: UpstreamDraft & { readonly provider: ProviderName },
  report: (name: string, text: string) => void,
  hasErrors: (name: string) => boolean,
): void {
  const { provider, url } = upstream;
  const { uses, needs = [], adds } = RULES[provider];
  for (const name of needs)
    if (upstream[name] === undefined && !hasErrors(name))
      report(name, `missing, the provider ${provider} needs it`);
  for (const name of PROVIDER_SETTINGS)
    if (upstream[name] !== undefined && upstream[name] !== false && !uses.includes(name))
      report(name, `means nothing to the provider ${provider}, leave it out`);
  for (const name of ['key', 'key_file'] as const)
    if (provider === 'vertex' && upstream[name] !== undefined)
      report(name, 'means nothing to the provider vertex, which takes credentials_file');
  const hasKey = upstream.key !== undefined || upstream.key_file !== undefined;
  if (hasKey && upstream.profile !== undefined) report('profile', 'given besides a key, want one of the two');
  for (const name of ['max_tokens', 'max_completion_tokens'])
    if (upstream.member_names?.[name] === '')
      report(
        'member_names',
        `leaves ${name} out, but what a call may cost rests on it: want the upstream's name`,
      );
  checkHeaders(upstream, report);
  if (provider === 'openai' || url === undefined) return;
  if (url === 'echo:') {
    report('provider', `got ${provider}, but the built-in model of url has none`);
    return;
  }
  // `new URL` cannot throw: a `url` that is no address was rejected, and is undefined here.
  const { pathname, search } = new URL(url);
  if (search !== '') report('url', `has a query, which the provider ${provider} does not take`);
  const [added] = adds?.exec(pathname.replace(/\/$/, '')) ?? [];
  // Nothing but the first word of the added path is shown: a variable in the address may be a secret.
  if (added !== undefined)
    report('url', `ends with a path that is added to it, want it without /${added.split('/')[1]} at its end`);
}

const CREDENTIAL_SETTINGS = ['key', 'key_file', 'credentials_file', 'profile'] as const;

/**
 * Returns the setting that gives the upstream a credential; undefined if none does. Credentials that the
 * gateway finds by itself, such as those of Entra ID or of a cloud's machine, are none: a header that
 * authorises replaces them (`routesOf` of gateway/settings-records.ts).
 */
export function credentialSettingOf(
  upstream: Partial<Record<(typeof CREDENTIAL_SETTINGS)[number], unknown>>,
): string | undefined {
  return CREDENTIAL_SETTINGS.find((name) => upstream[name] !== undefined);
}

/**
 * Reports headers that the gateway writes itself, and a second credential. Headers of an OpenAI-compatible
 * upstream are not checked, because it may want another `authorization` than its key.
 */
function checkHeaders(
  { provider, headers = {}, ...upstream }: UpstreamDraft & { readonly provider: ProviderName },
  report: (name: string, text: string) => void,
): void {
  if (provider === 'openai') return;
  const credential = credentialSettingOf(upstream);
  for (const name of Object.keys(headers)) {
    const instead = insteadOfHeader(provider, name);
    if (instead !== undefined)
      report('headers', `${name} is written by the provider ${provider}, leave it out: ${instead}`);
    else if (credential !== undefined && AUTHORISING_HEADER.test(name))
      report('headers', `${name} is given besides ${credential}, want one of the two`);
  }
}
