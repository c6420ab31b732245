/**
 * The admin interface as the console speaks to it. The session is in a cookie that this code cannot read. Browser.
 */

/** What the gateway refused, in its own words. */
export class ApiError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

let onSignedOut: () => void = () => undefined;

/** Called whenever a response says that the session has ended. */
export function whenSignedOut(callback: () => void): void {
  onSignedOut = callback;
}

/** Marks a request as the console's own: a page of another site cannot set it. */
export const CONSOLE_HEADER = { 'x-tollgate-console': '1' };

export async function send(method: string, path: string, body?: object): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers:
        body === undefined ? CONSOLE_HEADER : { ...CONSOLE_HEADER, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      credentials: 'same-origin',
      cache: 'no-store',
    });
  } catch {
    throw new ApiError(0, 'The gateway cannot be reached. Is it running, and are you still on its network?');
  }
  if (response.ok) return response;
  if (response.status === 401 && path !== SESSION) onSignedOut();
  throw new ApiError(response.status, await messageOf(response));
}

async function messageOf(response: Response): Promise<string> {
  try {
    const body = (await response.json()) as { error?: { message?: string } };
    return body.error?.message ?? `The gateway answered with status ${response.status}.`;
  } catch {
    return `The gateway answered with status ${response.status}.`;
  }
}

async function json<View>(method: string, path: string, body?: object): Promise<View> {
  return (await (await send(method, path, body)).json()) as View;
}

const ROOT = '/admin/v1';
export const get = <View>(path: string): Promise<View> => json<View>('GET', ROOT + path);
export const post = <View>(path: string, body: object = {}): Promise<View> =>
  json<View>('POST', ROOT + path, body);
export const remove = <View>(path: string): Promise<View> => json<View>('DELETE', ROOT + path);

/** A query string of what is given; what is undefined or empty is left out. */
export function queryOf(values: Readonly<Record<string, string | number | undefined>>): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== '');
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text === '' ? '' : `?${text}`;
}

const SESSION = '/admin/session';

interface SessionView {
  readonly signed_in: boolean;
}

export async function isSignedIn(): Promise<boolean> {
  return (await json<SessionView>('GET', SESSION)).signed_in;
}

export async function signIn(token: string): Promise<void> {
  await json<SessionView>('POST', SESSION, { token });
}

export async function signOut(): Promise<void> {
  await json<SessionView>('DELETE', SESSION);
}

export function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
