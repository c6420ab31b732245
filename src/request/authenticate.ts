/**
 * The authenticate phase: finds the caller by the `Authorization` header. If there is only an `x-api-key`,
 * request-head.ts has made an `Authorization` of it. intake.ts calls `authenticate` for calls,
 * model-routes.ts for the lists of models. Listener thread; some 2 µs, most of them for the digest.
 *
 * Must hold: the status of key and account is read from shared memory at each request, so that a disabled key
 * is rejected from the next request on, in all threads (test/unit/request/authenticate.test.ts).
 */
import type { ErrorRecord } from '../core/errors.js';
import { AUTHORIZATION_CHARS_MAX } from '../core/limits.js';
import { NO_PLAN_INDEX } from '../registry/catalog.js';
import { digestOf, isWellFormedKey, KEY_CHARS } from '../registry/key-digest.js';
import type { CallContext, ListenerContext } from './context.js';
import {
  ACCOUNT_WITHOUT_PLAN,
  DISABLED_ACCOUNT,
  DISABLED_KEY,
  EXPIRED_KEY,
  MALFORMED_KEY,
  MISSING_KEY,
  UNKNOWN_KEY,
} from './rejections.js';

const MS_PER_SECOND = 1_000;

/** The scheme's name is case-insensitive (RFC 9110 §11.1). */
const BEARER = /^bearer(?: |$)/i;
const BEARER_CHARS = 'Bearer '.length;

/** Sets `context.caller` and records the use. Else returns why not; of a known key sets `rejectedCaller`. */
export function authenticate(
  context: CallContext,
  authorization: string,
  { keys, ledger, clock, catalog }: ListenerContext,
): ErrorRecord | undefined {
  const keyText = authorization.slice(BEARER_CHARS);
  const mayBeKey = keyText.length === KEY_CHARS && BEARER.test(authorization);
  const key = mayBeKey ? keys.find(digestOf(keyText)) : undefined;
  if (key === undefined) return rejectionOf(authorization, keyText);
  const account = keys.accountOf(key);
  const nowSeconds = Math.floor(clock.wallMs() / MS_PER_SECOND);
  const planIndex = ledger.planIndexOf(account);
  let rejection: ErrorRecord | undefined;
  if (keys.stateOf(key) !== 'active') rejection = DISABLED_KEY;
  else if (keys.isExpired(key, nowSeconds)) rejection = EXPIRED_KEY;
  // Both of the next checks are needed. The plan is read before the account's state: in between a reload may
  // give the account a plan and enable the account.
  else if (planIndex === NO_PLAN_INDEX) rejection = ACCOUNT_WITHOUT_PLAN;
  else if (!ledger.isActive(account)) rejection = DISABLED_ACCOUNT;
  if (rejection !== undefined) {
    context.rejectedCaller = { key, account };
    return rejection;
  }
  // `recordUse` returns whether it is the key's first use in this second: the next flush writes its time.
  if (keys.recordUse(key, nowSeconds)) ledger.keys.dirty.mark(key);
  context.caller = {
    key,
    account,
    planIndex,
    // A catalogue never loses a plan, and no account is on a plan that a listener lacks (gateway/reload.ts).
    plan: catalog.plans[planIndex]!,
    isLimited: keys.isLimited(key),
  };
  return undefined;
}

/** Returns the rejection for a header without a known key. `keyText` is what follows the scheme. */
function rejectionOf(authorization: string, keyText: string): ErrorRecord {
  if (authorization === '') return MISSING_KEY;
  // The length is checked only here, because a header with a known key has a fixed length.
  if (authorization.length > AUTHORIZATION_CHARS_MAX || !BEARER.test(authorization)) return MALFORMED_KEY;
  if (keyText.trim() === '') return MISSING_KEY;
  return isWellFormedKey(keyText) ? UNKNOWN_KEY : MALFORMED_KEY;
}
