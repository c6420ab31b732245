/**
 * The client of one OpenID Connect provider: reads its discovery document (here the _document_) and its keys,
 * and exchanges an authorization code for claims. oidc.ts loads this file when the first operator signs in
 * there, because the client library (openid-client) takes memory. Main thread of the gateway.
 *
 * Must hold: only the issuer's document and the addresses in the document (token, keys, userinfo) are
 * fetched, and no redirect is followed. Signatures are always checked, although the specification accepts TLS
 * instead. Each failure is a SignInError without a token, a code or a secret, because its text goes to a page
 * and to the log (test/unit/admin/oidc.test.ts, test/hostile/oidc.test.ts).
 */
import * as client from 'openid-client';
import type { Clock } from '../core/clock.js';
import { type Claims, claimAt, type OidcSettings } from './oidc-claims.js';
import { type SignInFailure, SignInError } from './oidc-failures.js';

/** The longest response. Keys and tokens have some kilobytes; a token with a thousand groups has 100 KB. */
const BODY_BYTES_MAX = 1024 * 1024;
/** How long a document is used after it was requested. The library itself fetches keys again when needed. */
const DOCUMENT_MS = 3_600_000;
/** Less than the 8 KiB of a request line that servers accept. Each console session keeps such an address. */
const LOGOUT_URL_CHARS_MAX = 6_000;

/** The secrets that tie the end of a sign-in to its beginning. */
export interface Proofs {
  readonly state: string;
  readonly nonce: string;
  /** The code verifier of PKCE. */
  readonly verifier: string;
}

interface SignInResult {
  readonly claims: Claims;
  /** Where to sign out of the provider; undefined if the provider has no such address. */
  readonly logoutUrl: string | undefined;
}

export class OidcProvider {
  readonly #settings: OidcSettings;
  readonly #clock: Clock;
  /** What the library has read of the document; undefined before the first request, and after a failure. */
  #configuration: Promise<client.Configuration> | undefined;
  /** When the document becomes too old to be used, by the monotonic clock. */
  #staleMs = 0;

  constructor(settings: OidcSettings, clock: Clock) {
    this.#settings = settings;
    this.#clock = clock;
  }

  /** Resolves with the address for the browser. Rejects with a SignInError if the document cannot be read. */
  async addressFor({ state, nonce, verifier }: Proofs): Promise<string> {
    const configuration = await this.#configured();
    // Outside of the `try`, because a digest of our own text does not fail.
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
   * Exchanges the code in `query` for the claims of the id token. Adds the claims of userinfo if the token
   * lacks the role or the name. `query` is that of the address to which the provider has sent the browser
   * back, without its question mark. Rejects with a SignInError.
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
      // Because of `idTokenExpected` the claims and the id token exist.
      const claims = tokens.claims()!;
      const logoutUrl = this.#logoutUrl(configuration, tokens.id_token!);
      const { role_claim: role, name_claim: name } = this.#settings;
      const isComplete = [role, name].every((path) => claimAt(claims, path) !== undefined);
      if (isComplete || configuration.serverMetadata().userinfo_endpoint === undefined) {
        return { claims, logoutUrl };
      }
      const userInfo = await client.fetchUserInfo(configuration, tokens.access_token, claims.sub);
      // The id token is signed, so its claims come before those of userinfo.
      return { claims: { ...userInfo, ...claims }, logoutUrl };
    } catch (error) {
      throw failureOf(error);
    }
  }

  /**
   * Returns the address of RP-initiated logout, in which some providers require the id token. A token that
   * makes the address too long is left out; the provider may then ask the person.
   */
  #logoutUrl(configuration: client.Configuration, idToken: string): string | undefined {
    if (configuration.serverMetadata().end_session_endpoint === undefined) return undefined;
    const parameters = { post_logout_redirect_uri: new URL('/', this.#settings.redirect_url).href };
    try {
      const { href } = client.buildEndSessionUrl(configuration, { ...parameters, id_token_hint: idToken });
      if (href.length <= LOGOUT_URL_CHARS_MAX) return href;
      return client.buildEndSessionUrl(configuration, parameters).href;
    } catch {
      // The provider's address is invalid or not HTTPS. The sign-in goes on without a way to sign out.
      return undefined;
    }
  }

  /** Resolves with what the library has read of the document. Sign-ins at the same time share a request. */
  #configured(): Promise<client.Configuration> {
    const nowMs = this.#clock.monotonicMs();
    if (this.#configuration !== undefined && nowMs < this.#staleMs) return this.#configuration;
    this.#staleMs = nowMs + DOCUMENT_MS;
    const discovered = this.#discover().catch((error: unknown) => {
      // After a failure the next sign-in requests the document again.
      if (this.#configuration === discovered) this.#configuration = undefined;
      throw otherIssuerErrorOf(error) ?? failureOf(error);
    });
    this.#configuration = discovered;
    return discovered;
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
          // The settings allow http: on loopback only. The library deprecates this function to warn of it.
          // oxlint-disable-next-line typescript/no-deprecated
          ...(issuer.startsWith('http:') ? [client.allowInsecureRequests] : []),
        ],
      },
    );
    const documentIssuer = configuration.serverMetadata().issuer;
    // The library accepts Entra ID's issuer that stands for every tenant, so the issuer is compared here too.
    if (URL.canParse(documentIssuer) && new URL(documentIssuer).href === new URL(issuer).href)
      return configuration;
    throw new SignInError('wrong_provider', issuerText(documentIssuer));
  }
}

/** Sends the secret as a header, which is the default, or in the body if the document lists only that. */
function authenticationWith(secret: string): client.ClientAuth {
  const basic = client.ClientSecretBasic(secret);
  const post = client.ClientSecretPost(secret);
  return (server, metadata, body, headers) => {
    const supported = server.token_endpoint_auth_methods_supported ?? ['client_secret_basic'];
    (supported.includes('client_secret_basic') ? basic : post)(server, metadata, body, headers);
  };
}

/**
 * A `fetch` for the library that rejects a body above BODY_BYTES_MAX and follows no redirect. `options` have
 * the signal of the library's timeout, which applies to the body too.
 */
async function boundedFetch(url: string, options: client.CustomFetchOptions): Promise<Response> {
  const response = await fetch(url, { ...options, redirect: 'manual' } as RequestInit);
  const chunks: Uint8Array[] = [];
  let bytesRead = 0;
  for await (const chunk of (response.body ?? []) as AsyncIterable<Uint8Array>) {
    bytesRead += chunk.byteLength;
    if (bytesRead > BODY_BYTES_MAX) {
      throw new SignInError('bad_answer', `${new URL(url).pathname} has more than ${BODY_BYTES_MAX} bytes`);
    }
    chunks.push(chunk);
  }
  const { status, headers } = response;
  return new Response(bytesRead === 0 ? null : Buffer.concat(chunks), { status, headers });
}

const issuerText = (issuer: unknown): string => `its document names the issuer ${JSON.stringify(issuer)}`;

/**
 * Returns an error if the library has rejected a document because it names another issuer; else undefined.
 * openid-client 6.9 makes this `cause`, but does not document it. If another version makes another `cause`,
 * the failure becomes `bad_answer`, and test/hostile/oidc.test.ts fails.
 */
function otherIssuerErrorOf(error: unknown): SignInError | undefined {
  if (!(error instanceof client.ClientError)) return undefined;
  const { body, attribute } = (error.cause ?? {}) as { attribute?: string; body?: { issuer?: unknown } };
  return attribute === 'issuer' ? new SignInError('wrong_provider', issuerText(body?.issuer)) : undefined;
}

/** What codes of openid-client mean. All others mean an invalid response: `bad_answer`. */
const FAILURE_OF_CODE: Readonly<Record<string, SignInFailure>> = {
  OAUTH_TIMEOUT: 'unreachable',
  OAUTH_ABORT: 'unreachable',
  OAUTH_JWT_TIMESTAMP_CHECK_FAILED: 'wrong_time',
  OAUTH_JWT_CLAIM_COMPARISON_FAILED: 'wrong_token',
  OAUTH_KEY_SELECTION_FAILED: 'wrong_token',
  OAUTH_UNSUPPORTED_OPERATION: 'wrong_token',
};

/**
 * Makes a SignInError from an error of a request to the provider. The library's own messages are fixed texts
 * without tokens. Texts of the provider may have any length: SignInError cuts them.
 */
function failureOf(error: unknown): SignInError {
  // `boundedFetch` throws a SignInError, which the library wraps.
  const signInError = causesOf(error).find((cause) => cause instanceof SignInError);
  if (signInError !== undefined) return signInError;
  if (error instanceof client.AuthorizationResponseError) {
    return new SignInError('refused', providerTextOf(error.error, error.error_description));
  }
  if (error instanceof client.ResponseBodyError) {
    const failure = error.error === 'invalid_client' ? 'wrong_client' : 'refused_code';
    return new SignInError(failure, providerTextOf(error.error, error.error_description));
  }
  if (error instanceof client.WWWAuthenticateChallengeError) {
    return new SignInError('wrong_client', `it answered with status ${error.status}`);
  }
  const causes = causesOf(error);
  // A SyntaxError is left out, because it quotes the text that it could not parse, which may be a token.
  const detail = causes
    .filter((cause) => !(cause instanceof SyntaxError))
    .map(textOf)
    .join(': ');
  // If there is no connection, or the connection breaks, fetch throws a TypeError with a cause.
  if (causes.some((cause) => cause instanceof TypeError && cause.cause !== undefined)) {
    return new SignInError('unreachable', detail);
  }
  const code = error instanceof client.ClientError ? error.code : undefined;
  return new SignInError(FAILURE_OF_CODE[code ?? ''] ?? 'bad_answer', detail);
}

/**
 * Returns an error and the errors in its chain of causes. The chain ends, because the library and fetch make
 * a new error with an older one as its cause.
 */
function causesOf(error: unknown): Error[] {
  return error instanceof Error ? [error, ...causesOf(error.cause)] : [];
}

/** Errors of connections that were tried at several addresses have a code but no message. */
function textOf(error: Error): string {
  const { code } = error as NodeJS.ErrnoException;
  return error.message === '' ? (code ?? error.name) : error.message;
}

const providerTextOf = (error: string, description: string | undefined): string =>
  description === undefined ? error : `${error}: ${description}`;
