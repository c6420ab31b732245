/**
 * Computes when a credential is renewed, and the pause (exponential backoff with jitter) after a failed
 * renewal. credential-keeper.ts calls it, on the main thread. Pure.
 *
 *     life           renewed when this has passed of its life
 *     > 25 min       80 %
 *     > 10 min       all but 5 min
 *     ≤ 10 min       half
 *     unknown        5 min
 *
 * Unless the life is unknown, the renewal is earlier by up to 5 % of the life at random; but never earlier
 * than 10 s after the credential came.
 *
 * The life is the time to the expiry that the source claims (`trustedLifeMsOf`). An expiry in the next 24
 * hours is believed; a later expiry counts as 24 hours. If the source claims none, or one in the past, the
 * life is unknown: the credential serves until another comes, because only the provider knows whether it is
 * good.
 *
 * After a failure the keeper waits for a pause (`pauseMsOf`) instead. The pause doubles with each failure in
 * a row, from 1 s to 30 s, less a random part of up to a half. The pause is never shorter than the
 * Retry-After of the token server, of which at most 5 minutes count.
 *
 * Must hold: the table and the pauses (test/unit/providers/credentials/credential-keeper.test.ts).
 */
const MINUTE_MS = 60_000;
/** Tokens of clouds live for an hour, or at most for a day. */
const LIFE_MS_MAX = 24 * 60 * MINUTE_MS;
/** A credential whose life is unknown is renewed after this time. */
const UNKNOWN_LIFE_MS = 5 * MINUTE_MS;
/** A credential is renewed this share of its life before it expires, but at least LEAD_MS_MIN before. */
const LEAD_SHARE = 0.2;
const LEAD_MS_MIN = 5 * MINUTE_MS;
/** Jitter, so that the processes of a host do not all renew at once. */
const JITTER_SHARE = 0.05;
/** The least time to a renewal, however short a life the source reports. */
const RENEWAL_MS_MIN = 10_000;
const PAUSE_MS_MIN = 1_000;
const PAUSE_MS_MAX = 30_000;
const RETRY_AFTER_MS_MAX = 5 * MINUTE_MS;

/**
 * Undefined if the life is unknown. `claimedMs`: the time until the expiry by the source, NaN without one.
 */
export function trustedLifeMsOf(claimedMs: number): number | undefined {
  return claimedMs > 0 ? Math.min(claimedMs, LIFE_MS_MAX) : undefined;
}

/** When a new credential is renewed. `lifeMs` is from `trustedLifeMsOf`; `random` is in [0, 1). */
export function renewalMsOf(lifeMs: number | undefined, random: number): number {
  if (lifeMs === undefined) return UNKNOWN_LIFE_MS;
  const leadMs = lifeMs > 2 * LEAD_MS_MIN ? Math.max(LEAD_SHARE * lifeMs, LEAD_MS_MIN) : lifeMs / 2;
  return Math.max(lifeMs - leadMs - JITTER_SHARE * lifeMs * random, RENEWAL_MS_MIN);
}

/** `failures`: those in a row before it. `retryAfterMs`: what the token server asks for, or 0. */
export function pauseMsOf(failures: number, retryAfterMs: number, random: number): number {
  // 20: any exponent from 5 on gives PAUSE_MS_MAX, and a bounded one stays a finite number.
  const fullMs = Math.min(PAUSE_MS_MIN * 2 ** Math.min(failures, 20), PAUSE_MS_MAX);
  return Math.max(fullMs * (0.5 + random / 2), Math.min(retryAfterMs, RETRY_AFTER_MS_MAX));
}
