/**
 * Identifiers and names of accounts, groups, keys and operators: how ids are made, the rules of names, and
 * the rejections of what breaks them. The registry and the admin interface use them on the main thread.
 *
 * Must hold: no name has the form of an id, so that one path segment can hold either. A key or a token given
 * as a name is rejected and never repeated in a message. The rules for the documents (`…_RULE`) agree with
 * the functions: test/unit/admin/openapi.test.ts compares them.
 */
import { ProxyError } from '../core/errors.js';
import { UNPRINTABLE } from '../core/wrong-input.js';
import { isWellFormedKey, takeRandomBytes, WELL_FORMED } from './key-digest.js';

/** Crockford's base 32 in lower case: without i, l, o, u, so that an id can be read out. */
const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz';
const ID_CHARS = 16;

const ID_PREFIXES = ['acct_', 'grp_', 'key_', 'op_'] as const;
export type IdPrefix = (typeof ID_PREFIXES)[number];

const ID = new RegExp(`^(?:${ID_PREFIXES.join('|')})[${ALPHABET}]{${ID_CHARS}}$`);

/** Enough for a line of a table. It also bounds the store's index keys. */
export const NAME_CHARS_MAX = 100;
const PRINTABLE_TEXT = `(?:(?!${UNPRINTABLE.source})[^])*$`;
/** Tokens of operators: 256 bits are 43 characters of base64url. */
export const OPERATOR_TOKEN = /^tgop_[A-Za-z0-9_-]{43}$/;

/** `slice(1)` drops the `^` with which each of these patterns begins. */
const NOT_A_KEY = `(?!${WELL_FORMED.source.slice(1)}|${OPERATOR_TOKEN.source.slice(1)})`;

/** The rules of texts as JSON Schema, for the documents. The functions here say which rule was broken. */
export const NAME_RULE = {
  minLength: 1,
  maxLength: NAME_CHARS_MAX,
  pattern: `^(?!\\.{1,2}$)(?!${ID.source.slice(1)})${NOT_A_KEY}${PRINTABLE_TEXT}`,
};
/** What `assertReference` accepts. In UTF-16 units, which the document counts as characters. */
export const REFERENCE_RULE = { maxLength: 2 * NAME_CHARS_MAX, pattern: `^${NOT_A_KEY}` };
/** One line of text, or none: the notes of credits. */
export const LINE_PATTERN = `^${PRINTABLE_TEXT}`;

/** Returns a new id of 80 random bits: among a million of them two are equal with a probability of 10^-12. */
export function createId(prefix: IdPrefix): string {
  let id: string = prefix;
  for (const byte of takeRandomBytes(ID_CHARS)) id += ALPHABET[byte & 31]!;
  return id;
}

/** Whether `text` has the form of an id. No name may have it, so one path segment can hold either. */
export function isId(text: string): boolean {
  return ID.test(text);
}

/** The same of one kind of record, for a text that is not looked up if it is an id of that kind. */
export function isIdOf(prefix: IdPrefix, text: string): boolean {
  return isId(text) && text.startsWith(prefix);
}

function isSecret(text: string): boolean {
  return isWellFormedKey(text) || OPERATOR_TOKEN.test(text);
}

/** Throws `invalid_parameters` that names `field` and the rule that `name` breaks. */
export function assertName(field: string, name: string): void {
  const chars = Array.from(name).length;
  if (chars < 1 || chars > NAME_CHARS_MAX) {
    throw invalid(`${field} must have 1 to ${NAME_CHARS_MAX} characters, got ${chars}`);
  }
  if (UNPRINTABLE.test(name)) throw invalid(`${field} must not have control characters`);
  if (isId(name)) throw invalid(`${field} must not have the form of an id, got ${name}`);
  // Names are kept and shown, which a secret must not be.
  if (isSecret(name)) throw invalid(`${field} must not be an API key or a token`);
  // A URL drops these two segments, so such an account could not be addressed.
  if (name === '.' || name === '..') throw invalid(`${field} must not be . or ..`);
}

/**
 * Of a credit (credits.ts), not of a call. 100 characters are more than a UUID or a document's number has,
 * and bound the store's index keys.
 */
const IDEMPOTENCY_KEY = /^[\x21-\x7e]{1,100}$/;
export const IDEMPOTENCY_KEY_RULE = {
  minLength: 1,
  maxLength: 100,
  pattern: `^${NOT_A_KEY}${IDEMPOTENCY_KEY.source.slice(1)}`,
};

/** Throws `invalid_parameters` if `key` breaks the rule. */
export function assertIdempotencyKey(key: string): void {
  if (!IDEMPOTENCY_KEY.test(key)) {
    throw invalid('idempotency_key must have 1 to 100 printable ASCII characters without spaces');
  }
  if (isSecret(key)) throw invalid('idempotency_key must not be an API key or a token');
}

/**
 * Throws `invalid_parameters` if the text can be neither an id nor a name. An API key or a token given by
 * mistake is not repeated in the message. `noun` is what is named, or the field that names a group: `parent`,
 * or the `root` of the tree to be listed.
 */
export function assertReference(
  noun: 'account' | 'group' | 'parent' | 'root' | 'key' | 'operator',
  idOrName: string,
): void {
  // The store's index takes no longer ones. A character is one or two of these units.
  if (idOrName.length > 2 * NAME_CHARS_MAX) {
    throw invalid(`${noun} must be an id or a name of at most ${NAME_CHARS_MAX} characters`);
  }
  if (isSecret(idOrName)) {
    throw invalid('an id or a name is wanted and not an API key itself, nor a token: see the lists');
  }
}

/** Status 400: what the caller gave breaks a rule. */
export function invalid(message: string): ProxyError {
  return new ProxyError('invalid_parameters', 'downstream', message);
}

/** Status 409: a well-formed request that does not fit the present state. */
export function conflict(message: string): ProxyError {
  return new ProxyError('conflict', 'downstream', message);
}

export function notFound(message: string): ProxyError {
  return new ProxyError('not_found', 'downstream', message);
}
