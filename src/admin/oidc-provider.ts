/**
 * One OpenID Connect provider: its document, its keys, and the exchange of a code for claims. oidc.ts loads
 * this file when the first operator signs in there, because the client library takes memory. Main thread of
 * the gateway.
 *
 * Must hold: nothing is fetched but the issuer's document and what it names: token, keys, userinfo. No
 * redirect is followed. Signatures are always checked, though the specification would let TLS do
 * (test/unit/admin/oidc.test.ts, test/hostile/oidc.test.ts).
 */
import * as client from 'openid-client';
import type { Clock } from '../core/clock.js';
import { type Claims, claimAt, type OidcSettings } from './oidc-claims.js';
import { type SignInFailure, SignInError } from './oidc-pages.js';

/** Of any document. Keys and tokens have some kilobytes, a token with a thousand groups a hundred. */
const BODY_BYTES_MAX = 1024 * 1024;
/** After so long the document is read again. The library renews keys by itself. */
const DOCUMENT_MS = 3_600_000;
/** Servers take request lines of 8 KiB. Each session keeps an address. */
const LOGOUT_URL_CHARS_MAX = 6_000;

/** What a sign-in began with, and is finished with. */
export interface Proofs {
  readonly state: string;
  readonly nonce: string;
  /** PKCE's. */
  readonly verifier: string;
}

/** What a sign-in at the provider has come to. */
export interface SignInResult {
  readonly claims: Claims;
  /** Where to sign out of the provider; undefined if it has no such address. */
  readonly logoutUrl: string | undefined;
}

export class OidcProvider {
  readonly #settings: OidcSettings;
  readonly #clock: Clock;
  #configuration: Promise<client.Configuration> | undefined;
  #endMs = 0;

  constructor(settings: OidcSettings, clock: Clock) {
    this.#settings = settings;
    this.#clock = clock;
  }

  /** Where to send the browser. Rejects with a SignInError if the provider's document cannot be had. */
  async addressFor({ state, nonce, verifier }: Proofs): Promise<string> {
    const configuration = await this.#configured();
    const challenge = await client.calculatePKCECodeChallenge(verifier);
    try {
      return client.buildAuthorizationUrl(configuration, {
        redirect_uri: this.#settings.redirect_url,
        scope: [...new Set(['openid', ...this.#settings.scopes])].join(' '),
        code_challenge: challenge,
        code_challenge_method: 'S256',
        state,
        nonce,
      }).href;
    } catch (error) {
      throw failureOf(error);
    }
  }

  /**
   * Who it is that the provider sent back with `query`: claims of the id token, and of userinfo if the token
   * lacks the role or the name. Rejects with a SignInError.
   */
  async resultFrom(query: string, { state, nonce, verifier }: Proofs): Promise<SignInResult> {
    const configuration = await this.#configured();
    const address = new URL(this.#settings.redirect_url);
    address.search = query;
    try {
      const tokens = await client.authorizationCodeGrant(configuration, address, {
        expectedState: state,
        expectedNonce: nonce,
        pkceCodeVerifier: verifier,
        idTokenExpected: true,
      });
      const claims = tokens.claims()!;
      const logoutUrl = this.#logoutUrl(configuration, tokens.id_token!);
      const { role_claim: role, name_claim: name } = this.#settings;
      const complete = [role, name].every((path) => claimAt(claims, path) !== undefined);
      if (complete || configuration.serverMetadata().userinfo_endpoint === undefined) {
        return { claims, logoutUrl };
      }
      const more = await client.fetchUserInfo(configuration, tokens.access_token, claims.sub);
      return { claims: { ...more, ...claims }, logoutUrl };
    } catch (error) {
      throw failureOf(error);
    }
  }

  /**
   * RP-initiated logout. With the id token the provider need not ask who signs out; some want it. One that is
   * too long for an address is left out.
   */
  #logoutUrl(configuration: client.Configuration, idToken: string): string | undefined {
    if (configuration.serverMetadata().end_session_endpoint === undefined) return undefined;
    const back = { post_logout_redirect_uri: new URL('/', this.#settings.redirect_url).href };
    const hinted = { ...back, id_token_hint: idToken };
    try {
      const { href } = client.buildEndSessionUrl(configuration, hinted);
      return href.length <= LOGOUT_URL_CHARS_MAX ? href : client.buildEndSessionUrl(configuration, back).href;
    } catch {
      // An address that is none, or not HTTPS. It stops no sign-in.
      return undefined;
    }
  }

  #configured(): Promise<client.Configuration> {
    const nowMs = this.#clock.monotonicMs();
    if (this.#configuration !== undefined && nowMs < this.#endMs) return this.#configuration;
    this.#endMs = nowMs + DOCUMENT_MS;
    const reading = this.#discover().catch((error: unknown) => {
      // The next one to sign in tries again.
      if (this.#configuration === reading) this.#configuration = undefined;
      throw strangerOf(error) ?? failureOf(error);
    });
    this.#configuration = reading;
    return reading;
  }

  async #discover(): Promise<client.Configuration> {
    const { issuer, client_id: clientId, client_secret: secret } = this.#settings;
    const configuration = await client.discovery(
      new URL(issuer),
      clientId,
      { [client.clockTolerance]: this.#settings.clock_tolerance_seconds },
      secret === undefined ? client.None() : authenticationWith(secret),
      {
        timeout: this.#settings.timeout_seconds,
        [client.customFetch]: boundedFetch,
        execute: [
          client.enableNonRepudiationChecks,
          // The settings allow it on loopback alone. Deprecated as a mark of caution.
          // eslint-disable-next-line @typescript-eslint/no-deprecated
          ...(issuer.startsWith('http:') ? [client.allowInsecureRequests] : []),
        ],
      },
    );
    const named = configuration.serverMetadata().issuer;
    // The library lets an issuer of Entra ID pass that stands for every tenant.
    if (URL.canParse(named) && new URL(named).href === new URL(issuer).href) return configuration;
    throw new SignInError('wrong_provider', namesIssuer(named));
  }
}

/** As a header, which each provider must take, unless the provider's document leaves it out. */
function authenticationWith(secret: string): client.ClientAuth {
  const basic = client.ClientSecretBasic(secret);
  const post = client.ClientSecretPost(secret);
  return (server, metadata, body, headers) => {
    const taken = server.token_endpoint_auth_methods_supported ?? ['client_secret_basic'];
    (taken.includes('client_secret_basic') ? basic : post)(server, metadata, body, headers);
  };
}

/** The library gives the signal of its timeout, which holds for the body too. */
async function boundedFetch(url: string, options: client.CustomFetchOptions): Promise<Response> {
  const response = await fetch(url, { ...options, redirect: 'manual' } as RequestInit);
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of (response.body ?? []) as AsyncIterable<Uint8Array>) {
    bytes += chunk.byteLength;
    if (bytes > BODY_BYTES_MAX) {
      throw new SignInError('bad_answer', `${new URL(url).pathname} has more than ${BODY_BYTES_MAX} bytes`);
    }
    chunks.push(chunk);
  }
  const { status, headers } = response;
  return new Response(bytes === 0 ? null : Buffer.concat(chunks), { status, headers });
}

const namesIssuer = (issuer: unknown): string => `its document names the issuer ${JSON.stringify(issuer)}`;

/** The library's refusal of a document that names another issuer. */
function strangerOf(error: unknown): SignInError | undefined {
  if (!(error instanceof client.ClientError)) return undefined;
  const { body, attribute } = (error.cause ?? {}) as { attribute?: string; body?: { issuer?: unknown } };
  return attribute === 'issuer' ? new SignInError('wrong_provider', namesIssuer(body?.issuer)) : undefined;
}

/** By the codes of openid-client. All others are answers that are not what they should be. */
const FAILURES: Readonly<Record<string, SignInFailure>> = {
  OAUTH_TIMEOUT: 'unreachable',
  OAUTH_ABORT: 'unreachable',
  OAUTH_JWT_TIMESTAMP_CHECK_FAILED: 'wrong_time',
  OAUTH_JWT_CLAIM_COMPARISON_FAILED: 'wrong_token',
  OAUTH_KEY_SELECTION_FAILED: 'wrong_token',
  OAUTH_UNSUPPORTED_OPERATION: 'wrong_token',
};

/** The library's own words are fixed texts: no token is in them. */
function failureOf(error: unknown): SignInError {
  const known = causesOf(error).find((cause) => cause instanceof SignInError);
  if (known !== undefined) return known;
  if (error instanceof client.AuthorizationResponseError) {
    return new SignInError('refused', wordsOf(error.error, error.error_description));
  }
  if (error instanceof client.ResponseBodyError) {
    const failure = error.error === 'invalid_client' ? 'wrong_client' : 'refused_code';
    return new SignInError(failure, wordsOf(error.error, error.error_description));
  }
  if (error instanceof client.WWWAuthenticateChallengeError) {
    return new SignInError('wrong_client', `it answered with status ${error.status}`);
  }
  const causes = causesOf(error);
  // What cannot be parsed is quoted by the one who tried, and may be a token.
  const words = causes
    .filter((cause) => !(cause instanceof SyntaxError))
    .map(textOf)
    .join(': ');
  // How fetch says that there is no connection, or that it broke.
  if (causes.some((cause) => cause instanceof TypeError && cause.cause !== undefined)) {
    return new SignInError('unreachable', words);
  }
  const code = error instanceof client.ClientError ? error.code : undefined;
  return new SignInError(FAILURES[code ?? ''] ?? 'bad_answer', words);
}

/** An error and those behind it; a library may hang other things there. */
function causesOf(error: unknown): Error[] {
  return error instanceof Error ? [error, ...causesOf(error.cause)] : [];
}

function textOf(error: Error): string {
  const { code } = error as NodeJS.ErrnoException;
  return error.message === '' ? (code ?? error.name) : error.message;
}

const wordsOf = (error: string, description: string | undefined): string =>
  description === undefined ? error : `${error}: ${description}`;
