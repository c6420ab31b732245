/**
 * Converts an entry of LiteLLM's `model_list` to an upstream of Tollgate, with its prices. import.ts calls
 * it, in the process of `tollgate config import-litellm`. What is not carried over gets a remark.
 *
 * Must hold: no secret of the file is written (test/unit/config/litellm/import.test.ts).
 */
import type { Service } from '../../core/door-names.js';
import { secretsInQuery } from '../../core/secret-url.js';
import { OUTPUT_TOKENS_MAX } from '../catalog-schema.js';
import { TIMEOUT_MS_MAX, TOTAL_TIMEOUT_MS_DEFAULT } from '../upstream-schema.js';
import { headersOf, secretOf } from './headers.js';
import { type DeploymentPrices, PRICE_WORDS, pricesOf, UNPLACED_PRICE } from './price.js';
import {
  nativeSettings,
  type NativeSettings,
  openaiSettings,
  type Parameter,
  type Provider,
  type ProviderModel,
  providerModelOf,
  variableNameOf,
  type Variables,
} from './provider.js';
import { type ImportMap, PARAMETER_REASONS, reasonOf } from './remarks.js';

const SERVICE_OF_MODE: ReadonlyMap<string, Service> = new Map([
  ['chat', 'chat'],
  ['embedding', 'embeddings'],
  ['completion', 'completions'],
  ['moderation', 'moderations'],
  ['rerank', 'rerank'],
]);

/**
 * The mode of a model by its name, for files that do not name it: LiteLLM has it in a table of its own, which
 * is not read here. The first pattern that fits counts.
 */
const MODE_OF_NAME: readonly (readonly [name: RegExp, mode: string])[] = [
  [/rerank/i, 'rerank'],
  [/embed|(?:^|[/_-])(?:bge|e5|gte)-|all-minilm/i, 'embedding'],
  [/moderation/i, 'moderation'],
  [/whisper|transcribe/i, 'audio_transcription'],
  [/(?:^|[/-])tts(?:-|$)/i, 'audio_speech'],
  [/dall-e|gpt-image|imagen/i, 'image_generation'],
  [/gpt-3\.?5-turbo-instruct|(?:davinci|babbage)-002/i, 'completion'],
  [/gpt|chat|instruct|claude|gemini|gemma|llama|mi[sx]tral|qwen|deepseek|grok|(?:^|[/-])o\d/i, 'chat'],
];

export interface Upstream extends Partial<NativeSettings> {
  readonly key?: string;
  readonly model: string;
  readonly betas?: readonly string[];
  readonly headers?: Readonly<Record<string, string>>;
  readonly first_byte_timeout_ms?: number;
  readonly idle_timeout_ms?: number;
  readonly total_timeout_ms?: number;
  readonly drop_unsupported?: true;
}

export interface Deployment {
  readonly entry: ImportMap;
  readonly upstream: Upstream;
  readonly service: Service;
  /** The provider's name, which is before the model's. */
  readonly provider: string;
  /** The file's values. model.ts compares those of a model's entries to make weights and priorities. */
  readonly weight: number | undefined;
  readonly rpm: number | undefined;
  readonly tpm: number | undefined;
  readonly order: number | undefined;
  readonly prices: DeploymentPrices;
  readonly outputTokensMax: number | undefined;
}

export interface DeploymentContext {
  readonly variables: Variables;
  /** The file's `credential_list`, by name. */
  readonly credentials: ReadonlyMap<string, ImportMap>;
  /** The timeout of `router_settings` or `litellm_settings`, for entries without one. */
  readonly timeoutSeconds: number | undefined;
  /** `drop_params` of `litellm_settings`. */
  readonly dropsParameters: boolean;
}

/** A word before the model's id. An ARN does not match, because it has a colon before its first slash. */
const BEDROCK_PREFIX = /^[\w.-]+\//;

/** What the provider vertex can call: Gemini, Claude, a tuned model's endpoint. LiteLLM has more there. */
const VERTEX_MODEL = /^(?:gemini-|claude-|\d+$|publishers\/google\/|endpoints\/)/;

/** Parameters with which LiteLLM gets tokens of Entra, so that there need be no key of Azure. */
const ENTRA_NAMES = ['azure_ad_token', 'tenant_id', 'client_id', 'client_secret', 'azure_username'];

/**
 * `name`: the model's name for callers. Returns undefined, with a remark, if the entry cannot be an upstream.
 */
export function importDeployment(
  entry: ImportMap,
  name: string,
  context: DeploymentContext,
): Deployment | undefined {
  const own = entry.map('litellm_params');
  const info = entry.map('model_info');
  const model = own.text('model');
  if (model === undefined) {
    own.remark('model', 'missing: the entry was left out');
    return undefined;
  }
  const credentials = credentialsOf(own, context);
  const parameter: Parameter = (wanted) => own.text(wanted) ?? credentials?.text(wanted);

  const found = providerModelOf(model, own.text('custom_llm_provider'));
  const { provider } = found;
  if (provider === undefined || found.model.includes('*')) {
    own.remark('model', `${rejectionOf(found.name, found.model)}; the entry was left out`);
    return undefined;
  }
  const { speaks } = provider;
  const service = serviceOf(own, info, found, name);
  if (service === undefined) return undefined;
  const dropsParameters = own.flag('drop_params') ?? context.dropsParameters;
  const { variables } = context;
  const read: Partial<NativeSettings> | undefined =
    speaks === undefined
      ? openaiSettings(own, provider, parameter, variables)
      : nativeSettings(own, speaks, found, parameter, variables);
  if (read === undefined) return undefined;
  const settings = withoutQuerySecrets(own, name, read, variables);
  if (speaks === 'bedrock' && BEDROCK_PREFIX.test(found.model))
    own.remark('model', "what is before the slash may be LiteLLM's own: see that Bedrock has this model id");
  if (speaks === 'vertex' && !VERTEX_MODEL.test(found.model))
    own.remark('model', 'the provider vertex serves Gemini and Claude alone: calls of another model fail');
  const hasEntra = ENTRA_NAMES.some((wanted) => isGiven(wanted, own, credentials));
  const key = keyOf(own, name, provider, hasEntra, parameter('api_key'), variables);
  const isAuthorised = [key, settings.credentials_file, settings.profile].some(
    (value) => value !== undefined,
  );
  const { headers, betas } = headersOf(own, name, { speaks, isAuthorised, parameter }, variables);
  if (provider.note !== undefined) own.remark('model', provider.note);
  const timeoutMs = millisecondsOf(own, context.timeoutSeconds);
  const deployment: Deployment = {
    entry,
    service,
    upstream: {
      ...settings,
      ...(key === undefined ? {} : { key }),
      model: settings.model ?? variables.text(found.model),
      ...(provider.memberNames === undefined ? {} : { member_names: provider.memberNames }),
      ...(dropsParameters && isChatAlone(provider) ? { drop_unsupported: true } : {}),
      ...(betas === undefined ? {} : { betas }),
      ...(Object.keys(headers).length === 0 ? {} : { headers }),
      ...(timeoutMs === undefined ? {} : timeoutsOf(timeoutMs)),
    },
    provider: found.name,
    weight: own.number('weight'),
    rpm: own.number('rpm'),
    tpm: own.number('tpm'),
    order: own.number('order'),
    prices: pricesOf(own, info),
    outputTokensMax: outputTokensOf(info),
  };
  remarkRest(entry, own, info);
  return deployment;
}

/**
 * Whether upstreams of the provider serve chat alone, in a protocol of its own that calls are translated to.
 */
function isChatAlone(provider: Provider | undefined): boolean {
  return provider?.speaks !== undefined && provider.speaks !== 'azure';
}

/**
 * The service of an entry. Undefined, with a remark, if Tollgate does not serve it or not of this provider.
 */
function serviceOf(own: ImportMap, info: ImportMap, found: ProviderModel, name: string): Service | undefined {
  const mode = info.text('mode') ?? modeByName(own, info, found, name);
  const service = SERVICE_OF_MODE.get(mode);
  if (service !== undefined && (service === 'chat' || !isChatAlone(found.provider))) return service;
  const reason =
    service === undefined
      ? 'Tollgate does not serve it'
      : "Tollgate has it of OpenAI's paths and Azure's alone";
  info.remark('mode', `${mode}: ${reason}; the entry was left out`);
  return undefined;
}

/**
 * The upstream's key, as a reference to a variable; undefined if the upstream has none. `hasEntra`: the entry
 * has parameters of Entra. `given`: its `api_key`.
 */
function keyOf(
  own: ImportMap,
  name: string,
  provider: Provider,
  hasEntra: boolean,
  given: string | undefined,
  variables: Variables,
): string | undefined {
  const { speaks, variable, optionalVariable } = provider;
  if (given !== undefined && speaks !== 'vertex')
    return secretOf(own, 'api_key', given, variable ?? variableNameOf(name), variables);
  if (given !== undefined) {
    own.remark('api_key', 'vertex takes no key: name credentials_file, or see docs/credentials.md');
    return undefined;
  }
  if (optionalVariable !== undefined)
    own.remark(
      'model',
      `no api_key is given, and LiteLLM takes one from ${optionalVariable} if that is set: set key if the server wants one`,
    );
  return variable === undefined || (speaks === 'azure' && hasEntra) ? undefined : `\${${variable}}`;
}

/** Adds remarks on all parameters and all of `model_info` that were not read. */
function remarkRest(entry: ImportMap, own: ImportMap, info: ImportMap): void {
  for (const name of own.unread)
    own.remark(
      name,
      reasonOf(PARAMETER_REASONS, name) ?? (PRICE_WORDS.test(name) ? UNPLACED_PRICE : 'has no counterpart'),
    );
  const notes = info.unread.filter((name) => !PRICE_WORDS.test(name));
  for (const name of info.unread) if (PRICE_WORDS.test(name)) info.remark(name, UNPLACED_PRICE);
  if (notes.length > 0)
    entry.remark('model_info', `${notes.join(', ')}: a description that Tollgate has no place for`);
}

/**
 * The mode of an entry that does not name it, with a remark unless the model is one of chat. The provider's
 * name of the model may not tell the mode. Then `base_model` is looked at, and then `name`, which callers
 * use.
 */
function modeByName(
  own: ImportMap,
  info: ImportMap,
  { provider, model }: ProviderModel,
  name: string,
): string {
  const names = [model, info.peek('base_model'), own.peek('base_model'), name];
  const [mode] = names.flatMap((candidate) => {
    const known = MODE_OF_NAME.find(([pattern]) => typeof candidate === 'string' && pattern.test(candidate));
    return known === undefined ? [] : [known[1]];
  });
  const again = 'if it is not, set mode and import again';
  const found = `model_info.mode is not in the file: ${JSON.stringify(model).slice(0, 200)} was taken for`;
  if (mode === undefined && !isChatAlone(provider)) own.remark('model', `${found} chat; ${again}`);
  if (mode !== undefined && mode !== 'chat') own.remark('model', `${found} ${mode} by its name; ${again}`);
  return mode ?? 'chat';
}

/**
 * Returns the settings with references in place of secrets in the address's query, in which some providers
 * and proxies take the key. A provider with a protocol of its own takes no query, and `config check` rejects
 * it later; also then the secret must not be written. `name`: the model's name for callers.
 */
function withoutQuerySecrets(
  own: ImportMap,
  name: string,
  settings: Partial<NativeSettings>,
  variables: Variables,
): Partial<NativeSettings> {
  const { url } = settings;
  if (url === undefined) return settings;
  const secrets = new Set(secretsInQuery(url).filter((secret) => url.includes(secret)));
  if (secrets.size === 0) return settings;
  const wanted = variableNameOf(`${name}_api_base`).replace(/_API_KEY$/, '');
  // A secret may begin with another one, so longer ones are tried first. One pass, so that references are not
  // searched.
  const longestFirst = [...secrets].sort((one, other) => other.length - one.length);
  const pattern = longestFirst.map((secret) => secret.replace(/[^\w]/g, '\\$&')).join('|');
  const replaced = url.replace(
    new RegExp(pattern, 'g'),
    (secret) => secretOf(own, 'api_base', secret, wanted, variables) ?? secret,
  );
  return { ...settings, url: replaced };
}

function rejectionOf(provider: string, model: string): string {
  if (model.includes('*')) return 'a pattern stands for models that Tollgate wants one by one';
  if (provider === 'none') return 'no provider is named (such as openai/ in front)';
  return `neither ${provider} nor an OpenAI-compatible interface of it is known here`;
}

function credentialsOf(own: ImportMap, { credentials }: DeploymentContext): ImportMap | undefined {
  const name = own.text('litellm_credential_name');
  if (name === undefined) return undefined;
  const found = credentials.get(name);
  if (found === undefined) own.remark('litellm_credential_name', 'there is no such entry in credential_list');
  return found;
}

/** Whether the entry or its credential has the parameter, without reading it. */
function isGiven(name: string, own: ImportMap, credentials: ImportMap | undefined): boolean {
  return own.peek(name) !== undefined || credentials?.peek(name) !== undefined;
}

function millisecondsOf(own: ImportMap, usualSeconds: number | undefined): number | undefined {
  const seconds = own.number('timeout') ?? usualSeconds;
  if (seconds === undefined) return undefined;
  const milliseconds = Math.round(seconds * 1_000);
  if (milliseconds >= 1 && milliseconds <= TIMEOUT_MS_MAX) return milliseconds;
  own.remark('timeout', `wanted is up to a day (${TIMEOUT_MS_MAX / 1_000} seconds)`);
  return undefined;
}

/** To LiteLLM's HTTP client a timeout is the longest silence, before the first byte and after each. */
function timeoutsOf(
  timeoutMs: number,
): Pick<Upstream, 'first_byte_timeout_ms' | 'idle_timeout_ms' | 'total_timeout_ms'> {
  return {
    first_byte_timeout_ms: timeoutMs,
    idle_timeout_ms: timeoutMs,
    // It bounds no whole call, but a silence must fit into one.
    ...(timeoutMs > TOTAL_TIMEOUT_MS_DEFAULT && { total_timeout_ms: timeoutMs }),
  };
}

function outputTokensOf(info: ImportMap): number | undefined {
  const most = info.number('max_output_tokens');
  const general = info.number('max_tokens');
  const tokens = most ?? general;
  if (tokens === undefined) return undefined;
  if (Number.isInteger(tokens) && tokens >= 1 && tokens <= OUTPUT_TOKENS_MAX) return tokens;
  info.remark(most === undefined ? 'max_tokens' : 'max_output_tokens', `wanted is 1 to ${OUTPUT_TOKENS_MAX}`);
  return undefined;
}
