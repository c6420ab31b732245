/**
 * A call that asks how many tokens its prompt has. The call goes to an upstream that speaks the door's
 * protocol, as any call does. If no upstream does, or none can count, the gateway counts the texts of the
 * prompt itself. chat-session.ts calls `startCountSession` for each such call. Upstream worker.
 *
 * Must hold: the call is free, and its failures open no breaker, because an upstream that cannot count may be
 * healthy (test/e2e/messages.test.ts).
 */
import type {
  DownstreamHandle,
  StartSession,
  UpstreamRequest,
  UpstreamSession,
} from '../channel/messages.js';
import type { ErrorCode, ErrorRecord } from '../core/errors.js';
import { CRASHED } from './error-mapping.js';
import { dialectAt } from '../doors/dialects.js';
import { mediaTokensOf } from '../protocol/chat-call.js';
import { NO_USAGE } from './call-usage.js';
import type { SessionShared } from './session-shared.js';
import { countOrEstimate } from './token-estimate.js';
import { UsageMeter } from './usage-meter.js';

/** If all upstreams fail with one of these errors, the gateway counts by itself. Others go to the caller. */
const ERRORS_OF_UPSTREAMS: readonly ErrorCode[] = ['provider_unavailable', 'overloaded'];

type CountDeps = Pick<SessionShared, 'routes' | 'count' | 'errors' | 'clock'>;

/** `startChat` starts the session that calls upstreams (createStartSession of chat-session.ts). */
export function startCountSession(
  deps: CountDeps,
  request: UpstreamRequest,
  downstream: DownstreamHandle,
  startChat: StartSession,
): UpstreamSession {
  const { name } = dialectAt(request.door)!;
  const { targets } = deps.routes.routeOf(request.modelIndex);
  let isStopped = false;
  /** The session that calls the upstreams; undefined if none speaks the door's protocol. */
  let session: UpstreamSession | undefined;
  if (targets.every(({ doors }) => doors[name] === undefined)) countHere(deps, request, downstream);
  else {
    const onFail = (error: ErrorRecord): void => {
      if (isStopped || !ERRORS_OF_UPSTREAMS.includes(error.code)) downstream.fail(error);
      else countHere(deps, request, downstream);
    };
    // No fallback is asked, because its tokenizer may be another.
    session = startChat({ ...request, fallbacks: undefined }, withFail(downstream, onFail));
  }
  /** The call is free, so the upstream need not finish. A count that has begun goes on, and ends the call. */
  const onStop = (): void => {
    isStopped = true;
    session?.onStop();
  };
  return {
    onCredit: () => session?.onCredit(),
    onCancel: onStop,
    onStop,
    crash: (error) => session?.crash(error),
  };
}

/** `downstream`, of which `onFail` gets the failure. */
function withFail(downstream: DownstreamHandle, onFail: DownstreamHandle['fail']): DownstreamHandle {
  return {
    get isEnded() {
      return downstream.isEnded;
    },
    data: (bytes) => downstream.data(bytes),
    tried: (attempt) => downstream.tried(attempt),
    recordUpstream: (slot, fallback, nowMs) => downstream.recordUpstream(slot, fallback, nowMs),
    recordQueued: (ms) => downstream.recordQueued(ms),
    end: (bytes, usage, waitMs) => downstream.end(bytes, usage, waitMs),
    cut: (usage, waitMs) => downstream.cut(usage, waitMs),
    fail: onFail,
  };
}

/** Counts by a counter thread: 0.1 s a megabyte. Never throws, because a failing session calls it. */
function countHere(deps: CountDeps, request: UpstreamRequest, downstream: DownstreamHandle): void {
  respond(deps, request, downstream).catch((error: unknown) => {
    deps.errors.writeCrash(error);
    downstream.fail(CRASHED);
  });
}

async function respond(
  { routes, count, errors, clock }: CountDeps,
  { modelIndex, account, door, body, largeBody, mediaParts }: UpstreamRequest,
  downstream: DownstreamHandle,
): Promise<void> {
  const startMs = clock.monotonicMs();
  const route = routes.routeOf(modelIndex);
  const { tokenizer } = route;
  const mediaTokens = mediaTokensOf({ mediaParts }, route);
  // Which upstream will get the prompt is not known, so the longest prompt that any of them gets counts.
  const thoughtsBack = route.targets.some((target) => target.thoughtsBack === true);
  const prompt = { tokenizer, door, body: largeBody ?? body, mediaTokens, thoughtsBack };
  // The meter is empty, so the CountRequest has a prompt alone.
  const countRequest = new UsageMeter().countRequest(prompt);
  const { promptTokens } = await countOrEstimate(count, countRequest, account, errors);
  const response = Buffer.from(`{"input_tokens":${promptTokens}}`);
  downstream.end(response, NO_USAGE, clock.monotonicMs() - startMs);
}
