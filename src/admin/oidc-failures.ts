/**
 * Describes why a sign-in at an OpenID Connect provider has failed: the error, and its page, which names the
 * cause and who can fix it. oidc.ts and oidc-provider.ts throw SignInError; oidc.ts sends the page. Main
 * thread.
 *
 * Must hold: the page shows no token, authorization code or secret, so whoever throws a SignInError puts none
 * of these into `detail`. `detail` may be the provider's or the browser's text, so the page escapes it. Test:
 * test/unit/admin/oidc.test.ts.
 */
import { OIDC_START_PATH } from '../config/oidc-schema.js';
import { clipped } from '../core/wrong-input.js';
import type { AdminResponse } from './http.js';

interface FailurePage {
  readonly status: number;
  /** What has happened. */
  readonly problem: string;
  /** Who can fix it, and how. */
  readonly remedy: string;
}

const AGAIN = 'Sign in again from the start.';
const TELL_OPERATOR = 'Tell whoever runs this gateway';

/** How long a sign-in may take: long enough to find a second factor. oidc.ts enforces it. */
export const PENDING_SECONDS = 600;

/** The page of each failure. A comment says when it is thrown: the first failures by oidc.ts. */
const FAILURES = {
  // The settings have no admin.oidc.
  not_configured: {
    status: 404,
    problem: 'This gateway has no sign-in at a provider.',
    remedy: `Use the admin token. ${TELL_OPERATOR}: it needs the setting admin.oidc.`,
  },
  // The sign-in's cookie is missing, older than PENDING_SECONDS, or of another state. Or the process that has
  // made the cookie has ended, and nobody knows its key any more.
  not_begun: {
    status: 400,
    problem: `This browser has not begun this sign-in here, or it took longer than ${PENDING_SECONDS / 60} minutes, or the gateway has been restarted since.`,
    remedy: AGAIN,
  },
  // The state has come back before.
  used: { status: 400, problem: 'This sign-in has been finished already.', remedy: AGAIN },
  // REQUESTS_MAX requests are served now, or sign-ins of this address fail too often.
  too_many: {
    status: 429,
    problem: 'Too many sign-ins fail or are under way.',
    remedy: 'Wait for some seconds, then sign in again from the start.',
  },
  // `admin.oidc.roles` has none of the person's values, and the settings have no `default_role`.
  no_role: {
    status: 403,
    problem: 'The provider has signed you in, but nothing that it says of you has a role at this gateway.',
    remedy: `Ask whoever runs the provider for a group that has one. ${TELL_OPERATOR} if you have it: admin.oidc.roles and role_claim say which.`,
  },
  // oidc-provider.ts throws this failure and the next ones. The provider sent the browser back with an error.
  refused: {
    status: 403,
    problem: 'The provider has not signed you in.',
    remedy: `Ask whoever runs the provider whether you may use this application. ${AGAIN}`,
  },
  // The provider responded with an error when the gateway sent the code.
  refused_code: {
    status: 400,
    problem:
      'The provider does not take the code that your browser brought. It has been used already, or it has expired.',
    remedy: `${AGAIN} ${TELL_OPERATOR} if it happens again: admin.oidc.client_id and redirect_url must be as they are registered at the provider.`,
  },
  // The provider does not accept the gateway's id and secret.
  wrong_client: {
    status: 502,
    problem: 'The provider does not take this gateway for the client that it says it is.',
    remedy: `${TELL_OPERATOR}: admin.oidc.client_id and client_secret must be as they are registered at the provider.`,
  },
  // No connection to the provider, or no whole response in time.
  unreachable: {
    status: 502,
    problem: 'The gateway cannot reach the provider, or it does not answer in time.',
    remedy: `Try again later, or use the admin token. ${TELL_OPERATOR} if it happens again: the gateway's host must reach the provider.`,
  },
  // The provider's document names another issuer.
  wrong_provider: {
    status: 502,
    problem: 'The provider is not the one that the settings name.',
    remedy: `${TELL_OPERATOR}: admin.oidc.issuer must be the name that the provider gives itself, and not one that stands for all of its tenants.`,
  },
  // A claim of the token is for another sign-in or client, or no key of the provider fits its signature.
  wrong_token: {
    status: 403,
    problem:
      'The provider’s token is not for this sign-in at this gateway, or the provider has not signed it.',
    remedy: `${AGAIN} ${TELL_OPERATOR} if it happens again.`,
  },
  // The token is not valid now, nor within `admin.oidc.clock_tolerance_seconds`.
  wrong_time: {
    status: 403,
    problem: 'By the clock of this gateway, the provider’s token has expired or is not valid yet.',
    remedy: `${TELL_OPERATOR} or the provider: one of the clocks is wrong.`,
  },
  // Any other error; oidc.ts throws this failure too.
  bad_answer: {
    status: 502,
    problem: 'The provider’s answer is not as it must be: forged, incomplete or broken.',
    remedy: `${TELL_OPERATOR} or the provider: what came is in the log of the gateway.`,
  },
} satisfies Readonly<Record<string, FailurePage>>;

export type SignInFailure = keyof typeof FAILURES;

/**
 * `Retry-After` of `too_many`. Failures of an address are counted over one second (FailureLimiter), and
 * most requests under way end within some seconds.
 */
const WAIT_SECONDS = 5;
/** A provider's own message may be long. */
const DETAIL_CHARS_MAX = 300;

/** Why a sign-in failed. `message` is `detail`, cut to DETAIL_CHARS_MAX; empty if there is none. */
export class SignInError extends Error {
  readonly failure: SignInFailure;

  constructor(failure: SignInFailure, detail = '') {
    super(clipped(detail, DETAIL_CHARS_MAX));
    this.failure = failure;
  }
}

/**
 * Headers of this page and of the redirects of oidc.ts. With these headers the browser loads and runs
 * nothing, sends no form, shows the page in no other page's frame, and sends no other site the address from
 * which it comes (Referer). http.ts adds `cache-control: no-store`, as to every response.
 */
export const PAGE_HEADERS: readonly (readonly [string, string])[] = [
  [
    'content-security-policy',
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  ],
  ['x-frame-options', 'DENY'],
  ['referrer-policy', 'no-referrer'],
];

/** Returns the response to the browser whose sign-in has failed. */
export function pageOf({ failure, message }: SignInError): AdminResponse {
  const { status, problem, remedy }: FailurePage = FAILURES[failure];
  const detail = message === '' ? '' : `<p>Detail: <q>${escaped(message)}</q></p>\n`;
  const againLink = failure === 'not_configured' ? '' : `<a href="${OIDC_START_PATH}">Sign in again</a>, or `;
  return {
    status,
    retryAfterSeconds: failure === 'too_many' ? WAIT_SECONDS : undefined,
    contentType: 'text/html; charset=utf-8',
    headers: PAGE_HEADERS,
    body: `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>Not signed in – Tollgate</title>
<h1>You are not signed in</h1>
<p>${escaped(problem)}</p>
${detail}<p>${escaped(remedy)}</p>
<p>${againLink}<a href="/">go to the console</a>.</p>
</html>
`,
  };
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (character) => ENTITIES[character]!);
}
