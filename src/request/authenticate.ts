/**
 * The authenticate phase: finds the caller by the `Authorization` header. Called by Intake and by
 * ModelRoutes. Listener thread; some 2 µs, most of it for the digest.
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

/** Sets `context.caller`, or returns why the key cannot be used. */
export function authenticate(
  context: CallContext,
  authorization: string,
  { keys, ledger, clock, catalog }: ListenerContext,
): ErrorRecord | undefined {
  const text = authorization.slice(BEARER_CHARS);
  const isKey = text.length === KEY_CHARS && BEARER.test(authorization);
  const key = isKey ? keys.find(digestOf(text)) : undefined;
  if (key === undefined) return notFound(authorization, text);
  if (keys.stateOf(key) !== 'active') return DISABLED_KEY;
  const nowSeconds = Math.floor(clock.wallMs() / MS_PER_SECOND);
  if (keys.isExpired(key, nowSeconds)) return EXPIRED_KEY;
  const account = keys.accountOf(key);
  const planIndex = ledger.planIndexOf(account);
  // Checked by itself: both words are read one after the other, and a reload may enable the account between.
  if (planIndex === NO_PLAN_INDEX) return ACCOUNT_WITHOUT_PLAN;
  if (!ledger.isActive(account)) return DISABLED_ACCOUNT;
  // True once a second at most for each key: the next flush writes its last use.
  if (keys.recordUse(key, nowSeconds)) ledger.keys.dirty.mark(key);
  context.caller = {
    key,
    account,
    planIndex,
    plan: catalog.plans[planIndex]!,
    isLimited: keys.isLimited(key),
  };
  return undefined;
}

/** The rejection for a header that has no known key. */
function notFound(authorization: string, text: string): ErrorRecord {
  if (authorization === '') return MISSING_KEY;
  if (authorization.length > AUTHORIZATION_CHARS_MAX || !BEARER.test(authorization)) return MALFORMED_KEY;
  if (text.trim() === '') return MISSING_KEY;
  return isWellFormedKey(text) ? UNKNOWN_KEY : MALFORMED_KEY;
}
