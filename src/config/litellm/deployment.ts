/**
 * Converts an entry of LiteLLM's `model_list` to an upstream of Tollgate, with its prices. import.ts calls
 * `importDeployment`, in the process of `tollgate config import-litellm`. In all files of this folder an
 * _entry_ is one map of `model_list`, `params` its `litellm_params`, `info` its `model_info`, and a
 * _deployment_ the entry after its conversion. `modelName` is the model's name for callers, `model` the
 * provider's name of it. `speaks` is the provider whose own protocol the upstream speaks, if not OpenAI's.
 *
 * Must hold: no secret of the file is written (test/unit/config/litellm/import.test.ts). What is not carried
 * over gets a remark, as remarks.ts says: so `remarkUnread` is called last. Names of an entry that is left
 * out get none (test/unit/config/litellm/remarks.test.ts).
 */
import type { Service } from '../../core/door-names.js';
import { OUTPUT_TOKENS_MAX } from '../catalog-schema.js';
import { credentialSettingOf } from '../provider-settings.js';
import { TIMEOUT_MS_MAX, TOTAL_TIMEOUT_MS_DEFAULT } from '../upstream-schema.js';
import { headersOf } from './headers.js';
import { type DeploymentPrices, PRICE_WORDS, pricesOf, UNPLACED_PRICE } from './price.js';
import {
  isTranslated,
  nativeSettings,
  type NativeSettings,
  openaiSettings,
  type Parameter,
  type Provider,
  type ProviderModel,
  providerModelOf,
} from './provider.js';
import { DROP_PARAMS_REASON, type ImportMap, PARAMETER_REASONS, reasonOf } from './remarks.js';
import { keyOf, withoutAddressSecrets } from './secrets.js';
import { serviceOf, spokenBesidesChat } from './service.js';
import type { Variables } from './variables.js';

/** An upstream in Tollgate's file, with the names of the file. What is undefined is not written. */
export interface Upstream extends Partial<NativeSettings> {
  readonly key: string | undefined;
  readonly model: string;
  readonly speaks: readonly ['responses'] | undefined;
  readonly member_names: Provider['memberNames'];
  readonly drop_unsupported: true | undefined;
  readonly betas: readonly string[] | undefined;
  readonly headers: Readonly<Record<string, string>> | undefined;
  readonly first_byte_timeout_ms?: number;
  readonly idle_timeout_ms?: number;
  readonly total_timeout_ms?: number;
}

/** One entry of the file, converted. */
export interface Deployment {
  readonly entry: ImportMap;
  readonly upstream: Upstream;
  readonly service: Service;
  /** LiteLLM's name of the provider, which stands before the model's name. */
  readonly provider: string;
  /** `weight`, `rpm`, `tpm` and `order` are as in the file; model.ts makes settings of them. */
  readonly weight: number | undefined;
  readonly rpm: number | undefined;
  readonly tpm: number | undefined;
  readonly order: number | undefined;
  readonly prices: DeploymentPrices;
  readonly outputTokensMax: number | undefined;
}

export interface DeploymentContext {
  readonly variables: Variables;
  /** The values of the file's `credential_list`, by the credential's name. */
  readonly credentials: ReadonlyMap<string, ImportMap>;
  /** The timeout of `router_settings` or `litellm_settings`, for entries without one. */
  readonly timeoutMs: number | undefined;
  /** `drop_params` of `litellm_settings`. */
  readonly dropsParameters: boolean;
}

/** Matches a word before the model's id. An ARN has a colon before its first slash, so it does not match. */
const BEDROCK_PREFIX = /^[\w.-]+\//;

/** Matches what the provider vertex can call: Gemini, Claude, an endpoint of a tuned model. */
const VERTEX_MODEL = /^(?:gemini-|claude-|\d+$|publishers\/google\/|endpoints\/)/;

/** Parameters by which LiteLLM gets tokens of Entra ID. An entry with one of them needs no key at Azure. */
const ENTRA_NAMES = ['azure_ad_token', 'tenant_id', 'client_id', 'client_secret', 'azure_username'];

/** Converts one entry. Returns undefined, with a remark, if the entry cannot be an upstream. */
export function importDeployment(
  entry: ImportMap,
  modelName: string,
  context: DeploymentContext,
): Deployment | undefined {
  const params = entry.map('litellm_params');
  const info = entry.map('model_info');
  const model = params.text('model');
  if (model === undefined) {
    params.remark('model', 'missing: the entry was left out');
    return undefined;
  }
  const credentials = credentialsOf(params, context);
  const parameter: Parameter = (parameterName) =>
    params.text(parameterName) ?? credentials?.text(parameterName);

  const providerModel = providerModelOf(model, params.text('custom_llm_provider'));
  const { provider } = providerModel;
  if (provider === undefined || providerModel.model.includes('*')) {
    params.remark('model', `${rejectionOf(providerModel.name, providerModel.model)}; the entry was left out`);
    return undefined;
  }
  const service = serviceOf(params, info, providerModel, modelName);
  if (service === undefined) return undefined;
  const upstream = upstreamOf(
    { params, info, modelName, provider, providerModel, credentials, parameter },
    context,
  );
  if (upstream === undefined) return undefined;
  const deployment: Deployment = {
    entry,
    service,
    upstream,
    provider: providerModel.name,
    weight: params.number('weight'),
    rpm: params.number('rpm'),
    tpm: params.number('tpm'),
    order: params.number('order'),
    prices: pricesOf(params, info),
    outputTokensMax: outputTokensOf(info),
  };
  remarkUnread(entry, params, info);
  return deployment;
}

/** An entry with what was read of it. */
interface ReadEntry {
  readonly params: ImportMap;
  readonly info: ImportMap;
  readonly modelName: string;
  readonly provider: Provider;
  readonly providerModel: ProviderModel;
  /** Undefined if the entry names no known credential. */
  readonly credentials: ImportMap | undefined;
  /** Reads a parameter of the entry, or else of its credential. */
  readonly parameter: Parameter;
}

/** Returns the settings of the upstream; undefined, with a remark, if its address or project is missing. */
function upstreamOf(read: ReadEntry, context: DeploymentContext): Upstream | undefined {
  const { params, info, modelName, provider, providerModel, credentials, parameter } = read;
  const { speaks } = provider;
  const { variables } = context;
  const providerSettings: Partial<NativeSettings> | undefined =
    speaks === undefined
      ? openaiSettings(params, provider, parameter, variables)
      : nativeSettings(params, speaks, providerModel, parameter, variables);
  if (providerSettings === undefined) return undefined;
  const settings = withoutAddressSecrets(params, modelName, providerSettings, variables);
  if (speaks === 'bedrock' && BEDROCK_PREFIX.test(providerModel.model))
    params.remark(
      'model',
      'the part before the slash may be a word of LiteLLM: check that Bedrock has a model of this id',
    );
  if (speaks === 'vertex' && !VERTEX_MODEL.test(providerModel.model))
    params.remark('model', 'the provider vertex serves Gemini and Claude alone: calls of another model fail');
  const hasEntra = ENTRA_NAMES.some((name) => (params.peek(name) ?? credentials?.peek(name)) !== undefined);
  const key = keyOf(params, modelName, provider, hasEntra, parameter, variables);
  const isAuthorised = credentialSettingOf({ ...settings, key }) !== undefined;
  const { headers, betas } = headersOf(params, modelName, { speaks, isAuthorised, parameter }, variables);
  if (provider.note !== undefined) params.remark('model', provider.note);
  const timeoutMs = timeoutOf(params, 'timeout') ?? context.timeoutMs;
  const dropsUnsupported = dropsUnsupportedOf(params, speaks, context);
  return {
    ...settings,
    key,
    // `settings` has the model if an address of Azure names it. The file may have `os.environ/NAME` as model.
    model: settings.model ?? variables.text(providerModel.model),
    speaks: spokenBesidesChat(info, speaks),
    member_names: provider.memberNames,
    drop_unsupported: dropsUnsupported || undefined,
    betas,
    headers: Object.keys(headers).length === 0 ? undefined : headers,
    ...(timeoutMs === undefined ? {} : timeoutsOf(timeoutMs)),
  };
}

/**
 * Returns the setting `drop_unsupported`, with a remark if it cannot have the entry's `drop_params`.
 * import.ts adds the remark on `drop_params` of the file.
 */
function dropsUnsupportedOf(
  params: ImportMap,
  speaks: Provider['speaks'],
  { dropsParameters }: DeploymentContext,
): boolean {
  const entryDrops = params.flag('drop_params');
  if (isTranslated(speaks)) return entryDrops ?? dropsParameters;
  if (entryDrops === true) params.remark('drop_params', DROP_PARAMS_REASON);
  return false;
}

/** Adds remarks on all parameters and all of `model_info` that were not read. */
function remarkUnread(entry: ImportMap, params: ImportMap, info: ImportMap): void {
  for (const name of params.unread)
    params.remark(
      name,
      reasonOf(PARAMETER_REASONS, name) ?? (PRICE_WORDS.test(name) ? UNPLACED_PRICE : 'has no counterpart'),
    );
  const unreadOthers = info.unread.filter((name) => !PRICE_WORDS.test(name));
  for (const name of info.unread) if (PRICE_WORDS.test(name)) info.remark(name, UNPLACED_PRICE);
  if (unreadOthers.length > 0)
    entry.remark('model_info', `${unreadOthers.join(', ')}: a description that Tollgate has no place for`);
}

/** Returns why an entry of this provider and model cannot be carried over. */
function rejectionOf(provider: string, model: string): string {
  if (model.includes('*')) return 'a pattern stands for models that Tollgate wants one by one';
  if (provider === 'none') return 'no provider is named (such as openai/ in front)';
  return `neither ${provider} nor an OpenAI-compatible interface of it is known here`;
}

/** Returns the values of the credential that the entry names; undefined without a known name. */
function credentialsOf(params: ImportMap, { credentials }: DeploymentContext): ImportMap | undefined {
  const credentialName = params.text('litellm_credential_name');
  if (credentialName === undefined) return undefined;
  const values = credentials.get(credentialName);
  if (values === undefined) params.remark('litellm_credential_name', 'credential_list has no such entry');
  return values;
}

/**
 * Reads a timeout in seconds and returns milliseconds; undefined without one and, with a remark, beyond the
 * bounds. import.ts reads that of the whole file.
 */
export function timeoutOf(section: ImportMap, name: string): number | undefined {
  const seconds = section.number(name);
  if (seconds === undefined) return undefined;
  const milliseconds = Math.round(seconds * 1_000);
  if (milliseconds >= 1 && milliseconds <= TIMEOUT_MS_MAX) return milliseconds;
  section.remark(name, `must be 0.001 to ${TIMEOUT_MS_MAX / 1_000} seconds (a day)`);
  return undefined;
}

/**
 * To LiteLLM's HTTP client a timeout is the longest silence: before the first byte, and between two. LiteLLM
 * does not bound the whole call. Tollgate's bound lets a call have the longest silence before the first byte
 * and another one later, if both fit into TIMEOUT_MS_MAX.
 */
function timeoutsOf(timeoutMs: number): Partial<Upstream> {
  const totalMs = Math.min(2 * timeoutMs, TIMEOUT_MS_MAX);
  return {
    first_byte_timeout_ms: timeoutMs,
    idle_timeout_ms: timeoutMs,
    ...(totalMs > TOTAL_TIMEOUT_MS_DEFAULT && { total_timeout_ms: totalMs }),
  };
}

/**
 * Returns the most output tokens; undefined, with a remark, if the file names a number beyond the bounds. In
 * LiteLLM `max_tokens` is an older name, so a different number there gets a remark.
 */
function outputTokensOf(info: ImportMap): number | undefined {
  const outputMax = info.number('max_output_tokens');
  const tokensMax = info.number('max_tokens');
  const tokens = outputMax ?? tokensMax;
  if (tokens === undefined) return undefined;
  if (outputMax !== undefined && tokensMax !== undefined && tokensMax !== outputMax)
    info.remark('max_tokens', 'max_output_tokens counts in its place');
  if (Number.isInteger(tokens) && tokens >= 1 && tokens <= OUTPUT_TOKENS_MAX) return tokens;
  info.remark(
    outputMax === undefined ? 'max_tokens' : 'max_output_tokens',
    `must be a whole number from 1 to ${OUTPUT_TOKENS_MAX}`,
  );
  return undefined;
}
