/**
 * The error page of a failed sign-in at an OpenID Connect provider: the cause, and who can fix it. oidc.ts
 * and oidc-provider.ts throw SignInError; oidc.ts responds with the page. Main thread of the gateway.
 *
 * Must hold: the page shows no token, authorization code or secret, so whoever throws a SignInError puts none
 * into `detail` (test/unit/admin/oidc.test.ts).
 */
import { OIDC_START_PATH } from '../config/oidc-schema.js';
import { clipped } from '../core/wrong-input.js';
import type { AdminResponse } from './http.js';

interface FailureWords {
  readonly status: number;
  readonly what: string;
  /** Who can fix it, and how. */
  readonly remedy: string;
}

const AGAIN = 'Sign in again from the start.';
const BY_OPERATOR = 'Tell whoever runs this gateway';

const FAILURES = {
  not_configured: {
    status: 404,
    what: 'This gateway has no sign-in at a provider.',
    remedy: `Use the admin token. ${BY_OPERATOR}: it wants the setting admin.oidc.`,
  },
  not_begun: {
    status: 400,
    what: 'This browser has not begun this sign-in here, or it took longer than 10 minutes, or the gateway has been restarted since.',
    remedy: AGAIN,
  },
  used: { status: 400, what: 'This sign-in has been finished already.', remedy: AGAIN },
  too_many: {
    status: 429,
    what: 'Too many sign-ins fail or are under way.',
    remedy: 'Wait for some seconds, then sign in again from the start.',
  },
  refused: {
    status: 403,
    what: 'The provider has not signed you in.',
    remedy: `Ask whoever runs the provider whether you may use this application. ${AGAIN}`,
  },
  refused_code: {
    status: 400,
    what: 'The provider does not take the code that your browser brought. It has been used already, or it has expired.',
    remedy: `${AGAIN} ${BY_OPERATOR} if it happens again: client and admin.oidc.redirect_url must be those of the provider.`,
  },
  wrong_client: {
    status: 502,
    what: 'The provider does not take this gateway for the client that it says it is.',
    remedy: `${BY_OPERATOR}: admin.oidc.client_id and client_secret must be those of the provider.`,
  },
  unreachable: {
    status: 502,
    what: 'The gateway cannot reach the provider, or it does not answer in time.',
    remedy: `Try again later, or use the admin token. ${BY_OPERATOR} if it happens again: the gateway's host must reach the provider.`,
  },
  bad_answer: {
    status: 502,
    what: 'The provider’s answer is not as it must be: forged, incomplete or broken.',
    remedy: `${BY_OPERATOR}, or of the provider: what came is in the log of the gateway.`,
  },
  wrong_provider: {
    status: 502,
    what: 'The provider is not the one that the settings name.',
    remedy: `${BY_OPERATOR}: admin.oidc.issuer must be what the provider calls itself, and one tenant.`,
  },
  wrong_token: {
    status: 403,
    what: 'The provider’s token is not for this sign-in at this gateway, or the provider has not signed it.',
    remedy: `${AGAIN} ${BY_OPERATOR} if it happens again.`,
  },
  wrong_time: {
    status: 403,
    what: 'By the clock of this gateway, the provider’s token has expired or is not valid yet.',
    remedy: `${BY_OPERATOR}, or of the provider: one of the clocks is wrong.`,
  },
  no_role: {
    status: 403,
    what: 'The provider has signed you in, but nothing that it says of you has a role at this gateway.',
    remedy: `Ask whoever runs the provider for a group that has one. ${BY_OPERATOR} if you have it: admin.oidc.roles and role_claim say which.`,
  },
} satisfies Readonly<Record<string, FailureWords>>;

export type SignInFailure = keyof typeof FAILURES;

/** After `too_many`: sign-ins under way end, and failed ones are allowed again, within some seconds. */
const WAIT_SECONDS = 5;
/** A provider's own message may be long. */
const DETAIL_CHARS_MAX = 300;

/** Why a sign-in failed. `message` is a detail for the page and the log, without a secret. */
export class SignInError extends Error {
  readonly failure: SignInFailure;

  constructor(failure: SignInFailure, detail = '') {
    super(clipped(detail, DETAIL_CHARS_MAX));
    this.failure = failure;
  }
}

/**
 * Headers of this page and of the redirects of oidc.ts. The browser loads, runs and frames nothing, sends no
 * form, and tells no other site the address from which it comes (Referer).
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
  const { status, what, remedy }: FailureWords = FAILURES[failure];
  const detail = message === '' ? '' : `<p>Detail: <q>${escaped(message)}</q></p>\n`;
  const again = failure === 'not_configured' ? '' : `<a href="${OIDC_START_PATH}">Sign in again</a>, or `;
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
<p>${escaped(what)}</p>
${detail}<p>${escaped(remedy)}</p>
<p>${again}<a href="/">go to the console</a>.</p>
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
