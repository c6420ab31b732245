/** The admin interface of a gateway that runs. */
import type { AdminClient } from './admin-client.js';
import { CommandError } from './output.js';

/** A change waits for the disk; on a busy one that is a second. */
const CALL_TIMEOUT_MS = 30_000;

/** `dataPath` is the folder with the token's file, where one is known. Throws `Refusal` where there is no token. */
export async function openHttpClient(
  dataPath: string | undefined,
  origin: string,
  timeoutMs = CALL_TIMEOUT_MS,
): Promise<AdminClient> {
  const { findAdminToken, tokenPath } = await import('../admin/token.js');
  const token = findAdminToken(dataPath, process.env);
  if (token === undefined) {
    const place = dataPath === undefined ? 'known' : `in ${tokenPath(dataPath)}`;
    throw new CommandError(
      `A gateway runs, but its token is not ${place}: set TOLLGATE_ADMIN_TOKEN as for the gateway.`,
    );
  }
  const exchange = async (method: string, path: string, body: object | undefined) => {
    const response = await fetch(`${origin}/admin/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: body === undefined ? null : JSON.stringify(body),
      signal: AbortSignal.timeout(timeoutMs),
      redirect: 'error',
    });
    return { status: response.status, text: await response.text(), warning: response.headers.get('warning') };
  };
  const answered = async (method: string, path: string, body?: object): Promise<string> => {
    const { status, text, warning } = await exchange(method, path, body).catch((error: unknown) => {
      throw new CommandError(noResponseText(origin, error));
    });
    if (warning !== null) process.stderr.write(`${warning.replace(/^\d+ \S+ "|"$/g, '')}\n`);
    return textOfResponse(status, text);
  };
  return {
    call: async (method, path, body) => JSON.parse(await answered(method, path, body)) as unknown,
    text: (path) => answered('GET', path),
    close: () => Promise.resolve(),
  };
}

/** fetch hides the reason in the cause of its error. */
function noResponseText(origin: string, error: unknown): string {
  const reason = error instanceof Error ? (error.cause ?? error) : error;
  return (
    `The gateway at ${origin} did not answer: ${reason instanceof Error ? reason.message : String(reason)}. ` +
    'A change may have been made or not: look before trying again.'
  );
}

/** The body of a good answer. Throws `Refusal` with the message of a bad one. */
export function textOfResponse(status: number, text: string): string {
  if (status < 400) return text;
  throw new CommandError((JSON.parse(text) as { error: { message: string } }).error.message);
}
