/**
 * When a credential is renewed, and the pause (exponential backoff with jitter) after a failed renewal.
 * credential-keeper.ts asks it. Pure.
 *
 *     life        renewed after, minus up to 5 % of the life at random
 *     > 25 min    80 % of it
 *     > 10 min    all but 5 min
 *     ≤ 10 min    half of it; 10 s at least
 *
 * An expiry in the next 24 hours is believed; a later one counts as 24 hours. A credential without an expiry,
 * or with one in the past, is renewed every 5 minutes and serves until another comes: only the provider knows
 * whether it is good.
 *
 * Must hold: the table (test/unit/providers/credentials/credential-keeper.test.ts).
 */
const MINUTE_MS = 60_000;
/** Tokens of clouds live for an hour, or at most for a day. */
const LIFE_MS_MAX = 24 * 60 * MINUTE_MS;
/** The period of renewals if the life is unknown. */
const UNKNOWN_LIFE_MS = 5 * MINUTE_MS;
const LEAD_MS_MIN = 5 * MINUTE_MS;
const LEAD_SHARE = 0.2;
/** Jitter, so that the processes of a host do not all renew at once. */
const JITTER_SHARE = 0.05;
/** The least time to a renewal, however short a life the source reports. */
const RENEWAL_MS_MIN = 10_000;
const PAUSE_MS_MIN = 1_000;
const PAUSE_MS_MAX = 30_000;
const RETRY_AFTER_MS_MAX = 5 * MINUTE_MS;

/**
 * Returns for how long a credential is good; undefined if unknown. `claimedMs`: time until the claimed
 * expiry.
 */
export function believedMsOf(claimedMs: number): number | undefined {
  return claimedMs > 0 ? Math.min(claimedMs, LIFE_MS_MAX) : undefined;
}

/** Returns after how many milliseconds a new credential is renewed. `random` is in [0, 1). */
export function renewalMsOf(lifeMs: number | undefined, random: number): number {
  if (lifeMs === undefined) return UNKNOWN_LIFE_MS;
  const leadMs = lifeMs > 2 * LEAD_MS_MIN ? Math.max(LEAD_SHARE * lifeMs, LEAD_MS_MIN) : lifeMs / 2;
  return Math.max(lifeMs - leadMs - JITTER_SHARE * lifeMs * random, RENEWAL_MS_MIN);
}

/** Returns the pause after a failure. `failures`: those in a row before it. `random` is in [0, 1). */
export function pauseMsOf(failures: number, retryAfterMs: number, random: number): number {
  const fullMs = Math.min(PAUSE_MS_MIN * 2 ** Math.min(failures, 20), PAUSE_MS_MAX);
  return Math.max(fullMs * (0.5 + random / 2), Math.min(retryAfterMs, RETRY_AFTER_MS_MAX));
}
