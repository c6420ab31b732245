/**
 * Calls each upstream of the settings with a tiny request (a _probe_), by the client that serves calls, and
 * reports what the reply means and what the operator should do (probe-diagnosis.ts).
 * cli/catalog-commands.ts (`tollgate upstreams test`) and cli/config-command.ts (`tollgate config check
 * --probe`) use it, in a command's process. A probe costs some tokens at the provider.
 *
 * Must hold: a model is called for a service that it has, which need not be chat completions. Each probe ends
 * within PROBE_MS_MAX, or twice that if it calls again (further test: test/e2e/upstream-test.test.ts).
 */
import type { Settings } from '../config/schema.js';
import { SystemClock } from '../core/clock.js';
import type { Service } from '../core/door-names.js';
import { packageVersion } from '../core/version.js';
import { Http1Client } from '../http1/client.js';
import { openSource } from '../providers/credentials/source-loader.js';
import {
  credentialErrorOf,
  credentialWithin,
  type CredentialError,
} from '../providers/credentials/credential-source.js';
import { CredentialPositions } from '../providers/credentials/credential-spec.js';
import { ProviderClient } from '../providers/provider-client.js';
import { PROVIDERS } from '../providers/providers.js';
import { UpstreamNames } from '../telemetry/upstream-names.js';
import { CredentialTable } from '../upstream/credential-table.js';
import { addressOf, type AttemptClient, ECHO_ORIGIN, type UpstreamTarget } from '../upstream/target.js';
import { UpstreamScopes } from '../upstream/upstream-scopes.js';
import { diagnosisOf, type ProbeReply } from './probe-diagnosis.js';
import { routesOf } from './settings-records.js';

/** One upstream's result, with the field names of `--json`. A field is null if the probe has not shown it. */
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

/** How long a call may take: a model that takes longer for one word is of no use. */
const PROBE_MS_MAX = 15_000;
const PROBE_TIMEOUTS = {
  firstByteTimeoutMs: PROBE_MS_MAX,
  idleTimeoutMs: PROBE_MS_MAX,
  totalTimeoutMs: PROBE_MS_MAX,
};
/**
 * How much of a body is read. An embedding of 4,096 numbers takes 130 KB as OpenAI writes it: each number
 * with up to 20 digits, in a line of its own.
 */
const BODY_BYTES_MAX = 512 * 1024;
/** How many probes run at a time: then hundreds of upstreams that hang take minutes and not hours. */
const PROBES_MAX = 8;
/** Some models reject less, such as GPT-5. Most end after two tokens. */
const OUTPUT_TOKENS = 16;
/** The members of a probe, by service. `limitName` is the name of the member that bounds the response. */
const REQUESTS: Readonly<Record<Service, (limitName: string) => object>> = {
  chat: (limitName) => ({ messages: [{ role: 'user', content: 'Say OK.' }], [limitName]: OUTPUT_TOKENS }),
  completions: (limitName) => ({ prompt: 'Say OK.', [limitName]: OUTPUT_TOKENS }),
  embeddings: () => ({ input: 'OK' }),
  moderations: () => ({ input: 'OK' }),
  rerank: () => ({ query: 'OK', documents: ['OK'] }),
};
/** If the body of a 400 has this name, the model may want it for `max_tokens`: `probe` calls again. */
const OTHER_LIMIT = 'max_completion_tokens';
/** The advice if only the second call was accepted. */
const NAME_THE_LIMIT =
  'it refuses max_tokens, which Messages and calls with a bound of the plan have: set member_names: {max_tokens: max_completion_tokens} of this upstream';

/**
 * Probes the upstreams of the model with that id or alias; of all models if `model` is undefined. Resolves
 * with one result for each upstream, model by model in the order of the settings, and within a model by
 * priority. Resolves with undefined if there is no such model.
 */
export async function probeUpstreams(
  settings: Settings,
  model: string | undefined,
): Promise<ProbeView[] | undefined> {
  const modelId = settings.models.find(
    ({ id, aliases }) => id === model || aliases.includes(model ?? ''),
  )?.id;
  if (model !== undefined && modelId === undefined) return undefined;
  const positions = new CredentialPositions();
  const jobs = jobsOf(settings, modelId, positions);
  const clock = new SystemClock();
  const http = new Http1Client({ clock, version: packageVersion() });
  const credentials = new ProbeCredentials(positions);
  const providers = new ProviderClient(http, clock, credentials.table, PROVIDERS);
  const views: ProbeView[] = [];
  const queue = jobs.entries();
  const runJobs = async (): Promise<void> => {
    for (const [index, job] of queue) {
      const { target } = job;
      const credentialError = await credentials.fetch(target.provider?.credential);
      const client = target.provider === undefined ? http : providers;
      if (credentialError === undefined) views[index] = await probe(client, job);
      else {
        const { message, advice } = credentialError;
        views[index] = notCalled(job, { ok: false, result: `no credentials: ${message}`, advice });
      }
    }
  };
  try {
    await Promise.all(Array.from({ length: PROBES_MAX }, runJobs));
  } finally {
    await http.close();
  }
  return views;
}

interface ProbeJob {
  readonly model: string;
  readonly service: Service;
  /** The upstream, with the path of the service and with the timeouts of a probe. */
  readonly target: UpstreamTarget;
}

/** Returns a job for each upstream of the model with that id; of all models if `id` is undefined. */
function jobsOf(settings: Settings, id: string | undefined, positions: CredentialPositions): ProbeJob[] {
  const services = new Map(settings.models.map((model) => [model.id, serviceOf(model)]));
  return routesOf(settings, new UpstreamNames(), new UpstreamScopes(), positions)
    .filter((route) => id === undefined || route.id === id)
    .flatMap((route) =>
      route.targets.map((target): ProbeJob => {
        const service = services.get(route.id) ?? 'chat';
        // Upstreams of all other services have OpenAI's paths, which are in `doors`.
        const path = service === 'chat' ? target.path : (target.doors[service] ?? target.path);
        const connectTimeoutMs = Math.min(target.connectTimeoutMs, PROBE_MS_MAX);
        return { model: route.id, service, target: { ...target, ...PROBE_TIMEOUTS, connectTimeoutMs, path } };
      }),
    );
}

/** Returns what a model is called for: chat if the model serves chat, or else the first of its services. */
function serviceOf({ serves }: Settings['models'][number]): Service {
  return serves.includes('chat') ? 'chat' : (serves[0] ?? 'chat');
}

/** Fetches each credential once, for all upstreams that use it, and puts it into `table`. */
class ProbeCredentials {
  readonly table = new CredentialTable([], () => undefined);
  readonly #positions: CredentialPositions;
  readonly #fetched = new Map<number, Promise<CredentialError | undefined>>();

  constructor(positions: CredentialPositions) {
    this.#positions = positions;
  }

  /** Resolves with the error; with undefined if `table` has the credential or `position` is undefined. */
  fetch(position: number | undefined): Promise<CredentialError | undefined> {
    if (position === undefined) return Promise.resolve(undefined);
    let fetched = this.#fetched.get(position);
    if (fetched === undefined) this.#fetched.set(position, (fetched = this.#fetch(position)));
    return fetched;
  }

  async #fetch(position: number): Promise<CredentialError | undefined> {
    try {
      const source = await openSource(this.#positions.specOf(position));
      const { credential } = await credentialWithin(source, PROBE_MS_MAX);
      this.table.replace([{ position, generation: 1, credential }]);
      return undefined;
    } catch (error) {
      return credentialErrorOf(error, 'see that this machine has credentials for the provider');
    }
  }
}

/** Returns the result of an upstream that was not called. */
function notCalled(
  { model, target }: ProbeJob,
  { ok, result, advice }: Pick<ProbeView, 'ok' | 'result' | 'advice'>,
): ProbeView {
  const upstream = addressOf(target);
  const unknownFields = { status: null, first_byte_ms: null, answered_model: null, usage_reported: null };
  return { model, upstream, ok, ...unknownFields, result, advice };
}

/** Calls one upstream, and once more if it rejects the name of the bound. Never rejects. */
async function probe(http: AttemptClient, job: ProbeJob): Promise<ProbeView> {
  const { model, service, target } = job;
  if (target.origin === ECHO_ORIGIN)
    return notCalled(job, { ok: true, result: 'built in: nothing to call', advice: null });
  const limitName = target.memberNames?.max_tokens ?? 'max_tokens';
  let call = await callOnce(http, job, limitName);
  const isOtherLimit =
    limitName !== OTHER_LIMIT &&
    call.reply.kind === 'response' &&
    call.reply.status === 400 &&
    call.reply.body.includes(OTHER_LIMIT);
  if (isOtherLimit) call = await callOnce(http, job, OTHER_LIMIT);
  const { reply, firstByteMs } = call;
  const { ok, result, advice, answeredModel, usageReported } = diagnosisOf(target, model, service, reply);
  return {
    model,
    upstream: addressOf(target),
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
  /** Since the call began; undefined without a response. */
  readonly firstByteMs: number | undefined;
}

/**
 * Makes one call. Never rejects: the target's timeouts end the call. After `abort` the client calls no
 * handler, so `onData` itself resolves for a body that is too long.
 */
function callOnce(
  http: AttemptClient,
  { model, service, target }: ProbeJob,
  limitName: string,
): Promise<ProbeCall> {
  const body = JSON.stringify({ model: target.model ?? model, ...REQUESTS[service](limitName) });
  return new Promise((resolve) => {
    const startMs = performance.now();
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    let firstByteMs: number | undefined;
    let head = {
      status: 0,
      contentType: undefined as string | undefined,
      location: undefined as string | undefined,
    };
    const resolveResponse = ({ isCut }: { readonly isCut: boolean }): void => {
      const text = Buffer.concat(chunks).toString('utf8', 0, BODY_BYTES_MAX);
      resolve({ reply: { kind: 'response', ...head, body: text, isCut }, firstByteMs });
    };
    const call = http.start(target, body, 'tollgate-test', {
      onStart: (status, header) => {
        firstByteMs = performance.now() - startMs;
        head = { status, contentType: header('content-type'), location: header('location') };
      },
      onData: (chunk) => {
        chunks.push(Uint8Array.from(chunk));
        bytes += chunk.length;
        if (bytes <= BODY_BYTES_MAX) return;
        call.abort();
        resolveResponse({ isCut: true });
      },
      onEnd: () => resolveResponse({ isCut: false }),
      onError: ({ code, message }) => resolve({ reply: { kind: 'error', code, message }, firstByteMs }),
    });
  });
}
