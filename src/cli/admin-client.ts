/**
 * How commands reach accounts and keys: over the admin interface of the gateway that runs on the data directory, or, while
 * none runs, on the store itself. Both take the same requests and give the same responses.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Settings } from '../config/schema.js';
import { openHttpClient } from './http-client.js';
import { Misuse, CommandError } from './output.js';
import { ADMIN_URL_RULE, adminOriginOf, type DataOptions } from './data-options.js';

export type AdminCallMethod = 'GET' | 'POST' | 'PUT' | 'DELETE';

export interface AdminClient {
  /** The response's body, as its path gives it: a view of the admin folder. `path` is below `/admin/v1`, encoded. Throws `Refusal` with the gateway's own words. */
  call(method: AdminCallMethod, path: string, body?: object): Promise<unknown>;
  /** As `call` of a GET, but the body as it came: CSV. */
  text(path: string): Promise<string>;
  close(): Promise<void>;
}

/** Opens a client, lets `use` work with it and closes it. */
export async function withAdminClient(
  place: DataOptions,
  use: (client: AdminClient) => Promise<void>,
): Promise<void> {
  const client = await openClient(place);
  try {
    await use(client);
  } finally {
    await client.close();
  }
}

/** As `withAdminClient`, for what a gateway alone can tell. Throws `Refusal` where none runs. */
export async function withGateway(
  place: DataOptions,
  use: (client: AdminClient) => Promise<void>,
): Promise<void> {
  const adminUrl = adminUrlOf(place);
  if (adminUrl !== undefined) {
    await use(await openHttpClient(place.data, adminUrl));
    return;
  }
  const settings = await settingsOf(place);
  const { adminOrigin, findGateway } = await import('../admin/gateway-file.js');
  const address = await findGateway(settings.data);
  if (address === undefined) throw new CommandError(`No gateway serves from ${settings.data}.`);
  await use(await openHttpClient(settings.data, adminOrigin(address)));
}

function adminUrlOf({ adminUrl }: DataOptions): string | undefined {
  const fromEnvironment = process.env.TOLLGATE_ADMIN_URL;
  if (adminUrl !== undefined || fromEnvironment === undefined || fromEnvironment === '') return adminUrl;
  const origin = adminOriginOf(fromEnvironment);
  if (origin === undefined) throw new Misuse(`TOLLGATE_ADMIN_URL: ${ADMIN_URL_RULE}`);
  return origin;
}

async function settingsOf({ config, data }: DataOptions): Promise<Settings> {
  const { loadSettings } = await import('../config/load.js');
  return loadSettings({ config, data, secrets: false }).settings;
}

async function openClient(place: DataOptions): Promise<AdminClient> {
  const adminUrl = adminUrlOf(place);
  return adminUrl === undefined ? openNearest(await settingsOf(place)) : openHttpClient(place.data, adminUrl);
}

/** A start reads the store and opens ports: seconds with large books. A stop ends its calls: `drain_timeout_ms`, 30 s by default. */
const HELD_WAIT_MS_MAX = 60_000;
const HELD_POLL_MS = 20;

/**
 * The gateway, or the store where none runs. One that starts or stops has the store and cannot be asked: it is waited for,
 * and so is another command.
 */
async function openNearest(settings: Settings): Promise<AdminClient> {
  const { adminOrigin, findGateway } = await import('../admin/gateway-file.js');
  const { StoreHeld } = await import('../store/store-hold.js');
  const { openStoreClient } = await import('./store-client.js');
  const endMs = performance.now() + HELD_WAIT_MS_MAX;
  for (;;) {
    const address = await findGateway(settings.data);
    if (address !== undefined) return openHttpClient(settings.data, adminOrigin(address));
    try {
      return openStoreClient(settings);
    } catch (error) {
      if (!(error instanceof StoreHeld)) throw error;
      if (performance.now() > endMs) {
        throw new CommandError(
          `${error.message} It has done so for ${HELD_WAIT_MS_MAX / 1_000} s without answering: nothing was changed.`,
        );
      }
    }
    await sleep(HELD_POLL_MS);
  }
}

/** All items of a list, page by page, which may be of the route's own size. `path` may have a query already. */
export async function listAll<Item>(
  client: AdminClient,
  path: string,
  pageItems: number | 'default' = PAGE_ITEMS,
): Promise<Item[]> {
  const items: Item[] = [];
  let cursor: string | null = null;
  do {
    const limit = pageItems === 'default' ? undefined : String(pageItems);
    const query = queryOf({ limit, cursor: cursor ?? undefined });
    const page = (await client.call('GET', withQuery(path, query))) as { data: Item[]; next: string | null };
    items.push(...page.data);
    cursor = page.next;
  } while (cursor !== null);
  return items;
}

/** `path` with those of `parameters` that are given; it may have a query already. */
export function withQuery(path: string, parameters: URLSearchParams): string {
  const query = parameters.toString();
  if (query === '') return path;
  return `${path}${path.includes('?') ? '&' : '?'}${query}`;
}

/** Query parameters, without those that are not given. */
export function queryOf(parameters: Readonly<Record<string, string | undefined>>): URLSearchParams {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined) query.set(name, value);
  }
  return query;
}

/** As many as the interface gives at once. */
const PAGE_ITEMS = 1_000;
