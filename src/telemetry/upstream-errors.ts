/**
 * The last errors of each upstream, for operators: of failed attempts, also if another upstream then served
 * the call. gateway/gateway-logs.ts adds each ended call but the plain ones, which have no failed attempt;
 * gateway/process-status.ts reads the errors for the status. Main thread of a gateway process.
 *
 * Must hold: what is kept is bounded, for each upstream and in all
 * (test/unit/telemetry/upstream-errors.test.ts).
 */
import { requestIdOf, type CallRecord, type CallSink } from './call-record.js';
import { UPSTREAM_SLOTS_MAX } from './metrics-layout.js';
import type { UpstreamError } from './status-document.js';
import { upstreamKeyOf } from './upstream-names.js';

/** How many errors are kept of each upstream. */
export const ERRORS_KEPT = 5;

export class UpstreamErrors implements CallSink {
  /**
   * By model and upstream, newest first. Upstreams that the settings no longer name stay, so `append` bounds
   * the map to as many upstreams as the metrics have slots (UPSTREAM_SLOTS_MAX).
   */
  readonly #errors = new Map<string, readonly UpstreamError[]>();

  /**
   * Adds the failed attempts of a call. Leaves out an attempt that the client has ended (`cancelled`),
   * because it is no fault of the upstream. call-ring-writer.ts has bounded the texts of errors already.
   */
  append(call: CallRecord): void {
    for (const { upstream, model, status, code, startMs, durationMs, error } of call.attempts) {
      if (code === null || code === 'cancelled' || upstream === null || model === null) continue;
      const mapKey = upstreamKeyOf({ model, name: upstream });
      // Unix time. `startMs` counts from the arrival of the call.
      const endedSeconds = Math.floor((call.endedMs - call.durationMs + startMs + durationMs) / 1_000);
      const requestId = requestIdOf(call.requestPrefix, call.request);
      const added = { at: endedSeconds, kind: code, status, error, request_id: requestId };
      const earlier = this.#errors.get(mapKey) ?? [];
      // Deleted first, so that the upstream that failed last is the last to be dropped.
      this.#errors.delete(mapKey);
      this.#errors.set(mapKey, newestErrors([added], earlier));
      if (this.#errors.size > UPSTREAM_SLOTS_MAX) this.#errors.delete(this.#errors.keys().next().value!);
    }
  }

  /** Returns the errors of a model's upstream, newest first, at most ERRORS_KEPT. */
  errorsOf(model: string, upstream: string): readonly UpstreamError[] {
    return this.#errors.get(upstreamKeyOf({ model, name: upstream })) ?? [];
  }
}

/**
 * Returns the newest errors of two lists, newest first, at most ERRORS_KEPT. Of errors of the same second,
 * those of `first` come first. gateway/group-status.ts merges the lists of two processes with it.
 */
export function newestErrors(
  first: readonly UpstreamError[],
  second: readonly UpstreamError[],
): readonly UpstreamError[] {
  return [...first, ...second].sort((error, other) => other.at - error.at).slice(0, ERRORS_KEPT);
}
