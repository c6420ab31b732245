/**
 * Says what the reply to a probe means, and what the operator should do. A _probe_ is a tiny request to an
 * upstream. upstream-probe.ts calls `diagnosisOf`, in the process of a command. Pure.
 *
 * Must hold: no result shows a key or a token, even if an upstream repeats one. So each text of an upstream
 * goes through `safeText` (further test: test/e2e/upstream-test.test.ts).
 */
import { AUTHORISING_HEADER } from '../config/provider-settings.js';
import { DOOR_NAMES, DOOR_PATHS, type DoorName, type Service } from '../core/door-names.js';
import { isRecord, parsedJson } from '../core/json.js';
import type { ProviderName } from '../core/provider-names.js';
import type { TimeoutCode } from '../http1/call.js';
import { isHtml } from '../http1/content-headers.js';
import { errorIn } from '../upstream/error-body.js';
import { UNKNOWN_MODEL_CODES } from '../upstream/error-mapping.js';
import { secretFragmentsOf } from '../upstream/secret-fragments.js';
import { addressOf, type UpstreamTarget } from '../upstream/target.js';

/** The reply to a probe: a response as far as it was read, or an error. */
export type ProbeReply =
  | {
      readonly kind: 'response';
      readonly status: number;
      readonly contentType: string | undefined;
      readonly location: string | undefined;
      readonly body: string;
      /** Whether the body was longer than what was read. */
      readonly isCut: boolean;
    }
  | { readonly kind: 'error'; readonly code: string; readonly message: string };

interface ProbeDiagnosis {
  readonly ok: boolean;
  /** The result, in one line. */
  readonly result: string;
  /** What the operator should do; null if nothing. */
  readonly advice: string | null;
  /** The model that the response names. */
  readonly answeredModel: string | null;
  /** Whether the response reports its tokens; null for an error, and for a service that reports none. */
  readonly usageReported: boolean | null;
}

/** What is appended to the advice about an address, by provider. */
const ADVICE_ENDS: Readonly<Partial<Record<ProviderName, string>>> = {
  azure: ", see api_version, and set model to the deployment's name",
  vertex: ', see project and region, and set model to its name there',
  bedrock: ', see region, and set model to its id there',
};

/** What results say about a service. */
interface ServiceWords {
  /** What a good response is called. */
  readonly response: string;
  /** The member of a good response that is a list. */
  readonly list: string;
  /** What the API is for. */
  readonly api: string;
}

const SERVICE_WORDS: Readonly<Record<Service, ServiceWords>> = {
  chat: { response: 'chat completion', list: 'choices', api: 'chat completions' },
  completions: { response: 'completion', list: 'choices', api: 'completions of a prompt' },
  embeddings: { response: 'list of embeddings', list: 'data', api: 'embeddings' },
  moderations: { response: 'moderation', list: 'results', api: 'moderations' },
  rerank: { response: 'list of ranks', list: 'results', api: 'reranks' },
};
const SERVICES_WITH_USAGE: readonly Service[] = ['chat', 'completions', 'embeddings'];

/** How many characters of an upstream's message are shown. */
const MESSAGE_CHARS_MAX = 200;
/**
 * For errors that have no code for this, such as "The model `x` does not exist". Anthropic says "model: x",
 * Gemini "models/x is not found", Bedrock "The provided model identifier is invalid."
 */
const UNKNOWN_MODEL_MESSAGE =
  /\bmodels?\b.{0,120}\b(?:not found|does not exist|not exist|unknown|not supported|no such)\b|\b(?:unknown|invalid|no such) model\b|^model: \S|\bmodel identifier is invalid\b/is;
/**
 * OpenAI's models that think reject a call with 400 if their thoughts use up the bound of the output, as they
 * do in a probe, whose bound is low. So address, key and model are right.
 */
const OUTPUT_LIMIT_MESSAGE = /output limit was reached/i;
/** Error codes of Node's TLS match these. */
const TLS_UNTRUSTED = /SELF_SIGNED|UNABLE_TO_(?:VERIFY|GET_ISSUER)|CERT_UNTRUSTED|CERT_SIGNATURE/;
const TLS_ERROR = /CERT|TLS|SSL|^EPROTO$/;
/** The client's own code, and those of Node: the kernel may give up first. */
const UNREACHED: ReadonlySet<string> = new Set([
  'TIMEOUT_CONNECT' satisfies TimeoutCode,
  ...['EHOSTUNREACH', 'ENETUNREACH', 'ETIMEDOUT'],
]);

/** OpenAI's path of a call without the `/v1`, which belongs to the base address. */
const pathEndOf = (door: DoorName): string => DOOR_PATHS[door].slice('/v1'.length);
/** Long ones first: `/chat/completions` ends with `/completions`. */
const PATH_ENDS = DOOR_NAMES.map(pathEndOf).sort((first, second) => second.length - first.length);

/** `model`: its id in the settings. `service`: what the probe asked the model for. */
export function diagnosisOf(
  target: UpstreamTarget,
  model: string,
  service: Service,
  reply: ProbeReply,
): ProbeDiagnosis {
  if (reply.kind === 'error') {
    const result = `no answer: ${reply.code}, ${safeText(target, reply.message)}`;
    return failureOf(result, adviceOfError(target, reply.code));
  }
  const { status, contentType, body, isCut } = reply;
  const isHtmlPage = isHtml(contentType) || body.trimStart().startsWith('<');
  const json = isHtmlPage || isCut ? undefined : parsedJson(body);
  if (status >= 200 && status < 300) {
    const { list, response } = SERVICE_WORDS[service];
    if (isRecord(json) && Array.isArray(json[list])) return successOf(target, service, status, json);
    const received = isHtmlPage ? 'HTML' : isCut ? 'too long an answer' : `no ${response}`;
    return failureOf(`status ${status}, ${received}`, adviceOfAddress(target, service));
  }
  // Bedrock's error is the body itself.
  const error = errorIn(json) ?? json;
  const message = isRecord(error) && typeof error.message === 'string' ? error.message : undefined;
  const received = isHtmlPage ? ', HTML' : message === undefined ? '' : `: ${safeText(target, message)}`;
  const result = `status ${status}${received}`;
  if (status === 400 && message !== undefined && OUTPUT_LIMIT_MESSAGE.test(message))
    return { ok: true, result, advice: null, answeredModel: null, usageReported: null };
  const isUnknownModel =
    isRecord(error) &&
    (UNKNOWN_MODEL_CODES.has(error.code) ||
      // Mistral has such a code as the type.
      UNKNOWN_MODEL_CODES.has(error.type) ||
      (message !== undefined && UNKNOWN_MODEL_MESSAGE.test(message)));
  if (isUnknownModel && (status === 400 || status === 404 || status === 422)) {
    const advice = `the provider does not know the model ${target.model ?? model}: set model: of this upstream to its name there`;
    return failureOf(result, advice);
  }
  return failureOf(result, adviceOfStatus(target, service, reply, isHtmlPage));
}

function successOf(
  target: UpstreamTarget,
  service: Service,
  status: number,
  json: Readonly<Record<string, unknown>>,
): ProbeDiagnosis {
  const hasUsage = isRecord(json.usage) && typeof json.usage.prompt_tokens === 'number';
  const usageReported = hasUsage || SERVICES_WITH_USAGE.includes(service) ? hasUsage : null;
  return {
    ok: true,
    result: `status ${status}`,
    advice: usageReported !== false ? null : 'it reports no usage: tokens are counted here, with `tokenizer`',
    answeredModel: typeof json.model === 'string' ? safeText(target, json.model) : null,
    usageReported,
  };
}

function failureOf(result: string, advice: string): ProbeDiagnosis {
  return { ok: false, result, advice, answeredModel: null, usageReported: null };
}

/** Returns the advice for a response that is neither good nor about an unknown model. */
function adviceOfStatus(
  target: UpstreamTarget,
  service: Service,
  { status, location }: ProbeReply & { kind: 'response' },
  isHtmlPage: boolean,
): string {
  if (status === 401 || status === 403) {
    const { credential } = target.provider ?? {};
    if (credential !== undefined)
      return 'it refuses the credentials of this machine: see that their account may use the model';
    const header = Object.keys(target.headers).find((name) => AUTHORISING_HEADER.test(name));
    const setting = target.key === undefined ? header && `the header ${header}` : 'key or key_file';
    return setting === undefined
      ? 'it wants a key and none is set: set key or key_file of this upstream'
      : `it refuses the key: see that ${setting} is one of this provider, whole and still valid, and may use the model`;
  }
  if (status === 402) return 'the account at the provider has no credit left';
  if (status === 429)
    return 'address and key serve, but the account at the provider has no quota left now: try later';
  if (status >= 300 && status < 400) {
    const toAddress = location === undefined ? '' : ` to ${safeText(target, location)}`;
    return `it redirects${toAddress}, which is not followed: set url to where the API is`;
  }
  if (isHtmlPage || status === 404 || status === 405 || status === 410)
    return adviceOfAddress(target, service);
  if (status >= 500) return 'the provider fails: try later, and look at its state';
  return 'it refuses a plain request: its words say why';
}

/** Returns the advice for an address that responds, but not as the service's API. */
function adviceOfAddress(target: UpstreamTarget, service: Service): string {
  const path = pathEndOf(service);
  const address = addressOf(target);
  const name = target.provider?.name;
  if (name !== undefined)
    return `there is no interface of ${name} at ${address}: set url to the base address that its SDKs take${ADVICE_ENDS[name] ?? ''}`;
  const base = address.slice(0, -path.length);
  const given = PATH_ENDS.find((end) => base.endsWith(end));
  if (given !== undefined) {
    const added = given === path ? 'which' : `and ${path}`;
    return `url ends with ${given}, ${added} is added to it: set it to ${base.slice(0, -given.length)}`;
  }
  const problem = `there is no API for ${SERVICE_WORDS[service].api} at ${address}`;
  if (!/\/v\d/.test(base)) return `${problem}: url has no /v1, try ${base}/v1`;
  return `${problem}: set url to the base address that the provider names, without ${path}`;
}

/** Returns the advice if there was no response. `code` is Node's error code, or one of http1. */
function adviceOfError({ origin }: UpstreamTarget, code: string): string {
  const { host, hostname, protocol } = new URL(origin);
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN' || code === 'EAI_FAIL')
    return `the name ${hostname} cannot be resolved: see that it is spelled right, and the DNS of this machine`;
  if (code === 'ECONNREFUSED') return `nothing listens at ${host}: see host and port, and that it runs`;
  if (UNREACHED.has(code))
    return `${host} cannot be reached from here: see host and port, firewall and network`;
  if (TLS_UNTRUSTED.test(code)) return 'its certificate is not trusted: name who signed it in ca_file';
  if (code === 'CERT_HAS_EXPIRED') return 'its certificate has expired: whoever runs it has to renew it';
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return `its certificate is for another name than ${hostname}: set url to that name`;
  if (TLS_ERROR.test(code)) return `TLS fails with ${host}: if it speaks plain HTTP, url begins with http:`;
  if (code.startsWith('TIMEOUT')) return 'it accepts connections, but does not answer in time';
  if (code === 'HTTP1_UNSENDABLE') return 'url, key or headers hold what cannot be sent in HTTP';
  const tls = protocol === 'http:' ? '; if it speaks TLS, url begins with https:' : '';
  return `what listens at ${host} does not answer in HTTP/1.1${tls}`;
}

/** Returns an upstream's text in one line, cut, and with the credentials removed that it repeats. */
function safeText(target: UpstreamTarget, text: string): string {
  // Cuts to ten times what is shown: white space shrinks below, and a body may be long.
  const cleaned = secretFragmentsOf(target).cleaned(text.slice(0, 10 * MESSAGE_CHARS_MAX));
  if (cleaned === undefined) return '(words that repeat the key are not shown)';
  const line = cleaned.replace(/[\p{Cc}\p{Cs}\s]+/gu, ' ').trim();
  return line.length > MESSAGE_CHARS_MAX ? `${line.slice(0, MESSAGE_CHARS_MAX)}…` : line;
}
