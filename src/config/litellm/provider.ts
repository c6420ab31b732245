/**
 * LiteLLM's providers: which of them speak the OpenAI interface, where, and with what key. Pure; main thread of a command.
 *
 * The names, addresses and variables are those of LiteLLM's get_llm_provider (github.com/BerriAI/litellm, MIT).
 */
import { isUpstreamUrl } from '../catalog-schema.js';
import type { ImportMap } from './remarks.js';
import type { Variables } from './variables.js';

export interface Provider {
  /** Where it is served; undefined where the file has to say it. */
  readonly url: string | undefined;
  /** The variable that LiteLLM reads the key from; undefined where calls need none. */
  readonly variable: string | undefined;
  /** What a short name of a model becomes there. */
  readonly modelPrefix?: string;
  /** Its path where the file's `api_base` gives the origin alone. */
  readonly path?: string;
  /** What is different from LiteLLM's way to it. */
  readonly note?: string;
}

const COMPATIBLE = 'LiteLLM speaks its own interface to it, Tollgate the OpenAI-compatible one';

const PROVIDERS: ReadonlyMap<string, Provider> = new Map<string, Provider>([
  ['openai', { url: 'https://api.openai.com/v1', variable: 'OPENAI_API_KEY' }],
  ['groq', { url: 'https://api.groq.com/openai/v1', variable: 'GROQ_API_KEY' }],
  ['mistral', { url: 'https://api.mistral.ai/v1', variable: 'MISTRAL_API_KEY' }],
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
  [
    'gemini',
    {
      url: 'https://generativelanguage.googleapis.com/v1beta/openai',
      variable: 'GEMINI_API_KEY',
      note: COMPATIBLE,
    },
  ],
  ['anthropic', { url: 'https://api.anthropic.com/v1', variable: 'ANTHROPIC_API_KEY', note: COMPATIBLE }],
  ['ollama', { url: 'http://localhost:11434/v1', variable: undefined, path: '/v1', note: COMPATIBLE }],
  ['ollama_chat', { url: 'http://localhost:11434/v1', variable: undefined, path: '/v1', note: COMPATIBLE }],
  ['custom_openai', { url: undefined, variable: undefined }],
  ['openai_like', { url: undefined, variable: undefined }],
  ['hosted_vllm', { url: undefined, variable: undefined }],
  ['lm_studio', { url: undefined, variable: undefined }],
  ['llamafile', { url: undefined, variable: undefined }],
  ['xinference', { url: undefined, variable: undefined }],
  ['litellm_proxy', { url: undefined, variable: undefined }],
]);

/** Names that LiteLLM knows without a provider in front: OpenAI's. */
const OPENAI_MODEL = /^(?:ft:)?(?:gpt-|chatgpt-|o\d)/;

export interface ProviderModel {
  /** LiteLLM's name of it. */
  readonly name: string;
  readonly provider: Provider | 'azure' | undefined;
  /** The model's name there. */
  readonly model: string;
}

/** Splits `groq/llama-3.3-70b-versatile`. `provider` is undefined where it has no OpenAI-compatible interface, or is not named. */
export function providerModelOf(model: string, custom: string | undefined): ProviderModel {
  const slash = model.indexOf('/');
  const first = slash === -1 ? undefined : model.slice(0, slash);
  if (custom !== undefined) {
    return providerModel(custom, first === custom ? model.slice(slash + 1) : model);
  }
  if (first !== undefined) return providerModel(first, model.slice(slash + 1));
  return OPENAI_MODEL.test(model)
    ? providerModel('openai', model)
    : { name: 'none', provider: undefined, model };
}

function providerModel(name: string, model: string): ProviderModel {
  if (name === 'azure') return { name, provider: 'azure', model };
  const provider = PROVIDERS.get(name);
  const prefix = provider?.modelPrefix;
  const full = prefix === undefined || model.includes('/') ? model : prefix + model;
  return { name, provider, model: full };
}

/* Where a provider is called: the upstream's address. Main thread of a command. */

/** A parameter of the entry, or of the credential that it names. */
export type Parameter = (wanted: string) => string | undefined;

/** Both are undefined, with a remark, where the entry gives no address that can be called. */
export function openaiPlace(
  own: ImportMap,
  provider: Provider,
  parameter: Parameter,
  variables: Variables,
): string | undefined {
  const base = parameter('api_base') ?? parameter('base_url');
  if (base === undefined) {
    if (provider.url !== undefined) return provider.url;
    own.remark('model', 'api_base is missing: the entry was left out');
    return undefined;
  }
  const url = variables.text(base.replace(/\/+$/, ''));
  const full = provider.path === undefined || url.endsWith(provider.path) ? url : url + provider.path;
  return checkedUrl(own, full);
}

/** Of Azure's two interfaces the one that LiteLLM uses: a path a deployment with a dated version, or `/openai/v1`. */
export function azurePlace(
  own: ImportMap,
  model: string,
  parameter: Parameter,
  variables: Variables,
): string | undefined {
  const base = parameter('api_base') ?? parameter('base_url');
  const version = parameter('api_version');
  if (base === undefined) {
    own.remark('model', 'api_base is missing: the entry was left out');
    return undefined;
  }
  const url = variables.text(base.replace(/\/+$/, ''));
  if (url.startsWith('${')) own.remark('api_base', 'the variable must not end with a slash');
  if (url.includes('/openai/v1')) return checkedUrl(own, url);
  if (version === 'v1' || version === 'latest' || version === 'preview') {
    return checkedUrl(own, `${url}/openai/v1${version === 'preview' ? '?api-version=preview' : ''}`);
  }
  if (version === undefined) own.remark('model', `no api_version is given: ${AZURE_VERSION} was taken`);
  const path = url.includes('/openai/deployments/') ? url : `${url}/openai/deployments/${model}`;
  return checkedUrl(own, `${path}?api-version=${variables.text(version ?? AZURE_VERSION)}`);
}

/** The last dated version of Azure that is generally available. */
const AZURE_VERSION = '2024-10-21';

function checkedUrl(own: ImportMap, url: string): string | undefined {
  // What a variable holds is checked when the settings are read.
  if (url.startsWith('${') || isUpstreamUrl(url)) return url;
  own.remark('api_base', 'no http:// or https:// address without user and password; the entry was left out');
  return undefined;
}
