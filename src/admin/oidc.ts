/**
 * Signs operators in to the console at an OpenID Connect provider: authorization code flow with PKCE, state
 * and nonce. server.ts calls it for two paths: one redirects the browser to the provider, to the other the
 * provider redirects it back. Main thread of the gateway.
 *
 * A pending sign-in takes no memory here, so nobody can exhaust it. The browser keeps a random cookie; state,
 * nonce and PKCE's verifier are derived from it with a key that only this process knows. So the end of the
 * process ends all pending sign-ins.
 *
 * Must hold: a code is accepted only from the browser that began the sign-in, and in time. So the time in the
 * cookie is part of what the proofs are derived from (test/unit/admin/oidc.test.ts).
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { OIDC_CALLBACK_PATH, OIDC_START_PATH } from '../config/oidc-schema.js';
import type { Clock } from '../core/clock.js';
import type { Identify } from '../core/roles.js';
import type { Log } from '../telemetry/log.js';
import { type AdminResponse, cookieOf, HOST_COOKIE, type RequestHead } from './http.js';
import { type OidcSettings, type Person, personOf, roleOf } from './oidc-claims.js';
import { PAGE_HEADERS, pageOf, PENDING_SECONDS, SignInError } from './oidc-failures.js';
import type { OidcProvider, Proofs } from './oidc-provider.js';
import type { NewSession } from './sessions.js';
import { WrongTokens } from './token.js';

const KEY_BYTES = 32;
const NONCE_BYTES = 32;
const MS_PER_SECOND = 1_000;
/** How many requests of browsers are served at a time; each may have documents of 1 MiB in memory. */
const EXCHANGES_MAX = 16;
/**
 * How many used states are kept while their cookies are valid, some 150 bytes each. Beyond that the oldest is
 * dropped: the provider then rejects its code, which is valid once.
 */
const USED_MAX = 10_000;
const VALUES_SHOWN_MAX = 20;

interface OidcOptions {
  /** Returns the settings of now, because a reload may change them; undefined without this sign-in. */
  readonly settings: () => OidcSettings | undefined;
  /** Opens a console session and returns its `set-cookie`. */
  readonly openSession: (head: RequestHead, session: NewSession, secure: boolean) => string;
  /** The admin port: part of the cookie's name, because the ports of a host share cookies. */
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
  /** Proofs are derived with it. */
  readonly #key = randomBytes(KEY_BYTES);
  /** When each used state may be dropped, in the order of use. */
  readonly #usedEndMs = new Map<string, number>();
  readonly #failures: WrongTokens;
  #exchanges = 0;
  #provider: { readonly settings: OidcSettings; readonly opened: Promise<OidcProvider> } | undefined;

  constructor(options: OidcOptions) {
    this.#options = options;
    this.#failures = new WrongTokens(options.clock);
  }

  /** For the console's sign-in page; undefined without this sign-in. */
  view(): OidcView | undefined {
    const settings = this.#options.settings();
    if (settings === undefined) return undefined;
    // On the host that browsers are redirected back to, so that the cookie is sent there.
    return {
      issuer: new URL(settings.issuer).host,
      url: new URL(OIDC_START_PATH, settings.redirect_url).href,
    };
  }

  /**
   * Responds to a request for one of the two paths: with a redirect, or with an error page. `address` and
   * `from`: the browser's address, in bytes and as text. Never rejects.
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
    const proofs = this.#proofsOf(this.#pendingIn(head, settings), settings);
    const [state = '', ...more] = new URLSearchParams(head.query).getAll('state');
    if (more.length > 0 || !isSame(state, proofs.state)) throw new SignInError('not_begun');
    this.#markUsed(state);
    const provider = await this.#providerOf(settings);
    const { claims, logoutUrl } = await provider.resultFrom(head.query, proofs);
    const person = personOf(claims, settings);
    const identify = this.#identifyOf(person, settings);
    const operator = identify();
    if (operator === undefined) throw new SignInError('no_role', noRoleText(person, settings));
    const fields = { ...operator, sub: person.sub, from };
    this.#options.log.record('an operator signed in at the OpenID Connect provider', fields);
    // The session's cookie is SameSite=Strict, so a browser that comes from the provider's site does not send
    // it to `/`. The page there needs none, and its own requests have it.
    return redirectTo('/', [
      this.#options.openSession(head, { identify, logoutUrl }, isSecure(settings)),
      this.#cookie(settings, '', 0),
    ]);
  }

  /** A session follows the settings of now: if a reload takes a role from a group, nobody has it any more. */
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

  /** Loads the client library at its first use. */
  #providerOf(settings: OidcSettings): Promise<OidcProvider> {
    if (this.#provider?.settings === settings) return this.#provider.opened;
    const opened = import('./oidc-provider.js').then(
      ({ OidcProvider }) => new OidcProvider(settings, this.#options.clock),
    );
    this.#provider = { settings, opened };
    // Loading fails while file descriptors have run out. The next sign-in tries again.
    opened.catch(() => {
      if (this.#provider?.opened === opened) this.#provider = undefined;
    });
    return opened;
  }

  /** Monotonic: no other process reads the cookies. */
  #nowSeconds(): number {
    return Math.floor(this.#options.clock.monotonicMs() / MS_PER_SECOND);
  }

  /**
   * Returns the cookie of a pending sign-in. Throws if it is missing or too old. Nobody can change the time
   * in it, because another state would be derived.
   */
  #pendingIn(head: RequestHead, settings: OidcSettings): string {
    const cookie = cookieOf(head, this.#cookieName(settings));
    const [, seconds] = /^(\d{1,12})\.[\w-]{43}$/.exec(cookie) ?? [];
    const age = this.#nowSeconds() - Number(seconds ?? -Infinity);
    if (age < 0 || age >= PENDING_SECONDS) throw new SignInError('not_begun');
    return cookie;
  }

  /**
   * Derived from the issuer too: a sign-in cannot begin at one provider and end at another after a reload.
   */
  #proofsOf(cookie: string, { issuer, client_id: clientId }: OidcSettings): Proofs {
    const proofOf = (use: string): string =>
      createHmac('sha256', this.#key)
        .update(JSON.stringify([use, issuer, clientId, cookie]))
        .digest('base64url');
    return { state: proofOf('state'), nonce: proofOf('nonce'), verifier: proofOf('verifier') };
  }

  /** Throws if the state was used before. */
  #markUsed(state: string): void {
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
    const { failure, message: detail } = known;
    // A flood is not logged, and its responses do not say why.
    if (failure === 'too_many') return pageOf(known);
    if (!this.#failures.record(address)) return pageOf(new SignInError('too_many'));
    const fields = { failure, detail, from };
    this.#options.log.record('a sign-in at the OpenID Connect provider failed', fields, 'warn');
    return pageOf(known);
  }

  #cookieName(settings: OidcSettings): string {
    return `${isSecure(settings) ? HOST_COOKIE : ''}tollgate-sign-in-${this.#options.port()}`;
  }

  /** SameSite=Lax, because the browser comes back from the provider's site. */
  #cookie(settings: OidcSettings, value: string, seconds: number): string {
    const [path, secure] = isSecure(settings) ? ['/', '; Secure'] : [OIDC_START_PATH, ''];
    return `${this.#cookieName(settings)}=${value}; Path=${path}; Max-Age=${seconds}; HttpOnly; SameSite=Lax${secure}`;
  }
}

const isSecure = ({ redirect_url: url }: OidcSettings): boolean => url.startsWith('https:');

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
