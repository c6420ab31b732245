/**
 * The console's client of the admin interface: requests, and the hooks by which components make them. All
 * pages use it. The secret of the console session is in a cookie that this code cannot read. Browser.
 *
 * Must hold: each request has CONSOLE_HEADER, or the gateway rejects every request that changes something
 * (test/unit/admin/authentication.session.test.ts). A response for a path that is no longer open is dropped
 * (test/e2e/console.test.ts). The page is replaced by the sign-in only if `/admin/session` says that the
 * session is over, and not before a dialog that keeps the page has been closed
 * (test/e2e/console-pages.test.ts).
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
/** How many open dialogs keep the page, such as that of a new key, which cannot be shown again. */
let keepingDialogs = 0;
/** Whether the session has ended while a dialog keeps the page. */
let isSignOutPending = false;

/** Sets the one callback for the end of the session; main.tsx sets it once. */
export function whenSignedOut(callback: () => void): void {
  onSignedOut = callback;
}

/** Keeps the page, also if the session ends, until the returned function is called. */
export function keepPage(): () => void {
  keepingDialogs += 1;
  return () => {
    keepingDialogs -= 1;
    if (isSignOutPending) reportSignedOut();
  };
}

function reportSignedOut(): void {
  isSignOutPending = keepingDialogs > 0;
  if (isSignOutPending) return;
  operator = undefined;
  onSignedOut();
}

/** Marks a request as the console's own. admin/http.ts reads it; no page of another site can set it. */
const CONSOLE_HEADER = { 'x-tollgate-console': '1' };
/** As in admin/route.ts, which imports code of the gateway. Were they not, the console's tests would fail. */
const SESSION_PATH = '/admin/session';
const ROOT = '/admin/v1';

/** Rejects with an ApiError unless the response is a success; of status 0 if `signal` ends the request. */
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
  // The playground relays the 401 of a caller's key too, so the gateway is asked whether the session is over.
  if (response.status === 401 && path !== SESSION_PATH) checkSession().catch(() => undefined);
  throw new ApiError(response.status, await messageOf(response));
}

/** Returns the message of an error response, or its status if its body is not the gateway's. */
async function messageOf(response: Response): Promise<string> {
  const statusText = `The gateway answered with status ${response.status}.`;
  try {
    const body = (await response.json()) as { error?: { message?: string } };
    return body.error?.message ?? statusText;
  } catch {
    return statusText;
  }
}

/** As `send`, with the JSON of the response, which is not checked. `path`: the whole path. */
export async function requestJson<View>(method: string, path: string, body?: object): Promise<View> {
  return (await (await send(method, path, body)).json()) as View;
}

/** `get`, `post` and `remove` send requests to paths below `/admin/v1`. */
export const get = <View>(path: string): Promise<View> => requestJson<View>('GET', ROOT + path);
export const post = <View>(path: string, body: object = {}): Promise<View> =>
  requestJson<View>('POST', ROOT + path, body);
export const remove = <View>(path: string): Promise<View> => requestJson<View>('DELETE', ROOT + path);

/** Returns a query string of the values that are neither undefined nor empty; '' if there are none. */
export function queryOf(values: Readonly<Record<string, string | number | undefined>>): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== '');
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text === '' ? '' : `?${text}`;
}

/** The first rows of a list, and whether there are more. */
export interface FirstRows<Row> {
  readonly rows: readonly Row[];
  readonly hasMore: boolean;
}

/** The most rows of a CSV file: spreadsheets open such a file without trouble. */
export const ROWS_OF_CSV_MAX = 10_000;
/** The most that the routes of lists allow (PAGE_ITEMS_MAX of admin/fields.ts); they reject more. */
const PAGE_ROWS_MAX = 1_000;

/**
 * Fetches the rows of a list from its first page on, at most `rowsMax`. A page may be short, or empty, and
 * not be the last, so only its cursor ends the loop. `query`: see `queryOf`.
 */
export async function fetchRows<Row>(
  path: string,
  query: Parameters<typeof queryOf>[0] = {},
  rowsMax = ROWS_OF_CSV_MAX,
): Promise<FirstRows<Row>> {
  const rows: Row[] = [];
  let cursor: string | null | undefined;
  while (cursor !== null && rows.length < rowsMax) {
    const page: ListView<Row> = await get<ListView<Row>>(
      path + queryOf({ ...query, limit: Math.min(PAGE_ROWS_MAX, rowsMax), cursor }),
    );
    rows.push(...page.data);
    cursor = page.next;
  }
  return { rows: rows.slice(0, rowsMax), hasMore: cursor !== null || rows.length > rowsMax };
}

/** An OpenID Connect provider, and where the browser goes to sign in or out there. */
export interface OidcView {
  /** The provider's host. */
  readonly issuer: string;
  readonly url: string;
}

/** The responses of `/admin/session`, which admin/authentication.ts makes. */
interface SessionView {
  readonly signed_in: boolean;
  readonly who: string | null;
  readonly role: Role | null;
  /** Absent if nobody is signed in. */
  readonly quota_timezone?: string;
  readonly oidc?: OidcView;
  /** Where to sign out of the provider too; only in the response to a sign-out. */
  readonly sign_out?: OidcView;
}

interface SignedIn {
  readonly who: string;
  readonly role: Role;
  /** The setting `quota_timezone`, by which quotas.tsx says since when a quota counts. */
  readonly quotaTimezone: string | undefined;
}

let operator: SignedIn | undefined;

/** Remembers who is signed in, for `operatorNow` and `may`. Returns whether somebody is signed in. */
function rememberOperator({ who, role, quota_timezone: quotaTimezone }: SessionView): boolean {
  operator = who === null || role === null ? undefined : { who, role, quotaTimezone };
  return operator !== undefined;
}

export const operatorNow = (): SignedIn | undefined => operator;

/**
 * Returns whether the role of the operator who is signed in allows the action; false if nobody is. Pages hide
 * what would be rejected; the gateway itself checks each request (test/e2e/operator-roles.test.ts).
 */
export function may(right: keyof typeof RIGHTS): boolean {
  const allowed: readonly Role[] = RIGHTS[right];
  return operator !== undefined && allowed.includes(operator.role);
}

/** Rejects with an ApiError if the gateway cannot be reached; so do all functions down to `signOut`. */
export async function fetchIsSignedIn(): Promise<boolean> {
  return rememberOperator(await requestJson<SessionView>('GET', SESSION_PATH));
}

/** Returns whether the session goes on. If it has ended, the callback of `whenSignedOut` is called. */
export async function checkSession(): Promise<boolean> {
  const session = await requestJson<SessionView>('GET', SESSION_PATH);
  if (session.signed_in) return rememberOperator(session);
  reportSignedOut();
  return false;
}

/** The provider where operators can sign in too, if the settings name one. */
export async function oidcView(): Promise<OidcView | undefined> {
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

export function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

interface ViewState<View> {
  /** The last view that came. After a change of the path it is the former path's view for a moment. */
  readonly view: View | undefined;
  /** Why the last request failed; undefined if it did not. `setView` leaves it. */
  readonly error: string | undefined;
  readonly reload: () => void;
  /** To be called with a newer view that came as the response to a change. */
  readonly setView: (view: View) => void;
}

/**
 * Requests a path below `/admin/v1`; with `refreshMs` again after each such time while the page is in sight.
 * An undefined path requests nothing.
 */
export function useView<View>(path: string | undefined, refreshMs?: number): ViewState<View> {
  return useRead(path, get<View>, refreshMs);
}

/** As `useView`, for the first rows of a list, at most `rowsMax`, from as many pages as needed. */
export function useRows<Row>(
  path: string | undefined,
  query: Parameters<typeof queryOf>[0],
  rowsMax: number,
  refreshMs?: number,
): ViewState<FirstRows<Row>> {
  const pathAndQuery = path === undefined ? undefined : path + queryOf(query);
  // `read` is not called for an undefined path.
  return useRead(pathAndQuery, () => fetchRows<Row>(path!, query, rowsMax), refreshMs);
}

/**
 * `path` identifies what `read` reads. When `path` changes, `read` is called, and responses for an earlier
 * path are dropped. So is a response that comes after that of a later request, or after `setView`.
 */
function useRead<View>(
  path: string | undefined,
  read: (path: string) => Promise<View>,
  refreshMs: number | undefined,
): ViewState<View> {
  const [view, setView] = useState<View>();
  const [error, setError] = useState<string>();
  const latestPath = useRef(path);
  latestPath.current = path;
  /** The numbers of the last request, and of the request whose response is shown. */
  const requests = useRef({ sent: 0, shown: 0 }).current;
  const reload = useCallback((): void => {
    if (path === undefined) return;
    const requestNumber = ++requests.sent;
    const isNewer = (): boolean => latestPath.current === path && requestNumber > requests.shown;
    read(path).then(
      (newView) => {
        if (!isNewer()) return;
        requests.shown = requestNumber;
        setView(newView);
        setError(undefined);
      },
      (reason: unknown) => {
        if (!isNewer()) return;
        requests.shown = requestNumber;
        setError(textOf(reason));
      },
    );
    // `read` is another function at each call, but reads the same for the same path.
  }, [path]);
  useEffect(reload, [reload]);
  useRefresh(reload, refreshMs);
  const setNewer = (newer: View): void => {
    requests.shown = requests.sent;
    setView(newer);
  };
  return { view, error, reload, setView: setNewer };
}

/** Calls `refresh` every `periodMs` while the page is in sight; never if `periodMs` is undefined. */
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
  /** Why the last run failed; undefined if it did not, and during a run. */
  readonly error: string | undefined;
  /** Whether the action runs. */
  readonly isBusy: boolean;
  readonly run: (...args: Args) => void;
}

/** The action of a button or a form, with its state: whether it runs, and why it has failed. */
export function useAction<Args extends readonly unknown[]>(
  act: (...args: Args) => Promise<void>,
): Action<Args> {
  const [error, setError] = useState<string>();
  const [isBusy, setBusy] = useState(false);
  const lastRunNumber = useRef(0);
  const run = (...args: Args): void => {
    const runNumber = ++lastRunNumber.current;
    setBusy(true);
    setError(undefined);
    void act(...args)
      .catch((reason: unknown) => setError(textOf(reason)))
      .finally(() => {
        // A later run may still go on, such as one with other filters.
        if (runNumber === lastRunNumber.current) setBusy(false);
      });
  };
  return { error, isBusy, run };
}
