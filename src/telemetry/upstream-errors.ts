/**
 * The last errors of each upstream, for operators: of attempts that failed, also of calls that another
 * upstream answered. gateway-metrics.ts adds each ended call, and the status shows them. Main thread of a
 * gateway process. What it keeps is bounded for each upstream. Test: unit/telemetry/upstream-errors.
 */
import { requestIdOf, type CallRecord, type CallSink } from './call-record.js';
import type { UpstreamError } from './status-document.js';

/** Of one upstream. */
export const ERRORS_KEPT = 5;
/**
 * Upstreams with errors that are kept: more than the settings name, so that renaming them fills no memory.
 */
const UPSTREAMS_MAX = 4_096;

const keyOf = (model: string, upstream: string): string => `${model} ${upstream}`;

export class UpstreamErrors implements CallSink {
  /** Newest first. */
  readonly #errors = new Map<string, readonly UpstreamError[]>();

  /** Takes what failed in a call; a call that went well at once costs nothing. */
  append(call: CallRecord): void {
    for (const { upstream, model, status, code, startMs, durationMs, error } of call.attempts) {
      if (code === null || upstream === null || model === null) continue;
      const key = keyOf(model, upstream);
      const at = Math.floor((call.endedMs - call.durationMs + startMs + durationMs) / 1_000);
      const request = requestIdOf(call.requestPrefix, call.request);
      const added = { at, kind: code, status, error, request_id: request };
      const former = this.#errors.get(key) ?? [];
      // The one that failed last is dropped last.
      this.#errors.delete(key);
      this.#errors.set(key, newestErrors([added], former));
      if (this.#errors.size > UPSTREAMS_MAX) this.#errors.delete(this.#errors.keys().next().value!);
    }
  }

  /** Returns the errors of a model's upstream, newest first, at most ERRORS_KEPT. */
  of(model: string, upstream: string): readonly UpstreamError[] {
    return this.#errors.get(keyOf(model, upstream)) ?? [];
  }
}

/** Returns the newest of two lists, newest first, at most ERRORS_KEPT. */
export function newestErrors(
  left: readonly UpstreamError[],
  right: readonly UpstreamError[],
): readonly UpstreamError[] {
  return [...left, ...right].sort((one, other) => other.at - one.at).slice(0, ERRORS_KEPT);
}
