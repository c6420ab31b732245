/**
 * Declares what all sessions of an upstream worker share. upstream-task.ts makes it for chat-session.ts,
 * which calls `clientOf` for each attempt, and `guarded` once. Upstream worker.
 *
 * Must hold: a start of a session that throws fails its call once and leaves no session. `guarded` gives
 * nothing back, so the constructor of a session takes nothing; ChatSession.start catches what comes after it.
 */
import type { StartSession, UpstreamSession } from '../channel/messages.js';
import type { UpstreamMetrics } from '../telemetry/metrics-writers.js';
import type { SpanOutbox } from '../telemetry/span-outbox.js';
import type { ErrorLog } from './error-log.js';
import { CRASHED } from './error-mapping.js';
import type { LeftCalls } from './left-calls.js';
import type { WorkerBudget } from './worker-budget.js';
import type { RouteTable } from './route-table.js';
import { type AttemptClient, ECHO_ORIGIN, type UpstreamTarget } from './target.js';
import type { LargeDeps } from './large-call.js';
import type { CountTokens } from './token-estimate.js';
import type { UpstreamQuotas } from './upstream-quotas.js';

export interface SessionShared extends LargeDeps {
  readonly routes: RouteTable;
  readonly quotas: UpstreamQuotas;
  readonly http: AttemptClient;
  readonly echo: AttemptClient;
  /** As `translate`, asks the counter pool. */
  readonly count: CountTokens;
  /** The one ErrorLog of the worker, because it bounds how often a line is written. */
  readonly errors: ErrorLog;
  readonly metrics: UpstreamMetrics;
  readonly wholeResponses: WorkerBudget;
  readonly leftCalls: LeftCalls;
  /** Sends spans to the exporting thread; undefined if spans are not exported. */
  readonly spanOutbox: SpanOutbox | undefined;
}

/** The client that calls this target: a provider's even if the target has the origin of the echo. */
export function clientOf({ echo, http, providers }: SessionShared, target: UpstreamTarget): AttemptClient {
  if (target.provider !== undefined) return providers;
  return target.origin === ECHO_ORIGIN ? echo : http;
}

/** Stands for the session of a call that failed before it had one. The channel drops it at once. */
const NO_SESSION: UpstreamSession = {
  onCredit: () => undefined,
  onCancel: () => undefined,
  onStop: () => undefined,
  crash: () => undefined,
};

/** Makes `start` one that does not throw: a bug, such as an unknown model, fails its call, not the worker. */
export function guarded(errors: ErrorLog, start: StartSession): StartSession {
  return (request, downstream) => {
    try {
      return start(request, downstream);
    } catch (error) {
      errors.writeCrash(error);
      if (!downstream.isEnded) downstream.fail(CRASHED);
      return NO_SESSION;
    }
  };
}
