/**
 * The commands' client of the admin interface: over HTTP if a gateway runs on the data directory, otherwise
 * through store-client.ts. Both take the same requests and give the same responses. Process of a command.
 *
 * Must hold: the address in gateway.json is used only if its process lives (`findGateway`), and the token is
 * sent only to the gateway; what another server answers ends the command with a reason. A command whose data
 * directory is named reaches its gateway without the settings, which may have an error
 * (test/unit/cli/admin-client.test.ts). A view has the type that its route declares: a command that takes it
 * for another does not compile.
 */
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ROOT } from '../admin/addresses.js';
import type { RouteViews } from '../admin/routes.js';
import type { Settings } from '../config/schema.js';
import { isRecord } from '../core/json.js';
import { ADMIN_URL_RULE, adminOriginOf, type AdminOptions } from './options.js';
import { CommandError, Misuse, printError } from './output.js';
import type { AdminTransport, AdminResponse, MissingStore } from './store-client.js';

/** A route of the admin interface: `GET /accounts/{account}`. */
export type RouteName = keyof RouteViews;

/**
 * What a request has besides its route. Members of `query` that are undefined are not sent. `id` takes the
 * place of the route's variable segment: an id or a name, not encoded.
 */
export type RequestInput<Name extends RouteName> = {
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly body?: object;
} & (Name extends `${string}{${string}` ? { readonly id: string } : { readonly id?: never });

export interface AdminClient {
  /** Sends a request and returns the view of the route. Throws CommandError with the gateway's message. */
  call<Name extends RouteName>(route: Name, input: RequestInput<Name>): Promise<RouteViews[Name]>;
  /** As `call`, for a route that sends CSV, which it returns. */
  csv<Name extends RouteName>(route: Name, input: RequestInput<Name>): Promise<string>;
  close(): Promise<void>;
}

/** The gateway sent no response, or none in time. `calls tail` and `status --watch` then try again. */
export class NoResponse extends CommandError {}

function clientOf({ exchange, close }: AdminTransport): AdminClient {
  const send = async (route: RouteName, input: RequestInput<RouteName>): Promise<AdminResponse> => {
    const { method, path } = addressOf(route, input);
    const { body: value } = input;
    const response = await exchange(method, path, value === undefined ? '' : JSON.stringify(value));
    if (response.status < 400) return response;
    const { error } = (jsonIn(response.body) ?? {}) as { error?: { readonly message?: unknown } | null };
    const isOurs = typeof error?.message === 'string';
    throw new CommandError(isOurs ? error.message : foreignText(response.status, method));
  };
  return {
    call: async <Name extends RouteName>(route: Name, input: RequestInput<Name>) => {
      const { status, body } = await send(route, input);
      const view = jsonIn(body);
      if (!isRecord(view)) throw new CommandError(foreignText(status, addressOf(route, input).method));
      // A gateway sends what its route declares (test/unit/admin/openapi.test.ts).
      return view as RouteViews[Name];
    },
    csv: async (route, input) => {
      const { status, contentType, body } = await send(route, input);
      if (!contentType.startsWith('text/csv')) throw new CommandError(foreignText(status, 'GET'));
      return body;
    },
    close,
  };
}

/**
 * Returns the method of a request, and its path below `/admin/v1` with its query, encoded. Throws
 * CommandError for an id that no path can have.
 */
function addressOf<Name extends RouteName>(
  route: Name,
  input: RequestInput<Name>,
): { readonly method: string; readonly path: string } {
  const { id, query = {} } = input;
  // An address drops such a segment, also encoded: another route would get the request. No name is so.
  if (id === '.' || id === '..') throw new CommandError(`Nothing has the name "${id}".`);
  const [method = '', template = ''] = route.split(' ');
  // A function, because `$&` in a text would stand for the match. The type asks for the id.
  const path = template.replace(/\{\w+\}/, () => encodeURIComponent(id ?? ''));
  const given = Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== undefined);
  return { method, path: given.length === 0 ? path : `${path}?${new URLSearchParams(given).toString()}` };
}

export interface ClientOptions {
  /** What to do if no gateway runs and the data directory has no store, by default `reject`. */
  readonly missingStore?: MissingStore;
  /** How long a gateway may take for a response, by default CALL_TIMEOUT_MS. */
  readonly timeoutMs?: number;
  /** Whether the gateway would reject the same settings, so that it is of no use to reach it without them. */
  readonly isReload?: boolean;
}

/**
 * Opens a client, runs `work` with it and closes it. Rejects with CommandError or Misuse, with ConfigError or
 * StoreError if the settings or the store are needed and cannot be read, and with what `work` throws.
 */
export async function withAdminClient(
  options: AdminOptions,
  work: (client: AdminClient) => Promise<void>,
  clientOptions: ClientOptions = {},
): Promise<void> {
  const adminUrl = adminUrlOf(options);
  const client =
    adminUrl === undefined
      ? await openNearest(options, clientOptions)
      : await openHttpClient(options.data, adminUrl, clientOptions.timeoutMs);
  try {
    await work(client);
  } finally {
    await client.close();
  }
}

/**
 * As `withAdminClient`, for commands that need a running gateway: rejects with CommandError if none runs.
 * Does not close the client: over HTTP it holds nothing.
 */
export async function withGateway(
  options: AdminOptions,
  work: (client: AdminClient) => Promise<void>,
): Promise<void> {
  const adminUrl = adminUrlOf(options);
  if (adminUrl !== undefined) {
    await work(await openHttpClient(options.data, adminUrl));
    return;
  }
  const dataPath = await dataPathOf(options);
  const { adminOrigin, findGateway } = await import('../admin/gateway-file.js');
  const address = await findGateway(dataPath);
  if (address === undefined)
    throw new CommandError(
      `No gateway serves from ${dataPath}. Start it (tollgate serve), or name its folder (--data, ` +
        'TOLLGATE_DATA) or its admin interface (--admin-url).',
    );
  await work(await openHttpClient(dataPath, adminOrigin(address)));
}

/**
 * Returns the origin that the option, or else the environment, names; undefined if neither does. With an
 * origin the command does not look for a gateway in the data directory. Throws Misuse.
 */
function adminUrlOf({ adminUrl }: AdminOptions): string | undefined {
  const fromEnvironment = process.env.TOLLGATE_ADMIN_URL ?? '';
  if (adminUrl !== undefined || fromEnvironment === '') return adminUrl;
  const origin = adminOriginOf(fromEnvironment);
  if (origin === undefined) throw new Misuse(`TOLLGATE_ADMIN_URL: ${ADMIN_URL_RULE}`);
  return origin;
}

const UNREAD_SETTINGS_ADVICE =
  'To reach a gateway that runs with earlier settings, name its data directory (--data, TOLLGATE_DATA).';

/** Reads the settings without the keys of providers, which a command does not need and may not have. */
async function settingsOf({ config, data }: DataOptions): Promise<Settings> {
  const { loadSettings } = await import('../config/load.js');
  return loadSettings({ config, data, secrets: false }).settings;
}

/** What names the data directory: both options of `addStoreOptions`. */
export type DataOptions = Pick<AdminOptions, 'config' | 'data'>;

/**
 * Resolves with the absolute path of the data directory. Reads the settings (0.2 s of CPU) only if neither
 * the option nor the environment names it: a command must reach its gateway while the file has an error.
 * Rejects with ConfigError.
 */
export async function dataPathOf(options: DataOptions): Promise<string> {
  return namedDataPathOf(options) ?? (await settingsWithDataOf(options)).data;
}

/**
 * The settings for a command that has only them to find its data directory: if they have an error, the last
 * line of the ConfigError says how a gateway that runs is reached all the same.
 */
async function settingsWithDataOf(options: DataOptions): Promise<Settings> {
  const { ConfigError } = await import('../config/config-error.js');
  return settingsOf(options).catch((error: unknown) => {
    if (!(error instanceof ConfigError)) throw error;
    throw new ConfigError([...error.problems, UNREAD_SETTINGS_ADVICE]);
  });
}

/** As load.ts decides: the option, else the variable, if it is not empty. */
function namedDataPathOf({ data }: DataOptions): string | undefined {
  const named = data ?? process.env.TOLLGATE_DATA ?? '';
  return named === '' ? undefined : resolve(named);
}

/** Longer than a start, which reads the store for seconds, and than a stop, which waits 30 s for calls. */
const HELD_WAIT_MS_MAX = 60_000;
const HELD_POLL_MS = 20;
/** Time for a gateway that ends (`elsewhereSinceMs`). One that goes on is reached only by --admin-url. */
const ELSEWHERE_WAIT_MS_MAX = 5_000;

/**
 * Opens a client of the gateway, or of the store if none runs; only then are the settings needed. Waits while
 * a gateway that starts or stops, or another command, holds the store without responding. Throws CommandError
 * after HELD_WAIT_MS_MAX, and after ELSEWHERE_WAIT_MS_MAX if the gateway is in another container.
 */
async function openNearest(
  options: DataOptions,
  { missingStore = 'reject', timeoutMs, isReload = false }: ClientOptions,
): Promise<AdminClient> {
  const { adminOrigin, findGateway } = await import('../admin/gateway-file.js');
  const { StoreHeld } = await import('../store/store-hold.js');
  let settings: Settings | undefined;
  const readSettings = isReload ? settingsOf : settingsWithDataOf;
  const dataPath = namedDataPathOf(options) ?? (settings = await readSettings(options)).data;
  const startMs = performance.now();
  // Since when a process of another container has had the store hold; undefined if none has. A gateway that
  // ends on this host may seem to be one: its process ends before its store hold. A command ends soon.
  let elsewhereSinceMs: number | undefined;
  for (;;) {
    const address = await findGateway(dataPath);
    if (address !== undefined) return openHttpClient(dataPath, adminOrigin(address), timeoutMs);
    settings ??= await settingsOf(options);
    const { openStoreTransport } = await import('./store-client.js');
    try {
      return clientOf(openStoreTransport(settings, missingStore));
    } catch (error) {
      if (!(error instanceof StoreHeld)) throw error;
      const { message, kind, container } = error;
      const nowMs = performance.now();
      elsewhereSinceMs = container === undefined ? undefined : (elsewhereSinceMs ?? nowMs);
      const elsewhereMs = nowMs - (elsewhereSinceMs ?? nowMs);
      if (kind === 'gateway' && container !== undefined && elsewhereMs > ELSEWHERE_WAIT_MS_MAX) {
        throw new CommandError(
          `${message} Its admin interface cannot be reached from here: nothing was changed. Run the command there ` +
            `(docker exec ${container} tollgate …), or give --admin-url and TOLLGATE_ADMIN_TOKEN of that gateway.`,
        );
      }
      if (nowMs - startMs > HELD_WAIT_MS_MAX) {
        throw new CommandError(
          `${message} It has done so for ${HELD_WAIT_MS_MAX / 1_000} s without answering: nothing was changed.`,
        );
      }
    }
    await sleep(HELD_POLL_MS);
  }
}

/** The response to a change comes after its fsync, which takes a second if the disk is busy. */
const CALL_TIMEOUT_MS = 30_000;

/**
 * Opens a client of the gateway at `origin`, which `adminOriginOf` or `adminOrigin` has made. `dataPath`: the
 * folder of the token's file; undefined if it is not known. Rejects with CommandError if there is no token.
 * Exported for audit-command.ts.
 */
export async function openHttpClient(
  dataPath: string | undefined,
  origin: string,
  timeoutMs = CALL_TIMEOUT_MS,
): Promise<AdminClient> {
  const { findAdminToken, tokenPath } = await import('../admin/token.js');
  const token = findAdminToken(dataPath, process.env);
  if (token === undefined) {
    const tokenPlace = dataPath === undefined ? 'known' : `in ${tokenPath(dataPath)}`;
    throw new CommandError(
      `The token of the gateway at ${origin} is not ${tokenPlace}: set TOLLGATE_ADMIN_TOKEN to it.`,
    );
  }
  const request = async (method: string, path: string, body: string) => {
    const response = await fetch(`${origin}${ROOT}${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: body === '' ? null : body,
      signal: AbortSignal.timeout(timeoutMs),
      redirect: 'error', // Another address must not get the token.
    });
    const { status, headers } = response;
    const [warning, requestId] = ['warning', 'x-request-id'].map((name) => headers.get(name));
    const contentType = headers.get('content-type') ?? '';
    return { status, contentType, body: await response.text(), warning, requestId };
  };
  // Each page of a list may have the same warning, which is printed once.
  let lastWarning: string | undefined;
  const exchange = async (method: string, path: string, body: string): Promise<AdminResponse> => {
    const { warning, requestId, ...response } = await request(method, path, body).catch((error: unknown) => {
      throw new NoResponse(noResponseText(origin, error, method));
    });
    // Only the port for callers sends ids with this prefix. Proxies may send ids, but of another form.
    if (response.status === 404 && requestId?.startsWith('req_')) throw new CommandError(callersText(origin));
    if (typeof warning === 'string' && warning !== lastWarning) {
      lastWarning = warning;
      // Removes `199 tollgate "` and the last quote, which `send` of admin/http.ts puts around the text.
      printError(warning.replace(/^\d+ \S+ "|"$/g, ''));
    }
    return response;
  };
  return clientOf({ exchange, close: () => Promise.resolve() });
}

/** Returns the message for a missing response. The reason is in the cause of fetch's error. */
function noResponseText(origin: string, error: unknown, method: string): string {
  const reason = error instanceof Error ? (error.cause ?? error) : error;
  return (
    `The gateway at ${origin} did not answer: ${reason instanceof Error ? reason.message : String(reason)}.` +
    doubtText(method)
  );
}

function callersText(origin: string): string {
  return (
    `What answers at ${origin} serves callers: the admin interface has a port of its own, which the setting admin.port ` +
    '(TOLLGATE_ADMIN_PORT) gives; 8081 by default.'
  );
}

/** Returns what such messages add for a request that may have changed something; empty for a GET. */
function doubtText(method: string): string {
  return method === 'GET' ? '' : ' A change may have been made or not: look before trying again.';
}

/** Returns the message for a response that no gateway sends, such as the page of a proxy. */
export function foreignText(status: number, method: string): string {
  return (
    `What answered with status ${status} is no gateway's admin interface: look at its address, and at proxies ` +
    `before it.${doubtText(method)}`
  );
}

/** Returns the value of a JSON text; undefined for any other text. */
function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
