/**
 * Phase 1: who asks, from the `Authorization` header alone. Listener thread; some 2 µs, most of it for the digest.
 */
import type { ErrorRecord } from '../core/errors.js';
import { AUTHORIZATION_CHARS_MAX } from '../core/limits.js';
import { NO_PLAN_INDEX } from '../registry/catalog.js';
import { digestOf, isWellFormedKey, KEY_CHARS } from '../registry/key-digest.js';
import type { CallContext, ListenerContext } from './context.js';

const MISSING_KEY: ErrorRecord = {
  code: 'missing_api_key',
  message: 'No API key was given. Send it as the header "Authorization: Bearer sk-…".',
};
const MALFORMED_KEY: ErrorRecord = {
  code: 'invalid_api_key',
  message:
    'The API key has a wrong format. A key is "sk-" and 43 letters, digits, "-" or "_", sent as "Authorization: Bearer sk-…" without extra spaces.',
};
const UNKNOWN_KEY: ErrorRecord = {
  code: 'invalid_api_key',
  message: 'The API key is not known. Check that the whole key was copied and has not been deleted.',
};
const DISABLED_KEY: ErrorRecord = {
  code: 'key_disabled',
  message: 'The API key has been disabled. Ask the administrator to enable it, or use another key.',
};
const EXPIRED_KEY: ErrorRecord = {
  code: 'key_disabled',
  message: 'The API key has expired. Ask the administrator for a new one.',
};
const DISABLED_ACCOUNT: ErrorRecord = {
  code: 'key_disabled',
  detail: 'account_disabled',
  message: 'The account of the API key has been disabled. Ask the administrator to enable it.',
};
const PLANLESS_ACCOUNT: ErrorRecord = {
  code: 'key_disabled',
  detail: 'account_disabled',
  message:
    'The plan of this account is not in the settings of the gateway. Ask the administrator to put it back, or to move the account to another plan.',
};

const MS_PER_SECOND = 1_000;

/** The scheme's name has no case (RFC 9110 §11.1). */
const BEARER = /^bearer(?: |$)/i;
const BEARER_CHARS = 'Bearer '.length;

/** Sets `context.caller`; a refusal where the key is missing, malformed, unknown, disabled or expired. */
export function authenticate(
  context: CallContext,
  authorization: string,
  parts: ListenerContext,
): ErrorRecord | undefined {
  const text = authorization.slice(BEARER_CHARS);
  const isKey = text.length === KEY_CHARS && BEARER.test(authorization);
  const key = isKey ? parts.keys.find(digestOf(text)) : undefined;
  if (key === undefined) return unfound(authorization, text);
  if (parts.keys.stateOf(key) !== 'active') return DISABLED_KEY;
  const nowSeconds = Math.floor(parts.clock.wallMs() / MS_PER_SECOND);
  if (parts.keys.isExpired(key, nowSeconds)) return EXPIRED_KEY;
  const account = parts.keys.accountOf(key);
  if (!parts.ledger.isActive(account)) {
    return parts.ledger.planIndexOf(account) === NO_PLAN_INDEX ? PLANLESS_ACCOUNT : DISABLED_ACCOUNT;
  }
  if (parts.keys.noteUse(key, nowSeconds)) parts.ledger.keys.mark(key);
  const keyLimit = parts.keys.isLimited(key) ? parts.ledger.keys.limitOf(key) : undefined;
  const planIndex = parts.ledger.planIndexOf(account);
  context.caller = { key, account, planIndex, plan: parts.catalog.plans[planIndex]!, keyLimit };
  return undefined;
}

/** No key of this text is known. What a key looks like is asked here alone: one that is known looks like it. */
function unfound(authorization: string, text: string): ErrorRecord {
  if (authorization === '') return MISSING_KEY;
  if (authorization.length > AUTHORIZATION_CHARS_MAX || !BEARER.test(authorization)) return MALFORMED_KEY;
  if (text.trim() === '') return MISSING_KEY;
  return isWellFormedKey(text) ? UNKNOWN_KEY : MALFORMED_KEY;
}
