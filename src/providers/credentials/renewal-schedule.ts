/**
 * When a credential is renewed, and when again after a failure. The keeper asks. Pure.
 *
 *     life        renewed after, minus up to 5 % of the life at random
 *     > 25 min    80 % of it
 *     > 10 min    all but 5 min
 *     ≤ 10 min    half of it; 10 s at least
 *
 * What a source says of the expiry is believed if it lies in the next 24 hours; if it lies beyond, 24 hours
 * are. A credential without an expiry, or with one in the past, is renewed every 5 minutes and serves until
 * another comes: only the provider knows whether it is good.
 */
const MINUTE_MS = 60_000;
/** Tokens of clouds live for an hour, a day at most. */
const LIFE_MS_MAX = 24 * 60 * MINUTE_MS;
const UNKNOWN_LIFE_MS = 5 * MINUTE_MS;
const LEAD_MS_MIN = 5 * MINUTE_MS;
const LEAD_SHARE = 0.2;
/** So that the processes of a host do not all ask at once. */
const JITTER_SHARE = 0.05;
/** However short a life the source tells of. */
const RENEWAL_MS_MIN = 10_000;
const PAUSE_MS_MIN = 1_000;
const PAUSE_MS_MAX = 30_000;
const RETRY_AFTER_MS_MAX = 5 * MINUTE_MS;

/** Returns how long a credential is good; undefined if that is not known. `claimedMs`: until its expiry. */
export function believedMsOf(claimedMs: number): number | undefined {
  return claimedMs > 0 ? Math.min(claimedMs, LIFE_MS_MAX) : undefined;
}

/** Returns in how many milliseconds a new credential is renewed. `random` is in [0, 1). */
export function renewalMsOf(lifeMs: number | undefined, random: number): number {
  if (lifeMs === undefined) return UNKNOWN_LIFE_MS;
  const leadMs = lifeMs > 2 * LEAD_MS_MIN ? Math.max(LEAD_SHARE * lifeMs, LEAD_MS_MIN) : lifeMs / 2;
  return Math.max(lifeMs - leadMs - JITTER_SHARE * lifeMs * random, RENEWAL_MS_MIN);
}

/** Returns the pause after so many failures in a row before this one. `random` is in [0, 1). */
export function pauseMsOf(failures: number, retryAfterMs: number, random: number): number {
  const fullMs = Math.min(PAUSE_MS_MIN * 2 ** Math.min(failures, 20), PAUSE_MS_MAX);
  return Math.max(fullMs * (0.5 + random / 2), Math.min(retryAfterMs, RETRY_AFTER_MS_MAX));
}
