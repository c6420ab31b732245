/**
 * How long a call can last by the settings. Hosts that share use it (sharing/open-hosts.ts), on the main
 * thread of a gateway process.
 *
 * Must hold: it follows the rules of upstream/retry-plan.ts and call-models.ts
 * (test/unit/config/longest-call.test.ts).
 */
import type { Settings } from './schema.js';

type Model = Settings['models'][number];

/**
 * The longest call in milliseconds, on all upstreams and fallbacks that it may be tried on, without the time
 * that its caller does not read.
 */
export function longestCallMs(models: readonly Model[]): number {
  const byId = new Map(models.map((model) => [model.id, longestOn(model)]));
  const lasts = models.map(({ id, fallbacks }) =>
    [id, ...fallbacks].reduce((sumMs, tried) => sumMs + (byId.get(tried) ?? 0), 0),
  );
  return Math.max(0, ...lasts);
}

/**
 * After the total_timeout_ms of an upstream that failed no other is tried, so a last try begins before that,
 * and lasts for its own. A wait for room comes before it.
 */
function longestOn({ upstreams }: Model): number {
  const [longest = 0, second = 0] = upstreams.map((one) => one.total_timeout_ms).sort((a, b) => b - a);
  return longest + second + Math.max(0, ...upstreams.map((one) => one.queue_ms));
}
