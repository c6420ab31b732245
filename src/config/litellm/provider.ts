/**
 * The table of LiteLLM's providers: which protocol each speaks here, at which address, and which variable has
 * the key. Names, addresses and variables are taken from LiteLLM's get_llm_provider
 * (github.com/BerriAI/litellm, MIT). Also makes the settings of an upstream's address. import.ts and
 * deployment.ts call it, in the process of `tollgate config import-litellm`. Pure. `params` is an entry's map
 * `litellm_params`.
 *
 * Must hold: as secrets.ts (test/unit/config/litellm/import.test.ts).
 */
import type { ProviderName } from '../../core/provider-names.js';
import { withoutAddedPath } from '../provider-settings.js';
import { HTTP_HOST_HINT, isUpstreamUrl } from '../upstream-schema.js';
import type { ImportMap } from './remarks.js';
import type { Variables } from './variables.js';

export interface Provider {
  /** The setting `provider` of the upstream; undefined if the upstream speaks OpenAI's protocol. */
  readonly speaks?: ProviderName;
  /** The provider's address; undefined if the file has to name it. */
  readonly url: string | undefined;
  /** The variable from which LiteLLM reads the key; undefined if calls need no key. */
  readonly variable: string | undefined;
  /** The variable from which LiteLLM reads a key if it is set; calls without one are tried. */
  readonly optionalVariable?: string;
  /** The provider's prefix for a model's name without a slash. */
  readonly modelPrefix?: string;
  /** The path, for a file whose `api_base` has only the origin. */
  readonly path?: string;
  /** The setting `member_names` of the upstream. */
  readonly memberNames?: Readonly<Record<string, string>>;
  /** A remark on what LiteLLM does differently. */
  readonly note?: string;
}

const COMPATIBLE = 'LiteLLM speaks its own interface to it, Tollgate the OpenAI-compatible one';

/** By LiteLLM's name of the provider. */
const PROVIDERS: ReadonlyMap<string, Provider> = new Map<string, Provider>([
  ['openai', { url: 'https://api.openai.com/v1', variable: 'OPENAI_API_KEY' }],
  ['groq', { url: 'https://api.groq.com/openai/v1', variable: 'GROQ_API_KEY' }],
  [
    'mistral',
    {
      url: 'https://api.mistral.ai/v1',
      variable: 'MISTRAL_API_KEY',
      memberNames: { stream_options: '', max_completion_tokens: 'max_tokens', seed: 'random_seed' },
    },
  ],
  ['deepseek', { url: 'https://api.deepseek.com/v1', variable: 'DEEPSEEK_API_KEY' }],
  ['openrouter', { url: 'https://openrouter.ai/api/v1', variable: 'OPENROUTER_API_KEY' }],
  ['together_ai', { url: 'https://api.together.xyz/v1', variable: 'TOGETHERAI_API_KEY' }],
  [
    'fireworks_ai',
    {
      url: 'https://api.fireworks.ai/inference/v1',
      variable: 'FIREWORKS_AI_API_KEY',
      modelPrefix: 'accounts/fireworks/models/',
    },
  ],
  ['xai', { url: 'https://api.x.ai/v1', variable: 'XAI_API_KEY' }],
  ['perplexity', { url: 'https://api.perplexity.ai', variable: 'PERPLEXITYAI_API_KEY' }],
  ['deepinfra', { url: 'https://api.deepinfra.com/v1/openai', variable: 'DEEPINFRA_API_KEY' }],
  ['cerebras', { url: 'https://api.cerebras.ai/v1', variable: 'CEREBRAS_API_KEY' }],
  ['sambanova', { url: 'https://api.sambanova.ai/v1', variable: 'SAMBANOVA_API_KEY' }],
  ['nvidia_nim', { url: 'https://integrate.api.nvidia.com/v1', variable: 'NVIDIA_NIM_API_KEY' }],
  ['volcengine', { url: 'https://ark.cn-beijing.volces.com/api/v3', variable: 'VOLCENGINE_API_KEY' }],
  ['azure', { speaks: 'azure', url: undefined, variable: 'AZURE_API_KEY' }],
  ['anthropic', { speaks: 'anthropic', url: undefined, variable: 'ANTHROPIC_API_KEY' }],
  ['gemini', { speaks: 'gemini', url: undefined, variable: 'GEMINI_API_KEY' }],
  ['vertex_ai', { speaks: 'vertex', url: undefined, variable: undefined }],
  ['bedrock', { speaks: 'bedrock', url: undefined, variable: undefined }],
  ['ollama', { url: 'http://localhost:11434/v1', variable: undefined, path: '/v1', note: COMPATIBLE }],
  ['ollama_chat', { url: 'http://localhost:11434/v1', variable: undefined, path: '/v1', note: COMPATIBLE }],
  ['custom_openai', { url: undefined, variable: undefined, optionalVariable: 'OPENAI_API_KEY' }],
  ['openai_like', { url: undefined, variable: undefined, optionalVariable: 'OPENAI_LIKE_API_KEY' }],
  ['hosted_vllm', { url: undefined, variable: undefined, optionalVariable: 'HOSTED_VLLM_API_KEY' }],
  ['lm_studio', { url: undefined, variable: undefined, optionalVariable: 'LM_STUDIO_API_KEY' }],
  ['llamafile', { url: undefined, variable: undefined, optionalVariable: 'LLAMAFILE_API_KEY' }],
  ['xinference', { url: undefined, variable: undefined, optionalVariable: 'XINFERENCE_API_KEY' }],
  ['litellm_proxy', { url: undefined, variable: undefined, optionalVariable: 'LITELLM_PROXY_API_KEY' }],
]);

/** Matches a prefix of a model's name that tells LiteLLM how to call the provider. */
const LITELLM_ROUTES: Readonly<Record<string, RegExp>> = {
  openai: /^responses\//,
  azure: /^(?:o_series|gpt5_series|responses)\//,
  bedrock: /^(?:converse|converse_like|invoke)\//,
  // A tuned model, by the number of its endpoint.
  vertex_ai: /^gemini\/(?=\d+$)/,
};
const BEDROCK_REGION = /^([a-z]{2}(?:-[a-z]+)+-\d)\//;

/** Models of OpenAI, which LiteLLM knows without the provider's name before them. */
const OPENAI_MODEL = /^(?:ft:)?(?:gpt-|chatgpt-|o\d)/;

export interface ProviderModel {
  /** LiteLLM's name of the provider; `none` if the file names none. */
  readonly name: string;
  /** Undefined if no provider is named, or if PROVIDERS lacks it. */
  readonly provider: Provider | undefined;
  /** The provider's name of the model. */
  readonly model: string;
  /** The region that stands before the model's name; undefined if none does. */
  readonly region?: string | undefined;
}

/** Splits a name such as `groq/llama-3.3-70b-versatile`. `custom` (`custom_llm_provider`) goes first. */
export function providerModelOf(model: string, custom: string | undefined): ProviderModel {
  const slash = model.indexOf('/');
  const beforeSlash = slash === -1 ? undefined : model.slice(0, slash);
  if (custom !== undefined) {
    return modelOfProvider(custom, beforeSlash === custom ? model.slice(slash + 1) : model);
  }
  if (beforeSlash !== undefined) return modelOfProvider(beforeSlash, model.slice(slash + 1));
  return OPENAI_MODEL.test(model)
    ? modelOfProvider('openai', model)
    : { name: 'none', provider: undefined, model };
}

/** `model`: the name without the provider's. Cuts off LiteLLM's route and a region; adds `modelPrefix`. */
function modelOfProvider(name: string, model: string): ProviderModel {
  const provider = PROVIDERS.get(name);
  const prefix = provider?.modelPrefix;
  const withoutRoute = model.replace(LITELLM_ROUTES[name] ?? '', '');
  const prefixed = prefix === undefined || withoutRoute.includes('/') ? withoutRoute : prefix + withoutRoute;
  const [regionPrefix, region] = (name === 'bedrock' ? BEDROCK_REGION.exec(prefixed) : null) ?? [''];
  return { name, provider, model: prefixed.slice(regionPrefix.length), region };
}

/** Whether calls are translated to the provider's own protocol, as only chat can be. Azure has OpenAI's. */
export function isTranslated(speaks: ProviderName | undefined): boolean {
  return speaks !== undefined && speaks !== 'azure';
}

/** Returns a parameter of the entry, or else of the entry's credential; undefined without one. */
export type Parameter = (name: string) => string | undefined;

/** Returns the address of an upstream with OpenAI's protocol. Undefined, with a remark, if there is none. */
export function openaiSettings(
  params: ImportMap,
  provider: Provider,
  parameter: Parameter,
  variables: Variables,
): { readonly url: string } | undefined {
  const givenAddress = parameter('api_base') ?? parameter('base_url');
  if (givenAddress === undefined) {
    if (provider.url !== undefined) return { url: provider.url };
    params.remark('model', 'api_base is missing: the entry was left out');
    return undefined;
  }
  const url = variables.text(withoutEndSlashes(givenAddress));
  const urlWithPath = provider.path === undefined || url.endsWith(provider.path) ? url : url + provider.path;
  const allowedUrl = checkedUrl(params, urlWithPath);
  return allowedUrl === undefined ? undefined : { url: allowedUrl };
}

/** The lookbehind keeps the pattern from trying each slash of a long run again. */
function withoutEndSlashes(address: string): string {
  return address.replace(/(?<!\/)\/+$/, '');
}

/** The settings of an upstream with a protocol of its own. */
export interface NativeSettings {
  readonly provider: ProviderName;
  /** Present if the address names another model than the entry. */
  readonly model?: string;
  readonly url?: string;
  readonly api_version?: string;
  readonly region?: string;
  readonly project?: string;
  readonly credentials_file?: string;
  readonly profile?: string;
}

/** LiteLLM's default regions, for the providers that need one. */
const REGIONS = { vertex: 'us-central1', bedrock: 'us-west-2' } as const;
/** Finds the deployment that an address of Azure names. LiteLLM calls it in place of the model. */
const AZURE_DEPLOYMENT = /\/openai\/deployments\/([\w.-]+)/;

/**
 * Returns the settings of an upstream that speaks the provider's own protocol. Undefined, with a remark, if a
 * setting that the provider needs is missing. `providerModel` has the model and the region.
 */
export function nativeSettings(
  params: ImportMap,
  speaks: ProviderName,
  providerModel: ProviderModel,
  parameter: Parameter,
  variables: Variables,
): NativeSettings | undefined {
  const givenAddress = parameter('api_base') ?? parameter('base_url');
  if (speaks === 'azure' && givenAddress === undefined) {
    params.remark('model', 'api_base is missing: the entry was left out');
    return undefined;
  }
  const addressText =
    givenAddress === undefined ? undefined : variables.text(withoutEndSlashes(givenAddress));
  if (addressText?.startsWith('${') === true)
    params.remark(
      'api_base',
      "the variable must be the provider's own address: no path, no slash at its end",
    );
  const address = addressText === undefined ? undefined : withoutAddedPath(speaks, addressText);
  const url = address === undefined ? undefined : checkedUrl(params, address);
  if (address !== undefined && url === undefined) return undefined;
  const settings = { provider: speaks, ...(url !== undefined && { url }) };
  const textOf: Parameter = (name) => {
    const value = parameter(name);
    return value === undefined ? undefined : variables.text(value);
  };
  switch (speaks) {
    case 'azure': {
      // `!`: without an address the entry was left out above.
      const version = azureVersion(params, addressText!, textOf('api_version'));
      const [, deployment = providerModel.model] = AZURE_DEPLOYMENT.exec(addressText!) ?? [];
      if (deployment === providerModel.model) return { ...settings, ...version };
      params.remark('api_base', 'LiteLLM calls the deployment that this path names: it was taken as model');
      return { ...settings, ...version, model: deployment };
    }
    case 'vertex': {
      const vertex = vertexSettings(params, textOf);
      return vertex && { ...settings, ...vertex };
    }
    case 'bedrock': {
      // A key and a profile would be two credentials, and `config check` rejects that.
      const profile = parameter('api_key') === undefined ? textOf('aws_profile_name') : undefined;
      const region = regionOf(params, textOf('aws_region_name') ?? providerModel.region, speaks);
      return { ...settings, region, ...(profile !== undefined && { profile }) };
    }
    default:
      return settings;
  }
}

/** Returns the settings that only Vertex AI has. Undefined, with a remark, if the project is missing. */
function vertexSettings(
  params: ImportMap,
  textOf: Parameter,
): Pick<NativeSettings, 'region' | 'project' | 'credentials_file'> | undefined {
  // LiteLLM takes both spellings.
  const vertexText: Parameter = (name) => textOf(`vertex_${name}`) ?? textOf(`vertex_ai_${name}`);
  const project = vertexText('project');
  if (project === undefined) {
    params.remark('model', 'vertex_project is missing: the entry was left out');
    return undefined;
  }
  const credentials = vertexText('credentials');
  const name = textOf('vertex_credentials') === undefined ? 'vertex_ai_credentials' : 'vertex_credentials';
  // LiteLLM takes a path or the JSON itself.
  const isFile = credentials !== undefined && !credentials.trimStart().startsWith('{');
  if (credentials !== undefined && !isFile)
    params.remark(
      name,
      'a secret: write it into a file that only Tollgate reads, and name it in credentials_file',
    );
  if (credentials?.startsWith('${') === true)
    params.remark(name, "the variable must be a file's path: LiteLLM takes the JSON itself from it too");
  const region = regionOf(params, vertexText('location'), 'vertex');
  return { region, project, ...(isFile && { credentials_file: credentials }) };
}

/** Returns the region, or LiteLLM's default with a remark. */
function regionOf(params: ImportMap, region: string | undefined, speaks: keyof typeof REGIONS): string {
  if (region !== undefined) return region;
  const defaultRegion = REGIONS[speaks];
  params.remark('model', `no region is given: ${defaultRegion} was taken`);
  return defaultRegion;
}

/** Returns the version for LiteLLM's `api_version`. For an address below `/openai/v1` it is always `v1`. */
function azureVersion(
  params: ImportMap,
  address: string,
  version: string | undefined,
): { readonly api_version?: string } {
  if (address.includes('/openai/v1') || version === 'v1' || version === 'latest')
    return { api_version: 'v1' };
  if (version === undefined) params.remark('model', 'no api_version is given: that of Tollgate was taken');
  return version === undefined ? {} : { api_version: version };
}

/** Returns the address; undefined, with a remark, if an upstream may not have such an address. */
function checkedUrl(params: ImportMap, url: string): string | undefined {
  // The value of a variable is not known yet: it is checked when the settings are read.
  if (url.startsWith('${') || isUpstreamUrl(url)) return url;
  params.remark(
    'api_base',
    `no http:// or https:// address without user and password (${HTTP_HOST_HINT}); the entry was left out`,
  );
  return undefined;
}
