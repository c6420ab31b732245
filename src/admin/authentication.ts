/**
 * Who is let in to the admin interface: who has the admin token, or a session that was opened with it. Main thread.
 *
 * A browser sends a session's cookie by itself, so another site could have it sent. Three things stand against that, each
 * enough alone: the cookie is SameSite=Strict, a request that tells where it comes from must come from the same origin,
 * and what changes anything must have a header that a foreign page cannot set without being asked for leave.
 */
import { createHash, randomBytes } from 'node:crypto';
import type { HttpResponse } from 'uWebSockets.js';
import type { Clock } from '../core/clock.js';
import { AUTHORIZATION_CHARS_MAX } from '../core/limits.js';
import type { AllowedHosts } from './allowed-hosts.js';
import type { RequestHead } from './request.js';
import { type AdminResponse, responseOfError, ok } from './response.js';
import { TokenCheck } from './token.js';

/*
 * Operators who are signed in to the console. Main thread of the gateway, which forgets them when it ends.
 *
 * A session is a random secret in a cookie; only its digest is kept, so that what leaks from memory opens nothing.
 */

/** As much as the admin token has. */
const SECRET_BITS = 256;
/** A working day and some hours: who comes back the next morning signs in again. */
export const SESSION_SECONDS = 12 * 3_600;
/** Operators of one gateway and their browsers, with room; the one that signed in longest ago makes place. */
const SESSIONS_MAX = 200;
const MS_PER_SECOND = 1_000;

export class Sessions {
  readonly #clock: Clock;
  /** By digest, in the order of signing in: the moment when they end. */
  readonly #endMs = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Opens one and returns its secret, 43 characters of base64url. */
  open(): string {
    if (this.#endMs.size >= SESSIONS_MAX) {
      const [oldest] = this.#endMs.keys();
      if (oldest !== undefined) this.#endMs.delete(oldest);
    }
    const secret = randomBytes(SECRET_BITS / 8).toString('base64url');
    this.#endMs.set(digestOf(secret), this.#clock.monotonicMs() + SESSION_SECONDS * MS_PER_SECOND);
    return secret;
  }

  /** Whole seconds that it still lasts; 0 where there is none of that secret, or none any more. */
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

/*
 * Wrong tokens, counted for each remote address. Main thread.
 *
 * The right token is always taken, from whatever address: an operator must be able to work beside a script that has gone
 * astray on the same host. So this does not make guessing slower than the token's own length does; it keeps a flood of wrong
 * ones from filling logs and eyes, and tells its sender to stop.
 */

/** Answered as wrong in any second; the next are told to wait. */
const WRONG_PER_SECOND_MAX = 5;
const SECOND_MS = 1_000;
/** Addresses that are remembered, about 200 bytes each; the one that began longest ago is forgotten first. */
const ADDRESSES_MAX = 4_096;

const IPV4_BYTES = 4;
/** Who has one address of IPv6 has at least the 2^64 that begin alike. */
const IPV6_NETWORK_BYTES = 8;
const IPV4_IN_IPV6 = '00000000000000000000ffff';

export class WrongTokens {
  readonly #clock: Clock;
  /** Moments of the last wrong tokens of an address, oldest first. */
  readonly #momentsMs = new Map<string, number[]>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Counts one; true where it is answered as wrong, false where its sender has to wait. Refused ones are not counted. */
  note(address: ArrayBuffer): boolean {
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

/** From the bytes of a remote address: 4 of IPv4, 16 of IPv6, which may hold one of IPv4. */
function senderOf(address: ArrayBuffer): string {
  const hex = Buffer.from(address).toString('hex');
  if (address.byteLength === IPV4_BYTES) return hex;
  if (hex.startsWith(IPV4_IN_IPV6)) return hex.slice(IPV4_IN_IPV6.length);
  return hex.slice(0, IPV6_NETWORK_BYTES * 2);
}

const WAIT_SECONDS = 1;
/** Of a Host that is refused: the longest name there is. */
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
  /** Two gateways on one host must not take each other's cookie: a browser does not tell ports apart. */
  readonly #cookieName: () => string;
  readonly #hosts: AllowedHosts;

  /** `port`: that of the admin interface, once it is open. */
  constructor(token: string, clock: Clock, port: () => number, hosts: AllowedHosts) {
    this.#hosts = hosts;
    this.#token = new TokenCheck(token);
    this.#wrongTokens = new WrongTokens(clock);
    this.#sessions = new Sessions(clock);
    this.#cookieName = () => `tollgate-session-${port()}`;
  }

  /**
   * The response to who comes under a Host that is not allowed, and cannot show the token either, which a page that had its
   * name rebound does not know; undefined for everybody else.
   */
  hostRejectionOf(head: RequestHead): AdminResponse | undefined {
    if (this.#hosts.allows(head.host) || this.#hasToken(head)) return undefined;
    const shown = JSON.stringify(head.host.slice(0, HOST_CHARS_SHOWN));
    return responseOfError({
      code: 'invalid_parameters',
      message: `The admin port does not answer under the Host ${shown} without the admin token: put the name into the setting admin.hosts (TOLLGATE_ADMIN_HOSTS).`,
    });
  }

  /** The response to who is not let in; undefined for who is. */
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

  /** Whether a request that was let in still would be: a stream may outlast its session. */
  stillAdmits(head: RequestHead): boolean {
    const secret = this.#secretOf(head);
    return head.authorization !== '' || secret === undefined || this.#sessions.secondsLeft(secret) > 0;
  }

  /** `GET /admin/session`: whether the caller is signed in, and for how long still. Told to anybody. */
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

  /** `DELETE /admin/session`: ends the caller's. */
  signOut(head: RequestHead): AdminResponse {
    if (isForeign(head) || !head.fromConsole) return FOREIGN;
    const secret = this.#secretOf(head);
    if (secret !== undefined) this.#sessions.end(secret);
    return { ...ok({ signed_in: false, seconds_left: 0 }), setCookie: this.#cookie(head, '', 0) };
  }

  #wrong(response: HttpResponse): AdminResponse {
    return this.#wrongTokens.note(response.getRemoteAddress()) ? WRONG_TOKEN : TOO_MANY_WRONG;
  }

  #secretOf({ cookie }: RequestHead): string | undefined {
    const start = `${this.#cookieName()}=`;
    const pair = cookie.split(/; */).find((part) => part.startsWith(start));
    const secret = pair?.slice(start.length);
    return secret === '' ? undefined : secret;
  }

  /** Over plain HTTP a `Secure` cookie would not come back; a proxy that ends TLS says so. */
  #cookie({ forwardedProto }: RequestHead, secret: string, seconds: number): string {
    const secure = /^https\b/i.test(forwardedProto) ? '; Secure' : '';
    return `${this.#cookieName()}=${secret}; Path=/; Max-Age=${seconds}; HttpOnly; SameSite=Strict${secure}`;
  }
}

function bearerOf({ authorization }: RequestHead): string | undefined {
  return /^Bearer +(\S.*)$/i.exec(authorization)?.[1]?.trim();
}

/** Whether a browser says that another site had the request sent. Other programs say nothing. */
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
