/**
 * Converts an entry of LiteLLM's `model_list` to an upstream of Tollgate, with its prices. import.ts calls
 * it, in the process of `tollgate config import-litellm`. What is not carried over gets a remark.
 *
 * Must hold: no secret of the file is written (test/unit/config/litellm/import.test.ts).
 */
import type { Service } from '../../core/door-names.js';
import { secretsInQuery } from '../../core/secret-url.js';
import { OUTPUT_TOKENS_MAX } from '../catalog-schema.js';
import { TIMEOUT_MS_MAX, TOTAL_TIMEOUT_MS_USUAL } from '../upstream-schema.js';
import { headersOf, secretOf } from './headers.js';
import { type DeploymentPrices, PRICE_WORDS, pricesOf, UNPLACED_PRICE } from './price.js';
import {
  nativeSettings,
  type NativeSettings,
  openaiSettings,
  type Parameter,
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
 * A model's mode by its name, for files that do not say it: to LiteLLM each model is at every path, and what
 * it is stands in a table that is not read here. The first pattern that fits counts.
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

/** A word before the model's id. An ARN has a colon before its first slash. */
const BEDROCK_PREFIX = /^[\w.-]+\//;

/** What the provider vertex can call: Gemini, Claude, a tuned model's endpoint. LiteLLM has more there. */
const VERTEX_MODEL = /^(?:gemini-|claude-|\d+$|publishers\/google\/|endpoints\/)/;

/** Parameters with which LiteLLM gets tokens of Entra, so that there need be no key of Azure. */
const ENTRA_NAMES = ['azure_ad_token', 'tenant_id', 'client_id', 'client_secret', 'azure_username'];

/** `name`: the model's, for callers. Returns undefined, with a remark, if no upstream can be made of it. */
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
  const mode = info.text('mode') ?? modeByName(own, info, found, name);
  const service = SERVICE_OF_MODE.get(mode);
  if (service === undefined) {
    info.remark('mode', `${mode}: Tollgate does not serve it; the entry was left out`);
    return undefined;
  }
  if (service !== 'chat' && speaks !== undefined && speaks !== 'azure') {
    info.remark(
      'mode',
      `${mode}: Tollgate has it of OpenAI's paths and Azure's alone; the entry was left out`,
    );
    return undefined;
  }
  const dropsParameters = own.flag('drop_params') ?? context.dropsParameters;
  const read: Partial<NativeSettings> | undefined =
    speaks === undefined
      ? openaiSettings(own, provider, parameter, context.variables)
      : nativeSettings(own, speaks, found, parameter, context.variables);
  if (read === undefined) return undefined;
  const settings = withoutQuerySecrets(own, name, read, context.variables);
  if (speaks === 'bedrock' && BEDROCK_PREFIX.test(found.model))
    own.remark('model', "what is before the slash may be LiteLLM's own: see that Bedrock has this model id");
  if (speaks === 'vertex' && !VERTEX_MODEL.test(found.model))
    own.remark('model', 'the provider vertex serves Gemini and Claude alone: calls of another model fail');

  const wanted = provider.variable ?? variableNameOf(name);
  const isKeyKnown = speaks !== 'vertex';
  const given = parameter('api_key');
  if (given !== undefined && !isKeyKnown)
    own.remark('api_key', 'vertex takes no key: name credentials_file, or see docs/credentials.md');
  const isEntra = speaks === 'azure' && ENTRA_NAMES.some((one) => isGiven(one, own, credentials));
  const implied = isEntra ? undefined : provider.variable;
  const key =
    given === undefined
      ? implied === undefined
        ? undefined
        : `\${${implied}}`
      : isKeyKnown
        ? secretOf(own, 'api_key', given, wanted, context.variables)
        : undefined;
  if (given === undefined && provider.optionalVariable !== undefined)
    own.remark(
      'model',
      `no api_key is given, and LiteLLM takes one from ${provider.optionalVariable} if that is set: set key if the server wants one`,
    );
  const isAuthorised = [key, settings.credentials_file, settings.profile].some((one) => one !== undefined);
  const { headers, betas } = headersOf(own, name, { speaks, isAuthorised, parameter }, context.variables);
  if (provider.note !== undefined) own.remark('model', provider.note);
  const drops = dropsParameters && speaks !== undefined && speaks !== 'azure';

  const timeoutMs = millisecondsOf(own, context.timeoutSeconds);
  const deployment: Deployment = {
    entry,
    service,
    upstream: {
      ...settings,
      ...(key === undefined ? {} : { key }),
      model: settings.model ?? context.variables.text(found.model),
      ...(provider.memberNames === undefined ? {} : { member_names: provider.memberNames }),
      ...(drops ? { drop_unsupported: true } : {}),
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
  for (const name of own.unread)
    own.remark(
      name,
      reasonOf(PARAMETER_REASONS, name) ?? (PRICE_WORDS.test(name) ? UNPLACED_PRICE : 'has no counterpart'),
    );
  const notes = info.unread.filter((name) => !PRICE_WORDS.test(name));
  for (const name of info.unread) if (PRICE_WORDS.test(name)) info.remark(name, UNPLACED_PRICE);
  if (notes.length > 0) {
    entry.remark('model_info', `${notes.join(', ')}: a description that Tollgate has no place for`);
  }
  return deployment;
}

/**
 * The mode of an entry that does not say it, with a remark unless it is clear. What a deployment is called at
 * its provider may say nothing: then `base_model`, or else `name`, the model's for callers, may.
 */
function modeByName(
  own: ImportMap,
  info: ImportMap,
  { provider, model }: ProviderModel,
  name: string,
): string {
  const names = [model, info.peek('base_model'), own.peek('base_model'), name];
  const [mode] = names.flatMap((one) => {
    const known = MODE_OF_NAME.find(([pattern]) => typeof one === 'string' && pattern.test(one));
    return known === undefined ? [] : [known[1]];
  });
  const again = 'if it is not, set mode and import again';
  const of = `model_info.mode is not in the file: ${JSON.stringify(model).slice(0, 200)} was taken for`;
  const isChatAlone = provider?.speaks !== undefined && provider.speaks !== 'azure';
  if (mode === undefined && !isChatAlone) own.remark('model', `${of} chat; ${again}`);
  if (mode !== undefined && mode !== 'chat') own.remark('model', `${of} ${mode} by its name; ${again}`);
  return mode ?? 'chat';
}

/**
 * Returns the settings with references in place of the secrets in the address's query, where some providers
 * and proxies take the key. A provider with a protocol of its own takes no query: `config check` says so of
 * what was written, and the secret is not written all the same. `name`: the model's, for callers.
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
  // A secret may begin with another, so the longest counts. One pass: a reference is not searched again.
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
    ...(timeoutMs > TOTAL_TIMEOUT_MS_USUAL && { total_timeout_ms: timeoutMs }),
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
