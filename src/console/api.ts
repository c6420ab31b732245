/**
 * The console's client of the admin interface: requests, and the hooks by which components make them. All
 * pages use it. The console session is in a cookie that this code cannot read. Browser.
 *
 * Must hold: each request that changes something has CONSOLE_HEADER, which a page of another site cannot set,
 * or the gateway rejects it (test/unit/admin/authentication.session.test.ts); a response for a path that is
 * no longer open is dropped (test/e2e/console.test.ts); the page goes only if the session itself says that it
 * is over, and not before a dialog that keeps it has been closed (test/e2e/console-pages.test.ts).
 */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import type { ListView } from '../admin/views.js';
import { RIGHTS, type Role } from '../core/roles.js';

/** An error response, with the gateway's message. */
export class ApiError extends Error {
  /** 0 if there was no response. */
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

let onSignedOut: () => void = () => undefined;
/** How many open dialogs keep the page. */
let keepersCount = 0;
/** Whether the session has ended while a dialog keeps the page. */
let isSignOutPending = false;

/** Calls back when the session has ended. */
export function whenSignedOut(callback: () => void): void {
  onSignedOut = callback;
}

/** Keeps the page, also if the session ends, until the returned function is called. */
export function keepPage(): () => void {
  keepersCount += 1;
  return () => {
    keepersCount -= 1;
    if (isSignOutPending) reportSignedOut();
  };
}

function reportSignedOut(): void {
  isSignOutPending = keepersCount > 0;
  if (!isSignOutPending) onSignedOut();
}

/** Marks a request as the console's own: a page of another site cannot set it. */
const CONSOLE_HEADER = { 'x-tollgate-console': '1' };
const SESSION = '/admin/session';
const ROOT = '/admin/v1';

/** Rejects with an ApiError unless the response is a success. `signal` ends the request, and its response. */
export async function send(
  method: string,
  path: string,
  body?: object,
  signal?: AbortSignal,
): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers:
        body === undefined ? CONSOLE_HEADER : { ...CONSOLE_HEADER, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      credentials: 'same-origin',
      cache: 'no-store',
      ...(signal === undefined ? {} : { signal }),
    });
  } catch {
    throw new ApiError(0, 'The gateway cannot be reached. Is it running, and are you still on its network?');
  }
  if (response.ok) return response;
  // The playground relays the 401 of a caller's key too, so the session itself is asked whether it has ended.
  if (response.status === 401 && path !== SESSION) checkSession().catch(() => undefined);
  throw new ApiError(response.status, await messageOf(response));
}

async function messageOf(response: Response): Promise<string> {
  const withoutReason = `The gateway answered with status ${response.status}.`;
  try {
    const body = (await response.json()) as { error?: { message?: string } };
    return body.error?.message ?? withoutReason;
  } catch {
    return withoutReason;
  }
}

export async function json<View>(method: string, path: string, body?: object): Promise<View> {
  return (await (await send(method, path, body)).json()) as View;
}

/** Requests to paths below `/admin/v1`. */
export const get = <View>(path: string): Promise<View> => json<View>('GET', ROOT + path);
export const post = <View>(path: string, body: object = {}): Promise<View> =>
  json<View>('POST', ROOT + path, body);
export const remove = <View>(path: string): Promise<View> => json<View>('DELETE', ROOT + path);

/** A query string of the values that are neither undefined nor empty. */
export function queryOf(values: Readonly<Record<string, string | number | undefined>>): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== '');
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text === '' ? '' : `?${text}`;
}

/** Some rows of a list, and whether there are more. */
export interface Part<Row> {
  readonly rows: readonly Row[];
  readonly more: boolean;
}

/** The most rows of a CSV file: spreadsheets still open it. */
export const ROWS_OF_CSV_MAX = 10_000;
const PAGE_ROWS_MAX = 1_000;

/**
 * The rows of a list from its first page on, at most `rowsMax`. A page may be short, or empty, and not be the
 * last. `query` as for `queryOf`.
 */
export async function allOf<Row>(
  path: string,
  query: Parameters<typeof queryOf>[0] = {},
  rowsMax = ROWS_OF_CSV_MAX,
): Promise<Part<Row>> {
  const rows: Row[] = [];
  let cursor: string | null | undefined;
  while (cursor !== null && rows.length < rowsMax) {
    const page: ListView<Row> = await get<ListView<Row>>(
      path + queryOf({ ...query, limit: Math.min(PAGE_ROWS_MAX, rowsMax), cursor }),
    );
    rows.push(...page.data);
    cursor = page.next;
  }
  return { rows: rows.slice(0, rowsMax), more: cursor !== null || rows.length > rowsMax };
}

/** A provider where operators sign in or out, and where the browser goes for it. */
export interface OidcView {
  /** The provider's host. */
  readonly issuer: string;
  readonly url: string;
}

interface SessionView {
  readonly signed_in: boolean;
  readonly who: string | null;
  readonly role: Role | null;
  readonly oidc?: OidcView;
  /** In a response to signing out. */
  readonly sign_out?: OidcView;
}

interface SignedIn {
  readonly who: string;
  readonly role: Role;
}

let signedIn: SignedIn | undefined;

/** Remembers who is signed in, for `operatorNow` and `may`. Returns whether somebody is. */
function rememberOperator({ who, role }: SessionView): boolean {
  signedIn = who === null || role === null ? undefined : { who, role };
  return signedIn !== undefined;
}

export const operatorNow = (): SignedIn | undefined => signedIn;

/**
 * Returns whether the operator's role allows the action; false while nobody is signed in. It only hides what
 * would be rejected: the gateway itself checks each request (test/e2e/operator-roles.test.ts).
 */
export function may(right: keyof typeof RIGHTS): boolean {
  const allowed: readonly Role[] = RIGHTS[right];
  return signedIn !== undefined && allowed.includes(signedIn.role);
}

export async function isSignedIn(): Promise<boolean> {
  return rememberOperator(await json<SessionView>('GET', SESSION));
}

/** Returns whether the session goes on. If it has ended, the callback of `whenSignedOut` is called. */
export async function checkSession(): Promise<boolean> {
  const session = await json<SessionView>('GET', SESSION);
  if (session.signed_in) return rememberOperator(session);
  reportSignedOut();
  return false;
}

/** The provider where operators can sign in too, if the settings name one. */
export async function oidcView(): Promise<OidcView | undefined> {
  return (await json<SessionView>('GET', SESSION)).oidc;
}

export async function signIn(token: string): Promise<void> {
  rememberOperator(await json<SessionView>('POST', SESSION, { token }));
}

/** Resolves with where to sign out of the provider too, for an operator who signed in there. */
export async function signOut(): Promise<OidcView | undefined> {
  return (await json<SessionView>('DELETE', SESSION)).sign_out;
}

export function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

interface Viewed<View> {
  /** The last view that came. After a change of the path it is that of the former path for a moment. */
  readonly view: View | undefined;
  /** Why the last request failed. */
  readonly error: string | undefined;
  readonly reload: () => void;
  /** Call with a newer view that came as the response to a change. */
  readonly setView: (view: View) => void;
}

/**
 * Requests a path below `/admin/v1`; with `refreshMs` again after each such time while the page is in sight.
 * An undefined path requests nothing.
 */
export function useView<View>(path: string | undefined, refreshMs?: number): Viewed<View> {
  return useRead(path, get<View>, refreshMs);
}

/** As `useView`, for the first rows of a list, at most `rowsMax`, from all pages that they are on. */
export function useRows<Row>(
  path: string | undefined,
  query: Parameters<typeof queryOf>[0],
  rowsMax: number,
  refreshMs?: number,
): Viewed<Part<Row>> {
  const asked = path === undefined ? undefined : path + queryOf(query);
  return useRead(asked, () => allOf<Row>(path!, query, rowsMax), refreshMs);
}

/**
 * `path` identifies what `read` reads. If it changes, `read` is called; earlier responses are dropped. So is
 * a response that comes after that of a later request, or after `setView`.
 */
function useRead<View>(
  path: string | undefined,
  read: (path: string) => Promise<View>,
  refreshMs: number | undefined,
): Viewed<View> {
  const [view, setView] = useState<View>();
  const [error, setError] = useState<string>();
  const wanted = useRef(path);
  wanted.current = path;
  const requests = useRef({ sent: 0, shown: 0 }).current;
  const reload = useCallback((): void => {
    if (path === undefined) return;
    const own = ++requests.sent;
    const isNews = (): boolean => wanted.current === path && own > requests.shown;
    read(path).then(
      (found) => {
        if (!isNews()) return;
        requests.shown = own;
        setView(found);
        setError(undefined);
      },
      (reason: unknown) => {
        if (!isNews()) return;
        requests.shown = own;
        setError(textOf(reason));
      },
    );
  }, [path]);
  useEffect(reload, [reload]);
  useRefresh(reload, refreshMs);
  const setNewer = (newer: View): void => {
    requests.shown = requests.sent;
    setView(newer);
  };
  return { view, error, reload, setView: setNewer };
}

/** Calls `refresh` every `periodMs` while the page is in sight; never if that is undefined. */
export function useRefresh(refresh: () => void, periodMs: number | undefined): void {
  useEffect(() => {
    if (periodMs === undefined) return undefined;
    const timer = setInterval(() => {
      if (!document.hidden) refresh();
    }, periodMs);
    return () => clearInterval(timer);
  }, [refresh, periodMs]);
}

interface Action<Args extends readonly unknown[]> {
  /** Why the last run failed. */
  readonly error: string | undefined;
  readonly busy: boolean;
  readonly run: (...args: Args) => void;
}

/** The action of a button or a form, with its state: whether it runs, and why it has failed. */
export function useAction<Args extends readonly unknown[]>(
  act: (...args: Args) => Promise<void>,
): Action<Args> {
  const [error, setError] = useState<string>();
  const [busy, setBusy] = useState(false);
  const runs = useRef(0);
  const run = (...args: Args): void => {
    const own = ++runs.current;
    setBusy(true);
    setError(undefined);
    void act(...args)
      .catch((reason: unknown) => setError(textOf(reason)))
      .finally(() => {
        // If it was run again before the end, as by other filters, the last run counts.
        if (own === runs.current) setBusy(false);
      });
  };
  return { error, busy, run };
}
