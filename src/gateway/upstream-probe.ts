/**
 * Calls each upstream of the settings once, with a tiny request and the client that serves calls, and
 * reports what the reply means and what the operator should do (probe-diagnosis.ts). `tollgate upstreams
 * test` and `tollgate config check --probe` use it, in their own process. A probe costs some tokens at the
 * provider.
 *
 * Must hold: a model is called for what it serves, and not always for a chat completion
 * (test/e2e/upstream-test.test.ts).
 */
import type { Settings } from '../config/schema.js';
import { SystemClock } from '../core/clock.js';
import type { Service } from '../core/door-names.js';
import { packageVersion } from '../core/version.js';
import { Http1Client } from '../http1/client.js';
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
import { CredentialTable } from '../upstream/credential-table.js';
import { addressOf, type AttemptClient, ECHO_ORIGIN, type UpstreamTarget } from '../upstream/target.js';
import { UpstreamScopes } from '../upstream/upstream-scopes.js';
import { diagnosisOf, type ProbeReply } from './probe-diagnosis.js';
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
/** The members of a tiny request, by what the model serves. `limit`: the name that bounds the response. */
const REQUESTS: Readonly<Record<Service, (limit: string) => object>> = {
  chat: (limit) => ({ messages: [{ role: 'user', content: 'Say OK.' }], [limit]: OUTPUT_TOKENS }),
  completions: (limit) => ({ prompt: 'Say OK.', [limit]: OUTPUT_TOKENS }),
  embeddings: () => ({ input: 'OK' }),
  moderations: () => ({ input: 'OK' }),
  rerank: () => ({ query: 'OK', documents: ['OK'] }),
};
/** An error message with this name means that the model accepts only the newer parameter. */
const OTHER_LIMIT = 'max_completion_tokens';
/** Shown in place of the advice of a good reply, because it matters more. */
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
  const services = new Map(settings.models.map((own) => [own.id, serviceOf(own)]));
  const jobs = routesOf(settings, new UpstreamNames(), new UpstreamScopes(), positions)
    .filter((route) => model === undefined || route.id === id)
    .flatMap((route) =>
      route.targets.map((target): ProbeJob => {
        const service = services.get(route.id) ?? 'chat';
        // Only upstreams with OpenAI's paths serve anything but chat.
        const path = service === 'chat' ? target.path : (target.doors[service] ?? target.path);
        return { model: route.id, service, target: withTimeouts({ ...target, path }) };
      }),
    );
  const clock = new SystemClock();
  const http = new Http1Client({ clock, version: packageVersion() });
  const credentials = new ProbeCredentials(positions);
  const providers = new ProviderClient(http, clock, credentials.table, PROVIDERS);
  const views: ProbeView[] = [];
  const queue = jobs.entries();
  const work = async (): Promise<void> => {
    for (const [at, job] of queue) {
      const { target } = job;
      const problem = await credentials.fetch(target.provider?.credential);
      const client = target.provider === undefined ? http : providers;
      if (problem === undefined) views[at] = await probe(client, job);
      else {
        const { message, advice } = problem;
        views[at] = notCalled(job, { ok: false, result: `no credentials: ${message}`, advice });
      }
    }
  };
  try {
    await Promise.all(Array.from({ length: PROBES_MAX }, work));
  } finally {
    await http.close();
  }
  return views;
}

interface ProbeJob {
  readonly model: string;
  readonly service: Service;
  /** Its path is that of the service. */
  readonly target: UpstreamTarget;
}

/** What a model is called for: chat if it serves that, or else the first of what it serves. */
function serviceOf({ serves }: Settings['models'][number]): Service {
  return serves.includes('chat') ? 'chat' : (serves[0] ?? 'chat');
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
    if (fetched === undefined) this.#fetched.set(position, (fetched = this.#fetch(position)));
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

/** Returns the result of an upstream that was not called. */
function notCalled(
  { model, target }: ProbeJob,
  { ok, result, advice }: Pick<ProbeView, 'ok' | 'result' | 'advice'>,
): ProbeView {
  const upstream = addressOf(target);
  const unknown = { status: null, first_byte_ms: null, answered_model: null, usage_reported: null };
  return { model, upstream, ok, ...unknown, result, advice };
}

async function probe(http: AttemptClient, job: ProbeJob): Promise<ProbeView> {
  const { model, service, target } = job;
  if (target.origin === ECHO_ORIGIN)
    return notCalled(job, { ok: true, result: 'built in: nothing to call', advice: null });
  let call = await callOnce(http, job, target.memberNames?.max_tokens ?? 'max_tokens');
  const isOtherLimit =
    call.reply.kind === 'response' && call.reply.status === 400 && call.reply.body.includes(OTHER_LIMIT);
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
  readonly firstByteMs: number | undefined;
}

function callOnce(
  http: AttemptClient,
  { model, service, target }: ProbeJob,
  limit: string,
): Promise<ProbeCall> {
  const body = JSON.stringify({ model: target.model ?? model, ...REQUESTS[service](limit) });
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
