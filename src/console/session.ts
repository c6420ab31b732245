/**
 * The console session in the browser: who is signed in, and the requests to `/admin/session` that begin,
 * check and end it. main.tsx and sign-in.tsx use those; pages ask `may` what to offer. The session's secret
 * is in a cookie that this code cannot read. Browser.
 *
 * Must hold: the page is replaced by the sign-in only if `/admin/session` says that the session is over, and
 * not before a dialog that keeps the page has been closed (test/unit/console/session.test.ts,
 * test/e2e/console-pages.test.ts).
 */
import { SESSION_PATH } from '../admin/addresses.js';
import type { SessionView } from '../admin/authentication.js';
import type { OidcView } from '../admin/oidc.js';
import { RIGHTS, type Role } from '../core/roles.js';
import { requestJson, whenUnauthorized } from './api.js';

interface SignedIn {
  readonly who: string;
  readonly role: Role;
  /** The setting `quota_timezone`, by which quotas.tsx says since when a quota counts. */
  readonly quotaTimezone: string | undefined;
}

let operator: SignedIn | undefined;
let onSignedOut: () => void = () => undefined;
/** How many open dialogs keep the page, such as that of a new key, which cannot be shown again. */
let keepingDialogs = 0;
/** Whether the session has ended while a dialog keeps the page. */
let isSignOutPending = false;

/** Sets the one callback for the end of the session; main.tsx sets it once, before any page is shown. */
export function whenSignedOut(callback: () => void): void {
  onSignedOut = callback;
  whenUnauthorized((path) => {
    // A 401 of the session's own path is about the token that somebody typed.
    if (path !== SESSION_PATH) checkSession().catch(() => undefined);
  });
}

/**
 * Keeps the page, also if the session ends or the address changes, until the returned function is called;
 * again it does nothing.
 */
export function keepPage(): () => void {
  keepingDialogs += 1;
  let isKept = true;
  return () => {
    if (!isKept) return;
    isKept = false;
    keepingDialogs -= 1;
    if (!isSignOutPending || keepingDialogs > 0) return;
    // Asked again: the operator may have signed in again meanwhile, in another tab.
    checkSession().catch(() => undefined);
  };
}

/** Whether a dialog keeps the page. */
export const isPageKept = (): boolean => keepingDialogs > 0;

function reportSignedOut(): void {
  isSignOutPending = keepingDialogs > 0;
  if (isSignOutPending) return;
  operator = undefined;
  onSignedOut();
}

/** Remembers who is signed in, for `operatorNow` and `may`. Returns whether somebody is signed in. */
function rememberOperator({ who, role, quota_timezone: quotaTimezone }: SessionView): boolean {
  operator = who === null || role === null ? undefined : { who, role, quotaTimezone };
  // The operator has signed in again, perhaps in another tab, while a dialog kept the page.
  if (operator !== undefined) isSignOutPending = false;
  return operator !== undefined;
}

/** Returns who is signed in; undefined if nobody is. */
export const operatorNow = (): SignedIn | undefined => operator;

/**
 * Returns whether the role of the operator who is signed in allows the action; false if nobody is. Pages hide
 * what would be rejected; the gateway itself checks each request (test/e2e/operator-roles.test.ts).
 */
export function may(right: keyof typeof RIGHTS): boolean {
  const allowed: readonly Role[] = RIGHTS[right];
  return operator !== undefined && allowed.includes(operator.role);
}

// The functions below reject with an ApiError if the gateway cannot be reached.

/** Returns whether somebody is signed in. If not, the callback of `whenSignedOut` is called. */
export async function checkSession(): Promise<boolean> {
  const session = await requestJson<SessionView>('GET', SESSION_PATH);
  if (session.signed_in) return rememberOperator(session);
  reportSignedOut();
  return false;
}

/** Returns the provider where operators can sign in too; undefined if the settings name none. */
export async function fetchProvider(): Promise<OidcView | undefined> {
  return (await requestJson<SessionView>('GET', SESSION_PATH)).oidc;
}

/** Opens a session. Rejects with an ApiError if the token is wrong. */
export async function signIn(token: string): Promise<void> {
  rememberOperator(await requestJson<SessionView>('POST', SESSION_PATH, { token }));
}

/** Resolves with where to sign out of the provider too, if the operator signed in there. */
export async function signOut(): Promise<OidcView | undefined> {
  const session = await requestJson<SessionView>('DELETE', SESSION_PATH);
  rememberOperator(session);
  return session.sign_out;
}
