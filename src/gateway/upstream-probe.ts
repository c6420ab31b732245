/**
 * Calls each upstream of the settings once with a tiny request, over the client that serves calls, and says what came back. Commands.
 */
import type { Settings } from '../config/schema.js';
import { SystemClock } from '../core/clock.js';
import { packageVersion } from '../core/version.js';
import { UpstreamNames } from '../telemetry/upstream-names.js';
import type { UpstreamClient } from '../upstream/client.js';
import { Http1Client } from '../upstream/http1-client.js';
import { addressOf, ECHO_ORIGIN, type UpstreamTarget } from '../upstream/target.js';
import { verdictOf, type ProbeReply } from './probe-advice.js';
import { routesOf } from './snapshot.js';

/** With the field names of `--json`. */
export interface ProbeView {
  readonly model: string;
  /** Its address, with the path of the call. */
  readonly upstream: string;
  readonly ok: boolean;
  readonly status: number | null;
  readonly first_byte_ms: number | null;
  readonly answered_model: string | null;
  readonly usage_reported: boolean | null;
  readonly result: string;
  readonly advice: string | null;
}

/** An operator waits for it; a model that takes longer for one word serves nobody. */
const PROBE_MS_MAX = 15_000;
/** Of an answer of some tokens, with much around it. */
const BODY_BYTES_MAX = 64 * 1024;
/** At a time: a file of hundreds of upstreams that hang takes minutes and not hours. */
const PROBES_MAX = 8;
const OUTPUT_TOKENS = 5;
/** What models say that know the newer name alone. */
const OTHER_LIMIT = 'max_completion_tokens';

/** Of the model with that id or alias, or of all; undefined where there is no such model. One line each, as in the settings. */
export async function probeUpstreams(
  settings: Settings,
  model: string | undefined,
): Promise<ProbeView[] | undefined> {
  const id = settings.models.find(({ id, aliases }) => id === model || aliases.includes(model ?? ''))?.id;
  if (model !== undefined && id === undefined) return undefined;
  const jobs = routesOf(settings, new UpstreamNames())
    .filter((route) => model === undefined || route.id === id)
    .flatMap((route) => route.targets.map((target) => ({ model: route.id, target: hurried(target) })));
  const http = new Http1Client({ clock: new SystemClock(), version: packageVersion() });
  const views: ProbeView[] = [];
  const queue = jobs.entries();
  const work = async (): Promise<void> => {
    for (const [at, { model, target }] of queue) views[at] = await probe(http, model, target);
  };
  try {
    await Promise.all(Array.from({ length: PROBES_MAX }, work));
  } finally {
    await http.close();
  }
  return views;
}

function hurried(target: UpstreamTarget): UpstreamTarget {
  return {
    ...target,
    connectTimeoutMs: Math.min(target.connectTimeoutMs, PROBE_MS_MAX),
    firstByteTimeoutMs: PROBE_MS_MAX,
    idleTimeoutMs: PROBE_MS_MAX,
    totalTimeoutMs: PROBE_MS_MAX,
  };
}

async function probe(http: UpstreamClient, model: string, target: UpstreamTarget): Promise<ProbeView> {
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
  let call = await callOnce(http, target, model, 'max_tokens');
  if (call.reply.kind === 'answer' && call.reply.status === 400 && call.reply.body.includes(OTHER_LIMIT))
    call = await callOnce(http, target, model, 'max_completion_tokens');
  const { reply, firstByteMs } = call;
  const { ok, result, advice, answeredModel, usageReported } = verdictOf(target, model, reply);
  return {
    model,
    upstream,
    ok,
    status: reply.kind === 'answer' ? reply.status : null,
    first_byte_ms: firstByteMs === undefined ? null : Math.round(firstByteMs),
    answered_model: answeredModel,
    usage_reported: usageReported,
    result,
    advice,
  };
}

interface ProbeCall {
  readonly reply: ProbeReply;
  readonly firstByteMs: number | undefined;
}

function callOnce(
  http: UpstreamClient,
  target: UpstreamTarget,
  model: string,
  limit: 'max_tokens' | 'max_completion_tokens',
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
    const answer = (isCut: boolean): void => {
      const text = Buffer.concat(chunks).toString('utf8', 0, BODY_BYTES_MAX);
      resolve({ reply: { kind: 'answer', ...head, body: text, isCut }, firstByteMs });
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
        answer(true);
      },
      onEnd: () => answer(false),
      onError: ({ code, message }) => resolve({ reply: { kind: 'fault', code, message }, firstByteMs }),
    });
  });
}
