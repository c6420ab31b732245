/**
 * Identifiers and names of accounts and keys. Main thread.
 */
import { randomBytes } from 'node:crypto';
import { ProxyError } from '../core/errors.js';
import { isWellFormedKey } from './key-digest.js';

/** Crockford's base 32, lower case: no i, l, o, u, so that an id can be read out. */
const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz';
const ID_CHARS = 16;

export type IdPrefix = 'acct_' | 'key_';

const ID = /^(?:acct|key)_[0-9a-hjkmnp-tv-z]{16}$/;

/** Enough for a line of a table; also bounds the store's index keys. */
const NAME_CHARS_MAX = 100;
/** Control characters, and halves of characters, which no URL can carry. */
const UNPRINTABLE = /[\p{Cc}\p{Cs}]/u;

/** A new id of 80 random bits: among a million of them two are alike with a chance of 10^-12. */
export function createId(prefix: IdPrefix): string {
  let id: string = prefix;
  for (const byte of randomBytes(ID_CHARS)) id += ALPHABET[byte & 31]!;
  return id;
}

/**
 * Whether `text` has the form of an id. No name may have it, so that one path segment can hold either.
 */
export function isId(text: string): boolean {
  return ID.test(text);
}

/** Throws `invalid_parameters` that names `field` and the rule which `name` breaks. */
export function assertName(field: string, name: string): void {
  const chars = Array.from(name).length;
  if (chars < 1 || chars > NAME_CHARS_MAX) {
    throw invalid(`${field} must have 1 to ${NAME_CHARS_MAX} characters, got ${chars}`);
  }
  if (UNPRINTABLE.test(name)) throw invalid(`${field} must not have control characters`);
  if (isId(name)) throw invalid(`${field} must not have the form of an id, got ${name}`);
  // Names are kept and shown, and a key is neither.
  if (isWellFormedKey(name)) throw invalid(`${field} must not be an API key`);
  // A URL drops these two segments, so such an account could not be addressed.
  if (name === '.' || name === '..') throw invalid(`${field} must not be . or ..`);
}

/** Throws `invalid_parameters`, without repeating it, where an API key was given in place of its id or name. */
export function assertNoKey(idOrName: string): void {
  if (isWellFormedKey(idOrName)) {
    throw invalid('an id or a name is wanted and not an API key itself: see the list of keys');
  }
}

/** A refusal of what the caller gave. */
export function invalid(message: string): ProxyError {
  return new ProxyError('invalid_parameters', 'downstream', message);
}

export function notFound(message: string): ProxyError {
  return new ProxyError('not_found', 'downstream', message);
}
