/**
 * Computes how long a call can last by the settings. If hosts share limits, sharing/open-hosts.ts calls it to
 * know when a silent host can have no call in flight any more. Main thread of a gateway process.
 *
 * Must hold: the result is never too short. A change of the rules by which upstreams and fallbacks are tried
 * (upstream/retry-plan.ts, upstream/call-models.ts) needs a change here
 * (test/unit/config/longest-call.test.ts).
 */
import type { Settings } from './schema.js';

type Model = Settings['models'][number];

/**
 * How long after the first attempt the same upstream may get the call once more: up to REPEAT_WITHIN_MS and
 * the longest pause of upstream/retry-plan.ts. The test makes such repeats.
 */
const REPEAT_MS_MAX = 1_200;

/**
 * Returns how many milliseconds the longest call lasts at most, on all upstreams and fallbacks that it may be
 * tried on, without the time in which its caller does not read. 0 without models.
 */
export function longestCallMs(models: readonly Model[]): number {
  const msByModel = new Map(models.map((model) => [model.id, longestOnModelMs(model)]));
  const callsMs = models.map(({ id, fallbacks }) =>
    [id, ...fallbacks].reduce((sumMs, modelId) => sumMs + (msByModel.get(modelId) ?? 0), 0),
  );
  return Math.max(0, ...callsMs);
}

/**
 * Returns how long a call may last on the upstreams of one model. After a failure no further attempt begins
 * if the call has been with the model for the total_timeout_ms of the upstream that failed. So the last
 * attempt begins within the longest of these timeouts, and lasts for the timeout of its own upstream. If that
 * is the only upstream, or the last attempt repeats one, it begins within REPEAT_MS_MAX of the first attempt.
 * A wait for the upstreams' limits (queue_ms) is added.
 */
function longestOnModelMs({ upstreams }: Model): number {
  const timeoutsMs = upstreams.map((upstream) => upstream.total_timeout_ms);
  const [longestMs = 0, secondMs = 0] = timeoutsMs.sort((timeoutMs, otherMs) => otherMs - timeoutMs);
  const queueMs = Math.max(0, ...upstreams.map((upstream) => upstream.queue_ms));
  return longestMs + secondMs + REPEAT_MS_MAX + queueMs;
}
