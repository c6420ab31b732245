/**
 * Finds what is secret in an address: user and password, values of its query (where some providers take the
 * key) and segments of its path (where some proxies take the key). config/ shows settings without these
 * secrets; upstream/target.ts looks for them in upstreams' errors and contents of calls. Pure; any thread.
 *
 * Must hold: nothing secret of an address is shown, also if the address is malformed.
 */

/** The text that is shown in place of a secret. */
export const SECRET = '(secret)';

/** Matches the name of a parameter that holds a secret: `key`, `api_key`, `access_token`, `sig`, … */
const SECRET_NAME = /key|token|secret|pass|auth|sig|credential|code/i;
/** Shorter texts do not count as secrets, and to mask them would garble sentences. */
export const SECRET_CHARS_MIN = 8;

/** Shorter segments of a path are names. */
const SEGMENT_CHARS_MIN = 16;
/** A word with both letters and digits is a secret from this length on. `qwen2p5` is too short: a name. */
const MIXED_CHARS_MIN = 12;
/** A segment with so many changes between letters and digits is a secret, as a UUID. `gpt-4o` has one. */
const CHANGES_MIN = 6;

/**
 * Returns a text as it may be shown. An address loses user, password, query, fragment and what looks like a
 * secret in its path; also one whose scheme was forgotten. A text that begins as an address and is malformed
 * (a password with a slash makes it so) loses all before its last `@`. A fragment with an `@` counts as
 * malformed: most likely it is the end of a password with a `#`.
 */
export function withoutUrlSecrets(text: string): string {
  const [, scheme, afterScheme] = /^([a-z][a-z0-9+.-]*:\/\/)(.*)$/is.exec(text) ?? [];
  // Perhaps `user:password@host:6379` or `host/path?key=secret`.
  if (scheme === undefined || afterScheme === undefined)
    return text.replace(/^(?=[^\s@]*:)\S*@/, `${SECRET}@`).replace(/([?#])(?=[^\s=&?#]+=)\S*/, `$1${SECRET}`);
  const tailAt = afterScheme.search(/[?#]/);
  const beforeTail = tailAt < 0 ? afterScheme : afterScheme.slice(0, tailAt);
  const tail = tailAt < 0 ? '' : `${afterScheme[tailAt]}${SECRET}`;
  const isAmbiguous = afterScheme[tailAt] === '#' && afterScheme.includes('@', tailAt);
  if (isAmbiguous || !URL.canParse(text))
    return scheme + afterScheme.replace(/^.*@/s, `${SECRET}@`).replace(/([?#]).*/s, `$1${SECRET}`);
  const { username, password } = new URL(text);
  const hasUser = username !== '' || password !== '';
  const withoutUser = hasUser ? beforeTail.replace(/^[^/]*@/s, `${SECRET}@`) : beforeTail;
  const pathAt = withoutUser.indexOf('/');
  const host = pathAt < 0 ? withoutUser : withoutUser.slice(0, pathAt);
  return scheme + host + withoutPathSecrets(withoutUser.slice(host.length)) + tail;
}

/** Returns a path as it may be shown: each segment with a secret is replaced by SECRET. */
export function withoutPathSecrets(path: string): string {
  const segments = path.split('/');
  return segments.map((segment) => (secretWordsOf(segment).length > 0 ? SECRET : segment)).join('/');
}

/** The parts of a segment that look like a secret: some of its words, or the whole segment. */
function secretWordsOf(segment: string): string[] {
  if (segment.length < SEGMENT_CHARS_MIN) return [];
  const words = segment.split(/[^A-Za-z0-9]/);
  const changes = words.map(changesIn);
  const mixed = words.filter((word, index) => word.length >= MIXED_CHARS_MIN && changes[index]! > 0);
  if (mixed.length > 0) return mixed;
  return changes.reduce((total, count) => total + count, 0) >= CHANGES_MIN ? [segment] : [];
}

/** How often a digit follows a letter, or a letter a digit. */
function changesIn(word: string): number {
  return word.match(/(?<=\d)\D|(?<=\D)\d/g)?.length ?? 0;
}

/**
 * Returns an address as it may be shown if its path is a secret too, as a webhook's path at Slack is. Throws
 * if the text is no address: the settings were checked before.
 */
export function withoutUrlPath(text: string): string {
  const { origin } = new URL(text);
  return text === origin || text === `${origin}/` ? text : `${origin}/${SECRET}`;
}

/** The secrets in a path with its query, as they are written; the secrets of the query also decoded. */
export function secretsInPath(path: string): string[] {
  return [...path.replace(/\?.*/s, '').split('/').flatMap(secretWordsOf), ...secretsInQuery(path)];
}

/** The secrets in the query of a path or an address, as they are written and decoded. */
export function secretsInQuery(address: string): string[] {
  const [, query = ''] = /\?([^#]*)/s.exec(address) ?? [];
  return query.split('&').flatMap((pair) => {
    const rawValue = pair.slice(pair.indexOf('=') + 1);
    const [[name, value] = ['', '']] = new URLSearchParams(pair);
    if (!SECRET_NAME.test(name)) return [];
    return [...new Set([rawValue, value])].filter((text) => text.length >= SECRET_CHARS_MIN);
  });
}

interface AddressPart {
  readonly text: string;
  readonly isSecret: boolean;
}

/** Divides an address at the values of its query, not empty, whose parameters have the name of a secret. */
export function partedAtQuerySecrets(address: string): AddressPart[] {
  const [start = address] = /^[^?]*\??/s.exec(address) ?? [];
  const [query = ''] = /^[^#]*/s.exec(address.slice(start.length)) ?? [];
  const parts: AddressPart[] = [];
  let between = start;
  for (const [index, pair] of query.split('&').entries()) {
    const valueAt = pair.indexOf('=') + 1;
    const [[name] = ['']] = new URLSearchParams(pair);
    between += `${index === 0 ? '' : '&'}${pair.slice(0, valueAt)}`;
    const value = pair.slice(valueAt);
    if (valueAt > 0 && value !== '' && SECRET_NAME.test(name)) {
      parts.push({ text: between, isSecret: false }, { text: value, isSecret: true });
      between = '';
    } else between += value;
  }
  return [...parts, { text: between + address.slice(start.length + query.length), isSecret: false }];
}
