/**
 * Who may use the admin interface: whoever has the admin token, or a session that was opened with it.
 * server.ts asks before it serves a request. Main thread of the gateway, which forgets all sessions when it
 * ends.
 *
 * A browser sends a session's cookie by itself, so another site could make it do so. Three defences, each
 * sufficient alone: the cookie is SameSite=Strict; a request that names its origin must name this one; and a
 * request that changes something must have a header that a page of another origin cannot set without a CORS
 * preflight.
 */
import { createHash, randomBytes } from 'node:crypto';
import { isIP, isIPv6 } from 'node:net';
import type { HttpResponse } from 'uWebSockets.js';
import type { Clock } from '../core/clock.js';
import { AUTHORIZATION_CHARS_MAX } from '../core/limits.js';
import { type AdminResponse, ok, type RequestHead, responseOfError } from './http.js';
import { TokenCheck } from './token.js';

/** As many as the admin token has. */
const SECRET_BITS = 256;
/** A working day and some hours: an operator signs in again the next morning. */
const SESSION_SECONDS = 12 * 3_600;
/** More than the operators of one gateway have browsers. Beyond it the oldest session ends. */
const SESSIONS_MAX = 200;
const MS_PER_SECOND = 1_000;

/**
 * Operators who are signed in to the console. A session is a random secret in a cookie. Only its digest is
 * kept, so that what leaks from memory opens no session.
 */
class Sessions {
  readonly #clock: Clock;
  /** The moment when each ends, by digest, in the order of signing in. */
  readonly #endMs = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Opens a session and returns its secret, 43 characters of base64url. */
  open(): string {
    if (this.#endMs.size >= SESSIONS_MAX) {
      const [oldest] = this.#endMs.keys();
      if (oldest !== undefined) this.#endMs.delete(oldest);
    }
    const secret = randomBytes(SECRET_BITS / 8).toString('base64url');
    this.#endMs.set(digestOf(secret), this.#clock.monotonicMs() + SESSION_SECONDS * MS_PER_SECOND);
    return secret;
  }

  /** Whole seconds that the session still lasts; 0 if there is none with that secret. */
  secondsLeft(secret: string): number {
    const digest = digestOf(secret);
    const leftMs = (this.#endMs.get(digest) ?? -Infinity) - this.#clock.monotonicMs();
    if (leftMs > 0) return Math.ceil(leftMs / MS_PER_SECOND);
    this.#endMs.delete(digest);
    return 0;
  }

  end(secret: string): void {
    this.#endMs.delete(digestOf(secret));
  }
}

function digestOf(secret: string): string {
  return createHash('sha256').update(secret).digest('base64url');
}

/** Wrong tokens of one address that are answered as wrong in any second. Further ones are told to wait. */
const WRONG_PER_SECOND_MAX = 5;
const SECOND_MS = 1_000;
/** Addresses that are remembered, about 200 bytes each. The one that began longest ago is forgotten first. */
const ADDRESSES_MAX = 4_096;

const IPV4_BYTES = 4;
/** The smallest network that a user of IPv6 gets: 2^64 addresses with the same first bytes. */
const IPV6_NETWORK_BYTES = 8;
const IPV4_IN_IPV6 = '00000000000000000000ffff';

/**
 * Counts wrong tokens by remote address. The right token is always taken, whatever the address: an operator
 * must be able to work beside a broken script on the same host. So this does not make guessing harder, which
 * the length of the token does; it keeps a flood of wrong tokens out of the logs, and tells the sender to
 * stop.
 */
export class WrongTokens {
  readonly #clock: Clock;
  /** Moments of the last wrong tokens by sender, oldest first. */
  readonly #momentsMs = new Map<string, number[]>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Counts one and returns true; or false, without counting it, if its sender has to wait. */
  record(address: ArrayBuffer): boolean {
    const sender = senderOf(address);
    const nowMs = this.#clock.monotonicMs();
    const known = this.#momentsMs.get(sender);
    const moments = known ?? [];
    while (moments.length > 0 && nowMs - moments[0]! >= SECOND_MS) moments.shift();
    if (moments.length >= WRONG_PER_SECOND_MAX) return false;
    moments.push(nowMs);
    if (known === undefined) this.#remember(sender, moments);
    return true;
  }

  #remember(sender: string, moments: number[]): void {
    if (this.#momentsMs.size >= ADDRESSES_MAX) {
      const [oldest] = this.#momentsMs.keys();
      if (oldest !== undefined) this.#momentsMs.delete(oldest);
    }
    this.#momentsMs.set(sender, moments);
  }
}

/** `address`: 4 bytes of IPv4, or 16 of IPv6, which may hold an address of IPv4. */
function senderOf(address: ArrayBuffer): string {
  const hex = Buffer.from(address).toString('hex');
  if (address.byteLength === IPV4_BYTES) return hex;
  if (hex.startsWith(IPV4_IN_IPV6)) return hex.slice(IPV4_IN_IPV6.length);
  return hex.slice(0, IPV6_NETWORK_BYTES * 2);
}

/** An authority without user information: a name, or an address (IPv6 in brackets), and perhaps a port. */
const AUTHORITY = /^(?:\[([0-9a-f:.]+)\]|([\w.-]+))(?::\d{1,5})?$/i;
const LOOPBACK = ['localhost', '127.0.0.1', '::1'];
/** An entry that allows every Host, and the start of one that allows all names below another. */
const ANY = '*';
const BELOW = '*.';

/**
 * The names under which the admin port answers a request without a token.
 *
 * A page of another site can have its own name resolve to the address of this port (DNS rebinding). A browser
 * then takes both for one origin and lets the page read what is told without a token. The attack needs a
 * name, and the browser sends that name as Host.
 */
export class AllowedHosts {
  readonly #names: ReadonlySet<string>;
  /** With the leading dot. */
  readonly #endings: readonly string[];
  readonly #any: boolean;
  /** Whether any address is: behind a wildcard nobody can list the host's own, and rebinding needs a name. */
  readonly #addresses: boolean;

  /** `bound`: what the port listens on. `listed`: the setting `admin.hosts`. */
  constructor(bound: string, listed: readonly string[]) {
    const exact = listed.filter((entry) => !entry.startsWith(ANY)).map((entry) => hostIn(entry) ?? entry);
    this.#names = new Set([...LOOPBACK, canonical(bound), ...exact]);
    this.#endings = listed
      .filter((entry) => entry.startsWith(BELOW))
      .map((entry) => canonical(entry.slice(ANY.length)));
    this.#any = listed.includes(ANY);
    this.#addresses = !LOOPBACK.includes(canonical(bound)) && !bound.startsWith('127.');
  }

  /** `header`: Host as it was sent, empty if it was not. */
  allows(header: string): boolean {
    if (this.#any) return true;
    const host = hostIn(header);
    if (host === undefined) return false;
    if (this.#names.has(host)) return true;
    if (isIP(host) !== 0) return this.#addresses;
    return this.#endings.some((ending) => host.length > ending.length && host.endsWith(ending));
  }
}

/** The host that a header names, as it is compared; undefined if the header names none. */
function hostIn(header: string): string | undefined {
  const [, address, name] = AUTHORITY.exec(header) ?? [];
  if (address !== undefined) return isIPv6(address) ? canonical(address) : undefined;
  return name === undefined ? undefined : canonical(name);
}

/** In small letters, without a dot at the end, and with one spelling of each IPv6 address. */
function canonical(host: string): string {
  if (isIPv6(host) && URL.canParse(`http://[${host}]`)) {
    return new URL(`http://[${host}]`).hostname.slice(1, -1);
  }
  return host.toLowerCase().replace(/\.$/, '');
}

const WAIT_SECONDS = 1;
/** The longest name there is. */
const HOST_CHARS_SHOWN = 255;
const TOO_MANY_WRONG = responseOfError({
  code: 'rate_limit_exceeded',
  message: `Too many wrong tokens came from this address. Try again in ${WAIT_SECONDS} second, with the right one.`,
  retryAfterSeconds: WAIT_SECONDS,
});
const WRONG_TOKEN = responseOfError({
  code: 'invalid_api_key',
  message: 'This is not the admin token of this gateway.',
});
const NO_TOKEN = responseOfError({
  code: 'missing_api_key',
  message: 'The header "Authorization: Bearer <admin token>" is missing; the token is in the data directory.',
});
const NO_SESSION = responseOfError({
  code: 'missing_api_key',
  message: 'You are signed out: the session has ended. Sign in again.',
});
const FOREIGN = responseOfError({
  code: 'invalid_parameters',
  message: 'A session is for the console alone: the request came from another site, or without its header.',
});

export class AdminAuthentication {
  readonly #token: TokenCheck;
  readonly #wrongTokens: WrongTokens;
  readonly #sessions: Sessions;
  /**
   * Has the port in it: browsers send cookies to all ports of a host, and two gateways must not share one.
   */
  readonly #cookieName: () => string;
  readonly #hosts: AllowedHosts;

  /** `port`: of the admin interface, asked for when it is open. */
  constructor(token: string, clock: Clock, port: () => number, hosts: AllowedHosts) {
    this.#hosts = hosts;
    this.#token = new TokenCheck(token);
    this.#wrongTokens = new WrongTokens(clock);
    this.#sessions = new Sessions(clock);
    this.#cookieName = () => `tollgate-session-${port()}`;
  }

  /**
   * The response to a request under a Host that is not allowed and without the token, which a page that had
   * its name rebound does not know. Undefined if it may go on.
   */
  hostRejectionOf(head: RequestHead): AdminResponse | undefined {
    if (this.#hosts.allows(head.host) || this.#hasToken(head)) return undefined;
    const shown = JSON.stringify(head.host.slice(0, HOST_CHARS_SHOWN));
    return responseOfError({
      code: 'invalid_parameters',
      message: `The admin port does not answer under the Host ${shown} without the admin token: put the name into the setting admin.hosts (TOLLGATE_ADMIN_HOSTS).`,
    });
  }

  /** The response to a request without a valid token or session; undefined if it may go on. */
  rejectionOf(response: HttpResponse, head: RequestHead): AdminResponse | undefined {
    const secret = this.#secretOf(head);
    if (head.authorization === '' && secret !== undefined) {
      if (this.#sessions.secondsLeft(secret) === 0) return NO_SESSION;
      return isForeign(head) || (head.method !== 'GET' && !head.fromConsole) ? FOREIGN : undefined;
    }
    if (this.#hasToken(head)) return undefined;
    return bearerOf(head) === undefined ? NO_TOKEN : this.#wrong(response);
  }

  #hasToken(head: RequestHead): boolean {
    const sent = bearerOf(head);
    return (
      sent !== undefined && head.authorization.length <= AUTHORIZATION_CHARS_MAX && this.#token.accepts(sent)
    );
  }

  /** Whether a request that was admitted still would be: a stream may outlast its session. */
  stillAdmits(head: RequestHead): boolean {
    const secret = this.#secretOf(head);
    return head.authorization !== '' || secret === undefined || this.#sessions.secondsLeft(secret) > 0;
  }

  /** `GET /admin/session`: whether the caller is signed in, and for how long. Anybody may ask. */
  sessionOf(head: RequestHead): AdminResponse {
    const secret = this.#secretOf(head);
    const secondsLeft = secret === undefined ? 0 : this.#sessions.secondsLeft(secret);
    return ok({ signed_in: secondsLeft > 0, seconds_left: secondsLeft });
  }

  /** `POST /admin/session` with `{"token"}`: opens a session. */
  signIn(response: HttpResponse, head: RequestHead, body: string): AdminResponse {
    if (isForeign(head) || !head.fromConsole) return FOREIGN;
    const sent = tokenIn(body);
    if (sent === undefined) {
      return responseOfError({
        code: 'invalid_parameters',
        message: 'the body must be {"token":"<admin token>"}',
      });
    }
    if (!this.#token.accepts(sent)) return this.#wrong(response);
    const cookie = this.#cookie(head, this.#sessions.open(), SESSION_SECONDS);
    return { ...ok({ signed_in: true, seconds_left: SESSION_SECONDS }), setCookie: cookie };
  }

  /** `DELETE /admin/session`: ends the caller's session. */
  signOut(head: RequestHead): AdminResponse {
    if (isForeign(head) || !head.fromConsole) return FOREIGN;
    const secret = this.#secretOf(head);
    if (secret !== undefined) this.#sessions.end(secret);
    return { ...ok({ signed_in: false, seconds_left: 0 }), setCookie: this.#cookie(head, '', 0) };
  }

  #wrong(response: HttpResponse): AdminResponse {
    return this.#wrongTokens.record(response.getRemoteAddress()) ? WRONG_TOKEN : TOO_MANY_WRONG;
  }

  #secretOf({ cookie }: RequestHead): string | undefined {
    const start = `${this.#cookieName()}=`;
    const pair = cookie.split(/; */).find((part) => part.startsWith(start));
    const secret = pair?.slice(start.length);
    return secret === '' ? undefined : secret;
  }

  /** `Secure` only behind a proxy that ends TLS: over plain HTTP such a cookie would not come back. */
  #cookie({ forwardedProto }: RequestHead, secret: string, seconds: number): string {
    const secure = /^https\b/i.test(forwardedProto) ? '; Secure' : '';
    return `${this.#cookieName()}=${secret}; Path=/; Max-Age=${seconds}; HttpOnly; SameSite=Strict${secure}`;
  }
}

function bearerOf({ authorization }: RequestHead): string | undefined {
  return /^Bearer +(\S.*)$/i.exec(authorization)?.[1]?.trim();
}

/** Whether a browser says that another site caused the request. Other programs do not say. */
function isForeign({ origin, host, fetchSite }: RequestHead): boolean {
  if (fetchSite !== '' && fetchSite !== 'same-origin' && fetchSite !== 'none') return true;
  return origin !== '' && origin.replace(/^https?:\/\//, '') !== host;
}

function tokenIn(body: string): string | undefined {
  try {
    const sent = JSON.parse(body) as { token?: unknown } | null;
    return typeof sent?.token === 'string' && sent.token.length <= AUTHORIZATION_CHARS_MAX
      ? sent.token
      : undefined;
  } catch {
    return undefined;
  }
}
