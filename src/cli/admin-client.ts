/**
 * How commands reach accounts and keys: over the admin interface of the gateway that runs on the data directory, or, while
 * none runs, on the store itself. Both take the same requests and give the same answers.
 */
import type { Command } from 'commander';
import type { AdminApi } from '../admin/api.js';
import type { GatewayAddress } from '../admin/gateway-file.js';
import type { Settings } from '../config/schema.js';
import { Refusal } from './output.js';

export type AdminCallMethod = 'GET' | 'POST' | 'DELETE';

export interface AdminClient {
  /** The answer's body, as its path gives it: a view of admin/views.ts. `path` is below `/admin/v1`, encoded. Throws `Refusal` with the gateway's own words. */
  call(method: AdminCallMethod, path: string, body?: object): Promise<unknown>;
  close(): Promise<void>;
}

/** Where the settings are; options of every command here. */
export interface PlaceOptions {
  readonly config?: string;
  readonly data?: string;
  readonly json?: boolean;
}

export function addPlaceOptions(command: Command): Command {
  return command
    .option(
      '--config <file>',
      'configuration file (TOLLGATE_CONFIG; default: tollgate.yaml, where there is one)',
    )
    .option('--data <folder>', 'folder of the books (TOLLGATE_DATA; default: that of the configuration)')
    .option('--json', 'print JSON');
}

/** Opens a client, lets `use` work with it and closes it. */
export async function withAdminClient(
  place: PlaceOptions,
  use: (client: AdminClient) => Promise<void>,
): Promise<void> {
  const { loadSettings } = await import('../config/load.js');
  const { findGateway } = await import('../admin/gateway-file.js');
  const { settings } = loadSettings({ config: place.config, data: place.data, secrets: false });
  const address = await findGateway(settings.data);
  const client =
    address === undefined ? await openStoreClient(settings) : await openHttpClient(settings.data, address);
  try {
    await use(client);
  } finally {
    await client.close();
  }
}

/** All items of a list, page by page. `path` may have a query already. */
export async function listAll<Item>(client: AdminClient, path: string): Promise<Item[]> {
  const items: Item[] = [];
  let cursor: string | null = null;
  do {
    const query = new URLSearchParams({ limit: String(PAGE_ITEMS) });
    if (cursor !== null) query.set('cursor', cursor);
    const joined = `${path}${path.includes('?') ? '&' : '?'}${query.toString()}`;
    const page = (await client.call('GET', joined)) as { data: Item[]; next: string | null };
    items.push(...page.data);
    cursor = page.next;
  } while (cursor !== null);
  return items;
}

/** As many as the interface gives at once. */
const PAGE_ITEMS = 1_000;

/** A change waits for the disk; on a busy one that is a second. */
const CALL_TIMEOUT_MS = 30_000;

async function openHttpClient(dataPath: string, address: GatewayAddress): Promise<AdminClient> {
  const { adminOrigin } = await import('../admin/gateway-file.js');
  const { findAdminToken, tokenPath } = await import('../admin/token.js');
  const token = findAdminToken(dataPath, process.env);
  if (token === undefined) {
    throw new Refusal(
      `A gateway runs, but its token is not in ${tokenPath(dataPath)}: set TOLLGATE_ADMIN_TOKEN as for the gateway.`,
    );
  }
  const origin = adminOrigin(address);
  const exchange = async (method: string, path: string, body: object | undefined) => {
    const response = await fetch(`${origin}/admin/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: body === undefined ? null : JSON.stringify(body),
      signal: AbortSignal.timeout(CALL_TIMEOUT_MS),
      redirect: 'error',
    });
    return { status: response.status, text: await response.text() };
  };
  return {
    call: async (method, path, body) => {
      const { status, text } = await exchange(method, path, body).catch((error: unknown) => {
        throw new Refusal(unansweredText(origin, error));
      });
      return answerOf(status, text);
    },
    close: () => Promise.resolve(),
  };
}

/** fetch hides the reason in the cause of its error. */
function unansweredText(origin: string, error: unknown): string {
  const reason = error instanceof Error ? (error.cause ?? error) : error;
  return (
    `The gateway at ${origin} was there and did not answer: ${reason instanceof Error ? reason.message : String(reason)}. ` +
    'A change may have been made or not: look before trying again.'
  );
}

async function openStoreClient(settings: Settings): Promise<AdminClient> {
  const { AdminApi } = await import('../admin/api.js');
  const { SystemClock } = await import('../core/clock.js');
  const { Registry } = await import('../registry/registry.js');
  const { catalogOf } = await import('../gateway/snapshot.js');
  const { Store } = await import('../store/store.js');
  const { createLog } = await import('../telemetry/log.js');
  const store = new Store(settings.data);
  const registry = new Registry({
    store,
    catalog: catalogOf(settings),
    clock: new SystemClock(),
    accountsMax: settings.limits.accounts,
    keysMax: settings.limits.keys,
    live: undefined,
  });
  const api: AdminApi = new AdminApi({ registry, status: () => ({}), log: createLog('command') });
  return {
    call: (method, path, body) => {
      const [plain = '', query = ''] = path.split('?', 2);
      const answer = api.handle({
        method,
        path: `/admin/v1${plain}`,
        query,
        body: body === undefined ? '' : JSON.stringify(body),
      });
      return Promise.resolve().then(() => answerOf(answer.status, answer.body));
    },
    close: () => store.close(),
  };
}

function answerOf(status: number, text: string): unknown {
  const body: unknown = JSON.parse(text);
  if (status < 400) return body;
  throw new Refusal((body as { error: { message: string } }).error.message);
}
