/**
 * What an address may keep secret: user and password, and values of its query, where some providers take the
 * key. The settings show addresses without it; upstreams' errors and contents of calls are searched for it.
 * Pure; any thread.
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

/**
 * Returns a text as it may be shown: if it is an address, without user, password and query. What only looks
 * like an address (a password with a slash makes it none) loses all before its last `@`.
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
  return scheme + (hasUser ? place.replace(/^[^/]*@/s, `${SECRET}@`) : place) + query;
}

/** Returns an address as it may be shown if its path is a secret too, as that of a webhook at Slack is. */
export function withoutUrlPath(text: string): string {
  const { origin } = new URL(text);
  return text === origin || text === `${origin}/` ? text : `${origin}/${SECRET}`;
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
