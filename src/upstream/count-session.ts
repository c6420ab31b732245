/**
 * A call that asks how many tokens its prompt has. The call goes to an upstream that speaks the door's
 * protocol, as any call does. If no upstream does, or none can count, the gateway counts the texts of the
 * prompt itself. chat-session.ts makes a CountSession for each such call. Upstream worker.
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
import type { Clock } from '../core/clock.js';
import type { ErrorCode } from '../core/errors.js';
import { CRASHED } from './error-mapping.js';
import { dialectAt } from '../doors/dialects.js';
import { mediaTokensOf } from '../protocol/chat-call.js';
import { NO_USAGE } from './call-usage.js';
import type { ErrorLog } from './error-log.js';
import type { RouteTable } from './route-table.js';
import { countOrEstimate, type CountTokens } from './token-estimate.js';
import { UsageMeter } from './usage-meter.js';

/** If all upstreams fail with one of these errors, the gateway counts by itself. Others go to the caller. */
const ERRORS_OF_UPSTREAMS: readonly ErrorCode[] = ['provider_unavailable', 'overloaded'];

interface CountDeps {
  readonly routes: RouteTable;
  readonly count: CountTokens;
  readonly errors: ErrorLog;
  readonly clock: Clock;
}

/** `startChat` starts the session that calls upstreams (createStartSession of chat-session.ts). */
export function startCountSession(
  deps: CountDeps,
  request: UpstreamRequest,
  downstream: DownstreamHandle,
  startChat: StartSession,
): UpstreamSession {
  const name = dialectAt(request.door)!.name;
  const { targets } = deps.routes.routeOf(request.modelIndex);
  const session = new CountSession(deps, request, downstream);
  if (targets.some(({ doors }) => doors[name] !== undefined)) session.askUpstreams(startChat);
  else session.countHere();
  return session;
}

class CountSession implements UpstreamSession {
  readonly #deps: CountDeps;
  readonly #request: UpstreamRequest;
  readonly #downstream: DownstreamHandle;
  /** The session that calls the upstreams; undefined if none speaks the door's protocol. */
  #upstreamSession: UpstreamSession | undefined;
  #isCancelled = false;

  constructor(deps: CountDeps, request: UpstreamRequest, downstream: DownstreamHandle) {
    this.#deps = deps;
    this.#request = request;
    this.#downstream = downstream;
  }

  /** Asks the upstreams of the model, but no fallback, whose tokenizer may be another. */
  askUpstreams(startChat: StartSession): void {
    const downstream = this.#downstream;
    this.#upstreamSession = startChat(
      { ...this.#request, fallbacks: undefined },
      {
        get isEnded() {
          return downstream.isEnded;
        },
        data: (bytes) => downstream.data(bytes),
        tried: (attempt) => downstream.tried(attempt),
        recordUpstream: (slot, fallback, nowMs) => downstream.recordUpstream(slot, fallback, nowMs),
        recordQueued: (ms) => downstream.recordQueued(ms),
        end: (bytes, usage, waitMs) => downstream.end(bytes, usage, waitMs),
        cut: (usage, waitMs) => downstream.cut(usage, waitMs),
        fail: (error) => {
          if (this.#isCancelled || !ERRORS_OF_UPSTREAMS.includes(error.code)) downstream.fail(error);
          else this.countHere();
        },
      },
    );
  }

  /** Counts by a counter thread: 0.1 s a megabyte. Never throws, because `fail` above calls it. */
  countHere(): void {
    this.#respond().catch((error: unknown) => {
      this.#deps.errors.writeCrash(error);
      this.#downstream.fail(CRASHED);
    });
  }

  async #respond(): Promise<void> {
    const { routes, count, errors, clock } = this.#deps;
    const { modelIndex, account, door, body, largeBody } = this.#request;
    const startMs = clock.monotonicMs();
    const route = routes.routeOf(modelIndex);
    const mediaTokens = mediaTokensOf(this.#request, route);
    // The meter is empty, so the CountRequest has a prompt alone.
    const meter = new UsageMeter();
    // Which upstream will get the prompt is not known, so the longest prompt that any of them gets counts.
    const thoughtsBack = route.targets.some((target) => target.thoughtsBack === true);
    const { tokenizer } = route;
    const prompt = { tokenizer, door, body: largeBody ?? body, mediaTokens, thoughtsBack };
    const countRequest = meter.countRequest(prompt);
    const { promptTokens } = await countOrEstimate(count, countRequest, account, errors);
    const response = Buffer.from(`{"input_tokens":${promptTokens}}`);
    this.#downstream.end(response, NO_USAGE, clock.monotonicMs() - startMs);
  }

  onCredit(): void {
    this.#upstreamSession?.onCredit();
  }

  /** The call is free, so the upstream need not finish. */
  onCancel(): void {
    this.onStop();
  }

  /** `countHere` goes on if it was called, and the call ends with its count. */
  onStop(): void {
    this.#isCancelled = true;
    this.#upstreamSession?.onStop();
  }

  crash(error: unknown): void {
    this.#upstreamSession?.crash(error);
  }
}
