/**
 * The console's client of the admin interface: sends requests, and reads lists page by page. api-hooks.ts and
 * session.ts make requests with it, and so do pages for what an operator does. Browser.
 *
 * Must hold: each request has CONSOLE_HEADER, or the gateway rejects every request that changes something
 * (test/unit/admin/authentication.session.test.ts).
 */
import { CONSOLE_HEADER, CONSOLE_HEADER_VALUE, PAGE_ITEMS_MAX, ROOT } from '../admin/addresses.js';
import type { ListView } from '../admin/views.js';

/** An error response, with the gateway's message. */
export class ApiError extends Error {
  /** 0 if there was no response, or it was not the gateway's. */
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** What a proxy says of a gateway that is down or does not respond. */
const UNREACHED_STATUSES: readonly number[] = [502, 503, 504];

/** Whether the request failed because the gateway could not be reached: soon the same may succeed. */
export const isUnreached = (error: unknown): boolean =>
  error instanceof ApiError && (error.status === 0 || UNREACHED_STATUSES.includes(error.status));

const HEADERS = { [CONSOLE_HEADER]: CONSOLE_HEADER_VALUE };

let onUnauthorized: (path: string) => void = () => undefined;

/**
 * Sets the one callback for a response with status 401, which gets the request's path. session.ts sets it, to
 * ask whether the session is over: the playground relays the 401 of a caller's key too.
 */
export function whenUnauthorized(callback: (path: string) => void): void {
  onUnauthorized = callback;
}

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
      headers: body === undefined ? HEADERS : { ...HEADERS, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      credentials: 'same-origin',
      cache: 'no-store',
      ...(signal === undefined ? {} : { signal }),
    });
  } catch {
    throw unreached();
  }
  if (response.ok) return response;
  if (response.status === 401) onUnauthorized(path);
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

const unreached = (): ApiError =>
  new ApiError(0, 'The gateway cannot be reached. Is it running, and are you still on its network?');

/** As `send`, with the JSON of the response, which is not checked. `path`: the whole path. */
export async function requestJson<View>(method: string, path: string, body?: object): Promise<View> {
  const response = await send(method, path, body);
  try {
    return await jsonOf<View>(response);
  } catch (error) {
    throw error instanceof ApiError ? error : unreached();
  }
}

/**
 * Returns the JSON of a success. Rejects with an ApiError of status 0 if its body is none, and with the
 * browser's error if the response broke off.
 */
export async function jsonOf<View>(response: Response): Promise<View> {
  try {
    return (await response.json()) as View;
  } catch (error) {
    throw error instanceof SyntaxError ? notFromGateway() : error;
  }
}

/** For a success that is a proxy's own: its page to sign in, or that of a gateway that is down. */
export const notFromGateway = (): ApiError =>
  new ApiError(0, 'Not the gateway answered, but something in front of it. Load the page again.');

/** `get`, `post` and `remove` send requests to paths below `/admin/v1`. */
export const get = <View>(path: string): Promise<View> => requestJson<View>('GET', ROOT + path);
export const post = <View>(path: string, body: object = {}): Promise<View> =>
  requestJson<View>('POST', ROOT + path, body);
export const remove = <View>(path: string): Promise<View> => requestJson<View>('DELETE', ROOT + path);

/** Parameters of a query by name. Those that are undefined or empty are not sent. */
export type QueryValues = Readonly<Record<string, string | number | undefined>>;

/** Returns the query string with its question mark; '' if no parameter is sent. */
export function queryOf(values: QueryValues): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== '');
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text === '' ? '' : `?${text}`;
}

/** The first rows of a list, and whether there are more. */
export interface FirstRows<Row> {
  readonly rows: readonly Row[];
  readonly hasMore: boolean;
  /** Files that the gateway cannot read, each once: rows may be missing. Absent if there are none. */
  readonly unread?: readonly string[];
}

/** A page of a list. Only lists of calls have `unread`, and not those of a gateway of an earlier version. */
type FetchedRows<Row> = ListView<Row> & { readonly unread?: readonly string[] };

/** The most rows of a CSV file: spreadsheets open such a file without trouble. */
export const ROWS_OF_CSV_MAX = 10_000;

/**
 * Fetches the rows of a list from its first page on, at most `rowsMax`. A page that is short or empty may not
 * be the last, so only a null cursor ends the loop. `path`: below `/admin/v1`.
 */
export async function fetchRows<Row>(
  path: string,
  query: QueryValues = {},
  rowsMax = ROWS_OF_CSV_MAX,
): Promise<FirstRows<Row>> {
  const rows: Row[] = [];
  const allUnread = new Set<string>();
  let cursor: string | null | undefined;
  while (cursor !== null && rows.length < rowsMax) {
    const page: FetchedRows<Row> = await get<FetchedRows<Row>>(
      path + queryOf({ ...query, limit: Math.min(PAGE_ITEMS_MAX, rowsMax), cursor }),
    );
    rows.push(...page.data);
    for (const file of page.unread ?? []) allUnread.add(file);
    cursor = page.next;
  }
  return {
    rows: rows.slice(0, rowsMax),
    hasMore: cursor !== null || rows.length > rowsMax,
    ...(allUnread.size > 0 && { unread: [...allUnread] }),
  };
}

/** Returns the message of whatever was thrown. */
export function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
