/**
 * Signs operators in to the console at an OpenID Connect provider: authorization code flow with PKCE, state
 * and nonce. server.ts calls `serve` for two paths: one redirects the browser to the provider, and to the
 * other the provider redirects the browser back. Main thread of the gateway.
 *
 * A pending sign-in takes no memory here, so nobody can exhaust the memory. The browser keeps a random
 * cookie. The _proofs_ (state, nonce and PKCE's verifier) are derived from the cookie with a key that only
 * this process knows. So the end of the process ends all pending sign-ins.
 *
 * Must hold: a code is accepted only from the browser that began the sign-in, once, and in time. So the
 * proofs are derived from the time in the cookie too. Further test: test/hostile/oidc.test.ts.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { OIDC_CALLBACK_PATH, OIDC_START_PATH } from '../config/oidc-schema.js';
import type { Clock } from '../core/clock.js';
import type { Identify } from '../core/roles.js';
import type { Log } from '../telemetry/log.js';
import { FailureLimiter } from './failure-limiter.js';
import { type AdminResponse, cookieOf, HOST_COOKIE, type RequestHead } from './http.js';
import { type OidcSettings, type Person, personOf, roleOf } from './oidc-claims.js';
import { PAGE_HEADERS, pageOf, PENDING_SECONDS, SignInError } from './oidc-failures.js';
import type { OidcProvider, Proofs } from './oidc-provider.js';
import type { NewSession } from './sessions.js';

/** 256 bits of the key, and of a cookie, which nobody can guess. */
const SECRET_BYTES = 32;
const MS_PER_SECOND = 1_000;
/** How many requests are served at a time. Each may have responses of the provider of 1 MiB in memory. */
const REQUESTS_MAX = 16;
/**
 * How many used states are recorded while their cookies are valid, some 150 bytes each. Beyond that number
 * the oldest is dropped. It could then be used again, but the provider accepts each code only once.
 */
const USED_MAX = 10_000;
/** How many values of the role claim an error names. */
const VALUES_SHOWN_MAX = 20;

interface OidcOptions {
  /** Returns admin.oidc of the settings in force, the same object until a reload; undefined if not set. */
  readonly settings: () => OidcSettings | undefined;
  /** Opens a console session and returns its `set-cookie`. */
  readonly openSession: (head: RequestHead, session: NewSession, secure: boolean) => string;
  /** The admin port: part of the cookie's name, because the ports of a host share cookies. */
  readonly port: () => number;
  readonly clock: Clock;
  readonly log: Log;
}

/** A provider, as the console shows it. */
export interface OidcView {
  /** The provider's host. */
  readonly issuer: string;
  /** The address at which a browser begins the sign-in there, or the sign-out. */
  readonly url: string;
}

export class OidcSignIn {
  readonly #options: OidcOptions;
  /** Proofs are derived with this key. */
  readonly #key = randomBytes(SECRET_BYTES);
  /** When each used state may be dropped (monotonic), by state, in the order of use. */
  readonly #usedEndMs = new Map<string, number>();
  /** Counts failed sign-ins by the browser's address. */
  readonly #failures: FailureLimiter;
  /** How many requests are being served, at most REQUESTS_MAX. */
  #requests = 0;
  /** The provider's client of the last sign-in, and the settings with which it was created. */
  #provider: { readonly settings: OidcSettings; readonly loading: Promise<OidcProvider> } | undefined;

  constructor(options: OidcOptions) {
    this.#options = options;
    this.#failures = new FailureLimiter(options.clock);
  }

  /** For the console's sign-in page; undefined if the settings have no admin.oidc. */
  view(): OidcView | undefined {
    const settings = this.#options.settings();
    if (settings === undefined) return undefined;
    // On the host of `redirect_url`, because the browser must send the cookie to that address.
    return {
      issuer: new URL(settings.issuer).host,
      url: new URL(OIDC_START_PATH, settings.redirect_url).href,
    };
  }

  /**
   * Responds to a request for one of the two paths: with a redirect, or with an error page. `addressBytes`
   * and `addressText` are the browser's address. Never rejects.
   */
  async serve(head: RequestHead, addressBytes: ArrayBuffer, addressText: string): Promise<AdminResponse> {
    const settings = this.#options.settings();
    try {
      if (settings === undefined) throw new SignInError('not_configured');
      if (this.#requests >= REQUESTS_MAX) throw new SignInError('too_many');
      this.#requests += 1;
      try {
        return await (head.path === OIDC_CALLBACK_PATH
          ? this.#finish(head, settings, addressText)
          : this.#start(settings));
      } finally {
        this.#requests -= 1;
      }
    } catch (error) {
      return this.#failurePage(error, addressBytes, addressText);
    }
  }

  /** Sets the cookie of a new sign-in, and redirects the browser to the provider. */
  async #start(settings: OidcSettings): Promise<AdminResponse> {
    const cookie = `${this.#nowSeconds()}.${randomBytes(SECRET_BYTES).toString('base64url')}`;
    const provider = await this.#providerOf(settings);
    const url = await provider.addressFor(this.#proofsOf(cookie, settings));
    return redirectTo(url, [this.#cookie(settings, cookie, PENDING_SECONDS)]);
  }

  /** Opens a console session for the person whose code the browser brings. */
  async #finish(head: RequestHead, settings: OidcSettings, addressText: string): Promise<AdminResponse> {
    const proofs = this.#proofsOf(this.#pendingIn(head, settings), settings);
    const [state = '', ...furtherStates] = new URLSearchParams(head.query).getAll('state');
    if (furtherStates.length > 0 || !isSame(state, proofs.state)) throw new SignInError('not_begun');
    // The state is used before the provider is asked, so that a second request with the same code ends here.
    this.#markUsed(state);
    const provider = await this.#providerOf(settings);
    const { claims, logoutUrl } = await provider.resultFrom(head.query, proofs);
    const person = personOf(claims, settings);
    const identify = this.#identifyOf(person, settings);
    const operator = identify('request');
    if (operator === undefined) throw new SignInError('no_role', noRoleText(person, settings));
    const fields = { ...operator, sub: person.sub, from: addressText };
    this.#options.log.record('an operator signed in at the OpenID Connect provider', fields);
    // The session's cookie is SameSite=Strict, so a browser that comes from the provider's site does not send
    // the cookie to `/`. The page there needs no cookie, and the page's own requests have it.
    return redirectTo('/', [
      this.#options.openSession(head, { identify, who: operator.who, logoutUrl }, isSecure(settings)),
      this.#cookie(settings, '', 0),
    ]);
  }

  /**
   * A session follows the settings in force: if a reload takes a role from a group, its people lose the role
   * at their next request. A session of another provider or client ends.
   */
  #identifyOf(
    { name, values }: Person,
    { issuer, client_id: clientId, role_claim: claim }: OidcSettings,
  ): Identify {
    return () => {
      const current = this.#options.settings();
      if (current?.issuer !== issuer || current.client_id !== clientId || current.role_claim !== claim)
        return undefined;
      const role = roleOf(values, current);
      return role === undefined ? undefined : { who: `oidc:${name}`, role };
    };
  }

  /** Returns the provider's client. Loads the client library at its first use. */
  #providerOf(settings: OidcSettings): Promise<OidcProvider> {
    if (this.#provider?.settings === settings) return this.#provider.loading;
    const loading = import('./oidc-provider.js').then(
      ({ OidcProvider }) => new OidcProvider(settings, this.#options.clock),
    );
    this.#provider = { settings, loading };
    // Loading fails while file descriptors have run out. The next sign-in tries again.
    loading.catch(() => {
      if (this.#provider?.loading === loading) this.#provider = undefined;
    });
    return loading;
  }

  /** Monotonic time is enough for the cookies, because no other process reads them. */
  #nowSeconds(): number {
    return Math.floor(this.#options.clock.monotonicMs() / MS_PER_SECOND);
  }

  /**
   * Returns the cookie of a pending sign-in. Throws if it is missing or too old. Nobody can change the time
   * in the cookie, because another state would be derived from it.
   */
  #pendingIn(head: RequestHead, settings: OidcSettings): string {
    const cookie = cookieOf(head, this.#cookieName(settings));
    // As `#start` writes it: seconds, and SECRET_BYTES as base64url. Without a match the age is Infinity.
    const [, begunSeconds] = /^(\d{1,12})\.[\w-]{43}$/.exec(cookie) ?? [];
    const ageSeconds = this.#nowSeconds() - Number(begunSeconds ?? -Infinity);
    if (ageSeconds < 0 || ageSeconds >= PENDING_SECONDS) throw new SignInError('not_begun');
    return cookie;
  }

  /**
   * The proofs are derived from the issuer too, so that after a reload no sign-in ends at another provider
   * than that at which it began.
   */
  #proofsOf(cookie: string, { issuer, client_id: clientId }: OidcSettings): Proofs {
    const proofOf = (purpose: string): string =>
      createHmac('sha256', this.#key)
        .update(JSON.stringify([purpose, issuer, clientId, cookie]))
        .digest('base64url');
    return { state: proofOf('state'), nonce: proofOf('nonce'), verifier: proofOf('verifier') };
  }

  /** Throws if the state was used before. */
  #markUsed(state: string): void {
    const nowMs = this.#options.clock.monotonicMs();
    // States are in the order of use, so those that may be dropped come first.
    for (const [usedState, endMs] of this.#usedEndMs) {
      if (endMs > nowMs && this.#usedEndMs.size < USED_MAX) break;
      this.#usedEndMs.delete(usedState);
    }
    if (this.#usedEndMs.has(state)) throw new SignInError('used');
    this.#usedEndMs.set(state, nowMs + PENDING_SECONDS * MS_PER_SECOND);
  }

  /** Logs the failure and returns its page. */
  #failurePage(error: unknown, addressBytes: ArrayBuffer, addressText: string): AdminResponse {
    const signInError = error instanceof SignInError ? error : new SignInError('bad_answer', String(error));
    const { failure, message: detail } = signInError;
    // A flood of failures is not logged, and its responses do not say what has failed.
    if (failure === 'too_many') return pageOf(signInError);
    if (!this.#failures.record(addressBytes)) return pageOf(new SignInError('too_many'));
    const fields = { failure, detail, from: addressText };
    this.#options.log.record('a sign-in at the OpenID Connect provider failed', fields, 'warn');
    return pageOf(signInError);
  }

  #cookieName(settings: OidcSettings): string {
    return `${isSecure(settings) ? HOST_COOKIE : ''}tollgate-sign-in-${this.#options.port()}`;
  }

  /**
   * Returns a `set-cookie`; `seconds` 0 deletes the cookie. SameSite=Lax, because the browser comes back from
   * the provider's site. A name with HOST_COOKIE requires the path `/`.
   */
  #cookie(settings: OidcSettings, value: string, seconds: number): string {
    const secure = isSecure(settings) ? '; Secure' : '';
    return `${this.#cookieName(settings)}=${value}; Path=/; Max-Age=${seconds}; HttpOnly; SameSite=Lax${secure}`;
  }
}

const isSecure = ({ redirect_url: url }: OidcSettings): boolean => url.startsWith('https:');

function redirectTo(url: string, cookies: readonly string[]): AdminResponse {
  const setCookies = cookies.map((cookie): readonly [string, string] => ['set-cookie', cookie]);
  const headers = [['location', url] as const, ...setCookies, ...PAGE_HEADERS];
  return { status: 303, contentType: 'text/plain; charset=utf-8', body: '', headers };
}

/** Takes a time that does not depend on where the texts differ. */
function isSame(sent: string, expected: string): boolean {
  const [sentBytes, expectedBytes] = [Buffer.from(sent), Buffer.from(expected)];
  return sentBytes.length === expectedBytes.length && timingSafeEqual(sentBytes, expectedBytes);
}

/** Returns the detail of the failure `no_role`, which shows an operator what to set. */
function noRoleText({ name, values, hasOverage }: Person, { role_claim: claim }: OidcSettings): string {
  if (hasOverage) return `${name} is in too many groups: the provider sends them elsewhere than in the token`;
  if (values.length === 0) return `${name} has no ${claim}`;
  return `${name} has ${claim} ${values.slice(0, VALUES_SHOWN_MAX).join(', ')}`;
}
