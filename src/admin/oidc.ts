/**
 * Signing in to the console at an OpenID Connect provider: authorization code flow with PKCE, state and
 * nonce. server.ts calls it for two addresses: one sends the browser to the provider, to the other the
 * provider sends it back. Main thread of the gateway.
 *
 * A sign-in that is under way takes no memory here, so nobody can fill it. The browser keeps a random cookie;
 * state, nonce and PKCE's verifier are derived from it with a key that only this process knows.
 *
 * Must hold: the browser that brings a code must be the one that began, and in time: so the time in the
 * cookie is signed with it. The end of a process ends all sign-ins that are under way
 * (test/unit/admin/oidc.test.ts).
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { OIDC_CALLBACK_PATH, OIDC_START_PATH } from '../config/oidc-schema.js';
import type { Clock } from '../core/clock.js';
import type { Identify } from '../core/roles.js';
import type { Log } from '../telemetry/log.js';
import { WrongTokens } from './authentication.js';
import type { AdminResponse, RequestHead } from './http.js';
import { type OidcSettings, type Person, personOf, roleOf } from './oidc-claims.js';
import { PAGE_HEADERS, pageOf, SignInError } from './oidc-pages.js';
import type { OidcProvider, Proofs } from './oidc-provider.js';
import type { NewSession } from './sessions.js';

const KEY_BYTES = 32;
const NONCE_BYTES = 32;
/** Long enough for a second factor that is looked for. */
const PENDING_SECONDS = 600;
const MS_PER_SECOND = 1_000;
/** Exchanges with the provider at a time; each may have documents of 1 MiB in memory. */
const EXCHANGES_MAX = 16;
/**
 * States that have been used and whose cookies are still young, some 150 bytes each. Beyond it the oldest is
 * forgotten: its code is refused by the provider, which has given it out once.
 */
const USED_MAX = 10_000;
const VALUES_SHOWN_MAX = 20;

export interface OidcOptions {
  /** Of the moment: a reload may change them. Undefined while there is no such sign-in. */
  readonly settings: () => OidcSettings | undefined;
  /** Opens a session and returns its `set-cookie`. */
  readonly openSession: (head: RequestHead, session: NewSession, secure: boolean) => string;
  /** Of the admin interface: part of the cookie's name, because ports of a host share cookies. */
  readonly port: () => number;
  readonly clock: Clock;
  readonly log: Log;
}

export interface OidcView {
  /** The provider's host. */
  readonly issuer: string;
  /** Where a browser begins. */
  readonly url: string;
}

export class OidcSignIn {
  readonly #options: OidcOptions;
  readonly #key = randomBytes(KEY_BYTES);
  /** When each used state may be forgotten, in the order of use. */
  readonly #usedEndMs = new Map<string, number>();
  readonly #failures: WrongTokens;
  #exchanges = 0;
  #provider: { readonly settings: OidcSettings; readonly opened: Promise<OidcProvider> } | undefined;

  constructor(options: OidcOptions) {
    this.#options = options;
    this.#failures = new WrongTokens(options.clock);
  }

  /** What the console's sign-in page shows; undefined without such a sign-in. */
  view(): OidcView | undefined {
    const settings = this.#options.settings();
    if (settings === undefined) return undefined;
    // The address that browsers are sent back to, so that the cookie is of the same host.
    return {
      issuer: new URL(settings.issuer).host,
      url: new URL(OIDC_START_PATH, settings.redirect_url).href,
    };
  }

  /**
   * Answers a request for one of the two addresses: with a redirect, or with a page that says what went
   * wrong. `address` and `from`: of the browser, in bytes and as text. Never rejects.
   */
  async serve(head: RequestHead, address: ArrayBuffer, from: string): Promise<AdminResponse> {
    const settings = this.#options.settings();
    try {
      if (settings === undefined) throw new SignInError('not_configured');
      if (this.#exchanges >= EXCHANGES_MAX) throw new SignInError('too_many');
      this.#exchanges += 1;
      try {
        return await (head.path === OIDC_CALLBACK_PATH
          ? this.#finish(head, settings, from)
          : this.#start(settings));
      } finally {
        this.#exchanges -= 1;
      }
    } catch (error) {
      return this.#failed(error, address, from);
    }
  }

  async #start(settings: OidcSettings): Promise<AdminResponse> {
    const cookie = `${this.#nowSeconds()}.${randomBytes(NONCE_BYTES).toString('base64url')}`;
    const provider = await this.#providerOf(settings);
    const address = await provider.addressFor(this.#proofsOf(cookie, settings));
    return redirectTo(address, [this.#cookie(settings, cookie, PENDING_SECONDS)]);
  }

  async #finish(head: RequestHead, settings: OidcSettings, from: string): Promise<AdminResponse> {
    const proofs = this.#proofsOf(this.#pendingIn(head), settings);
    const [state = '', ...more] = new URLSearchParams(head.query).getAll('state');
    if (more.length > 0 || !isSame(state, proofs.state)) throw new SignInError('not_begun');
    this.#use(state);
    const provider = await this.#providerOf(settings);
    const { claims, logoutUrl } = await provider.resultFrom(head.query, proofs);
    const person = personOf(claims, settings);
    const identify = this.#identifyOf(person, settings);
    const operator = identify();
    if (operator === undefined) throw new SignInError('no_role', noRoleText(person, settings));
    const { sub } = person;
    this.#options.log.info('an operator signed in at the OpenID Connect provider', {
      ...operator,
      sub,
      from,
    });
    const secure = settings.redirect_url.startsWith('https:');
    // The page at / needs no cookie. Its own requests come from this site, so they have the session's, though
    // a browser that comes from the provider's would not send a SameSite=Strict cookie to / itself.
    return redirectTo('/', [
      this.#options.openSession(head, { identify, logoutUrl }, secure),
      this.#cookie(settings, '', 0),
    ]);
  }

  /** A session follows the settings of the moment: a role that is taken from a group is gone at once. */
  #identifyOf(
    { name, values }: Person,
    { issuer, client_id: clientId, role_claim: claim }: OidcSettings,
  ): Identify {
    return () => {
      const now = this.#options.settings();
      if (now?.issuer !== issuer || now.client_id !== clientId || now.role_claim !== claim) return undefined;
      const role = roleOf(values, now);
      return role === undefined ? undefined : { who: `oidc:${name}`, role };
    };
  }

  /** Loads the client library when it is first wanted. */
  #providerOf(settings: OidcSettings): Promise<OidcProvider> {
    if (this.#provider?.settings === settings) return this.#provider.opened;
    const opened = import('./oidc-provider.js').then(
      ({ OidcProvider }) => new OidcProvider(settings, this.#options.clock),
    );
    this.#provider = { settings, opened };
    // Nothing can be loaded while file descriptors have run out. The next one to sign in tries again.
    opened.catch(() => {
      if (this.#provider?.opened === opened) this.#provider = undefined;
    });
    return opened;
  }

  #nowSeconds(): number {
    return Math.floor(this.#options.clock.monotonicMs() / MS_PER_SECOND);
  }

  /** The cookie of a sign-in that is under way. Who changes the time in it changes the state too. */
  #pendingIn(head: RequestHead): string {
    const start = `${this.#cookieName()}=`;
    const pair = head.cookie.split(/; */).find((part) => part.startsWith(start));
    const cookie = pair?.slice(start.length) ?? '';
    const [, seconds] = /^(\d{1,12})\.[\w-]{43}$/.exec(cookie) ?? [];
    const age = this.#nowSeconds() - Number(seconds ?? -Infinity);
    if (age < 0 || age >= PENDING_SECONDS) throw new SignInError('not_begun');
    return cookie;
  }

  /** Of the issuer too: what began at one provider is not finished at another that a reload has named. */
  #proofsOf(cookie: string, { issuer, client_id: clientId }: OidcSettings): Proofs {
    const proofOf = (use: string): string =>
      createHmac('sha256', this.#key)
        .update(JSON.stringify([use, issuer, clientId, cookie]))
        .digest('base64url');
    return { state: proofOf('state'), nonce: proofOf('nonce'), verifier: proofOf('verifier') };
  }

  /** Throws if the state has been used. */
  #use(state: string): void {
    const nowMs = this.#options.clock.monotonicMs();
    for (const [used, endMs] of this.#usedEndMs) {
      if (endMs > nowMs && this.#usedEndMs.size < USED_MAX) break;
      this.#usedEndMs.delete(used);
    }
    if (this.#usedEndMs.has(state)) throw new SignInError('used');
    this.#usedEndMs.set(state, nowMs + PENDING_SECONDS * MS_PER_SECOND);
  }

  #failed(error: unknown, address: ArrayBuffer, from: string): AdminResponse {
    const known = error instanceof SignInError ? error : new SignInError('bad_answer', String(error));
    // A flood is neither logged nor told why.
    if (known.failure === 'too_many') return pageOf(known);
    if (!this.#failures.record(address)) return pageOf(new SignInError('too_many'));
    const { failure, message: detail } = known;
    this.#options.log.warn('a sign-in at the OpenID Connect provider failed', { failure, detail, from });
    return pageOf(known);
  }

  #cookieName(): string {
    return `tollgate-sign-in-${this.#options.port()}`;
  }

  /** SameSite=Lax, because the browser comes back from the provider's site. */
  #cookie({ redirect_url: url }: OidcSettings, value: string, seconds: number): string {
    const secure = url.startsWith('https:') ? '; Secure' : '';
    return `${this.#cookieName()}=${value}; Path=${OIDC_START_PATH}; Max-Age=${seconds}; HttpOnly; SameSite=Lax${secure}`;
  }
}

function redirectTo(address: string, cookies: readonly string[]): AdminResponse {
  const set = cookies.map((cookie): readonly [string, string] => ['set-cookie', cookie]);
  const headers = [['location', address] as const, ...set, ...PAGE_HEADERS];
  return { status: 303, contentType: 'text/plain; charset=utf-8', body: '', headers };
}

function isSame(sent: string, wanted: string): boolean {
  const [left, right] = [Buffer.from(sent), Buffer.from(wanted)];
  return left.length === right.length && timingSafeEqual(left, right);
}

function noRoleText({ name, values, overflown }: Person, { role_claim: claim }: OidcSettings): string {
  if (overflown) return `${name} is in too many groups: the provider sends them elsewhere than in the token`;
  if (values.length === 0) return `${name} has no ${claim}`;
  return `${name} has ${claim} ${values.slice(0, VALUES_SHOWN_MAX).join(', ')}`;
}
