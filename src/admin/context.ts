/**
 * What a route of the admin interface works with: who asks, the registry for one request, and the parts of
 * the gateway. Route files use it. server.ts and cli/store-client.ts give the parts, api.ts adds the rest.
 * Types alone, of the main thread.
 *
 * Must hold: a route has no other way to the registry than these types, so it reads no statement that lacks
 * what other processes have used, and makes no change of the registry that is not recorded. What changes
 * something else (`reload`, `changeLog`, `resetUpstreams`, `clearCache`, `hosts.forget`) has no such tie: its
 * route calls `service.record` (test/e2e/changes.test.ts).
 */
import type { CallReader } from '../call-log/call-reader.js';
import type { ContentsReader } from '../call-log/contents-writer.js';
import type { SettingChange, SettingInForce } from '../config/settings-in-force.js';
import type { Operator } from '../core/roles.js';
import type { ChangeDetails } from '../registry/operator-change.js';
import type { Accounts } from '../registry/accounts.js';
import type { Credits } from '../registry/credits.js';
import type { Groups } from '../registry/groups.js';
import type { Keys } from '../registry/keys.js';
import type { Operators } from '../registry/operators.js';
import type { Registry, RegistryService } from '../registry/registry.js';
import type { AccountSpan } from '../telemetry/account-history.js';
import type { RingName } from '../telemetry/history.js';
import type { LogChange, LogView } from '../telemetry/log-switch.js';
import type { Log } from '../telemetry/log.js';
import type { HostView } from './views.js';

/** Who sends a request, and from where. */
export interface Requester {
  readonly operator: Operator;
  /** The client's address as text, or the system's user of a command that works without a gateway. */
  readonly from: string;
}

/**
 * What is read without `service`: the registry without statements of accounts, groups and keys, and without
 * what writes to it (`changes` reads the rows of who changed what). A statement that is read elsewhere than
 * in `service.read` lacks what other processes have used.
 */
export interface RecordReader extends Readonly<Pick<Registry, 'catalog' | 'changes' | 'usage'>> {
  readonly accounts: Pick<Accounts, 'recordOf'>;
  readonly groups: Pick<Groups, 'membersOf'>;
  readonly keys: Pick<Keys, 'recordOf'>;
  readonly credits: Pick<Credits, 'list'>;
  readonly operators: Pick<Operators, 'find' | 'identityOf' | 'list'>;
}

/** The registry for one request. Its changes are recorded as changes of the requester. */
export interface RequestService extends Pick<RegistryService, 'read'> {
  /** Runs `work` in one transaction. What `work` throws undoes all of it. */
  change<Result>(work: (registry: Registry) => Result): Result | Promise<Result>;
  /**
   * Records a change that was made outside the registry. If the change cannot be recorded, the log and the
   * response say so. Never rejects for that.
   */
  record(note: ChangeDetails): Promise<void>;
}

/** What `respond` of a route gets besides its input: the gateway's parts, and the requester. */
export interface AdminContext extends Omit<AdminParts, 'service'>, Requester {
  readonly service: RequestService;
  /** Adds a warning to a response of success. A second warning replaces the first. */
  readonly warn: (text: string) => void;
  /** Aborted when the requester has left, for work that takes long. Undefined for a command. */
  readonly requesterLeft: AbortSignal | undefined;
}

/** The parts of the gateway that routes use. A command without a gateway has others (cli/store-client.ts). */
export interface AdminParts {
  readonly registry: RecordReader;
  readonly service: RegistryService;
  readonly log: Log;
  /** Resolves when all charges settled so far are in the store. False if some are not. */
  readonly flushBooks: () => Promise<boolean>;
  /** Writes the records and contents of this process's calls that have ended, so that a read finds them. */
  readonly flushCalls: () => void;
  /** Returns the document of `/admin/v1/status`. */
  readonly status: () => object | Promise<object>;
  /** Reads the settings again. `dryRun` only reports what would change; `restart` also replaces gateways. */
  readonly reload: (request: {
    readonly dryRun: boolean;
    readonly restart: boolean;
  }) => Promise<ReloadResult>;
  /** Changes what is logged, by the fields that `change` has, and returns what is logged afterwards. */
  readonly changeLog: (change: LogChange) => LogView;
  /** Resets the breakers of that model's upstreams, or of all. Resolves when all processes have done so. */
  readonly resetUpstreams: (model: string | undefined) => Promise<void>;
  /** Removes the cached responses of that model, or of all. Resolves when all processes have done so. */
  readonly clearCache: (model: string | undefined) => Promise<void>;
  /** Returns the ended spans of that ring, each with its busiest accounts. */
  readonly accountSpans: (ring: RingName) => readonly AccountSpan[];
  /** Returns each setting with the value that is in force now, and where that value comes from. */
  readonly settings: () => readonly SettingInForce[];
  /** Reads the call log, which is empty if `call_log` was never on. */
  readonly calls: CallReader;
  /** Reads contents of calls. There are none if `call_log.contents` was never on. */
  readonly contents: ContentsReader;
  /** Undefined if nothing is shared with other hosts. */
  readonly hosts: SharedHosts | undefined;
}

export interface ReloadResult {
  readonly applied: readonly string[];
  readonly restartNeeded: readonly string[];
  /** Values before and after: of both lists in a dry run, else of what was applied. */
  readonly changes?: readonly SettingChange[] | undefined;
  /** Why nothing was applied, each a whole line; empty if the settings were applied. */
  readonly problems: readonly string[];
  /** How many gateways are being replaced from now on. */
  readonly replacing: number;
}

/** What the routes need of the host directory. */
export interface SharedHosts {
  list(): Promise<readonly SharedHost[]>;
  /**
   * Removes a host that will not come back. Rejects with a ProxyError (core/errors.ts), which becomes the
   * error response, if the host is alive or unknown, or the server of sharing cannot be reached.
   */
  forget(id: string): Promise<void>;
}

export interface SharedHost {
  readonly id: string;
  readonly isSelf: boolean;
  readonly state: HostView['state'];
  /** When the server of sharing last heard the host: Unix ms by its clock; undefined if it does not know. */
  readonly heardMs: number | undefined;
}
