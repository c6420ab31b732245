/**
 * Calls each upstream of the settings once, with a tiny request and the client that serves calls, and
 * reports what the reply means and what the operator should do. `tollgate upstreams test` and `tollgate
 * config check --probe` use it, in their own process. A probe costs some tokens at the provider.
 *
 * Must hold: no result shows a key or a token, also if an upstream repeats it: an upstream's texts are only
 * used through `shown` (test/e2e/upstream-test.test.ts).
 */
import type { Settings } from '../config/schema.js';
import { SystemClock } from '../core/clock.js';
import { isRecord, parsedJson } from '../core/json.js';
import type { ProviderName } from '../core/provider-names.js';
import { packageVersion } from '../core/version.js';
import { Http1Client } from '../http1/client.js';
import { isHtml } from '../http1/http-client.js';
import { openSource } from '../providers/credentials/credential-keeper.js';
import {
  credentialErrorOf,
  grantWithin,
  type CredentialError,
} from '../providers/credentials/credential-source.js';
import { CredentialPositions } from '../providers/credentials/credential-spec.js';
import { ProviderClient } from '../providers/provider-client.js';
import { PROVIDERS } from '../providers/providers.js';
import { UpstreamNames } from '../telemetry/metrics-source.js';
import type { AttemptClient } from '../upstream/attempt.js';
import { CredentialTable } from '../upstream/credential-table.js';
import { UNKNOWN_MODEL_CODES } from '../upstream/error-mapping.js';
import { tracesOf } from '../upstream/secret-traces.js';
import { addressOf, ECHO_ORIGIN, type UpstreamTarget } from '../upstream/target.js';
import { UpstreamScopes } from '../upstream/upstream-scopes.js';
import { routesOf } from './snapshot.js';

/** One upstream's result, with the field names of `--json`. */
export interface ProbeView {
  readonly model: string;
  /** The upstream's address with the path of the call. */
  readonly upstream: string;
  readonly ok: boolean;
  readonly status: number | null;
  readonly first_byte_ms: number | null;
  readonly answered_model: string | null;
  readonly usage_reported: boolean | null;
  readonly result: string;
  readonly advice: string | null;
}

/** An operator waits for the result, and a model that takes longer for one word serves nobody. */
const PROBE_MS_MAX = 15_000;
/** How much of a body is read: a response of some tokens with many other fields fits. */
const BODY_BYTES_MAX = 64 * 1024;
/** Probes at a time. A file with hundreds of upstreams that hang takes minutes then, and not hours. */
const PROBES_MAX = 8;
const OUTPUT_TOKENS = 5;
/** An error message with this name means that the model accepts only the newer parameter. */
const OTHER_LIMIT = 'max_completion_tokens';
/** Matters more than what `success` may advise. */
const NAME_THE_LIMIT =
  'it refuses max_tokens, which Messages and calls with a bound of the plan have: set member_names: {max_tokens: max_completion_tokens} of this upstream';

/**
 * Probes the upstreams of the model with that id or alias, or of all models. Resolves with one result for
 * each, model by model in the order of the settings; with undefined if there is no such model.
 */
export async function probeUpstreams(
  settings: Settings,
  model: string | undefined,
): Promise<ProbeView[] | undefined> {
  const id = settings.models.find(({ id, aliases }) => id === model || aliases.includes(model ?? ''))?.id;
  if (model !== undefined && id === undefined) return undefined;
  const positions = new CredentialPositions();
  const jobs = routesOf(settings, new UpstreamNames(), new UpstreamScopes(), positions)
    .filter((route) => model === undefined || route.id === id)
    .flatMap((route) => route.targets.map((target) => ({ model: route.id, target: withTimeouts(target) })));
  const clock = new SystemClock();
  const http = new Http1Client({ clock, version: packageVersion() });
  const credentials = new ProbeCredentials(positions);
  const providers = new ProviderClient(http, clock, credentials.table, PROVIDERS);
  const views: ProbeView[] = [];
  const queue = jobs.entries();
  const work = async (): Promise<void> => {
    for (const [at, { model, target }] of queue) {
      const problem = await credentials.fetch(target.provider?.credential);
      const client = target.provider === undefined ? http : providers;
      views[at] =
        problem === undefined ? await probe(client, model, target) : rejected(model, target, problem);
    }
  };
  try {
    await Promise.all(Array.from({ length: PROBES_MAX }, work));
  } finally {
    await http.close();
  }
  return views;
}

function withTimeouts(target: UpstreamTarget): UpstreamTarget {
  return {
    ...target,
    connectTimeoutMs: Math.min(target.connectTimeoutMs, PROBE_MS_MAX),
    firstByteTimeoutMs: PROBE_MS_MAX,
    idleTimeoutMs: PROBE_MS_MAX,
    totalTimeoutMs: PROBE_MS_MAX,
  };
}

/** Fetches each expiring credential once, for all upstreams that use it. */
class ProbeCredentials {
  readonly table = new CredentialTable([], () => undefined);
  readonly #positions: CredentialPositions;
  readonly #fetched = new Map<number, Promise<CredentialError | undefined>>();

  constructor(positions: CredentialPositions) {
    this.#positions = positions;
  }

  /** Resolves with the error, or with undefined if the credential is there or the upstream needs none. */
  fetch(position: number | undefined): Promise<CredentialError | undefined> {
    if (position === undefined) return Promise.resolve(undefined);
    let fetched = this.#fetched.get(position);
    if (fetched === undefined) {
      fetched = this.#fetch(position);
      this.#fetched.set(position, fetched);
    }
    return fetched;
  }

  async #fetch(position: number): Promise<CredentialError | undefined> {
    try {
      const source = await openSource(this.#positions.specOf(position));
      const { credential } = await grantWithin(source, PROBE_MS_MAX);
      this.table.replace([{ position, revision: 1, credential }]);
      return undefined;
    } catch (error) {
      return credentialErrorOf(error, 'see that this machine has credentials for the provider');
    }
  }
}

function rejected(model: string, target: UpstreamTarget, { message, advice }: CredentialError): ProbeView {
  return {
    model,
    upstream: addressOf(target),
    ok: false,
    status: null,
    first_byte_ms: null,
    answered_model: null,
    usage_reported: null,
    result: `no credentials: ${message}`,
    advice,
  };
}

async function probe(http: AttemptClient, model: string, target: UpstreamTarget): Promise<ProbeView> {
  const upstream = addressOf(target);
  if (target.origin === ECHO_ORIGIN) {
    return {
      model,
      upstream,
      ok: true,
      status: null,
      first_byte_ms: null,
      answered_model: null,
      usage_reported: null,
      result: 'built in: nothing to call',
      advice: null,
    };
  }
  let call = await callOnce(http, target, model, target.memberNames?.max_tokens ?? 'max_tokens');
  const isOtherLimit =
    call.reply.kind === 'response' && call.reply.status === 400 && call.reply.body.includes(OTHER_LIMIT);
  if (isOtherLimit) call = await callOnce(http, target, model, OTHER_LIMIT);
  const { reply, firstByteMs } = call;
  const { ok, result, advice, answeredModel, usageReported } = diagnosisOf(target, model, reply);
  return {
    model,
    upstream,
    ok,
    status: reply.kind === 'response' ? reply.status : null,
    first_byte_ms: firstByteMs === undefined ? null : Math.round(firstByteMs),
    answered_model: answeredModel,
    usage_reported: usageReported,
    result,
    advice: ok && isOtherLimit ? NAME_THE_LIMIT : advice,
  };
}

interface ProbeCall {
  readonly reply: ProbeReply;
  readonly firstByteMs: number | undefined;
}

function callOnce(
  http: AttemptClient,
  target: UpstreamTarget,
  model: string,
  limit: string,
): Promise<ProbeCall> {
  const body = JSON.stringify({
    model: target.model ?? model,
    messages: [{ role: 'user', content: 'Say OK.' }],
    [limit]: OUTPUT_TOKENS,
  });
  return new Promise((resolve) => {
    const begunMs = performance.now();
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    let firstByteMs: number | undefined;
    let head = {
      status: 0,
      contentType: undefined as string | undefined,
      location: undefined as string | undefined,
    };
    const respond = (isCut: boolean): void => {
      const text = Buffer.concat(chunks).toString('utf8', 0, BODY_BYTES_MAX);
      resolve({ reply: { kind: 'response', ...head, body: text, isCut }, firstByteMs });
    };
    const call = http.start(target, body, 'tollgate-test', {
      onStart: (status, header) => {
        firstByteMs = performance.now() - begunMs;
        head = { status, contentType: header('content-type'), location: header('location') };
      },
      onData: (chunk) => {
        chunks.push(Uint8Array.from(chunk));
        bytes += chunk.length;
        if (bytes <= BODY_BYTES_MAX) return;
        call.abort();
        respond(true);
      },
      onEnd: () => respond(false),
      onError: ({ code, message }) => resolve({ reply: { kind: 'error', code, message }, firstByteMs }),
    });
  });
}

/** The reply to a probe: a response as far as it was read, or an error. */
type ProbeReply =
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

export interface ProbeDiagnosis {
  readonly ok: boolean;
  /** The result, in one line. */
  readonly result: string;
  /** What the operator should do; null if nothing. */
  readonly advice: string | null;
  /** The model that the response names. */
  readonly answeredModel: string | null;
  /** Whether the response reports its tokens; null if there was no good response. */
  readonly usageReported: boolean | null;
}

/** What the operator should also check, by provider. */
const HINTS: Readonly<Partial<Record<ProviderName, string>>> = {
  azure: ", see api_version, and set model to the deployment's name",
  vertex: ', see project and region, and set model to its name there',
  bedrock: ', see region, and set model to its id there',
};

/** How many characters of an upstream's message are shown. */
const MESSAGE_CHARS_MAX = 200;
const CALL_PATH = '/chat/completions';
const UNKNOWN_MODEL_MESSAGE =
  /\bmodel\b.{0,120}\b(?:not found|does not exist|not exist|unknown|not supported|no such)\b|\b(?:unknown|invalid|no such) model\b/is;
const TLS_UNTRUSTED = /SELF_SIGNED|UNABLE_TO_(?:VERIFY|GET_ISSUER)|CERT_UNTRUSTED|CERT_SIGNATURE/;
const TLS_ERROR = /CERT|TLS|SSL|^EPROTO$/;

function diagnosisOf(target: UpstreamTarget, model: string, reply: ProbeReply): ProbeDiagnosis {
  if (reply.kind === 'error') {
    const result = `no answer: ${reply.code}, ${shown(target, reply.message)}`;
    return failure(result, adviceOfError(target, reply.code));
  }
  const { status, contentType, body, isCut } = reply;
  const isPage = isHtml(contentType) || body.trimStart().startsWith('<');
  const value = isPage || isCut ? undefined : parsedJson(body);
  if (status >= 200 && status < 300) {
    if (isRecord(value) && Array.isArray(value.choices)) return success(target, status, value);
    const what = isPage ? 'HTML' : isCut ? 'too long an answer' : 'no chat completion';
    return failure(`status ${status}, ${what}`, adviceOfAddress(target));
  }
  const error = isRecord(value) ? value.error : undefined;
  const message = isRecord(error) && typeof error.message === 'string' ? error.message : undefined;
  const result = `status ${status}${isPage ? ', HTML' : message === undefined ? '' : `: ${shown(target, message)}`}`;
  const isUnknownModel =
    isRecord(error) &&
    (UNKNOWN_MODEL_CODES.has(error.code) || (message !== undefined && UNKNOWN_MODEL_MESSAGE.test(message)));
  if (isUnknownModel && (status === 400 || status === 404 || status === 422)) {
    const name = target.model ?? model;
    return failure(
      result,
      `the provider does not know the model ${name}: set model: of this upstream to its name there`,
    );
  }
  return failure(result, adviceOfStatus(target, reply, isPage));
}

function success(
  target: UpstreamTarget,
  status: number,
  value: Readonly<Record<string, unknown>>,
): ProbeDiagnosis {
  const usageReported = isRecord(value.usage) && typeof value.usage.prompt_tokens === 'number';
  return {
    ok: true,
    result: `status ${status}`,
    advice: usageReported ? null : 'it reports no usage: tokens are counted here, with `tokenizer`',
    answeredModel: typeof value.model === 'string' ? shown(target, value.model) : null,
    usageReported,
  };
}

function failure(result: string, advice: string): ProbeDiagnosis {
  return { ok: false, result, advice, answeredModel: null, usageReported: null };
}

function adviceOfStatus(
  target: UpstreamTarget,
  { status, location }: ProbeReply & { kind: 'response' },
  isPage: boolean,
): string {
  if (status === 401 || status === 403) {
    const { credential } = target.provider ?? {};
    if (credential !== undefined)
      return 'it refuses the credentials of this machine: see that their account may use the model';
    return target.key === undefined
      ? 'it wants a key and none is set: set key or key_file of this upstream'
      : 'it refuses the key: see that key or key_file is one of this provider, whole and still valid, and may use the model';
  }
  if (status === 402) return 'the account at the provider has no credit left';
  if (status === 429)
    return 'address and key serve, but the account at the provider has no quota left now: try later';
  if (status >= 300 && status < 400) {
    const toAddress = location === undefined ? '' : ` to ${shown(target, location)}`;
    return `it redirects${toAddress}, which is not followed: set url to where the API is`;
  }
  if (isPage || status === 404 || status === 405 || status === 410) return adviceOfAddress(target);
  if (status >= 500) return 'the provider fails: try later, and look at its state';
  return 'it refuses a plain request: its words say why';
}

/** Returns the advice for an address that responds, but not as a chat-completions API. */
function adviceOfAddress(target: UpstreamTarget): string {
  const address = addressOf(target);
  const name = target.provider?.name;
  if (name !== undefined)
    return `there is no interface of ${name} at ${address}: set url to the base address that its SDKs take${HINTS[name] ?? ''}`;
  const base = address.slice(0, -CALL_PATH.length);
  if (base.endsWith(CALL_PATH)) {
    return `url ends with ${CALL_PATH}, which is added to it: set it to ${base.slice(0, -CALL_PATH.length)}`;
  }
  const tail = `there is no API for chat completions at ${address}`;
  if (!/\/v\d/.test(base)) return `${tail}: url has no /v1, try ${base}/v1`;
  return `${tail}: set url to the base address that the provider names, without ${CALL_PATH}`;
}

function adviceOfError({ origin }: UpstreamTarget, code: string): string {
  const { host, hostname, protocol } = new URL(origin);
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN' || code === 'EAI_FAIL')
    return `the name ${hostname} cannot be resolved: see that it is spelled right, and the DNS of this machine`;
  if (code === 'ECONNREFUSED') return `nothing listens at ${host}: see host and port, and that it runs`;
  if (code === 'EHOSTUNREACH' || code === 'ENETUNREACH' || code === 'TIMEOUT_CONNECT')
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

/** Returns the upstream's message in one line, with the credentials removed that it repeats. */
function shown(target: UpstreamTarget, text: string): string {
  const cleaned = tracesOf(target).cleaned(text.slice(0, 10 * MESSAGE_CHARS_MAX));
  if (cleaned === undefined) return '(words that repeat the key are not shown)';
  const line = cleaned.replace(/[\p{Cc}\p{Cs}\s]+/gu, ' ').trim();
  return line.length > MESSAGE_CHARS_MAX ? `${line.slice(0, MESSAGE_CHARS_MAX)}…` : line;
}
