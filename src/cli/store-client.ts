/**
 * The admin interface without a gateway: calls its routes on the store, in the process of the command.
 * admin-client.ts calls `openStoreTransport` if no gateway runs on the data directory.
 *
 * Must hold:
 * - The command has the store hold until `close`, so that no gateway starts meanwhile and misses the change
 *   (test/e2e/start-race.test.ts).
 * - Only a command that begins a store makes one, and removes it again if its request is rejected: otherwise
 *   a wrong folder would look like an empty gateway. A store that was there before is never removed
 *   (test/unit/cli/store-client.test.ts).
 */
import { existsSync, rmSync } from 'node:fs';
import { userInfo } from 'node:os';
import { ROOT } from '../admin/addresses.js';
import { AdminApi } from '../admin/api.js';
import { modelListOf, planListOf } from '../admin/routes.js';
import { ContentsReader } from '../call-log/contents-writer.js';
import { callReaderOf } from '../call-log/call-reader.js';
import type { Settings } from '../config/schema.js';
import { SystemClock } from '../core/clock.js';
import { catalogOf } from '../gateway/catalog-records.js';
import { COMMAND } from '../registry/operator-change.js';
import { ownRegistryService, Registry } from '../registry/registry.js';
import { StoreOnly } from '../registry/registry-context.js';
import { Store } from '../store/store.js';
import { noBooks, storePath } from '../store/store-file.js';
import { StoreHold } from '../store/store-hold.js';
import { createLog } from '../telemetry/log.js';
import { CommandError, printError } from './output.js';

const REQUESTER = { operator: COMMAND, from: userName() };

/** Returns the name of the system's user; the number of a user without a name, as containers may have. */
function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return String(process.getuid?.() ?? 'unknown');
  }
}

const NO_GATEWAY = 'No gateway runs on this data directory: it reads the settings when it starts.';
const rejectWithoutGateway = (): Promise<never> => Promise.reject(new CommandError(NO_GATEWAY));

/** A change here would change only this host's copy of the shared accounts and keys. */
const SHARED_ERROR =
  'No gateway runs on this data directory, and its accounts and keys are shared with other hosts: start it, or give ' +
  '--admin-url of one that runs.';

/** A response of the admin interface. */
export interface AdminResponse {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
}

/** The admin interface, reached over HTTP (admin-client.ts) or in this process. */
export interface AdminTransport {
  /** `path`: encoded, below `/admin/v1`. `body`: JSON or empty. A CommandError if there is no response. */
  readonly exchange: (method: string, path: string, body: string) => Promise<AdminResponse>;
  readonly close: () => Promise<void>;
}

/**
 * What a command does if there is no store: `reject`, so that a wrong data directory is noticed; `create`
 * one; or read only the `catalogue`, which is in the settings.
 */
export type MissingStore = 'reject' | 'create' | 'catalogue';

/**
 * Throws StoreHeld if another process works on the store, and StoreError if the store cannot be read, or is
 * missing and `missingStore` is `reject`. If a store is made, standard error says so when the first request
 * has been carried out, because the data directory may be a wrong one.
 */
export function openStoreTransport(settings: Settings, missingStore: MissingStore): AdminTransport {
  const { data, sharing } = settings;
  const hasStore = existsSync(storePath(data));
  if (!hasStore && missingStore === 'catalogue') return openCatalogTransport(settings);
  // Of hosts that share, only a gateway makes them: it takes them over from the others.
  if (!hasStore && (missingStore === 'reject' || sharing !== undefined)) throw noBooks(data);
  const { store, close, keep } = openHeldStore(data, missingStore);
  const registry = new Registry({
    store,
    catalog: catalogOf(settings),
    clock: new SystemClock(),
    accountsMax: settings.limits.accounts,
    keysMax: settings.limits.keys,
    groupsMax: settings.limits.groups,
    live: new StoreOnly(store, undefined, settings.quota_timezone),
  });
  // Parts that only a gateway has are empty, or reject with NO_GATEWAY. Nothing waits in memory for a flush.
  const api = new AdminApi({
    registry,
    service: ownRegistryService(registry),
    flushBooks: () => Promise.resolve(true),
    flushCalls: () => undefined,
    status: () => ({}),
    reload: () => Promise.resolve({ applied: [], restartNeeded: [], replacing: 0, problems: [NO_GATEWAY] }),
    changeLog: () => {
      throw new CommandError(NO_GATEWAY);
    },
    resetUpstreams: rejectWithoutGateway,
    clearCache: rejectWithoutGateway,
    accountSpans: () => [],
    settings: () => [],
    calls: callReaderOf(settings.data),
    contents: new ContentsReader(settings.data),
    hosts: undefined,
    log: createLog('command'),
  });
  return {
    exchange: async (method, path, body) => {
      if (sharing !== undefined && method !== 'GET') throw new CommandError(SHARED_ERROR);
      const [pathOnly = '', query = ''] = path.split('?', 2);
      const response = await api.find(method, `${ROOT}${pathOnly}`, REQUESTER).handle(query, body);
      if (response.status < 400) keep();
      return response;
    },
    close,
  };
}

interface HeldStore {
  readonly store: Store;
  /** Says that a store that was made here stays; nothing for one that was there. */
  readonly keep: () => void;
  /** Closes the store and gives the hold back. Before, removes a store that was made and not kept. */
  readonly close: () => Promise<void>;
}

/** Opens or makes the store with the hold, as `Store.hold` does. Throws as `openStoreTransport` does. */
function openHeldStore(data: string, missingStore: MissingStore): HeldStore {
  const hold = StoreHold.take(data, { kind: 'command' });
  try {
    const path = storePath(data);
    // Asked again with the hold: until then another command may have made the store, or removed its own.
    let isUnkept = !existsSync(path);
    if (isUnkept && missingStore !== 'create') throw noBooks(data);
    const store = new Store(data);
    return {
      store,
      keep: () => {
        if (!isUnkept) return;
        isUnkept = false;
        printError(
          `There are no books in ${data}: they are made now. If a gateway has others, name their folder (--data, TOLLGATE_DATA).`,
        );
      },
      close: async () => {
        await store.close();
        if (isUnkept) for (const file of [path, `${path}-lock`]) rmSync(file, { force: true });
        await hold.giveBack();
      },
    };
  } catch (error) {
    void hold.giveBack();
    throw error;
  }
}

/** Serves the two lists of the catalogue. A request for anything else is rejected: there is no store. */
function openCatalogTransport(settings: Settings): AdminTransport {
  const catalog = catalogOf(settings);
  const listOf = { '/models': modelListOf, '/plans': planListOf };
  return {
    exchange: (_, path) =>
      path === '/models' || path === '/plans'
        ? Promise.resolve({
            ...{ status: 200, contentType: 'application/json' },
            body: JSON.stringify(listOf[path](catalog)),
          })
        : Promise.reject(noBooks(settings.data)),
    close: () => Promise.resolve(),
  };
}
