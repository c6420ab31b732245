/**
 * Ids and names of accounts, groups, keys and operators: makes ids, checks names, and makes the errors that
 * reject wrong names. Most files of src/registry, the routes of src/admin and three files of src/sharing use
 * the functions. Main thread.
 *
 * Must hold: no name of an account, group or key has the form of an id, so that one path segment can hold
 * either. Names that differ only in how characters are composed are one name
 * (test/unit/registry/name-spellings.test.ts). A key or a token given as a name is rejected, and no message
 * repeats the secret. The rules for the documents (`…_RULE`) agree with the functions
 * (test/unit/admin/openapi.test.ts compares them).
 */
import { invariant, ProxyError } from '../core/errors.js';
import { UNPRINTABLE } from '../core/wrong-input.js';
import { isWellFormedKey, takeRandomBytes, WELL_FORMED } from './key-digest.js';

/** Crockford's base 32 in lower case: it lacks i, l, o and u, so that people can read an id out. */
const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz';
const ID_CHARS = 16;

const ID_PREFIXES = ['acct_', 'grp_', 'key_', 'op_'] as const;
export type IdPrefix = (typeof ID_PREFIXES)[number];

/** Matches what `createId` makes with one of the prefixes, and nothing else. */
export function idPattern(prefixes: readonly IdPrefix[]): RegExp {
  return new RegExp(`^(?:${prefixes.join('|')})[${ALPHABET}]{${ID_CHARS}}$`);
}

const ID = idPattern(ID_PREFIXES);

/** Enough for a line of a table. It also bounds the store's index keys. */
export const NAME_CHARS_MAX = 100;
const PRINTABLE_TEXT = `(?:(?!${UNPRINTABLE.source})[^])*$`;
/** Tokens of operators: 256 bits are 43 characters of base64url. */
export const OPERATOR_TOKEN = /^tgop_[A-Za-z0-9_-]{43}$/;

/** Returns the source of a pattern that begins with `^`, without the `^`, as a part of another pattern. */
export function withoutStart({ source }: RegExp): string {
  invariant(source.startsWith('^'), 'the pattern begins with ^');
  return source.slice(1);
}

/** At the start of a pattern it forbids keys and tokens. */
const NOT_A_KEY = `(?!${withoutStart(WELL_FORMED)}|${withoutStart(OPERATOR_TOKEN)})`;

/** The rules of texts as JSON Schema, for the documents. The functions here say which rule was broken. */
export const NAME_RULE = {
  minLength: 1,
  maxLength: NAME_CHARS_MAX,
  pattern: `^(?!\\s|[^]*\\s$)(?!\\.{1,2}$)(?!${withoutStart(ID)})${NOT_A_KEY}${PRINTABLE_TEXT}`,
};
/** What `assertReference` accepts. A character has one or two UTF-16 units, which that function counts. */
export const REFERENCE_RULE = { maxLength: 2 * NAME_CHARS_MAX, pattern: `^${NOT_A_KEY}` };
/** One line of text, which may be empty: the note of a credit (credits.ts). */
export const LINE_PATTERN = `^${PRINTABLE_TEXT}`;

/** Returns a new id of 80 random bits. That two of a million ids are equal has a probability of 10^-12. */
export function createId(prefix: IdPrefix): string {
  let id: string = prefix;
  // Five bits of each byte choose one of the 32 characters.
  for (const byte of takeRandomBytes(ID_CHARS)) id += ALPHABET[byte & 31]!;
  return id;
}

/** Whether `text` has the form of an id of any kind. Whether a record has that id is not looked up. */
export function isId(text: string): boolean {
  return ID.test(text);
}

/** Whether `text` has the form of an id with that prefix. */
export function isIdOf(prefix: IdPrefix, text: string): boolean {
  return isId(text) && text.startsWith(prefix);
}

/** Whether `text` has the form of an API key or of an operator's token. */
function isSecret(text: string): boolean {
  return isWellFormedKey(text) || OPERATOR_TOKEN.test(text);
}

/** How a record may have the name: new ones have it composed (NFC), older ones as it was given. */
export function spellingsOf(name: string): Iterable<string> {
  return new Set([name, name.normalize('NFC'), name.normalize('NFD')]);
}

/** Returns what `find` finds by the first spelling of `name` that a record has; undefined if none has. */
export function findSpelled<Found>(
  name: string,
  find: (spelling: string) => Found | undefined,
): Found | undefined {
  for (const spelling of spellingsOf(name)) {
    const found = find(spelling);
    if (found !== undefined) return found;
  }
  return undefined;
}

/**
 * Returns the name as a new record has it: composed (NFC), as RFC 8265 stores names, because `é` of one
 * keyboard or file system is `e` and an accent of another, and looks the same. Throws `invalid_parameters`
 * that names `field` and the rule that the name breaks.
 */
export function newName(field: string, given: string): string {
  const name = given.normalize('NFC');
  const chars = Array.from(name).length;
  if (chars < 1 || chars > NAME_CHARS_MAX) {
    throw invalid(`${field} must have 1 to ${NAME_CHARS_MAX} characters, got ${chars}`);
  }
  if (UNPRINTABLE.test(name)) throw invalid(`${field} must not have control characters`);
  // Nobody sees such a space in a table, so the name looks like another, and is mistyped later.
  if (name !== name.trim()) throw invalid(`${field} must not begin or end with a space`);
  if (isId(name)) throw invalid(`${field} must not have the form of an id, got ${name}`);
  // A name is stored and shown, which must not happen to a secret.
  if (isSecret(name)) throw invalid(`${field} must not be an API key or a token`);
  // Clients drop the segments `.` and `..` from a URL, so no URL could address such an account.
  if (name === '.' || name === '..') throw invalid(`${field} must not be . or ..`);
  return name;
}

/**
 * The idempotency key of a credit (credits.ts); calls have another rule. 100 characters are more than a UUID
 * or a document's number has. They also bound the store's index keys.
 */
const IDEMPOTENCY_KEY = /^[\x21-\x7e]{1,100}$/;
export const IDEMPOTENCY_KEY_RULE = {
  minLength: 1,
  maxLength: 100,
  pattern: `^${NOT_A_KEY}${withoutStart(IDEMPOTENCY_KEY)}`,
};

/** Throws `invalid_parameters` if `key` does not match IDEMPOTENCY_KEY, or is an API key or a token. */
export function assertIdempotencyKey(key: string): void {
  if (!IDEMPOTENCY_KEY.test(key)) {
    throw invalid('idempotency_key must have 1 to 100 printable ASCII characters without spaces');
  }
  if (isSecret(key)) throw invalid('idempotency_key must not be an API key or a token');
}

/**
 * Throws `invalid_parameters`, without the text, if it is too long for an id or a name, or is an API key or a
 * token. `noun` is what is named, or the field that names a group.
 */
export function assertReference(
  noun: 'account' | 'group' | 'parent' | 'root' | 'key' | 'operator',
  idOrName: string,
): void {
  // The store's index takes no longer text. `length` counts UTF-16 units, one or two for a character.
  if (idOrName.length > 2 * NAME_CHARS_MAX) {
    throw invalid(`${noun} must be an id or a name of at most ${NAME_CHARS_MAX} characters`);
  }
  if (isSecret(idOrName)) {
    throw invalid('an id or a name is wanted and not an API key itself, nor a token: see the lists');
  }
}

/** Status 400: a value of the request breaks a rule. */
export function invalid(message: string): ProxyError {
  return new ProxyError('invalid_parameters', 'downstream', message);
}

/** Status 409: a well-formed request does not fit the present state. */
export function conflict(message: string): ProxyError {
  return new ProxyError('conflict', 'downstream', message);
}

/** Status 404. */
export function notFound(message: string): ProxyError {
  return new ProxyError('not_found', 'downstream', message);
}
