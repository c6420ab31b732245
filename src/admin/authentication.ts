/**
 * Admin authentication: finds the operator of a request, by the admin token, the token of an operator, or a
 * console session (sessions.ts), below just _session_. server.ts calls `hostRejectionOf` for every request
 * but those of probes, then `identify` for each that needs an operator. Main thread of the gateway.
 *
 * A browser sends a session's cookie by itself, so another site could make the browser do so (CSRF). There
 * are three defences, each sufficient alone: the cookie is SameSite=Strict; a request that names its origin
 * must name this one; and a request that changes something must have a header that a page of another origin
 * cannot set without a CORS preflight. AllowedHosts (allowed-hosts.ts) defends against DNS rebinding.
 *
 * Must hold: without a token or a session a client can read and change nothing of what server.ts keeps behind
 * `identify`. Tests: test/unit/admin/authentication.session.test.ts, test/unit/admin/server.test.ts.
 */
import type { HttpResponse } from 'uWebSockets.js';
import type { Clock } from '../core/clock.js';
import { AUTHORIZATION_CHARS_MAX } from '../core/limits.js';
import { BOOTSTRAP, type Identify, type Operator, type Role } from '../core/roles.js';
import type { AllowedHosts } from './allowed-hosts.js';
import {
  type AdminResponse,
  cookieOf,
  HOST_COOKIE,
  okResponse,
  type RequestHead,
  responseOfError,
} from './http.js';
import { parseBody } from './json-body.js';
import type { OidcView } from './oidc.js';
import { type NewSession, type OpenSession, SESSION_SECONDS, Sessions } from './sessions.js';
import { digestOfToken, isOperatorToken, type Operators } from '../registry/operators.js';
import { FailureLimiter, PERIOD_SECONDS } from './failure-limiter.js';
import { TokenCheck } from './token.js';

/** The longest name that DNS has. */
const HOST_CHARS_SHOWN_MAX = 255;
const TOO_MANY_WRONG = responseOfError({
  code: 'rate_limit_exceeded',
  message: `Too many wrong tokens came from this address. Try again in ${PERIOD_SECONDS} second, with the right one.`,
  retryAfterSeconds: PERIOD_SECONDS,
});
const WRONG_TOKEN = responseOfError({
  code: 'invalid_api_key',
  message:
    'This token admits nobody: it is not the admin token of this gateway, nor that of an operator who is enabled and whose token has not expired.',
});
const NO_TOKEN = responseOfError({
  code: 'missing_api_key',
  message:
    'The header "Authorization: Bearer <admin token>" is missing; the token is in the data directory, or an operator has one.',
});
const NO_SESSION = responseOfError({
  code: 'missing_api_key',
  message: 'You are signed out: the session has ended. Sign in again.',
});
const CROSS_SITE = responseOfError({
  code: 'invalid_parameters',
  message:
    'A session is for the console alone: the request came from another site, or without its header. To be of this site, a proxy in front must pass on the Host.',
});

/** The responses of `/admin/session`. console/session.ts reads them. */
export interface SessionView {
  readonly signed_in: boolean;
  readonly seconds_left: number;
  /** The operator's name, and the role, for the console to show only what the role may do. */
  readonly who: string | null;
  readonly role: Role | null;
  /** Absent if nobody is signed in. */
  readonly quota_timezone?: string;
  /** Where to sign in at a provider; only in the response to a GET, and if the settings name one. */
  readonly oidc?: OidcView;
  /** Where to sign out of the provider; only in the response to a DELETE. */
  readonly sign_out?: OidcView;
}

interface AuthenticationOptions {
  /** The admin token. */
  readonly token: string;
  readonly operators: Pick<Operators, 'identityOf'>;
  readonly clock: Clock;
  /** Returns the port of the admin interface; called only once it is open. */
  readonly port: () => number;
  readonly hosts: AllowedHosts;
  /** The setting `quota_timezone`, which each SessionView has. */
  readonly quotaTimezone: string;
}

export class AdminAuthentication {
  readonly #token: TokenCheck;
  readonly #wrongTokens: FailureLimiter;
  readonly #sessions: Sessions;
  /** The name has the port, because browsers send a cookie to all ports of a host. */
  readonly #cookieName: (kind: 'secure' | 'plain') => string;
  readonly #hosts: AllowedHosts;
  readonly #operators: AuthenticationOptions['operators'];
  readonly #quotaTimezone: string;

  constructor({ token, operators, clock, port, hosts, quotaTimezone }: AuthenticationOptions) {
    this.#hosts = hosts;
    this.#quotaTimezone = quotaTimezone;
    this.#operators = operators;
    this.#token = new TokenCheck(token);
    this.#wrongTokens = new FailureLimiter(clock);
    this.#sessions = new Sessions(clock);
    this.#cookieName = (kind) => `${kind === 'secure' ? HOST_COOKIE : ''}tollgate-session-${port()}`;
  }

  /**
   * Returns the rejection of a request that has neither an allowed Host nor a valid token; undefined if the
   * request may go on. With a token any Host is allowed, because a page with a rebound name knows no token.
   */
  hostRejectionOf(head: RequestHead): AdminResponse | undefined {
    if (this.#hosts.allows(head.host) || this.#operatorOf(head) !== undefined) return undefined;
    const quotedHost = JSON.stringify(head.host.slice(0, HOST_CHARS_SHOWN_MAX));
    return responseOfError({
      code: 'invalid_parameters',
      message: `The admin port does not answer under the Host ${quotedHost} without the admin token: put the name into the setting admin.hosts (TOLLGATE_ADMIN_HOSTS).`,
    });
  }

  /**
   * Returns the request's operator, or the rejection of a request without a valid token or session. A request
   * with a session may have another header Authorization, for a proxy: browsers send it with every request.
   */
  identify(response: HttpResponse, head: RequestHead): Operator | { readonly rejection: AdminResponse } {
    const secret = this.#sessionSecretOf(head);
    if (bearerOf(head) === undefined && secret !== undefined) {
      const session = this.#sessions.find(secret);
      if (session === undefined) return { rejection: NO_SESSION };
      const isRejected = isCrossSite(head) || (head.method !== 'GET' && !head.isFromConsole);
      return isRejected ? { rejection: CROSS_SITE } : session.operator;
    }
    const operator = this.#operatorOf(head);
    if (operator !== undefined) return operator;
    return { rejection: bearerOf(head) === undefined ? NO_TOKEN : this.#rejectWrongToken(response) };
  }

  /** Returns the operator whose token the request has; undefined if its token is missing or wrong. */
  #operatorOf(head: RequestHead): Operator | undefined {
    const token = bearerOf(head);
    // No valid token needs a longer header, which would cost a long hash.
    if (token === undefined || head.authorization.length > AUTHORIZATION_CHARS_MAX) return undefined;
    return this.#identifyOf(token)?.('request');
  }

  /**
   * Returns a function that finds who has the token at the moment of its call; undefined if the text is not
   * the admin token and has not the form of an operator's.
   */
  #identifyOf(token: string): Identify | undefined {
    if (this.#token.accepts(token)) return () => BOOTSTRAP;
    if (!isOperatorToken(token)) return undefined;
    const digest = digestOfToken(token);
    return (purpose) => {
      try {
        return this.#operators.identityOf(digest, purpose);
      } catch {
        // A damaged row admits nobody. The list of operators reports the damage.
        return undefined;
      }
    };
  }

  /**
   * Ends the sessions of operators who may not go on. To be called each second, because settings and
   * operators may change without a request, and before each change that an operator makes here.
   */
  endRevoked(): void {
    this.#sessions.endRevoked();
  }

  /**
   * Whether the session or token of the request is still valid: a stream may outlast it. That is a use of the
   * token, because who deletes tokens that are not in use must not find one whose stream is open.
   */
  stillAdmits(head: RequestHead): boolean {
    if (bearerOf(head) !== undefined) return this.#operatorOf(head) !== undefined;
    const secret = this.#sessionSecretOf(head);
    return secret !== undefined && this.#sessions.find(secret) !== undefined;
  }

  /**
   * `GET /admin/session`: whether the client is signed in, as whom, and for how long; and `oidc`, another way
   * to sign in. Needs no token.
   */
  sessionOf(head: RequestHead, oidc?: OidcView): AdminResponse {
    const secret = this.#sessionSecretOf(head);
    const view = this.#viewOf(secret === undefined ? undefined : this.#sessions.find(secret));
    return okResponse(oidc === undefined ? view : ({ ...view, oidc } satisfies SessionView));
  }

  /** `POST /admin/session` with `{"token"}`: opens a session. */
  signIn(response: HttpResponse, head: RequestHead, body: string): AdminResponse {
    if (isCrossSite(head) || !head.isFromConsole) return CROSS_SITE;
    const token = tokenIn(body);
    if (token === undefined) {
      const message = 'the body must be {"token":"<admin token>"}';
      return responseOfError({ code: 'invalid_parameters', message });
    }
    const identify = this.#identifyOf(token);
    const operator = identify?.('request');
    if (identify === undefined || operator === undefined) return this.#rejectWrongToken(response);
    const cookie = this.openSession(head, { identify, who: operator.who });
    const view = this.#viewOf({ operator, secondsLeft: SESSION_SECONDS });
    return { ...okResponse(view), headers: [['set-cookie', cookie]] };
  }

  /**
   * Opens a session and returns its `set-cookie`; oidc.ts calls it too. `isSecure`: whether browsers use
   * HTTPS according to the settings, also if no proxy sends `x-forwarded-proto`.
   */
  openSession(head: RequestHead, session: NewSession, isSecure = false): string {
    return this.#cookie(this.#sessions.open(session), SESSION_SECONDS, isSecure || isHttps(head));
  }

  /** `DELETE /admin/session`: ends the session. The response says where to sign out of the provider. */
  signOut(head: RequestHead): AdminResponse {
    if (isCrossSite(head) || !head.isFromConsole) return CROSS_SITE;
    const secret = this.#sessionSecretOf(head);
    const url = secret === undefined ? undefined : this.#sessions.end(secret);
    const signedOut = this.#viewOf(undefined);
    const provider = url === undefined ? undefined : { issuer: new URL(url).host, url };
    const view: SessionView = provider === undefined ? signedOut : { ...signedOut, sign_out: provider };
    const isSecure = isHttps(head) || cookieOf(head, this.#cookieName('secure')) !== '';
    return { ...okResponse(view), headers: [['set-cookie', this.#cookie('', 0, isSecure)]] };
  }

  #rejectWrongToken(response: HttpResponse): AdminResponse {
    return this.#wrongTokens.record(response.getRemoteAddress()) ? WRONG_TOKEN : TOO_MANY_WRONG;
  }

  /** Behind HTTPS only the cookie with HOST_COOKIE counts, which no other host of the domain can set. */
  #sessionSecretOf(head: RequestHead): string | undefined {
    const secret = cookieOf(head, this.#cookieName('secure'));
    if (secret !== '') return secret;
    return isHttps(head) ? undefined : cookieOf(head, this.#cookieName('plain')) || undefined;
  }

  /** `session`: undefined if signed out. */
  #viewOf(session: OpenSession | undefined): SessionView {
    if (session === undefined) return { signed_in: false, seconds_left: 0, who: null, role: null };
    const { secondsLeft, operator } = session;
    return {
      signed_in: true,
      seconds_left: secondsLeft,
      ...operator,
      quota_timezone: this.#quotaTimezone,
    };
  }

  /**
   * Returns a `set-cookie`; `seconds` 0 deletes the cookie. `isSecure`: only behind a proxy that ends TLS,
   * because browsers send such a cookie only over HTTPS.
   */
  #cookie(secret: string, seconds: number, isSecure: boolean): string {
    const attribute = isSecure ? '; Secure' : '';
    return `${this.#cookieName(isSecure ? 'secure' : 'plain')}=${secret}; Path=/; Max-Age=${seconds}; HttpOnly; SameSite=Strict${attribute}`;
  }
}

/** Whether a proxy says that the browser uses HTTPS. Its list begins with the proxy next to the browser. */
const isHttps = ({ forwardedProto }: RequestHead): boolean => /^https\b/i.test(forwardedProto);

/** Returns the token of the header Authorization; undefined without one, or if it has another scheme. */
function bearerOf({ authorization }: RequestHead): string | undefined {
  return /^Bearer +(\S.*)$/i.exec(authorization)?.[1]?.trim();
}

/** Whether the headers that a browser adds say that a page of another site sent the request. */
function isCrossSite({ origin, host, fetchSite }: RequestHead): boolean {
  if (fetchSite !== '' && fetchSite !== 'same-origin' && fetchSite !== 'none') return true;
  return origin !== '' && origin.replace(/^https?:\/\//, '') !== host;
}

/** Returns undefined if the body is no JSON object with a token, or the token is too long. */
function tokenIn(body: string): string | undefined {
  try {
    const { token } = (parseBody(body) ?? {}) as { token?: unknown };
    return typeof token === 'string' && token.length <= AUTHORIZATION_CHARS_MAX ? token : undefined;
  } catch {
    return undefined;
  }
}
