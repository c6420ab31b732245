/**
 * The admin interface without a gateway: calls its routes on the store, in the process of the command.
 * admin-client.ts calls `openStoreExchange` if no gateway runs on the data directory.
 *
 * Must hold: the command holds the store while it works, so that no gateway starts meanwhile and misses the
 * change (test/e2e/start-race.test.ts).
 */
import { existsSync } from 'node:fs';
import { userInfo } from 'node:os';
import { AdminApi } from '../admin/api.js';
import { ContentsReader } from '../call-log/contents-writer.js';
import { callReaderOf } from '../call-log/call-reader.js';
import type { Settings } from '../config/schema.js';
import { SystemClock } from '../core/clock.js';
import { catalogOf } from '../gateway/snapshot.js';
import { ownRegistryService, Registry } from '../registry/registry.js';
import { StoreOnly } from '../registry/registry-context.js';
import { Store } from '../store/store.js';
import { storePath } from '../store/store-file.js';
import { createLog } from '../telemetry/log.js';
import { CommandError } from './output.js';

/** The operator of a command. Whoever may open the data directory may do everything. */
const REQUESTER = { operator: { who: 'command', role: 'admin' }, from: userName() } as const;

/** The name of the system's user; the number of a user without a name, as containers may have. */
function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return String(process.getuid?.() ?? 'unknown');
  }
}

const NO_GATEWAY = 'No gateway runs on this data directory: it reads the settings when it starts.';
const rejectWithoutGateway = (): Promise<never> => Promise.reject(new CommandError(NO_GATEWAY));

/** Why shared accounts cannot be changed here: only this host's copy would change. */
const SHARED =
  'No gateway runs on this data directory, and its accounts and keys are shared with other hosts: start it, or give ' +
  '--admin-url of one that runs.';

const NO_BOOKS = 'There are no books';
const DATA_RULE = 'If a gateway has others, name their folder (--data, TOLLGATE_DATA).';

/** A response of the admin interface. */
export interface AdminResponse {
  readonly status: number;
  readonly body: string;
}

/** The admin interface, however it is reached. */
export interface AdminExchange {
  /**
   * `path` is encoded and below `/admin/v1`; `body` is JSON, or empty. Rejects with CommandError if there is
   * no response.
   */
  readonly exchange: (method: string, path: string, body: string) => Promise<AdminResponse>;
  readonly close: () => Promise<void>;
}

/** What a command does in a folder without a store: make one, or reject. */
export type WithoutBooks = 'made' | 'rejected';

/**
 * Throws StoreHeld if another process works on the store, and StoreError if the store cannot be read. If the
 * folder has no store, a store is made, and standard error says so, because the folder may be wrong. With
 * `withoutBooks: 'rejected'` a CommandError is thrown instead.
 */
export function openStoreExchange(settings: Settings, withoutBooks: WithoutBooks): AdminExchange {
  const hasBooks = existsSync(storePath(settings.data));
  if (!hasBooks && withoutBooks === 'rejected')
    throw new CommandError(`${NO_BOOKS} in ${settings.data}. ${DATA_RULE}`);
  const store = Store.hold(settings.data, { kind: 'command' });
  if (!hasBooks) process.stderr.write(`${NO_BOOKS} in ${settings.data}: they are made now. ${DATA_RULE}\n`);
  const registry = new Registry({
    store,
    catalog: catalogOf(settings),
    clock: new SystemClock(),
    accountsMax: settings.limits.accounts,
    keysMax: settings.limits.keys,
    groupsMax: settings.limits.groups,
    live: new StoreOnly(store, undefined, settings.quota_timezone),
  });
  // What only a gateway has is empty, or is rejected with NO_GATEWAY. Nothing waits in memory to be flushed.
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
      if (settings.sharing !== undefined && method !== 'GET') throw new CommandError(SHARED);
      const [pathOnly = '', query = ''] = path.split('?', 2);
      return api.find(method, `/admin/v1${pathOnly}`, REQUESTER).handle(query, body);
    },
    close: () => store.close(),
  };
}
