/**
 * What an address may keep secret: user and password, values of its query, where some providers take the key,
 * and segments of its path, where some proxies do. Settings are shown without it, and it is looked for in
 * upstreams' errors and in the contents of calls. Pure; any thread.
 *
 * Must hold: nothing secret of an address is shown, also if the address is malformed
 * (test/unit/core/secret-url.test.ts).
 */

/** Stands in place of a secret. */
export const SECRET = '(secret)';

/** Whether a parameter of that name holds a secret: `key`, `api_key`, `access_token`, `sig`, … */
const NAME_SECRET = /key|token|secret|pass|auth|sig|credential|code/i;
/** Shorter texts are not secrets, and masking them would garble sentences. */
export const SECRET_CHARS_MIN = 8;

/** Shorter segments of a path are names. */
const SEGMENT_CHARS_MIN = 16;
/** A word of letters and digits is a secret from this length on; `qwen2p5` and `20241022` are names. */
const MIXED_CHARS_MIN = 12;
/** So is a segment with so many changes between letters and digits, such as a UUID. `gpt-4o` has one. */
const CHANGES_MIN = 6;

/**
 * Returns a text as it may be shown: if it is an address, without user, password, query and what looks like a
 * secret in its path. What only looks like an address (a password with a slash makes it none) loses all
 * before its last `@`.
 */
export function withoutUrlSecrets(text: string): string {
  const [, scheme, rest] = /^([a-z][a-z0-9+.-]*:\/\/)(.*)$/is.exec(text) ?? [];
  // Such as `user:password@host:6379`, where the scheme was forgotten.
  if (scheme === undefined || rest === undefined) return text.replace(/^(?=[^\s@]*:)\S*@/, `${SECRET}@`);
  const queryAt = rest.indexOf('?');
  const place = queryAt < 0 ? rest : rest.slice(0, queryAt);
  const query = queryAt < 0 ? '' : `?${SECRET}`;
  if (!URL.canParse(text)) return scheme + rest.replace(/^.*@/s, `${SECRET}@`).replace(/\?.*/s, query);
  const { username, password } = new URL(text);
  const hasUser = username !== '' || password !== '';
  const shown = hasUser ? place.replace(/^[^/]*@/s, `${SECRET}@`) : place;
  const pathAt = shown.indexOf('/');
  const host = pathAt < 0 ? shown : shown.slice(0, pathAt);
  return scheme + host + withoutPathSecrets(shown.slice(host.length)) + query;
}

/** Returns a path as it may be shown. */
export function withoutPathSecrets(path: string): string {
  const segments = path.split('/');
  return segments.map((segment) => (secretWordsOf(segment).length > 0 ? SECRET : segment)).join('/');
}

/** The parts of a segment that look like a secret: words, or all of it. */
function secretWordsOf(segment: string): string[] {
  if (segment.length < SEGMENT_CHARS_MIN) return [];
  const words = segment.split(/[^A-Za-z0-9]/);
  const changes = words.map(changesIn);
  const mixed = words.filter((word, index) => word.length >= MIXED_CHARS_MIN && changes[index]! > 0);
  if (mixed.length > 0) return mixed;
  return changes.reduce((sum, count) => sum + count, 0) >= CHANGES_MIN ? [segment] : [];
}

/** How often a digit follows a letter, or a letter a digit. */
function changesIn(word: string): number {
  return word.match(/(?<=\d)\D|(?<=\D)\d/g)?.length ?? 0;
}

/** Returns an address as it may be shown if its path is a secret too, as that of a webhook at Slack is. */
export function withoutUrlPath(text: string): string {
  const { origin } = new URL(text);
  return text === origin || text === `${origin}/` ? text : `${origin}/${SECRET}`;
}

/** The secrets in a path with its query, as they are written; those of the query also decoded. */
export function secretsInPath(path: string): string[] {
  return [...path.replace(/\?.*/s, '').split('/').flatMap(secretWordsOf), ...secretsInQuery(path)];
}

/** The secrets in the query of a path or an address, as they are written and decoded. */
export function secretsInQuery(address: string): string[] {
  const [, query = ''] = /\?([^#]*)/s.exec(address) ?? [];
  return query.split('&').flatMap((pair) => {
    const written = pair.slice(pair.indexOf('=') + 1);
    const [[name, value] = ['', '']] = new URLSearchParams(pair);
    if (!NAME_SECRET.test(name)) return [];
    return [...new Set([written, value])].filter((text) => text.length >= SECRET_CHARS_MIN);
  });
}
